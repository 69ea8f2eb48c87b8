//! A client that speaks HTTP/1.1 or HTTP/1.0.

mod request;

use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, BytesMut};
use http::{HeaderMap, StatusCode};
use pingora::{Error, ErrorType};
use pingora_http::RequestHeader;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout};

use super::{BREAK_OFF_MAX, Downstream};
use crate::decorate::ResponseSink;
use crate::exchange::upstream::write_trailers;
use contract::rejection::Rejection;
use listener::head::Framing;
use listener::{BodyReadError, Client, Connection, ServeOutcome};

/// Buffer size for a usual head with the body of a refusal.
const HEAD_BYTES_USUAL: usize = 1_280;

/// The client of one request over HTTP/1.
#[expect(clippy::struct_excessive_bools, reason = "independent states")]
pub(crate) struct Http1Client<'a> {
    client: &'a mut dyn Client,
    /// The client keeps the connection for another request.
    keep_alive: bool,
    /// The client asks for a WebSocket.
    websocket: bool,
    /// The client speaks HTTP/1.0: it accepts neither chunks nor interim responses, and the connection ends with the
    /// response (RFC 9112 section 9.3).
    is_http10: bool,
    /// The response says `Connection: close`.
    pub(crate) closes: bool,
    /// The response is sent in chunks.
    chunked: bool,
    /// Chunk framing that must be written before anything else.
    framing: Vec<u8>,
    /// The size of the current chunk was written.
    in_chunk: bool,
    body_bytes: u64,
    refusal: Option<Rejection>,
}

impl<'a> Http1Client<'a> {
    /// Takes the pending request of a client; returns its head too, and whether a body follows.
    ///
    /// # Errors
    /// If the head is malformed or missing.
    pub(crate) fn accept(client: &'a mut dyn Client) -> Result<(Self, RequestHeader, bool), ServeOutcome> {
        let (bytes, facts) = client.head().ok_or(ServeOutcome::Cut)?;
        let head = request::parse(bytes).map_err(ServeOutcome::Refused)?;
        client.take_head();
        let body_follows = !matches!(facts.framing, Framing::None | Framing::Length(0));
        let accepted = Self {
            client,
            keep_alive: facts.keep_alive,
            websocket: facts.websocket,
            is_http10: head.version == http::Version::HTTP_10,
            closes: false,
            chunked: false,
            framing: Vec::new(),
            in_chunk: false,
            body_bytes: 0,
            refusal: None,
        };
        Ok((accepted, head, body_follows))
    }

    /// The client's connection.
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        self.client.connection()
    }

    /// Ends a head: the fields of every final response, and the blank line. If the client has not sent its whole body
    /// yet, the connection closes, or the rest would be read as the next request.
    fn finish(&mut self, head: &mut Http1Head) -> pingora::Result<()> {
        let is_kept = self.keep_alive && !self.is_http10 && self.client.is_whole();
        self.closes = !is_kept || self.client.connection().should_close();
        head.field("Connection", if self.closes { b"close" } else { b"keep-alive" })?;
        head.bytes.put_slice(b"\r\n");
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> pingora::Result<()> {
        self.client.write_all(bytes).await.or_else(unsent)
    }

    async fn flush(&mut self) -> pingora::Result<()> {
        self.client.flush().await.or_else(unsent)
    }

    /// Writes the pending framing.
    fn poll_framing(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.framing.is_empty() {
            let written = ready!(Pin::new(&mut *self.client).poll_write(cx, &self.framing))?;
            self.framing.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write(&mut self, from: &mut BytesMut, left: &mut usize, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.chunked && !self.in_chunk {
            write!(self.framing, "{left:x}\r\n")?;
            self.in_chunk = true;
        }
        ready!(self.poll_framing(cx))?;
        while *left > 0 {
            let piece = from.get(..*left).unwrap_or_default();
            let written = ready!(Pin::new(&mut *self.client).poll_write(cx, piece))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            from.advance(written);
            *left -= written;
        }
        if std::mem::take(&mut self.in_chunk) {
            // Written with the next bytes.
            self.framing.extend_from_slice(b"\r\n");
        }
        Poll::Ready(Ok(()))
    }
}

/// The head of a response as bytes.
pub(crate) struct Http1Head {
    bytes: Vec<u8>,
    is_http10: bool,
}

impl Http1Head {
    pub(crate) fn new(is_http10: bool) -> Self {
        Self { bytes: Vec::with_capacity(HEAD_BYTES_USUAL), is_http10 }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl ResponseSink for Http1Head {
    fn status(&mut self, status: StatusCode, reason: &str) -> pingora::Result<()> {
        self.bytes.put_slice(b"HTTP/1.1 ");
        self.bytes.put_slice(status.as_str().as_bytes());
        self.bytes.put_u8(b' ');
        self.bytes.put_slice(reason.as_bytes());
        self.bytes.put_slice(b"\r\n");
        Ok(())
    }

    fn field(&mut self, name: &str, value: &[u8]) -> pingora::Result<()> {
        // HTTP/1.0: a body of unknown length ends with the connection (RFC 9112 section 6.3).
        if self.is_http10 && name.eq_ignore_ascii_case("transfer-encoding") {
            return Ok(());
        }
        self.bytes.put_slice(name.as_bytes());
        self.bytes.put_slice(b": ");
        self.bytes.put_slice(value);
        self.bytes.put_slice(b"\r\n");
        Ok(())
    }
}

impl Downstream for Http1Client<'_> {
    type Head = Http1Head;

    const TAKES_TRAILERS: bool = false;

    fn head(&self) -> Http1Head {
        Http1Head::new(self.is_http10)
    }

    fn may_switch(&self) -> bool {
        self.websocket
    }

    fn close_after_response(&mut self) {
        self.keep_alive = false;
    }

    async fn interim(&mut self, mut head: Http1Head) -> pingora::Result<()> {
        if self.is_http10 {
            return Ok(());
        }
        head.bytes.put_slice(b"\r\n");
        self.write(&head.bytes).await?;
        self.flush().await
    }

    async fn switch(&mut self, mut head: Http1Head) -> pingora::Result<()> {
        self.closes = true;
        head.bytes.put_slice(b"Connection: upgrade\r\n\r\n");
        self.write(&head.bytes).await?;
        self.flush().await?;
        self.client.switch();
        Ok(())
    }

    async fn begin(&mut self, mut head: Http1Head, _ends: bool, chunked: bool) -> pingora::Result<()> {
        self.chunked = chunked && !self.is_http10;
        self.finish(&mut head)?;
        self.write(&head.bytes).await
    }

    fn poll_data(
        &mut self,
        from: &mut BytesMut,
        left: &mut usize,
        _last: bool,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>> {
        self.poll_write(from, left, cx).map(|written| written.or_else(unsent))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<()>> {
        if let Err(error) = ready!(self.poll_framing(cx)) {
            return Poll::Ready(unsent(error));
        }
        Pin::new(&mut *self.client).poll_flush(cx).map(|flushed| flushed.or_else(unsent))
    }

    async fn end(&mut self, trailers: Option<HeaderMap>) -> pingora::Result<()> {
        if self.chunked {
            self.framing.extend_from_slice(b"0\r\n");
            write_trailers(trailers.as_ref(), &mut self.framing);
        }
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    async fn break_off(&mut self) {
        let _ = timeout(BREAK_OFF_MAX, poll_fn(|cx| self.poll_flush(cx))).await;
    }

    async fn answer(&mut self, mut head: Http1Head, body: Cow<'static, str>) -> pingora::Result<()> {
        self.finish(&mut head)?;
        head.bytes.put_slice(body.as_bytes());
        self.write(&head.bytes).await?;
        self.flush().await
    }

    fn poll_body(&mut self, into: &mut BytesMut, cx: &mut Context<'_>) -> Poll<pingora::Result<usize>> {
        let kind = match ready!(self.client.poll_body(into, cx)) {
            Ok(bytes) => {
                self.body_bytes += bytes as u64;
                return Poll::Ready(Ok(bytes));
            }
            Err(BodyReadError::Gone) => ErrorType::ReadError,
            Err(BodyReadError::Refused(rejection)) => {
                self.refusal = Some(rejection);
                if rejection == Rejection::RequestTimeout { ErrorType::ReadTimedout } else { ErrorType::ReadError }
            }
        };
        Poll::Ready(Err(Error::explain(kind, "reading the request body").into_down()))
    }

    fn poll_trailers(&mut self, _cx: &mut Context<'_>) -> Poll<pingora::Result<Option<HeaderMap>>> {
        Poll::Ready(Ok(None))
    }

    fn refusal(&self) -> Option<Rejection> {
        self.refusal
    }

    fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.client.poll_gone(cx)
    }

    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.client.poll_deadline(deadline, cx)
    }
}

/// The error of a failed write to the client.
fn unsent<T>(error: io::Error) -> pingora::Result<T> {
    let kind = if error.kind() == io::ErrorKind::TimedOut { ErrorType::WriteTimedout } else { ErrorType::WriteError };
    Err(Error::because(kind, "writing to the client", error).into_down())
}
