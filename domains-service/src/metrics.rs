//! Metrics of the control plane.

use chassis::metrics::{
    HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry, counter_vec, gauge, gauge_vec, latency_vec,
};
use chassis::supervise::Supervisor;
use chassis::webhook::AttemptResult;

use crate::domain::Status;
use crate::store::sealed::SealedCounts;
use crate::store::withdrawals::What;
use verification::RecordKind;

/// Declares [`Metrics`]: each field with its kind, its name, its meaning, and its labels if it has some.
macro_rules! metrics {
    ($($field:ident: $kind:ident(registry, $name:literal, $help:literal $(, [$($label:literal),*])?);)+) => {
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
    states: gauge_vec(registry, "domains_state", "Domains in each state.", ["state"]);
    certificate_wait_oldest: gauge(registry, "domains_certificate_wait_oldest_timestamp_seconds",
        "Since when the first of the domains waits that miss only their certificate, without a fault of their owner and not behind its own orders; 0: none waits.");
    transitions: counter_vec(registry, "domains_transitions_total",
        "Domains that went from one state to another.", ["from", "to"]);
    dns_checks: counter_vec(registry, "domains_dns_checks_total",
        "Checks of domains: answered, unanswered by their zone, or without any answer of our resolvers.", ["result"]);
    dns_queries: counter_vec(registry, "domains_dns_queries_total",
        "Questions to DNS, by record type and result.", ["type", "result"]);
    handshake_checks: counter_vec(registry, "domains_handshake_checks_total",
        "Names of handshakes without a certificate: due for a check because of it, not due, or failed.", ["result"]);
    verify_seconds: latency_vec(registry, "domains_verify_seconds",
        "Time a verification took, by what made it happen.", ["reason"]);
    certificate_orders: counter_vec(registry, "domains_certificate_orders_total",
        "Certificates asked for, by result.", ["result"]);
    requests: counter_vec(registry, "domains_http_requests_total",
        "Requests by operation and class of status.", ["operation", "status_class"]);
    followers: gauge(registry, "domains_feed_followers", "Gateways that follow the change stream.");
    revision: gauge(registry, "domains_revision", "The newest revision of the change log.");
    of_another_history: gauge(registry, "domains_gateways_of_another_history",
        "Gateways that were refused in the last minute because they have applied changes that the database does not have.");
    webhook_attempts: counter_vec(registry, "domains_webhook_attempts_total",
        "Attempts to deliver webhooks, by result.", ["result"]);
    webhook_seconds: latency_vec(registry, "domains_webhook_attempt_seconds",
        "Time an attempt to deliver a webhook took.", []);
    webhook_deliveries: gauge_vec(registry, "domains_webhook_deliveries",
        "Deliveries of webhooks that wait, and those that should have been tried a minute ago.", ["state"]);
    withdrawals: gauge_vec(registry, "domains_withdrawals",
        "Withdrawals that a gateway has not acknowledged, by what was withdrawn.", ["what"]);
    withdrawal_oldest: gauge(registry, "domains_withdrawal_oldest_timestamp_seconds",
        "When the oldest withdrawal that waits was made; 0: none waits.");
    withdrawals_awaited: gauge_vec(registry, "domains_withdrawal_awaited_timestamp_seconds",
        "When the oldest withdrawal was made that this process of a gateway has not acknowledged.", ["process"]);
    sealed: gauge_vec(registry, "domains_sealed_texts",
        "Private keys and secrets at rest, by the sealing secret that they need.", ["secret"]);
    credential_files_refused: gauge_vec(registry, "domains_credential_files_refused",
        "Credential files that were refused when the service started, by reason.", ["reason"]);
    unreadable_row: gauge_vec(registry, "domains_unreadable_row",
        "1 for each of the first 100 rows that could not be read when they were read last, by name.", ["table", "row", "of", "column"]);
}

/// Every reason why a credential file is refused.
pub(crate) const REASONS: [&str; 7] =
    ["unreadable", "revoked", "doubled", "replaced", "other_kind", "other_secret", "too_many"];

/// Results of DNS queries, besides the failures.
pub(crate) const DNS_RESULTS: [&str; 4] = ["ok", "timeout", "unreachable", "malformed"];

impl Metrics {
    fn start_at_zero(&self) {
        for reason in REASONS {
            self.credential_files_refused.with_label_values(&[reason]).set(0);
        }
        for word in SealedCounts::WORDS {
            self.sealed.with_label_values(&[word]).set(0);
        }
        for what in What::ALL {
            self.withdrawals.with_label_values(&[what.as_str()]).set(0);
        }
        for status in Status::ALL {
            self.states.with_label_values(&[status.as_str()]).set(0);
        }
        for kind in RecordKind::ALL {
            for result in DNS_RESULTS {
                self.dns_queries.with_label_values(&[kind.as_str(), result]).reset();
            }
        }
        for result in ["issued", "renewed", "limited", "queued", "edge_unavailable", "failed"] {
            self.certificate_orders.with_label_values(&[result]).reset();
        }
        for result in ["answered", "unanswered", "resolver_down"] {
            self.dns_checks.with_label_values(&[result]).reset();
        }
        for result in ["due", "not_due", "failed"] {
            self.handshake_checks.with_label_values(&[result]).reset();
        }
        self.webhook_seconds.with_label_values(&[] as &[&str]);
        for result in AttemptResult::ALL {
            self.webhook_attempts.with_label_values(&[result.as_str()]).reset();
        }
        for state in ["waiting", "overdue"] {
            self.webhook_deliveries.with_label_values(&[state]).set(0);
        }
    }

    /// Counts a domain that changed its state.
    pub(crate) fn moved(&self, from: Status, to: Status) {
        if from != to {
            self.transitions.with_label_values(&[from.as_str(), to.as_str()]).inc();
        }
    }
}
