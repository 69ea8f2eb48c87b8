//! Start and end of the data plane, and the periodic chores.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use chassis::clock::Clock as _;
use chassis::logs::Logs;
use chassis::shutdown::Shutdown;
use chassis::supervise::blocking;
use chassis::watchdog::Watchdog;
use contract::time::UnixSeconds;
use parking_lot::Mutex;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::counting::UsageFile;
use crate::admin::Live;
use crate::clock::{ClocksOff, FleetClock};
use crate::config::DrainTimes;
use crate::platform_certificate::{CertificateFault, FaultyCertificate, PlatformCertificate};
use crate::telemetry::{CertificateKind, Telemetry};
use listener::{Connections, Listener, ListenerState};
use quota::Quota;
use quota::settings::Mode;
use replica::{Expiry, Replica};

/// How often the chores write usage, check the platform certificate's files and refresh gauges.
const CHORES_EVERY: Duration = Duration::from_secs(1);

/// How long the drain waits for clients without a request in progress to leave.
const IDLE_GRACE: Duration = Duration::from_millis(250);

/// pingora's server in its thread.
pub(super) struct DataPlane {
    end: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
    listeners: [watch::Receiver<ListenerState>; 2],
}

/// Tells pingora when to stop; it does not watch signals itself.
struct EndSignal(Mutex<Option<oneshot::Receiver<()>>>);

#[async_trait]
impl ShutdownSignalWatch for EndSignal {
    async fn recv(&self) -> ShutdownSignal {
        let waiting = self.0.lock().take();
        if let Some(end) = waiting {
            // A dropped sender means that the gateway's task has ended: stop as well.
            let _ = end.await;
        }
        ShutdownSignal::GracefulTerminate
    }
}

impl DataPlane {
    pub(super) fn start(conf: ServerConf, http: Listener, https: Listener) -> anyhow::Result<Self> {
        let (end, receiver) = oneshot::channel();
        let (ended_now, ended) = oneshot::channel();
        let listeners = [http.listening(), https.listening()];
        let run = move || {
            let mut server = Server::new_with_opt_and_conf(None, conf);
            server.bootstrap();
            server.add_service(http);
            server.add_service(https);
            server.run(RunArgs { shutdown_signal: Box::new(EndSignal(Mutex::new(Some(receiver)))) });
            // The receiver is gone if the gateway stopped waiting.
            let _ = ended_now.send(());
        };
        std::thread::Builder::new().name("data-plane".to_owned()).spawn(run).context("starting the data plane")?;
        Ok(Self { end, ended, listeners })
    }

    /// The states of the listeners `http` and `https`.
    pub(super) fn listeners(&self) -> [watch::Receiver<ListenerState>; 2] {
        self.listeners.clone()
    }

    /// Waits for the shutdown. Begins it if a listener panics, the one of the task `admin` included, because a new
    /// process serves again.
    pub(super) async fn ends_in_order(
        &mut self,
        admin: &mut JoinHandle<anyhow::Result<()>>,
        shutdown: &Shutdown,
    ) -> anyhow::Result<()> {
        let [http, https] = &mut self.listeners;
        let is_over = |state: &ListenerState| *state == ListenerState::Stopped;
        let name = tokio::select! {
            biased;
            () = shutdown.begun() => return Ok(()),
            _ = http.wait_for(is_over) => "http",
            _ = https.wait_for(is_over) => "https",
            _ = admin => "admin",
        };
        tracing::error!(
            listener = name,
            "a listener panicked; draining and ending the process, so that its supervisor restarts it"
        );
        shutdown.begin();
        anyhow::bail!("the {name} listener panicked")
    }

    /// Lame duck, then drain, then the end as soon as no request is in progress.
    pub(super) async fn drain(self, live: &Live, telemetry: &Telemetry, times: DrainTimes) -> anyhow::Result<()> {
        live.health.drain();
        telemetry.draining.set(1);
        live.connections.announce_drain();
        tokio::time::sleep(times.lame_duck).await;
        live.connections.drain();
        let ending = async {
            tokio::time::sleep(times.websockets).await;
            live.connections.end_websockets();
            std::future::pending::<()>().await;
        };
        let finishing = async {
            tokio::select! {
                () = nothing_in_progress(&live.connections) => {}
                () = ending => {}
            }
        };
        let finished = tokio::time::timeout(times.requests, finishing).await;
        let left = live.connections.in_flight();
        tracing::info!(requests_left = left, connections_left = live.connections.live(), "drained");
        live.connections.close_all();
        // The receiver is dropped only if pingora stopped itself.
        let _ = self.end.send(());
        let _ = tokio::time::timeout(Duration::from_secs(5), self.ended).await;
        finished.with_context(|| format!("{left} requests were still in progress when the drain ended"))
    }
}

/// Waits until no request is in progress. Clients with open connections were asked to close them; idle ones are closed
/// after the grace period.
async fn nothing_in_progress(connections: &Connections) {
    loop {
        if tokio::time::timeout(IDLE_GRACE, connections.wait_until_closed()).await.is_ok()
            || connections.in_flight() == 0
        {
            return;
        }
    }
}

/// The state for the chores of each second.
pub(super) struct Chores {
    pub(super) quota: Quota,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) logs: Arc<Logs>,
    pub(super) live: Arc<Live>,
    pub(super) watchdog: Watchdog,
    pub(super) clock: Arc<FleetClock>,
}

/// Seconds of silence after which the control plane counts as lost; it sends a heartbeat every second.
const CONTROL_SILENT: i64 = 5;

/// A clock that is further off than this is wrong, as for the alert `EdgeClockOff`.
const CLOCK_OFF_MILLISECONDS_MAX: i64 = 60_000;

/// A certificate with less of its lifetime left should have been renewed, as for the alert `EdgeCertificateLifetimeLow`.
const LIFETIME_LEFT_MIN: f64 = 0.25;

/// The last observed state, to record changes with their time.
#[derive(Default)]
struct Seen {
    mode: Option<Mode>,
    control_silent: bool,
    /// Which clocks are wrong, in the order of their names.
    wrong_clocks: [bool; 3],
    /// Whether a certificate of a domain, and the platform's, should have been renewed.
    domains_ending: bool,
    platform_ending: bool,
}

impl Seen {
    fn check(&mut self, chores: &Chores) {
        let changes = &chores.telemetry.recent.changes;
        let mode = chores.quota.mode();
        if let Some(before) = self.mode.replace(mode)
            && before != mode
        {
            changes.record("quota", format!("counting changed from {} to {}", before.as_str(), mode.as_str()));
        }
        let received = chores.telemetry.feed_received.get();
        let silent = chores.clock.now_seconds().0 - received > CONTROL_SILENT;
        // Only after the first message of the control plane.
        if received > 0 && silent != self.control_silent {
            self.control_silent = silent;
            changes.record(
                "control",
                if silent {
                    "no message from the control plane for 5 s"
                } else {
                    "the control plane is reachable again"
                },
            );
        }
        self.check_clocks(chores.clock.off());
    }

    fn check_clocks(&mut self, off: ClocksOff) {
        for ((clock, milliseconds), was_wrong) in off.by_name().into_iter().zip(&mut self.wrong_clocks) {
            let is_wrong = milliseconds.abs() > CLOCK_OFF_MILLISECONDS_MAX;
            if is_wrong && !*was_wrong {
                tracing::error!(
                    clock,
                    seconds_ahead = milliseconds / 1_000,
                    what_to_do = "start NTP on the machine of this clock, and let it set the clock",
                    "a clock differs from the fleet's time; if only two clocks are known, the other one may be wrong"
                );
            }
            *was_wrong = is_wrong;
        }
    }
}

/// Logs once that the certificate of a kind that expires first should have been renewed.
fn check_lifetime(kind: CertificateKind, first: Option<&Expiry>, now: UnixSeconds, was_ending: &mut bool) {
    let ending = first.filter(|expiry| expiry.left(now) < LIFETIME_LEFT_MIN);
    if let (Some(expiry), false) = (ending, *was_ending) {
        tracing::warn!(
            name = expiry.hostname,
            ends_at = expiry.not_after.0,
            what_to_do = renewal(kind),
            "a certificate should have been renewed by now; serving it until it ends"
        );
    }
    *was_ending = ending.is_some();
}

/// The operator's next step for a certificate that should have been renewed.
const fn renewal(kind: CertificateKind) -> &'static str {
    match kind {
        CertificateKind::Domains => {
            "`tollhouse domain show PROJECT DOMAIN` says why it was not renewed and who must act"
        }
        CertificateKind::Platform => "replace the files of tls.platform_certificate_file and tls.platform_key_file",
    }
}

/// The chores that use the disk.
pub(super) struct OnDisk {
    pub(super) usage: UsageFile,
    pub(super) replica: Arc<Replica>,
    pub(super) platform: Option<Arc<PlatformCertificate>>,
    pub(super) data_directory: PathBuf,
}

impl OnDisk {
    /// Writes usage; returns the first expiry among the domains' certificates, and whether the platform's was replaced.
    fn check(&self, now: UnixSeconds, telemetry: &Telemetry) -> (Option<Expiry>, bool) {
        self.usage.write();
        telemetry.show_damaged(&self.data_directory);
        let replaced = self.platform.as_ref().is_some_and(|platform| platform.reload(&self.replica, now));
        (self.replica.soonest_to_expire(1).pop(), replaced)
    }
}

/// Shows the platform's certificate in metrics, log and recent changes. A fault is logged once, until it changes.
fn show_platform(chores: &Chores, platform: &PlatformCertificate, replaced: bool, known: &mut Vec<CertificateFault>) {
    let gauges = &chores.telemetry.certificates;
    let (expiry, faults) = (platform.expiry(), platform.faults());
    gauges.show(CertificateKind::Platform, Some(&expiry), chores.clock.now_seconds());
    gauges.show_faults(&faults);
    let changes = &chores.telemetry.recent.changes;
    if replaced {
        tracing::info!(name = expiry.hostname, ends_at = expiry.not_after.0, "replaced the platform certificate");
        changes.record("certificate", "the platform's certificate was replaced");
    }
    for fault in faults.iter().filter(|fault| !known.contains(fault)) {
        let (file, reason, remedy) = (fault.file.display(), fault.kind.to_string(), fault.remedy());
        match fault.which {
            FaultyCertificate::Refused => {
                tracing::error!(%file, reason, remedy, "refused the new platform certificate; the current one stays in use");
            }
            FaultyCertificate::InUse => tracing::error!(%file, reason, remedy, "platform certificate in use is faulty"),
        }
        changes.record("certificate", fault.to_string());
    }
    *known = faults;
}

/// Does the chores every second, and once more at the end.
pub(super) async fn housekeep(chores: Arc<Chores>, disk: Arc<OnDisk>, end: Shutdown) {
    let mut platform_faults = Vec::new();
    let mut seen = Seen::default();
    loop {
        let ended = tokio::time::timeout(CHORES_EVERY, end.begun()).await.is_ok();
        chores.telemetry.runtime_stall.set(chores.watchdog.longest_silence().as_secs_f64());
        chores.telemetry.show_clocks(chores.clock.off().by_name());
        chores.telemetry.show_dropped(chores.logs.dropped());
        chores.telemetry.quota.show_mode(chores.quota.mode());
        chores.telemetry.show_connections(chores.live.connections.live());
        seen.check(&chores);
        // On a blocking thread: a disk busy with a large snapshot can block for seconds. Last, because it may panic.
        let (checking, telemetry) = (disk.clone(), chores.telemetry.clone());
        let now = chores.clock.now_seconds();
        let (domains, replaced) = blocking(move || checking.check(now, &telemetry)).await;
        chores.telemetry.certificates.show(CertificateKind::Domains, domains.as_ref(), now);
        check_lifetime(CertificateKind::Domains, domains.as_ref(), now, &mut seen.domains_ending);
        if let Some(platform) = &disk.platform {
            check_lifetime(CertificateKind::Platform, Some(&platform.expiry()), now, &mut seen.platform_ending);
            show_platform(&chores, platform, replaced, &mut platform_faults);
        }
        if ended {
            return;
        }
    }
}
