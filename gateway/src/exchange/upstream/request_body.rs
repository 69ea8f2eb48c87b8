//! The body of a request as it arrives from the client, for either version towards the upstream.
//!
//! If the request may have to be sent over another connection, its first bytes are kept until the response begins: an
//! upstream may refuse a request unread, and a connection may have ended before.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use pingora::{Error, ErrorType};
use tokio::time::Instant;

use super::trailers;
use crate::exchange::downstream::Downstream;
use upstreams::AnnouncedBody;
use upstreams::Upstream;

/// Largest piece, in bytes, that is collected while more bytes are available.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// Bytes that are kept for a retry.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// A request body that is being read from the client.
#[expect(clippy::struct_excessive_bools, reason = "independent states")]
pub(crate) struct RequestBody {
    announced: AnnouncedBody,
    /// Both sides have switched protocols: the bytes are not a body.
    switched: bool,
    /// The upstream, whose rules apply to the trailers; `None` without a body.
    upstream: Option<Arc<Upstream>>,
    collected: BytesMut,
    /// Nothing more will be read from the client.
    is_over: bool,
    trailers: Option<HeaderMap>,
    /// Bytes left of the limit.
    left: u64,
    /// The pieces so far, if they are kept; `None` also if they exceed the bound.
    kept: Option<VecDeque<Bytes>>,
    kept_bytes: usize,
    /// Number of kept pieces that this attempt has taken.
    given: usize,
    /// Something was read from the client.
    begun: bool,
    /// Trailers are read also after a body of known length.
    reads_trailers: bool,
    /// Since when the upstream could take more and the client sent nothing, and how long that was before.
    awaited_since: Option<Instant>,
    awaited: Duration,
}

impl RequestBody {
    pub(crate) fn new(announced: AnnouncedBody, body_bytes_max: u64, upstream: Option<&Arc<Upstream>>) -> Self {
        Self {
            announced,
            switched: false,
            upstream: upstream.filter(|_| announced != AnnouncedBody::None).cloned(),
            collected: BytesMut::new(),
            is_over: announced == AnnouncedBody::None,
            trailers: None,
            left: body_bytes_max,
            kept: None,
            kept_bytes: 0,
            given: 0,
            begun: false,
            reads_trailers: false,
            awaited_since: None,
            awaited: Duration::ZERO,
        }
    }

    /// Starts an attempt with the body from its start. The body is kept for a retry if it `may_go_elsewhere`.
    pub(super) fn begin(&mut self, may_go_elsewhere: bool, reads_trailers: bool) {
        (self.given, self.reads_trailers) = (0, reads_trailers);
        if may_go_elsewhere && !self.begun && self.kept.is_none() {
            self.kept = Some(VecDeque::new());
        }
    }

    /// Whether all of it can be sent over another connection.
    pub(super) fn is_at_hand(&self) -> bool {
        !self.begun || self.kept.is_some()
    }

    /// Whether there is no body.
    pub(super) fn is_empty(&self) -> bool {
        self.is_over && !self.begun && self.trailers.is_none()
    }

    /// Whether its length is unknown, so that it is sent in chunks.
    pub(super) fn is_chunked(&self) -> bool {
        self.announced == AnnouncedBody::Unknown
    }

    /// Whether both sides have switched protocols.
    pub(super) fn is_switched(&self) -> bool {
        self.switched
    }

    /// Whether the client has disconnected after a switch of protocols.
    pub(super) fn has_hung_up(&self) -> bool {
        self.switched && self.is_over
    }

    /// Its trailers, once it has ended.
    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// Both sides have switched protocols: the bytes from here on are not a body and have no limit.
    pub(super) fn switch(&mut self) {
        *self = Self { switched: true, is_over: false, ..Self::new(AnnouncedBody::None, u64::MAX, None) };
    }

    /// It will not be sent again: drops the kept pieces.
    pub(crate) fn forget(&mut self) {
        let rest = self.kept.take().map(|kept| kept.into_iter().skip(self.given)).into_iter().flatten();
        // Kept pieces that this attempt has not taken yet come first.
        let rest: Vec<Bytes> = rest.collect();
        if !rest.is_empty() {
            let mut all = BytesMut::from(rest.concat().as_slice());
            all.extend_from_slice(&self.collected);
            self.collected = all;
        }
    }

    /// How long only the client was awaited, before a switch of protocols.
    pub(crate) fn client_awaited(&self) -> Duration {
        self.awaited + self.awaited_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// If the client breaks off, or its body exceeds the limit.
    pub(super) fn poll_piece(
        &mut self,
        client: &mut impl Downstream,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<Option<Bytes>>> {
        let polled = self.poll_next(client, cx);
        if self.switched {
            return polled;
        }
        if polled.is_pending() {
            self.awaited_since.get_or_insert_with(Instant::now);
        } else {
            (self.awaited, self.awaited_since) = (self.client_awaited(), None);
        }
        polled
    }

    fn poll_next(
        &mut self,
        client: &mut impl Downstream,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<Option<Bytes>>> {
        if let Some(piece) = self.kept.as_ref().and_then(|kept| kept.get(self.given)) {
            self.given += 1;
            return Poll::Ready(Ok(Some(piece.clone())));
        }
        while !self.is_over && self.collected.len() < PIECE_BYTES_MAX {
            match client.poll_body(&mut self.collected, cx) {
                Poll::Ready(Ok(bytes @ 1..)) => self.count(bytes)?,
                // After a switch of protocols the end is the end of the connection.
                Poll::Ready(_) if self.switched => self.is_over = true,
                Poll::Ready(Ok(_)) => match client.poll_trailers(cx)? {
                    Poll::Ready(trailers) => self.end(trailers),
                    Poll::Pending => break,
                },
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => break,
            }
        }
        if self.collected.is_empty() {
            return if self.is_over { Poll::Ready(Ok(None)) } else { Poll::Pending };
        }
        let piece = self.collected.split().freeze();
        self.keep(&piece);
        Poll::Ready(Ok(Some(piece)))
    }

    fn count(&mut self, bytes: usize) -> pingora::Result<()> {
        self.begun = true;
        if let AnnouncedBody::Length(left) = &mut self.announced {
            *left = left.saturating_sub(bytes as u64);
            self.is_over = *left == 0 && !self.reads_trailers;
        }
        // After a switch of protocols there is no limit.
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

    /// Whether this attempt has taken all of it, except trailers.
    pub(super) fn is_given(&self) -> bool {
        self.is_over && self.collected.is_empty() && self.kept.as_ref().is_none_or(|kept| kept.len() == self.given)
    }
}
