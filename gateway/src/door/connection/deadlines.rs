//! The time that the request in hand has over HTTP/1, and its upstream's part of it: set by whoever serves it, kept by
//! the stream.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::Connection;

impl Connection {
    /// HTTP/1: the request in hand has this long as a whole; `None`: as long as it takes. A body that is not there by
    /// then fails the proxy's read, with `RequestTimeout`; a response, with `UpstreamTimeout`.
    pub fn grant(&self, time: Option<Duration>) {
        self.ends_by.store(time.map_or(0, |time| self.millis_in(time)), Ordering::Release);
    }

    /// HTTP/1: the upstream has this long to answer the request in hand; then the proxy's look at its client fails, and
    /// [`Self::refusal`] is `UpstreamTimeout`. For switches of protocols, whose silence afterwards is nobody's fault, and
    /// after bodies, in which pauses are the client's: there the proxy's own patience with the upstream must be long.
    pub fn await_answer(&self, patience: Duration) {
        self.patience.store(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
        self.answer_by.store(self.millis_in(patience), Ordering::Release);
    }

    /// The client has taken something of the response: the wait for it was not the upstream's.
    pub(crate) fn client_took(&self) {
        if self.is_awaiting() {
            let patience = Duration::from_millis(self.patience.load(Ordering::Acquire));
            self.answer_by.store(self.millis_in(patience), Ordering::Release);
        }
    }

    /// The moment after this time, in milliseconds after the connection was opened; never 0.
    fn millis_in(&self, time: Duration) -> u64 {
        u64::try_from((self.opened.elapsed() + time).as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Whether the time of [`Self::await_answer`] runs.
    pub fn is_awaiting(&self) -> bool {
        self.answer_by.load(Ordering::Acquire) > 0
    }

    /// The upstream has answered in the time of [`Self::await_answer`].
    pub fn answered(&self) {
        self.answer_by.store(0, Ordering::Release);
    }

    /// The deadline of [`Self::await_answer`].
    pub(crate) fn answer_by(&self) -> Option<Instant> {
        let awaited = self.moment(&self.answer_by)?;
        Some(self.ends_by().map_or(awaited, |ends| ends.min(awaited)))
    }

    /// The end of the time that [`Self::grant`] gave.
    pub(crate) fn ends_by(&self) -> Option<Instant> {
        self.moment(&self.ends_by)
    }

    fn moment(&self, after_opened: &AtomicU64) -> Option<Instant> {
        let millis = after_opened.load(Ordering::Acquire);
        (millis > 0).then(|| self.opened + Duration::from_millis(millis))
    }
}
