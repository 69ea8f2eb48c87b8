//! What this service counts. Labels come from the tables of operations, faults and results, and start at zero.

use std::sync::Arc;

use axum::http::StatusCode;
use chassis::metrics::{self, HistogramVec, IntCounterVec, IntGauge, Registry};
use contract::time::UnixMillis;
use parking_lot::Mutex;

use crate::store::FaultKind;

/// The handles; clones count into the same registry.
#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) requests: IntCounterVec,
    pub(crate) durations: HistogramVec,
    pub(crate) cancels: IntCounterVec,
    pub(crate) deprecated_calls: IntCounterVec,
    pub(crate) store_errors: IntCounterVec,
    pub(crate) events: IntCounterVec,
    pub(crate) events_oldest: IntGauge,
    /// When the control plane said last whose identities are good; seconds.
    pub(crate) trust_confirmed: IntGauge,
    /// The newest trouble of the store, for operators who ask.
    pub(crate) last_trouble: Arc<Mutex<Option<(FaultKind, UnixMillis)>>>,
}

/// Requests that match no operation.
pub(crate) const OTHER: &str = "other";

contract::words! {
    /// How an attempt to cancel ended.
    pub(crate) enum CancelResult {
        Cancelled = "cancelled",
        NotFound = "not_found",
        AlreadyShipped = "already_shipped",
        AlreadyCancelled = "already_cancelled",
        Error = "error",
    }
}

contract::words! {
    /// How an event left the outbox.
    pub(crate) enum EventResult {
        /// The control plane has it.
        HandedOver = "handed_over",
        /// Too many waited.
        Dropped = "dropped",
        /// It did not read back as it was written.
        Damaged = "damaged",
    }
}

/// The classes of statuses a service answers with.
const STATUS_CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// The class of a status, as a label.
pub(crate) fn status_class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        0..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
}

impl Metrics {
    /// Registers everything, for operations of these names; of some it is known that they are deprecated.
    pub(crate) fn new(
        registry: &Registry,
        operations: impl IntoIterator<Item = (&'static str, bool)>,
    ) -> anyhow::Result<Self> {
        let metrics = Self {
            requests: metrics::counter_vec(
                registry,
                "orders_http_requests_total",
                "Requests answered, by operation and class of status.",
                &["operation", "status_class"],
            )?,
            durations: metrics::latency_vec(
                registry,
                "orders_http_request_duration_seconds",
                "Time from a request's head to its response's head.",
                &["operation"],
            )?,
            cancels: metrics::counter_vec(
                registry,
                "orders_cancel_total",
                "Attempts to cancel an order, by how they ended.",
                &["result"],
            )?,
            deprecated_calls: metrics::counter_vec(
                registry,
                "orders_deprecated_calls_total",
                "Calls of deprecated operations.",
                &["operation"],
            )?,
            store_errors: metrics::counter_vec(
                registry,
                "orders_store_errors_total",
                "Requests that met trouble of the store, by its kind.",
                &["kind"],
            )?,
            events: metrics::counter_vec(
                registry,
                "orders_events_total",
                "Events that left the outbox, by how.",
                &["result"],
            )?,
            events_oldest: metrics::gauge(
                registry,
                "orders_events_oldest_timestamp_seconds",
                "When the oldest event that waits for the control plane happened; 0 when none waits.",
            )?,
            trust_confirmed: metrics::gauge(
                registry,
                "orders_trust_confirmed_timestamp_seconds",
                "When the control plane said last whose identities are good, in this life or before; 0 when it never did.",
            )?,
            last_trouble: Arc::default(),
        };
        for (operation, is_deprecated) in operations.into_iter().chain([(OTHER, false)]) {
            for class in STATUS_CLASSES {
                metrics.requests.with_label_values(&[operation, class]);
            }
            metrics.durations.with_label_values(&[operation]);
            if is_deprecated {
                metrics.deprecated_calls.with_label_values(&[operation]);
            }
        }
        for result in CancelResult::ALL {
            metrics.cancels.with_label_values(&[result.as_str()]);
        }
        for result in EventResult::ALL {
            metrics.events.with_label_values(&[result.as_str()]);
        }
        for kind in FaultKind::ALL {
            metrics.store_errors.with_label_values(&[kind.as_str()]);
        }
        Ok(metrics)
    }
}
