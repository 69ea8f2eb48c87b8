//! The time of a domain's next DNS check.
//!
//! Checks are frequent while the owner waits at the screen, then rarer for the 48 hours that DNS changes may take and a
//! few days beyond. After that, and while a domain is active, it is checked once a day for as long as it is attached.

use contract::time::{UnixMillis, UnixSeconds};

use super::state::Status;

/// How long a worker may act on a domain before another may. Longer than any check and any order.
pub(crate) const LEASE_MILLIS: i64 = 3 * 60 * 1_000;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// The first checks, counted from the start of the watch.
const FIRST_CHECKS: [i64; 4] = [5 * SECOND, 10 * SECOND, 20 * SECOND, 40 * SECOND];

/// Pairs of an age and the interval of checks up to it.
const INTERVALS: [(i64, i64); 5] =
    [(10 * MINUTE, MINUTE), (HOUR, 5 * MINUTE), (6 * HOUR, 15 * MINUTE), (48 * HOUR, HOUR), (7 * 24 * HOUR, 6 * HOUR)];

/// The longest interval of checks.
pub(crate) const DAILY_INTERVAL: i64 = 24 * HOUR;

/// The time of the next DNS check of a domain that was `watched` since then; `None` while it is removed. `jitter` in
/// `0.0..1.0` moves the time by up to a fifth either way, so that domains added together are not checked together for
/// ever.
pub(crate) fn next_check(status: Status, watched: UnixMillis, now: UnixMillis, jitter: f64) -> Option<UnixMillis> {
    let age = now.since(watched).max(0);
    let wait = match status {
        Status::Removing => return None,
        Status::Active | Status::Degraded => DAILY_INTERVAL,
        _ => match FIRST_CHECKS.iter().find(|check| age < **check) {
            Some(check) => check - age,
            None => INTERVALS.iter().find(|(until, _)| age < *until).map_or(DAILY_INTERVAL, |(_, interval)| *interval),
        },
    };
    Some(now.plus(spread(wait, jitter)))
}

/// When a failed order is tried again: 1, 10, 100 minutes, then once a day.
pub(crate) fn next_attempt(attempts: u32, now: UnixMillis, jitter: f64) -> UnixMillis {
    let wait = match attempts {
        0 | 1 => MINUTE,
        2 => 10 * MINUTE,
        3 => 100 * MINUTE,
        _ => 24 * HOUR,
    };
    now.plus(spread(wait, jitter))
}

/// When an order with a wait continues: up to ten seconds after `moment`, so that many orders do not continue at once.
pub(crate) fn after(moment: UnixSeconds, jitter: f64) -> UnixSeconds {
    moment.plus(spread_up(10, jitter))
}

/// When a certificate valid from `from` to `until` is renewed: with a third of its life left, half when it lives less
/// than ten days.
pub(crate) fn renew_at(from: UnixMillis, until: UnixMillis, jitter: f64) -> UnixMillis {
    let life = until.since(from).max(0);
    let left = if life < 10 * 24 * HOUR { life / 2 } else { life / 3 };
    // Up to a twentieth of its life earlier, so that certificates issued together are not renewed together.
    until.plus(-left).plus(-spread_up(life / 20, jitter))
}

/// A wait that is up to a fifth shorter or longer.
pub(super) fn spread(wait: i64, jitter: f64) -> i64 {
    wait - wait / 5 + spread_up(wait / 5 * 2, jitter)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "waits are below 2^52 milliseconds")]
fn spread_up(most: i64, jitter: f64) -> i64 {
    (most as f64 * jitter.clamp(0.0, 1.0)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixMillis = UnixMillis(1_000_000_000_000);

    /// The schedule without spread.
    fn check_times(until: i64) -> Vec<i64> {
        let (mut at, mut times) = (START, Vec::new());
        while let Some(next) = next_check(Status::PendingDns, START, at, 0.5) {
            if next.since(START) > until {
                break;
            }
            times.push(next.since(START) / SECOND);
            at = next;
        }
        times
    }

    // rule: 1.14
    #[test]
    fn checks_are_frequent_at_first_and_daily_after_a_week_without_end() {
        assert_eq!(check_times(4 * MINUTE), [5, 10, 20, 40, 100, 160, 220]);
        let year = check_times(365 * 24 * HOUR);
        let later: Vec<i64> =
            year.windows(2).filter(|pair| pair[0] > 8 * 86_400).map(|pair| pair[1] - pair[0]).collect();
        assert!(later.len() > 350 && later.iter().all(|gap| *gap == 86_400), "{later:?}");
        let all = check_times(7 * 24 * HOUR);
        // Within the 48 hours that a DNS change may take, no gap is longer than an hour.
        let gaps = all.windows(2).filter(|pair| pair[1] <= 48 * 3_600).map(|pair| pair[1] - pair[0]);
        assert_eq!(gaps.max(), Some(3_600));
        assert!(all.len() < 250, "{}", all.len());
    }

    #[test]
    fn spread_stays_within_a_fifth() {
        for (jitter, expected) in [(0.0, 48), (0.5, 60), (1.0, 72)] {
            let next = next_check(Status::ActionRequired, START, START.plus(2 * MINUTE), jitter).unwrap();
            assert_eq!(next.since(START.plus(2 * MINUTE)) / SECOND, expected);
        }
    }

    #[test]
    fn served_domains_are_checked_daily_and_removed_ones_never() {
        let year = START.plus(365 * 24 * HOUR);
        assert_eq!(next_check(Status::Active, START, year, 0.5), Some(year.plus(24 * HOUR)));
        assert_eq!(next_check(Status::Removing, START, START, 0.5), None);
    }

    // promise: domains.22
    #[test]
    fn certificates_of_any_lifetime_are_renewed_long_before_they_expire() {
        // Life, and in hours of it: a third before the end (half of a short life), and a twentieth earlier still.
        for (days, latest, earliest) in
            [(90, 1_440, 1_332), (60, 960, 888), (45, 720, 666), (10, 160, 148), (5, 60, 54)]
        {
            let until = START.plus(days * 24 * HOUR);
            assert_eq!(renew_at(START, until, 0.0), START.plus(latest * HOUR), "{days} days");
            assert_eq!(renew_at(START, until, 1.0), START.plus(earliest * HOUR), "{days} days");
        }
    }

    #[test]
    fn pauses_between_failed_orders_grow() {
        let waits: Vec<i64> = (1..6).map(|attempt| next_attempt(attempt, START, 0.5).since(START) / MINUTE).collect();
        assert_eq!(waits, [1, 10, 100, 1_440, 1_440]);
    }
}
