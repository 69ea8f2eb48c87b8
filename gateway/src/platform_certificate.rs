//! The platform's own certificate: a wildcard from files, replaced when the files change.
//!
//! A replacement is accepted only if it can do what the certificate in use does: serve as a server's certificate and
//! not as an authority's, cover the same names, be valid now, come from the same authority or from one that the system
//! trusts, and last at least as long. Any other is refused and the certificate in use stays, because a mistake in this
//! file would end every connection to every platform host at once. A certificate that this process has served before
//! may return, so a replacement can always be undone. At a start there is no certificate to fall back to: any chain
//! with its key is served, and its faults are reported. If clients cannot trust the certificate in use, the replacement
//! may have any authority and end.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use chassis::peer::{CERTIFICATES_BYTES_MAX, certified_key};
use chassis::secret::{FILE_BYTES_MAX, read_regular};
use contract::hostname::Hostname;
use contract::time::UnixSeconds;
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;

use self::authority::{Authority, is_signed_by};
pub(crate) use self::fault::{CertificateFault, FaultKind, Place};
use crate::replica::{Expiry, Replica};
use crate::tls::{covers, names_of};

mod authority;
mod fault;

/// The largest number of remembered chains that were served. Chains change every few months, or return after a mistake.
const SERVED_MAX: usize = 16;

/// A certificate for the platform's hosts. Reading it is lock-free; [`PlatformCertificate::look`] replaces it.
pub(crate) struct PlatformCertificate {
    chain_file: PathBuf,
    key_file: PathBuf,
    current: ArcSwap<Loaded>,
    faults: Mutex<Vec<CertificateFault>>,
    known: Mutex<KnownHosts>,
    /// Digests of the chains that were served before the current one.
    served: Mutex<VecDeque<Vec<u8>>>,
}

struct Loaded {
    certified: Arc<CertifiedKey>,
    names: Vec<String>,
    chain_pem: Vec<u8>,
    not_before: UnixSeconds,
    not_after: UnixSeconds,
    /// Clients accept it as a server's certificate (RFC 5280, 4.2.1.12).
    is_servers: bool,
    /// It is an authority's certificate (RFC 5280, 4.2.1.9), which clients do not accept from a server.
    is_authoritys: bool,
    is_self_signed: bool,
    authority: Authority,
}

/// The authorities that the system trusts, loaded on the first use.
static SYSTEM_ROOTS: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
});

/// The platform's own hosts, read once per judged chain: finding them reads all sites.
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
            served: Mutex::default(),
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

    /// The faults at the last look: of the certificate in use, or of the files that were to replace it.
    pub(crate) fn faults(&self) -> Vec<CertificateFault> {
        self.faults.lock().clone()
    }

    /// Reads the files again and takes their certificate if it may replace the one in use. Returns whether the
    /// certificate changed; [`PlatformCertificate::faults`] has the faults.
    pub(crate) fn look(&self, replica: &Replica, now: UnixSeconds) -> bool {
        let current = self.current.load_full();
        let fault = |place, kind| CertificateFault { place, file: self.chain_file.clone(), kind };
        let found = read(&self.chain_file, &self.key_file);
        let chain_pem = found.as_ref().map_or(&current.chain_pem, |found| &found.chain_pem);
        let hosts = self.platform_hosts(replica, chain_pem);
        let refused = match found {
            Ok(found) if found.chain_pem == current.chain_pem => None,
            Ok(found) => match self.judge(&found, &current, &hosts, now) {
                Ok(()) => {
                    self.note_served(&current);
                    self.current.store(Arc::new(found));
                    self.faults.lock().clear();
                    return true;
                }
                Err(kind) => Some(fault(Place::Refused, kind)),
            },
            Err(error) => Some(fault(Place::Refused, FaultKind::Unusable(format!("{error:#}")))),
        };
        let in_use = current.sound(now).and_then(|()| current.cover_hosts(&hosts)).err();
        let in_use = in_use.map(|kind| fault(Place::InUse, kind));
        *self.faults.lock() = in_use.into_iter().chain(refused).collect();
        false
    }

    fn judge(&self, found: &Loaded, current: &Loaded, hosts: &[Hostname], now: UnixSeconds) -> Result<(), FaultKind> {
        if self.served.lock().contains(&found.digest()) {
            return found.usable(now).and_then(|()| found.cover_hosts(hosts));
        }
        found.judge_against(current, hosts, now)
    }

    fn note_served(&self, replaced: &Loaded) {
        let (mut served, digest) = (self.served.lock(), replaced.digest());
        if !served.contains(&digest) {
            if served.len() == SERVED_MAX {
                served.pop_front();
            }
            served.push_back(digest);
        }
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

impl Loaded {
    fn covers(&self, hostname: &str) -> bool {
        self.names.iter().any(|name| covers(name, hostname))
    }

    fn digest(&self) -> Vec<u8> {
        digest(&SHA256, &self.chain_pem).as_ref().to_vec()
    }

    /// Whether clients may trust it at `now`: it is usable, and not self-signed unless the system trusts it.
    fn sound(&self, now: UnixSeconds) -> Result<(), FaultKind> {
        self.usable(now)?;
        if self.is_self_signed && !self.is_trusted(now) { Err(FaultKind::SelfSigned) } else { Ok(()) }
    }

    /// Whether it is a server's certificate, not an authority's, and valid at `now`.
    fn usable(&self, now: UnixSeconds) -> Result<(), FaultKind> {
        if self.is_authoritys {
            return Err(FaultKind::Ca);
        }
        if !self.is_servers {
            return Err(FaultKind::Purpose);
        }
        if now > self.not_after {
            return Err(FaultKind::Expired(self.not_after));
        }
        if now < self.not_before { Err(FaultKind::NotYetValid(self.not_before)) } else { Ok(()) }
    }

    /// Whether it covers all of the platform's hosts.
    fn cover_hosts(&self, hosts: &[Hostname]) -> Result<(), FaultKind> {
        self.require(hosts.iter().map(Hostname::as_str).filter(|host| !self.covers(host)))
    }

    fn require<'n>(&self, missing: impl Iterator<Item = &'n str>) -> Result<(), FaultKind> {
        let missing: Vec<String> = missing.map(str::to_owned).collect();
        if missing.is_empty() { Ok(()) } else { Err(FaultKind::Names { found: self.names.clone(), missing }) }
    }

    /// Whether the system trusts the authority of the chain.
    fn is_trusted(&self, now: UnixSeconds) -> bool {
        self.verify(now).is_some()
    }

    fn verify(&self, now: UnixSeconds) -> Option<()> {
        let provider = Arc::new(provider::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(SYSTEM_ROOTS.clone(), provider).build().ok()?;
        let (leaf, others) = self.certified.cert.split_first()?;
        let host = ServerName::try_from(self.names.first()?.replacen('*', "any", 1)).ok()?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.0).ok()?));
        verifier.verify_server_cert(leaf, others, &host, &[], now).ok().map(|_| ())
    }

    /// Whether it may replace `current`. If `current` lacks one of the platform's hosts, its names do not bind the
    /// replacement; if clients cannot trust `current`, the replacement may have any authority and end earlier.
    fn judge_against(&self, current: &Self, hosts: &[Hostname], now: UnixSeconds) -> Result<(), FaultKind> {
        self.usable(now)?;
        self.cover_hosts(hosts)?;
        if current.cover_hosts(hosts).is_err() {
            return Ok(());
        }
        // Only the same wildcard covers a wildcard.
        self.require(current.names.iter().map(String::as_str).filter(|name| !self.covers_name(name)))?;
        if current.sound(now).is_err() {
            return Ok(());
        }
        if !self.authority.is(&current.authority) && !self.is_trusted(now) {
            let (found, in_use) = (self.authority.name(), current.authority.name());
            return Err(FaultKind::Authority { found, in_use });
        }
        if self.not_after < current.not_after && (current.is_trusted(now) || !self.is_trusted(now)) {
            return Err(FaultKind::EndsEarlier { found: self.not_after, in_use: current.not_after });
        }
        Ok(())
    }

    fn covers_name(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name) || (!name.starts_with("*.") && self.covers(name))
    }
}

fn read(chain_file: &Path, key_file: &Path) -> anyhow::Result<Loaded> {
    let read = |file: &Path, bytes_max| {
        let read = read_regular(file, bytes_max).with_context(|| format!("reading {}", file.display()))?;
        anyhow::Ok(read.0)
    };
    let chain_pem = read(chain_file, CERTIFICATES_BYTES_MAX)?.to_vec();
    let key_pem = read(key_file, FILE_BYTES_MAX)?;
    let certified = certified_key(&chain_pem, &key_pem).with_context(|| chain_file.display().to_string())?;
    let names = names_of(&certified)?;
    anyhow::ensure!(!names.is_empty(), "{} covers no DNS name", chain_file.display());
    let leaf = certified.end_entity_cert().context("the chain is empty")?;
    let authority = Authority::behind(&certified.cert).context("the chain is empty")?;
    let is_self_signed = is_signed_by(leaf, leaf);
    let (_, leaf) = x509_parser::parse_x509_certificate(leaf).context("the leaf does not parse")?;
    let (begins, ends) = (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
    let (not_before, not_after) = (UnixSeconds(begins), UnixSeconds(ends));
    let (is_servers, is_authoritys) = (is_servers(&leaf)?, leaf.is_ca());
    let certified = Arc::new(certified);
    Ok(Loaded {
        certified,
        names,
        chain_pem,
        not_before,
        not_after,
        is_servers,
        is_authoritys,
        is_self_signed,
        authority,
    })
}

/// Whether it may be a server's certificate: without stated purposes it may.
fn is_servers(leaf: &X509Certificate<'_>) -> anyhow::Result<bool> {
    let purposes = leaf.extended_key_usage().context("the leaf's purposes do not parse")?;
    Ok(purposes.is_none_or(|purposes| purposes.value.any || purposes.value.server_auth))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_000);

    fn certified() -> CertifiedKey {
        let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(Vec::new()).unwrap();
        certified_key(cert.pem().as_bytes(), signing_key.serialize_pem().as_bytes()).unwrap()
    }

    fn loaded(names: &[&str], from: i64, until: i64) -> Loaded {
        static ONE: LazyLock<CertifiedKey> = LazyLock::new(certified);
        Loaded {
            certified: Arc::new(ONE.clone()),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            chain_pem: Vec::new(),
            not_before: UnixSeconds(from),
            not_after: UnixSeconds(until),
            is_servers: true,
            is_authoritys: false,
            is_self_signed: false,
            authority: Authority::behind(&ONE.cert).unwrap(),
        }
    }

    #[test]
    fn a_certificate_of_an_unknown_authority_or_of_a_client_replaces_no_good_one() {
        let hosts: Vec<Hostname> = vec!["api.p.example".parse().unwrap()];
        let another = certified();
        let good = || loaded(&["*.p.example"], 0, 2_000);
        let foreign = |until| Loaded {
            authority: Authority::behind(&another.cert).unwrap(),
            ..loaded(&["*.p.example"], 0, until)
        };
        let authoritys = || Loaded { is_authoritys: true, ..loaded(&["*.p.example"], 0, 9_000) };
        let self_signed = || Loaded { is_self_signed: true, ..loaded(&["*.p.example"], 0, 9_000) };
        let clients = || Loaded { is_servers: false, ..loaded(&["*.p.example"], 0, 9_000) };
        let expired = || loaded(&["*.p.example"], 0, 999);
        for (case, current, found, expected) in [
            ("another authority", good(), foreign(9_000), Some("authority")),
            ("an authority's", good(), authoritys(), Some("ca")),
            ("another authority in place of an authority's", authoritys(), foreign(2_000), None),
            ("another authority in place of a self-signed one", self_signed(), foreign(2_000), None),
            (
                "fewer names in place of a self-signed one",
                self_signed(),
                loaded(&["api.p.example"], 0, 9_000),
                Some("names"),
            ),
            ("one that is over in place of a self-signed one", self_signed(), expired(), Some("expired")),
            ("a client's", good(), clients(), Some("purpose")),
            ("another authority in place of one that is over", expired(), foreign(9_000), None),
            ("a server's in place of a client's", clients(), foreign(2_000), None),
        ] {
            let judged = found.judge_against(&current, &hosts, NOW).err().map(|kind| kind.reason());
            assert_eq!(judged, expected, "{case}");
        }
    }

    #[test]
    fn a_replacement_is_taken_only_when_it_is_as_good() {
        let hosts: Vec<Hostname> = vec!["api.p.example".parse().unwrap()];
        let wildcard = ["*.p.example"];
        let good = loaded(&wildcard, 0, 2_000);
        let expired = loaded(&wildcard, 0, 999);
        let wrong = loaded(&["other.example"], 0, 9_000);
        let two = loaded(&["*.p.example", "p.example"], 0, 2_000);
        let cases = [
            ("the same end", &good, loaded(&wildcard, 0, 2_000), None),
            ("a later end", &good, loaded(&wildcard, 0, 2_001), None),
            ("more names", &good, loaded(&["p.example", "*.p.example"], 0, 2_001), None),
            ("an earlier end", &good, loaded(&wildcard, 0, 1_999), Some("ends_earlier")),
            ("expired", &good, loaded(&wildcard, 0, 999), Some("expired")),
            ("the last second of validity", &expired, loaded(&wildcard, 0, 1_000), None),
            ("not valid yet", &good, loaded(&wildcard, 1_001, 9_000), Some("not_yet_valid")),
            ("another name", &good, loaded(&["other.example"], 0, 9_000), Some("names")),
            ("the host without the wildcard", &good, loaded(&["api.p.example"], 0, 9_000), Some("names")),
            ("one name less", &two, loaded(&wildcard, 0, 9_000), Some("names")),
            ("an earlier end than one that is over", &expired, loaded(&wildcard, 0, 1_500), None),
            ("another name in place of one that is over", &expired, loaded(&["b.example"], 0, 9_000), Some("names")),
            ("the right names in place of wrong ones", &wrong, loaded(&wildcard, 0, 1_500), None),
            ("wrong names in place of wrong ones", &wrong, loaded(&["c.example"], 0, 9_500), Some("names")),
        ];
        for (case, current, found, expected) in cases {
            let judged = found.judge_against(current, &hosts, NOW).err().map(|kind| kind.reason());
            assert_eq!(judged, expected, "{case}");
        }
    }

    #[test]
    fn a_gateway_without_known_hosts_requires_the_names_in_use() {
        let current = loaded(&["*.p.example"], 0, 2_000);
        let judged = loaded(&["other.example"], 0, 9_000).judge_against(&current, &[], NOW).unwrap_err();
        assert_eq!(judged.reason(), "names");
    }
}
