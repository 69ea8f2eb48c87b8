//! Results of orders and the resulting domains, one case per line.

use super::*;
use verification::problem::Severity;

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
const MINUTE: i64 = 60;

fn domain() -> Domain {
    let mut domain = Domain::added("shop.customer.com".parse().unwrap(), "demo".parse().unwrap(), NOW);
    domain.status = Status::Issuing;
    domain
}

/// The time after this number of seconds.
fn later(seconds: i64) -> UnixSeconds {
    NOW.to_seconds().plus(seconds)
}

fn text() -> String {
    "words".to_owned()
}

fn limited(seconds: i64) -> IssueError {
    IssueError::RateLimited { until: Some(later(seconds)), message: text() }
}

const QUEUED: IssueError = IssueError::Queued { number: 1, is_own: false };

fn edge_unreachable(seconds: i64) -> IssueError {
    IssueError::EdgeUnreachable { until: later(seconds), message: text() }
}

fn away(seconds: i64, failures: u32) -> IssueError {
    IssueError::Away { until: later(seconds), failures, message: text() }
}

/// The domain after a round in which the authorities "one", "two" and so on gave these results.
fn after(errors: Vec<IssueError>) -> (Domain, Vec<Action>) {
    let domain = domain();
    let mut round = Round::begin(&domain.certificate);
    for (name, error) in ["one", "two", "three"].into_iter().zip(errors) {
        round.record(name, Verdict::Refused(error));
    }
    unissued(domain, round, NOW, 0.0)
}

fn words(actions: &[Action]) -> String {
    let words = actions.iter().map(|action| match action {
        Action::Record(event, _) => (*event).to_owned(),
        Action::ForgetOrder(authority) => format!("forget-order-at-{authority}"),
        Action::LeaveQueueAt(authority) => format!("leave-queue-at-{authority}"),
        Action::Deploy(_) => "deploy".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_round_without_a_certificate_updates_the_domain() {
    use ProblemCode::{
        CaRateLimited, CaRejected, CaUnavailable, CaaForbids, CertQueued, ChallengeUnreachable, EdgeUnavailable,
    };
    let noted = "leavequeue domain.certificate.failed save";
    let waits = "domain.certificate.waiting save";
    let limits = "leave-queue-at-one domain.certificate.waiting save";
    let failed_here = "leave-queue-at-one forget-order-at-one withdrawchallenges domain.certificate.waiting save";
    let ended = "leavequeue forget-order-at-one withdrawchallenges domain.certificate.failed save";
    // Columns: the authority's result, the problem, counted attempts, seconds to the next attempt, seconds of the
    // limit, written records.
    let endless = IssueError::RateLimited { until: None, message: text() };
    for (error, code, attempts, next, limited_for, written) in [
        (IssueError::Unreachable(text()), ChallengeUnreachable, 1, Some(48), None, ended),
        (IssueError::Caa(text()), CaaForbids, 1, Some(48), None, ended),
        (IssueError::Rejected(text()), CaRejected, 1, Some(48), None, ended),
        (IssueError::Unavailable(text()), CaUnavailable, 1, Some(48), None, noted),
        (endless, CaRateLimited, 1, Some(48), None, noted),
        (limited(90), CaRateLimited, 0, Some(90), Some(90), limits),
        (QUEUED, CertQueued, 0, None, None, waits),
        (IssueError::NoGateway, EdgeUnavailable, 0, None, None, waits),
        (edge_unreachable(90), EdgeUnavailable, 0, Some(90), None, failed_here),
        (away(90, 1), CaUnavailable, 0, Some(90), None, waits),
    ] {
        let (domain, actions) = after(vec![error]);
        let certificate = &domain.certificate;
        let codes: Vec<_> = domain.problems.iter().map(|problem| problem.code).collect();
        assert_eq!(codes, [code]);
        let (status, severity) = match attempts {
            0 => (CertificateStatus::Queued, Severity::Warning),
            _ => (CertificateStatus::Failed, Severity::Error),
        };
        assert_eq!((certificate.attempts, certificate.status), (attempts, status), "{code:?}");
        assert_eq!(
            (domain.problems[0].severity, certificate.last_error.is_some()),
            (severity, attempts > 0),
            "{code:?}"
        );
        assert_eq!(certificate.queued, next.is_none(), "{code:?}");
        assert_eq!(certificate.next_attempt_at, next.map(later), "{code:?}");
        assert_eq!(domain.problems[0].retry_at, next.map(later), "{code:?}");
        assert_eq!(certificate.rate_limited_until, limited_for.map(later), "{code:?}");
        assert_eq!(words(&actions), written, "{code:?}");
        assert_eq!(domain.status, Status::Issuing, "the status stays");
        // The same wait again is not an event.
        let mut round = Round::begin(&domain.certificate);
        let again = if next.is_none() { QUEUED } else { away(90, 1) };
        let is_same = again.code() == code;
        round.record("one", Verdict::Refused(again));
        let (_, actions) = unissued(domain, round, NOW, 0.0);
        assert_eq!(words(&actions), if is_same { "save" } else { waits }, "{code:?}");
    }
}

#[test]
fn a_name_without_an_authority_gets_a_problem() {
    let (domain, actions) = after(Vec::new());
    assert_eq!(domain.certificate.attempts, 1);
    assert_eq!(domain.problems[0].message, "No certificate authority is configured for this name.");
    assert!(domain.problems[0].fix.contains("operator of the platform"));
    assert_eq!(words(&actions), "leavequeue domain.certificate.failed save");
}

#[test]
fn a_wait_for_earlier_orders_of_the_owner_does_not_alert_operators() {
    for (is_own, waits_since) in [(true, None), (false, Some(NOW))] {
        let (domain, _) = after(vec![IssueError::Queued { number: 1, is_own }]);
        assert_eq!(domain.waits_since, waits_since, "{is_own}");
    }
}

#[test]
fn a_name_keeps_its_queue_positions_only_while_it_waits() {
    for (errors, written) in [
        (vec![limited(90), QUEUED], "leave-queue-at-one domain.certificate.waiting save"),
        (vec![QUEUED, limited(90)], "leave-queue-at-two domain.certificate.waiting save"),
        (vec![QUEUED, QUEUED], "domain.certificate.waiting save"),
        (vec![away(90, 2), QUEUED], "domain.certificate.waiting save"),
        (vec![QUEUED, IssueError::Unavailable(text())], "leave-queue-at-two domain.certificate.failed save"),
        (vec![away(90, 2), IssueError::Unavailable(text())], "leavequeue domain.certificate.failed save"),
    ] {
        let (_, actions) = after(errors.clone());
        assert_eq!(words(&actions), written, "{errors:?}");
    }
}

#[test]
fn a_name_leaves_the_queue_of_an_authority_that_may_not_issue_for_it() {
    let domain = domain();
    let mut round = Round::begin(&domain.certificate);
    round.excludes(["one"]);
    round.record("two", Verdict::Refused(QUEUED));
    let (_, actions) = unissued(domain, round, NOW, 0.0);
    assert_eq!(words(&actions), "leave-queue-at-one domain.certificate.waiting save");
}

#[test]
fn the_next_authority_is_asked_unless_the_answer_would_be_the_same() {
    let asks_next = |error, attempts| {
        let certificate = CertificateState { attempts, ..CertificateState::default() };
        Round::begin(&certificate).record("one", Verdict::Refused(error))
    };
    assert!(asks_next(limited(90), 0));
    assert!(asks_next(QUEUED, 0));
    assert!(!asks_next(edge_unreachable(90), 0), "the next could not reach us either");
    assert!(!asks_next(IssueError::NoGateway, 0));
    assert!(!asks_next(away(90, 1), 0), "its order is in progress");
    assert!(asks_next(away(90, 2), 0));
    assert!(!asks_next(IssueError::Unavailable(text()), 1), "its order is in progress");
    assert!(asks_next(IssueError::Unavailable(text()), 2));
    assert!(asks_next(IssueError::Rejected(text()), 0));
    assert!(!asks_next(IssueError::Unreachable(text()), 5), "the next could not reach us either");
}

#[test]
fn a_certificate_that_cannot_be_used_ends_its_order() {
    let mut round = Round::begin(&domain().certificate);
    assert!(round.record("one", Verdict::Unfit("it is empty".to_owned())));
    let (domain, actions) = unissued(domain(), round, NOW, 0.0);
    let expected = "The authority returned a certificate that cannot be used: it is empty.";
    assert_eq!(domain.certificate.last_error.as_deref(), Some(expected));
    assert_eq!(words(&actions), "leavequeue forget-order-at-one withdrawchallenges domain.certificate.failed save");
}

#[test]
fn a_round_reports_the_failure_that_the_owner_can_fix() {
    let rejected = || IssueError::Rejected(text());
    for errors in [vec![QUEUED, rejected()], vec![rejected(), QUEUED]] {
        let (domain, _) = after(errors);
        assert_eq!(domain.problems[0].code, ProblemCode::CaRejected);
        assert_eq!(domain.problems[0].observed, ["words"]);
        assert_eq!(domain.certificate.attempts, 1);
    }
}

#[test]
fn an_authority_that_limits_us_is_skipped_until_its_time_and_our_own_queue_is_not() {
    let (waits, _) = after(vec![limited(10 * MINUTE), QUEUED]);
    assert_eq!(waits.certificate.next_attempt_at, Some(later(10 * MINUTE)), "its turn may come earlier");
    assert!(waits.certificate.queued);
    let mut round = Round::begin(&waits.certificate);
    assert!(round.skips("one", later(10 * MINUTE - 1)));
    assert!(!round.skips("one", later(10 * MINUTE)));
    assert!(!round.skips("two", later(0)));
    assert_eq!(round.label(), "limited");
    let (still, _) = unissued(waits, round, NOW, 0.0);
    assert_eq!(still.certificate.attempts, 0);
}

#[test]
fn pauses_after_failed_attempts_grow_until_a_certificate_is_issued() {
    let mut domain = domain();
    for minutes in [48, 8 * MINUTE, 80 * MINUTE, 86_400 / 5 * 4] {
        let mut round = Round::begin(&domain.certificate);
        round.record("one", Verdict::Refused(IssueError::Unavailable(text())));
        (domain, _) = unissued(domain, round, NOW, 0.0);
        assert_eq!(domain.certificate.next_attempt_at, Some(later(minutes)));
    }
    let bundle = CertificateBundle {
        hostname: domain.name.clone(),
        chain_pem: String::new(),
        key: contract::certificate::SealedKey(String::new()),
        not_before: later(0),
        not_after: later(90 * 86_400),
    };
    let facts = CertificateFacts { serial: "1".to_owned(), key_type: "ecdsa_p256".to_owned() };
    let (domain, actions) = issued(domain, ("one", true), (Box::new(bundle), facts), NOW, 0.0);
    assert_eq!(
        words(&actions),
        "deploy finishorders withdrawchallenges domain.certificate.issued domain.active becomeprimaryifwanted save \
         publish"
    );
    assert_eq!((domain.status, domain.certificate.attempts, domain.problems.len()), (Status::Active, 0, 0));
    assert_eq!(domain.certificate.renew_at, Some(later(60 * 86_400)), "with a third of its life left");
    assert_eq!(domain.certificate.advice_at, Some(later(ADVICE_AFTER_SECONDS)));
}

#[test]
fn a_waiting_order_continues_when_the_first_authority_is_back() {
    let (away, _) = after(vec![away(90, 1)]);
    let waits = postponed(away, NOW.plus(500), NOW, 0.0);
    assert_eq!(waits.certificate.next_attempt_at, Some(later(1)));
    assert_eq!(waits.problems[0].retry_at, Some(later(1)), "not the time of the outage before");
    assert_eq!(waits.due_at, Some(later(1).to_millis()));
}
