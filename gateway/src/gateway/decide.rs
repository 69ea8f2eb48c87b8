//! Turns a request head into a decision.

use std::net::IpAddr;

use chassis::trace::TraceId;
use http::{HeaderValue, Method};
use pingora_http::RequestHeader;

use super::Gateway;
use crate::answer::Answer;
use crate::facts::{Facts, RequestId, Target};
use crate::request::{BodyPromise, EdgeRequest};
use crate::telemetry::LoggedConnection;
use listener::Connection;
use listener::HEALTH_PATH;
use listener::forwarded::Forwarders;

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
        facts.connection.forwarded_for = connection.forwarders().and_then(|forwarders| named(forwarders, head));
        let request =
            EdgeRequest { client: facts.client(connection), ..EdgeRequest::parse(head, body_follows, connection)? };
        connection.note_host(&request.host);
        facts.connection.client_request_id = client_request_id(&request);
        let target = self.pipeline.decide(&request, facts).await?;
        Ok((target, request.body))
    }
}

/// The client's address from a balancer's field.
fn named(forwarders: &Forwarders, head: &RequestHeader) -> Option<(IpAddr, HeaderValue)> {
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
