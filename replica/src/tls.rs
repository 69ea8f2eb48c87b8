//! Certificates of the edge: opens the sealed bundles of the control plane.
//!
//! A handshake chooses by SNI (in the gateway's `server/hooks.rs`): the replica's certificate for exactly this name,
//! else the platform's wildcard if it covers the name. A handshake never waits for an order or a request.

use std::sync::Arc;

use chassis::certificate::{certified_key, covers, names_of};
use chassis::seal::SealingKey;
use contract::certificate::CertificateBundle;
use rustls::sign::CertifiedKey;

/// Opens sealed certificate bundles with the platform's sealing key.
#[derive(Clone)]
pub struct CertificateOpener(Arc<SealingKey>);

impl CertificateOpener {
    /// Opens with this key.
    pub fn new(key: SealingKey) -> Self {
        Self(Arc::new(key))
    }

    /// Whether this gateway has the secret that sealed a bundle's private key.
    pub fn has_secret_of(&self, bundle: &CertificateBundle) -> bool {
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
        anyhow::ensure!(names.iter().any(|name| covers(name, bundle.hostname.as_str())), "it is for another name");
        Ok(certified)
    }
}
