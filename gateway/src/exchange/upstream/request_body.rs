//! The body of a request as it comes from the client, whichever connection it goes to and however it is framed there.
//!
//! Where the request may have to go to another connection, what was taken is kept until the response begins, up to a bound:
//! an upstream may refuse a request that it has not begun to serve, and a connection may have ended before.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use pingora::{Error, ErrorType};

use super::trailers;
use crate::exchange::downstream::Downstream;
use crate::request::BodyPromise;
use crate::upstreams::Upstream;

/// Bytes that are gathered for one piece while more are there.
const GATHERED_MAX: usize = 64 * 1024;

/// Bytes that are kept for sending them once more.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// A request body as it is read from the client.
#[expect(clippy::struct_excessive_bools, reason = "what has happened, each for itself")]
pub(crate) struct RequestBody {
    promise: BodyPromise,
    /// Both sides have switched protocols: what comes is no body.
    switched: bool,
    /// Whose rules its trailers keep, where there may be some.
    upstream: Option<Arc<Upstream>>,
    gathered: BytesMut,
    /// Nothing more will be taken from the client.
    is_over: bool,
    trailers: Option<HeaderMap>,
    /// Bytes that it may have.
    left: u64,
    /// What was taken so far, where it is kept; `None` also when that would be too much.
    kept: Option<VecDeque<Bytes>>,
    kept_bytes: usize,
    /// How many of the kept pieces this connection was given.
    given: usize,
    /// Something was taken from the client.
    begun: bool,
    /// What stands behind a body whose length is known is read too.
    reads_trailers: bool,
}

impl RequestBody {
    pub(crate) fn new(promise: BodyPromise, body_bytes_max: u64, upstream: Option<&Arc<Upstream>>) -> Self {
        Self {
            promise,
            switched: false,
            upstream: upstream.filter(|_| promise != BodyPromise::None).cloned(),
            gathered: BytesMut::new(),
            is_over: promise == BodyPromise::None,
            trailers: None,
            left: body_bytes_max,
            kept: None,
            kept_bytes: 0,
            given: 0,
            begun: false,
            reads_trailers: false,
        }
    }

    /// Another connection is sent it from its start. What it is sent is kept if it `may_go_elsewhere`.
    pub(super) fn begin(&mut self, may_go_elsewhere: bool, reads_trailers: bool) {
        (self.given, self.reads_trailers) = (0, reads_trailers);
        if may_go_elsewhere && !self.begun && self.kept.is_none() {
            self.kept = Some(VecDeque::new());
        }
    }

    /// Whether all of it can be sent to another connection.
    pub(super) fn is_at_hand(&self) -> bool {
        !self.begun || self.kept.is_some()
    }

    /// Whether there is no body at all.
    pub(super) fn is_empty(&self) -> bool {
        self.is_over && !self.begun && self.trailers.is_none()
    }

    /// Whether it comes in chunks.
    pub(super) fn is_chunked(&self) -> bool {
        self.promise == BodyPromise::Unknown
    }

    /// Whether both sides have switched protocols.
    pub(super) fn is_switched(&self) -> bool {
        self.switched
    }

    /// Whether the client has hung up after a switch of protocols.
    pub(super) fn has_hung_up(&self) -> bool {
        self.switched && self.is_over
    }

    /// What stands behind it, once it has ended.
    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// Both sides have switched protocols: what comes from here on is no body and has no bound.
    pub(super) fn switch(&mut self) {
        *self = Self { switched: true, is_over: false, ..Self::new(BodyPromise::None, u64::MAX, None) };
    }

    /// It will not be sent again.
    pub(crate) fn forget(&mut self) {
        let rest = self.kept.take().map(|kept| kept.into_iter().skip(self.given)).into_iter().flatten();
        // What this connection was not given yet goes first.
        let rest: Vec<Bytes> = rest.collect();
        if !rest.is_empty() {
            let mut all = BytesMut::from(rest.concat().as_slice());
            all.extend_from_slice(&self.gathered);
            self.gathered = all;
        }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// When the client breaks off, or its body is larger than it may be.
    pub(super) fn poll_piece(
        &mut self,
        client: &mut impl Downstream,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<Option<Bytes>>> {
        if let Some(piece) = self.kept.as_ref().and_then(|kept| kept.get(self.given)) {
            self.given += 1;
            return Poll::Ready(Ok(Some(piece.clone())));
        }
        while !self.is_over && self.gathered.len() < GATHERED_MAX {
            match client.poll_body(&mut self.gathered, cx) {
                Poll::Ready(Ok(bytes @ 1..)) => self.count(bytes)?,
                // After a switch of protocols a client ends by leaving.
                Poll::Ready(_) if self.switched => self.is_over = true,
                Poll::Ready(Ok(_)) => match client.poll_trailers(cx)? {
                    Poll::Ready(trailers) => self.end(trailers),
                    Poll::Pending => break,
                },
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => break,
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
        if let BodyPromise::Length(left) = &mut self.promise {
            *left = left.saturating_sub(bytes as u64);
            self.is_over = *left == 0 && !self.reads_trailers;
        }
        // After a switch of protocols there is no bound.
        let bytes = if self.switched { 0 } else { bytes as u64 };
        let left = self.left.checked_sub(bytes);
        self.left =
            left.ok_or_else(|| Error::explain(ErrorType::HTTPStatus(413), "the body exceeds the route's limit"))?;
        Ok(())
    }

    fn end(&mut self, trailers: Option<HeaderMap>) {
        let rules = self.upstream.as_ref().map(|upstream| &upstream.settings.fields);
        let trailers = trailers.zip(rules).map(|(all, rules)| trailers::of_request(all, rules));
        self.trailers = trailers.filter(|all| !all.is_empty());
        self.is_over = true;
    }

    fn keep(&mut self, piece: &Bytes) {
        let Some(kept) = &mut self.kept else { return };
        self.kept_bytes += piece.len();
        if self.kept_bytes <= KEPT_BYTES_MAX {
            kept.push_back(piece.clone());
            self.given = kept.len();
        } else {
            self.kept = None;
        }
    }

    /// Whether this connection was given all of it, but for trailers.
    pub(super) fn is_given(&self) -> bool {
        self.is_over && self.gathered.is_empty() && self.kept.as_ref().is_none_or(|kept| kept.len() == self.given)
    }
}
