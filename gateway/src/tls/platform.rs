//! The platform's own certificate: a wildcard from files, reloaded when the files change.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use contract::hostname::Hostname;
use contract::time::UnixSeconds;
use rustls::sign::CertifiedKey;

use super::open::{certified_key, covers, names_of};
use crate::replica::Expiry;

/// A certificate for the platform's hosts. Reading it is lock-free; [`PlatformCertificate::reload`] replaces it only by
/// one that is good.
pub struct PlatformCertificate {
    chain_file: PathBuf,
    key_file: PathBuf,
    current: ArcSwap<Loaded>,
}

struct Loaded {
    certified: Arc<CertifiedKey>,
    names: Vec<String>,
    chain_pem: Vec<u8>,
}

impl PlatformCertificate {
    /// Loads both files.
    ///
    /// # Errors
    /// When a file cannot be read, or chain and key do not belong together.
    pub fn load(chain_file: PathBuf, key_file: PathBuf) -> anyhow::Result<Self> {
        let current = ArcSwap::from_pointee(read(&chain_file, &key_file)?);
        Ok(Self { chain_file, key_file, current })
    }

    /// The certificate, if it covers the hostname.
    pub fn covering(&self, hostname: &Hostname) -> Option<Arc<CertifiedKey>> {
        let current = self.current.load();
        let covered = current.names.iter().any(|name| covers(name, hostname.as_str()));
        covered.then(|| current.certified.clone())
    }

    /// When it ends.
    pub fn expiry(&self) -> Option<Expiry> {
        let current = self.current.load();
        let leaf = current.certified.cert.first()?;
        let (_, leaf) = x509_parser::parse_x509_certificate(leaf).ok()?;
        let (begins, ends) = (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
        let hostname = current.names.first().cloned().unwrap_or_default();
        Some(Expiry { hostname, not_before: UnixSeconds(begins), not_after: UnixSeconds(ends) })
    }

    /// Reads the files again. Returns whether the certificate changed.
    ///
    /// # Errors
    /// As [`PlatformCertificate::load`]; the certificate in use stays.
    pub fn reload(&self) -> anyhow::Result<bool> {
        let loaded = read(&self.chain_file, &self.key_file)?;
        let changed = loaded.chain_pem != self.current.load().chain_pem;
        if changed {
            self.current.store(Arc::new(loaded));
        }
        Ok(changed)
    }
}

fn read(chain_file: &PathBuf, key_file: &PathBuf) -> anyhow::Result<Loaded> {
    let chain_pem = std::fs::read(chain_file).with_context(|| format!("reading {}", chain_file.display()))?;
    let key_pem =
        zeroize::Zeroizing::new(std::fs::read(key_file).with_context(|| format!("reading {}", key_file.display()))?);
    let certified = certified_key(&chain_pem, &key_pem).with_context(|| chain_file.display().to_string())?;
    let names = names_of(&certified)?;
    anyhow::ensure!(!names.is_empty(), "{} covers no DNS name", chain_file.display());
    Ok(Loaded { certified: Arc::new(certified), names, chain_pem })
}
