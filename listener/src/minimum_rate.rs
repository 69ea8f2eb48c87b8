//! The minimum rate of a peer: an allowance of waiting time that its bytes refill.
//!
//! Waiting for the peer spends the allowance, every byte earns `1 / rate` seconds, and at most `idle` can be saved. One
//! rule gives three limits: a grace period at the start, a longest pause, and a minimum average rate. A second
//! allowance, without a maximum, holds the whole message to a higher rate, so that a peer cannot be slow for hours.
//! Time in which our side is slow (an upstream that does not read) is not counted: the caller starts and stops the
//! clock.
//!
//! Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// The minimum rate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinimumRate {
    /// Allowance at the start.
    pub grace: Duration,
    /// Maximum of the allowance: the longest pause.
    pub idle: Duration,
    /// Bytes per second that keep the allowance constant.
    pub bytes_per_second: u32,
    /// The rate of the whole message.
    pub whole: Option<WholeMessageRate>,
}

/// The rate of a whole message: waiting may last the grace period and the time that its bytes earn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeMessageRate {
    /// Allowance at the start.
    pub grace: Duration,
    /// Bytes per second that keep the allowance constant.
    pub bytes_per_second: u32,
}

/// Measures one direction of one message.
#[derive(Clone, Copy, Debug)]
pub struct MinimumRateTimer {
    pause: Allowance,
    whole: Option<Allowance>,
    waiting_since: Option<Instant>,
}

/// The remaining waiting time.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: Duration,
    left_max: Duration,
    bytes_per_second: u32,
}

impl MinimumRateTimer {
    /// Starts at the beginning of a message.
    pub fn new(limits: MinimumRate) -> Self {
        let MinimumRate { grace, idle, bytes_per_second, whole } = limits;
        let pause = Allowance { left: grace.min(idle), left_max: idle, bytes_per_second };
        let whole = whole.map(|WholeMessageRate { grace, bytes_per_second }| Allowance {
            left: grace,
            left_max: Duration::MAX,
            bytes_per_second,
        });
        Self { pause, whole, waiting_since: None }
    }

    /// Starts waiting for the peer; returns the deadline.
    pub fn wait(&mut self, now: Instant) -> Instant {
        let left = self.whole.map_or(self.pause.left, |whole| whole.left.min(self.pause.left));
        *self.waiting_since.get_or_insert(now) + left
    }

    /// The peer moved `bytes`.
    pub fn moved(&mut self, bytes: usize, now: Instant) {
        let waited = self.waited(now);
        self.pause.spend(waited, self.pause.worth(bytes));
        if let Some(whole) = &mut self.whole {
            whole.spend(waited, whole.worth(bytes));
        }
    }

    /// Adds time that other messages' bytes earned for this one. It does not count for the whole-message rate.
    pub fn earned(&mut self, time: Duration, now: Instant) {
        let waited = self.waited(now);
        self.pause.spend(waited, time);
        if let Some(whole) = &mut self.whole {
            whole.spend(waited, Duration::ZERO);
        }
    }

    fn waited(&mut self, now: Instant) -> Duration {
        self.waiting_since.take().map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

impl Allowance {
    fn worth(&self, bytes: usize) -> Duration {
        let micros = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(1_000_000);
        Duration::from_micros(micros / u64::from(self.bytes_per_second.max(1)))
    }

    fn spend(&mut self, waited: Duration, earned: Duration) {
        self.left = self.left.saturating_sub(waited).saturating_add(earned).min(self.left_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: MinimumRate = MinimumRate {
        grace: Duration::from_secs(5),
        idle: Duration::from_secs(15),
        bytes_per_second: 500,
        whole: None,
    };

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    /// Sends `bytes` every `millis` until the allowance is spent; returns the number of sends in time.
    fn sends(bytes: usize, millis: u64, most: u32) -> u32 {
        let (mut timer, mut now) = (MinimumRateTimer::new(LIMITS), Instant::now());
        for sent in 0..most {
            let until = timer.wait(now);
            now = after(now, millis);
            if now > until {
                return sent;
            }
            timer.moved(bytes, now);
        }
        most
    }

    #[test]
    fn a_peer_at_the_minimum_rate_may_continue_for_ever_and_a_slower_one_may_not() {
        assert_eq!(sends(500, 1_000, 10_000), 10_000);
        assert_eq!(sends(5_000, 10_000, 10), 0, "the grace is five seconds");
        // 400 bytes a second: every second costs 0.2 s of five.
        assert!((20..=26).contains(&sends(400, 1_000, 10_000)));
        assert_eq!(sends(1, 1_000, 10_000), 5);
    }

    #[test]
    fn a_whole_message_has_a_grace_period_and_a_higher_rate() {
        let whole = Some(WholeMessageRate { grace: Duration::from_mins(2), bytes_per_second: 8_192 });
        let (mut timer, start) = (MinimumRateTimer::new(MinimumRate { whole, ..LIMITS }), Instant::now());
        let (mut now, mut sent) = (start, 0_u64);
        while timer.wait(now) >= after(now, 1_000) {
            now = after(now, 1_000);
            timer.moved(600, now);
            sent += 600;
        }
        let allowed = Duration::from_mins(2) + Duration::from_secs(1) * u32::try_from(sent / 8_192).unwrap();
        assert!(
            now - start <= allowed && allowed.checked_sub(now - start).unwrap() <= Duration::from_secs(2),
            "{:?}",
            now - start
        );
        // The allowance that a fast beginning earned lasts for a while, and ends.
        let mut timer = MinimumRateTimer::new(MinimumRate { whole, ..LIMITS });
        timer.moved(8_192 * 60, start);
        let mut now = start;
        while timer.wait(now) >= after(now, 10_000) {
            now = after(now, 10_000);
            timer.moved(5_000, now);
        }
        assert!((180..=200).contains(&(now - start).as_secs()), "{:?}", now - start);
    }

    #[test]
    fn saved_time_never_exceeds_the_longest_pause() {
        let (mut timer, start) = (MinimumRateTimer::new(LIMITS), Instant::now());
        timer.moved(100_000_000, start);
        assert_eq!(timer.wait(start), after(start, 15_000));
    }

    #[test]
    fn our_own_slowness_costs_the_peer_nothing() {
        let (mut timer, start) = (MinimumRateTimer::new(LIMITS), Instant::now());
        timer.wait(start);
        timer.moved(500, after(start, 1_000));
        // A minute passes without waiting for the peer.
        assert_eq!(timer.wait(after(start, 61_000)), after(start, 66_000));
    }
}
