//! A local count of an authority's rate limits, so that this service waits where the authority would refuse.
//!
//! Each limit is a bucket of a size with one more unit per interval. Only the time at which the bucket is full again is
//! stored (the generic cell rate algorithm), so a limit takes one row, whatever its size.

use std::str::FromStr;

use chassis::config::parse_duration;
use contract::time::UnixMillis;

/// A bucket of `burst` units, with one more every `refill`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) burst: i64,
    /// Milliseconds until one more is free.
    pub(crate) refill: i64,
}

/// One request's demand on a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Which bucket.
    pub(crate) name: String,
    pub(crate) limit: Limit,
    /// Whether a unit is taken; otherwise the limit is only checked.
    pub(crate) takes: bool,
}

impl Demand {
    /// The name of the limit's queue, whose row has the time of its last position.
    pub(crate) fn queue(&self) -> String {
        format!("queue {}", self.name)
    }
}

/// A position in the queue for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePosition {
    pub(crate) at: UnixMillis,
    /// Its number in the queue, from 1.
    pub(crate) number: i64,
}

/// The next position in a queue that ends at `tail`, for a limit with room from `from` on. Each refill serves one order, so
/// that waiting orders do not all arrive at once for one unit.
pub(crate) fn next_position(tail: UnixMillis, from: UnixMillis, now: UnixMillis, limit: Limit) -> QueuePosition {
    let at = tail.max(from);
    QueuePosition { at, number: at.since(now).max(0) / limit.refill + 1 }
}

impl Limit {
    /// `burst` units in a span of time.
    const fn of(burst: i64, span: i64) -> Self {
        // Rather a little later than a little too early.
        Self { burst, refill: (span + burst - 1) / burst }
    }
}

/// "300 in 3h".
impl FromStr for Limit {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let (burst, span) = text.split_once(" in ").ok_or(InvalidLimit)?;
        let burst = burst.parse().ok().filter(|burst| (1..=BURST_MAX).contains(burst)).ok_or(InvalidLimit)?;
        let span = parse_duration(span).and_then(|span| i64::try_from(span.as_millis()).ok());
        span.filter(|span| (SECOND..=SPAN_MAX).contains(span)).map(|span| Self::of(burst, span)).ok_or(InvalidLimit)
    }
}

/// A malformed limit.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write COUNT in DURATION, for example \"300 in 3h\": 1 to 1000000, in 1s to 31d")]
pub(crate) struct InvalidLimit;

const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;
const DAY: i64 = 24 * HOUR;

/// The largest burst and the longest span of a limit.
const BURST_MAX: i64 = 1_000_000;
const SPAN_MAX: i64 = 31 * DAY;

/// Into how many shares an account's orders are cut, of which one project has one.
const SHARES: i64 = 5;

/// The limits of an authority for one account. The defaults are Let's Encrypt's (rate limits, August 2026).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// New orders of the account.
    pub(crate) orders: Limit,
    /// A project's share of the orders, so that a project with hundreds of new names leaves some for others.
    pub(crate) project: Limit,
    /// Certificates of a registered domain.
    pub(crate) registered_domain: Limit,
    /// Certificates of one exact name.
    pub(crate) exact_name: Limit,
    /// Failed proofs of a name.
    pub(crate) failures: Limit,
}

impl Default for Limits {
    fn default() -> Self {
        let orders = Limit::of(300, 3 * HOUR);
        Self {
            orders,
            project: orders.share(),
            registered_domain: Limit::of(50, 7 * DAY),
            exact_name: Limit::of(5, 7 * DAY),
            failures: Limit::of(5, HOUR),
        }
    }
}

impl Limit {
    /// The default share of one project.
    pub(crate) const fn share(self) -> Self {
        let burst = if self.burst < SHARES { 1 } else { self.burst / SHARES };
        Self { burst, refill: self.refill * SHARES }
    }
}

impl Limits {
    /// The demands of an order. A renewal that names the certificate it replaces is exempt from all limits except the
    /// one on failures.
    pub(crate) fn of_order(
        &self,
        authority: &str,
        project: &str,
        name: &str,
        registered: &str,
        replaces: bool,
    ) -> Vec<Demand> {
        let demand =
            |kind: &str, of: &str, limit, takes| Demand { name: format!("{authority} {kind} {of}"), limit, takes };
        let mut demands = vec![demand("failures", name, self.failures, false)];
        if !replaces {
            demands.extend([
                demand("orders", "", self.orders, true),
                demand("project", project, self.project, true),
                // These two limits count certificates, so a failed order takes nothing from them.
                demand("registered", registered, self.registered_domain, false),
                demand("exact", name, self.exact_name, false),
            ]);
        }
        demands
    }

    /// The demands of an issued certificate. One that replaces another takes nothing.
    pub(crate) fn of_certificate(&self, authority: &str, name: &str, registered: &str, replaces: bool) -> Vec<Demand> {
        if replaces {
            return Vec::new();
        }
        let demand =
            |kind: &str, of: &str, limit| Demand { name: format!("{authority} {kind} {of}"), limit, takes: true };
        vec![demand("registered", registered, self.registered_domain), demand("exact", name, self.exact_name)]
    }

    /// The demands of a failed proof.
    pub(crate) fn of_failure(&self, authority: &str, name: &str) -> Vec<Demand> {
        vec![Demand { name: format!("{authority} failures {name}"), limit: self.failures, takes: true }]
    }
}

/// Takes a unit from a limit that is full again at `free_at`. Returns the new such time, or the time from which a unit
/// is available.
pub(crate) fn admit(free_at: UnixMillis, now: UnixMillis, limit: Limit) -> Result<UnixMillis, UnixMillis> {
    let begin = free_at.max(now);
    let next = begin.plus(limit.refill);
    let room_from = next.plus(-limit.burst * limit.refill);
    if room_from <= now { Ok(next) } else { Err(room_from) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixMillis = UnixMillis(1_800_000_000_000);

    // promise: domains.24
    #[test]
    fn a_burst_is_admitted_and_then_one_per_refill() {
        let orders = Limits::default().orders;
        let mut free_at = UnixMillis(0);
        for _ in 0..orders.burst {
            free_at = admit(free_at, START, orders).unwrap();
        }
        let until = admit(free_at, START, orders).unwrap_err();
        assert_eq!(until, START.plus(orders.refill));
        assert!(admit(free_at, until.plus(-1), orders).is_err());
        free_at = admit(free_at, until, orders).unwrap();
        assert_eq!(admit(free_at, until, orders), Err(until.plus(orders.refill)));
    }

    #[test]
    fn the_queue_moves_once_per_refill() {
        let limit = Limit::of(60, 3 * HOUR);
        let from = START.plus(limit.refill / 2);
        let (mut tail, mut positions) = (UnixMillis(0), Vec::new());
        for _ in 0..3 {
            let position = next_position(tail, from, START, limit);
            tail = position.at.plus(limit.refill);
            positions.push((position.at.since(from) / limit.refill, position.number));
        }
        assert_eq!(positions, [(0, 1), (1, 2), (2, 3)]);
        // The queue is empty: the next order is served as soon as the limit has room.
        let later = START.plus(DAY);
        assert_eq!(next_position(tail, later, later, limit), QueuePosition { at: later, number: 1 });
    }

    #[test]
    fn unused_units_add_up_to_at_most_the_burst() {
        let exact_name = Limits::default().exact_name;
        let mut free_at = admit(UnixMillis(0), START, exact_name).unwrap();
        let year = START.plus(365 * 24 * HOUR);
        for _ in 0..exact_name.burst {
            free_at = admit(free_at, year, exact_name).unwrap();
        }
        assert!(admit(free_at, year, exact_name).is_err());
    }

    #[test]
    fn a_renewal_asks_only_whether_the_name_failed_too_often() {
        let limits = Limits::default();
        let demands = limits.of_order("one", "demo", "shop.customer.com", "customer.com", true);
        assert_eq!(demands.len(), 1);
        assert!(!demands[0].takes);
        assert_eq!(demands[0].name, limits.of_failure("one", "shop.customer.com")[0].name);
        assert_eq!(limits.of_order("one", "demo", "shop.customer.com", "customer.com", false).len(), 5);
    }

    #[test]
    fn limits_parse_from_text_and_a_project_has_a_fifth_of_the_orders() {
        let default = Limits::default();
        for (text, limit) in [
            ("300 in 3h", default.orders),
            ("60 in 3h", default.project),
            ("50 in 7d", default.registered_domain),
            ("5 in 7d", default.exact_name),
            ("5 in 1h", default.failures),
        ] {
            assert_eq!(text.parse::<Limit>().unwrap(), limit, "{text}");
        }
        assert_eq!(Limit::of(3, HOUR).share(), Limit { burst: 1, refill: 5 * HOUR / 3 });
        for wrong in
            ["300", "0 in 3h", "-1 in 3h", "300 in 3", "300 in 0s", "300 in 32d", "300 per 3h", "1000001 in 1d"]
        {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
        }
    }
}
