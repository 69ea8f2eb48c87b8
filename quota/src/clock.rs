//! The clock of another machine, kept by our monotonic clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use contract::time::UnixMillis;

/// What stands in place of another machine's clock before it was heard.
const NEVER_HEARD: i64 = i64::MIN;

/// The clock of another machine: what it last said, and when by our monotonic clock.
///
/// Its present time is what it said plus the time that has passed since. Our wall clock has no part in it, so a step of the
/// wall clock, an outage of the other machine, and both together change nothing.
#[derive(Debug)]
pub struct ForeignClock {
    /// What it said less our monotonic clock at that moment, in milliseconds: both in one word. [`NEVER_HEARD`] before.
    said_less_monotonic: AtomicI64,
}

impl Default for ForeignClock {
    fn default() -> Self {
        Self { said_less_monotonic: AtomicI64::new(NEVER_HEARD) }
    }
}

impl ForeignClock {
    /// The other machine says that it is `said` there; our monotonic clock shows `now`.
    pub fn hear(&self, said: UnixMillis, now: Duration) {
        self.said_less_monotonic.store(said.0.saturating_sub(millis(now)), Ordering::Relaxed);
    }

    /// What time it is there, when our monotonic clock shows `now`; `None` while the other machine was never heard.
    pub fn now(&self, now: Duration) -> Option<UnixMillis> {
        let said = self.said_less_monotonic.load(Ordering::Relaxed);
        (said != NEVER_HEARD).then(|| UnixMillis(said).plus(millis(now)))
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
    fn the_clock_of_another_machine_goes_on_by_our_monotonic_clock() {
        let clock = ForeignClock::default();
        assert_eq!(clock.now(Duration::from_secs(5)), None, "never heard");
        clock.hear(UnixMillis(1_700_000_000_000), Duration::from_secs(5));
        assert_eq!(clock.now(Duration::from_secs(5)), Some(UnixMillis(1_700_000_000_000)));
        assert_eq!(clock.now(Duration::from_hours(1)), Some(UnixMillis(1_700_003_595_000)), "an hour of silence");
        clock.hear(UnixMillis(1_700_000_060_000), Duration::from_secs(6));
        assert_eq!(clock.now(Duration::from_secs(7)), Some(UnixMillis(1_700_000_061_000)), "the last word counts");
    }
}
