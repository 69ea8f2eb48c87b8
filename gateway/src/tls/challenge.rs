//! The certificate for a TLS-ALPN-01 challenge (RFC 8737): self-signed, for one name, with the digest of the key
//! authorization in a critical extension. Created per handshake: a challenge has only a few.

use std::sync::Arc;

use contract::certificate::Challenge;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

/// The challenge certificate.
///
/// # Errors
/// The name does not fit a certificate, or no key can be created.
pub(crate) fn certificate(challenge: &Challenge) -> anyhow::Result<Arc<CertifiedKey>> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![challenge.hostname.as_str().to_owned()])?;
    // No common name: it would limit hostnames to 64 bytes.
    params.distinguished_name = rcgen::DistinguishedName::new();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, challenge.key_authorization.as_bytes());
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
    let certificate = params.self_signed(&key)?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = any_supported_type(&private)?;
    Ok(Arc::new(CertifiedKey::new(vec![certificate.der().clone()], signing)))
}
