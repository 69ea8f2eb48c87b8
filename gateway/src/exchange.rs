//! One request and its response, from head to log line, over either version.
//!
//! The listener passes a request, and the pipeline decides about it. The gateway answers, or forwards the request to an
//! upstream over a pooled connection; both bodies are forwarded as they arrive. The client's side is a
//! `Downstream` and the upstream's an `UpstreamCall`, so this code does not depend on the version that either speaks.
//! If an upstream is unreachable, slow or sends invalid responses, the client gets a refusal, unless its response has
//! begun.
//!
//! How this divides the work with pingora: [decision](../../docs/develop/decisions/exchange.md).

mod answer;
mod downstream;
mod retry;
mod upstream;
mod websocket;

pub mod fuzzing;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use chassis::clock::Clock;
use chassis::trace::TraceId;
use http::{HeaderMap, StatusCode, header};
use pingora::{Error, ErrorType};
use pingora_http::RequestHeader;
use tokio::time::Instant;

use self::downstream::Downstream;
use self::downstream::http1::Http1Client;
use self::downstream::http2::Http2Client;
use self::retry::{FailedAttempt, Retries, Retry};
use self::upstream::{Request, RequestBody, ResponseHead, UpstreamCall, WaitLimits, of_response, wants_trailers};
use self::websocket::Handshake;
use crate::decorate::{HostCookies, ResponseSink as _, add_fields, is_removed};
use crate::facts::Facts;
use crate::forward;
use crate::grpc::{self, WebForm};
use crate::pipeline::Pipeline;
use crate::request_id::RequestId;
use crate::telemetry::{Entry, LoggedConnection, Telemetry};
use contract::rejection::Rejection;
use listener::{Client, Connection, H2Request, Handler, ServeOutcome};
use upstreams::AnnouncedBody;
use upstreams::{Endpoint, PoolKey, Requirements, Upstream};

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
    fn begin(&self) -> Box<Facts> {
        let mut facts = Facts::new(RequestId::random(), self.clock.now(), self.clock.monotonic());
        let tracer = &self.telemetry.tracer;
        // Clients do not choose whether a trace is sampled: the load is ours.
        facts.sampled =
            tracer.is_on() && TraceId::parse(facts.request_id.as_str()).is_some_and(|trace| tracer.samples(trace));
        Box::new(facts)
    }
}

/// Serves the requests of the listeners.
#[async_trait]
impl Handler for Gateway {
    async fn serve_http1(&self, client: &mut dyn Client) -> ServeOutcome {
        let (mut client, head, body_follows) = match Http1Client::accept(client) {
            Ok(accepted) => accepted,
            Err(outcome) => return outcome,
        };
        let connection = Arc::clone(client.connection());
        let _in_flight = InFlight::begin(self, &connection);
        let outcome = Exchange::new(self, &connection, head).serve(&mut client, body_follows).await;
        match (outcome.whole, client.closes) {
            (true, false) => ServeOutcome::Whole,
            (true, true) => ServeOutcome::Last,
            (false, _) => ServeOutcome::Cut,
        }
    }

    async fn serve_http2(&self, request: H2Request, connection: &Arc<Connection>) -> bool {
        let H2Request { mut head, body, respond } = request;
        let in_flight = InFlight::begin(self, connection);
        let is_open = !body.is_end_stream();
        let handshake = Handshake::take(&mut head, is_open);
        let (body_follows, head) = (is_open && handshake.is_none(), RequestHeader::from(head));
        let mut client = Http2Client::new(body, respond, connection).with_known_client(&head);
        if let Some(handshake) = handshake {
            client.set_handshake(handshake);
        }
        let outcome = Exchange::new(self, connection, head).serve(&mut client, body_follows).await;
        drop(in_flight);
        client.discard_rest_of_request().await;
        !outcome.malformed
    }
}

/// A request in progress, counted by the connection, for the drain, and by the metrics.
struct InFlight<'a> {
    gateway: &'a Gateway,
    connection: &'a Connection,
}

impl<'a> InFlight<'a> {
    fn begin(gateway: &'a Gateway, connection: &'a Connection) -> Self {
        connection.request_seen();
        gateway.telemetry.in_flight.inc();
        Self { gateway, connection }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.gateway.telemetry.in_flight.dec();
        self.connection.request_done();
    }
}

/// The result of a request.
struct Outcome {
    /// Whether the response is complete.
    whole: bool,
    /// Whether the request was refused as malformed.
    malformed: bool,
}

/// A call whose response has begun, the head of the response, and the head that the client gets.
type ResponseStart<H> = (UpstreamCall, ResponseHead, H);

/// One request: its head, the facts about it, and the progress of its response.
struct Exchange<'a> {
    gateway: &'a Gateway,
    connection: &'a Connection,
    head: RequestHeader,
    facts: Box<Facts>,
    /// The status of the response; 0: none has begun.
    status: u16,
    /// Bytes of the response body that were written to the client.
    body_bytes: u64,
}

impl<'a> Exchange<'a> {
    fn new(gateway: &'a Gateway, connection: &'a Connection, head: RequestHeader) -> Self {
        Self { gateway, connection, head, facts: gateway.begin(), status: 0, body_bytes: 0 }
    }

    /// Decides, answers or forwards, counts and logs. `body_follows` if the client has not ended its request.
    async fn serve<D: Downstream>(mut self, client: &mut D, body_follows: bool) -> Outcome {
        if self.head.method == http::Method::POST {
            self.facts.connection.is_grpc = D::TAKES_TRAILERS && grpc::is_call(&self.head.headers);
            self.facts.connection.grpc_web = WebForm::of(&self.head.headers);
        }
        let decided = self.gateway.pipeline.decide(&self.head, body_follows, self.connection, &mut self.facts).await;
        let (whole, error) = match decided {
            Ok((target, announced)) => {
                let form = self.facts.connection.grpc_web.filter(|_| target.upstream.settings.grpc_web);
                self.facts.upstream.target = Some(target);
                self.facts.connection.upgrade &= client.may_switch();
                if let Some(form) = form {
                    Box::pin(self.forward_grpc_web(form, client, announced)).await
                } else {
                    let served = self.forward(client, announced).await;
                    self.finish(client, served).await
                }
            }
            Err(answer) => {
                let answer = if client.is_tunnel() { answer.without_success() } else { answer };
                let served = self.answer(client, answer).await;
                self.finish(client, served).await
            }
        };
        self.facts.connection.body_bytes = client.body_bytes();
        let entry = Entry {
            status: self.status,
            method: self.head.method.as_str(),
            path: self.head.uri.path(),
            bytes_sent: usize::try_from(self.body_bytes).unwrap_or(usize::MAX),
            connection: LoggedConnection::of(self.connection, &self.facts),
            // Its kind only: the rest of its text may quote the peer.
            error: error.map(|error| format!("{} {}", error.esource().as_str(), error.root_etype().as_str())),
        };
        self.gateway.telemetry.finish(&self.facts, &entry);
        // A well-formed request has a host by now.
        let malformed = self.facts.host.is_none() && self.facts.refused.is_some_and(is_about_form);
        Outcome { whole, malformed }
    }

    async fn forward<D: Downstream>(&mut self, client: &mut D, announced: AnnouncedBody) -> pingora::Result<()> {
        if announced != AnnouncedBody::None && self.head.headers.contains_key(header::EXPECT) {
            let mut head = client.head();
            head.status(StatusCode::CONTINUE, "Continue")?;
            client.interim(head).await?;
        }
        forward::rewrite(&mut self.head, &self.facts, self.connection, &self.gateway.pipeline.identity_tokens)?;
        let body_bytes_max = self.facts.upstream.target.as_ref().map_or(0, |target| target.body_bytes_max);
        let mut request_body = RequestBody::new(announced, body_bytes_max, self.facts.upstream.forwarded_to());
        let answered = self.send_with_retries(&mut request_body, client).await;
        self.facts.upstream.client_awaited = request_body.client_awaited();
        let (mut call, head, mut out) = answered?;
        add_fields(&self.facts, self.connection.is_tls(), head.present, &mut out)?;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Box::pin(self.forward_websocket(call, request_body, client, out)).await;
        }
        if let Some(target) = &mut self.facts.upstream.target {
            target.websocket_permit = None; // the upstream has answered as to any other request
        }
        self.status = head.status.as_u16();
        self.facts.connection.grpc_status = head.grpc_status;
        client.begin(out, head.ends, head.chunked).await?;
        if self.facts.connection.is_grpc {
            call.may_be_silent();
        }
        let trailers = if head.ends {
            None
        } else {
            let (facts, clock) = (&*self.facts, &*self.gateway.clock);
            let in_time = || forward::in_time(facts, clock);
            match call.relay(&mut request_body, client, in_time, &mut self.body_bytes).await {
                Ok(trailers) => trailers,
                Err(error) => {
                    self.facts.upstream.reason = call.reason(&error);
                    return Err(error);
                }
            }
        };
        self.facts.connection.grpc_status =
            trailers.as_ref().and_then(grpc::status).or(self.facts.connection.grpc_status);
        // The response is complete: the connection can serve other requests while the client reads.
        if let Some(endpoint) = &self.facts.upstream.endpoint {
            call.keep(endpoint);
        }
        self.end(client, trailers).await
    }

    /// Ends the response, with the trailers that the client accepts.
    async fn end<D: Downstream>(&self, client: &mut D, trailers: Option<HeaderMap>) -> pingora::Result<()> {
        let trailers = trailers.filter(|_| D::TAKES_TRAILERS || wants_trailers(&self.head.headers));
        let trailers = trailers.map(|all| of_response(all, |name| is_removed(name, &self.facts)));
        client.end(trailers.filter(|all| !all.is_empty())).await
    }

    /// Sends the request and reads the head of the response; a failed attempt is retried as [`Retries`] allow.
    async fn send_with_retries<D: Downstream>(
        &mut self,
        request_body: &mut RequestBody,
        client: &mut D,
    ) -> pingora::Result<ResponseStart<D::Head>> {
        let (mut retries, mut received_after) = (Retries::default(), None);
        loop {
            if poll_fn(|cx| Poll::Ready(client.poll_gone(cx).is_ready())).await {
                return Err(Error::explain(ErrorType::ConnectionClosed, "the client disconnected").into_down());
            }
            let now = self.gateway.clock.monotonic();
            let (upstream, endpoint) = forward::choose(&mut self.facts, self.head.method.is_safe(), now)
                .ok_or_else(|| Error::explain(ErrorType::ConnectNoRoute, "the upstream has no address"))?;
            let failed = match self.attempt((&upstream, &endpoint), (received_after, now), request_body, client).await {
                Ok(answered) => return Ok(answered),
                Err(failed) => failed,
            };
            self.facts.upstream.reason.clone_from(&failed.reason);
            let endpoint = self.facts.upstream.endpoint.as_ref().unwrap_or(&endpoint);
            let others = failed.record(self.gateway, (&upstream, endpoint), now);
            match retries.after(failed.failure, &self.head.method, others, &upstream.retries) {
                Retry::AnotherAddress | Retry::AnotherStream => {}
                Retry::NewConnection => received_after = Some(Instant::now()),
                Retry::FreshConnection => received_after = failed.sent_at,
                Retry::Never => return Err(failed.error),
            }
            forward::in_time(&self.facts, &*self.gateway.clock)?;
        }
    }

    /// Sends the request to one address, and reads the head of the response.
    async fn attempt<D: Downstream>(
        &mut self,
        (upstream, endpoint): (&Arc<Upstream>, &Arc<Endpoint>),
        (received_after, now): (Option<Instant>, Duration),
        request_body: &mut RequestBody,
        client: &mut D,
    ) -> Result<ResponseStart<D::Head>, FailedAttempt> {
        let request = self.request(upstream, received_after);
        let opened = UpstreamCall::open((upstream, endpoint), &request, request_body, now).await;
        let (mut call, other) = opened?;
        let endpoint = other.as_ref().unwrap_or(endpoint);
        if let Some(other) = &other {
            self.facts.upstream.endpoint = Some(other.clone());
        }
        self.facts.upstream.connection = Some(call.kind);
        match self.receive(&mut call, request_body, client).await {
            Ok((head, out)) => {
                request_body.forget();
                let now = self.gateway.clock.monotonic();
                endpoint.responded(now);
                self.facts.upstream.answered = Some(now);
                Ok((call, head, out))
            }
            Err(error) => Err(call.failed(error, request_body, self.facts.upstream.interim_responses > 0)),
        }
    }

    /// The request for this upstream, with its requirements on the connection.
    fn request(&self, upstream: &Upstream, received_after: Option<Instant>) -> Request<'_> {
        let tenant =
            self.facts.upstream.target.as_ref().map(|target| upstream.tenant(&target.permit)).unwrap_or_default();
        let pool_key = PoolKey { tenant, tls_config: upstream.settings.transport.tls_config() };
        Request {
            head: &self.head,
            switches: self.facts.connection.upgrade,
            requirements: Requirements { pool_key, may_be_repeated: self.head.method.is_safe(), received_after },
            wait_limits: self.wait_limits(upstream),
        }
    }

    /// How long to wait for this upstream.
    fn wait_limits(&self, upstream: &Upstream) -> WaitLimits {
        let asked_for = if self.facts.connection.is_grpc { grpc::timeout(&self.head.headers) } else { None };
        let granted = upstream.settings.total_timeout.into_iter().chain(asked_for).min();
        let age = || self.gateway.clock.monotonic().saturating_sub(self.facts.began);
        let ends = granted.map(|granted| Instant::now() + granted.saturating_sub(age()));
        WaitLimits::new(upstream.settings.first_byte_timeout, ends)
    }

    /// Forwards interim responses, and reads the head of the final one.
    async fn receive<D: Downstream>(
        &mut self,
        call: &mut UpstreamCall,
        request_body: &mut RequestBody,
        client: &mut D,
    ) -> pingora::Result<(ResponseHead, D::Head)> {
        let (to_head, mut out) = (self.is_head(), client.head());
        loop {
            let is_removed = |name: &str| is_removed(name, &self.facts);
            let Some(head) = call.take_head(to_head, is_removed, &mut self.host_cookies(&mut out))? else {
                call.receive_head(request_body, client).await?;
                forward::in_time(&self.facts, &*self.gateway.clock)?;
                continue;
            };
            forward::inspect(head.status, head.fields_bytes, &mut self.facts)?;
            forward::check_identity_accepted(head.present.refuses_identity(head.status))?;
            if client.is_tunnel() && head.status.is_success() {
                let why = "status 2xx in answer to a WebSocket's handshake";
                return Err(Error::explain(ErrorType::InvalidHTTPHeader, why).into_up());
            }
            if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Ok((head, out));
            }
            let fresh = client.head();
            client.interim(std::mem::replace(&mut out, fresh)).await?;
        }
    }

    /// A head that limits cookies to the host, if the host uses the platform's certificate. A customer's domain has its
    /// own certificate, and its cookies pass unchanged.
    fn host_cookies<'h, H>(&self, out: &'h mut H) -> HostCookies<'h, H, impl Fn() -> bool> {
        let (host, replica) = (self.facts.host.as_ref(), &self.gateway.pipeline.replica);
        HostCookies { out, is_shared: move || host.is_none_or(|host| replica.certificate(host).is_none()) }
    }

    fn is_head(&self) -> bool {
        self.head.method == http::Method::HEAD
    }
}

/// Whether a refusal says that the request was malformed; well-behaved clients hardly ever send one.
fn is_about_form(rejection: Rejection) -> bool {
    matches!(rejection, Rejection::BadHost | Rejection::BadFraming | Rejection::BadTarget | Rejection::BadRequest)
}
