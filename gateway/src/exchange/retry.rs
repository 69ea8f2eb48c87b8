//! Retries: what happens after an attempt without a response. One policy for both versions towards upstreams.
//!
//! [The decision](../../docs/develop/decisions/upstreams.md) has the reasons.

use std::borrow::Cow;
use std::time::Duration;

use h2::Reason;
use http::Method;
use pingora::Error;
use tokio::time::Instant;

use super::Gateway;
use upstreams::{ConnectError, DialError, Endpoint, RetryBudget, Upstream};

/// How often a request may be sent without a response. Attempts that an upstream refused without processing them
/// ("unread") are not among them.
const SENT_MAX: u32 = 2;

/// How often a request may be refused unread, or find its connection full or closing.
const UNREAD_MAX: u32 = 3;

/// The next step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// Another address: this one accepted no connection, or did not respond.
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
    /// A new connection ended before the first byte of the response, or none came in time.
    Unanswered,
    /// The upstream may have processed the request, or its response has begun.
    Unknown,
}

/// How an upstream refused a request unread. The request may be retried, whatever its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// `REFUSED_STREAM`: this request.
    Stream,
    /// GOAWAY: further requests on this connection.
    Connection,
}

impl Refused {
    /// The refusal in an error, if it is one.
    pub(super) fn of(error: &Error) -> Option<Self> {
        let cause = error.cause.as_deref()?.downcast_ref::<h2::Error>()?;
        let is_stream = cause.is_reset() && cause.reason() == Some(Reason::REFUSED_STREAM);
        match (cause.is_remote(), cause.is_go_away()) {
            (true, true) => Some(Self::Connection),
            (true, false) if is_stream => Some(Self::Stream),
            _ => None,
        }
    }
}

/// The addresses of an upstream, apart from the one whose attempt failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherAddresses {
    /// Their number.
    pub(super) count: usize,
    /// Whether one of them can be expected to respond, and the failure is the address's.
    pub(super) reliable: bool,
}

/// An attempt without a response.
pub(super) struct FailedAttempt {
    pub(super) failure: Failure,
    /// The error, from which the refusal for the client follows.
    pub(super) error: Box<Error>,
    /// The upstream had its time, and sent no byte of a response.
    pub(super) late: bool,
    /// The reason, for the operator.
    pub(super) reason: Option<Cow<'static, str>>,
    /// When the request was sent, or a later time; `None` if it was not sent.
    pub(super) sent_at: Option<Instant>,
}

impl FailedAttempt {
    /// Records what the failure says about its address, and returns the others. The attempt began at `began`.
    pub(super) fn record(
        &self,
        gateway: &Gateway,
        (upstream, endpoint): (&Upstream, &Endpoint),
        began: Duration,
    ) -> OtherAddresses {
        let now = gateway.clock.monotonic();
        let mut reliable = true;
        match self.failure {
            Failure::Unconnected => {
                endpoint.failed(now);
                gateway.pipeline.upstreams.look_up_now();
            }
            // A response that is late where others are not is the request's own matter.
            _ if self.late => reliable = endpoint.lost(true, began, now),
            Failure::Ended { before_request: false } | Failure::Unanswered => drop(endpoint.lost(false, began, now)),
            _ => {}
        }
        reliable = reliable && upstream.endpoints.has_reliable(endpoint, now);
        OtherAddresses { count: upstream.endpoints.len().saturating_sub(1), reliable }
    }
}

/// The retries of one request.
#[derive(Debug, Default)]
pub(super) struct Retries {
    unconnected: usize,
    sent: u32,
    unread: u32,
}

impl Retries {
    /// The next step after an attempt at an upstream that also has these `others`.
    ///
    /// Retries multiply an upstream's traffic. So each is spent from the upstream's `budget`, unless the upstream has
    /// seen nothing of the request (no connection could be opened, or the connection had ended before), or another
    /// address is reliable: then the upstream is not overloaded, but this address has failed.
    pub(super) fn after(
        &mut self,
        failure: Failure,
        method: &Method,
        others: OtherAddresses,
        budget: &RetryBudget,
    ) -> Retry {
        match failure {
            Failure::Unsent | Failure::Refused(_) => self.unread += 1,
            Failure::Unconnected => self.unconnected += 1,
            Failure::Ended { .. } | Failure::Unanswered | Failure::Unknown => self.sent += 1,
        }
        // Only safe methods: the upstream may have processed the request.
        let may_repeat = self.sent < SENT_MAX && method.is_safe();
        match failure {
            // The first retry after REFUSED_STREAM is free; an overloaded upstream gets further ones from the budget
            // only.
            Failure::Refused(Refused::Stream) if self.unread == 1 || self.unread <= UNREAD_MAX && budget.spend() => {
                Retry::AnotherStream
            }
            Failure::Refused(Refused::Connection) | Failure::Unsent if self.unread <= UNREAD_MAX => {
                Retry::NewConnection
            }
            // Nothing was sent: every address that works is tried.
            Failure::Unconnected if self.unconnected <= others.count && (self.unconnected == 1 || others.reliable) => {
                Retry::AnotherAddress
            }
            Failure::Ended { before_request }
                if may_repeat && (before_request || others.reliable || budget.spend()) =>
            {
                Retry::FreshConnection
            }
            Failure::Unanswered if may_repeat && others.count > 0 && (others.reliable || budget.spend()) => {
                Retry::AnotherAddress
            }
            _ => Retry::Never,
        }
    }
}

impl From<ConnectError> for FailedAttempt {
    fn from(error: ConnectError) -> Self {
        let (failure, DialError { kind, reason }) = match error {
            ConnectError::Unconnected(error) => (Failure::Unconnected, error),
            ConnectError::NotHttp2(error) => (Failure::Unsent, error),
        };
        let error = Error::explain(kind.error_type(), "connecting to the upstream").into_up();
        Self { failure, reason, ..error.into() }
    }
}

impl From<Box<Error>> for FailedAttempt {
    fn from(error: Box<Error>) -> Self {
        Self { failure: Failure::Unknown, error, late: false, reason: None, sent_at: None }
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
            let alone = OtherAddresses { count: 0, reliable: false };
            assert_eq!(retries.after(failure, &Method::GET, alone, &budget), expected, "{failure:?}");
        }
    }

    #[test]
    fn with_a_reliable_address_no_safe_request_fails_and_none_that_was_sent_is_repeated_twice() {
        let budget = RetryBudget::default();
        while budget.spend() {}
        let others = |reliable| OtherAddresses { count: 3, reliable };
        let (ended, late) = (Failure::Ended { before_request: false }, Failure::Unanswered);
        for (failures, method, reliable, expected) in [
            (&[Failure::Unconnected; 3][..], Method::POST, true, Retry::AnotherAddress),
            (&[Failure::Unconnected; 4], Method::POST, true, Retry::Never),
            (&[Failure::Unconnected; 2], Method::GET, false, Retry::Never),
            (&[Failure::Unconnected, ended], Method::GET, true, Retry::FreshConnection),
            (&[Failure::Unconnected, late], Method::GET, true, Retry::AnotherAddress),
            (&[ended], Method::GET, false, Retry::Never),
            (&[late], Method::GET, false, Retry::Never),
            (&[ended], Method::POST, true, Retry::Never),
            (&[late], Method::DELETE, true, Retry::Never),
            (&[late, late], Method::GET, true, Retry::Never),
            (&[Failure::Unknown], Method::GET, true, Retry::Never),
        ] {
            let mut retries = Retries::default();
            let steps = failures.iter().map(|failure| retries.after(*failure, &method, others(reliable), &budget));
            assert_eq!(steps.last(), Some(expected), "{method} {failures:?} {reliable}");
        }
    }
}
