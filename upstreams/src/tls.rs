//! TLS to an upstream: trusted authorities or keys, the client certificate, and the reasons of failed handshakes.
//!
//! The files are checked every few seconds and reloaded when they have changed. A file that cannot be used is logged,
//! and the previous ones stay in use. Visitors learn nothing about certificates.

mod verifier;

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::digest;
use chassis::peer::{CERTIFICATES_BYTES_MAX, certificates, chain_and_key};
use chassis::secret::read_regular;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};

pub use self::verifier::KeyPin;
use self::verifier::{Trusted, Unusable, Verifier};

/// The protocols for ALPN.
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// The TLS settings of an upstream.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// The name that its certificate must cover, and for SNI; `None`: the name or address of the endpoint.
    pub server_name: Option<ServerName<'static>>,
    /// The file of trusted authorities; `None`: the system's.
    pub authority: Option<PathBuf>,
    /// The public keys of which its certificate must have one, without a chain to an authority; empty: any key.
    pub pins: Vec<KeyPin>,
    /// The files of the client certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// Its certificate is not verified: anyone on the network path can read and change everything.
    pub insecure: bool,
}

/// TLS to an upstream, with loaded files.
#[derive(Debug)]
pub struct Tls {
    /// As configured.
    pub settings: TlsSettings,
    current: ArcSwap<Loaded>,
}

/// The contents of the files.
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
    /// If one cannot be used.
    pub fn load(settings: TlsSettings) -> anyhow::Result<Self> {
        let current = ArcSwap::from_pointee(read(&settings, digest_of(&settings))?);
        Ok(Self { settings, current })
    }

    /// Reloads the files if they have changed; returns whether they had.
    ///
    /// # Errors
    /// As [`Tls::load`]; the previous files stay in use.
    pub fn reload(&self) -> anyhow::Result<bool> {
        let digest = digest_of(&self.settings);
        let changed = digest != self.current.load().digest;
        if changed {
            self.current.store(Arc::new(read(&self.settings, digest)?));
        }
        Ok(changed)
    }

    /// The configuration for a handshake; offers HTTP/2 if `http2` and the settings allow it.
    pub(super) fn config(&self, http2: bool) -> Arc<ClientConfig> {
        let current = self.current.load();
        if http2 { current.both.clone() } else { current.http1.clone() }
    }
}

/// The digest of the contents of all files; an unreadable file counts as empty.
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
    let verifier = Verifier { trusted: trusted(settings, &provider)?, provider };
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
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

/// The certificates that the settings accept.
fn trusted(settings: &TlsSettings, provider: &Arc<CryptoProvider>) -> anyhow::Result<Trusted> {
    if settings.insecure {
        return Ok(Trusted::Everything);
    }
    if !settings.pins.is_empty() {
        return Ok(Trusted::Keys(settings.pins.clone()));
    }
    let mut roots = RootCertStore::empty();
    let mut known = Vec::new();
    if let Some(authority) = &settings.authority {
        known = certificates(authority)?;
        for certificate in &known {
            roots.add(certificate.clone())?;
        }
    } else {
        // Unsupported certificates of the system are skipped.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        anyhow::ensure!(
            !roots.is_empty(),
            "the system has no trusted certificate authority: set ca_certificate_file, or install ca-certificates"
        );
    }
    let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
    Ok(Trusted::Authorities { authorities, known })
}

/// Why TLS failed, for an operator; `None` for an error outside TLS. The text contains nothing that the other side sent
/// but the number of an alert.
pub fn reason(error: &std::io::Error) -> Option<String> {
    use rustls::{AlertDescription as Alert, CertificateError as Wrong, Error};
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(Wrong::Other(other)) if other.0.is::<Unusable>() => other.0.to_string(),
        Error::InvalidCertificate(wrong) => match wrong {
            Wrong::Expired | Wrong::ExpiredContext { .. } => "its certificate has expired",
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => "its certificate is not valid yet",
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                "its certificate is for another name: set tls.server_name to the name that it covers"
            }
            Wrong::UnknownIssuer | Wrong::BadSignature => {
                "its certificate is from an authority that is not trusted: set tls.ca_certificate_file"
            }
            Wrong::Revoked => "its certificate was revoked",
            _ => "its certificate is not valid",
        }
        .to_owned(),
        Error::AlertReceived(Alert::CertificateRequired) => {
            "it requires a client certificate: set tls.client_certificate_file".to_owned()
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
            "it does not know the requested name: set tls.server_name".to_owned()
        }
        Error::AlertReceived(Alert::ProtocolVersion) | Error::PeerIncompatible(_) => {
            "it supports neither TLS 1.2 nor 1.3 with a cipher suite of the gateway".to_owned()
        }
        Error::AlertReceived(Alert::NoApplicationProtocol) => "it speaks neither HTTP/2 nor HTTP/1.1".to_owned(),
        Error::AlertReceived(alert) => format!("it ended the handshake with alert {}", u8::from(*alert)),
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
            "it does not speak TLS on this port".to_owned()
        }
        _ => "the handshake failed".to_owned(),
    })
}

#[cfg(test)]
mod tests;
