//! A certificate with its key, and whether it may replace the one in use.
//!
//! A bad replacement would make every new connection to its names fail. So a replacement is accepted only if it is a
//! server certificate and not a CA certificate, is valid now, covers the same names, comes from the same authority or
//! from one that the system trusts, and expires no earlier. If clients cannot trust the certificate in use, authority
//! and expiry of the replacement are not compared with it.

mod authority;
mod chain;
mod fault;
mod names;

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::Context as _;
use aws_lc_rs::digest::{SHA256, digest};
use contract::hostname::Hostname;
use contract::time::UnixSeconds;
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::aws_lc_rs as provider;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;

use self::authority::{Authority, is_signed_by};
use self::chain::Chain;
pub use self::fault::FaultKind;
pub(crate) use self::fault::moment;
pub use self::names::{covers, names_of};

/// A certificate with its chain and its key.
#[derive(Debug)]
pub struct Pair {
    /// The chain and its key, as handshakes need them.
    pub certified: Arc<CertifiedKey>,
    /// The chain, as text from its file.
    pub chain_pem: Vec<u8>,
    /// The DNS names and addresses that it covers.
    pub names: Vec<String>,
    /// Its first second of validity.
    pub not_before: UnixSeconds,
    /// Its last second of validity.
    pub not_after: UnixSeconds,
    /// Whether it may be used by a server (RFC 5280, 4.2.1.12).
    is_servers: bool,
    /// Whether it is a CA certificate (RFC 5280, 4.2.1.9), which clients do not accept from a server.
    is_authoritys: bool,
    is_self_signed: bool,
    /// The kind of its key, if browsers do not accept it.
    other_key: Option<String>,
    authority: Authority,
    chain: Chain,
}

/// The system's CA certificates, read at the first use.
static SYSTEM_ROOTS: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
});

impl Pair {
    /// From a chain and its key, PEM.
    ///
    /// # Errors
    /// If one is not PEM or cannot be parsed, the type of the key is not supported, or they do not belong together.
    pub fn from_pem(chain_pem: Vec<u8>, key_pem: &[u8]) -> anyhow::Result<Self> {
        let certified = certified_key(&chain_pem, key_pem)?;
        let leaf = certified.end_entity_cert().context("the chain is empty")?;
        let authority = Authority::of(&certified.cert).context("the chain is empty")?;
        let is_self_signed = is_signed_by(leaf, leaf);
        let mut names = names_of(&certified)?;
        names.extend(names::addresses_of(&certified)?);
        let (_, leaf) = x509_parser::parse_x509_certificate(leaf).context("cannot parse the certificate")?;
        let validity = leaf.validity();
        Ok(Self {
            names,
            not_before: UnixSeconds(validity.not_before.timestamp()),
            not_after: UnixSeconds(validity.not_after.timestamp()),
            is_servers: is_servers(&leaf)?,
            is_authoritys: leaf.is_ca(),
            is_self_signed,
            other_key: other_key(&leaf),
            authority,
            chain: Chain::of(&certified.cert),
            certified: Arc::new(certified),
            chain_pem,
        })
    }

    /// Whether it covers the hostname.
    #[must_use]
    pub fn covers(&self, hostname: &str) -> bool {
        self.names.iter().any(|name| covers(name, hostname))
    }

    /// SHA-256 of the chain's text in its file.
    fn digest(&self) -> Vec<u8> {
        digest(&SHA256, &self.chain_pem).as_ref().to_vec()
    }

    /// Whether clients may trust it at this moment: it is usable, and is not self-signed unless the system trusts it.
    ///
    /// # Errors
    /// Why not.
    pub fn sound(&self, now: UnixSeconds) -> Result<(), FaultKind> {
        self.usable(now)?;
        if self.is_self_signed && !self.is_trusted(now) { Err(FaultKind::SelfSigned) } else { Ok(()) }
    }

    /// Whether it is a server certificate, not a CA certificate, and valid at this moment.
    ///
    /// # Errors
    /// Why not.
    pub fn usable(&self, now: UnixSeconds) -> Result<(), FaultKind> {
        if self.is_authoritys {
            return Err(FaultKind::Ca);
        }
        if !self.is_servers {
            return Err(FaultKind::Purpose);
        }
        if now > self.not_after {
            return Err(FaultKind::Expired(self.not_after));
        }
        if now < self.not_before {
            return Err(FaultKind::NotYetValid(self.not_before));
        }
        // Clients may find another path to a trusted root, without the expired signer.
        let over = self.chain.over(now).filter(|_| !self.is_trusted(now));
        over.or_else(|| self.chain.fault.clone()).map_or(Ok(()), |why| Err(FaultKind::Unusable(why)))
    }

    /// Whether browsers accept its kind of key. Other clients, such as our own processes, may accept more.
    ///
    /// # Errors
    /// Why not.
    pub fn for_browsers(&self) -> Result<(), FaultKind> {
        match &self.other_key {
            None => Ok(()),
            Some(kind) => Err(FaultKind::Key(kind.clone())),
        }
    }

    /// Whether it covers all of these hosts.
    ///
    /// # Errors
    /// Names that it does not cover.
    pub fn cover_hosts(&self, hosts: &[Hostname]) -> Result<(), FaultKind> {
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

    /// Whether it may replace `current`. If `current` does not cover the needed `hosts`, its names are not compared. If
    /// clients cannot trust `current`, the replacement may come from another authority and may expire
    /// earlier.
    ///
    /// # Errors
    /// The reason; [`FaultKind::EndsEarlier`] only without another fault.
    pub fn judge_against(&self, current: &Self, hosts: &[Hostname], now: UnixSeconds) -> Result<(), FaultKind> {
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

/// The largest number of remembered chains. Chains change every few months, or return after a mistake.
const REPLACED_CHAINS_MAX: usize = 16;

/// The chains that were replaced: one of them may return although the chain in use is better.
#[derive(Debug, Default)]
pub struct ReplacedChains {
    /// In the order in which they were replaced first.
    digests: Mutex<VecDeque<Vec<u8>>>,
}

impl ReplacedChains {
    /// Whether this chain was replaced before.
    #[must_use]
    pub fn contains(&self, pair: &Pair) -> bool {
        self.digests.lock().contains(&pair.digest())
    }

    /// Remembers a chain that is replaced; the oldest is forgotten when there are too many.
    pub fn add(&self, replaced: &Pair) {
        let (mut digests, digest) = (self.digests.lock(), replaced.digest());
        if !digests.contains(&digest) {
            if digests.len() == REPLACED_CHAINS_MAX {
                digests.pop_front();
            }
            digests.push_back(digest);
        }
    }
}

/// Chain and key from PEM, with the key checked against the leaf.
///
/// # Errors
/// When one is not PEM, the key is of a kind that is not supported, or they do not belong together.
pub fn certified_key(chain_pem: &[u8], key_pem: &[u8]) -> anyhow::Result<CertifiedKey> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(chain_pem).collect::<Result<_, _>>().context("the chain is not PEM")?;
    anyhow::ensure!(!chain.is_empty(), "the chain is empty");
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| anyhow::anyhow!("the private key is not PEM"))?;
    let signing = any_supported_type(&key).map_err(|_| anyhow::anyhow!("the private key's type is not supported"))?;
    let certified = CertifiedKey::new(chain, signing);
    certified.keys_match().map_err(|_| anyhow::anyhow!("the private key does not belong to the certificate"))?;
    Ok(certified)
}

/// The kind of a key that browsers do not accept: any but RSA and the curves P-256 and P-384.
fn other_key(leaf: &X509Certificate<'_>) -> Option<String> {
    let algorithm = &leaf.public_key().algorithm;
    let curve = algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
    let kind = curve.as_ref().unwrap_or(&algorithm.algorithm);
    let name = match kind.to_id_string().as_str() {
        "1.2.840.113549.1.1.1" | "1.2.840.10045.3.1.7" | "1.3.132.0.34" => return None,
        "1.3.132.0.35" => "of the curve P-521",
        "1.3.101.112" => "Ed25519",
        "1.3.101.113" => "Ed448",
        other => return Some(format!("of the kind {other}")),
    };
    Some(name.to_owned())
}

/// Whether the certificate may be used by a server. A certificate without stated purposes may be used for any.
fn is_servers(leaf: &X509Certificate<'_>) -> anyhow::Result<bool> {
    let purposes = leaf.extended_key_usage().context("cannot parse the certificate's extended key usage")?;
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

    fn loaded(names: &[&str], from: i64, until: i64) -> Pair {
        static ONE: LazyLock<CertifiedKey> = LazyLock::new(certified);
        Pair {
            certified: Arc::new(ONE.clone()),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            chain_pem: Vec::new(),
            not_before: UnixSeconds(from),
            not_after: UnixSeconds(until),
            is_servers: true,
            is_authoritys: false,
            is_self_signed: false,
            other_key: None,
            authority: Authority::of(&ONE.cert).unwrap(),
            chain: Chain::default(),
        }
    }

    #[test]
    fn a_certificate_of_an_unknown_authority_or_of_a_client_does_not_replace_a_good_one() {
        let hosts: Vec<Hostname> = vec!["api.p.example".parse().unwrap()];
        let another = certified();
        let good = || loaded(&["*.p.example"], 0, 2_000);
        let foreign =
            |until| Pair { authority: Authority::of(&another.cert).unwrap(), ..loaded(&["*.p.example"], 0, until) };
        let authoritys = || Pair { is_authoritys: true, ..loaded(&["*.p.example"], 0, 9_000) };
        let self_signed = || Pair { is_self_signed: true, ..loaded(&["*.p.example"], 0, 9_000) };
        let clients = || Pair { is_servers: false, ..loaded(&["*.p.example"], 0, 9_000) };
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
    fn a_replacement_is_accepted_only_if_clients_trust_it_as_much() {
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
