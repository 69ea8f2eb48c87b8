//! The rules of a domain's states, one a line: a state, a check of its DNS, and the resulting state.

use contract::time::UnixMillis;

use super::*;
use crate::domain::CertificateState;
use verification::verdict::{Caa, Records};

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

const PASSES: (Records, Ownership, Caa) = (Records::Pass, Ownership::Held, Caa::Allowed);
const NO_RECORD: (Records, Ownership, Caa) = (Records::Missing, Ownership::Held, Caa::Allowed);
const WRONG_RECORD: (Records, Ownership, Caa) = (Records::Wrong, Ownership::Held, Caa::Allowed);
const PARTIAL: (Records, Ownership, Caa) = (Records::Partial, Ownership::Held, Caa::Allowed);
const NO_TEXT: (Records, Ownership, Caa) = (Records::Pass, Ownership::Missing, Caa::Allowed);
const CAA_FORBIDS: (Records, Ownership, Caa) = (Records::Pass, Ownership::Held, Caa::Forbidden);
const NO_ANSWER: (Records, Ownership, Caa) = (Records::Unknown, Ownership::Unknown, Caa::Unknown);

struct Given {
    domain: Domain,
    policy: Policy,
    claim: Claim,
    found: (Records, Ownership, Caa),
    resolver_down: bool,
}

/// A domain that has just entered this state. A served one has a certificate for 60 days, with renewal in 30.
fn given(status: Status) -> Given {
    let mut domain = Domain::added("shop.customer.com".parse().unwrap(), "demo".parse().unwrap(), NOW);
    domain.status = status;
    let is_proven = status.is_served() || matches!(status, Status::Issuing | Status::Suspended);
    let holder = if is_proven { Holder::This } else { Holder::Free };
    let policy = Policy { claim: Claim::Open, holder, served_until: None, reason: Reason::Schedule, jitter: 0.5 };
    let given = Given { domain, policy, claim: Claim::Open, found: PASSES, resolver_down: false };
    if status.is_served() { given.certified() } else { given }
}

fn certificate(ends_in: i64) -> CertificateState {
    let now = NOW.to_seconds();
    CertificateState {
        not_after: Some(now.plus(ends_in / 1_000)),
        renew_at: Some(now.plus((ends_in - 30 * DAY) / 1_000)),
        ..CertificateState::default()
    }
}

impl Given {
    fn certified(mut self) -> Self {
        self.domain.certificate = certificate(60 * DAY);
        self
    }

    fn whose_certificate_ends_in(mut self, millis: i64) -> Self {
        self.domain.certificate = certificate(millis);
        self
    }

    fn since(mut self, millis: i64) -> Self {
        self.domain.status_since = NOW.plus(-millis);
        self
    }

    fn failing_for(mut self, millis: i64) -> Self {
        self.domain.failing_since = Some(NOW.plus(-millis));
        self
    }

    fn whose_next_attempt_is_in(mut self, millis: i64) -> Self {
        self.domain.certificate.next_attempt_at = Some(NOW.plus(millis).to_seconds());
        self
    }

    fn limited_for(mut self, millis: i64) -> Self {
        let until = NOW.plus(millis).to_seconds();
        self.domain.certificate.rate_limited_until = Some(until);
        self.domain.certificate.waiting.insert("one".to_owned(), until);
        self.whose_next_attempt_is_in(millis)
    }

    /// It waits for its turn.
    fn queued(mut self) -> Self {
        self.domain.certificate.queued = true;
        self.domain.problems.push(Problem::new(ProblemCode::CertQueued, "shop.customer.com", "", ""));
        self
    }

    /// The check before found this problem.
    fn with_problem(mut self, code: ProblemCode) -> Self {
        self.domain.problems.push(Problem::new(code, "shop.customer.com", "", "").holding_up());
        self
    }

    fn without_resolver(mut self) -> Self {
        self.resolver_down = true;
        self
    }

    fn unpaid(mut self) -> Self {
        self.policy.served_until = Some(NOW);
        self
    }

    fn asked(mut self) -> Self {
        self.policy.reason = Reason::Requested;
        self
    }

    /// Another project holds the name, and serves it.
    fn held_by_another(mut self) -> Self {
        let other: ProjectRef = "other".parse().unwrap();
        let mut theirs = given(Status::Active).domain;
        theirs.project = other.clone();
        theirs.primary = true;
        self.policy.holder = Holder::Another(other, Some(Box::new(theirs)));
        (self.policy.claim, self.claim) = (Claim::Contested, Claim::Contested);
        self
    }

    /// Another project takes the name during the DNS check.
    fn contested_meanwhile(mut self) -> Self {
        self = self.held_by_another();
        self.claim = Claim::Open;
        self
    }

    fn check(mut self, found: (Records, Ownership, Caa)) -> Self {
        self.found = found;
        self
    }

    /// Asserts the new state and the written records, in order.
    #[track_caller]
    fn becomes(self, status: Status, written: &str) -> Domain {
        let (records, ownership, caa) = self.found;
        let judged = Judgement {
            records,
            ownership,
            caa,
            is_apex: None,
            permitted: vec![("ca.example".to_owned(), Vec::new())],
            resolver_down: self.resolver_down,
            ..Judgement::local(false)
        };
        let check = DnsCheck { judged, checks: None, claim: self.claim };
        let (domain, actions) = decide(self.domain, check, &self.policy, NOW);
        let words: Vec<String> = actions.iter().map(word).collect();
        assert_eq!((domain.status, words.join(" ").as_str()), (status, written));
        domain
    }
}

fn word(action: &Action) -> String {
    match action {
        Action::Record(event, _) => (*event).to_owned(),
        Action::TakeOver(loser, _) => format!("take-from-{loser}"),
        Action::WithdrawFrom(loser) => format!("withdraw-from-{loser}"),
        Action::BecomePrimaryIfWanted => "primary".to_owned(),
        Action::Order(_) => "order".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    }
}

#[test]
fn an_unserved_domain_gets_the_state_that_dns_implies() {
    use Status::{ActionRequired, Issuing, PendingDns, PendingOwnership, Propagating};
    for from in [PendingDns, PendingOwnership, Propagating, ActionRequired] {
        given(from).check(PASSES).becomes(Issuing, "setholder domain.verified save publish order");
    }
    given(PendingDns).check(NO_RECORD).becomes(PendingDns, "leavequeue save publish");
    given(PendingDns).check(WRONG_RECORD).becomes(ActionRequired, "leavequeue domain.status_changed save publish");
    given(PendingDns).check(PARTIAL).becomes(Propagating, "leavequeue domain.status_changed save publish");
    given(PendingDns).check(NO_TEXT).becomes(PendingOwnership, "leavequeue domain.status_changed save publish");
    given(PendingDns).check(CAA_FORBIDS).becomes(ActionRequired, "leavequeue domain.status_changed save publish");
    given(PendingDns).check(NO_ANSWER).becomes(PendingDns, "save publish");
    given(Issuing).check(NO_RECORD).becomes(PendingDns, "leavequeue domain.unverified save publish");
    given(Issuing).check(NO_ANSWER).becomes(Issuing, "save publish");
    given(Issuing).certified().check(PASSES).becomes(Status::Active, "domain.active primary save publish");
}

// rule: 1.18
#[test]
fn a_certificate_that_does_not_come_in_thirty_minutes_needs_the_owner() {
    use Status::{ActionRequired, Issuing};
    given(Issuing).since(30 * MINUTE - 1).check(PASSES).becomes(Issuing, "save publish order");
    let late = given(Issuing).since(30 * MINUTE).check(PASSES);
    let late = late.becomes(ActionRequired, "domain.unverified save publish order");
    assert!(late.problems.iter().any(|problem| problem.code == ProblemCode::CertDelayed));
}

#[test]
fn a_served_domain_is_released_after_two_checks_ten_minutes_apart_and_thirty_days() {
    use Status::{Active, Degraded, Suspended};
    for withdrawn in [NO_RECORD, WRONG_RECORD, NO_TEXT, CAA_FORBIDS] {
        let first = given(Active).check(withdrawn).becomes(Active, "leavequeue save publish");
        assert_eq!(first.failing_since, Some(NOW));
        assert_eq!(first.due_at, Some(NOW.plus(10 * MINUTE)), "a second check soon");
        given(Active).failing_for(10 * MINUTE - 1).check(withdrawn).becomes(Active, "leavequeue save publish");
        let second = given(Active).failing_for(10 * MINUTE).check(withdrawn);
        second.becomes(Degraded, "leavequeue domain.degraded save publish");
        given(Degraded).since(30 * DAY - 1).check(withdrawn).becomes(Degraded, "leavequeue save publish");
        given(Degraded).since(30 * DAY).check(withdrawn).becomes(Suspended, "leavequeue domain.suspended save publish");
    }
    let well = given(Active).failing_for(MINUTE).check(PASSES).becomes(Active, "save publish");
    assert_eq!(well.failing_since, None);
    given(Degraded).check(PASSES).becomes(Active, "domain.active primary save publish");
    for (unclear, written) in [(NO_ANSWER, "save publish"), (PARTIAL, "leavequeue save publish")] {
        given(Active).failing_for(DAY).check(unclear).becomes(Active, written);
        given(Degraded).since(31 * DAY).check(unclear).becomes(Degraded, written);
    }
}

#[test]
fn a_certificate_is_ordered_when_needed_and_allowed() {
    use Status::{Active, Issuing, Suspended};
    given(Active).whose_certificate_ends_in(30 * DAY + MINUTE).check(PASSES).becomes(Active, "save publish");
    given(Active).whose_certificate_ends_in(30 * DAY).check(PASSES).becomes(Active, "save publish order");
    given(Active).whose_certificate_ends_in(30 * DAY).check(NO_ANSWER).becomes(Active, "save publish");
    let expired = given(Active).whose_certificate_ends_in(-MINUTE).check(PASSES);
    expired.becomes(Suspended, "domain.suspended save publish order");
    given(Suspended).check(PASSES).becomes(Issuing, "domain.verified save publish order");
    given(Suspended).certified().check(PASSES).becomes(Active, "domain.active primary save publish");
    given(Issuing).whose_next_attempt_is_in(MINUTE).check(PASSES).becomes(Issuing, "save publish");
    given(Issuing).whose_next_attempt_is_in(0).check(PASSES).becomes(Issuing, "save publish order");
    given(Issuing).whose_next_attempt_is_in(MINUTE).asked().check(PASSES).becomes(Issuing, "save publish order");
    given(Issuing).limited_for(MINUTE).asked().check(PASSES).becomes(Issuing, "save publish");
    given(Issuing).queued().check(PASSES).becomes(Issuing, "save publish order");
    let ordered = given(Issuing).check(PASSES).becomes(Issuing, "save publish order");
    assert!(ordered.due_at <= Some(NOW.plus(LEASE_MILLIS)), "another worker continues if this one dies");
}

#[test]
fn a_name_loses_its_place_in_a_queue_when_its_records_do_not_pass() {
    use Status::{ActionRequired, Active, Issuing, PendingDns, Suspended};
    // A worker that died during an order has left a queue position that the domain does not mention.
    given(Issuing).check(NO_RECORD).becomes(PendingDns, "leavequeue domain.unverified save publish");
    let gone =
        given(Issuing).queued().check(NO_RECORD).becomes(PendingDns, "leavequeue domain.unverified save publish");
    assert_eq!((gone.certificate.queued, gone.problems.len()), (false, 0));
    let withdrawn = given(Issuing).queued().check(CAA_FORBIDS);
    withdrawn.becomes(ActionRequired, "leavequeue domain.unverified save publish");
    given(Issuing).queued().unpaid().check(PASSES).becomes(Suspended, "leavequeue domain.suspended save publish");
    // A renewal that waits, of a name that is served.
    let served = given(Active).queued().check(PARTIAL).becomes(Active, "leavequeue save publish");
    assert_eq!(served.certificate.status, CertificateStatus::Deployed);
    let later = given(Active).queued().check(PASSES).becomes(Active, "leavequeue save publish");
    assert!(!later.certificate.queued, "the authority has moved the renewal into the future");
    // One missing answer is ignored; after two, another name gets the turn.
    let once = given(Issuing).queued().check(NO_ANSWER).becomes(Issuing, "save publish");
    assert!(once.certificate.queued);
    assert!(once.due_at > Some(NOW.plus(DAY / 2)), "only its turn makes it due");
    let twice = given(Issuing).queued().with_problem(ProblemCode::DnsTimeout).check(NO_ANSWER);
    twice.becomes(Issuing, "leavequeue save publish");
    let ours = given(Issuing).queued().with_problem(ProblemCode::DnsTimeout).without_resolver().check(NO_ANSWER);
    assert!(ours.becomes(Issuing, "save publish").certificate.queued, "the fault is ours");
}

#[test]
fn a_wait_for_the_certificate_counts_from_its_start_unless_the_owner_must_act() {
    use Status::{ActionRequired, Issuing, PendingDns};
    let ready = given(PendingDns).check(PASSES).becomes(Issuing, "setholder domain.verified save publish order");
    assert_eq!(ready.waits_since, Some(NOW));
    let mut waits = given(Issuing).since(30 * MINUTE).check(PASSES);
    waits.domain.waits_since = Some(NOW.plus(-30 * MINUTE));
    let delayed = waits.becomes(ActionRequired, "domain.unverified save publish order");
    assert_eq!(delayed.waits_since, Some(NOW.plus(-30 * MINUTE)), "also when the owner is asked to look");
    let unknown = given(Issuing).check(NO_ANSWER);
    assert_eq!(Given { domain: ready.clone(), ..unknown }.becomes(Issuing, "save publish").waits_since, Some(NOW));
    for code in [ProblemCode::ChallengeUnreachable, ProblemCode::CaaForbids] {
        let theirs = given(Issuing).with_problem(code).check(PASSES);
        let theirs = theirs.becomes(Issuing, "save publish order");
        assert_eq!(theirs.waits_since.is_none(), code == ProblemCode::ChallengeUnreachable, "{code:?}");
    }
    let gone = Given { domain: ready, ..given(Issuing).check(NO_RECORD) };
    assert_eq!(gone.becomes(PendingDns, "leavequeue domain.unverified save publish").waits_since, None);
    let served = given(Status::Active).check(PASSES).becomes(Status::Active, "save publish");
    assert_eq!(served.waits_since, None);
}

#[test]
fn a_plan_without_domains_suspends() {
    use Status::{Active, Issuing, PendingDns, Removing, Suspended};
    for from in [PendingDns, Issuing, Active] {
        let unpaid = given(from).unpaid().check(PASSES).becomes(Suspended, "leavequeue domain.suspended save publish");
        assert!(unpaid.problems.iter().any(|problem| problem.code == ProblemCode::PlanRequired));
    }
    given(Removing).check(PASSES).becomes(Removing, "leavequeue save publish");
}

#[test]
fn a_name_belongs_to_the_project_that_proves_it() {
    use Status::{ActionRequired, Active, PendingDns, PendingOwnership};
    given(PendingDns)
        .held_by_another()
        .check(NO_TEXT)
        .becomes(PendingOwnership, "leavequeue domain.status_changed save publish");
    // The visitors are the same: the certificate serves on.
    let taken = given(PendingDns)
        .held_by_another()
        .check(PASSES)
        .becomes(Active, "take-from-other domain.active primary save publish withdraw-from-other");
    assert_eq!(taken.certificate, certificate(60 * DAY));
    given(PendingDns)
        .held_by_another()
        .unpaid()
        .check(PASSES)
        .becomes(Status::Suspended, "leavequeue domain.suspended save publish");
    // A result from before another project took the name proves nothing.
    given(PendingDns).contested_meanwhile().check(PASSES).becomes(PendingDns, "save publish");
    given(ActionRequired).contested_meanwhile().check(PASSES).becomes(ActionRequired, "save publish");
}

#[test]
fn the_project_that_loses_a_name_is_not_served() {
    let given = given(Status::PendingDns).held_by_another();
    let check = DnsCheck { judged: Judgement::local(false), checks: None, claim: Claim::Contested };
    let (_, actions) = decide(given.domain, check, &given.policy, NOW);
    let lost = actions.iter().find_map(|action| match action {
        Action::TakeOver(_, Some(LostDomain { before: Status::Active, was_primary: true, domain })) => Some(domain),
        _ => None,
    });
    let lost = lost.unwrap();
    assert_eq!((lost.status, lost.primary), (Status::PendingOwnership, false));
    assert_eq!(lost.certificate, CertificateState::default());
    assert!(lost.due_at.is_some(), "the owner soon sees how to prove the name");
}
