//! What a listener shows.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::parse_x509_certificate;
use zeroize::Zeroizing;

use crate::config::Section;
use crate::metrics::{self, IntGauge, Registry};
use crate::secret::{Secret, read_regular};
use crate::shutdown::Shutdown;

/// Time for a handshake: one that takes longer gives its place back.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);

/// How often the files of a certificate are read again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The largest file of certificates: the authorities of a whole system are a quarter of it.
pub const CERTIFICATES_BYTES_MAX: u64 = 1024 * 1024;

/// What a listener shows that speaks TLS 1.3: a certificate from files, which is read again when they change.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<rustls::ServerConfig>,
    shown: Arc<Shown>,
}

#[derive(Debug)]
struct Shown {
    certificate: PathBuf,
    key: PathBuf,
    current: ArcSwap<Loaded>,
    /// When the certificate ends, once that is shown.
    ends_at: OnceLock<IntGauge>,
}

#[derive(Debug)]
struct Loaded {
    chain_pem: Vec<u8>,
    certified: Arc<CertifiedKey>,
    /// Its last second of validity, in seconds since 1970.
    ends_at: i64,
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load().certified.clone())
    }
}

impl Shown {
    /// Reads the files again if the certificate has changed. Whether it had.
    fn reload(&self) -> anyhow::Result<bool> {
        let changed = *pem(&self.certificate)? != self.current.load().chain_pem;
        if changed {
            let found = read(&self.certificate, &self.key)?;
            if let Some(ends_at) = self.ends_at.get() {
                ends_at.set(found.ends_at);
            }
            self.current.store(Arc::new(found));
        }
        Ok(changed)
    }
}

impl ServerTls {
    /// From a chain and its key, PEM.
    ///
    /// # Errors
    /// When a file cannot be read, others may read the key, or they do not belong together.
    pub fn load(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let current = ArcSwap::from_pointee(read(certificate, key)?);
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        let shown = Arc::new(Shown { certificate, key, current, ends_at: OnceLock::new() });
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(shown.clone());
        Ok(Self { config: Arc::new(config), shown })
    }

    /// Reads the files every second until the end and shows what they hold from then on. What cannot be used is logged once,
    /// and the certificate in use stays.
    pub(crate) async fn watch(self, end: Shutdown) {
        let (mut refused, file) = (String::new(), self.shown.certificate.clone());
        while tokio::time::timeout(LOOK_EVERY, end.begun()).await.is_err() {
            let shown = self.shown.clone();
            let read = tokio::task::spawn_blocking(move || shown.reload()).await;
            let error = match read {
                Ok(Ok(false)) | Err(_) => String::new(),
                Ok(Ok(true)) => {
                    tracing::info!(file = %file.display(), "certificate of a listener replaced");
                    String::new()
                }
                Ok(Err(error)) => format!("{error:#}"),
            };
            if error != refused && !error.is_empty() {
                tracing::error!(
                    error,
                    file = %file.display(),
                    "certificate of a listener refused; the one in use stays. Put a good pair in its place"
                );
            }
            refused = error;
        }
    }

    /// Shows when the certificates of these listeners end, in a metric with their names.
    ///
    /// # Errors
    /// When the metric is registered twice: a mistake of the program, found at start.
    pub fn show<const N: usize>(registry: &Registry, listeners: [(&str, &Option<Self>); N]) -> anyhow::Result<()> {
        let gauge = metrics::gauge_vec(
            registry,
            "listener_certificate_expiry_timestamp_seconds",
            "When the certificate of this listener between processes ends.",
            &["listener"],
        )?;
        for (name, tls) in listeners {
            if let Some(Self { shown, .. }) = tls {
                let ends_at = shown.ends_at.get_or_init(|| gauge.with_label_values(&[name]));
                ends_at.set(shown.current.load().ends_at);
            }
        }
        Ok(())
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
        let accepting = TlsAcceptor::from(self.config.clone()).accept(stream);
        tokio::time::timeout(HANDSHAKE_TIME_MAX, accepting).await.map_err(std::io::Error::from)?
    }
}

fn read(certificate: &Path, key: &Path) -> anyhow::Result<Loaded> {
    let place = || format!("the certificate {}", certificate.display());
    let chain_pem = pem(certificate)?.to_vec();
    let key = Secret::load_with(key, |text| Ok(Zeroizing::new(text.to_owned())))?;
    let certified = certified_key(&chain_pem, key.as_bytes()).with_context(place)?;
    let leaf = certified.end_entity_cert().with_context(place)?;
    let (_, leaf) = parse_x509_certificate(leaf).with_context(place)?;
    let ends_at = leaf.validity().not_after.timestamp();
    Ok(Loaded { chain_pem, certified: Arc::new(certified), ends_at })
}

/// Chain and key from PEM, with the key checked against the leaf.
///
/// # Errors
/// When one is not PEM, the key is of a kind that is not supported, or they do not belong together.
pub fn certified_key(chain_pem: &[u8], key_pem: &[u8]) -> anyhow::Result<CertifiedKey> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(chain_pem).collect::<Result<_, _>>().context("the chain is not PEM")?;
    anyhow::ensure!(!chain.is_empty(), "the chain is empty");
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| anyhow::anyhow!("the private key is not PEM"))?;
    let signing = any_supported_type(&key).map_err(|_| anyhow::anyhow!("the private key's type is not supported"))?;
    let certified = CertifiedKey::new(chain, signing);
    certified.keys_match().map_err(|_| anyhow::anyhow!("the private key does not belong to the certificate"))?;
    Ok(certified)
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
    let pem = pem(file)?;
    let all: Vec<_> = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().with_context(place)?;
    anyhow::ensure!(!all.is_empty(), "there is no certificate in {}", file.display());
    Ok(all)
}

fn pem(file: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let read = read_regular(file, CERTIFICATES_BYTES_MAX);
    Ok(read.with_context(|| format!("the certificate {}", file.display()))?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::write_private;

    #[test]
    fn a_bad_replacement_leaves_the_certificate_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let [certificate, key] = ["leaf.pem", "leaf.key"].map(|name| directory.path().join(name));
        let pair = || {
            let made = rcgen::generate_simple_self_signed(["gateway-1".to_owned()]).unwrap();
            (made.cert.pem(), made.signing_key.serialize_pem())
        };
        let put = |pem: &str, secret: &str| {
            write_private(&key, secret.as_bytes()).unwrap();
            write_private(&certificate, pem.as_bytes()).unwrap();
        };
        let ((first, first_key), (second, second_key)) = (pair(), pair());
        put(&first, &first_key);
        let tls = ServerTls::load(&certificate, &key).unwrap();
        assert!(!tls.shown.reload().unwrap());
        for (pem, secret) in [("", &first_key), ("no certificate", &first_key), (&second, &first_key)] {
            put(pem, secret);
            assert!(tls.shown.reload().is_err(), "{pem}");
        }
        std::fs::remove_file(&certificate).unwrap();
        assert!(tls.shown.reload().is_err());
        assert!(std::process::Command::new("mkfifo").arg(&certificate).status().unwrap().success());
        assert!(tls.shown.reload().is_err(), "a pipe is not waited for");
        assert_eq!(tls.shown.current.load().chain_pem, first.as_bytes());
        put(&second, &second_key);
        assert!(tls.shown.reload().unwrap());
        assert_eq!(tls.shown.current.load().chain_pem, second.as_bytes());
    }
}
