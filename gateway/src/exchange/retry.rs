//! Retries: what a request does after an attempt that brought no response. One policy for both versions towards upstreams.
//!
//! [The decision](../../docs/develop/decisions/upstreams.md) has the reasons.

use std::borrow::Cow;

use http::Method;
use pingora::Error;
use tokio::time::Instant;

use super::upstream::Refused;
use crate::upstreams::Upstream;

/// Attempts of one request, the first one included. What an upstream refuses unread is counted apart.
const ATTEMPTS_MAX: u32 = 2;

/// How often a request may be refused unread, or find that its connection takes no more.
const UNREAD_MAX: u32 = 3;

/// What a request does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// It goes to another address: this one took no connection.
    AnotherAddress,
    /// It goes over a connection that was opened, or heard, after it was sent.
    FreshConnection,
    /// It goes over another stream, its body from the start.
    AnotherStream,
    /// The client is told what happened.
    Never,
}

/// Why an attempt brought no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No connection came about.
    Unconnected,
    /// The connection took no request. Nothing was sent.
    Unsent,
    /// The upstream refused it unread.
    Refused(Refused),
    /// A connection that had served others ended before a byte of the response came.
    Ended {
        /// It was reset before a byte came back, or a PING was not answered: it had ended before the request was sent.
        unheard: bool,
    },
    /// The upstream may have carried it out.
    Unknown,
}

/// An attempt that brought no response.
pub(super) struct Failed {
    pub(super) failure: Failure,
    /// What the client is told of it.
    pub(super) error: Box<Error>,
    /// What the operator is told of it.
    pub(super) reason: Option<Cow<'static, str>>,
    /// When the request was sent, or after that; `None` where it was not.
    pub(super) sent_at: Option<Instant>,
}

/// The retries of one request.
#[derive(Debug, Default)]
pub(super) struct Retries {
    unread: u32,
}

impl Retries {
    /// What a request does after its attempt number `attempts` has failed.
    ///
    /// A retry multiplies an upstream's traffic, so it is spent from the budget of the upstream, except where the upstream
    /// has seen nothing of the request: no connection came about, or its connection had ended before.
    pub(super) fn after(&mut self, failure: Failure, attempts: u32, method: &Method, upstream: &Upstream) -> Retry {
        let is_first = attempts < ATTEMPTS_MAX;
        match failure {
            Failure::Unconnected if is_first && upstream.endpoints.len() > 1 => Retry::AnotherAddress,
            Failure::Unsent | Failure::Refused(_) => {
                self.unread += 1;
                // An upstream that refuses requests because it has too many gets no more than it can refuse.
                let is_free = failure != Failure::Refused(Refused::Stream) || self.unread == 1;
                let may = self.unread <= UNREAD_MAX && (is_free || upstream.retries.spend());
                if may { Retry::AnotherStream } else { Retry::Never }
            }
            // The upstream may have carried out a request of another method.
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
