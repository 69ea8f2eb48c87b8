//! Verifies the certificate of an upstream.
//!
//! A certificate that is in `ca_certificate_file` itself is trusted, even if it is marked as an authority (as
//! `openssl req -x509` does), and so is one with a pinned key; its name and dates are verified. All others need a chain
//! to an authority.

use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, OtherError, SignatureScheme};
use x509_parser::certificate::X509Certificate;

/// A fault that no authority can repair, with its fix, for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    /// It is a CA certificate.
    #[error(
        "its certificate is a CA certificate (CA:TRUE): put this certificate into tls.ca_certificate_file, or make \
         it with basicConstraints=CA:FALSE"
    )]
    Authority,
    /// Its key is not pinned.
    #[error(
        "its certificate has none of the public keys in tls.public_key_sha256: if its operator has changed the key, \
         add the new one"
    )]
    OtherKey,
    /// It has no subjectAltName; the common name is not used (RFC 9525).
    #[error("its certificate has no subjectAltName: make it with -addext subjectAltName=DNS:its-name")]
    NoNames,
}

impl From<Unusable> for rustls::Error {
    fn from(unusable: Unusable) -> Self {
        CertificateError::Other(OtherError(Arc::new(unusable))).into()
    }
}

/// A public key that an upstream's certificate may have: the SHA-256 of its `SubjectPublicKeyInfo`, in lower-case
/// hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPin(String);

impl FromStr for KeyPin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| Self(text.to_ascii_lowercase())).ok_or(
            "use the 64 hexadecimal digits from `openssl x509 -in shop.pem -pubkey -noout | openssl pkey -pubin \
             -outform DER | openssl dgst -sha256`",
        )
    }
}

/// The certificates that are accepted.
#[derive(Debug)]
pub(super) enum Trusted {
    /// All, for `insecure`.
    Everything,
    /// Those with one of these keys.
    Keys(Vec<KeyPin>),
    /// Those of authorities, and the `known` ones of `ca_certificate_file` themselves.
    Authorities { authorities: Arc<WebPkiServerVerifier>, known: Vec<CertificateDer<'static>> },
}

/// Verifies as the library does, and trusts known certificates and pinned keys themselves.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) trusted: Trusted,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = match &self.trusted {
            Trusted::Everything => return Ok(ServerCertVerified::assertion()),
            Trusted::Keys(pins) => match is_pinned(certificate, pins) {
                Ok(true) => verify_known(certificate, name, now),
                Ok(false) => return Err(Unusable::OtherKey.into()),
                Err(error) => Err(error),
            },
            Trusted::Authorities { known, .. } if known.iter().any(|known| known.as_ref() == certificate.as_ref()) => {
                verify_known(certificate, name, now)
            }
            Trusted::Authorities { authorities, .. } => {
                authorities.verify_server_cert(certificate, intermediates, name, ocsp, now)
            }
        };
        verified.map_err(|error| explain(error, certificate))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether one of these keys is the certificate's. The handshake's signature is verified with the key that the same
/// parser finds.
fn is_pinned(certificate: &CertificateDer<'_>, pins: &[KeyPin]) -> Result<bool, rustls::Error> {
    let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
    let digest = digest::digest(&digest::SHA256, key.as_ref());
    let digits: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(pins.iter().any(|pin| pin.0 == digits))
}

/// Verifies the dates and the name of a certificate that needs no chain.
fn verify_known(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, rustls::Error> {
    let validity = parsed(certificate).ok_or(CertificateError::BadEncoding)?.tbs_certificate.validity;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
    Ok(ServerCertVerified::assertion())
}

/// Adds a reason to errors that the library does not explain.
fn explain(error: rustls::Error, certificate: &CertificateDer<'_>) -> rustls::Error {
    use CertificateError as Wrong;
    let rustls::Error::InvalidCertificate(wrong) = &error else { return error };
    let is_about_name = matches!(wrong, Wrong::NotValidForName | Wrong::NotValidForNameContext { .. });
    if !is_about_name && !matches!(wrong, Wrong::Other(_) | Wrong::BadEncoding) {
        return error;
    }
    let Some(parsed) = parsed(certificate) else { return error };
    let has_names = parsed.subject_alternative_name().is_ok_and(|names| names.is_some());
    let unusable = match (parsed.is_ca(), has_names) {
        (true, _) if !is_about_name => Unusable::Authority,
        (_, false) => Unusable::NoNames,
        _ => return error,
    };
    unusable.into()
}

fn parsed<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    x509_parser::parse_x509_certificate(certificate).ok().map(|(_, parsed)| parsed)
}
