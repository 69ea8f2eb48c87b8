//! How a domain moves between its states.
//!
//! One user-facing status. What DNS said comes in as a [`Judgement`]; a resolver that could not be asked is not an
//! answer, and never moves a domain.

use contract::time::UnixMillis;
pub(crate) use domains_api::types::Status;

use verification::verdict::{Caa, Judgement, Ownership, Records};

/// Without a certificate after this long in `issuing`, the owner must look: the specification's 30 minutes.
pub(crate) const ISSUING_MILLIS_MAX: i64 = 30 * 60 * 1_000;

/// An active domain whose records are wrong is degraded when a second look this much later sees the same.
pub(crate) const DOUBT_MILLIS: i64 = 10 * 60 * 1_000;

/// A degraded domain is served this long before it is let go.
pub(crate) const DEGRADED_MILLIS_MAX: i64 = 30 * 86_400 * 1_000;

/// After a plan without custom domains comes into force, domains are served this long.
pub(crate) const UNPAID_GRACE_MILLIS: i64 = 7 * 86_400 * 1_000;

/// What of a domain decides where it goes next.
#[expect(clippy::struct_excessive_bools, reason = "each is the answer to a question of its own")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) status: Status,
    pub(crate) status_since: UnixMillis,
    /// The first failed check in a row of an active domain.
    pub(crate) failing_since: Option<UnixMillis>,
    /// A certificate is deployed and has not expired.
    pub(crate) certified: bool,
    /// The plan pays for custom domains, or stopped to less than [`UNPAID_GRACE_MILLIS`] ago.
    pub(crate) paid: bool,
    /// What it waits for is ours or the authority's to bring: its owner can do nothing.
    pub(crate) waits_for_us: bool,
    /// The 30 minutes ran out once already and nobody has asked for a new look since.
    pub(crate) delayed: bool,
}

/// Where a domain goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advance {
    pub(crate) status: Status,
    pub(crate) failing_since: Option<UnixMillis>,
    /// Records, ownership and CAA all pass: a certificate may be ordered.
    pub(crate) may_issue: bool,
    /// 30 minutes passed without a certificate.
    pub(crate) delayed: bool,
}

/// The next state of a domain after a look at DNS.
pub(crate) fn advance(standing: &Standing, judged: &Judgement, now: UnixMillis) -> Advance {
    let may_issue = standing.paid && judged.passes();
    let stay = Advance { status: standing.status, failing_since: standing.failing_since, may_issue, delayed: false };
    match standing.status {
        Status::Removing => Advance { may_issue: false, ..stay },
        _ if !standing.paid => Advance { status: Status::Suspended, may_issue: false, ..stay },
        Status::Active | Status::Degraded => advance_served(standing, judged, now, stay),
        Status::Suspended if may_issue => {
            let status = if standing.certified { Status::Active } else { Status::Issuing };
            Advance { status, failing_since: None, ..stay }
        }
        Status::Suspended => stay,
        _ => advance_unserved(standing, judged, now, stay),
    }
}

fn advance_served(standing: &Standing, judged: &Judgement, now: UnixMillis, stay: Advance) -> Advance {
    if !standing.certified {
        return Advance { status: Status::Suspended, ..stay };
    }
    let wrong = matches!(judged.records, Records::Missing | Records::Wrong)
        || judged.caa == Caa::Forbidden
        || judged.ownership == Ownership::Missing;
    if judged.passes() || (judged.records == Records::Pass && !wrong) {
        return Advance { status: Status::Active, failing_since: None, ..stay };
    }
    if !wrong {
        return stay; // could not ask, or still propagating: nothing is lost
    }
    match (standing.status, standing.failing_since) {
        (Status::Degraded, _) if now.since(standing.status_since) >= DEGRADED_MILLIS_MAX => {
            Advance { status: Status::Suspended, ..stay }
        }
        (Status::Active, Some(since)) if now.since(since) >= DOUBT_MILLIS => {
            Advance { status: Status::Degraded, ..stay }
        }
        (_, None) => Advance { failing_since: Some(now), ..stay },
        _ => stay,
    }
}

fn advance_unserved(standing: &Standing, judged: &Judgement, now: UnixMillis, stay: Advance) -> Advance {
    let overdue = standing.status == Status::Issuing
        && !standing.certified
        && !standing.waits_for_us
        && now.since(standing.status_since) >= ISSUING_MILLIS_MAX;
    let delayed = standing.delayed || overdue;
    let status = match (judged.records, judged.ownership, judged.caa) {
        (Records::Missing, ..) => Status::PendingDns,
        (Records::Wrong, ..) | (Records::Pass, Ownership::Held, Caa::Forbidden) => Status::ActionRequired,
        (Records::Partial, ..) => Status::Propagating,
        (Records::Pass, Ownership::Missing, _) => Status::PendingOwnership,
        (Records::Pass, Ownership::Held, Caa::Allowed) if standing.certified => Status::Active,
        (Records::Pass, Ownership::Held, Caa::Allowed) if delayed => Status::ActionRequired,
        (Records::Pass, Ownership::Held, Caa::Allowed) => Status::Issuing,
        _ if overdue => Status::ActionRequired,
        _ => standing.status,
    };
    let relevant = delayed && status == Status::ActionRequired && judged.records != Records::Wrong;
    Advance { status, failing_since: None, delayed: relevant, ..stay }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_000_000_000_000);

    const MINUTE: i64 = 60_000;
    const DAY: i64 = 24 * 60 * MINUTE;

    fn judged(records: Records, ownership: Ownership, caa: Caa) -> Judgement {
        Judgement { records, ownership, caa, is_apex: None, problems: Vec::new(), txt: None, permitted: Vec::new() }
    }

    fn pass() -> Judgement {
        judged(Records::Pass, Ownership::Held, Caa::Allowed)
    }

    fn standing(status: Status) -> Standing {
        Standing {
            status,
            status_since: NOW,
            failing_since: None,
            certified: false,
            paid: true,
            waits_for_us: false,
            delayed: false,
        }
    }

    const UNSERVED: [Status; 5] =
        [Status::PendingDns, Status::PendingOwnership, Status::Propagating, Status::Issuing, Status::ActionRequired];

    #[test]
    fn an_unserved_domain_goes_where_dns_says() {
        let held = Ownership::Held;
        for status in UNSERVED {
            for (judgement, expected) in [
                (pass(), Status::Issuing),
                (judged(Records::Missing, held, Caa::Allowed), Status::PendingDns),
                (judged(Records::Wrong, held, Caa::Allowed), Status::ActionRequired),
                (judged(Records::Partial, held, Caa::Allowed), Status::Propagating),
                (judged(Records::Pass, Ownership::Missing, Caa::Allowed), Status::PendingOwnership),
                (judged(Records::Pass, held, Caa::Forbidden), Status::ActionRequired),
            ] {
                let next = advance(&standing(status), &judgement, NOW);
                assert_eq!(next.status, expected, "{status:?} {judgement:?}");
                assert_eq!(next.may_issue, expected == Status::Issuing);
            }
        }
    }

    #[test]
    fn what_could_not_be_asked_moves_nothing_and_orders_nothing() {
        for status in Status::ALL.iter().copied() {
            let mut standing = standing(status);
            standing.certified = status.is_served();
            for judgement in [
                judged(Records::Unknown, Ownership::Held, Caa::Allowed),
                judged(Records::Unknown, Ownership::Unknown, Caa::Unknown),
                judged(Records::Pass, Ownership::Unknown, Caa::Allowed),
                judged(Records::Pass, Ownership::Held, Caa::Unknown),
            ] {
                let next = advance(&standing, &judgement, NOW.plus(60_000));
                let same = next.status == status || (status == Status::Degraded && next.status == Status::Active);
                assert!(same && !next.may_issue, "{status:?} {judgement:?} {next:?}");
            }
        }
    }

    // rule: 1.18
    #[test]
    fn thirty_minutes_without_a_certificate_ask_the_owner_to_act() {
        let issuing = standing(Status::Issuing);
        assert_eq!(advance(&issuing, &pass(), NOW.plus(30 * MINUTE - 1)).status, Status::Issuing);
        let late = advance(&issuing, &pass(), NOW.plus(30 * MINUTE));
        assert_eq!((late.status, late.delayed, late.may_issue), (Status::ActionRequired, true, true));
        // It stays so on its own, and a new look that somebody asked for starts afresh.
        let stuck = Standing { delayed: true, ..standing(Status::ActionRequired) };
        assert_eq!(advance(&stuck, &pass(), NOW).status, Status::ActionRequired);
        assert_eq!(advance(&standing(Status::ActionRequired), &pass(), NOW).status, Status::Issuing);
    }

    #[test]
    fn an_active_domain_is_degraded_by_two_looks_ten_minutes_apart_and_recovers_by_one() {
        let active = Standing { certified: true, ..standing(Status::Active) };
        let doubtful = Standing { failing_since: Some(NOW), ..active };
        let degraded = Standing { status: Status::Degraded, failing_since: Some(NOW), ..active };
        for wrong in [
            judged(Records::Missing, Ownership::Held, Caa::Allowed),
            judged(Records::Wrong, Ownership::Held, Caa::Allowed),
            judged(Records::Pass, Ownership::Held, Caa::Forbidden),
            judged(Records::Pass, Ownership::Missing, Caa::Allowed),
        ] {
            let first = advance(&active, &wrong, NOW);
            assert_eq!((first.status, first.failing_since), (Status::Active, Some(NOW)), "{wrong:?}");
            assert_eq!(advance(&doubtful, &wrong, NOW.plus(10 * MINUTE - 1)).status, Status::Active, "{wrong:?}");
            assert_eq!(advance(&doubtful, &wrong, NOW.plus(10 * MINUTE)).status, Status::Degraded, "{wrong:?}");
            assert_eq!(advance(&degraded, &wrong, NOW.plus(30 * DAY - 1)).status, Status::Degraded, "{wrong:?}");
            assert_eq!(advance(&degraded, &wrong, NOW.plus(30 * DAY)).status, Status::Suspended, "{wrong:?}");
        }
        assert_eq!(advance(&doubtful, &pass(), NOW.plus(1)).failing_since, None);
        assert_eq!(advance(&degraded, &pass(), NOW).status, Status::Active);
    }

    #[test]
    fn a_plan_that_no_longer_pays_suspends_and_paying_again_resumes() {
        for status in Status::ALL.iter().copied().filter(|status| *status != Status::Removing) {
            let unpaid = Standing { paid: false, certified: true, ..standing(status) };
            let next = advance(&unpaid, &pass(), NOW);
            assert_eq!((next.status, next.may_issue), (Status::Suspended, false));
        }
        let suspended = standing(Status::Suspended);
        assert_eq!(advance(&suspended, &pass(), NOW).status, Status::Issuing);
        assert_eq!(advance(&Standing { certified: true, ..suspended }, &pass(), NOW).status, Status::Active);
    }

    #[test]
    fn an_expired_certificate_is_not_served_and_removal_is_final() {
        let expired = standing(Status::Active);
        assert_eq!(advance(&expired, &pass(), NOW).status, Status::Suspended);
        assert!(advance(&expired, &pass(), NOW).may_issue);
        let removing = advance(&standing(Status::Removing), &pass(), NOW);
        assert_eq!((removing.status, removing.may_issue), (Status::Removing, false));
    }

    #[test]
    fn every_word_of_a_state_reads_as_that_state() {
        for status in Status::ALL.iter().copied() {
            assert_eq!(status.as_str().parse(), Ok(status));
        }
    }
}
