//! The body of a request on its way to an upstream that speaks HTTP/2, as it comes.
//!
//! What was taken from the client is kept until the response begins, up to a bound: an upstream may refuse a stream that it
//! has not begun to serve, and then the request goes to another connection as a whole.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::SendStream;
use http::HeaderMap;
use pingora::{Error, ErrorType};

use crate::exchange::downstream::Downstream;
use crate::exchange::upstream::trailers;
use crate::exchange::upstream::upload::{Body, Waits};
use crate::upstreams::Upstream;

/// Bytes that are gathered for one piece while more are there.
const GATHERED_MAX: usize = 64 * 1024;

/// Bytes that are kept for sending them once more.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// What the client sends, whichever connection it goes to.
pub(crate) struct Source {
    /// Whose rules its trailers keep.
    upstream: Arc<Upstream>,
    gathered: BytesMut,
    /// The client has ended it.
    is_over: bool,
    trailers: Option<HeaderMap>,
    /// Bytes that it may have.
    left: u64,
    /// What was taken so far; `None` when that is too much to be kept, or no longer needed.
    kept: Option<VecDeque<Bytes>>,
    kept_bytes: usize,
    /// How many of the kept pieces this connection was given.
    given: usize,
    /// Something was taken from the client.
    pub(crate) begun: bool,
}

impl Source {
    pub(crate) fn new(body: Body, body_bytes_max: u64, upstream: Arc<Upstream>) -> Self {
        Self {
            upstream,
            gathered: BytesMut::new(),
            is_over: body == Body::None,
            trailers: None,
            left: body_bytes_max,
            kept: Some(VecDeque::new()),
            kept_bytes: 0,
            given: 0,
            begun: false,
        }
    }

    /// Whether there is no body at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_over && !self.begun && self.trailers.is_none()
    }

    /// Whether all of it can be sent once more; then it will be.
    pub(crate) fn rewind(&mut self) -> bool {
        self.given = 0;
        self.kept.is_some()
    }

    /// It will not be sent again.
    fn forget(&mut self) {
        let rest = self.kept.take().map(|kept| kept.into_iter().skip(self.given)).into_iter().flatten();
        // What this connection was not given yet goes first.
        let rest: Vec<Bytes> = rest.collect();
        if !rest.is_empty() {
            let mut all = BytesMut::from(rest.concat().as_slice());
            all.extend_from_slice(&self.gathered);
            self.gathered = all;
        }
    }

    /// The next piece, with whether it is the last; `None` at the end.
    fn poll_piece(
        &mut self,
        client: &mut impl Downstream,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<Option<Bytes>>> {
        if let Some(piece) = self.kept.as_ref().and_then(|kept| kept.get(self.given)) {
            self.given += 1;
            return Poll::Ready(Ok(Some(piece.clone())));
        }
        let mut waits = false;
        while !self.is_over && !waits && self.gathered.len() < GATHERED_MAX {
            match client.poll_body(&mut self.gathered, cx) {
                Poll::Ready(Ok(0)) => {
                    let trailers = ready!(client.poll_trailers(cx))?;
                    let rules = &self.upstream.settings.fields;
                    let trailers = trailers.map(|all| trailers::of_request(all, rules));
                    self.trailers = trailers.filter(|all| !all.is_empty());
                    self.is_over = true;
                }
                Poll::Ready(Ok(bytes)) => self.count(bytes)?,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => waits = true,
            }
        }
        if self.gathered.is_empty() {
            return if self.is_over { Poll::Ready(Ok(None)) } else { Poll::Pending };
        }
        let piece = self.gathered.split().freeze();
        self.keep(&piece);
        Poll::Ready(Ok(Some(piece)))
    }

    fn count(&mut self, bytes: usize) -> pingora::Result<()> {
        self.begun = true;
        let left = self.left.checked_sub(bytes as u64);
        self.left =
            left.ok_or_else(|| Error::explain(ErrorType::HTTPStatus(413), "the body exceeds the route's limit"))?;
        Ok(())
    }

    fn keep(&mut self, piece: &Bytes) {
        self.kept_bytes += piece.len();
        match &mut self.kept {
            Some(kept) if self.kept_bytes <= KEPT_BYTES_MAX => {
                kept.push_back(piece.clone());
                self.given = kept.len();
            }
            kept => *kept = None,
        }
    }

    /// Whether this connection was given all of it.
    fn is_given(&self) -> bool {
        self.is_over && self.gathered.is_empty() && self.kept.as_ref().is_none_or(|kept| kept.len() == self.given)
    }
}

/// The same on its way to one connection.
pub(crate) struct Sending {
    stream: SendStream<Bytes>,
    pub(crate) source: Box<Source>,
    /// What the upstream is to take next.
    pending: Bytes,
    /// Nothing more will be sent: all was, or the upstream takes no more.
    is_over: bool,
}

impl Sending {
    pub(crate) fn new(stream: SendStream<Bytes>, source: Box<Source>) -> Self {
        Self { stream, is_over: source.is_empty(), source, pending: Bytes::new() }
    }

    /// Whether nothing more will be sent.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The response has begun: the upstream will not ask for the request once more.
    pub(crate) fn is_answered(&mut self) {
        self.source.forget();
    }

    /// Sends as much as is there and the upstream takes, and says what is waited for then; `moved` is set when something
    /// was sent. Why an upstream takes no more, its response says.
    ///
    /// # Errors
    /// When the client breaks off, or its body is larger than it may be.
    pub(crate) fn poll(
        &mut self,
        client: &mut impl Downstream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> pingora::Result<Waits> {
        while !self.is_over {
            if self.pending.is_empty() {
                match self.source.poll_piece(client, cx) {
                    Poll::Ready(Ok(Some(piece))) => self.pending = piece,
                    Poll::Ready(Ok(None)) => {
                        self.end();
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
            self.give(room);
            *moved = true;
        }
        Ok(Waits::Response)
    }

    fn give(&mut self, room: usize) {
        let piece = self.pending.split_to(room.min(self.pending.len()));
        let is_last = self.pending.is_empty() && self.source.is_given() && self.source.trailers.is_none();
        self.is_over = self.stream.send_data(piece, is_last).is_err() || is_last;
    }

    fn end(&mut self) {
        // One that fails is of a stream that has ended. The trailers stay: another connection may need them.
        let _ = match self.source.trailers.clone() {
            Some(trailers) => self.stream.send_trailers(trailers),
            None => self.stream.send_data(Bytes::new(), true),
        };
        self.is_over = true;
    }
}
