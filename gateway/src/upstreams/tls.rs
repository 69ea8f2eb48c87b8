//! TLS to an upstream: whose certificates are believed, what is shown, and what is said when it does not come about.
//!
//! Files are looked at again every few seconds and taken when they have changed; what cannot be used is said in the log,
//! and what was in force stays. Nothing of a certificate is ever told a visitor.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::digest;
use chassis::peer::{CERTIFICATES_BYTES_MAX, certificates, chain_and_key};
use chassis::secret::read_regular;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// What is offered (ALPN).
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// How an upstream is spoken to over TLS, as configured.
#[derive(Clone, Debug)]
pub(crate) struct TlsSettings {
    /// The name that its certificate has to be for, and that it is asked by; `None`: that of the endpoint.
    pub server_name: Option<ServerName<'static>>,
    /// Whose certificates are believed; `None`: those the system believes.
    pub authority: Option<PathBuf>,
    /// What is shown to it, and the key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Whether it is offered HTTP/2.
    pub http2: bool,
    /// Its certificate is not looked at: whoever is in between can read and change everything.
    pub insecure: bool,
}

/// The same at work.
#[derive(Debug)]
pub(crate) struct Tls {
    /// As configured.
    pub settings: TlsSettings,
    current: ArcSwap<Loaded>,
}

/// What the files hold.
#[derive(Debug)]
struct Loaded {
    digest: Vec<u8>,
    both: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When one cannot be used.
    pub(crate) fn load(settings: TlsSettings) -> anyhow::Result<Self> {
        let current = ArcSwap::from_pointee(read(&settings, digest_of(&settings))?);
        Ok(Self { settings, current })
    }

    /// Reads the files again if they have changed. Whether they had.
    ///
    /// # Errors
    /// As [`Tls::load`]; what was in force stays.
    pub(crate) fn reload(&self) -> anyhow::Result<bool> {
        let digest = digest_of(&self.settings);
        let changed = digest != self.current.load().digest;
        if changed {
            self.current.store(Arc::new(read(&self.settings, digest)?));
        }
        Ok(changed)
    }

    /// What handshakes are made with now; HTTP/2 is offered `http2` and if the settings have it.
    pub(super) fn config(&self, http2: bool) -> Arc<ClientConfig> {
        let current = self.current.load();
        if http2 { current.both.clone() } else { current.http1.clone() }
    }
}

/// Of the contents of all files; one that cannot be read counts as empty.
fn digest_of(settings: &TlsSettings) -> Vec<u8> {
    let client = settings.client.iter().flat_map(|(chain, key)| [chain, key]);
    let mut all = digest::Context::new(&digest::SHA256);
    for file in settings.authority.iter().chain(client) {
        let bytes = read_regular(file, CERTIFICATES_BYTES_MAX).map(|(bytes, _)| bytes).unwrap_or_default();
        all.update(digest::digest(&digest::SHA256, &bytes).as_ref());
    }
    all.finish().as_ref().to_vec()
}

fn read(settings: &TlsSettings, digest: Vec<u8>) -> anyhow::Result<Loaded> {
    let provider = Arc::new(provider::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = if settings.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
    } else {
        builder.with_root_certificates(roots(settings)?)
    };
    let mut both = match &settings.client {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let (chain, key) = chain_and_key(chain, key)?;
            builder.with_client_auth_cert(chain, key)?
        }
    };
    let mut http1 = both.clone();
    http1.alpn_protocols = vec![HTTP1.to_vec()];
    both.alpn_protocols = if settings.http2 { vec![HTTP2.to_vec(), HTTP1.to_vec()] } else { vec![HTTP1.to_vec()] };
    Ok(Loaded { digest, both: Arc::new(both), http1: Arc::new(http1) })
}

fn roots(settings: &TlsSettings) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(authority) = &settings.authority else {
        // Some of a system's certificates may be of a kind that nobody uses any more.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        anyhow::ensure!(
            !roots.is_empty(),
            "the system trusts no authority: name one with ca_certificate_file, or install ca-certificates"
        );
        return Ok(roots);
    };
    for certificate in certificates(authority)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

/// Believes everybody, where the settings say `insecure`.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Why TLS did not come about, in words for an operator; `None` for an error that is not of TLS. Nothing in them was sent by
/// the other side but the number of an alert.
pub(crate) fn reason(error: &std::io::Error) -> Option<String> {
    use rustls::{AlertDescription as Alert, CertificateError as Wrong, Error};
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(wrong) => match wrong {
            Wrong::Expired | Wrong::ExpiredContext { .. } => "its certificate has expired",
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => "its certificate is not valid yet",
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                "its certificate is for another name (tls.server_name says which is asked for)"
            }
            Wrong::UnknownIssuer | Wrong::BadSignature => {
                "its certificate is of an authority that is not believed here (tls.ca_certificate_file)"
            }
            Wrong::Revoked => "its certificate was revoked",
            _ => "its certificate is not valid",
        }
        .to_owned(),
        Error::AlertReceived(Alert::CertificateRequired) => {
            "it wants a client certificate (tls.client_certificate_file)".to_owned()
        }
        Error::AlertReceived(
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied,
        ) => "it does not accept our client certificate".to_owned(),
        Error::AlertReceived(Alert::UnrecognisedName) => {
            "it does not know the name it was asked by (tls.server_name)".to_owned()
        }
        Error::AlertReceived(Alert::ProtocolVersion) | Error::PeerIncompatible(_) => {
            "it speaks neither TLS 1.2 nor 1.3 as we do".to_owned()
        }
        Error::AlertReceived(Alert::NoApplicationProtocol) => "it speaks neither HTTP/2 nor HTTP/1.1".to_owned(),
        Error::AlertReceived(alert) => format!("it ended the handshake with alert {}", u8::from(*alert)),
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => "it does not speak TLS there".to_owned(),
        _ => "the handshake failed".to_owned(),
    })
}
