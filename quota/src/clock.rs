//! The clock of another machine, continued by the local monotonic clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use contract::time::UnixMillis;

/// The value before the other machine's clock was first received.
const NEVER_RECEIVED: i64 = i64::MIN;

/// The clock of another machine: its last reported time, and when it was received by the local monotonic clock.
///
/// Its current time is the reported time plus the time elapsed since. The local wall clock is not used, so a step of
/// the wall clock, an outage of the other machine, or both change nothing.
#[derive(Debug)]
pub struct ForeignClock {
    /// The reported time minus the monotonic time at which it was received, in milliseconds; [`NEVER_RECEIVED`] before
    /// the first.
    said_less_monotonic: AtomicI64,
}

impl Default for ForeignClock {
    fn default() -> Self {
        Self { said_less_monotonic: AtomicI64::new(NEVER_RECEIVED) }
    }
}

impl ForeignClock {
    /// Records that the other machine reported `said` when the local monotonic clock showed `now`.
    pub fn receive(&self, said: UnixMillis, now: Duration) {
        self.said_less_monotonic.store(said.0.saturating_sub(millis(now)), Ordering::Relaxed);
    }

    /// The other machine's time when the local monotonic clock shows `now`; `None` before the first report.
    pub fn now(&self, now: Duration) -> Option<UnixMillis> {
        let said = self.said_less_monotonic.load(Ordering::Relaxed);
        (said != NEVER_RECEIVED).then(|| UnixMillis(said).plus(millis(now)))
    }
}

/// A span in whole milliseconds.
fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stores_clock_continues_by_our_monotonic_clock() {
        let clock = ForeignClock::default();
        assert_eq!(clock.now(Duration::from_secs(5)), None, "never received");
        clock.receive(UnixMillis(1_700_000_000_000), Duration::from_secs(5));
        assert_eq!(clock.now(Duration::from_secs(5)), Some(UnixMillis(1_700_000_000_000)));
        assert_eq!(clock.now(Duration::from_hours(1)), Some(UnixMillis(1_700_003_595_000)), "an hour of silence");
        clock.receive(UnixMillis(1_700_000_060_000), Duration::from_secs(6));
        assert_eq!(clock.now(Duration::from_secs(7)), Some(UnixMillis(1_700_000_061_000)), "the last word counts");
    }
}
