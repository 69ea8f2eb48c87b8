//! Sends a request over an HTTP/1.1 connection: its head, then its body as it arrives.

use std::fmt::Write as _;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::io::AsyncWrite as _;

use crate::exchange::downstream::Downstream;
use crate::exchange::upstream::request_body::RequestBody;
use crate::exchange::upstream::trailers;
use crate::exchange::upstream::wait_limits::Waits;
use upstreams::Stream;

/// The end of a chunk.
const CHUNK_END: &[u8] = b"\r\n";

/// The end of the last chunk with data, and of the body, without trailers.
const BODY_END: &[u8] = b"\r\n0\r\n\r\n";

/// A request that is being sent.
#[derive(Default)]
pub(super) struct RequestSender {
    /// Bytes before the piece: the head, or the size of a chunk.
    head: BytesMut,
    /// A piece of the body.
    piece: Bytes,
    /// Bytes after the piece.
    tail: &'static [u8],
    /// Nothing more follows from the request body.
    is_over: bool,
    /// The upstream accepts no more.
    refused: bool,
    /// TLS may not have sent all of it yet.
    held: bool,
}

impl RequestSender {
    pub(super) fn new(head: BytesMut, request_body: &RequestBody) -> Self {
        Self { head, is_over: request_body.is_empty(), ..Self::default() }
    }

    /// Whether nothing more will be sent.
    pub(super) fn is_over(&self) -> bool {
        self.is_over && !self.is_pending() && !self.held
    }

    /// Whether all of the request was sent.
    pub(super) fn is_whole(&self) -> bool {
        self.is_over() && !self.refused
    }

    fn is_pending(&self) -> bool {
        !(self.head.is_empty() && self.piece.is_empty() && self.tail.is_empty())
    }

    /// Sends as much as is available and the upstream accepts, and returns what to wait for; sets `moved` if something
    /// was sent. An upstream that accepts no more may still answer, so that is not an error here.
    ///
    /// # Errors
    /// If the client breaks off, or its body exceeds the limit.
    pub(super) fn poll(
        &mut self,
        stream: &mut Stream,
        request_body: &mut RequestBody,
        client: &mut impl Downstream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> pingora::Result<Waits> {
        loop {
            let waits = self.take(request_body, client, cx)?;
            if !self.is_pending() {
                return Ok(if self.held { self.poll_flush(stream, waits, cx) } else { waits });
            }
            match self.poll_write(stream, cx) {
                Poll::Ready(Ok(sent)) => {
                    self.advance(sent);
                    *moved = true;
                    self.held = stream.is_tls();
                }
                Poll::Ready(Err(_)) => self.abandon(),
                Poll::Pending => return Ok(Waits::Upstream),
            }
        }
    }

    /// Takes the next piece of the body if none is pending, and returns what to wait for once everything is sent.
    fn take(
        &mut self,
        request_body: &mut RequestBody,
        client: &mut impl Downstream,
        cx: &mut Context<'_>,
    ) -> pingora::Result<Waits> {
        if !self.is_over && self.piece.is_empty() && self.tail.is_empty() {
            match request_body.poll_piece(client, cx) {
                Poll::Ready(Ok(Some(piece))) => self.frame(piece, request_body),
                Poll::Ready(Ok(None)) => self.end(request_body),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending if request_body.is_switched() => return Ok(Waits::Either),
                Poll::Pending => return Ok(Waits::Client),
            }
        }
        Ok(if request_body.has_hung_up() { Waits::Nothing } else { Waits::Response })
    }

    fn frame(&mut self, piece: Bytes, request_body: &RequestBody) {
        self.is_over = request_body.is_given() && request_body.trailers().is_none();
        if request_body.is_chunked() {
            let _ = write!(self.head, "{:x}\r\n", piece.len());
            self.tail = if self.is_over { BODY_END } else { CHUNK_END };
        }
        self.piece = piece;
    }

    fn end(&mut self, request_body: &RequestBody) {
        if request_body.is_chunked() {
            self.head.put_slice(b"0\r\n");
            trailers::write(request_body.trailers(), &mut self.head);
        }
        self.is_over = true;
    }

    fn poll_write(&self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        let stream = Pin::new(stream);
        if self.piece.is_empty() && self.tail.is_empty() {
            return stream.poll_write(cx, &self.head);
        }
        stream.poll_write_vectored(cx, &[IoSlice::new(&self.head), IoSlice::new(&self.piece), IoSlice::new(self.tail)])
    }

    /// Removes the sent bytes.
    fn advance(&mut self, sent: usize) {
        let mut left = sent;
        let mut take = |there: usize| {
            let here = left.min(there);
            left -= here;
            here
        };
        self.head.advance(take(self.head.len()));
        self.piece.advance(take(self.piece.len()));
        self.tail.advance(take(self.tail.len()));
        if self.piece.is_empty() {
            // Its memory can be reused.
            self.piece = Bytes::new();
        }
    }

    /// Flushes what TLS has accepted and not sent.
    fn poll_flush(&mut self, stream: &mut Stream, waits: Waits, cx: &mut Context<'_>) -> Waits {
        match Pin::new(stream).poll_flush(cx) {
            Poll::Ready(Ok(())) => self.held = false,
            Poll::Ready(Err(_)) => self.abandon(),
            Poll::Pending => return Waits::Upstream,
        }
        waits
    }

    /// The upstream accepts no more.
    fn abandon(&mut self) {
        *self = Self { is_over: true, refused: true, ..Self::default() };
    }
}
