//! Retries: what happens after an attempt without a response. One policy for both versions towards upstreams.
//!
//! [The decision](../../docs/develop/decisions/upstreams.md) has the reasons.

use std::borrow::Cow;

use http::Method;
use pingora::Error;
use tokio::time::Instant;

use super::upstream::Refused;
use crate::upstreams::Upstream;

/// Attempts of one request, including the first. Attempts that an upstream refused without processing them ("unread")
/// are counted separately.
const ATTEMPTS_MAX: u32 = 2;

/// How often a request may be refused unread, or find its connection full or closing.
const UNREAD_MAX: u32 = 3;

/// The next step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// Another address: this one accepted no connection.
    AnotherAddress,
    /// A connection that was opened, or received bytes, after the request was sent.
    FreshConnection,
    /// Another stream, with the body from its start.
    AnotherStream,
    /// None: the client gets a refusal.
    Never,
}

/// Why an attempt has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No connection could be opened.
    Unconnected,
    /// The connection accepted no request. Nothing was sent.
    Unsent,
    /// The upstream refused the request unread.
    Refused(Refused),
    /// A reused connection ended before the first byte of the response.
    Ended {
        /// The connection was reset without a byte, or a PING was not answered: it had ended before the request was
        /// sent.
        unheard: bool,
    },
    /// The upstream may have processed the request.
    Unknown,
}

/// An attempt without a response.
pub(super) struct Failed {
    pub(super) failure: Failure,
    /// The error, from which the refusal for the client follows.
    pub(super) error: Box<Error>,
    /// The reason, for the operator.
    pub(super) reason: Option<Cow<'static, str>>,
    /// When the request was sent, or a later time; `None` if it was not sent.
    pub(super) sent_at: Option<Instant>,
}

/// The retries of one request.
#[derive(Debug, Default)]
pub(super) struct Retries {
    unread: u32,
}

impl Retries {
    /// The next step after attempt number `attempts` has failed.
    ///
    /// Retries multiply an upstream's traffic, so each is spent from the upstream's budget, unless the upstream has
    /// seen nothing of the request: no connection could be opened, or the connection had ended before.
    pub(super) fn after(&mut self, failure: Failure, attempts: u32, method: &Method, upstream: &Upstream) -> Retry {
        let is_first = attempts < ATTEMPTS_MAX;
        match failure {
            Failure::Unconnected if is_first && upstream.endpoints.len() > 1 => Retry::AnotherAddress,
            Failure::Unsent | Failure::Refused(_) => {
                self.unread += 1;
                // The first retry after REFUSED_STREAM is free; an overloaded upstream gets further ones from the
                // budget only.
                let is_free = failure != Failure::Refused(Refused::Stream) || self.unread == 1;
                let may = self.unread <= UNREAD_MAX && (is_free || upstream.retries.spend());
                if may { Retry::AnotherStream } else { Retry::Never }
            }
            // Only safe methods: the upstream may have processed the request.
            Failure::Ended { unheard } if is_first && method.is_safe() && (unheard || upstream.retries.spend()) => {
                Retry::FreshConnection
            }
            _ => Retry::Never,
        }
    }
}

impl From<Box<Error>> for Failed {
    fn from(error: Box<Error>) -> Self {
        Self { failure: Failure::Unknown, error, reason: None, sent_at: None }
    }
}
