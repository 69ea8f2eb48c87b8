//! Turns a sealed bundle or PEM into a certificate with its signing key.

use std::sync::Arc;

use anyhow::Context as _;
use chassis::peer::certified_key;
use chassis::seal::SealingKey;
use contract::certificate::CertificateBundle;
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Opens certificate bundles with the platform's sealing key.
#[derive(Clone)]
pub struct CertificateOpener(Arc<SealingKey>);

impl CertificateOpener {
    /// Opens with this key.
    pub fn new(key: SealingKey) -> Self {
        Self(Arc::new(key))
    }

    /// Whether this gateway has the secret that sealed a bundle's private key.
    pub(crate) fn has_secret_of(&self, bundle: &CertificateBundle) -> bool {
        self.0.has_secret_of(&bundle.key.0)
    }

    /// The chain and key of a bundle, checked: the seal opens for this hostname, the key fits the leaf, the leaf covers
    /// the hostname.
    ///
    /// # Errors
    /// The failed check, without any secret in the text.
    pub fn open(&self, bundle: &CertificateBundle) -> anyhow::Result<CertifiedKey> {
        let key = self.0.open(&bundle.key.0, bundle.hostname.as_str())?;
        let certified = certified_key(bundle.chain_pem.as_bytes(), &key)?;
        let names = names_of(&certified)?;
        anyhow::ensure!(names.iter().any(|name| covers(name, bundle.hostname.as_str())), "it does not cover the name");
        Ok(certified)
    }
}

/// The DNS names of the leaf, lower case.
pub(crate) fn names_of(certified: &CertifiedKey) -> anyhow::Result<Vec<String>> {
    let leaf = certified.end_entity_cert().context("the chain is empty")?;
    let (_, leaf) = X509Certificate::from_der(leaf).context("the leaf does not parse")?;
    let names = leaf.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|extension| extension.value.general_names.iter());
    Ok(names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        })
        .collect())
}

/// Whether a certificate name covers a hostname: equal, or a wildcard for exactly its first label (RFC 6125 6.4.3).
pub(crate) fn covers(name: &str, hostname: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(zone) => hostname.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == zone),
        None => name == hostname,
    }
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_wildcard_covers_one_label_and_not_its_zone() {
        assert!(covers("*.tollhouse.localhost", "demo.tollhouse.localhost"));
        assert!(!covers("*.tollhouse.localhost", "a.demo.tollhouse.localhost"));
        assert!(!covers("*.tollhouse.localhost", "tollhouse.localhost"));
        assert!(covers("a.example", "a.example"));
        assert!(!covers("a.example", "b.example"));
    }
}
