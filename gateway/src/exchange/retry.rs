//! Retries: what happens after an attempt without a response. One policy for both versions towards upstreams.
//!
//! [The decision](../../docs/develop/decisions/upstreams.md) has the reasons.

use std::borrow::Cow;

use http::Method;
use pingora::Error;
use tokio::time::Instant;

use super::upstream::Refused;
use upstreams::RetryBudget;

/// Attempts of one request, including the first. Attempts that an upstream refused without processing them ("unread")
/// are not among them.
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
    /// A connection that is opened from now on, with the body from its start: others may be about to close as well.
    NewConnection,
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
        before_request: bool,
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
    attempts: u32,
    unread: u32,
}

impl Retries {
    /// The next step after an attempt at an upstream with `several` addresses or one has failed.
    ///
    /// Retries multiply an upstream's traffic, so each is spent from the upstream's `budget`, unless the upstream has
    /// seen nothing of the request: no connection could be opened, or the connection had ended before.
    pub(super) fn after(&mut self, failure: Failure, method: &Method, several: bool, budget: &RetryBudget) -> Retry {
        if let Failure::Unsent | Failure::Refused(_) = failure {
            self.unread += 1;
            let may = self.unread <= UNREAD_MAX;
            return match failure {
                // The first retry after REFUSED_STREAM is free; an overloaded upstream gets further ones from the
                // budget only.
                Failure::Refused(Refused::Stream) if may && (self.unread == 1 || budget.spend()) => {
                    Retry::AnotherStream
                }
                Failure::Refused(Refused::Connection) | Failure::Unsent if may => Retry::NewConnection,
                _ => Retry::Never,
            };
        }
        self.attempts += 1;
        let is_first = self.attempts < ATTEMPTS_MAX;
        match failure {
            Failure::Unconnected if is_first && several => Retry::AnotherAddress,
            // Only safe methods: the upstream may have processed the request.
            Failure::Ended { before_request } if is_first && method.is_safe() && (before_request || budget.spend()) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_refused_unread_is_still_retried_after_its_connection_ended() {
        let (mut retries, budget) = (Retries::default(), RetryBudget::default());
        let goes_away = Failure::Refused(Refused::Connection);
        for (failure, expected) in [
            (goes_away, Retry::NewConnection),
            (Failure::Ended { before_request: true }, Retry::FreshConnection),
            (goes_away, Retry::NewConnection),
            (Failure::Unsent, Retry::NewConnection),
            (Failure::Refused(Refused::Stream), Retry::Never),
            (Failure::Ended { before_request: true }, Retry::Never),
        ] {
            assert_eq!(retries.after(failure, &Method::GET, false, &budget), expected, "{failure:?}");
        }
    }
}
