//! The states of a domain and the transitions between them.
//!
//! Users see one status. The result of a DNS check comes in as a [`Judgement`]; a resolver that could not be asked is
//! not an answer, and never changes a domain's state.

use contract::time::UnixMillis;
pub(crate) use domains_api::types::Status;

use verification::verdict::{Caa, Judgement, Ownership, Records};

/// Without a certificate after this time in `issuing`, the owner is asked to act: the specification's 30 minutes.
pub(crate) const ISSUING_MILLIS_MAX: i64 = 30 * 60 * 1_000;

/// An active domain with wrong records is degraded when a second check this much later finds the same.
pub(crate) const DOUBT_MILLIS: i64 = 10 * 60 * 1_000;

/// A degraded domain is served this long before it is released.
pub(crate) const DEGRADED_MILLIS_MAX: i64 = 30 * 86_400 * 1_000;

/// Domains are served this long after the project changed to a plan without custom domains.
pub(crate) const UNPAID_GRACE_MILLIS: i64 = 7 * 86_400 * 1_000;

/// The facts about a domain that decide its next state.
#[expect(clippy::struct_excessive_bools, reason = "each is the answer to a question of its own")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateFacts {
    pub(crate) status: Status,
    pub(crate) status_since: UnixMillis,
    /// The first failed check in a row of an active domain.
    pub(crate) failing_since: Option<UnixMillis>,
    /// A certificate is deployed and has not expired.
    pub(crate) certified: bool,
    /// The plan pays for custom domains, or stopped to less than [`UNPAID_GRACE_MILLIS`] ago.
    pub(crate) paid: bool,
    /// The domain waits for the platform or the authority; its owner can do nothing.
    pub(crate) waits_for_us: bool,
    /// The 30 minutes ran out once already, and the owner has not asked for another check since.
    pub(crate) delayed: bool,
}

/// The next state of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) status: Status,
    pub(crate) failing_since: Option<UnixMillis>,
    /// Records, ownership and CAA all pass: a certificate may be ordered.
    pub(crate) may_issue: bool,
    /// 30 minutes passed without a certificate.
    pub(crate) delayed: bool,
}

/// The next state of a domain after a DNS check.
pub(crate) fn next_state(facts: &StateFacts, judged: &Judgement, now: UnixMillis) -> Transition {
    let may_issue = facts.paid && judged.passes();
    let stay = Transition { status: facts.status, failing_since: facts.failing_since, may_issue, delayed: false };
    match facts.status {
        Status::Removing => Transition { may_issue: false, ..stay },
        _ if !facts.paid => Transition { status: Status::Suspended, may_issue: false, ..stay },
        Status::Active | Status::Degraded => next_served(facts, judged, now, stay),
        Status::Suspended if may_issue => {
            let status = if facts.certified { Status::Active } else { Status::Issuing };
            Transition { status, failing_since: None, ..stay }
        }
        Status::Suspended => stay,
        _ => next_unserved(facts, judged, now, stay),
    }
}

fn next_served(facts: &StateFacts, judged: &Judgement, now: UnixMillis, stay: Transition) -> Transition {
    if !facts.certified {
        return Transition { status: Status::Suspended, ..stay };
    }
    let wrong = matches!(judged.records, Records::Missing | Records::Wrong)
        || judged.caa == Caa::Forbidden
        || judged.ownership == Ownership::Missing;
    if judged.passes() || (judged.records == Records::Pass && !wrong) {
        return Transition { status: Status::Active, failing_since: None, ..stay };
    }
    if !wrong {
        return stay; // could not ask, or still propagating: nothing is lost
    }
    match (facts.status, facts.failing_since) {
        (Status::Degraded, _) if now.since(facts.status_since) >= DEGRADED_MILLIS_MAX => {
            Transition { status: Status::Suspended, ..stay }
        }
        (Status::Active, Some(since)) if now.since(since) >= DOUBT_MILLIS => {
            Transition { status: Status::Degraded, ..stay }
        }
        (_, None) => Transition { failing_since: Some(now), ..stay },
        _ => stay,
    }
}

fn next_unserved(facts: &StateFacts, judged: &Judgement, now: UnixMillis, stay: Transition) -> Transition {
    let overdue = facts.status == Status::Issuing
        && !facts.certified
        && !facts.waits_for_us
        && now.since(facts.status_since) >= ISSUING_MILLIS_MAX;
    let delayed = facts.delayed || overdue;
    let status = match (judged.records, judged.ownership, judged.caa) {
        (Records::Missing, ..) => Status::PendingDns,
        (Records::Wrong, ..) | (Records::Pass, Ownership::Held, Caa::Forbidden) => Status::ActionRequired,
        (Records::Partial, ..) => Status::Propagating,
        (Records::Pass, Ownership::Missing, _) => Status::PendingOwnership,
        (Records::Pass, Ownership::Held, Caa::Allowed) if facts.certified => Status::Active,
        (Records::Pass, Ownership::Held, Caa::Allowed) if delayed => Status::ActionRequired,
        (Records::Pass, Ownership::Held, Caa::Allowed) => Status::Issuing,
        _ if overdue => Status::ActionRequired,
        _ => facts.status,
    };
    let relevant = delayed && status == Status::ActionRequired && judged.records != Records::Wrong;
    Transition { status, failing_since: None, delayed: relevant, ..stay }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_000_000_000_000);

    const MINUTE: i64 = 60_000;
    const DAY: i64 = 24 * 60 * MINUTE;

    fn judged(records: Records, ownership: Ownership, caa: Caa) -> Judgement {
        Judgement { records, ownership, caa, is_apex: None, ..Judgement::local(false) }
    }

    fn pass() -> Judgement {
        judged(Records::Pass, Ownership::Held, Caa::Allowed)
    }

    fn facts(status: Status) -> StateFacts {
        StateFacts {
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
    fn an_unserved_domain_moves_to_the_state_that_dns_implies() {
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
                let next = next_state(&facts(status), &judgement, NOW);
                assert_eq!(next.status, expected, "{status:?} {judgement:?}");
                assert_eq!(next.may_issue, expected == Status::Issuing);
            }
        }
    }

    #[test]
    fn a_check_without_answers_changes_no_state_and_orders_nothing() {
        for status in Status::ALL.iter().copied() {
            let mut facts = facts(status);
            facts.certified = status.is_served();
            for judgement in [
                judged(Records::Unknown, Ownership::Held, Caa::Allowed),
                judged(Records::Unknown, Ownership::Unknown, Caa::Unknown),
                judged(Records::Pass, Ownership::Unknown, Caa::Allowed),
                judged(Records::Pass, Ownership::Held, Caa::Unknown),
            ] {
                let next = next_state(&facts, &judgement, NOW.plus(60_000));
                let same = next.status == status || (status == Status::Degraded && next.status == Status::Active);
                assert!(same && !next.may_issue, "{status:?} {judgement:?} {next:?}");
            }
        }
    }

    // rule: 1.18
    #[test]
    fn after_thirty_minutes_without_a_certificate_the_owner_must_act() {
        let issuing = facts(Status::Issuing);
        assert_eq!(next_state(&issuing, &pass(), NOW.plus(30 * MINUTE - 1)).status, Status::Issuing);
        let late = next_state(&issuing, &pass(), NOW.plus(30 * MINUTE));
        assert_eq!((late.status, late.delayed, late.may_issue), (Status::ActionRequired, true, true));
        // It stays so, and a check that the owner requests starts again.
        let stuck = StateFacts { delayed: true, ..facts(Status::ActionRequired) };
        assert_eq!(next_state(&stuck, &pass(), NOW).status, Status::ActionRequired);
        assert_eq!(next_state(&facts(Status::ActionRequired), &pass(), NOW).status, Status::Issuing);
    }

    #[test]
    fn an_active_domain_is_degraded_by_two_checks_ten_minutes_apart_and_recovers_by_one() {
        let active = StateFacts { certified: true, ..facts(Status::Active) };
        let doubtful = StateFacts { failing_since: Some(NOW), ..active };
        let degraded = StateFacts { status: Status::Degraded, failing_since: Some(NOW), ..active };
        for wrong in [
            judged(Records::Missing, Ownership::Held, Caa::Allowed),
            judged(Records::Wrong, Ownership::Held, Caa::Allowed),
            judged(Records::Pass, Ownership::Held, Caa::Forbidden),
            judged(Records::Pass, Ownership::Missing, Caa::Allowed),
        ] {
            let first = next_state(&active, &wrong, NOW);
            assert_eq!((first.status, first.failing_since), (Status::Active, Some(NOW)), "{wrong:?}");
            assert_eq!(next_state(&doubtful, &wrong, NOW.plus(10 * MINUTE - 1)).status, Status::Active, "{wrong:?}");
            assert_eq!(next_state(&doubtful, &wrong, NOW.plus(10 * MINUTE)).status, Status::Degraded, "{wrong:?}");
            assert_eq!(next_state(&degraded, &wrong, NOW.plus(30 * DAY - 1)).status, Status::Degraded, "{wrong:?}");
            assert_eq!(next_state(&degraded, &wrong, NOW.plus(30 * DAY)).status, Status::Suspended, "{wrong:?}");
        }
        assert_eq!(next_state(&doubtful, &pass(), NOW.plus(1)).failing_since, None);
        assert_eq!(next_state(&degraded, &pass(), NOW).status, Status::Active);
    }

    #[test]
    fn a_plan_without_domains_suspends_and_a_plan_with_domains_resumes() {
        for status in Status::ALL.iter().copied().filter(|status| *status != Status::Removing) {
            let unpaid = StateFacts { paid: false, certified: true, ..facts(status) };
            let next = next_state(&unpaid, &pass(), NOW);
            assert_eq!((next.status, next.may_issue), (Status::Suspended, false));
        }
        let suspended = facts(Status::Suspended);
        assert_eq!(next_state(&suspended, &pass(), NOW).status, Status::Issuing);
        assert_eq!(next_state(&StateFacts { certified: true, ..suspended }, &pass(), NOW).status, Status::Active);
    }

    #[test]
    fn an_expired_certificate_is_not_served_and_removal_is_final() {
        let expired = facts(Status::Active);
        assert_eq!(next_state(&expired, &pass(), NOW).status, Status::Suspended);
        assert!(next_state(&expired, &pass(), NOW).may_issue);
        let removing = next_state(&facts(Status::Removing), &pass(), NOW);
        assert_eq!((removing.status, removing.may_issue), (Status::Removing, false));
    }

    #[test]
    fn every_state_parses_from_its_name() {
        for status in Status::ALL.iter().copied() {
            assert_eq!(status.as_str().parse(), Ok(status));
        }
    }
}
