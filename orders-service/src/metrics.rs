//! Metrics of this service. Labels come from the lists of operations, faults and results, and start at zero.

use std::sync::Arc;

use axum::http::StatusCode;
use chassis::metrics::{self, HistogramVec, IntCounterVec, IntGauge, Registry};
use chassis::supervise::Supervisor;
use contract::time::UnixMillis;
use parking_lot::Mutex;

use crate::store::FaultKind;

/// The handles; clones count into the same registry.
#[derive(Clone)]
pub(crate) struct Metrics {
    /// Starts background tasks and counts their restarts.
    pub(crate) tasks: Supervisor,
    pub(crate) requests: IntCounterVec,
    pub(crate) durations: HistogramVec,
    pub(crate) cancels: IntCounterVec,
    pub(crate) deprecated_calls: IntCounterVec,
    pub(crate) store_errors: IntCounterVec,
    pub(crate) events: IntCounterVec,
    pub(crate) events_oldest: IntGauge,
    /// Time at which the control plane last confirmed the trusted keys, in seconds.
    pub(crate) trust_confirmed: IntGauge,
    /// The newest fault of the store, for the operators' status; a change that succeeds ends it, unless the data is
    /// damaged.
    pub(crate) last_trouble: Arc<Mutex<Option<(FaultKind, UnixMillis)>>>,
}

/// Requests that match no operation.
pub(crate) const OTHER: &str = "other";

contract::words! {
    /// The result of an attempt to cancel.
    pub(crate) enum CancelResult {
        Cancelled = "cancelled",
        NotFound = "not_found",
        AlreadyShipped = "already_shipped",
        AlreadyCancelled = "already_cancelled",
        Error = "error",
    }
}

contract::words! {
    /// Why an event was removed from the outbox.
    pub(crate) enum EventResult {
        /// The control plane has stored it.
        Relayed = "relayed",
        /// The outbox was full.
        Dropped = "dropped",
        /// Its checksum did not match.
        Damaged = "damaged",
    }
}

/// Classes of response statuses.
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
    /// Registers all metrics for the given operations: name, and whether the operation is deprecated.
    pub(crate) fn new(
        registry: &Registry,
        operations: impl IntoIterator<Item = (&'static str, bool)>,
    ) -> anyhow::Result<Self> {
        let metrics = Self {
            tasks: Supervisor::register(registry, "orders_task_restarts_total")?,
            requests: metrics::counter_vec(
                registry,
                "orders_http_requests_total",
                "Responses, by operation and status class.",
                &["operation", "status_class"],
            )?,
            durations: metrics::latency_vec(
                registry,
                "orders_http_request_duration_seconds",
                "Time from the request head to the response head.",
                &["operation"],
            )?,
            cancels: metrics::counter_vec(
                registry,
                "orders_cancel_total",
                "Attempts to cancel an order, by result.",
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
                "Requests that failed because of the store, by kind of fault.",
                &["kind"],
            )?,
            events: metrics::counter_vec(
                registry,
                "orders_events_total",
                "Events removed from the outbox, by result.",
                &["result"],
            )?,
            events_oldest: metrics::gauge(
                registry,
                "orders_events_oldest_timestamp_seconds",
                "Time of the oldest undelivered event; 0 if all are delivered.",
            )?,
            trust_confirmed: metrics::gauge(
                registry,
                "orders_trust_confirmed_timestamp_seconds",
                "Time at which the control plane last confirmed the trusted keys, also before a restart; 0 if never.",
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
