//! Metrics of the control plane.

use chassis::metrics::{
    HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry, counter_vec, gauge, gauge_vec, latency_vec,
};
use chassis::supervise::Supervisor;
use chassis::webhook::AttemptResult;

use crate::domain::Status;
use crate::store::sealed::SealedCounts;
use crate::store::withdrawals::Kind;
use verification::RecordKind;

/// Declares [`Metrics`]: each field with its kind, its name, its meaning, its labels if it has some, and the values of
/// its label that start at zero.
macro_rules! metrics {
    ($($field:ident: $kind:ident(registry, $name:literal, $help:literal $(, [$($label:literal),*] $(= $words:expr)?)?);)+) => {
        /// The service's metrics.
        #[derive(Clone)]
        pub(crate) struct Metrics {
            /// Starts background tasks and counts their restarts.
            pub(crate) tasks: Supervisor,
            $(#[doc = $help] pub(crate) $field: metrics!(@type $kind),)+
        }

        impl Metrics {
            /// Registers all metrics on `registry`, every label at zero.
            pub(crate) fn register(registry: &Registry) -> anyhow::Result<Self> {
                let metrics = Self {
                    tasks: Supervisor::register(registry, "domains_task_restarts_total")?,
                    $($field: $kind(registry, $name, $help $(, &[$($label),*])?)?,)+
                };
                $($($(for word in $words {
                    metrics.$field.with_label_values(&[word]);
                })?)?)+
                metrics.start_at_zero();
                Ok(metrics)
            }
        }
    };
    (@type gauge) => { IntGauge };
    (@type gauge_vec) => { IntGaugeVec };
    (@type counter_vec) => { IntCounterVec };
    (@type latency_vec) => { HistogramVec };
}

metrics! {
    states: gauge_vec(registry, "domains_state", "Domains in each state.", ["state"] = Status::WORDS);
    certificate_wait_oldest: gauge(registry, "domains_certificate_wait_oldest_timestamp_seconds",
        "Start of the longest wait for a certificate, of a domain with nothing to fix; 0: none waits.");
    transitions: counter_vec(registry, "domains_transitions_total",
        "State changes of domains.", ["from", "to"]);
    dns_checks: counter_vec(registry, "domains_dns_checks_total",
        "Checks of domains: answered, unanswered by the zone, or without an answer of any resolver.",
        ["result"] = ["answered", "unanswered", "resolver_down"]);
    dns_queries: counter_vec(registry, "domains_dns_queries_total",
        "DNS queries, by record type and result.", ["type", "result"]);
    handshake_checks: counter_vec(registry, "domains_handshake_checks_total",
        "Names of TLS handshakes without a certificate: made due for a check, not due, or failed.",
        ["result"] = ["due", "not_due", "failed"]);
    verify_seconds: latency_vec(registry, "domains_verify_seconds",
        "Duration of a DNS check, by reason.", ["reason"]);
    certificate_orders: counter_vec(registry, "domains_certificate_orders_total",
        "Certificate orders, by result.",
        ["result"] = ["issued", "renewed", "limited", "queued", "edge_unavailable", "failed"]);
    requests: counter_vec(registry, "domains_http_requests_total",
        "Requests by operation and class of status.", ["operation", "status_class"]);
    followers: gauge(registry, "domains_feed_followers", "Gateways that follow the change stream.");
    revision: gauge(registry, "domains_revision", "The newest revision of the change log.");
    of_another_history: gauge(registry, "domains_gateways_of_another_history",
        "Gateways refused in the last minute because they applied changes that the database does not have.");
    webhook_attempts: counter_vec(registry, "domains_webhook_attempts_total",
        "Attempts to deliver webhooks, by result.", ["result"] = AttemptResult::WORDS);
    webhook_seconds: latency_vec(registry, "domains_webhook_attempt_seconds",
        "Duration of an attempt to deliver a webhook.", []);
    webhook_deliveries: gauge_vec(registry, "domains_webhook_deliveries",
        "Waiting webhook deliveries, and of these the overdue ones: due a minute ago.",
        ["state"] = ["waiting", "overdue"]);
    withdrawals: gauge_vec(registry, "domains_withdrawals",
        "Withdrawals that some gateway has not confirmed, by kind.", ["what"] = Kind::WORDS);
    withdrawal_oldest: gauge(registry, "domains_withdrawal_oldest_timestamp_seconds",
        "Time of the oldest unconfirmed withdrawal; 0 without one.");
    withdrawals_awaited: gauge_vec(registry, "domains_withdrawal_awaited_timestamp_seconds",
        "Time of the oldest withdrawal that this gateway process has not confirmed.", ["process"]);
    sealed: gauge_vec(registry, "domains_sealed_texts",
        "Private keys and webhook secrets, by the sealing secret that encrypts them.",
        ["secret"] = SealedCounts::WORDS);
    credential_files_refused: gauge_vec(registry, "domains_credential_files_refused",
        "Credential files that were refused when the service started, by reason.",
        ["reason"] = REASONS);
    unreadable_row: gauge_vec(registry, "domains_unreadable_row",
        "1 for each unreadable database row that is skipped; 100 rows at most.", ["table", "row", "of", "column"]);
}

/// Every reason why a credential file is refused.
pub(crate) const REASONS: [&str; 7] =
    ["unreadable", "revoked", "doubled", "replaced", "other_kind", "other_secret", "too_many"];

/// Results of DNS queries, besides the failures.
pub(crate) const DNS_RESULTS: [&str; 4] = ["ok", "timeout", "unreachable", "malformed"];

impl Metrics {
    fn start_at_zero(&self) {
        for kind in RecordKind::ALL {
            for result in DNS_RESULTS {
                self.dns_queries.with_label_values(&[kind.as_str(), result]);
            }
        }
        self.webhook_seconds.with_label_values(&[] as &[&str]);
    }

    /// Counts a domain that changed its state.
    pub(crate) fn moved(&self, from: Status, to: Status) {
        if from != to {
            self.transitions.with_label_values(&[from.as_str(), to.as_str()]).inc();
        }
    }
}
