//! From a sealed bundle or PEM to something that can sign.

use std::sync::Arc;

use chassis::certificate::{certified_key, covers, names_of};
use chassis::seal::SealingKey;
use contract::certificate::CertificateBundle;
use rustls::sign::CertifiedKey;

/// Opens certificate bundles with the platform's key-encryption key.
#[derive(Clone)]
pub struct CertificateOpener(Arc<SealingKey>);

impl CertificateOpener {
    /// With this key.
    pub fn new(key: SealingKey) -> Self {
        Self(Arc::new(key))
    }

    /// Whether the private key of a bundle was sealed with a secret that we were given.
    pub(crate) fn has_secret_of(&self, bundle: &CertificateBundle) -> bool {
        self.0.has_secret_of(&bundle.key.0)
    }

    /// The chain and key of a bundle, checked: the seal opens for this hostname, the key fits the leaf, the leaf covers
    /// the hostname.
    ///
    /// # Errors
    /// What is wrong, without any secret in the words.
    pub fn open(&self, bundle: &CertificateBundle) -> anyhow::Result<CertifiedKey> {
        let key = self.0.open(&bundle.key.0, bundle.hostname.as_str())?;
        let certified = certified_key(bundle.chain_pem.as_bytes(), &key)?;
        let names = names_of(&certified)?;
        anyhow::ensure!(names.iter().any(|name| covers(name, bundle.hostname.as_str())), "it does not cover the name");
        Ok(certified)
    }
}
