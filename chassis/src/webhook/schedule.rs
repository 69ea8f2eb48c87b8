//! The schedule of retries.

use std::time::Duration;

use contract::time::UnixMillis;

/// Pauses after the first, second, … failed attempt: short enough for a restart, long enough for a weekend. Together a
/// little more than three days.
const WAITS: [Duration; 9] = [
    Duration::from_secs(5),
    Duration::from_mins(5),
    Duration::from_mins(30),
    Duration::from_hours(2),
    Duration::from_hours(5),
    Duration::from_hours(10),
    Duration::from_hours(14),
    Duration::from_hours(20),
    Duration::from_hours(24),
];

/// Number of attempts.
pub const ATTEMPTS_MAX: u32 = 10;

/// The longest delay that a receiver may request.
const PUT_OFF_MAX: Duration = Duration::from_hours(24);

/// Every pause is up to a tenth longer, so that messages that failed together are not retried together.
const SPREAD: f64 = 0.1;

/// The time of the next attempt after `attempts` failed ones; `None` after the last one. `retry_after`, which the
/// receiver may send, makes the pause longer but not shorter; `jitter` is in `0.0..1.0`.
pub fn next_attempt(attempts: u32, now: UnixMillis, retry_after: Option<Duration>, jitter: f64) -> Option<UnixMillis> {
    let index = usize::try_from(attempts.max(1) - 1).ok()?;
    let wait = WAITS.get(index)?.mul_f64(1.0 + SPREAD * jitter.clamp(0.0, 1.0));
    let wait = wait.max(retry_after.unwrap_or_default().min(PUT_OFF_MAX));
    Some(now.plus(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_000_000);

    fn seconds(attempts: u32, retry_after: Option<u64>, jitter: f64) -> Option<i64> {
        let next = next_attempt(attempts, NOW, retry_after.map(Duration::from_secs), jitter);
        next.map(|at| at.since(NOW) / 1_000)
    }

    #[test]
    fn waits_grow_and_end() {
        let waits: Vec<i64> = (1..ATTEMPTS_MAX).map(|attempts| seconds(attempts, None, 0.0).unwrap()).collect();
        assert_eq!(waits, [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400]);
        assert_eq!(seconds(ATTEMPTS_MAX, None, 0.0), None);
        assert_eq!(seconds(u32::MAX, None, 0.0), None);
    }

    #[test]
    fn retries_spread_and_a_receiver_may_ask_for_more_time() {
        assert_eq!(seconds(2, None, 1.0), Some(330));
        assert_eq!(seconds(1, Some(60), 0.5), Some(60));
        assert_eq!(seconds(3, Some(60), 0.0), Some(1_800), "but not for less");
        assert_eq!(seconds(1, Some(10_000_000), 0.0), Some(86_400), "nor for ever");
    }
}
