//! One request and its response over a stream of an HTTP/2 connection to an upstream.

pub(super) mod head;

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, StatusCode};
use pingora::{Error, ErrorType};
use tokio::time::Instant;

use super::wait_limits::Waits;
use super::{READ_BYTES, RequestBody, ResponseHead};
use crate::decorate::ResponseSink;
use crate::exchange::downstream::Downstream;
use crate::upstreams::Lease;

/// One exchange over a stream. Dropped before the response is complete, it resets the stream.
pub(super) struct Http2Call {
    /// Its use of the connection.
    lease: Lease,
    /// When its head was sent.
    pub(super) sent_at: Instant,
    response: ResponseFuture,
    /// The head that came last, with whether it is the final one's and nothing follows it.
    head: Option<(http::response::Parts, bool)>,
    body: Option<RecvStream>,
    pub(super) sending: Sending,
}

impl Http2Call {
    /// Sends the head.
    ///
    /// # Errors
    /// When the connection takes no more streams; then nothing was sent.
    pub(super) fn begin(
        mut lease: Lease,
        request: http::Request<()>,
        request_body: &RequestBody,
    ) -> Result<Self, h2::Error> {
        let ends = request_body.is_empty();
        match lease.sender.send_request(request, ends) {
            Ok((response, stream)) => {
                lease.sends();
                let (sending, sent_at) = (Sending::new(stream, ends), Instant::now());
                Ok(Self { lease, sent_at, response, head: None, body: None, sending })
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
        self.lease.responds();
        Poll::Ready(Ok(()))
    }

    /// Takes the head that came last.
    pub(super) fn take_head(
        &mut self,
        to_head: bool,
        is_removed: impl Fn(&str) -> bool,
        out: &mut impl ResponseSink,
    ) -> pingora::Result<Option<ResponseHead>> {
        let Some((parts, ends)) = self.head.take() else { return Ok(None) };
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Error::explain(ErrorType::InvalidHTTPHeader, "HTTP/2 switches no protocols").into_up());
        }
        head::response(&parts, (ends, to_head), is_removed, out).map(Some)
    }

    /// Puts some of the body behind what is in the buffer: how many bytes; `None` at its end.
    pub(super) fn poll_data(
        &mut self,
        buffer: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<Option<usize>>> {
        let came = self.gather(buffer, cx);
        if let Poll::Ready(Ok(Some(_))) = &came {
            self.lease.responds();
        }
        came
    }

    fn gather(&mut self, buffer: &mut BytesMut, cx: &mut Context<'_>) -> Poll<pingora::Result<Option<usize>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Ok(None)) };
        let before = buffer.len();
        while buffer.len() - before < READ_BYTES {
            match body.poll_data(cx) {
                Poll::Ready(Some(Ok(piece))) => buffer.extend_from_slice(&piece),
                Poll::Ready(Some(Err(error))) if buffer.len() == before => return Poll::Ready(broken(error)),
                Poll::Ready(None) if buffer.len() == before => return Poll::Ready(Ok(None)),
                Poll::Pending if buffer.len() == before => return Poll::Pending,
                // It is said again when this has been handed on.
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

    /// Whether the body ends with what was brought last.
    pub(super) fn is_done(&self) -> bool {
        self.body.as_ref().is_some_and(RecvStream::is_end_stream)
    }

    /// So much of the body was handed on: the upstream may send as much again.
    pub(super) fn has_handed_on(&mut self, bytes: usize) -> pingora::Result<()> {
        match &mut self.body {
            Some(body) => body.flow_control().release_capacity(bytes).or_else(broken),
            None => Ok(()),
        }
    }

    /// What stands behind the body.
    pub(super) async fn trailers(&mut self) -> pingora::Result<Option<HeaderMap>> {
        let trailers = poll_fn(|cx| match &mut self.body {
            Some(body) => body.poll_trailers(cx),
            None => Poll::Ready(Ok(None)),
        });
        trailers.await.or_else(broken)
    }

    /// Nothing came in the time that the upstream is granted. A connection over which nothing at all came takes no more
    /// requests.
    pub(super) fn was_late(&self, began: Option<Instant>) {
        if began.is_some_and(|began| self.lease.is_silent_since(began)) {
            self.lease.leave();
        }
    }

    /// Whether nothing at all has come over the connection since a PING, or since the request was sent when it `was_reset`.
    pub(super) fn is_unheard(&self, was_reset: bool) -> bool {
        self.lease.is_unheard() || was_reset && self.lease.is_silent_since(self.sent_at)
    }

    /// What the upstream has refused, where it has.
    pub(super) fn refused(&self, error: &Error) -> Option<Refused> {
        let refused = Refused::of(error);
        if refused == Some(Refused::Connection) {
            self.lease.leave();
        }
        refused
    }

    /// What a stream or a connection was ended with, for an operator.
    pub(super) fn reason(&self, error: &Error) -> Option<Cow<'static, str>> {
        reason(error).or_else(|| self.lease.reason().map(Into::into))
    }
}

/// A request body that is sent over a stream.
pub(super) struct Sending {
    stream: SendStream<Bytes>,
    /// What the upstream is to take next.
    pending: Bytes,
    /// Nothing more will be sent: all was, or the upstream takes no more.
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

    /// Sends as much as is there and the upstream takes, and says what is waited for then; `moved` is set when something
    /// was sent. Why an upstream takes no more, its response says.
    ///
    /// # Errors
    /// When the client breaks off, or its body is larger than it may be.
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
            self.give(room, request_body);
            *moved = true;
        }
        Ok(Waits::Response)
    }

    fn give(&mut self, room: usize, request_body: &RequestBody) {
        let piece = self.pending.split_to(room.min(self.pending.len()));
        let is_last = self.pending.is_empty() && request_body.is_given() && request_body.trailers().is_none();
        self.is_over = self.stream.send_data(piece, is_last).is_err() || is_last;
    }

    fn end(&mut self, request_body: &RequestBody) {
        // One that fails is of a stream that has ended. The trailers stay: another connection may need them.
        let _ = match request_body.trailers() {
            Some(trailers) => self.stream.send_trailers(trailers.clone()),
            None => self.stream.send_data(Bytes::new(), true),
        };
        self.is_over = true;
    }
}

fn broken<T>(error: h2::Error) -> pingora::Result<T> {
    let kind = if error.is_io() { ErrorType::ReadError } else { ErrorType::H2Error };
    Err(Error::because(kind, "from an upstream", error).into_up())
}

/// What an upstream takes no more of. It has done nothing about the request, which may be sent again whatever it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exchange) enum Refused {
    /// This request: `REFUSED_STREAM`.
    Stream,
    /// Requests on this connection: GOAWAY.
    Connection,
}

impl Refused {
    /// What an upstream has refused, where it has.
    fn of(error: &Error) -> Option<Self> {
        let cause = error.cause.as_deref()?.downcast_ref::<h2::Error>()?;
        let is_stream = cause.is_reset() && cause.reason() == Some(Reason::REFUSED_STREAM);
        match (cause.is_remote(), cause.is_go_away()) {
            (true, true) => Some(Self::Connection),
            (true, false) if is_stream => Some(Self::Stream),
            _ => None,
        }
    }
}

/// What an upstream has ended a stream or a connection with, for an operator.
fn reason(error: &Error) -> Option<Cow<'static, str>> {
    let cause = error.cause.as_deref()?.downcast_ref::<h2::Error>()?;
    let word = if cause.is_go_away() { "GOAWAY" } else { "RST_STREAM" };
    let side = if cause.is_remote() { "it sent" } else { "it broke HTTP/2; we sent" };
    cause.reason().map(|reason| Cow::Owned(format!("{side} {word} {reason:?}")))
}
