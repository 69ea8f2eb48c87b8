//! Checks a certificate before it replaces another.
//!
//! An authority's answer is validated like any other input: the certificate must be for the name, valid now, signed for
//! our key, and no worse than the deployed one. Only then is the key sealed for its hostname.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chassis::certificate::names_of;
use chassis::seal::SealingKey;
use contract::certificate::{CertificateBundle, SealedKey};
use contract::hostname::Hostname;
use contract::time::UnixSeconds;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::Issued;
use crate::domain::order::CertificateFacts;

/// Certificates a chain may have.
const CHAIN_MAX: usize = 5;

/// Bytes a chain may have, so that a bundle fits a line of the change stream.
const CHAIN_BYTES_MAX: usize = 64 * 1024;

/// The reason why a certificate is not published. The domain's owner reads it, so it contains no text of a library.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("the certificate chain is malformed")]
    Chain(String),
    #[error("the chain is longer than {CHAIN_BYTES_MAX} bytes")]
    TooLong,
    #[error("the private key is malformed or does not match the certificate")]
    Key,
    #[error("the certificate is not for {0}")]
    Name(Hostname),
    #[error("the certificate is not valid now")]
    Dates,
    #[error("the certificate is older than the one deployed")]
    Older,
    #[error("cannot seal the private key")]
    Seal(String),
}

impl Unfit {
    /// The underlying error, for operators.
    pub(crate) fn cause(&self) -> &str {
        match self {
            Self::Chain(cause) | Self::Seal(cause) => cause,
            _ => "as it is",
        }
    }
}

/// Checks an authority's certificate and makes a bundle of it. `deployed_from` is the start of the certificate that it
/// replaces. The new one may expire earlier (a shorter profile, a revoked predecessor), but must not start earlier.
pub(crate) fn bundle(
    issued: &Issued,
    hostname: &Hostname,
    now: UnixSeconds,
    deployed_from: Option<UnixSeconds>,
    sealing: &SealingKey,
) -> Result<(CertificateBundle, CertificateFacts), Unfit> {
    let certified = certified(&issued.chain_pem, &issued.key_pem)?;
    let leaf = certified.cert.first().ok_or_else(|| Unfit::Chain("it is empty".to_owned()))?;
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|error| Unfit::Chain(error.to_string()))?;
    let names = names_of(&certified).map_err(|error| Unfit::Chain(error.to_string()))?;
    if !names.iter().any(|name| name == hostname.as_str()) {
        return Err(Unfit::Name(hostname.clone()));
    }
    let not_before = UnixSeconds(leaf.validity().not_before.timestamp());
    let not_after = UnixSeconds(leaf.validity().not_after.timestamp());
    if now < not_before || now >= not_after {
        return Err(Unfit::Dates);
    }
    if deployed_from.is_some_and(|begin| not_before < begin) {
        return Err(Unfit::Older);
    }
    let sealed = sealing.seal(issued.key_pem.as_bytes(), hostname.as_str());
    let sealed = sealed.map_err(|error| Unfit::Seal(format!("{error:#}")))?;
    let facts = CertificateFacts { serial: leaf.raw_serial_as_string().replace(':', ""), key_type: key_type(&leaf) };
    let bundle = CertificateBundle {
        hostname: hostname.clone(),
        chain_pem: issued.chain_pem.clone(),
        key: SealedKey(sealed),
        not_before,
        not_after,
    };
    Ok((bundle, facts))
}

fn certified(chain_pem: &str, key_pem: &str) -> Result<CertifiedKey, Unfit> {
    if chain_pem.len() > CHAIN_BYTES_MAX {
        return Err(Unfit::TooLong);
    }
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain_pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| Unfit::Chain(error.to_string()))?;
    if chain.is_empty() || chain.len() > CHAIN_MAX {
        return Err(Unfit::Chain(format!("it has {} certificates", chain.len())));
    }
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|_| Unfit::Key)?;
    CertifiedKey::from_der(chain, key, &rustls::crypto::aws_lc_rs::default_provider()).map_err(|_| Unfit::Key)
}

fn key_type(leaf: &X509Certificate<'_>) -> String {
    match leaf.public_key().parsed() {
        Ok(x509_parser::public_key::PublicKey::EC(point)) => format!("ecdsa-p{}", point.key_size()),
        Ok(x509_parser::public_key::PublicKey::RSA(_)) => "rsa".to_owned(),
        _ => "other".to_owned(),
    }
}

/// Checks that an authority's certificate and key belong together and may sign.
pub(super) fn check_authority(certificate_pem: &str, key_pem: &str) -> anyhow::Result<()> {
    let certified = certified(certificate_pem, key_pem)?;
    let authority = certified.cert.first().ok_or_else(|| anyhow::anyhow!("the file is empty"))?;
    let (_, authority) = X509Certificate::from_der(authority)?;
    anyhow::ensure!(authority.is_ca(), "it is not a CA certificate");
    Ok(())
}

/// A short fingerprint of a chain, for logs.
pub(crate) fn fingerprint(chain_pem: &str) -> String {
    let digest = digest(&SHA256, chain_pem.as_bytes());
    URL_SAFE_NO_PAD.encode(digest.as_ref().get(..9).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use chassis::secret::Secret;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;
    use crate::issuer::{IssueRequest, Issuer as _, LocalAuthority};

    const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

    fn authority() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn sealing() -> SealingKey {
        SealingKey::new(&Secret::new(vec![3; 32])).unwrap()
    }

    async fn issued(name: &str) -> Issued {
        let (certificate, key) = authority();
        let authority = LocalAuthority::from_pem(certificate, &key).unwrap();
        let request = IssueRequest {
            hostname: name.parse().unwrap(),
            methods: Vec::new(),
            now: NOW,
            project: "demo".parse().unwrap(),
            attempt: 0,
            edge: Vec::new(),
            replaces: None,
        };
        authority.issue(&request).await.unwrap()
    }

    #[tokio::test]
    async fn a_fitting_certificate_is_sealed_for_its_name() {
        let name: Hostname = "shop.customer.com".parse().unwrap();
        let issued = issued(name.as_str()).await;
        let (bundle, facts) = bundle(&issued, &name, NOW, None, &sealing()).unwrap();
        assert_eq!(bundle.not_after, NOW.plus(90 * 86_400));
        assert_eq!(facts.key_type, "ecdsa-p256");
        assert_eq!(facts.serial.len(), 32);
        let opened = sealing().open(&bundle.key.0, name.as_str()).unwrap();
        assert_eq!(&**opened, issued.key_pem.as_bytes());
    }

    // promise: domains.28
    #[tokio::test]
    async fn an_unsuitable_certificate_is_refused() {
        let name: Hostname = "shop.customer.com".parse().unwrap();
        let issued = issued(name.as_str()).await;
        let sealing = sealing();
        let check = |issued: &Issued, name: &Hostname, now, from| bundle(issued, name, now, from, &sealing);
        let other = "other.customer.com".parse().unwrap();
        assert!(matches!(check(&issued, &other, NOW, None), Err(Unfit::Name(_))));
        assert!(matches!(check(&issued, &name, NOW.plus(-7_200), None), Err(Unfit::Dates)));
        assert!(matches!(check(&issued, &name, NOW.plus(91 * 86_400), None), Err(Unfit::Dates)));
        assert!(matches!(check(&issued, &name, NOW, Some(NOW)), Err(Unfit::Older)));
        let foreign = KeyPair::generate().unwrap().serialize_pem();
        let swapped = Issued { chain_pem: issued.chain_pem.clone(), key_pem: foreign.into() };
        assert!(matches!(check(&swapped, &name, NOW, None), Err(Unfit::Key)));
        let empty = Issued { chain_pem: String::new(), key_pem: issued.key_pem.clone() };
        assert!(matches!(check(&empty, &name, NOW, None), Err(Unfit::Chain(_))));
        let long = Issued { chain_pem: issued.chain_pem.repeat(100), key_pem: issued.key_pem.clone() };
        assert!(matches!(check(&long, &name, NOW, None), Err(Unfit::TooLong)));
    }

    #[test]
    fn an_authority_whose_files_do_not_belong_together_is_refused_at_start() {
        let ((certificate, key), (_, other)) = (authority(), authority());
        assert!(LocalAuthority::from_pem(certificate.clone(), &key).is_ok());
        assert!(LocalAuthority::from_pem(certificate, &other).is_err());
        let leaf_key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(["a.example".to_owned()]).unwrap().self_signed(&leaf_key).unwrap();
        assert!(LocalAuthority::from_pem(leaf.pem(), &leaf_key.serialize_pem()).is_err(), "not an authority");
    }
}
