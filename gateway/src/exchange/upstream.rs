//! The upstream's side of a request, for either version of HTTP: sends the request and receives the response.

mod http1;
mod http2;
mod wait_limits;
mod request_body;
mod trailers;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use http::{HeaderMap, StatusCode};
use pingora::{Error, ErrorSource, ErrorType};
use pingora_http::RequestHeader;
use tokio::time::Instant;

use self::http1::Http1Call;
pub(super) use self::http1::response as http1_response;
use self::http2::Http2Call;
pub(super) use self::http2::wants_trailers;
pub(super) use self::request_body::RequestBody;
pub(super) use self::trailers::{of_response, write as write_trailers};
pub(super) use self::wait_limits::WaitLimits;
use self::wait_limits::{Waits, client_left};
use super::downstream::Downstream;
use super::retry::{FailedAttempt, Failure};
use crate::decorate::{PresentFields, ResponseSink};
use crate::facts::ConnectionKind;
use upstreams::{Endpoint, Requirements, Upstream, UpstreamConnection, connect};

/// Buffer size for one read of a body.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// A request, as each attempt needs it.
pub(super) struct Request<'a> {
    /// As [`crate::forward::rewrite`] has rewritten it.
    pub(super) head: &'a RequestHeader,
    /// The request asks for a WebSocket.
    pub(super) switches: bool,
    pub(super) requirements: Requirements,
    pub(super) wait_limits: WaitLimits,
}

/// The head of a response, without the fields that were written to the client.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    /// Bytes of its fields.
    pub(super) fields_bytes: usize,
    /// There is no body.
    pub(super) ends: bool,
    /// The length of the body is unknown.
    pub(super) chunked: bool,
    /// Fields that it has set, so that the gateway does not.
    pub(super) present: PresentFields,
    /// The gRPC status, if it is in the head.
    pub(super) grpc_status: Option<u16>,
}

/// A request on its way to an upstream. Dropped before the response is complete, it ends its stream or connection.
pub(super) struct UpstreamCall {
    version: Version,
    /// Bytes of the response that were read and not forwarded yet.
    buffer: BytesMut,
    wait_limits: WaitLimits,
    /// The kind of the connection.
    pub(super) kind: ConnectionKind,
}

/// The version of HTTP that the upstream speaks, with the state of the call.
#[expect(clippy::large_enum_variant, reason = "the usual one is moved once and not allocated")]
enum Version {
    Http1(Http1Call),
    Http2(Box<Http2Call>),
}

impl UpstreamCall {
    /// Opens a call at this address of the upstream; or at another one, which is returned too, if this one does not
    /// answer soon. `now` is the monotonic time.
    pub(super) async fn open(
        (upstream, endpoint): (&Arc<Upstream>, &Arc<Endpoint>),
        request: &Request<'_>,
        request_body: &mut RequestBody,
        now: Duration,
    ) -> Result<(Self, Option<Arc<Endpoint>>), FailedAttempt> {
        let connecting = connect((upstream, endpoint), &request.requirements, request.switches, now);
        let (connection, other) = connecting.await?;
        let call = match connection {
            UpstreamConnection::Http1 { stream, lifetime, reused } => {
                let kind = ConnectionKind { reused, http2: false, tls: stream.is_tls() };
                request_body.begin(reused && request.requirements.may_be_repeated, false);
                Self::new(Version::Http1(Http1Call::new((stream, lifetime), request, request_body)), request, kind)
            }
            UpstreamConnection::Http2(permit) => {
                let transport = &upstream.settings.transport;
                let kind = ConnectionKind { reused: permit.reused, http2: true, tls: transport.tls().is_some() };
                let head = http2::request_head(request.head, transport.url_scheme())?;
                request_body.begin(true, true);
                let call = Http2Call::begin(permit, head, request_body, request.switches)?;
                Self::new(Version::Http2(Box::new(call)), request, kind)
            }
        };
        Ok((call, other))
    }

    fn new(version: Version, request: &Request<'_>, kind: ConnectionKind) -> Self {
        Self { version, buffer: BytesMut::new(), wait_limits: request.wait_limits, kind }
    }

    /// Takes the next head of the response, interim or final, if it is complete, and writes the forwarded fields to
    /// `out`. `to_head` if it answers HEAD.
    ///
    /// # Errors
    /// If it is malformed.
    pub(super) fn take_head(
        &mut self,
        to_head: bool,
        is_removed: impl Fn(&str) -> bool,
        out: &mut impl ResponseSink,
    ) -> pingora::Result<Option<ResponseHead>> {
        match &mut self.version {
            Version::Http1(http1) => http1.take_head(&mut self.buffer, to_head, is_removed, out),
            Version::Http2(http2) => http2.take_head(to_head, is_removed, out),
        }
    }

    /// Sends the request until more of the head arrives.
    pub(super) async fn receive_head(
        &mut self,
        request_body: &mut RequestBody,
        client: &mut impl Downstream,
    ) -> pingora::Result<()> {
        let received = self.wait(request_body, client, |version, buffer, cx| match version {
            Version::Http1(http1) => http1.poll_head(buffer, cx),
            Version::Http2(http2) => http2.poll_head(cx),
        });
        received.await?.ok_or_else(|| Error::explain(ErrorType::ReadTimedout, "reading from the upstream").into_up())
    }

    /// Allows long silence of both sides, if the version can check that the upstream is alive (PING).
    pub(super) fn may_be_silent(&mut self) {
        if self.kind.http2 {
            self.wait_limits.may_be_silent();
        }
    }

    /// The upstream has switched protocols: from here on both sides send bytes of their own, for an unlimited time,
    /// with silence of at most `idle_timeout`.
    pub(super) fn switch(&mut self, request_body: &mut RequestBody, idle_timeout: Duration) {
        request_body.switch();
        self.wait_limits = WaitLimits::new(idle_timeout, None);
        match &mut self.version {
            Version::Http1(http1) => http1.switch(),
            Version::Http2(http2) => http2.switch(),
        }
    }

    /// Forwards the body of the response to its end, counts its bytes in `sent`, and returns its trailers. Bytes that
    /// are available together are written together, and everything is flushed before a wait. `in_time` fails if the
    /// request has taken too long.
    pub(super) async fn relay<D: Downstream>(
        &mut self,
        request_body: &mut RequestBody,
        client: &mut D,
        in_time: impl Fn() -> pingora::Result<()> + Send + Sync,
        sent: &mut u64,
    ) -> pingora::Result<Option<HeaderMap>> {
        loop {
            let polled = poll_fn(|cx| Poll::Ready(self.version.poll_data(&mut self.buffer, cx))).await;
            let received = if let Poll::Ready(received) = polled {
                received?
            } else {
                self.write_and_send(request_body, client, |client, _, cx| client.poll_flush(cx)).await?;
                let received = self.wait(request_body, client, Version::poll_data).await?;
                in_time()?;
                received.flatten()
            };
            let Some(bytes) = received else { break };
            *sent += bytes as u64;
            let (mut left, last) = (bytes, self.version.is_done());
            self.write_and_send(request_body, client, |client, buffer, cx| {
                client.poll_data(buffer, &mut left, last, cx)
            })
            .await?;
            self.version.has_forwarded(bytes)?;
            if !last {
                in_time()?;
            }
        }
        // Another protocol has none, and the upstream's side may not have ended.
        if request_body.is_switched() { Ok(None) } else { self.version.trailers().await }
    }

    /// The response is complete: keeps the connection for the next request, if it accepts one.
    pub(super) fn keep(self, endpoint: &Endpoint) {
        if let Version::Http1(http1) = self.version {
            http1.keep(&self.buffer, endpoint);
        }
    }

    /// Why the upstream failed, for an operator, if known.
    pub(super) fn reason(&self, error: &Error) -> Option<std::borrow::Cow<'static, str>> {
        match &self.version {
            Version::Http1(_) => http1::reason(error),
            Version::Http2(http2) => http2.reason(error),
        }
    }

    /// The failure of an attempt that this error ended before the response. `interim` if an interim response arrived.
    pub(super) fn failed(&self, error: Box<Error>, request_body: &RequestBody, interim: bool) -> FailedAttempt {
        let (refused, before_request, sent_at) = match &self.version {
            Version::Http1(_) => (None, was_reset(&error), Instant::now()),
            Version::Http2(http2) => (http2.refused(&error), http2.is_silent(was_reset(&error)), http2.sent_at),
        };
        let silent = !interim && self.buffer.is_empty();
        let timed_out = matches!(error.etype(), ErrorType::ReadTimedout | ErrorType::WriteTimedout);
        let is_late = timed_out && *error.esource() == ErrorSource::Upstream;
        let late = silent && is_late && !self.wait_limits.is_over();
        let failure = match refused {
            _ if !silent || !request_body.is_at_hand() => Failure::Unknown,
            Some(refused) => Failure::Refused(refused),
            None if self.kind.reused && has_ended(&error) => Failure::Ended { before_request },
            None if late || has_ended(&error) => Failure::Unanswered,
            None => Failure::Unknown,
        };
        FailedAttempt { failure, late, reason: self.reason(&error), error, sent_at: Some(sent_at) }
    }

    /// Writes to the client with `write`, and sends the request meanwhile, so that a peer that reads only after its own
    /// bytes were read does not stop both directions.
    async fn write_and_send<D: Downstream>(
        &mut self,
        request_body: &mut RequestBody,
        client: &mut D,
        mut write: impl FnMut(&mut D, &mut BytesMut, &mut Context<'_>) -> Poll<pingora::Result<()>> + Send,
    ) -> pingora::Result<()> {
        poll_fn(|cx| {
            let written = write(client, &mut self.buffer, cx);
            if written.is_pending() && !self.version.has_sent() {
                self.version.poll_send(request_body, client, &mut false, cx)?;
            }
            written
        })
        .await
    }

    /// Sends the request and waits until `poll` is ready, within the time limits of both sides and while the client is
    /// connected. `None` at the end of both sides after a switch of protocols.
    async fn wait<T>(
        &mut self,
        request_body: &mut RequestBody,
        client: &mut impl Downstream,
        mut poll: impl FnMut(&mut Version, &mut BytesMut, &mut Context<'_>) -> Poll<pingora::Result<T>> + Send,
    ) -> pingora::Result<Option<T>> {
        let Self { version, buffer, wait_limits, kind } = self;
        let (began, mut waiting) = (kind.http2.then(Instant::now), None);
        poll_fn(|cx| {
            // The response first: it may say why the upstream stopped reading the request.
            if let Poll::Ready(found) = poll(version, buffer, cx) {
                return Poll::Ready(found.map(Some));
            }
            let mut moved = false;
            let waits = match version.poll_send(request_body, client, &mut moved, cx)? {
                Waits::Nothing => return Poll::Ready(Ok(None)),
                waits => waits,
            };
            if client.poll_gone(cx).is_ready() {
                return Poll::Ready(client_left());
            }
            let late = ready!(wait_limits.poll(&mut waiting, waits, moved, client, cx));
            // A client may choose the total time (`grpc-timeout`), so this timeout says nothing about the connection.
            if late.is_err() && !wait_limits.is_over() {
                version.was_late(began);
            }
            Poll::Ready(late.map(|()| None))
        })
        .await
    }
}

impl Version {
    /// Sends as much of the request as is available and the upstream accepts, and returns what to wait for; sets
    /// `moved` if something was sent.
    fn poll_send(
        &mut self,
        request_body: &mut RequestBody,
        client: &mut impl Downstream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> pingora::Result<Waits> {
        match self {
            Self::Http1(http1) => http1.poll_send(request_body, client, moved, cx),
            Self::Http2(http2) => http2.poll_send(request_body, client, moved, cx),
        }
    }

    /// Whether nothing more will be sent.
    fn has_sent(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.has_sent(),
            Self::Http2(http2) => http2.has_sent(),
        }
    }

    /// Moves more of the body to the start of the buffer and returns the number of bytes; `None` at its end.
    fn poll_data(&mut self, buffer: &mut BytesMut, cx: &mut Context<'_>) -> Poll<pingora::Result<Option<usize>>> {
        match self {
            Self::Http1(http1) => http1.poll_data(buffer, cx),
            Self::Http2(http2) => http2.poll_data(buffer, cx),
        }
    }

    /// Whether the body ends with the bytes of the last [`Self::poll_data`].
    fn is_done(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.is_done(),
            Self::Http2(http2) => http2.is_done(),
        }
    }

    /// These bytes of the body were forwarded: the upstream may send as many again.
    fn has_forwarded(&mut self, bytes: usize) -> pingora::Result<()> {
        match self {
            Self::Http1(_) => Ok(()),
            Self::Http2(http2) => http2.has_forwarded(bytes),
        }
    }

    /// The trailers after the body.
    async fn trailers(&mut self) -> pingora::Result<Option<HeaderMap>> {
        match self {
            Self::Http1(http1) => Ok(http1.trailers()),
            Self::Http2(http2) => http2.trailers().await,
        }
    }

    /// The wait for the upstream since `began` timed out.
    fn was_late(&self, began: Option<Instant>) {
        if let Self::Http2(http2) = self {
            http2.was_late(began);
        }
    }
}

/// Whether the connection ended by itself, as an idle one may at any moment.
fn has_ended(error: &Error) -> bool {
    *error.esource() == ErrorSource::Upstream
        && matches!(error.etype(), ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError)
}

/// Whether the connection was reset, by a network that has dropped it or by a server that has died. An overloaded
/// server usually closes its connections instead.
fn was_reset(error: &Error) -> bool {
    let Some(cause) = error.cause.as_deref() else { return false };
    let io = cause.downcast_ref::<io::Error>().or_else(|| cause.downcast_ref::<h2::Error>()?.get_io());
    io.is_some_and(|io| matches!(io.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests;
