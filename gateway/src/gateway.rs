//! What every request meets, whichever version brought it: the stages, the telemetry and the clock; and how its story
//! begins, is answered by the gateway itself, and ends.

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

/// See the module.
pub(crate) struct Gateway {
    /// The stages.
    pub pipeline: Pipeline,
    /// Metrics and log.
    pub telemetry: Arc<Telemetry>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What health checks are told.
    pub health: Health,
}

/// A failure as the log says it: its kind alone, since other words may quote what the other side sent.
pub(crate) fn explain(error: &Error) -> String {
    format!("{} {}", error.esource().as_str(), error.root_etype().as_str())
}

impl Gateway {
    /// Ends the story of a request and of its attempt at an upstream.
    pub(crate) fn account(&self, facts: &Facts, entry: &Entry<'_>) {
        if facts.upstream_began.is_some() {
            let outcome = match facts.refused {
                Some(Rejection::UpstreamTimeout) => UpstreamOutcome::Timeout,
                Some(Rejection::UpstreamTls) => UpstreamOutcome::TlsError,
                Some(Rejection::UpstreamUnreachable) => UpstreamOutcome::ConnectError,
                Some(Rejection::UpstreamInvalid) => UpstreamOutcome::Invalid,
                _ => UpstreamOutcome::Answered,
            };
            let took = facts
                .upstream_began
                .zip(facts.upstream_answered)
                .map(|(began, answered)| answered.saturating_sub(began));
            self.telemetry.upstream_ended(outcome, took);
        }
        self.telemetry.finish(facts, entry);
    }

    /// This address took no connection.
    pub(crate) fn has_not_connected(&self, endpoint: &Endpoint) {
        endpoint.failed(self.clock.monotonic());
        self.pipeline.upstreams.look_again();
    }
}
