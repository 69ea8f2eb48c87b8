//! A circuit breaker for the store: three failures in a row open it, one success closes it.
//!
//! While it is open, no request waits for the store; a probe asks every [`PROBE_EVERY`] instead.

use std::time::Duration;

/// Failures in a row after which the store counts as unavailable.
pub(crate) const FAILURES_MAX: u32 = 3;

/// Pause between two probes of an unavailable store: with the learning period, recovery takes less than a second.
pub(crate) const PROBE_EVERY: Duration = Duration::from_millis(100);

/// The effect of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerChange {
    /// Nothing.
    None,
    /// The breaker opened: the store counts as unavailable.
    Opened,
    /// The breaker closed: the store is back.
    Closed,
}

/// The state of the store as its callers see it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
}

impl Breaker {
    /// Whether the store counts as unavailable.
    pub(crate) fn is_open(self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// Records the result of a call.
    pub(crate) fn record(&mut self, succeeded: bool) -> BreakerChange {
        let was_open = self.is_open();
        self.failures = if succeeded { 0 } else { self.failures.saturating_add(1) };
        match (was_open, self.is_open()) {
            (false, true) => BreakerChange::Opened,
            (true, false) => BreakerChange::Closed,
            _ => BreakerChange::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_at_the_third_failure_in_a_row_and_closes_at_the_first_success() {
        let mut breaker = Breaker::default();
        for (succeeded, change) in [
            (false, BreakerChange::None),
            (false, BreakerChange::None),
            (true, BreakerChange::None),
            (false, BreakerChange::None),
            (false, BreakerChange::None),
            (false, BreakerChange::Opened),
            (false, BreakerChange::None),
            (true, BreakerChange::Closed),
            (true, BreakerChange::None),
        ] {
            assert_eq!(breaker.record(succeeded), change);
        }
    }
}
