//! Properties that hold for every domain and every sequence of checks, orders and rivals.

use contract::certificate::SealedKey;
use proptest::prelude::*;

use super::*;
use crate::domain::failure::IssueError;
use crate::domain::order::{CertificateFacts, Round, Verdict, issued, unissued};
use crate::domain::state::{DEGRADED_MILLIS_MAX, DOUBT_MILLIS};
use verification::verdict::{Caa, Records};

const START: UnixMillis = UnixMillis(1_800_000_000_000);
const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

/// The result of a DNS check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Passes,
    NoRecord,
    WrongRecord,
    NoText,
    CaaForbids,
    Partial,
    NoAnswer,
}

impl Found {
    const ALL: [Self; 7] = [
        Self::Passes,
        Self::NoRecord,
        Self::WrongRecord,
        Self::NoText,
        Self::CaaForbids,
        Self::Partial,
        Self::NoAnswer,
    ];

    /// Results without a valid proof.
    const WITHDRAWN: [Self; 4] = [Self::NoRecord, Self::WrongRecord, Self::NoText, Self::CaaForbids];

    fn judged(self) -> Judgement {
        let (records, ownership, caa) = match self {
            Self::Passes => (Records::Pass, Ownership::Held, Caa::Allowed),
            Self::NoRecord => (Records::Missing, Ownership::Held, Caa::Allowed),
            Self::WrongRecord => (Records::Wrong, Ownership::Held, Caa::Allowed),
            Self::NoText => (Records::Pass, Ownership::Missing, Caa::Allowed),
            Self::CaaForbids => (Records::Pass, Ownership::Held, Caa::Forbidden),
            Self::Partial => (Records::Partial, Ownership::Held, Caa::Allowed),
            Self::NoAnswer => (Records::Unknown, Ownership::Unknown, Caa::Unknown),
        };
        Judgement { records, ownership, caa, is_apex: None, ..Judgement::local(false) }
    }
}

/// The result of an authority.
#[derive(Clone, Copy, Debug)]
enum Says {
    Issued,
    Limited,
    Queued,
    NoGateway,
    EdgeUnreachable,
    Away,
    Rejected,
    Unreachable,
    Unavailable,
}

impl Says {
    const ALL: [Self; 9] = [
        Self::Issued,
        Self::Limited,
        Self::Queued,
        Self::NoGateway,
        Self::EdgeUnreachable,
        Self::Away,
        Self::Rejected,
        Self::Unreachable,
        Self::Unavailable,
    ];

    fn result(self, domain: &Domain, now: UnixMillis) -> Result<(Box<CertificateBundle>, CertificateFacts), Verdict> {
        let (until, now) = (now.plus(DAY).to_seconds(), now.to_seconds());
        let failed = |error| Err(Verdict::Refused(error));
        match self {
            Self::Issued => {
                let bundle = CertificateBundle {
                    hostname: domain.name.clone(),
                    chain_pem: String::new(),
                    key: SealedKey(String::new()),
                    not_before: now,
                    not_after: now.plus(90 * DAY / 1_000),
                };
                let facts = CertificateFacts { serial: "1".to_owned(), key_type: "ecdsa_p256".to_owned() };
                Ok((Box::new(bundle), facts))
            }
            Self::Limited => failed(IssueError::RateLimited { until: Some(until), message: String::new() }),
            Self::Queued => failed(IssueError::Queued { number: 1, is_own: false }),
            Self::NoGateway => failed(IssueError::NoGateway),
            Self::EdgeUnreachable => failed(IssueError::EdgeUnreachable { until, message: String::new() }),
            Self::Away => failed(IssueError::Away { until, failures: 1, message: String::new() }),
            Self::Rejected => failed(IssueError::Rejected(String::new())),
            Self::Unreachable => failed(IssueError::Unreachable(String::new())),
            Self::Unavailable => failed(IssueError::Unavailable(String::new())),
        }
    }
}

/// One domain, the holder of its name, and the time.
#[derive(Clone, Debug)]
struct World {
    domain: Domain,
    is_held: bool,
    is_contested: bool,
    /// Whether the name has a row in the queue of its authority.
    has_row: bool,
    now: UnixMillis,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A check after this number of milliseconds, and the authority's result if a certificate is ordered.
    Check(Found, Says, bool, i64),
    /// Another project proves the name.
    Lose,
}

impl World {
    fn policy(&self, reason: Reason) -> Policy {
        let holder = match (self.is_held, self.is_contested) {
            (true, _) => Holder::This,
            (false, true) => Holder::Another("other".parse().unwrap(), None),
            (false, false) => Holder::Free,
        };
        let claim = match (self.is_contested, self.is_held && self.domain.status.is_served()) {
            (true, _) => Claim::Contested,
            (false, true) => Claim::Proven,
            (false, false) => Claim::Open,
        };
        Policy { claim, holder, served_until: None, reason, jitter: 0.5 }
    }

    /// Makes a check and applies its effects. Returns whether a certificate was ordered.
    fn check(&mut self, found: Found, says: Says, reason: Reason) -> bool {
        let policy = self.policy(reason);
        let check = DnsCheck { judged: found.judged(), checks: None, claim: policy.claim };
        let (domain, actions) = decide(self.domain.clone(), check, &policy, self.now);
        self.domain = domain;
        if actions.iter().any(|action| matches!(action, Action::SetHolder | Action::TakeOver(..))) {
            (self.is_held, self.is_contested) = (true, false);
        }
        let orders = actions.iter().any(|action| matches!(action, Action::Order(_)));
        self.leave(&actions);
        if orders {
            self.has_row = true;
            let mut round = Round::begin(&self.domain.certificate);
            let (domain, actions) = match says.result(&self.domain, self.now) {
                Ok(certificate) => issued(self.domain.clone(), ("one", false), certificate, self.now, 0.5),
                Err(verdict) => {
                    round.record("one", verdict);
                    unissued(self.domain.clone(), round, self.now, 0.5)
                }
            };
            self.domain = domain;
            self.leave(&actions);
        }
        orders
    }

    fn leave(&mut self, actions: &[Action]) {
        let leaves =
            |action: &Action| matches!(action, Action::LeaveQueue | Action::LeaveQueueAt(_) | Action::FinishOrders);
        self.has_row &= !actions.iter().any(leaves);
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Check(found, says, asked, after) => {
                self.now = self.now.plus(after);
                self.check(found, says, if asked { Reason::Requested } else { Reason::Schedule });
            }
            Step::Lose => {
                let rival = Domain::added(self.domain.name.clone(), "other".parse().unwrap(), self.now);
                let holder = if self.is_held {
                    Holder::Another(self.domain.project.clone(), Some(Box::new(self.domain.clone())))
                } else {
                    Holder::Free
                };
                let policy = Policy {
                    claim: Claim::Contested,
                    holder,
                    served_until: None,
                    reason: Reason::Schedule,
                    jitter: 0.5,
                };
                let check = DnsCheck { judged: Found::Passes.judged(), checks: None, claim: Claim::Contested };
                let (_, actions) = decide(rival, check, &policy, self.now);
                for action in actions {
                    if let Action::TakeOver(_, Some(LostDomain { domain, .. })) = action {
                        self.domain = *domain;
                        self.has_row = false;
                    }
                }
                (self.is_held, self.is_contested) = (false, true);
            }
        }
    }

    /// Advances to the time when the domain is due and an order may continue.
    fn wait_for_order(&mut self) -> Reason {
        let reason = self.wait();
        if let Some(attempt) = self.domain.certificate.next_attempt_at {
            self.now = self.now.max(attempt.to_millis());
        }
        reason
    }

    /// Advances to the time when the domain is due. If it is due no more, its owner asks.
    fn wait(&mut self) -> Reason {
        match self.domain.due_at {
            Some(due) => {
                self.now = self.now.max(due);
                Reason::Schedule
            }
            None => Reason::Requested,
        }
    }
}

fn world() -> impl Strategy<Value = World> {
    let statuses = Status::ALL.iter().copied().filter(|status| *status != Status::Removing).collect::<Vec<_>>();
    let certificate = proptest::option::of(-DAY..90 * DAY);
    let failing = proptest::option::of(0..40 * DAY);
    let attempt = proptest::option::of(-DAY..2 * DAY);
    (prop::sample::select(statuses), 0..40 * DAY, certificate, failing, attempt).prop_map(
        |(status, since, certificate, failing, attempt)| {
            let mut domain = Domain::added("shop.customer.com".parse().unwrap(), "demo".parse().unwrap(), START);
            domain.status = status;
            domain.status_since = START.plus(-since);
            domain.failing_since = failing.map(|failing| START.plus(-failing));
            domain.certificate.not_after = certificate.map(|left| START.plus(left).to_seconds());
            domain.certificate.renew_at = certificate.map(|left| START.plus(left - 30 * DAY).to_seconds());
            domain.certificate.next_attempt_at = attempt.map(|attempt| START.plus(attempt).to_seconds());
            let is_held = status.is_served() || matches!(status, Status::Issuing | Status::Suspended);
            World { domain, is_held, is_contested: false, has_row: false, now: START }
        },
    )
}

fn checks(found: &'static [Found]) -> impl Strategy<Value = Step> {
    let says = prop::sample::select(&Says::ALL[..]);
    (prop::sample::select(found), says, any::<bool>(), 0..3 * DAY)
        .prop_map(|(found, says, asked, after)| Step::Check(found, says, asked, after))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(prop_oneof![8 => checks(&Found::ALL), 1 => Just(Step::Lose)], 0..12)
}

proptest! {
    #[test]
    fn from_every_state_and_history_passing_checks_lead_to_active(mut world in world(), steps in steps()) {
        for step in steps {
            world.take(step);
        }
        for _ in 0..6 {
            let reason = world.wait_for_order();
            world.check(Found::Passes, Says::Issued, reason);
            if world.domain.status == Status::Active {
                break;
            }
        }
        prop_assert_eq!(world.domain.status, Status::Active);
        prop_assert!(world.domain.certificate.is_valid(world.now.to_seconds()));
        prop_assert!(world.is_held);
    }

    #[test]
    fn a_name_without_its_proof_is_served_at_most_for_the_grace_period(
        mut world in world(),
        steps in steps(),
        withdrawn in prop::collection::vec(prop::sample::select(&Found::WITHDRAWN[..]), 64),
    ) {
        for step in steps {
            world.take(step);
        }
        world.wait();
        let from = world.now;
        for found in withdrawn {
            let ordered = world.check(found, Says::Issued, Reason::Schedule);
            prop_assert!(!ordered, "no certificate is ordered without the proof");
            if !world.domain.status.is_served() {
                break;
            }
            world.wait();
        }
        prop_assert!(!world.domain.status.is_served());
        prop_assert!(world.now.since(from) <= DOUBT_MILLIS + DEGRADED_MILLIS_MAX + 2 * DAY);
    }

    #[test]
    fn a_name_has_a_place_in_a_queue_only_while_it_waits_for_it(mut world in world(), steps in steps()) {
        for step in steps {
            world.take(step);
            let away = |problem: &Problem| {
                problem.code == ProblemCode::CaUnavailable && problem.severity == Severity::Warning
            };
            let is_away = world.domain.problems.iter().any(away);
            prop_assert!(!world.has_row || world.domain.certificate.queued || is_away, "{step:?}");
        }
    }

    #[test]
    fn an_unproven_name_is_never_served(
        steps in prop::collection::vec(checks(&Found::ALL[1..]), 0..40),
    ) {
        let domain = Domain::added("shop.customer.com".parse().unwrap(), "demo".parse().unwrap(), START);
        let mut world = World { domain, is_held: false, is_contested: false, has_row: false, now: START };
        for step in steps {
            world.take(step);
            prop_assert!(!world.domain.status.is_served() && !world.is_held);
        }
    }

    #[test]
    fn a_name_is_served_only_for_the_project_that_proved_it(
        mut world in world(),
        steps in steps(),
        later in prop::collection::vec(checks(&[Found::NoRecord, Found::NoText, Found::Partial, Found::NoAnswer]), 0..20),
    ) {
        for step in steps {
            world.take(step);
        }
        prop_assume!(world.is_held);
        world.take(Step::Lose);
        prop_assert!(!world.domain.status.is_served());
        for step in later {
            world.take(step);
            prop_assert!(!world.domain.status.is_served() && !world.is_held);
        }
    }

    #[test]
    fn nothing_is_served_without_a_valid_certificate_after_a_check(mut world in world(), steps in steps()) {
        for step in steps {
            world.take(step);
            let is_valid = world.domain.certificate.is_valid(world.now.to_seconds());
            prop_assert!(matches!(step, Step::Lose) || is_valid || !world.domain.status.is_served());
        }
    }
}
