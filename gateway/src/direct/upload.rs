//! A request on its way to an upstream: its head, and its body as it comes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use pingora::{Error, ErrorType};
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;

use super::downstream::Downstream;

/// Bytes that are gathered for one write while more are there.
const GATHERED_MAX: usize = 64 * 1024;

/// How the body of a request is framed for an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// There is none, or all of it was taken.
    None,
    /// So many bytes more, as the head says. The client's protocol has it be so long.
    Length(u64),
    /// In chunks.
    Chunked,
}

/// What a request in progress waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// More of its body.
    Client,
    /// That the upstream takes what is there.
    Upstream,
    /// The response: all was sent.
    Response,
}

/// See the module.
pub(super) struct Upload {
    /// What the upstream is to be sent next.
    pending: BytesMut,
    body: Body,
    /// Bytes that the body may have.
    left: u64,
    /// Something of the body was taken from the client.
    pub(super) begun: bool,
    /// The upstream takes no more.
    refused: bool,
}

impl Upload {
    pub(super) fn new(head: BytesMut, body: Body, body_bytes_max: u64) -> Self {
        Self { pending: head, body, left: body_bytes_max, begun: false, refused: false }
    }

    /// Whether all of the request was sent.
    pub(super) fn is_whole(&self) -> bool {
        self.body == Body::None && self.pending.is_empty() && !self.refused
    }

    /// Sends as much as is there and the upstream takes, and says what is waited for then; `moved` is set when something
    /// was sent. An upstream that takes no more may still say why: that is left to whoever reads from it.
    ///
    /// # Errors
    /// When the client breaks off, or its body is larger than it may be.
    pub(super) fn poll(
        &mut self,
        stream: &mut TcpStream,
        client: &mut impl Downstream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> pingora::Result<Waits> {
        loop {
            let waits = self.gather(client, cx)?;
            if self.pending.is_empty() {
                return Ok(waits);
            }
            match Pin::new(&mut *stream).poll_write(cx, &self.pending) {
                Poll::Ready(Ok(sent)) => {
                    self.pending.advance(sent);
                    *moved = true;
                }
                Poll::Ready(Err(_)) => {
                    self.pending.clear();
                    (self.body, self.refused) = (Body::None, true);
                }
                Poll::Pending => return Ok(Waits::Upstream),
            }
        }
    }

    /// Takes from the client what is there.
    fn gather(&mut self, client: &mut impl Downstream, cx: &mut Context<'_>) -> pingora::Result<Waits> {
        while self.body != Body::None && self.pending.len() < GATHERED_MAX {
            match client.poll_body(cx) {
                Poll::Ready(piece) => self.take(piece?)?,
                Poll::Pending => return Ok(Waits::Client),
            }
        }
        Ok(Waits::Response)
    }

    fn take(&mut self, piece: Option<Bytes>) -> pingora::Result<()> {
        let is_chunked = self.body == Body::Chunked;
        let Some(piece) = piece else {
            self.body = Body::None;
            if is_chunked {
                self.pending.put_slice(b"0\r\n\r\n");
            }
            return Ok(());
        };
        self.begun = true;
        let bytes = piece.len() as u64;
        let left = self.left.checked_sub(bytes);
        self.left =
            left.ok_or_else(|| Error::explain(ErrorType::HTTPStatus(413), "the body exceeds the route's limit"))?;
        if let Body::Length(left) = &mut self.body {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                self.body = Body::None;
            }
        }
        if is_chunked {
            self.pending.put_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        }
        self.pending.put_slice(&piece);
        if is_chunked {
            self.pending.put_slice(b"\r\n");
        }
        Ok(())
    }
}
