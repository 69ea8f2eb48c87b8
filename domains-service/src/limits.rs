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

contract::words! {
    /// The limit for which a name waits in a queue.
    pub(crate) enum QueueKind {
        /// A live gateway: the authority could not reach the name.
        Edge = "edge",
        /// A new order of the account.
        Orders = "orders",
        /// A new order of the project.
        Project = "project",
        /// A certificate of the registered domain.
        Registered = "registered",
        /// A certificate of the exact name.
        Exact = "exact",
        /// A proof of the name, after failed ones.
        Failures = "failures",
    }
}

impl QueueKind {
    /// Whether the wait is due to its owner's own orders. Otherwise it is the platform's, and an operator can end it.
    pub(crate) const fn is_own(self) -> bool {
        match self {
            Self::Edge | Self::Orders => false,
            Self::Project | Self::Registered | Self::Exact | Self::Failures => true,
        }
    }
}

/// One request's demand on a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) kind: QueueKind,
    /// Which bucket, and the name of the queue for it.
    pub(crate) name: String,
    pub(crate) limit: Limit,
    /// Whether a unit is taken; otherwise the limit is only checked.
    pub(crate) takes: bool,
}

/// A position in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// Its number, from 1.
    pub number: i64,
    /// When its turn comes; `None` while no gateway is live.
    pub at: Option<UnixMillis>,
}

impl Limit {
    /// Units that are available now in a limit that is full again at `free_at`.
    pub(crate) fn available(self, free_at: UnixMillis, now: UnixMillis) -> i64 {
        let used = free_at.since(now).max(0);
        (self.burst.saturating_mul(self.refill).saturating_sub(used) / self.refill).max(0)
    }

    /// When it admits an order with `ahead` others before it, in a limit that is full again at `free_at`.
    pub(crate) fn admits_at(self, free_at: UnixMillis, ahead: i64, now: UnixMillis) -> UnixMillis {
        let units = ahead.saturating_add(1).saturating_sub(self.burst);
        free_at.max(now).plus(units.saturating_mul(self.refill)).max(now)
    }

    /// The limit after one unit is taken.
    pub(crate) fn take(self, free_at: UnixMillis, now: UnixMillis) -> UnixMillis {
        free_at.max(now).plus(self.refill)
    }

    /// The default share of one project.
    pub(crate) const fn share(self) -> Self {
        let burst = if self.burst < SHARES { 1 } else { self.burst / SHARES };
        Self { burst, refill: self.refill * SHARES }
    }

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

/// Number of shares of an account's orders; one project gets at most one share.
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

impl Limits {
    /// The demands of an order. A renewal that names the certificate it replaces is exempt from all limits except the
    /// one on failures.
    pub(crate) fn of_order(&self, authority: &str, project: &str, name: &str, replaces: bool) -> Vec<Demand> {
        let demand = |kind, of: &str, takes| self.demand(authority, kind, of, takes);
        let mut demands = vec![demand(QueueKind::Failures, name, false)];
        if !replaces {
            demands.extend([
                demand(QueueKind::Orders, "", true),
                demand(QueueKind::Project, project, true),
                // These two limits count certificates, so a failed order takes nothing from them.
                demand(QueueKind::Registered, registered(name), false),
                demand(QueueKind::Exact, name, false),
            ]);
        }
        demands
    }

    /// The demands of an issued certificate. One that replaces another takes nothing.
    pub(crate) fn of_certificate(&self, authority: &str, name: &str, replaces: bool) -> Vec<Demand> {
        let counted =
            [(QueueKind::Registered, registered(name)), (QueueKind::Exact, name)].into_iter().filter(|_| !replaces);
        counted.map(|(kind, of)| self.demand(authority, kind, of, true)).collect()
    }

    /// The demands of a failed proof.
    pub(crate) fn of_failure(&self, authority: &str, name: &str) -> Vec<Demand> {
        vec![self.demand(authority, QueueKind::Failures, name, true)]
    }

    fn demand(&self, authority: &str, kind: QueueKind, of: &str, takes: bool) -> Demand {
        Demand { kind, name: queue_name(authority, kind, of), limit: self.of_kind(kind), takes }
    }

    /// The limit behind a queue.
    pub(crate) const fn of_kind(&self, kind: QueueKind) -> Limit {
        match kind {
            QueueKind::Edge => Limit { burst: OFFERS_MAX, refill: 1 },
            QueueKind::Orders => self.orders,
            QueueKind::Project => self.project,
            QueueKind::Registered => self.registered_domain,
            QueueKind::Exact => self.exact_name,
            QueueKind::Failures => self.failures,
        }
    }
}

/// The part of a name that its owner registered.
fn registered(name: &str) -> &str {
    psl::domain_str(name).unwrap_or(name)
}

/// Maximum of names of one queue that are due at the same time.
pub(crate) const OFFERS_MAX: i64 = 256;

/// The name of a bucket and of its queue: of a project, a registered domain or a name, or the only one of its kind.
pub(crate) fn queue_name(authority: &str, kind: QueueKind, of: &str) -> String {
    format!("{authority} {} {of}", kind.as_str())
}

/// Takes a unit from a limit that is full again at `free_at`. Returns the new such time, or the time from which a unit
/// is available.
pub(crate) fn admit(free_at: UnixMillis, now: UnixMillis, limit: Limit) -> Result<UnixMillis, UnixMillis> {
    let next = limit.take(free_at, now);
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
    fn a_queue_moves_once_per_refill_after_the_units_that_are_left() {
        let limit = Limit::of(60, 3 * HOUR);
        let full = START.plus(limit.burst * limit.refill);
        let admits_at = |free_at, ahead| limit.admits_at(free_at, ahead, START).since(START) / limit.refill;
        assert_eq!([0, 1, 2].map(|ahead| admits_at(full, ahead)), [1, 2, 3]);
        let three_left = full.plus(-3 * limit.refill);
        assert_eq!(limit.available(three_left, START), 3);
        assert_eq!([0, 1, 2, 3, 4].map(|ahead| admits_at(three_left, ahead)), [0, 0, 0, 1, 2]);
        assert_eq!((limit.available(START.plus(-DAY), START), limit.available(full, START)), (60, 0));
        // Its turn is when a unit can be taken.
        let mut free_at = full;
        for ahead in 0..3 {
            let at = limit.admits_at(full, ahead, START);
            free_at = admit(free_at, at, limit).unwrap();
        }
        assert!(admit(free_at, limit.admits_at(full, 3, START).plus(-1), limit).is_err());
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
    fn a_renewal_is_limited_only_by_failures_of_the_name() {
        let limits = Limits::default();
        let demands = limits.of_order("one", "demo", "shop.customer.com", true);
        assert_eq!(demands.len(), 1);
        assert!(!demands[0].takes);
        assert_eq!(demands[0].name, limits.of_failure("one", "shop.customer.com")[0].name);
        assert_eq!(limits.of_order("one", "demo", "shop.customer.com", false).len(), 5);
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
