//! Metrics, and one log line per request. `own_answers` limits the lines of the gateway's own responses.
//!
//! Label values come from enums, and every series exists from the start, so clients cannot create series. Hostnames,
//! projects and keys are in the log line.

mod access_log;
mod certificates;
mod listener_events;
mod own_answers;
mod quota_metrics;
mod spans;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock;
use chassis::logs::LogLines;
use chassis::metrics::{self, Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use chassis::trace::Tracer;
use contract::time::UnixSeconds;
use parking_lot::Mutex;

use crate::facts::{Authentication, Facts, Surface};
use crate::recent::Recent;
use crate::usage::UsageCounts;
use contract::rejection::{Blame, Rejection};
use replica::EnrolledName;
use replica::Invalid;
use replica::damage;

use own_answers::OwnAnswers;

pub(crate) use access_log::{Entry, LoggedConnection};
pub(crate) use certificates::{CertificateKind, CertificateMetrics};
pub(crate) use quota_metrics::QuotaMetrics;
pub(crate) use spans::client_span;

/// How long `tollhouse status` shows dropped log lines.
const LOG_DROPPED_SHOWN: Duration = Duration::from_mins(10);

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

contract::words! {
    /// The result of an upstream attempt.
    enum UpstreamOutcome {
        /// A response arrived, with any status.
        Answered = "answered",
        /// No connection.
        ConnectError = "connect_error",
        /// The TLS handshake failed.
        TlsError = "tls_error",
        /// Too slow.
        Timeout = "timeout",
        /// The response ended early or was invalid.
        Invalid = "invalid",
    }
}

/// All metrics of the gateway, and its access log.
pub struct Telemetry {
    /// Responses that are not refusals, by surface and class of status: found by index, without a lookup.
    served: Vec<IntCounter>,
    refused: Vec<IntCounter>,
    durations: Vec<Histogram>,
    latency: Vec<Histogram>,
    overhead: Vec<Histogram>,
    auth: Vec<IntCounter>,
    /// Charges, and how requests are counted.
    pub(crate) quota: QuotaMetrics,
    /// Requests per project, for the dashboard.
    pub(crate) usage: Arc<UsageCounts>,
    upstream: Vec<IntCounter>,
    upstream_duration: Histogram,
    /// Requests in progress.
    pub(crate) in_flight: IntGauge,
    /// The newest revision the replica has applied.
    pub(crate) replica_revision: IntGauge,
    /// When the control plane was last reachable, Unix seconds.
    pub(crate) feed_received: IntGauge,
    replica_refused: IntCounterVec,
    clock_off: IntGaugeVec,
    /// 1 while the gateway drains.
    pub(crate) draining: IntGauge,
    /// The longest stall of a runtime at the last check.
    pub(crate) runtime_stall: Gauge,
    log_dropped: IntGauge,
    /// When a check last found newly dropped lines, by the monotonic clock.
    log_dropped_at: Mutex<Option<Duration>>,
    damaged: IntGaugeVec,
    /// The recent history for operators.
    pub(crate) recent: Recent,
    /// Why the changed settings were refused when they were last read.
    pub(crate) settings_refused: Mutex<Option<String>>,
    /// The certificates that expire first.
    pub(crate) certificates: CertificateMetrics,
    listener: listener_events::ListenerMetrics,
    lines: LogLines,
    own_answers: OwnAnswers,
    clock: Arc<dyn Clock>,
    /// The enrolled name of this gateway.
    pub(crate) gateway: EnrolledName,
    /// The id of this process.
    node: String,
    /// The receiver of spans of sampled requests.
    pub(crate) tracer: Tracer,
}

impl Telemetry {
    /// Registers all metrics on `registry`; access log lines go to `lines`, spans to `tracer`.
    ///
    /// # Errors
    /// If a name is taken: a programming mistake.
    pub fn new(
        registry: &Registry,
        lines: LogLines,
        clock: Arc<dyn Clock>,
        node: &str,
        tracer: Tracer,
    ) -> anyhow::Result<Self> {
        let requests = metrics::counter_vec(
            registry,
            "edge_requests_total",
            "Requests answered, by surface, status class, blame and code (both empty unless the gateway refused).",
            &["surface", "status_class", "blame", "code"],
        )?;
        let served = Surface::ALL
            .iter()
            .flat_map(|surface| CLASSES.map(|class| requests.with_label_values(&[surface.as_str(), class, "", ""])))
            .collect();
        let refused = Surface::ALL
            .iter()
            .flat_map(|surface| Rejection::ALL.iter().map(move |rejection| (surface, rejection)))
            .map(|(surface, rejection)| {
                let class = class_of(rejection.status());
                requests.with_label_values(&[surface.as_str(), class, rejection.blame().as_str(), rejection.code()])
            })
            .collect();
        let auth =
            metrics::counter_vec(registry, "edge_auth_total", "Attempts to authenticate, by result.", &["result"])?;
        let upstream = metrics::counter_vec(
            registry,
            "edge_upstream_requests_total",
            "Requests sent to upstreams, by outcome.",
            &["outcome"],
        )?;
        Ok(Self {
            served,
            refused,
            durations: by_surface(
                registry,
                "edge_request_duration_seconds",
                "Time from the first byte of a request to the end of its response.",
            )?,
            latency: by_surface(
                registry,
                "edge_latency_seconds",
                "Time from the head of a request to the head of its response, without waits for the client.",
            )?,
            overhead: by_surface(
                registry,
                "edge_overhead_seconds",
                "The part of a request's duration that was not spent waiting for an upstream or for the body of the request.",
            )?,
            auth: Authentication::ALL.iter().map(|one| auth.with_label_values(&[one.as_str()])).collect(),
            quota: QuotaMetrics::new(registry)?,
            usage: Arc::default(),
            settings_refused: Mutex::default(),
            upstream: UpstreamOutcome::ALL.iter().map(|one| upstream.with_label_values(&[one.as_str()])).collect(),
            upstream_duration: metrics::latency_vec(
                registry,
                "edge_upstream_duration_seconds",
                "Time from asking an upstream to the head of its response, without waits for the client.",
                &[],
            )?
            .with_label_values(&[] as &[&str]),
            in_flight: metrics::gauge(registry, "edge_requests_in_flight", "Requests in progress.")?,
            replica_revision: metrics::gauge(
                registry,
                "edge_replica_revision",
                "Newest revision applied by the replica.",
            )?,
            feed_received: metrics::gauge(
                registry,
                "edge_feed_received_timestamp_seconds",
                "Time of the last message from the control plane.",
            )?,
            replica_refused: replica_refused(registry)?,
            clock_off: clock_off(registry)?,
            draining: metrics::gauge(registry, "edge_draining", "1 while the gateway drains.")?,
            runtime_stall: metrics::fraction_gauge(
                registry,
                "edge_runtime_stall_seconds",
                "The longest time in which a runtime ran no task; at 10 the process exits.",
            )?,
            log_dropped: metrics::gauge(
                registry,
                "edge_log_dropped_lines",
                "Log lines dropped because their reader was too slow, or that could not be written.",
            )?,
            log_dropped_at: Mutex::default(),
            damaged: metrics::gauge_vec(
                registry,
                "edge_damaged_file",
                "1 while this file of the data directory is damaged and renamed; otherwise 0.",
                &["file"],
            )?,
            recent: Recent::new(clock.clone()),
            certificates: CertificateMetrics::new(registry)?,
            listener: listener_events::ListenerMetrics::new(registry)?,
            lines,
            own_answers: OwnAnswers::new(registry)?,
            clock,
            gateway: EnrolledName::default(),
            node: node.to_owned(),
            tracer,
        })
    }

    /// Records the end of a request: counts it and writes its line.
    pub(crate) fn finish(&self, facts: &Facts, entry: &Entry<'_>) {
        let surface = position(Surface::ALL, &facts.surface);
        let counter = match facts.refused {
            Some(rejection) => self.refused.get(surface * Rejection::ALL.len() + position(Rejection::ALL, &rejection)),
            None => self.served.get(surface * CLASSES.len() + class_index(entry.status)),
        };
        if let Some(counter) = counter {
            counter.inc();
        }
        if let Some(counter) =
            facts.caller.authentication.and_then(|one| self.auth.get(position(Authentication::ALL, &one)))
        {
            counter.inc();
        }
        if facts.upstream.began.is_some() {
            self.count_upstream(facts);
        }
        let ended_at = self.clock.monotonic();
        let took = ended_at.saturating_sub(facts.began);
        // The wall clock is three reads of the machine's clocks; this is one.
        let now = facts.began_at.plus(i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
        let waited = facts.upstream.waited().unwrap_or_default();
        if let Some(histogram) = self.durations.get(surface) {
            histogram.observe(took.as_secs_f64());
        }
        if let Some(histogram) = self.latency.get(surface) {
            histogram.observe(facts.latency(took).as_secs_f64());
        }
        if let Some(histogram) = self.overhead.get(surface) {
            histogram.observe(took.saturating_sub(waited + facts.upstream.client_awaited).as_secs_f64());
        }
        if let (Some(decision), Some(payer)) = (facts.decision(), &facts.caller.payer) {
            self.quota.charged(payer.plan, decision);
            self.usage.count(&payer.uid, decision, now);
        }
        // Also a request that was refused later counts as a use of the key.
        if let (Some(Authentication::Recognised), Some(key)) = (facts.caller.authentication, &facts.caller.key) {
            self.usage.keys.record(&key.id, now);
        }
        let name = self.gateway.load();
        let names = (name.as_deref().map_or("", String::as_str), &*self.node);
        let line = access_log::line(facts, entry, took, waited, names);
        if facts.upstream.began.is_some() || self.own_answers.may_be_written(facts.caller.payer.is_some(), ended_at) {
            self.lines.write(&line);
        }
        self.recent.ended(facts, entry.status, (ended_at, took), &line);
        if facts.sampled {
            spans::record(&self.tracer, facts, entry, took);
        }
    }

    /// Counts the end of the request to an upstream.
    fn count_upstream(&self, facts: &Facts) {
        let outcome = match facts.refused {
            Some(Rejection::UpstreamTimeout) => UpstreamOutcome::Timeout,
            Some(Rejection::UpstreamTls) => UpstreamOutcome::TlsError,
            Some(Rejection::UpstreamUnreachable) => UpstreamOutcome::ConnectError,
            Some(Rejection::UpstreamInvalid) => UpstreamOutcome::Invalid,
            _ => UpstreamOutcome::Answered,
        };
        if let Some(counter) = self.upstream.get(position(UpstreamOutcome::ALL, &outcome)) {
            counter.inc();
        }
        if let Some(waited) = facts.upstream.waited() {
            self.upstream_duration.observe(waited.as_secs_f64());
        }
    }

    /// Counts refused content of the change stream.
    pub fn replica_refused(&self, reason: &str) {
        self.replica_refused.with_label_values(&[reason]).inc();
    }

    /// Shows the error of each clock in milliseconds.
    pub fn show_clocks(&self, off: [(&str, i64); 3]) {
        for (clock, milliseconds) in off {
            self.clock_off.with_label_values(&[clock]).set(milliseconds / 1_000);
        }
    }

    /// The time, for messages to operators.
    pub fn now(&self) -> UnixSeconds {
        self.clock.now_seconds()
    }

    /// The renamed damaged files in the data directory, at the last check.
    pub(crate) fn damaged_files(&self) -> Vec<String> {
        let is_there = |name: &&&str| self.damaged.with_label_values(&[**name]).get() == 1;
        damage::FILES.iter().filter(is_there).map(|name| format!("{name}{}", damage::SUFFIX)).collect()
    }

    /// Shows in the metric which renamed files exist in this directory.
    pub(crate) fn show_damaged(&self, directory: &Path) {
        for name in damage::FILES {
            let is_there = damage::kept_as(&directory.join(name)).symlink_metadata().is_ok();
            self.damaged.with_label_values(&[name]).set(i64::from(is_there));
        }
    }

    /// Number of dropped log lines since the start of the process; 0 if none was dropped in the last ten minutes.
    pub fn lines_dropped(&self) -> i64 {
        let at = *self.log_dropped_at.lock();
        let is_recent = |at| self.clock.monotonic().saturating_sub(at) <= LOG_DROPPED_SHOWN;
        if at.is_some_and(is_recent) { self.log_dropped.get() } else { 0 }
    }

    /// Shows the number of dropped log lines.
    pub fn show_dropped(&self, lines: u64) {
        let lines = i64::try_from(lines).unwrap_or(i64::MAX);
        if lines > self.log_dropped.get() {
            *self.log_dropped_at.lock() = Some(self.clock.monotonic());
        }
        self.log_dropped.set(lines);
    }
}

fn position<T: PartialEq>(all: &[T], one: &T) -> usize {
    all.iter().position(|other| other == one).unwrap_or(0)
}

fn class_index(status: u16) -> usize {
    usize::from((status / 100).clamp(1, 5)) - 1
}

fn class_of(status: u16) -> &'static str {
    CLASSES.get(class_index(status)).copied().unwrap_or("5xx")
}

/// The word for blame; empty for none.
pub(crate) fn blame_word(rejection: Option<Rejection>) -> &'static str {
    rejection.map_or("", |rejection| Blame::as_str(rejection.blame()))
}

/// A histogram of seconds for each surface.
fn by_surface(registry: &Registry, name: &str, help: &str) -> anyhow::Result<Vec<Histogram>> {
    let all = metrics::latency_vec(registry, name, help, &["surface"])?;
    Ok(Surface::ALL.iter().map(|one| all.with_label_values(&[one.as_str()])).collect())
}

/// Refusals of the control plane's data, with all reasons from the start.
fn replica_refused(registry: &Registry) -> anyhow::Result<IntCounterVec> {
    let refused = metrics::counter_vec(
        registry,
        "edge_replica_refused_total",
        "Snapshots and changes refused for invalid content; the last good state stayed.",
        &["reason"],
    )?;
    for reason in Invalid::REASONS {
        refused.with_label_values(&[reason]);
    }
    Ok(refused)
}

/// The gauge of the clocks, which starts at zero.
fn clock_off(registry: &Registry) -> anyhow::Result<IntGaugeVec> {
    let help = "How far a clock is ahead of the median of the known clocks.";
    let gauge = metrics::gauge_vec(registry, "edge_clock_off_seconds", help, &["clock"])?;
    for clock in ["control_plane", "machine", "quota_store"] {
        gauge.with_label_values(&[clock]).set(0);
    }
    Ok(gauge)
}
