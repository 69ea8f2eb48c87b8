//! What a listener shows.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::Section;
use crate::secret::Secret;

/// Time for a handshake: one that takes longer gives its place back.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);

/// What a listener shows that speaks TLS 1.3.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<rustls::ServerConfig>);

impl ServerTls {
    /// From a chain and its key, PEM.
    ///
    /// # Errors
    /// When a file cannot be read, others may read the key, or they do not belong together.
    pub fn load(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let place = || format!("the certificate {}", certificate.display());
        let (chain, key) = chain_and_key(certificate, key)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .with_context(place)?;
        Ok(Self(Arc::new(config)))
    }

    /// From `certificate_file` and `key_file`; `Some(None)` when there are none.
    pub fn read(section: &Section<'_>) -> Option<Option<Self>> {
        let (certificate, key) = (section.path("certificate_file"), section.path("key_file"));
        match (certificate?, key?) {
            (None, None) => Some(None),
            (Some(certificate), Some(key)) => match Self::load(&certificate, &key) {
                Ok(tls) => Some(Some(tls)),
                Err(error) => {
                    section.complain("certificate_file", format!("{error:#}"));
                    None
                }
            },
            (Some(_), None) => {
                section.missing("key_file", "\"data/tls/domains-service.key\"");
                None
            }
            (None, Some(_)) => {
                section.missing("certificate_file", "\"data/tls/domains-service.pem\"");
                None
            }
        }
    }

    /// The same for a listener that is sent credentials: off loopback it has a certificate, unless `plain_text` says that
    /// nobody else can read on the way.
    pub fn read_for(section: &Section<'_>, listener: &str, address: Option<SocketAddr>) -> Option<Option<Self>> {
        let (tls, plain_text) = (Self::read(section), section.flag("plain_text", false));
        let (tls, plain_text) = (tls?, plain_text?);
        if tls.is_none() && !plain_text && address.is_some_and(|address| !address.ip().is_loopback()) {
            section.complain(
                "certificate_file",
                format!(
                    "{listener} is sent credentials and is not on loopback: name a certificate and its key_file \
                     (`tollhouse init` makes both), or say plain_text = true if nobody else can read on the way"
                ),
            );
            return None;
        }
        Some(tls)
    }

    /// Shakes hands.
    pub(crate) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let accepting = TlsAcceptor::from(self.0.clone()).accept(stream);
        tokio::time::timeout(HANDSHAKE_TIME_MAX, accepting).await.map_err(std::io::Error::from)?
    }
}

/// A chain and its key, PEM: what a process shows to whoever it speaks with.
///
/// # Errors
/// When a file cannot be read or holds none, or others may read the key.
pub fn chain_and_key(
    certificate: &Path,
    key: &Path,
) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let chain = certificates(certificate)?;
    let key = Secret::load_with(key, |text| Ok(PrivateKeyDer::from_pem_slice(text.as_bytes())?))?;
    Ok((chain, key))
}

/// The certificates of a file, PEM; at least one.
///
/// # Errors
/// When it cannot be read, or there is none in it.
pub fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let place = || format!("the certificate {}", file.display());
    let pem = std::fs::read(file).with_context(place)?;
    let all: Vec<_> = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().with_context(place)?;
    anyhow::ensure!(!all.is_empty(), "there is no certificate in {}", file.display());
    Ok(all)
}
