//! Limits the log lines of the gateway's own answers: refusals and redirects, which reached no upstream.
//!
//! Such answers cost a client little, and a flood of them would displace everything else from a bounded log. Therefore
//! the lines per second are limited, separately for authenticated and other callers, so that a flood without keys
//! hides no customer. All requests are counted. A request that reached an upstream always has its line.

use std::time::Duration;

use chassis::metrics::{self, IntCounter, Registry};
use parking_lot::Mutex;

/// Lines per second on average.
const LINES_PER_SECOND: u32 = 100;

/// Lines at once after a quiet period.
const LINES_AT_ONCE_MAX: u32 = 1_000;

/// The budgets of log lines.
pub(super) struct OwnAnswers {
    unauthenticated: Mutex<LineBudget>,
    authenticated: Mutex<LineBudget>,
    unwritten: IntCounter,
}

/// Lines that may be written now, and the time of the last check.
struct LineBudget {
    lines: f64,
    at: Duration,
}

impl OwnAnswers {
    pub(super) fn new(registry: &Registry) -> anyhow::Result<Self> {
        let budget = || Mutex::new(LineBudget { lines: f64::from(LINES_AT_ONCE_MAX), at: Duration::ZERO });
        let unwritten = metrics::counter(
            registry,
            "edge_log_unwritten_lines_total",
            "Refusals and redirects without a log line, because there were too many.",
        )?;
        Ok(Self { unauthenticated: budget(), authenticated: budget(), unwritten })
    }

    /// Whether another line may be written; counts it if not.
    pub(super) fn may_be_written(&self, is_authenticated: bool, now: Duration) -> bool {
        let budget = if is_authenticated { &self.authenticated } else { &self.unauthenticated };
        let written = budget.lock().take(now);
        if !written {
            self.unwritten.inc();
        }
        written
    }
}

impl LineBudget {
    fn take(&mut self, now: Duration) -> bool {
        let grown = now.saturating_sub(self.at).as_secs_f64() * f64::from(LINES_PER_SECOND);
        self.lines = (self.lines + grown).min(f64::from(LINES_AT_ONCE_MAX));
        self.at = self.at.max(now);
        let written = self.lines >= 1.0;
        if written {
            self.lines -= 1.0;
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_without_keys_is_bounded_and_hides_no_authenticated_caller() {
        let answers = OwnAnswers::new(&Registry::new()).unwrap();
        let mut written = 0;
        // A minute with a thousand answers per second.
        for millis in 0..60_000 {
            written += u32::from(answers.may_be_written(false, Duration::from_millis(millis)));
        }
        let most = LINES_AT_ONCE_MAX + 60 * LINES_PER_SECOND;
        assert!((most - LINES_PER_SECOND..=most).contains(&written), "{written} lines");
        assert_eq!(answers.unwritten.get(), 60_000 - u64::from(written));
        assert!(answers.may_be_written(true, Duration::from_mins(1)));
        let later = Duration::from_hours(1);
        let at_once = (0..5_000).filter(|_| answers.may_be_written(false, later)).count();
        assert_eq!(at_once, LINES_AT_ONCE_MAX as usize, "the saved budget is bounded");
    }
}
