//! The request rate of a bucket on this node: an integer moving average, so that every platform computes the same
//! leases.

use std::time::Duration;

/// The horizon of the average, in microseconds. Two seconds: long enough to treat 2 requests per second as a steady
/// flow, short enough to forget a burst before the next minute.
const HORIZON_MICROS: u64 = 2_000_000;
/// Weight of one event, so that slow flows do not vanish in rounding.
const EVENT: u64 = 1_000;

/// An exponentially weighted rate of events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    score: u64,
    at: Duration,
}

impl Rate {
    /// Counts one event.
    pub(crate) fn record(&mut self, now: Duration) {
        self.score = self.decayed(now).saturating_add(EVENT);
        self.at = self.at.max(now);
    }

    /// Events expected in `period` at the current rate.
    pub(crate) fn expected_in(&self, now: Duration, period: Duration) -> u32 {
        let events = u128::from(self.decayed(now)) * period.as_micros() / u128::from(EVENT * HORIZON_MICROS);
        u32::try_from(events).unwrap_or(u32::MAX)
    }

    /// The score decreases by `elapsed / horizon`: the first term of the exponential, accurate for frequent events, and
    /// zero after a whole horizon without events.
    fn decayed(&self, now: Duration) -> u64 {
        let elapsed = u64::try_from(now.saturating_sub(self.at).as_micros()).unwrap_or(u64::MAX);
        let keep = HORIZON_MICROS.saturating_sub(elapsed);
        let score = u128::from(self.score) * u128::from(keep) / u128::from(HORIZON_MICROS);
        u64::try_from(score).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(events: u32, gap: Duration) -> (Rate, Duration) {
        let mut rate = Rate::default();
        let mut now = Duration::ZERO;
        for _ in 0..events {
            now += gap;
            rate.record(now);
        }
        (rate, now)
    }

    #[test]
    fn a_steady_rate_is_measured_exactly() {
        for per_second in [5_u32, 50, 5_000] {
            let (rate, now) = after(per_second * 20, Duration::from_secs(1) / per_second);
            let seen = rate.expected_in(now, Duration::from_secs(10));
            let truth = per_second * 10;
            assert!(seen.abs_diff(truth) <= truth / 5, "{seen} for {truth}");
        }
    }

    #[test]
    fn one_request_a_second_is_a_low_rate_and_silence_is_zero() {
        let (rate, now) = after(60, Duration::from_secs(1));
        assert!(rate.expected_in(now, Duration::from_secs(1)) <= 1);
        assert_eq!(rate.expected_in(now + Duration::from_secs(2), Duration::from_hours(1)), 0);
    }

    #[test]
    fn a_clock_read_out_of_order_does_not_change_the_rate() {
        let (mut rate, now) = after(10, Duration::from_millis(10));
        rate.record(now.saturating_sub(Duration::from_millis(50)));
        assert!(rate.expected_in(now, Duration::from_secs(1)) >= 4);
    }
}
