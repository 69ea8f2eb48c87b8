//! Whether the store is worth asking: three failures in a row say no, one sign of life says yes.
//!
//! While the breaker is open no request waits for the store; a probe asks it every [`PROBE_EVERY`] instead.

use std::time::Duration;

/// Failures in a row after which the store counts as gone.
pub(crate) const FAILURES_MAX: u32 = 3;

/// Pause between two probes of a store that is gone: with the learning period, recovery stays within a second.
pub(crate) const PROBE_EVERY: Duration = Duration::from_millis(100);

/// What a result changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing.
    None,
    /// The store counts as gone from now on.
    Opened,
    /// The store is back.
    Closed,
}

/// The state of the store as its callers see it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
}

impl Breaker {
    /// Whether the store counts as gone.
    pub(crate) fn is_open(self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// Notes how a call ended.
    pub(crate) fn note(&mut self, succeeded: bool) -> Change {
        let was_open = self.is_open();
        self.failures = if succeeded { 0 } else { self.failures.saturating_add(1) };
        match (was_open, self.is_open()) {
            (false, true) => Change::Opened,
            (true, false) => Change::Closed,
            _ => Change::None,
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
            (false, Change::None),
            (false, Change::None),
            (true, Change::None),
            (false, Change::None),
            (false, Change::None),
            (false, Change::Opened),
            (false, Change::None),
            (true, Change::Closed),
            (true, Change::None),
        ] {
            assert_eq!(breaker.note(succeeded), change);
        }
    }
}
