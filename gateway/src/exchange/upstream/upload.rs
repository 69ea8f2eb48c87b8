//! A request on its way to an upstream: its head, and its body as it comes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, BytesMut};
use pingora::{Error, ErrorType};
use tokio::io::AsyncWrite as _;

use super::trailers;
use crate::exchange::downstream::Downstream;
use crate::upstreams::{Stream, Upstream};

/// Bytes that are gathered for one write while more are there.
const GATHERED_MAX: usize = 64 * 1024;

/// Bytes of the line before a chunk's data, as many as one of usual size has.
const SIZE_LINE_BYTES: usize = "ffff\r\n".len();

/// How the body of a request is framed for an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// There is none, or all of it was taken.
    None,
    /// So many bytes more, as the head says. The client's protocol has it be so long.
    Length(u64),
    /// In chunks.
    Chunked,
    /// Whatever comes behind a switch of protocols.
    Switched,
}

/// What a request in progress waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// More of its body.
    Client,
    /// That the upstream takes what is there.
    Upstream,
    /// The response: all was sent.
    Response,
    /// Whoever speaks next, after a switch of protocols.
    Either,
    /// Nobody: the client has hung up after a switch of protocols.
    Nobody,
}

/// See the module.
#[expect(clippy::struct_excessive_bools, reason = "what has happened, each for itself")]
pub(crate) struct Upload {
    /// What the upstream is to be sent next.
    pending: BytesMut,
    body: Body,
    /// Bytes that the body may have.
    left: u64,
    /// Something of the body was taken from the client.
    pub(crate) begun: bool,
    /// The upstream takes no more.
    refused: bool,
    /// TLS may hold some of it back.
    held: bool,
    /// The client has hung up.
    hung_up: bool,
    /// Whose rules trailers keep, where there may be some.
    upstream: Option<Arc<Upstream>>,
}

impl Upload {
    pub(crate) fn new(head: BytesMut, body: Body, body_bytes_max: u64) -> Self {
        Self {
            pending: head,
            body,
            left: body_bytes_max,
            begun: false,
            refused: false,
            held: false,
            hung_up: false,
            upstream: None,
        }
    }

    /// The same with trailers that keep the rules of this upstream, where the body may have some.
    pub(crate) fn keeping_rules_of(mut self, upstream: &Arc<Upstream>) -> Self {
        self.upstream = (self.body == Body::Chunked).then(|| upstream.clone());
        self
    }

    /// Whether nothing more will be sent.
    pub(crate) fn is_over(&self) -> bool {
        self.body == Body::None && self.pending.is_empty() && !self.held
    }

    /// Whether all of the request was sent.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_over() && !self.refused
    }

    /// Sends as much as is there and the upstream takes, and says what is waited for then; `moved` is set when something
    /// was sent. An upstream that takes no more may still say why: that is left to whoever reads from it.
    ///
    /// # Errors
    /// When the client breaks off, or its body is larger than it may be.
    pub(crate) fn poll(
        &mut self,
        stream: &mut Stream,
        client: &mut impl Downstream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> pingora::Result<Waits> {
        loop {
            let waits = self.gather(client, cx)?;
            if self.pending.is_empty() {
                return Ok(if self.held { self.poll_flush(stream, waits, cx) } else { waits });
            }
            match Pin::new(&mut *stream).poll_write(cx, &self.pending) {
                Poll::Ready(Ok(sent)) => {
                    self.pending.advance(sent);
                    *moved = true;
                    self.held = stream.is_tls();
                }
                Poll::Ready(Err(_)) => self.give_up(),
                Poll::Pending => return Ok(Waits::Upstream),
            }
        }
    }

    /// Sees on its way what TLS has taken and not sent.
    fn poll_flush(&mut self, stream: &mut Stream, waits: Waits, cx: &mut Context<'_>) -> Waits {
        match Pin::new(stream).poll_flush(cx) {
            Poll::Ready(Ok(())) => self.held = false,
            Poll::Ready(Err(_)) => self.give_up(),
            Poll::Pending => return Waits::Upstream,
        }
        waits
    }

    /// The upstream takes no more.
    fn give_up(&mut self) {
        self.pending.clear();
        (self.body, self.refused, self.held) = (Body::None, true, false);
    }

    /// Takes from the client what is there.
    fn gather(&mut self, client: &mut impl Downstream, cx: &mut Context<'_>) -> pingora::Result<Waits> {
        while self.body != Body::None && self.pending.len() < GATHERED_MAX {
            match self.poll_take(client, cx) {
                Poll::Ready(taken) => taken?,
                Poll::Pending if self.body == Body::Switched => return Ok(Waits::Either),
                Poll::Pending => return Ok(Waits::Client),
            }
        }
        Ok(if self.hung_up { Waits::Nobody } else { Waits::Response })
    }

    /// Takes a piece, where it will be sent from.
    fn poll_take(&mut self, client: &mut impl Downstream, cx: &mut Context<'_>) -> Poll<pingora::Result<()>> {
        let start = self.pending.len();
        if self.body == Body::Chunked {
            self.pending.put_bytes(0, SIZE_LINE_BYTES);
        }
        let taken = match client.poll_body(&mut self.pending, cx) {
            Poll::Ready(Ok(bytes @ 1..)) => bytes,
            other => {
                self.pending.truncate(start);
                return match other {
                    Poll::Pending => Poll::Pending,
                    // Where there is no end that could be missing, leaving is an end.
                    Poll::Ready(_) if self.body == Body::Switched => {
                        (self.body, self.hung_up) = (Body::None, true);
                        Poll::Ready(Ok(()))
                    }
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    Poll::Ready(Ok(_)) => {
                        if self.body == Body::Chunked {
                            let trailers = ready!(client.poll_trailers(cx))?;
                            let rules = self.upstream.as_ref().map(|upstream| &upstream.settings.fields);
                            let trailers = trailers.zip(rules).map(|(all, rules)| trailers::of_request(all, rules));
                            self.pending.put_slice(b"0\r\n");
                            trailers::write(trailers.as_ref(), &mut self.pending);
                        }
                        self.body = Body::None;
                        Poll::Ready(Ok(()))
                    }
                };
            }
        };
        self.begun = true;
        let bytes = taken as u64;
        match &mut self.body {
            Body::Length(left) => {
                *left = left.saturating_sub(bytes);
                if *left == 0 {
                    self.body = Body::None;
                }
            }
            Body::Chunked => self.frame(start, taken),
            Body::Switched => return Poll::Ready(Ok(())),
            Body::None => {}
        }
        let left = self.left.checked_sub(bytes);
        self.left =
            left.ok_or_else(|| Error::explain(ErrorType::HTTPStatus(413), "the body exceeds the route's limit"))?;
        Poll::Ready(Ok(()))
    }

    /// Makes a chunk of so many bytes, which lie behind room for their size.
    fn frame(&mut self, start: usize, bytes: usize) {
        let line = format!("{bytes:x}\r\n");
        let data = start + SIZE_LINE_BYTES;
        if line.len() > SIZE_LINE_BYTES {
            self.pending.put_bytes(0, line.len() - SIZE_LINE_BYTES);
        }
        if line.len() != SIZE_LINE_BYTES {
            self.pending.copy_within(data..data + bytes, start + line.len());
            self.pending.truncate(start + line.len() + bytes);
        }
        if let Some(room) = self.pending.get_mut(start..start + line.len()) {
            room.copy_from_slice(line.as_bytes());
        }
        self.pending.put_slice(b"\r\n");
    }
}
