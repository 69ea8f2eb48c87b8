//! One request and its response over an HTTP/1.1 connection to an upstream.

mod chunks;
mod framing;
mod request;
pub(in crate::exchange) mod response;
mod request_sender;

use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http::HeaderMap;
use pingora::{Error, ErrorType};
use tokio_util::io::poll_read_buf;

use self::framing::Framing;
use self::request_sender::RequestSender;
use super::request_body::RequestBody;
use super::wait_limits::Waits;
use super::{READ_BYTES, Request, ResponseHead, trailers};
use crate::decorate::ResponseSink;
use crate::exchange::downstream::Downstream;
use crate::forward::RESPONSE_HEAD_BYTES_MAX;
use upstreams::{Endpoint, Lifetime, PoolKey, Stream, tls_reason};

/// Buffer size for the first read: a small response fits.
const FIRST_READ_BYTES: usize = 8 * 1024;

/// One request over a connection of HTTP/1.1, which serves no other meanwhile.
pub(super) struct Http1Call {
    stream: Stream,
    pool_key: PoolKey,
    lifetime: Lifetime,
    sender: RequestSender,
    /// Bytes of the buffer that were parsed without finding the end of the head.
    seen: usize,
    framing: Framing,
    /// The trailers of the response as received, including the blank line; empty if there are none.
    trailers: Vec<u8>,
    /// Whether the upstream accepts another request on the connection after the body.
    reusable: bool,
    /// How long it may be kept idle.
    good_for: Duration,
}

impl Http1Call {
    pub(super) fn new(
        (stream, lifetime): (Stream, Lifetime),
        request: &Request<'_>,
        request_body: &RequestBody,
    ) -> Self {
        let head = request::bytes(request.head, request_body.is_chunked(), request.switches);
        Self {
            stream,
            pool_key: request.requirements.pool_key.clone(),
            lifetime,
            sender: RequestSender::new(head, request_body),
            seen: 0,
            framing: Framing::End,
            trailers: Vec::new(),
            reusable: false,
            good_for: Duration::ZERO,
        }
    }

    pub(super) fn poll_send(
        &mut self,
        request_body: &mut RequestBody,
        client: &mut impl Downstream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> pingora::Result<Waits> {
        self.sender.poll(&mut self.stream, request_body, client, moved, cx)
    }

    /// Whether nothing more will be sent.
    pub(super) fn has_sent(&self) -> bool {
        self.sender.is_over()
    }

    /// Reads more of the head.
    pub(super) fn poll_head(&mut self, buffer: &mut BytesMut, cx: &mut Context<'_>) -> Poll<pingora::Result<()>> {
        buffer.reserve(FIRST_READ_BYTES);
        match ready!(poll_read_buf(Pin::new(&mut self.stream), cx, buffer)) {
            Ok(0) => Poll::Ready(ended("no response")),
            Ok(_) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(broken(error)),
        }
    }

    /// Takes the head at the start of the buffer, if it is complete.
    pub(super) fn take_head(
        &mut self,
        buffer: &mut BytesMut,
        to_head: bool,
        is_removed: impl Fn(&str) -> bool,
        out: &mut impl ResponseSink,
    ) -> pingora::Result<Option<ResponseHead>> {
        let is_large = buffer.len() > RESPONSE_HEAD_BYTES_MAX;
        // Parse only after a new line end: a head that arrives byte by byte is not parsed again for each byte.
        let fresh = buffer.get(self.seen..).unwrap_or_default();
        let may_end = memchr::memchr(b'\n', fresh).is_some() || is_large;
        if may_end && let Some(parsed) = response::read(buffer, to_head, is_removed, out)? {
            buffer.advance(parsed.bytes);
            (self.seen, self.framing) = (0, parsed.framing);
            (self.reusable, self.good_for) = (parsed.reusable, parsed.good_for);
            return Ok(Some(parsed.head));
        }
        self.seen = buffer.len();
        if is_large {
            let why = "the head of the response is too large";
            return Err(Error::explain(ErrorType::InvalidHTTPHeader, why).into_up());
        }
        Ok(None)
    }

    /// Moves more of the body to the start of the buffer and returns the number of bytes; `None` at its end. Chunks are
    /// not forwarded as such: their extensions are for this connection only (RFC 9112 section 7.1.1).
    pub(super) fn poll_data(
        &mut self,
        buffer: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<Option<usize>>> {
        loop {
            while let Some(piece) = self.framing.take(buffer)? {
                // Usually there are no trailers, only a blank line.
                let skipped = buffer.get(..piece.skipped).unwrap_or_default();
                if piece.is_trailer && (!self.trailers.is_empty() || skipped != b"\r\n") {
                    self.trailers.extend_from_slice(skipped);
                }
                buffer.advance(piece.skipped);
                if piece.data > 0 {
                    return Poll::Ready(Ok(Some(piece.data)));
                }
            }
            if self.framing.is_done() {
                return Poll::Ready(Ok(None));
            }
            buffer.reserve(READ_BYTES);
            match ready!(poll_read_buf(Pin::new(&mut self.stream), cx, buffer)) {
                Ok(1..) => {}
                Ok(_) if self.framing == Framing::End => return Poll::Ready(Ok(None)),
                Ok(_) | Err(_) if self.framing.ends_without_trailers() => return Poll::Ready(Ok(None)),
                Ok(_) => return Poll::Ready(ended("the response ended early")),
                Err(error) => return Poll::Ready(broken(error)),
            }
        }
    }

    /// Whether the body ends with the bytes of the last [`Self::poll_data`].
    pub(super) fn is_done(&self) -> bool {
        self.framing.is_done()
    }

    /// The trailers after the body.
    pub(super) fn trailers(&self) -> Option<HeaderMap> {
        (!self.trailers.is_empty()).then(|| trailers::read(&self.trailers))
    }

    /// The upstream has switched protocols: both sides now send bytes of their own.
    pub(super) fn switch(&mut self) {
        (self.sender, self.framing, self.reusable) = (RequestSender::default(), Framing::End, false);
    }

    /// Keeps the connection for another request, if the response is complete and nothing came after it.
    pub(super) fn keep(mut self, buffer: &BytesMut, endpoint: &Endpoint) {
        let is_complete = self.framing.is_done() && self.framing.is_usual() && buffer.is_empty();
        if self.reusable && is_complete && self.sender.is_whole() && self.stream.is_read() {
            endpoint.http1.keep(self.stream, self.pool_key, self.lifetime, self.good_for);
        }
    }
}

fn ended<T>(why: &'static str) -> pingora::Result<T> {
    Err(Error::explain(ErrorType::ConnectionClosed, why).into_up())
}

fn broken<T>(error: io::Error) -> pingora::Result<T> {
    // With TLS 1.3 a server may refuse our certificate after the handshake has ended on our side.
    if tls_reason(&error).is_some() {
        return Err(Error::because(ErrorType::TLSHandshakeFailure, "reading from the upstream", error).into_up());
    }
    Err(Error::because(ErrorType::ReadError, "reading from the upstream", error).into_up())
}

/// Why TLS failed, for an operator.
pub(super) fn reason(error: &Error) -> Option<Cow<'static, str>> {
    error.cause.as_deref().and_then(|cause| cause.downcast_ref()).and_then(tls_reason).map(Cow::Owned)
}
