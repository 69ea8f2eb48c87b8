//! TLS of a listener between processes: its certificate, reloaded from files.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use contract::time::UnixSeconds;
use contract::trouble::Trouble;
use parking_lot::Mutex;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use zeroize::Zeroizing;

use crate::certificate::{FaultKind, Pair, ReplacedChains, moment};
use crate::clock::{Clock as _, SystemClock};
use crate::config::Section;
use crate::metrics::{self, IntGauge, IntGaugeVec, Registry};
use crate::secret::{Secret, read_regular};
use crate::shutdown::Shutdown;
use crate::supervise::blocking;

/// Longest handshake; a slower one is closed.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);

/// Interval at which the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A certificate in use with less than this left should have been renewed, as for the alert
/// `ListenerCertificateEnding`.
const ENDS_SOON_SECONDS: i64 = 30 * 86_400;

/// The operator's next step if a certificate cannot be used.
const REPLACE: &str = "replace the files with a valid certificate and its key (`tollhouse node certificates`)";

/// Largest file of certificates in bytes. The CA certificates of a whole system have a quarter of it.
pub const CERTIFICATES_BYTES_MAX: u64 = 1024 * 1024;

/// TLS 1.3 of a listener, with a certificate from files that is reloaded when they change.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<rustls::ServerConfig>,
    files: Arc<CertificateFiles>,
}

#[derive(Debug)]
struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    current: ArcSwap<Pair>,
    /// The chains that were replaced.
    replaced: ReplacedChains,
    /// The fault of the certificate in use, and that of the files.
    faults: Mutex<Faults>,
    gauges: OnceLock<Gauges>,
}

/// In the order of [`PLACES`].
type Faults = [Option<FaultKind>; 2];

/// The values of the label `certificate`.
const PLACES: [&str; 2] = ["in_use", "refused"];

/// The metrics of one listener's certificate.
#[derive(Debug)]
struct Gauges {
    listener: String,
    ends_at: IntGauge,
    faults: IntGaugeVec,
}

impl Gauges {
    fn show(&self, ends_at: UnixSeconds, faults: &Faults) {
        self.ends_at.set(ends_at.0);
        for (place, fault) in PLACES.into_iter().zip(faults) {
            for reason in FaultKind::REASONS {
                let is_it = fault.as_ref().is_some_and(|fault| fault.reason() == reason);
                self.faults.with_label_values(&[&*self.listener, place, reason]).set(i64::from(is_it));
            }
        }
    }
}

impl ResolvesServerCert for CertificateFiles {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load().certified.clone())
    }
}

impl CertificateFiles {
    /// Reads the files and uses their certificate if it is as good as the one in use. Returns whether it changed.
    fn check(&self, now: UnixSeconds) -> bool {
        let found = self.reload(now);
        let (current, changed) = (self.current.load(), found == Ok(true));
        let faults = [current.usable(now).err(), found.err()];
        if let Some(gauges) = self.gauges.get() {
            gauges.show(current.not_after, &faults);
        }
        *self.faults.lock() = faults;
        changed
    }

    fn reload(&self, now: UnixSeconds) -> Result<bool, FaultKind> {
        let unusable = |error: anyhow::Error| FaultKind::Unusable(format!("{error:#}"));
        let current = self.current.load_full();
        if *pem(&self.certificate).map_err(unusable)? == current.chain_pem {
            return Ok(false);
        }
        let found = read(&self.certificate, &self.key).map_err(unusable)?;
        if self.replaced.contains(&found) {
            found.usable(now)?;
        } else {
            judge(&found, &current, now)?;
        }
        self.replaced.add(&current);
        self.current.store(Arc::new(found));
        Ok(true)
    }
}

/// Whether a certificate may replace the one in use. A certificate that was issued later may expire earlier: its
/// shorter lifetime is intended.
fn judge(found: &Pair, current: &Pair, now: UnixSeconds) -> Result<(), FaultKind> {
    match found.judge_against(current, &[], now) {
        Err(FaultKind::EndsEarlier { .. }) if found.not_before > current.not_before => Ok(()),
        judged => judged,
    }
}

impl ServerTls {
    /// Loads a certificate chain and its key, PEM.
    ///
    /// # Errors
    /// If a file cannot be read, other users can read the key, or the key does not match the certificate.
    pub fn load(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let files = Arc::new(CertificateFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            current: ArcSwap::from_pointee(read(certificate, key)?),
            replaced: ReplacedChains::default(),
            faults: Mutex::default(),
            gauges: OnceLock::new(),
        });
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(files.clone());
        Ok(Self { config: Arc::new(config), files })
    }

    /// Checks the files every second until shutdown, and uses a changed certificate if it is as good as the one in use.
    /// A refused certificate is logged once.
    pub(crate) async fn watch(self, end: Shutdown) {
        let (mut known, file) = (Faults::default(), self.files.certificate.clone());
        let clock = SystemClock::new();
        loop {
            let (files, now) = (self.files.clone(), clock.now_seconds());
            if blocking(move || files.check(now)).await {
                tracing::info!(file = %file.display(), "replaced the certificate of a listener");
            }
            let faults = self.files.faults.lock().clone();
            let [in_use, refused] = [0, 1].map(|place| match (faults.get(place), known.get(place)) {
                (Some(Some(fault)), Some(before)) if before.as_ref() != Some(fault) => Some(fault.to_string()),
                _ => None,
            });
            if let Some(reason) = in_use {
                tracing::error!(reason, file = %file.display(), "a listener uses a faulty certificate: replace the files with a valid certificate and its key");
            }
            if let Some(reason) = refused {
                tracing::error!(
                    reason,
                    file = %file.display(),
                    "refused the new certificate of a listener; the previous one stays in use. Replace the files, or, if the new \
                     certificate is intended, restart the process"
                );
            }
            known = faults;
            if tokio::time::timeout(CHECK_INTERVAL, end.begun()).await.is_ok() {
                return;
            }
        }
    }

    /// Registers metrics for the certificates of these listeners: expiry and faults.
    ///
    /// # Errors
    /// If a metric is registered twice: a programming mistake, found at start.
    pub fn show<const N: usize>(registry: &Registry, listeners: [(&str, &Option<Self>); N]) -> anyhow::Result<()> {
        let ends_at = metrics::gauge_vec(
            registry,
            "listener_certificate_expiry_timestamp_seconds",
            "Expiry of the certificate of a listener between processes.",
            &["listener"],
        )?;
        let faults = metrics::gauge_vec(
            registry,
            "listener_certificate_fault",
            "1 while the certificate of a listener between processes is faulty, or its new files are refused, for this \
             reason; otherwise 0.",
            &["listener", "certificate", "reason"],
        )?;
        for (name, tls) in listeners {
            if let Some(Self { files, .. }) = tls {
                let gauges = || Gauges {
                    listener: name.to_owned(),
                    ends_at: ends_at.with_label_values(&[name]),
                    faults: faults.clone(),
                };
                files.gauges.get_or_init(gauges).show(files.current.load().not_after, &files.faults.lock());
            }
        }
        Ok(())
    }

    /// Reads `certificate_file` and `key_file`; `Some(None)` if both are absent.
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

    /// Like [`ServerTls::read`], for a listener that receives credentials: off loopback it needs a certificate, or
    /// `plain_text = true`.
    pub fn read_for(section: &Section<'_>, listener: &str, address: Option<SocketAddr>) -> Option<Option<Self>> {
        let (tls, plain_text) = (Self::read(section), section.flag("plain_text", false));
        let (tls, plain_text) = (tls?, plain_text?);
        if tls.is_none() && !plain_text && address.is_some_and(|address| !address.ip().is_loopback()) {
            section.complain(
                "certificate_file",
                format!(
                    "{listener} is sent credentials and is not on loopback: set certificate_file and key_file \
                     (`tollhouse init` creates both), or plain_text = true if the network path is private"
                ),
            );
            return None;
        }
        Some(tls)
    }

    /// Performs the handshake.
    pub(crate) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let accepting = TlsAcceptor::from(self.config.clone()).accept(stream);
        tokio::time::timeout(HANDSHAKE_TIME_MAX, accepting).await.map_err(std::io::Error::from)?
    }
}

/// The listeners of a process that use TLS.
#[derive(Clone, Debug, Default)]
pub struct Listeners(Vec<ServerTls>);

impl Listeners {
    /// Those of the given listeners that use TLS.
    #[must_use]
    pub fn of<const N: usize>(listeners: [&Option<ServerTls>; N]) -> Self {
        Self(listeners.into_iter().flatten().cloned().collect())
    }

    /// The faults of their certificates, and those that expire soon, for `tollhouse status`.
    #[must_use]
    pub fn faults(&self, now: UnixSeconds) -> Vec<Trouble> {
        let all = self.0.iter().flat_map(|ServerTls { files, .. }| {
            let (file, ends_at) = (files.certificate.display(), files.current.load().not_after);
            let [in_use, refused] = files.faults.lock().clone();
            let ends_soon = in_use.is_none() && ends_at < now.plus(ENDS_SOON_SECONDS);
            [
                in_use.map(|fault| {
                    let problem = format!("the certificate of a listener is faulty ({file}): {fault}");
                    Trouble::of_platform(problem, REPLACE)
                }),
                refused.map(|fault| {
                    let problem = format!("{file} is refused; the previous certificate stays in use: {fault}");
                    Trouble::of_platform(
                        problem,
                        format!("{REPLACE}, or, if this one is intended, restart the process"),
                    )
                }),
                ends_soon.then(|| {
                    let problem = format!("the certificate of a listener ({file}) expires at {}", moment(ends_at));
                    Trouble::of_platform(
                        problem,
                        "run `tollhouse node certificates --replace NAME` and copy both files",
                    )
                }),
            ]
        });
        all.flatten().collect()
    }
}

fn read(certificate: &Path, key: &Path) -> anyhow::Result<Pair> {
    let chain_pem = pem(certificate)?.to_vec();
    let key = Secret::load_with(key, |text| Ok(Zeroizing::new(text.to_owned())))?;
    Pair::from_pem(chain_pem, key.as_bytes()).with_context(|| format!("the certificate {}", certificate.display()))
}

/// Reads the certificate chain and the key of a process, PEM.
///
/// # Errors
/// If a file cannot be read or is empty, or other users can read the key.
pub fn chain_and_key(
    certificate: &Path,
    key: &Path,
) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let chain = certificates(certificate)?;
    let key = Secret::load_with(key, |text| Ok(PrivateKeyDer::from_pem_slice(text.as_bytes())?))?;
    Ok((chain, key))
}

/// Reads the certificates of a file, PEM; at least one.
///
/// # Errors
/// If it cannot be read or contains no certificate.
pub fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let path = || format!("the certificate {}", file.display());
    let pem = pem(file)?;
    let all: Vec<_> = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().with_context(path)?;
    anyhow::ensure!(!all.is_empty(), "{} contains no certificate", file.display());
    Ok(all)
}

fn pem(file: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let read = read_regular(file, CERTIFICATES_BYTES_MAX);
    Ok(read.with_context(|| format!("the certificate {}", file.display()))?.0)
}

#[cfg(test)]
mod tests;
