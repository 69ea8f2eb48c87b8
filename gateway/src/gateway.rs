//! The parts that serve every request of either HTTP version: the stages, telemetry and the clock; and the start, the
//! decision, the own answers and the end of a request.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use chassis::clock::Clock;
use chassis::health::Health;
use chassis::trace::TraceId;
use http::{HeaderValue, Method, StatusCode};
use pingora::Error;
use pingora_http::RequestHeader;

use crate::answer::Answer;
use crate::decorate::{PresentFields, ResponseSink, add_fields};
use crate::facts::{Facts, QuotaFigures, Surface, Target};
use crate::pipeline::Pipeline;
use crate::request::{BodyPromise, EdgeRequest};
use crate::request_id::RequestId;
use crate::telemetry::{Entry, LoggedConnection, Telemetry, UpstreamOutcome};
use crate::upstreams::Endpoint;
use contract::rejection::Rejection;
use listener::forwarded::Forwarders;
use listener::{Connection, HEALTH_PATH};
use quota::standing::QuotaOutcome;

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

    /// The target of the request and the body it announces, or the gateway's own answer.
    pub(crate) async fn decide(
        &self,
        head: &RequestHeader,
        body_follows: bool,
        connection: &Connection,
        facts: &mut Facts,
    ) -> Result<(Target, BodyPromise), Answer> {
        if is_health_check(head) {
            return Err(Answer::Health { ready: self.health.is_ready() });
        }
        facts.connection.forwarded_for =
            connection.forwarders().and_then(|forwarders| forwarded_client(forwarders, head));
        let request =
            EdgeRequest { client: facts.client(connection), ..EdgeRequest::parse(head, body_follows, connection)? };
        connection.note_host(&request.host);
        facts.connection.client_request_id = client_request_id(&request);
        let target = self.pipeline.decide(&request, facts).await?;
        Ok((target, request.body))
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
        if let (Answer::Refuse(refusal), true) = (&answer, facts.connection.is_grpc) {
            let (status, code) = refusal.write_grpc(out)?;
            facts.connection.grpc_status = Some(code);
            add_fields(facts, connection.is_tls(), PresentFields::default(), out)?;
            return Ok((status, Cow::Borrowed("")));
        }
        let (status, body) = match &answer {
            Answer::Refuse(refusal) if page && matches!(facts.surface, Surface::Site | Surface::Listener) => {
                let own = facts.upstream.backend.as_ref().and_then(|upstream| upstream.settings.error_page.as_ref());
                refusal.show(own, &facts.request_id, out)?
            }
            _ => answer.say(out)?,
        };
        add_fields(facts, connection.is_tls(), PresentFields::default(), out)?;
        if status != StatusCode::NO_CONTENT {
            out.figure("Content-Length", body.len())?;
        }
        Ok((status, body))
    }

    /// Refunds the charge. The response still shows the figures before the refund: they never rise within a window.
    fn refund(&self, facts: &mut Facts) {
        if let (Some(standing), Some(payer)) = (facts.quota.charged.take(), &facts.caller.payer) {
            self.pipeline.quota.refund(&payer.uid, &standing);
        }
    }

    /// Every API response shows limits: the caller's, or those of its address if it is not authenticated.
    fn show_limits(&self, facts: &mut Facts, connection: &Connection) {
        if facts.surface == Surface::Api && facts.quota.figures.is_none() {
            let standing = match self.pipeline.failed_authentications.check(facts.client(connection), self.clock.now())
            {
                Ok(standing) | Err(standing) => standing,
            };
            facts.quota.figures = Some(QuotaFigures { standing, outcome: QuotaOutcome::Admitted });
        }
    }

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

/// A failure for the log: its kind only, because its other text may quote the peer.
pub(crate) fn explain(error: &Error) -> String {
    format!("{} {}", error.esource().as_str(), error.root_etype().as_str())
}

/// The client's address from a balancer's field.
fn forwarded_client(forwarders: &Forwarders, head: &RequestHeader) -> Option<(IpAddr, HeaderValue)> {
    let address = forwarders.client(&head.headers)?;
    Some((address, HeaderValue::try_from(address.to_string()).ok()?))
}

/// A balancer's health check: for any host or none, over HTTP/1.0 too.
fn is_health_check(head: &RequestHeader) -> bool {
    head.uri.path() == HEALTH_PATH && matches!(head.method, Method::GET | Method::HEAD)
}

/// The connection's facts for a log line.
pub(crate) fn connection_facts<'a>(connection: &'a Connection, facts: &'a Facts) -> LoggedConnection<'a> {
    LoggedConnection {
        protocol: if connection.is_h2() { "h2" } else { "h1" },
        tls: connection.tls().map_or("", |tls| tls.version),
        client: facts.client_text(connection).to_str().ok(),
    }
}

/// The client's own request id for the log, if valid: 16 to 64 characters of `A-Z a-z 0-9 _ -`.
fn client_request_id(request: &EdgeRequest<'_>) -> Option<String> {
    let id = request.single(http::header::HeaderName::from_static("x-request-id"))?;
    let fits = (16..=64).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    fits.then(|| id.to_owned())
}
