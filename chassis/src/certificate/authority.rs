//! The authority of a chain, identified by its key. The name is not enough: every local authority has the same one.

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;

/// The largest number of signatures followed from a leaf. Chains of public authorities have two or three.
const SIGNATURES_MAX: usize = 8;

/// The authority of a chain: follow the signatures from the leaf; it is the signer of the last certificate.
#[derive(Debug)]
pub(super) struct Authority(CertificateDer<'static>);

impl Authority {
    /// The authority of `chain`, unless it is empty. Certificates outside the path of signatures from the leaf do not
    /// count.
    pub(super) fn of(chain: &[CertificateDer<'static>]) -> Option<Self> {
        path(chain).last().map(|last| Self((*last).clone()))
    }

    /// The authority's name.
    pub(super) fn name(&self) -> String {
        parsed(&self.0).map_or_else(String::new, |last| last.issuer().to_string())
    }

    /// Whether both have the same name and provably the same key: one chain contains the authority's own certificate,
    /// which is the other's too or has signed its last certificate; or both end at the same certificate, or at two that
    /// name the same key (RFC 5280, 4.2.1.1).
    pub(super) fn is(&self, other: &Self) -> bool {
        let (Some(last), Some(others)) = (parsed(&self.0), parsed(&other.0)) else { return false };
        if last.issuer().as_raw() != others.issuer().as_raw() {
            return false;
        }
        match (is_signed_by(&self.0, &self.0), is_signed_by(&other.0, &other.0)) {
            (true, true) => last.public_key().raw == others.public_key().raw,
            (true, false) => is_signed_by(&other.0, &self.0),
            (false, true) => is_signed_by(&self.0, &other.0),
            (false, false) => self.0 == other.0 || key_named(&last).is_some_and(|key| key_named(&others) == Some(key)),
        }
    }
}

/// The leaf of a chain, followed by its signers in order.
pub(super) fn path<'a>(chain: &'a [CertificateDer<'static>]) -> Vec<&'a CertificateDer<'static>> {
    let mut path: Vec<_> = chain.first().into_iter().collect();
    while let Some(last) = path.last().filter(|last| path.len() <= SIGNATURES_MAX && !is_signed_by(last, last)) {
        let Some(signer) = chain.iter().find(|signer| is_signed_by(last, signer)) else { break };
        path.push(signer);
    }
    path
}

fn parsed<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    x509_parser::parse_x509_certificate(certificate).ok().map(|(_, certificate)| certificate)
}

/// The signer's key, as the certificate names it.
fn key_named<'a>(certificate: &X509Certificate<'a>) -> Option<&'a [u8]> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(authority) => authority.key_identifier.as_ref().map(|key| key.0),
        _ => None,
    })
}

/// Whether `signer` signed `certificate` with its key.
pub(super) fn is_signed_by(certificate: &CertificateDer<'_>, signer: &CertificateDer<'_>) -> bool {
    let (Some(certificate), Some(signer)) = (parsed(certificate), parsed(signer)) else { return false };
    if certificate.issuer().as_raw() != signer.subject().as_raw() {
        return false;
    }
    let (signed, signature) = (certificate.tbs_certificate.as_ref(), &certificate.signature_value.data);
    let key = &signer.public_key().subject_public_key.data;
    let known = aws_lc_rs::default_provider().signature_verification_algorithms.all;
    known.iter().any(|algorithm| algorithm.verify_signature(key, signed, signature).is_ok())
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;

    struct Signer(Issuer<'static, KeyPair>, CertificateDer<'static>);

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.use_authority_key_identifier_extension = true;
        params
    }

    fn authority_params(name: &str) -> CertificateParams {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    fn root(name: &str) -> Signer {
        let key = KeyPair::generate().unwrap();
        let own = authority_params(name).self_signed(&key).unwrap();
        Signer(Issuer::new(authority_params(name), key), own.into())
    }

    fn intermediate(name: &str, of: &Signer) -> Signer {
        let key = KeyPair::generate().unwrap();
        let own = authority_params(name).signed_by(&key, &of.0).unwrap();
        Signer(Issuer::new(authority_params(name), key), own.into())
    }

    fn signed(params: &CertificateParams, by: &Signer) -> CertificateDer<'static> {
        let leaf: Certificate = params.signed_by(&KeyPair::generate().unwrap(), &by.0).unwrap();
        leaf.into()
    }

    fn leaf(by: &Signer) -> CertificateDer<'static> {
        signed(&params("leaf"), by)
    }

    /// A leaf that names no key.
    fn bare(by: &Signer) -> CertificateDer<'static> {
        let mut params = params("leaf");
        params.use_authority_key_identifier_extension = false;
        signed(&params, by)
    }

    fn of(chain: &[&CertificateDer<'static>]) -> Authority {
        let chain: Vec<_> = chain.iter().map(|certificate| (*certificate).clone()).collect();
        Authority::of(&chain).unwrap()
    }

    #[test]
    fn an_authority_is_identified_by_its_key() {
        let (one, two) = (root("local"), root("local"));
        let (middle, newer, namesake) = (intermediate("R1", &one), intermediate("R2", &one), intermediate("R1", &two));
        let (leaf_one, again, leaf_two) = (&leaf(&one), &leaf(&one), &leaf(&two));
        let (bare_one, bare_again) = (&bare(&one), &bare(&one));
        let (by_middle, by_newer, by_namesake) = (&leaf(&middle), &leaf(&newer), &leaf(&namesake));
        let cases: [(_, &[_], &[_], _); 13] = [
            ("leaves", &[leaf_one], &[again], true),
            ("leaves of two of one name", &[leaf_one], &[leaf_two], false),
            ("with the root", &[leaf_one], &[again, &one.1], true),
            ("both with the root", &[leaf_one, &one.1], &[again, &one.1], true),
            ("each with its root", &[leaf_one, &one.1], &[leaf_two, &two.1], false),
            ("with the root of another", &[leaf_one], &[leaf_two, &one.1], false),
            ("no key named, with the root", &[bare_one], &[bare_again, &one.1], true),
            ("no key named", &[bare_one], &[bare_again], false),
            ("another intermediate", &[by_middle, &middle.1], &[by_newer, &newer.1], true),
            ("in another order", &[by_middle, &middle.1, &one.1], &[by_newer, &one.1, &newer.1], true),
            ("without the intermediate", &[by_middle, &middle.1], &[by_middle], false),
            ("a namesake of the intermediate", &[by_middle, &middle.1], &[by_namesake, &namesake.1], false),
            ("an intermediate that did not sign", &[by_middle, &middle.1], &[by_namesake, &middle.1], false),
        ];
        for (case, present, found, expected) in cases {
            let (present, found) = (of(present), of(found));
            assert_eq!((found.is(&present), present.is(&found)), (expected, expected), "{case}");
        }
    }

    #[test]
    fn a_loop_of_two_signers_ends() {
        let (one, two) = (root("one"), root("two"));
        let crossed = |name: &str, key: &Signer, by: &Signer| -> CertificateDer<'static> {
            authority_params(name).signed_by(key.0.key(), &by.0).unwrap().into()
        };
        let (first, second) = (crossed("one", &one, &two), crossed("two", &two, &one));
        assert!(["CN=one", "CN=two"].contains(&&*of(&[&leaf(&one), &first, &second]).name()));
    }
}
