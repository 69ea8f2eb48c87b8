//! Settings that the running gateway takes: its upstreams with their routes, and the log filter.
//!
//! The file is read again on SIGHUP and when it changes. A file with a mistake changes nothing: the settings in force
//! stay, the log has the mistakes, and a gauge is 0 until the file is correct. A file without an upstream that sites
//! use is refused in the same way, because a file that is cut off between two tables has no other mistake. All other
//! changed settings are logged and apply at the next start; `tollhouse check-config --running` lists them. An upstream
//! with unchanged settings keeps its connections, its permits and its addresses.

use std::sync::Arc;

use chassis::config::{EffectiveSettings, FileWatch, Source};
use chassis::logs::Logs;
use chassis::metrics::{self, IntGauge, Registry};
use chassis::shutdown::Shutdown;
use contract::project::UpstreamName;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use crate::config::{Config, ENVIRONMENT_PREFIX};
use crate::telemetry::Telemetry;
use replica::Replica;
use upstreams::Upstreams;

/// The setting for the log filter.
const LOG_FILTER: &str = "log.filter";

/// The prefix of upstream settings.
const UPSTREAMS: &str = "upstreams.";

/// The result of the last reading.
pub(super) struct ReloadMetrics {
    successful: IntGauge,
    at: IntGauge,
}

impl ReloadMetrics {
    pub(super) fn new(registry: &Registry) -> anyhow::Result<Self> {
        let metrics = Self {
            successful: metrics::gauge(
                registry,
                "edge_config_last_reload_successful",
                "1 if the settings were valid when last read, 0 if refused.",
            )?,
            at: metrics::gauge(
                registry,
                "edge_config_last_reload_timestamp_seconds",
                "Last reload of settings; 0 before the first.",
            )?,
        };
        metrics.successful.set(1);
        Ok(metrics)
    }
}

/// The reader of the settings and the parts that take them.
pub(super) struct Reload {
    pub(super) metrics: ReloadMetrics,
    pub(super) file: AsyncMutex<FileWatch>,
    pub(super) running: Arc<Mutex<EffectiveSettings>>,
    pub(super) upstreams: Arc<Upstreams>,
    pub(super) replica: Arc<Replica>,
    pub(super) logs: Arc<Logs>,
    pub(super) telemetry: Arc<Telemetry>,
}

impl Reload {
    /// Reads the settings again on each signal or change of the file, until `end`.
    pub(super) async fn run(&self, end: Shutdown) {
        let mut file = self.file.lock().await;
        loop {
            tokio::select! {
                () = end.begun() => return,
                () = file.changed() => {}
            }
            let read = Source::read(Some(file.path()), ENVIRONMENT_PREFIX)
                .and_then(|source| Config::read(&source).map_err(anyhow::Error::from));
            match read {
                Ok(config) => self.take(config).await,
                Err(error) => {
                    tracing::error!(
                        error = format!("{error:#}"),
                        what_to_do = "correct the file; `tollhouse check-config` lists its mistakes",
                        "refused the new settings; keeping the old ones"
                    );
                    self.refuse("it has mistakes; the gateway's log lists them");
                }
            }
        }
    }

    /// The upstreams in force that these settings lack and that a site uses. Searches all of them.
    async fn missing(&self, config: &Config) -> Vec<UpstreamName> {
        let mut gone = self.upstreams.names();
        gone.retain(|name| config.upstreams.iter().all(|one| one.name != *name));
        if gone.is_empty() {
            return gone;
        }
        let replica = self.replica.clone();
        let used = tokio::task::spawn_blocking(move || gone.into_iter().filter(|name| replica.uses(name)).collect());
        used.await.unwrap_or_default()
    }

    async fn take(&self, config: Config) {
        let missing = self.missing(&config).await;
        if !missing.is_empty() {
            let mut missing: Vec<&str> = missing.iter().map(UpstreamName::as_str).collect();
            missing.sort_unstable();
            let missing = missing.join(", ");
            tracing::error!(
                missing,
                "refused the new settings, which lack upstreams that sites use (is the file incomplete?); keeping the old ones. \
                 To remove these upstreams, move their projects first, or restart the gateway"
            );
            return self.refuse(&format!("it lacks upstreams that sites use: {missing}"));
        }
        let (taken, waiting) = {
            let running = self.running.lock();
            let differences = running.differences(&config.effective).into_iter().map(str::to_owned);
            differences.partition::<Vec<String>, _>(|path| path.starts_with(UPSTREAMS) || path == LOG_FILTER)
        };
        if taken.iter().any(|path| path == LOG_FILTER)
            && let Err(error) = self.logs.filter(&config.log_filter)
        {
            tracing::error!(error = format!("{error:#}"), "cannot apply log.filter; keeping all current settings");
            return self.refuse(&format!("{LOG_FILTER} is not a valid log filter"));
        }
        let changed = |name: &str| {
            let prefix = format!("{UPSTREAMS}{name}.");
            taken.iter().any(|path| path.starts_with(&prefix))
        };
        self.upstreams.replace(config.upstreams, changed).await;
        self.running.lock().take(&config.effective, &taken);
        self.metrics.successful.set(1);
        *self.telemetry.settings_refused.lock() = None;
        self.metrics.at.set(self.telemetry.now().0);
        if taken.is_empty() && waiting.is_empty() {
            return;
        }
        let list = |paths: &[String]| if paths.is_empty() { "nothing".to_owned() } else { paths.join(", ") };
        tracing::info!(applied = list(&taken), at_next_start = list(&waiting), "reloaded the settings");
        self.remember(format!("applied: {}; at the next start: {}", list(&taken), list(&waiting)));
    }

    /// Notes that the file is refused, and why, for metric, `status` and recent changes.
    fn refuse(&self, reason: &str) {
        self.metrics.successful.set(0);
        *self.telemetry.settings_refused.lock() = Some(reason.to_owned());
        self.remember(format!("refused: {reason}; keeping the present settings"));
    }

    fn remember(&self, words: String) {
        self.telemetry.recent.changes.record("settings", words);
    }
}
