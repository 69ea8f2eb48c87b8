//! Verifies a process by its name, independent of its address.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, version};

/// A name or an address in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsName(pub ServerName<'static>);

impl std::str::FromStr for TlsName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        ServerName::try_from(text.to_owned()).map(Self).map_err(|_| "use a name or an address, without a port")
    }
}

/// TLS settings of a client that trusts this authority (PEM) and accepts one process: its certificate must be for
/// `name`, independent of the address of the connection.
///
/// # Errors
/// If the authority's certificate cannot be used.
pub fn client_tls(authority: &[u8], name: &TlsName) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(ForName::new(authority, name, provider.clone())?);
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&version::TLS13])?;
    Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// Verifies certificates in the usual way, for a fixed name.
#[derive(Debug)]
struct ForName {
    name: ServerName<'static>,
    usual: Arc<WebPkiServerVerifier>,
}

impl ForName {
    fn new(authority: &[u8], name: &TlsName, provider: Arc<CryptoProvider>) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority) {
            roots.add(certificate?)?;
        }
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self { name: name.0.clone(), usual })
    }
}

impl ServerCertVerifier for ForName {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.usual.verify_server_cert(leaf, others, &self.name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}
