//! How slow a peer may be: an allowance of waiting that its bytes earn back.
//!
//! Waiting for the peer spends the allowance, every byte earns `1 / rate` seconds, and no more than `idle` can be saved
//! up. One rule gives all three limits: a grace at the start, a longest pause, and a minimum average rate. Time in which
//! we are the slow side (an upstream that does not read) is not counted: the caller starts and stops the clock.
//!
//! Pure: moments are arguments.

use std::time::Duration;

use tokio::time::Instant;

/// What a peer is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceLimits {
    /// Allowance at the start.
    pub grace: Duration,
    /// The most that can be saved up: the longest pause.
    pub idle: Duration,
    /// Bytes per second that keep the allowance level.
    pub bytes_per_second: u32,
}

/// One direction of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    limits: PaceLimits,
    allowance: Duration,
    waiting_since: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(limits: PaceLimits) -> Self {
        Self { limits, allowance: limits.grace.min(limits.idle), waiting_since: None }
    }

    /// We wait for the peer. Says until when.
    pub(crate) fn wait(&mut self, now: Instant) -> Instant {
        *self.waiting_since.get_or_insert(now) + self.allowance
    }

    /// The peer has moved so many bytes.
    pub(crate) fn moved(&mut self, bytes: usize, now: Instant) {
        if let Some(since) = self.waiting_since.take() {
            self.allowance = self.allowance.saturating_sub(now.saturating_duration_since(since));
        }
        let earned = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(1_000_000)
            / u64::from(self.limits.bytes_per_second.max(1));
        self.allowance = self.allowance.saturating_add(Duration::from_micros(earned)).min(self.limits.idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PaceLimits =
        PaceLimits { grace: Duration::from_secs(5), idle: Duration::from_secs(15), bytes_per_second: 500 };

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    /// Sends `bytes` every `millis` until the allowance is spent; the number of sends that were in time.
    fn sends(bytes: usize, millis: u64, most: u32) -> u32 {
        let (mut pace, mut now) = (Pace::new(LIMITS), Instant::now());
        for sent in 0..most {
            let until = pace.wait(now);
            now = after(now, millis);
            if now > until {
                return sent;
            }
            pace.moved(bytes, now);
        }
        most
    }

    #[test]
    fn a_peer_at_the_minimum_rate_may_go_on_for_ever_and_a_slower_one_may_not() {
        assert_eq!(sends(500, 1_000, 10_000), 10_000);
        assert_eq!(sends(5_000, 10_000, 10), 0, "the grace is five seconds");
        // 400 bytes a second: every second costs 0.2 s of five.
        assert!((20..=26).contains(&sends(400, 1_000, 10_000)));
        assert_eq!(sends(1, 1_000, 10_000), 5);
    }

    #[test]
    fn nothing_saved_up_outlasts_the_longest_pause() {
        let (mut pace, start) = (Pace::new(LIMITS), Instant::now());
        pace.moved(100_000_000, start);
        assert_eq!(pace.wait(start), after(start, 15_000));
    }

    #[test]
    fn our_own_slowness_costs_the_peer_nothing() {
        let (mut pace, start) = (Pace::new(LIMITS), Instant::now());
        pace.wait(start);
        pace.moved(500, after(start, 1_000));
        // A minute passes in which nobody waits for the peer.
        assert_eq!(pace.wait(after(start, 61_000)), after(start, 66_000));
    }
}
