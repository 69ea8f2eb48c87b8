//! The platform's own certificate: a wildcard from files, replaced when the files change.
//!
//! A replacement must be at least as good as the certificate in use: a server's certificate and not an authority's, a
//! key that browsers accept, the same names, valid now, from the same authority or one that the system trusts, and no
//! earlier end. Any other is refused and the certificate in use stays, because a mistake in this file would end every
//! connection to every platform host at once.
//!
//! Three exceptions. A certificate that this process served before may return, so every replacement can be undone; and
//! if browsers do not accept the key in use, any certificate with a key that they accept replaces it: in both cases it
//! must be valid now and cover the platform's hosts. If clients cannot trust the certificate in use, the replacement
//! may have any authority and end.
//!
//! At a start there is no certificate to fall back to: any chain with its key is served, and its faults are reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use chassis::certificate::{FaultKind, Pair, ReplacedChains, names_of};
use chassis::peer::CERTIFICATES_BYTES_MAX;
use chassis::secret::{FILE_BYTES_MAX, read_regular};
use contract::hostname::Hostname;
use contract::time::UnixSeconds;
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;

pub(crate) use self::fault::{CertificateFault, FaultyCertificate};
use replica::{Expiry, Replica};

mod fault;

/// A certificate for the platform's hosts. Reading it is lock-free; [`PlatformCertificate::reload`] replaces it.
pub(crate) struct PlatformCertificate {
    chain_file: PathBuf,
    key_file: PathBuf,
    current: ArcSwap<Pair>,
    faults: Mutex<Vec<CertificateFault>>,
    known: Mutex<KnownHosts>,
    /// The chains that were served before the current one.
    replaced: ReplacedChains,
}

/// The platform's own hosts, read once per checked chain: finding them reads all sites.
#[derive(Default)]
struct KnownHosts {
    chain_pem: Vec<u8>,
    replica_present: bool,
    names: Vec<Hostname>,
}

impl PlatformCertificate {
    /// Loads both files.
    ///
    /// # Errors
    /// A file cannot be read, or the key does not fit the chain.
    pub(crate) fn load(chain_file: PathBuf, key_file: PathBuf) -> anyhow::Result<Self> {
        let current = ArcSwap::from_pointee(read(&chain_file, &key_file)?);
        Ok(Self {
            chain_file,
            key_file,
            current,
            faults: Mutex::default(),
            known: Mutex::default(),
            replaced: ReplacedChains::default(),
        })
    }

    /// The certificate, if it covers the hostname.
    pub(crate) fn covering(&self, hostname: &Hostname) -> Option<Arc<CertifiedKey>> {
        let current = self.current.load();
        current.covers(hostname.as_str()).then(|| current.certified.clone())
    }

    /// The start and end of its validity.
    pub(crate) fn expiry(&self) -> Expiry {
        let current = self.current.load();
        let hostname = current.names.first().cloned().unwrap_or_default();
        Expiry { hostname, not_before: current.not_before, not_after: current.not_after }
    }

    /// The faults at the last reload: of the certificate in use, or of the files that were to replace it.
    pub(crate) fn faults(&self) -> Vec<CertificateFault> {
        self.faults.lock().clone()
    }

    /// Reads the files again and takes their certificate if it may replace the one in use. Returns whether the
    /// certificate changed; [`PlatformCertificate::faults`] has the faults.
    pub(crate) fn reload(&self, replica: &Replica, now: UnixSeconds) -> bool {
        let current = self.current.load_full();
        let fault = |which, kind| CertificateFault { which, file: self.chain_file.clone(), kind };
        let found = read(&self.chain_file, &self.key_file);
        let chain_pem = found.as_ref().map_or(&current.chain_pem, |found| &found.chain_pem);
        let hosts = self.platform_hosts(replica, chain_pem);
        let refused = match found {
            Ok(found) if found.chain_pem == current.chain_pem => None,
            Ok(found) => match self.judge(&found, &current, &hosts, now) {
                Ok(()) => {
                    self.replaced.add(&current);
                    self.current.store(Arc::new(found));
                    self.faults.lock().clear();
                    return true;
                }
                Err(kind) => Some(fault(FaultyCertificate::Refused, kind)),
            },
            Err(error) => Some(fault(FaultyCertificate::Refused, FaultKind::Unusable(format!("{error:#}")))),
        };
        let in_use =
            current.sound(now).and_then(|()| current.for_browsers()).and_then(|()| current.cover_hosts(&hosts)).err();
        let in_use = in_use.map(|kind| fault(FaultyCertificate::InUse, kind));
        *self.faults.lock() = in_use.into_iter().chain(refused).collect();
        false
    }

    fn judge(&self, found: &Pair, current: &Pair, hosts: &[Hostname], now: UnixSeconds) -> Result<(), FaultKind> {
        found.for_browsers()?;
        if self.replaced.contains(found) || current.for_browsers().is_err() {
            return found.usable(now).and_then(|()| found.cover_hosts(hosts));
        }
        found.judge_against(current, hosts, now)
    }

    fn platform_hosts(&self, replica: &Replica, chain_pem: &[u8]) -> Vec<Hostname> {
        let mut known = self.known.lock();
        let replica_present = replica.is_present();
        if known.chain_pem != chain_pem || known.replica_present != replica_present {
            *known = KnownHosts { chain_pem: chain_pem.to_vec(), replica_present, names: replica.platform_hosts() };
        }
        known.names.clone()
    }
}

fn read(chain_file: &Path, key_file: &Path) -> anyhow::Result<Pair> {
    let read = |file: &Path, bytes_max| {
        let read = read_regular(file, bytes_max).with_context(|| format!("reading {}", file.display()))?;
        anyhow::Ok(read.0)
    };
    let chain_pem = read(chain_file, CERTIFICATES_BYTES_MAX)?.to_vec();
    let key_pem = read(key_file, FILE_BYTES_MAX)?;
    let pair = Pair::from_pem(chain_pem, &key_pem).with_context(|| chain_file.display().to_string())?;
    anyhow::ensure!(!names_of(&pair.certified)?.is_empty(), "{} covers no DNS name", chain_file.display());
    Ok(pair)
}
