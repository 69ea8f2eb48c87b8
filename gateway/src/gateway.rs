//! The parts that serve every request of either HTTP version: the stages, telemetry and the clock; and the responses of
//! the gateway itself.

use std::borrow::Cow;
use std::sync::Arc;

use chassis::clock::Clock;
use chassis::trace::TraceId;
use http::StatusCode;

use crate::answer::Answer;
use crate::decorate::{PresentFields, ResponseSink, add_fields};
use crate::facts::{Facts, QuotaFigures, Surface};
use crate::grpc::{self, WebForm};
use crate::pipeline::Pipeline;
use crate::request_id::RequestId;
use crate::telemetry::Telemetry;
use listener::Connection;
use quota::allowance::QuotaOutcome;
use upstreams::Endpoint;

/// Shared by all requests of a gateway.
pub(crate) struct Gateway {
    /// The stages.
    pub pipeline: Pipeline,
    /// Metrics and log.
    pub telemetry: Arc<Telemetry>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Gateway {
    /// Begins a request: takes its id and the time.
    pub(crate) fn begin(&self) -> Box<Facts> {
        let mut facts = Facts::new(RequestId::random(), self.clock.now(), self.clock.monotonic());
        let tracer = &self.telemetry.tracer;
        // Clients do not choose whether a trace is sampled: the load is ours.
        facts.sampled =
            tracer.is_on() && TraceId::parse(facts.request_id.as_str()).is_some_and(|trace| tracer.samples(trace));
        Box::new(facts)
    }

    /// Writes the head of an answer to `out`, without the connection's fields; returns the status and the body. With
    /// `page`, a site for people gets a page.
    pub(crate) fn compose(
        &self,
        facts: &mut Facts,
        connection: &Connection,
        (answer, page): (Answer, bool),
        out: &mut impl ResponseSink,
    ) -> pingora::Result<(StatusCode, Cow<'static, str>)> {
        // A request that failed by our own fault before an upstream answered costs nothing.
        if matches!(&answer, Answer::Refuse(refusal) if refusal.rejection.is_free())
            && facts.upstream.answered.is_none()
        {
            self.refund(facts);
        }
        self.show_limits(facts, connection);
        if let Answer::Refuse(refusal) = &answer {
            facts.refused = Some(refusal.rejection);
        }
        // A gRPC client reads gRPC statuses and no body.
        let form = facts.connection.grpc_web;
        if let (Answer::Refuse(refusal), true) = (&answer, facts.connection.is_grpc || form.is_some()) {
            let content_type = form.map_or(grpc::CONTENT_TYPE, WebForm::content_type);
            let (status, code) = refusal.write_grpc(content_type, out)?;
            facts.connection.grpc_status = Some(code);
            add_fields(facts, connection.is_tls(), PresentFields::default(), out)?;
            if form.is_some() {
                out.figure("Content-Length", 0)?;
            }
            return Ok((status, Cow::Borrowed("")));
        }
        let (status, body) = match &answer {
            Answer::Refuse(refusal) if page && matches!(facts.surface, Surface::Site | Surface::Listener) => {
                let own = facts.upstream.configured.as_ref().and_then(|upstream| upstream.settings.error_page.as_ref());
                refusal.write_page(own, &facts.request_id, out)?
            }
            _ => answer.write(out)?,
        };
        add_fields(facts, connection.is_tls(), PresentFields::default(), out)?;
        if status != StatusCode::NO_CONTENT {
            out.figure("Content-Length", body.len())?;
        }
        Ok((status, body))
    }

    /// Refunds the charge. The response still shows the figures before the refund: they never rise within a window.
    fn refund(&self, facts: &mut Facts) {
        if let (Some(allowances), Some(payer)) = (facts.quota.charged.take(), &facts.caller.payer) {
            self.pipeline.quota.refund(&payer.uid, &allowances);
        }
    }

    /// Every API response shows limits: the caller's, or those of its address if it is not authenticated.
    fn show_limits(&self, facts: &mut Facts, connection: &Connection) {
        if facts.surface == Surface::Api && facts.quota.figures.is_none() {
            let allowances =
                match self.pipeline.failed_authentications.check(facts.client(connection), self.clock.now()) {
                    Ok(allowances) | Err(allowances) => allowances,
                };
            facts.quota.figures = Some(QuotaFigures { allowances, outcome: QuotaOutcome::Admitted });
        }
    }

    /// Records that the endpoint took no connection.
    pub(crate) fn has_not_connected(&self, endpoint: &Endpoint) {
        endpoint.failed(self.clock.monotonic());
        self.pipeline.upstreams.look_up_now();
    }
}
