//! What a listener shows.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use contract::time::UnixSeconds;
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

use crate::certificate::{FaultKind, Pair, Served};
use crate::clock::{Clock as _, SystemClock};
use crate::config::Section;
use crate::metrics::{self, IntGauge, IntGaugeVec, Registry};
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
    current: ArcSwap<Pair>,
    /// The chains that were shown before the current one.
    before: Served,
    /// What is wrong with the certificate in use, and with the files in its place.
    faults: Mutex<Faults>,
    gauges: OnceLock<Gauges>,
}

/// In the order of [`PLACES`].
type Faults = [Option<FaultKind>; 2];

/// Which certificate a fault is about, for a label.
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

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load().certified.clone())
    }
}

impl Shown {
    /// Reads the files again and takes what they hold if it is as good as the certificate in use. Whether that changed.
    fn look(&self, now: UnixSeconds) -> bool {
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
        if self.before.contains(&found) {
            found.usable(now)?;
        } else {
            judge(&found, &current, now)?;
        }
        self.before.note(&current);
        self.current.store(Arc::new(found));
        Ok(true)
    }
}

/// Whether a certificate may take the place of the one in use. One that was issued later and ends earlier was made so on
/// purpose.
fn judge(found: &Pair, current: &Pair, now: UnixSeconds) -> Result<(), FaultKind> {
    match found.judge_against(current, &[], now) {
        Err(FaultKind::EndsEarlier { .. }) if found.not_before > current.not_before => Ok(()),
        judged => judged,
    }
}

impl ServerTls {
    /// From a chain and its key, PEM.
    ///
    /// # Errors
    /// When a file cannot be read, others may read the key, or they do not belong together.
    pub fn load(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let shown = Arc::new(Shown {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            current: ArcSwap::from_pointee(read(certificate, key)?),
            before: Served::default(),
            faults: Mutex::default(),
            gauges: OnceLock::new(),
        });
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(shown.clone());
        Ok(Self { config: Arc::new(config), shown })
    }

    /// Reads the files every second until the end, and shows what they hold from then on if it is as good as what is in use.
    /// What is refused is logged once.
    pub(crate) async fn watch(self, end: Shutdown) {
        let (mut known, file) = (Faults::default(), self.shown.certificate.clone());
        let clock = SystemClock::new();
        loop {
            let (shown, now) = (self.shown.clone(), clock.now_seconds());
            if tokio::task::spawn_blocking(move || shown.look(now)).await.is_ok_and(|changed| changed) {
                tracing::info!(file = %file.display(), "certificate of a listener replaced");
            }
            let faults = self.shown.faults.lock().clone();
            let [in_use, refused] = [0, 1].map(|place| match (faults.get(place), known.get(place)) {
                (Some(Some(fault)), Some(before)) if before.as_ref() != Some(fault) => Some(fault.to_string()),
                _ => None,
            });
            if let Some(reason) = in_use {
                tracing::error!(reason, file = %file.display(), "certificate of a listener is bad: put a good pair in its place");
            }
            if let Some(reason) = refused {
                tracing::error!(
                    reason,
                    file = %file.display(),
                    "certificate of a listener refused; the one in use stays. Put a good pair in its place; if this one is meant, \
                     restart the process"
                );
            }
            known = faults;
            if tokio::time::timeout(LOOK_EVERY, end.begun()).await.is_ok() {
                return;
            }
        }
    }

    /// Shows when the certificates of these listeners end, and what is wrong with them, in metrics with their names.
    ///
    /// # Errors
    /// When a metric is registered twice: a mistake of the program, found at start.
    pub fn show<const N: usize>(registry: &Registry, listeners: [(&str, &Option<Self>); N]) -> anyhow::Result<()> {
        let ends_at = metrics::gauge_vec(
            registry,
            "listener_certificate_expiry_timestamp_seconds",
            "When the certificate of this listener between processes ends.",
            &["listener"],
        )?;
        let faults = metrics::gauge_vec(
            registry,
            "listener_certificate_fault",
            "1 while the certificate of this listener between processes is bad, or the files in its place are refused, for this \
             reason; else 0.",
            &["listener", "certificate", "reason"],
        )?;
        for (name, tls) in listeners {
            if let Some(Self { shown, .. }) = tls {
                let gauges = || Gauges {
                    listener: name.to_owned(),
                    ends_at: ends_at.with_label_values(&[name]),
                    faults: faults.clone(),
                };
                shown.gauges.get_or_init(gauges).show(shown.current.load().not_after, &shown.faults.lock());
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

/// The listeners of a process that show a certificate.
#[derive(Clone, Debug, Default)]
pub struct Listeners(Vec<ServerTls>);

impl Listeners {
    /// Of these, those that do.
    #[must_use]
    pub fn of<const N: usize>(listeners: [&Option<ServerTls>; N]) -> Self {
        Self(listeners.into_iter().flatten().cloned().collect())
    }

    /// What is wrong with their certificates, in words for `tollhouse status`.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let all = self.0.iter().flat_map(|ServerTls { shown, .. }| {
            let file = shown.certificate.display();
            let [in_use, refused] = shown.faults.lock().clone();
            let in_use = in_use.map(|fault| {
                format!("the certificate of a listener is bad ({file}): {fault}: put a good pair in its place")
            });
            let refused = refused.map(|fault| {
                format!(
                    "{file} is refused, and the certificate in use stays: {fault}: put a good pair in its place; if this one is \
                     meant, restart the process"
                )
            });
            [in_use, refused]
        });
        all.flatten().collect()
    }
}

fn read(certificate: &Path, key: &Path) -> anyhow::Result<Pair> {
    let chain_pem = pem(certificate)?.to_vec();
    let key = Secret::load_with(key, |text| Ok(Zeroizing::new(text.to_owned())))?;
    Pair::from_pem(chain_pem, key.as_bytes()).with_context(|| format!("the certificate {}", certificate.display()))
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
mod tests;
