//! Traces: which process spent the time of one request, for a collector that accepts OTLP over HTTP.
//!
//! Off unless an endpoint is set. Then a fraction of the requests is sampled, by trace id, so that all processes choose
//! the same ones. The gateway begins every trace: its request id is the trace id, and trace ids from clients are
//! ignored. Services continue the gateway's `traceparent` (W3C Trace Context).
//!
//! No request waits for a collector. Finished spans go into a bounded queue; further ones are dropped and counted. One
//! task sends the queued spans. A batch that the collector does not accept in time is dropped and counted, not retried.

mod middleware;
mod otlp;

use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

use crate::config::Section;
use crate::metrics::{IntCounter, IntCounterVec};
use crate::shutdown::Shutdown;
use crate::supervise::Supervisor;

pub use middleware::{Traced, traced};
pub use otlp::{AttributeValue, Span, SpanKind};

/// Spans that may be queued.
pub const SPANS_WAITING_MAX: usize = 4_096;

/// Spans per batch.
const BATCH_MAX: usize = 512;

/// How long spans are collected for a batch.
const BATCH_WAIT: Duration = Duration::from_secs(1);

/// The longest time for sending a batch.
const SEND_MAX: Duration = Duration::from_secs(5);

/// The longest time for the last batch when the process ends.
const LAST_SEND_MAX: Duration = Duration::from_secs(2);

/// The results of spans: the label of the counter.
pub const RESULTS: [&str; 3] = ["exported", "failed", "dropped"];

/// The settings of `[tracing]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceConfig {
    /// The collector's base URL, such as `http://collector:4318`; `None`: no traces.
    pub endpoint: Option<String>,
    /// Sampled requests of a thousand.
    pub per_thousand: u64,
}

impl TraceConfig {
    /// Reads the section; `None` if a mistake was reported.
    pub fn read(section: &Section<'_>) -> Option<Self> {
        let endpoint: Option<Option<String>> = section.optional("otlp_endpoint");
        let per_thousand = section.integer("sample_per_thousand", 10, 0..=1_000);
        if let Some(Some(url)) = &endpoint
            && !(url.starts_with("http://") || url.starts_with("https://"))
        {
            section.complain("otlp_endpoint", "use the base URL of a collector, for example \"http://127.0.0.1:4318\"");
            return None;
        }
        let endpoint = endpoint?.map(|url| url.trim_end_matches('/').to_owned());
        Some(Self { endpoint, per_thousand: per_thousand? })
    }
}

/// Accepts finished spans. Clones share one queue; without a collector it does nothing.
#[derive(Clone, Default)]
pub struct Tracer(Option<On>);

#[derive(Clone)]
struct On {
    queue: mpsc::Sender<Span>,
    dropped: IntCounter,
    per_thousand: u64,
}

impl Tracer {
    /// No traces.
    pub fn off() -> Self {
        Self(None)
    }

    /// A tracer, and the exporter that sends its spans as `service`. `spans` counts them by [`RESULTS`].
    ///
    /// # Errors
    /// If the HTTP client cannot be created.
    pub fn new(
        config: &TraceConfig,
        service: &'static str,
        spans: &IntCounterVec,
    ) -> anyhow::Result<(Self, Option<Exporter>)> {
        for result in RESULTS {
            spans.with_label_values(&[result]).reset();
        }
        let Some(endpoint) = &config.endpoint else { return Ok((Self::off(), None)) };
        let (queue, waiting) = mpsc::channel(SPANS_WAITING_MAX);
        let on = On { queue, dropped: spans.with_label_values(&["dropped"]), per_thousand: config.per_thousand };
        let exporter = Exporter {
            client: Client::builder().connect_timeout(SEND_MAX).no_proxy().build()?,
            url: format!("{endpoint}/v1/traces"),
            service,
            waiting,
            exported: spans.with_label_values(&["exported"]),
            failed: spans.with_label_values(&["failed"]),
        };
        Ok((Self(Some(on)), Some(exporter)))
    }

    /// Whether a collector is configured.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the request with this trace id is sampled.
    pub fn samples(&self, trace: TraceId) -> bool {
        // The end of the id is as random as its beginning; every process computes the same result.
        self.0.as_ref().is_some_and(|on| (trace.0 & u128::from(u64::MAX)) % 1_000 < u128::from(on.per_thousand))
    }

    /// Accepts a finished span. Never waits.
    pub fn record(&self, span: Span) {
        if let Some(on) = &self.0
            && on.queue.try_send(span).is_err()
        {
            on.dropped.inc();
        }
    }
}

/// The id of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub u128);

impl TraceId {
    /// Parses 32 hexadecimal digits.
    pub fn parse(hex: &str) -> Option<Self> {
        (hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .then(|| u128::from_str_radix(hex, 16).ok().filter(|id| *id != 0).map(Self))
            .flatten()
    }
}

/// The parent span in a `traceparent` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace: TraceId,
    /// The calling span.
    pub span: u64,
    /// Whether the trace is sampled.
    pub sampled: bool,
}

impl Parent {
    /// Parses the header: `00-{32 hex}-{16 hex}-{2 hex}` only.
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if version != "00" || parts.next().is_some() || span.len() != 16 || flags.len() != 2 || !hex(span) {
            return None;
        }
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace: TraceId::parse(trace)?, span, sampled: flags & 1 == 1 })
    }
}

impl std::fmt::Display for Parent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace.0, self.span, u8::from(self.sampled))
    }
}

/// Sends spans until the process ends.
pub struct Exporter {
    client: Client,
    url: String,
    service: &'static str,
    waiting: mpsc::Receiver<Span>,
    exported: IntCounter,
    failed: IntCounter,
}

impl Exporter {
    /// Sends batches until `end`, then the remaining spans, in a supervised task.
    pub fn start(self, tasks: &Supervisor, end: &Shutdown) -> JoinHandle<()> {
        let exporter = Arc::new(Mutex::new(self));
        tasks.spawn("trace_export", end, exporter, |exporter, end| async move { exporter.lock().await.run(end).await })
    }

    async fn run(&mut self, end: Shutdown) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let mut complained = false;
        while !end.has_begun() {
            tokio::select! {
                () = end.begun() => break,
                taken = self.waiting.recv_many(&mut batch, BATCH_MAX) => if taken == 0 { return },
            }
            // After the first span: spans that follow within the time join its batch.
            let filling = async {
                while batch.len() < BATCH_MAX {
                    let free = BATCH_MAX - batch.len();
                    if self.waiting.recv_many(&mut batch, free).await == 0 {
                        return;
                    }
                }
            };
            tokio::select! {
                () = end.begun() => {}
                _ = tokio::time::timeout(BATCH_WAIT, filling) => {}
            }
            let sent = self.send(&mut batch, if end.has_begun() { LAST_SEND_MAX } else { SEND_MAX }).await;
            // Logged once per outage, not per batch.
            match sent {
                Ok(()) => complained = false,
                Err(error) if !complained => {
                    complained = true;
                    tracing::warn!(error = format!("{error:#}"), url = self.url, "cannot send traces; dropping them");
                }
                Err(_) => {}
            }
        }
        // The remaining spans, as long as the collector accepts them.
        loop {
            while batch.len() < BATCH_MAX
                && let Ok(span) = self.waiting.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() || self.send(&mut batch, LAST_SEND_MAX).await.is_err() {
                return;
            }
        }
    }

    async fn send(&self, batch: &mut Vec<Span>, patience: Duration) -> anyhow::Result<()> {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let body = otlp::encode(self.service, batch);
        batch.clear();
        let request =
            self.client.post(&self.url).header("content-type", "application/x-protobuf").timeout(patience).body(body);
        let outcome = async { request.send().await?.error_for_status() }.await;
        match outcome {
            Ok(_) => {
                self.exported.inc_by(count);
                Ok(())
            }
            Err(error) => {
                self.failed.inc_by(count);
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
mod tests;
