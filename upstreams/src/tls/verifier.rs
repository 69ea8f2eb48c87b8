//! Verifies the certificate of an upstream.
//!
//! A certificate that is in `ca_certificate_file` itself is trusted, even if it is marked as an authority (as
//! `openssl req -x509` does); its name and dates are verified. All others need a chain to an authority.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
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
    /// It has no subjectAltName; the common name is not used (RFC 9525).
    #[error("its certificate has no subjectAltName: make it with -addext subjectAltName=DNS:its-name")]
    NoNames,
}

/// Verifies as the library does, and trusts the certificates of the file themselves.
#[derive(Debug)]
pub(super) struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None`: every certificate is accepted, for `insecure`.
    trusted: Option<Trusted>,
}

#[derive(Debug)]
struct Trusted {
    authorities: Arc<WebPkiServerVerifier>,
    /// The certificates of `ca_certificate_file`.
    known: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// Trusts these authorities, and the `known` certificates themselves.
    pub(super) fn new(
        provider: Arc<CryptoProvider>,
        (roots, known): (RootCertStore, Vec<CertificateDer<'static>>),
    ) -> anyhow::Result<Self> {
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
        Ok(Self { provider, trusted: Some(Trusted { authorities, known }) })
    }

    /// Accepts every certificate.
    pub(super) fn insecure(provider: Arc<CryptoProvider>) -> Self {
        Self { provider, trusted: None }
    }
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
        let Some(Trusted { authorities, known }) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        let verified = if known.iter().any(|known| known.as_ref() == certificate.as_ref()) {
            verify_known(certificate, name, now)
        } else {
            authorities.verify_server_cert(certificate, intermediates, name, ocsp, now)
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
    Wrong::Other(OtherError(Arc::new(unusable))).into()
}

fn parsed<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    x509_parser::parse_x509_certificate(certificate).ok().map(|(_, parsed)| parsed)
}
