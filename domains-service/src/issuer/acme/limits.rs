//! A mirror of what a certificate authority lets an account do, so that we wait before we are refused.
//!
//! Each limit is a bucket: so many at once, one more every so often. Kept is only the moment at which all of it is free
//! again (the generic cell rate algorithm), so a limit takes one row whatever its size.

use contract::time::UnixMillis;

/// So many at once, one more every `refill`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) burst: i64,
    /// Milliseconds until one more is free.
    pub(crate) refill: i64,
}

/// What is asked of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Which bucket.
    pub(crate) name: String,
    pub(crate) limit: Limit,
    /// Whether one is taken; otherwise there must only be room.
    pub(crate) takes: bool,
}

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// New orders of an account: 300 in three hours (Let's Encrypt, rate limits, August 2026).
const ORDERS: Limit = Limit { burst: 300, refill: 36 * SECOND };
/// Certificates of a registered domain: 50 in seven days.
const REGISTERED_DOMAIN: Limit = Limit { burst: 50, refill: 202 * MINUTE };
/// Certificates of one exact name: 5 in seven days.
const EXACT_NAME: Limit = Limit { burst: 5, refill: 34 * HOUR };
/// Failed proofs of a name: 5 an hour.
const FAILURES: Limit = Limit { burst: 5, refill: 12 * MINUTE };
/// A project's part of an account's orders: one that adds hundreds of names at once leaves room for the others.
const PROJECT: Limit = Limit { burst: 60, refill: 3 * MINUTE };

/// What an order asks of the limits. A renewal that says which certificate it replaces is exempt from all but the one
/// on failures.
pub(crate) fn of_order(authority: &str, project: &str, name: &str, registered: &str, replaces: bool) -> Vec<Demand> {
    let demand = |kind: &str, of: &str, limit, takes| Demand { name: format!("{authority} {kind} {of}"), limit, takes };
    let mut demands = vec![demand("failures", name, FAILURES, false)];
    if !replaces {
        demands.extend([
            demand("orders", "", ORDERS, true),
            demand("project", project, PROJECT, true),
            // These two are of certificates: an order that fails takes nothing of them.
            demand("registered", registered, REGISTERED_DOMAIN, false),
            demand("exact", name, EXACT_NAME, false),
        ]);
    }
    demands
}

/// What a certificate takes, once it is there. One that replaces another takes nothing.
pub(crate) fn of_certificate(authority: &str, name: &str, registered: &str, replaces: bool) -> Vec<Demand> {
    if replaces {
        return Vec::new();
    }
    let demand = |kind: &str, of: &str, limit| Demand { name: format!("{authority} {kind} {of}"), limit, takes: true };
    vec![demand("registered", registered, REGISTERED_DOMAIN), demand("exact", name, EXACT_NAME)]
}

/// What a failed proof takes.
pub(crate) fn of_failure(authority: &str, name: &str) -> Vec<Demand> {
    vec![Demand { name: format!("{authority} failures {name}"), limit: FAILURES, takes: true }]
}

/// Takes one from a limit all of which is free at `free_at`: the new such moment, or the moment from which on there is
/// room.
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

    #[test]
    fn a_burst_is_let_through_and_then_one_per_refill() {
        let mut free_at = UnixMillis(0);
        for _ in 0..ORDERS.burst {
            free_at = admit(free_at, START, ORDERS).unwrap();
        }
        let until = admit(free_at, START, ORDERS).unwrap_err();
        assert_eq!(until, START.plus(ORDERS.refill));
        assert!(admit(free_at, until.plus(-1), ORDERS).is_err());
        free_at = admit(free_at, until, ORDERS).unwrap();
        assert_eq!(admit(free_at, until, ORDERS), Err(until.plus(ORDERS.refill)));
    }

    #[test]
    fn what_was_not_used_does_not_add_up_beyond_the_burst() {
        let mut free_at = admit(UnixMillis(0), START, EXACT_NAME).unwrap();
        let year = START.plus(365 * 24 * HOUR);
        for _ in 0..EXACT_NAME.burst {
            free_at = admit(free_at, year, EXACT_NAME).unwrap();
        }
        assert!(admit(free_at, year, EXACT_NAME).is_err());
    }

    #[test]
    fn a_renewal_asks_only_whether_the_name_failed_too_often() {
        let demands = of_order("one", "demo", "shop.customer.com", "customer.com", true);
        assert_eq!(demands.len(), 1);
        assert!(!demands[0].takes);
        assert_eq!(demands[0].name, of_failure("one", "shop.customer.com")[0].name);
        assert_eq!(of_order("one", "demo", "shop.customer.com", "customer.com", false).len(), 5);
    }
}
