//! The checks of clients on the certificates of a chain other than its leaf.

use std::ops::RangeInclusive;

use contract::time::UnixSeconds;
use rustls::pki_types::CertificateDer;

use super::authority::{is_signed_by, path};
use super::fault::moment;

/// The signers of a chain, and its fault.
#[derive(Debug, Default)]
pub(super) struct Chain {
    signers: Vec<Signer>,
    /// Why clients refuse a handshake with the chain, if they do.
    pub(super) fault: Option<String>,
}

/// A certificate of the chain that is the leaf or one of its signers.
#[derive(Debug)]
struct Signer {
    name: String,
    valid: RangeInclusive<i64>,
}

impl Chain {
    pub(super) fn of(chain: &[CertificateDer<'static>]) -> Self {
        let signers: Vec<_> = path(chain).into_iter().skip(1).collect();
        Self { fault: fault(chain, &signers), signers: signers.into_iter().filter_map(signer).collect() }
    }

    /// The signer that is not valid at this moment.
    pub(super) fn over(&self, now: UnixSeconds) -> Option<String> {
        let signer = self.signers.iter().find(|signer| !signer.valid.contains(&now.0))?;
        let (name, ends) = (&signer.name, moment(UnixSeconds(*signer.valid.end())));
        Some(format!("{name:?} in its chain is not valid now; it expires at {ends}"))
    }
}

/// The largest chain. OpenSSL's clients end a handshake with more than 100 KiB.
const CHAIN_BYTES_MAX: usize = 64 * 1024;

/// Why clients refuse a handshake with this chain, if they do.
fn fault(chain: &[CertificateDer<'static>], signers: &[&CertificateDer<'_>]) -> Option<String> {
    let bytes: usize = chain.iter().map(|one| one.len()).sum();
    if bytes > CHAIN_BYTES_MAX {
        return Some(format!(
            "its chain of {} certificates has {bytes} bytes, and clients accept at most {CHAIN_BYTES_MAX}: remove \
             the certificates that are not needed to verify it",
            chain.len()
        ));
    }
    if let Some(bad) = chain.iter().position(|one| x509_parser::parse_x509_certificate(one).is_err()) {
        return Some(format!("cannot parse certificate {} of its chain", bad + 1));
    }
    signers.iter().enumerate().find_map(|(below, signer)| signer_fault(below, signer))
}

/// Why clients refuse this signer, with `below` other signers between it and the leaf. A self-signed certificate is not
/// checked: clients use their own copy of a root.
fn signer_fault(below: usize, signer: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(signer).ok()?;
    let constraints = parsed.basic_constraints().ok().flatten().map(|found| found.value);
    let may_sign = constraints.is_some_and(|found| found.ca)
        && constraints
            .and_then(|found| found.path_len_constraint)
            .is_none_or(|most| u32::try_from(below).is_ok_and(|below| below <= most));
    let is_refused = !may_sign && !is_signed_by(signer, signer);
    is_refused.then(|| {
        format!("{:?} in its chain may not sign certificates (basic constraints)", parsed.subject().to_string())
    })
}

fn signer(certificate: &CertificateDer<'_>) -> Option<Signer> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let (from, until) = (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
    Some(Signer { name: parsed.subject().to_string(), valid: from..=until })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, Issuer, KeyPair};

    use super::*;

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    #[test]
    fn a_signer_that_is_not_valid_now_is_named() {
        let over = |valid: RangeInclusive<i64>| {
            let signers = vec![Signer { name: "CN=R1".to_owned(), valid }];
            Chain { signers, fault: None }.over(UnixSeconds(1_000))
        };
        assert_eq!((over(0..=1_000), over(1_000..=9_000)), (None, None));
        let expected = "\"CN=R1\" in its chain is not valid now; it expires at 1970-01-01T00:16:39Z";
        assert_eq!(over(0..=999).as_deref(), Some(expected));
        assert!(over(1_001..=9_000).is_some());
    }

    #[test]
    fn a_chain_that_clients_refuse_is_detected() {
        let fault = |chain: &[CertificateDer<'static>]| Chain::of(chain).fault;
        let (root, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let leaf = params("leaf").signed_by(&key, &Issuer::new(params("root"), root)).unwrap();
        let other =
            params("other").signed_by(&KeyPair::generate().unwrap(), &Issuer::new(params("leaf"), key)).unwrap();
        let (leaf, other) = (CertificateDer::from(leaf), CertificateDer::from(other));
        assert_eq!(fault(&[leaf.clone(), leaf.clone()]), None);
        let broken = fault(&[leaf.clone(), CertificateDer::from(vec![0; 9])]);
        assert_eq!(broken.as_deref(), Some("cannot parse certificate 2 of its chain"));
        let by_a_leaf = fault(&[other, leaf.clone()]);
        let expected = "\"CN=leaf\" in its chain may not sign certificates (basic constraints)";
        assert_eq!(by_a_leaf.as_deref(), Some(expected));
        let many = fault(&vec![leaf.clone(); CHAIN_BYTES_MAX / leaf.len() + 1]);
        assert!(many.unwrap().contains("remove the certificates that are not needed to verify it"));
    }
}
