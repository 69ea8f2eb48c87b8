//! The certificate that answers a TLS-ALPN-01 challenge (RFC 8737): self-signed, for the one name, with the digest of
//! the key authorization in a critical extension. Made per handshake: a challenge is asked a handful of times.

use std::sync::Arc;

use contract::certificate::Challenge;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

/// The challenge certificate.
///
/// # Errors
/// When the name does not fit a certificate or no key can be made.
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
