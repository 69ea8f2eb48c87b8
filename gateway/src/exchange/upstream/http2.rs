//! One request and its response over a stream of an HTTP/2 connection to an upstream.

pub(super) mod head;

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, StatusCode};
use pingora::{Error, ErrorType};
use tokio::time::Instant;

use super::wait_limits::Waits;
use super::{READ_BYTES, RequestBody, ResponseHead};
use crate::decorate::ResponseSink;
use crate::exchange::downstream::Downstream;
use crate::exchange::retry::Refused;
use crate::exchange::websocket;
use upstreams::Lease;

/// One request over a stream. Dropped before the response is complete, it resets the stream.
pub(super) struct Http2Call {
    /// Its use of the connection.
    lease: Lease,
    /// When its head was sent.
    pub(super) sent_at: Instant,
    response: ResponseFuture,
    /// The last head, and whether nothing follows it.
    head: Option<(http::response::Parts, bool)>,
    body: Option<RecvStream>,
    pub(super) sending: Sending,
    /// The answer to the client's key, if the request is a CONNECT for a WebSocket.
    accept: Option<HeaderValue>,
}

impl Http2Call {
    /// Sends the head; a request that `switches` as a CONNECT, if the upstream accepts that (RFC 8441).
    ///
    /// # Errors
    /// If the connection accepts no more streams; nothing was sent then.
    pub(super) fn begin(
        mut lease: Lease,
        mut request: http::Request<()>,
        request_body: &RequestBody,
        switches: bool,
    ) -> Result<Self, h2::Error> {
        let is_tunnel = switches && lease.sender.is_extended_connect_protocol_enabled();
        let accept = if is_tunnel { websocket::connect(&mut request) } else { None };
        let is_over = request_body.is_empty();
        match lease.sender.send_request(request, is_over && accept.is_none()) {
            Ok((response, stream)) => {
                lease.request_sent();
                let (sending, sent_at) = (Sending::new(stream, is_over), Instant::now());
                Ok(Self { lease, sent_at, response, head: None, body: None, sending, accept })
            }
            Err(error) => {
                lease.leave();
                Err(error)
            }
        }
    }

    /// Waits for the next head.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<()>> {
        if let Poll::Ready(Some(Ok(interim))) = self.response.poll_informational(cx) {
            self.head = Some((interim.into_parts().0, true));
        } else {
            match Pin::new(&mut self.response).poll(cx) {
                Poll::Ready(Ok(whole)) => {
                    let (head, body) = whole.into_parts();
                    self.head = Some((head, body.is_end_stream()));
                    self.body = Some(body);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(broken(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        self.lease.response_received();
        Poll::Ready(Ok(()))
    }

    /// Takes the last head.
    pub(super) fn take_head(
        &mut self,
        to_head: bool,
        is_removed: impl Fn(&str) -> bool,
        out: &mut impl ResponseSink,
    ) -> pingora::Result<Option<ResponseHead>> {
        let Some((mut parts, ends)) = self.head.take() else { return Ok(None) };
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Error::explain(ErrorType::InvalidHTTPHeader, "status 101 over HTTP/2").into_up());
        }
        let Some(accept) = self.accept.as_ref().filter(|_| parts.status.is_success()) else {
            return head::response(&parts, (ends, to_head), is_removed, out).map(Some);
        };
        // In the same words as for HTTP/1.1.
        parts.status = StatusCode::SWITCHING_PROTOCOLS;
        parts.headers.remove(&websocket::ACCEPT);
        let head = head::response(&parts, (true, to_head), is_removed, out)?;
        out.field("Upgrade", b"websocket")?;
        out.field("Sec-WebSocket-Accept", accept.as_bytes())?;
        Ok(Some(head))
    }

    /// The WebSocket was accepted: the client's bytes follow.
    pub(super) fn switch(&mut self) {
        self.sending.is_over = false;
    }

    /// Appends more of the body to the buffer and returns the number of bytes; `None` at its end.
    pub(super) fn poll_data(
        &mut self,
        buffer: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<Option<usize>>> {
        let came = self.append_data(buffer, cx);
        if let Poll::Ready(Ok(Some(_))) = &came {
            self.lease.response_received();
        }
        came
    }

    fn append_data(&mut self, buffer: &mut BytesMut, cx: &mut Context<'_>) -> Poll<pingora::Result<Option<usize>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Ok(None)) };
        let before = buffer.len();
        while buffer.len() - before < READ_BYTES {
            match body.poll_data(cx) {
                Poll::Ready(Some(Ok(piece))) => buffer.extend_from_slice(&piece),
                Poll::Ready(Some(Err(error))) if buffer.len() == before => return Poll::Ready(broken(error)),
                Poll::Ready(None) if buffer.len() == before => return Poll::Ready(Ok(None)),
                Poll::Pending if buffer.len() == before => return Poll::Pending,
                // Reported again after these bytes were forwarded.
                Poll::Ready(Some(Err(_)) | None) | Poll::Pending => break,
            }
            if body.is_end_stream() {
                break;
            }
        }
        // The last piece may be empty.
        let came = buffer.len() - before;
        Poll::Ready(Ok((came > 0).then_some(came)))
    }

    /// Whether the body ends with the bytes of the last [`Self::poll_data`].
    pub(super) fn is_done(&self) -> bool {
        self.body.as_ref().is_some_and(RecvStream::is_end_stream)
    }

    /// These bytes of the body were forwarded: the upstream may send as many again.
    pub(super) fn has_forwarded(&mut self, bytes: usize) -> pingora::Result<()> {
        match &mut self.body {
            Some(body) => body.flow_control().release_capacity(bytes).or_else(broken),
            None => Ok(()),
        }
    }

    /// The trailers after the body.
    pub(super) async fn trailers(&mut self) -> pingora::Result<Option<HeaderMap>> {
        let trailers = poll_fn(|cx| match &mut self.body {
            Some(body) => body.poll_trailers(cx),
            None => Poll::Ready(Ok(None)),
        });
        trailers.await.or_else(broken)
    }

    /// The upstream timed out. If the whole connection was silent since `began`, it gets no more requests.
    pub(super) fn was_late(&self, began: Option<Instant>) {
        if began.is_some_and(|began| self.lease.is_silent_since(began)) {
            self.lease.leave();
        }
    }

    /// Whether the connection was silent since a PING, or, if it `was_reset`, since the request was sent.
    pub(super) fn is_silent(&self, was_reset: bool) -> bool {
        self.lease.is_silent() || was_reset && self.lease.is_silent_since(self.sent_at)
    }

    /// The kind of the refusal, if the upstream refused the request. A connection with a GOAWAY gets no more requests.
    pub(super) fn refused(&self, error: &Error) -> Option<Refused> {
        let refused = Refused::of(error);
        if refused == Some(Refused::Connection) {
            self.lease.leave();
        }
        refused
    }

    /// The code that ended the stream or connection, for an operator.
    pub(super) fn reason(&self, error: &Error) -> Option<Cow<'static, str>> {
        reason(error).or_else(|| self.lease.reason().map(Into::into))
    }
}

/// A request body that is being sent over a stream.
pub(super) struct Sending {
    stream: SendStream<Bytes>,
    /// The bytes to send next.
    pending: Bytes,
    /// Everything was sent, or the upstream accepts no more.
    is_over: bool,
}

impl Sending {
    fn new(stream: SendStream<Bytes>, is_over: bool) -> Self {
        Self { stream, is_over, pending: Bytes::new() }
    }

    /// Whether nothing more will be sent.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sends as much as is available and the upstream accepts, and returns what to wait for; sets `moved` if something
    /// was sent. If the upstream accepts no more, its response says why.
    ///
    /// # Errors
    /// If the client breaks off, or its body exceeds the limit.
    pub(super) fn poll(
        &mut self,
        request_body: &mut RequestBody,
        client: &mut impl Downstream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> pingora::Result<Waits> {
        while !self.is_over {
            if self.pending.is_empty() {
                match request_body.poll_piece(client, cx) {
                    Poll::Ready(Ok(Some(piece))) => self.pending = piece,
                    Poll::Ready(Ok(None)) => {
                        self.end(request_body);
                        break;
                    }
                    Poll::Ready(Err(error)) => return Err(error),
                    Poll::Pending if request_body.is_switched() => return Ok(Waits::Either),
                    Poll::Pending => return Ok(Waits::Client),
                }
            }
            self.stream.reserve_capacity(self.pending.len());
            let room = match self.stream.capacity() {
                0 => match self.stream.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(room))) => room,
                    Poll::Ready(_) => {
                        self.is_over = true;
                        break;
                    }
                    Poll::Pending => return Ok(Waits::Upstream),
                },
                room => room,
            };
            self.send(room, request_body);
            *moved = true;
        }
        Ok(if request_body.has_hung_up() { Waits::Nothing } else { Waits::Response })
    }

    fn send(&mut self, room: usize, request_body: &RequestBody) {
        let piece = self.pending.split_to(room.min(self.pending.len()));
        let is_last = self.pending.is_empty() && request_body.is_given() && request_body.trailers().is_none();
        self.is_over = self.stream.send_data(piece, is_last).is_err() || is_last;
    }

    fn end(&mut self, request_body: &RequestBody) {
        // An error means that the stream has ended. The trailers are kept: another attempt may need them.
        let _ = match request_body.trailers() {
            Some(trailers) => self.stream.send_trailers(trailers.clone()),
            None => self.stream.send_data(Bytes::new(), true),
        };
        self.is_over = true;
    }
}

fn broken<T>(error: h2::Error) -> pingora::Result<T> {
    let kind = if error.is_io() { ErrorType::ReadError } else { ErrorType::H2Error };
    Err(Error::because(kind, "reading from the upstream", error).into_up())
}

/// The code that ended a stream or a connection, for an operator.
fn reason(error: &Error) -> Option<Cow<'static, str>> {
    let cause = error.cause.as_deref()?.downcast_ref::<h2::Error>()?;
    let word = if cause.is_go_away() { "GOAWAY" } else { "RST_STREAM" };
    let side = if cause.is_remote() { "it sent" } else { "it violated HTTP/2; we sent" };
    cause.reason().map(|reason| Cow::Owned(format!("{side} {word} {reason:?}")))
}
