//! Which names a certificate covers.

use std::net::IpAddr;

use anyhow::Context as _;
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The DNS names of the leaf, lower case.
///
/// # Errors
/// If the chain is empty, or its first certificate cannot be parsed.
pub fn names_of(certified: &CertifiedKey) -> anyhow::Result<Vec<String>> {
    names(certified, |name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    })
}

/// The addresses of the leaf.
pub(super) fn addresses_of(certified: &CertifiedKey) -> anyhow::Result<Vec<String>> {
    names(certified, |name| match name {
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok().map(|address| address.to_string())
        }
        _ => None,
    })
}

fn names(certified: &CertifiedKey, text: impl Fn(&GeneralName<'_>) -> Option<String>) -> anyhow::Result<Vec<String>> {
    let leaf = certified.end_entity_cert().context("the chain is empty")?;
    let (_, leaf) = X509Certificate::from_der(leaf).context("cannot parse the first certificate of the chain")?;
    let names = leaf.subject_alternative_name().ok().flatten();
    Ok(names.iter().flat_map(|extension| extension.value.general_names.iter()).filter_map(text).collect())
}

/// Whether a certificate name covers a hostname: equal, or a wildcard for exactly its first label (RFC 6125 6.4.3).
#[must_use]
pub fn covers(name: &str, hostname: &str) -> bool {
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
