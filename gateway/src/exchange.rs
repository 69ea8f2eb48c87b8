//! One request and its response, from head to log line, over either version.
//!
//! A request comes in at `arrival` and the pipeline decides about it. What the gateway does not answer itself goes to an
//! upstream over a connection of a pool of our own, its body as it comes, and the response goes back as it comes. The
//! client's side is a `Downstream`, so that nothing here knows which version it speaks; `upstream` speaks HTTP/1.1
//! to upstreams, and `multiplexed` HTTP/2.
//! When an upstream is gone, slow or wrong, the client is told so as long as nothing of a response has left.
//!
//! What pingora does and what this does: [decision](../../docs/develop/decisions/exchange.md).

mod arrival;
mod downstream;
mod multiplexed;
mod upstream;

pub mod trial;

use std::borrow::Cow;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Buf as _;
use http::{StatusCode, header};
use pingora::{Error, ErrorSource, ErrorType};
use pingora_http::RequestHeader;
use tokio::time::Instant;

pub(crate) use self::arrival::Exchanges;
use self::downstream::Downstream;
use self::multiplexed::{Again, Called};
use self::upstream::connection::{Opened, Patience, UpstreamConnection};
use self::upstream::relay::relay;
use self::upstream::request;
use self::upstream::response::{self, Framing, ResponseHead};
use self::upstream::trailers;
use self::upstream::upload::{Body, Upload};
use crate::answer::{Answer, Refusal, accepts_html};
use crate::decorate::{HostCookies, ResponseSink as _, is_foreign, ours};
use crate::facts::Facts;
use crate::forward;
use crate::gateway::{Gateway, connection_facts, explain};
use crate::grpc;
use crate::request::BodyPromise;
use crate::telemetry::Entry;
use crate::upstreams::{DialError, Endpoint, Upstream, tls_reason};
use contract::rejection::Rejection;
use listener::Connection;

/// A connection to an upstream that was used so lately is not about to be closed: services keep theirs for two seconds at
/// the least. Others are not for requests that nobody may send twice.
const JUST_USED: Duration = Duration::from_secs(1);

/// What became of a request.
struct Outcome {
    /// Whether the response is complete.
    whole: bool,
    /// Whether it was refused for its form.
    malformed: bool,
}

/// An upstream that has begun to answer, and the head of the response as the client gets it.
#[expect(clippy::large_enum_variant, reason = "the usual one is moved once and not allocated")]
enum Asked<H> {
    Http1(UpstreamConnection, ResponseHead, H),
    Http2(Called<H>),
}

/// See the module.
struct Exchange<'a> {
    gateway: &'a Gateway,
    connection: &'a Connection,
    head: RequestHeader,
    facts: Box<Facts>,
    /// Of the response that was begun; 0: none was.
    status: u16,
    /// Of the response, as far as it was handed on.
    body_bytes: u64,
}

impl<'a> Exchange<'a> {
    fn new(gateway: &'a Gateway, connection: &'a Connection, head: RequestHeader) -> Self {
        Self { gateway, connection, head, facts: gateway.begin(), status: 0, body_bytes: 0 }
    }

    /// Decides, answers or forwards, counts and logs. `body_follows` where the client has not ended its request.
    async fn serve<D: Downstream>(mut self, client: &mut D, body_follows: bool) -> Outcome {
        self.facts.is_grpc =
            D::TAKES_TRAILERS && self.head.method == http::Method::POST && grpc::is_call(&self.head.headers);
        let decided = self.gateway.decide(&self.head, body_follows, self.connection, &mut self.facts).await;
        let served = match decided {
            Ok((target, promise)) => {
                self.facts.target = Some(target);
                self.facts.upgrade &= client.may_switch();
                let body = match promise {
                    BodyPromise::None => Body::None,
                    BodyPromise::Length(bytes) => Body::Length(bytes),
                    BodyPromise::Unknown => Body::Chunked,
                };
                self.forward(client, body).await
            }
            Err(answer) => self.answer(client, answer).await,
        };
        let (whole, error) = match served {
            Ok(()) => (true, None),
            Err(error) => (self.fail(client, &error).await, Some(error)),
        };
        self.facts.body_bytes = client.body_bytes();
        let entry = Entry {
            status: self.status,
            method: self.head.method.as_str(),
            path: self.head.uri.path(),
            bytes_sent: usize::try_from(self.body_bytes).unwrap_or(usize::MAX),
            connection: connection_facts(self.connection, &self.facts),
            error: error.as_deref().map(explain),
        };
        self.gateway.account(&self.facts, &entry);
        // Whatever has the form of a request has a host by now.
        let malformed = self.facts.host.is_none() && self.facts.refused.is_some_and(is_about_form);
        Outcome { whole, malformed }
    }

    /// What the gateway says itself.
    async fn answer<D: Downstream>(&mut self, client: &mut D, answer: Answer) -> pingora::Result<()> {
        let mut head = client.head();
        let page = accepts_html(&self.head.headers);
        let (status, body) = self.gateway.compose(&mut self.facts, self.connection, (answer, page), &mut head)?;
        let body = if self.is_head() { Cow::Borrowed("") } else { body };
        self.status = status.as_u16();
        self.body_bytes = body.len() as u64;
        // What lies behind a body where none belongs, or behind a request for another protocol, is no next request.
        if self.facts.upgrade || self.facts.refused == Some(Rejection::BodyNotAllowed) {
            client.ends();
        }
        client.answer(head, body).await
    }

    /// What became of a request that could not be served: an answer, while there is room for one. Whether there was.
    async fn fail(&mut self, client: &mut impl Downstream, error: &Error) -> bool {
        let Some(rejection) = client.refusal().or_else(|| forward::rejection(error)) else { return false };
        self.facts.refused = Some(rejection);
        if self.status != 0 {
            return self.facts.is_grpc && self.end_call(client, rejection).await;
        }
        let answered = self.answer(client, Refusal::new(rejection).into()).await;
        answered.inspect_err(|error| tracing::debug!(%error, "a refusal could not be written")).is_ok()
    }

    /// Ends a call of gRPC whose response has begun with what became of it. Whether there was room for that.
    async fn end_call(&mut self, client: &mut impl Downstream, rejection: Rejection) -> bool {
        let (trailers, code) = grpc::trailers(rejection);
        self.facts.grpc_status = Some(code);
        client.end(Some(trailers)).await.is_ok()
    }

    async fn forward<D: Downstream>(&mut self, client: &mut D, body: Body) -> pingora::Result<()> {
        if body != Body::None && self.head.headers.contains_key(header::EXPECT) {
            let mut head = client.head();
            head.status(StatusCode::CONTINUE, "Continue")?;
            client.interim(head).await?;
        }
        let now = self.gateway.clock.now_seconds();
        forward::rewrite(&mut self.head, &self.facts, self.connection, &self.gateway.pipeline.vouchers, now)?;
        let (mut upstream, head, mut out) = match self.ask(body, client).await? {
            Asked::Http1(upstream, head, out) => (upstream, head, out),
            Asked::Http2(called) => return Box::pin(self.hand_back(called, client)).await,
        };
        ours(&self.facts, self.connection.is_tls(), head.spoken, &mut out)?;
        self.status = head.status.as_u16();
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            client.switch(out).await?;
            upstream.switch();
            relay(&mut upstream, &mut Framing::End, client, || Ok(()), &mut self.body_bytes).await?;
            return client.end(None).await;
        }
        let mut framing = head.framing;
        client.begin(out, framing.is_done(), framing.is_chunked()).await?;
        let (facts, clock) = (&*self.facts, &*self.gateway.clock);
        let in_time = || forward::in_time(facts, clock.monotonic());
        let trailers = relay(&mut upstream, &mut framing, client, in_time, &mut self.body_bytes).await?;
        if trailers.is_empty() {
            client.end(None).await?;
        } else {
            self.end(client, Some(trailers::read(&trailers))).await?;
        }
        if let Some(endpoint) = self.facts.endpoint.as_ref().filter(|_| head.reusable) {
            upstream.rest(endpoint, head.good_for);
        }
        Ok(())
    }

    /// Sends the request and reads the head of the response, twice if the first time cannot have done anything.
    async fn ask<D: Downstream>(&mut self, body: Body, client: &mut D) -> pingora::Result<Asked<D::Head>> {
        let body_bytes_max = self.facts.target.as_ref().map_or(0, |target| target.body_bytes_max);
        let tenant = self.facts.target.as_ref().map(|target| target.upstream.tenant(&target.place)).unwrap_or_default();
        let mut again = Again::default();
        if poll_fn(|cx| Poll::Ready(client.poll_gone(cx).is_ready())).await {
            return Err(Error::explain(ErrorType::ConnectionClosed, "the client has left").into_down());
        }
        loop {
            let now = self.gateway.clock.monotonic();
            let (upstream, endpoint) = forward::choose(&mut self.facts, now)
                .ok_or_else(|| Error::explain(ErrorType::ConnectNoRoute, "the upstream has no address"))?;
            let patience = self.patience(&upstream, now);
            let bytes = || request::bytes(&self.head, body, self.facts.upgrade);
            let upload = || Upload::new(bytes(), body, body_bytes_max).keeping_rules_of(&upstream);
            let rested_max = if self.head.method.is_safe() { Duration::MAX } else { JUST_USED };
            let rested_max = (!again.died).then_some(rested_max);
            // What asks for another protocol goes over a connection of its own.
            let http2 = !self.facts.upgrade || upstream.settings.transport.tls().is_none();
            let opened = if http2 && upstream.settings.transport.multiplexes(&endpoint) {
                None
            } else {
                let way = (&*upstream, &*endpoint);
                match UpstreamConnection::open(way, http2, tenant, rested_max, upload, patience).await {
                    Ok(Opened::Http1(opened)) => Some(opened),
                    Ok(Opened::Http2(stream)) => {
                        let settings = &upstream.settings;
                        endpoint.sessions.adopt(tenant, settings.transport.shown(), settings.connect_timeout, stream);
                        None
                    }
                    Err(error) => {
                        self.unconnected(&endpoint, &error)?;
                        continue;
                    }
                }
            };
            let Some(mut opened) = opened else {
                match Box::pin(self.call((&upstream, &endpoint), tenant, body, patience, &mut again, client)).await? {
                    Some(called) => return Ok(Asked::Http2(called)),
                    None => continue,
                }
            };
            if again.has_taken() {
                return Err(Error::explain(ErrorType::ConnectionClosed, "a body comes only once").into_up());
            }
            self.facts.upstream_connection = Some(opened.kind());
            match self.exchange(&mut opened, client).await {
                Ok((head, out)) => {
                    endpoint.worked();
                    self.facts.upstream_answered = Some(self.gateway.clock.monotonic());
                    return Ok(Asked::Http1(opened, head, out));
                }
                // An idle connection may have died before the request was read. A body comes only once.
                Err(error) => {
                    self.facts.upstream_reason = error.cause.as_deref().and_then(tls_reason_of);
                    let silent = opened.buffer.is_empty() && self.facts.interim_responses == 0;
                    let unread = opened.reused && silent && !opened.upload.begun;
                    again.died =
                        unread && has_died(&error) && forward::may_repeat(&self.facts, &self.head.method, false);
                    if !again.died {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// How long this upstream is waited for.
    fn patience(&self, upstream: &Upstream, now: Duration) -> Patience {
        let age = now.saturating_sub(self.facts.began);
        let asked_for = if self.facts.is_grpc { grpc::timeout(&self.head.headers) } else { None };
        let granted = upstream.settings.total_timeout.into_iter().chain(asked_for).min();
        let ends = granted.map(|granted| Instant::now() + granted.saturating_sub(age));
        Patience::new(upstream.settings.first_byte_timeout, ends)
    }

    /// An address took no connection: another one may.
    fn unconnected(&mut self, endpoint: &Endpoint, error: &DialError) -> pingora::Result<()> {
        endpoint.note(error);
        self.facts.upstream_reason.clone_from(&error.reason);
        if self.gateway.has_not_connected(&self.facts) {
            return Ok(());
        }
        Err(Error::explain(error.kind.error_type(), "connecting to an upstream").into_up())
    }

    /// One attempt, to the head of the final response.
    async fn exchange<D: Downstream>(
        &mut self,
        upstream: &mut UpstreamConnection,
        client: &mut D,
    ) -> pingora::Result<(ResponseHead, D::Head)> {
        loop {
            let came = upstream.receive_first(client).await?;
            if came == 0 {
                return Err(Error::explain(ErrorType::ConnectionClosed, "no response").into_up());
            }
            forward::in_time(&self.facts, self.gateway.clock.monotonic())?;
            // Without the end of a line there is nothing new to be read: a head that drips is not read again for each byte.
            let fresh = upstream.buffer.get(upstream.buffer.len().saturating_sub(came)..).unwrap_or_default();
            if memchr::memchr(b'\n', fresh).is_none() && upstream.buffer.len() <= forward::RESPONSE_HEAD_BYTES_MAX {
                continue;
            }
            let to_head = self.is_head();
            let mut out = client.head();
            loop {
                let is_foreign = |name: &str| is_foreign(name, &self.facts);
                let read = response::read(&upstream.buffer, to_head, is_foreign, &mut self.host_cookies(&mut out))?;
                let Some(head) = read else { break };
                forward::inspect(head.status, head.fields_bytes, &mut self.facts)?;
                forward::accepted(head.spoken.refuses_identity(head.status))?;
                upstream.buffer.advance(head.bytes);
                if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                    return Ok((head, out));
                }
                let fresh = client.head();
                client.interim(std::mem::replace(&mut out, fresh)).await?;
            }
            if upstream.buffer.len() > forward::RESPONSE_HEAD_BYTES_MAX {
                let why = "the head of the response is too large";
                return Err(Error::explain(ErrorType::InvalidHTTPHeader, why).into_up());
            }
        }
    }

    /// A head whose cookies stay with the host, where the platform's certificate serves it: a domain of a customer has one of
    /// its own.
    fn host_cookies<'h, H>(&self, out: &'h mut H) -> HostCookies<'h, H, impl Fn() -> bool> {
        let (host, replica) = (self.facts.host.as_ref(), &self.gateway.pipeline.replica);
        HostCookies { out, is_shared: move || host.is_none_or(|host| replica.certificate(host).is_none()) }
    }

    fn is_head(&self) -> bool {
        self.head.method == http::Method::HEAD
    }
}

/// Whether what was refused is no request, which no client sends by mistake more than once or twice.
fn is_about_form(rejection: Rejection) -> bool {
    matches!(rejection, Rejection::BadHost | Rejection::BadFraming | Rejection::BadTarget | Rejection::BadRequest)
}

/// Why TLS broke off, in words for an operator.
fn tls_reason_of(cause: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<Cow<'static, str>> {
    cause.downcast_ref().and_then(tls_reason).map(Cow::Owned)
}

/// Whether the connection ended by itself, as an idle one may at any moment.
fn has_died(error: &Error) -> bool {
    *error.esource() == ErrorSource::Upstream
        && matches!(error.etype(), ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError)
}
