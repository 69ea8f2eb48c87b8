//! Time limits for waiting for an upstream and its client.

use std::task::{Context, Poll};
use std::time::Duration;

use pingora::{Error, ErrorType};
use tokio::time::Instant;

use crate::exchange::downstream::Downstream;

/// A gRPC stream ends after this time without a byte.
const SILENCE_MAX: Duration = Duration::from_hours(1);

/// The event for which a request in progress waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The client: more of the request body.
    Client,
    /// The upstream: it must accept bytes.
    Upstream,
    /// The response: the request is sent.
    Response,
    /// A byte from either side, after a switch of protocols.
    Either,
    /// Nothing: the client has ended the connection after a switch of protocols.
    Nothing,
}

/// The time limits of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimits {
    /// The longest wait for one read or write.
    each: Duration,
    /// The deadline of the whole request.
    ends: Option<Instant>,
}

impl WaitLimits {
    pub(crate) fn new(each: Duration, ends: Option<Instant>) -> Self {
        Self { each, ends }
    }

    /// Allows long silence.
    pub(crate) fn may_be_silent(&mut self) {
        self.each = SILENCE_MAX;
    }

    /// Whether the deadline of the whole request has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.ends.is_some_and(|ends| ends <= Instant::now())
    }

    /// Ready when a side is too late. `waiting` keeps the present wait and its deadline between calls; `moved` starts a
    /// new wait.
    pub(crate) fn poll(
        &self,
        waiting: &mut Option<(Waits, Instant)>,
        waits: Waits,
        moved: bool,
        client: &mut impl Downstream,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>> {
        let until = match *waiting {
            // A client's minimum rate is checked where its body is read.
            _ if waits == Waits::Client => None,
            Some((known, until)) if known == waits && !moved => Some(until),
            _ => Some(waiting.insert((waits, Instant::now() + self.each)).1),
        };
        let Some(until) = until.into_iter().chain(self.ends).min() else { return Poll::Pending };
        client.poll_deadline(until, cx).map(|()| late(waits))
    }
}

/// The error of a client that has disconnected.
pub(crate) fn client_left<T>() -> pingora::Result<T> {
    Err(Error::explain(ErrorType::ConnectionClosed, "the client disconnected").into_down())
}

/// The error of the side that is too late.
fn late(waits: Waits) -> pingora::Result<()> {
    Err(match waits {
        Waits::Either | Waits::Nothing => return Ok(()),
        Waits::Client => Error::explain(ErrorType::ReadTimedout, "the request as a whole took too long").into_down(),
        Waits::Upstream => Error::explain(ErrorType::WriteTimedout, "writing to the upstream").into_up(),
        Waits::Response => Error::explain(ErrorType::ReadTimedout, "reading from the upstream").into_up(),
    })
}
