//! The parts that serve every request of either HTTP version: the stages, telemetry and the clock; and the start, the
//! own answers and the end of a request.

mod compose;
mod decide;
mod ids;

use std::sync::Arc;

use chassis::clock::Clock;
use chassis::health::Health;
use pingora::Error;

pub(crate) use self::compose::bytes;
pub(crate) use self::decide::connection_facts;
use crate::facts::Facts;
use crate::pipeline::Pipeline;
use crate::telemetry::{Entry, Telemetry, UpstreamOutcome};
use crate::upstreams::Endpoint;
use contract::rejection::Rejection;

/// Shared by all requests of a gateway.
pub(crate) struct Gateway {
    /// The stages.
    pub pipeline: Pipeline,
    /// Metrics and log.
    pub telemetry: Arc<Telemetry>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The health that health checks report.
    pub health: Health,
}

/// A failure for the log: its kind only, because its other text may quote the peer.
pub(crate) fn explain(error: &Error) -> String {
    format!("{} {}", error.esource().as_str(), error.root_etype().as_str())
}

impl Gateway {
    /// Records the end of a request and of its attempt at an upstream.
    pub(crate) fn account(&self, facts: &Facts, entry: &Entry<'_>) {
        if facts.upstream.began.is_some() {
            let outcome = match facts.refused {
                Some(Rejection::UpstreamTimeout) => UpstreamOutcome::Timeout,
                Some(Rejection::UpstreamTls) => UpstreamOutcome::TlsError,
                Some(Rejection::UpstreamUnreachable) => UpstreamOutcome::ConnectError,
                Some(Rejection::UpstreamInvalid) => UpstreamOutcome::Invalid,
                _ => UpstreamOutcome::Answered,
            };
            self.telemetry.upstream_ended(outcome, facts.upstream.waited());
        }
        self.telemetry.finish(facts, entry);
    }

    /// Records that the endpoint took no connection.
    pub(crate) fn has_not_connected(&self, endpoint: &Endpoint) {
        endpoint.failed(self.clock.monotonic());
        self.pipeline.upstreams.look_up_now();
    }
}
