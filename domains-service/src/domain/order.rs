//! Applies the result of a certificate order to a domain: decided here, written by `crate::reconcile`.

use std::collections::BTreeMap;

use contract::certificate::CertificateBundle;
use contract::hostname::Hostname;
use contract::time::{UnixMillis, UnixSeconds};
use serde_json::json;

use super::failure::IssueError;
use super::reconcile::{Action, WAITING, due_at, is_with_authority, transition};
use super::state::Status;
use super::{CertificateState, CertificateStatus, Domain, schedule};
use verification::problem::{Problem, ProblemCode};

#[cfg(test)]
mod tests;

/// Time from a certificate's issue to the first request for advice on its renewal.
const ADVICE_AFTER_SECONDS: i64 = 3_600;

/// Failures in a row, of an authority or of a name at it, before the next authority is asked.
const FAILURES_BEFORE_NEXT: u32 = 2;

/// Facts about a certificate that people see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFacts {
    pub(crate) serial: String,
    pub(crate) key_type: String,
}

/// Why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The authority did not issue.
    Refused(IssueError),
    /// The authority returned a certificate that cannot be used.
    Unfit(String),
    /// No authority is configured for the name.
    NoAuthority,
}

impl Verdict {
    /// Whether the order has ended at the authority, so that the next attempt begins a new one.
    const fn ends_order(&self) -> bool {
        use IssueError::{Caa, EdgeUnreachable, Rejected, Unreachable};
        matches!(self, Self::Unfit(_) | Self::Refused(Unreachable(_) | EdgeUnreachable { .. } | Caa(_) | Rejected(_)))
    }

    /// Whether the next authority is tried, for a name with `attempts` failed attempts. A refused proof would be refused
    /// elsewhere too, and no other authority reaches our edge either. An authority that does not answer gets a second
    /// chance, because its order is in progress.
    const fn asks_next(&self, attempts: u32) -> bool {
        use IssueError::{Away, EdgeUnreachable, NoGateway, Unavailable, Unreachable};
        match self {
            Self::Refused(Unreachable(_) | EdgeUnreachable { .. } | NoGateway) => false,
            Self::Refused(Unavailable(_)) => attempts >= FAILURES_BEFORE_NEXT,
            Self::Refused(Away { failures, .. }) => *failures >= FAILURES_BEFORE_NEXT,
            _ => true,
        }
    }

    fn code(&self) -> ProblemCode {
        if let Self::Refused(error) = self { error.code() } else { ProblemCode::CaUnavailable }
    }

    fn phrase(&self) -> String {
        match self {
            Self::Refused(error) => error.phrase().to_owned(),
            Self::Unfit(why) => format!("The authority returned a certificate that cannot be used: {why}."),
            Self::NoAuthority => "No certificate authority is configured for this name.".to_owned(),
        }
    }
}

/// One round over the authorities that may issue for a name, best first.
pub(crate) struct Round {
    /// Failed attempts before the round.
    attempts: u32,
    /// Authorities that must not be asked before a time.
    waiting: BTreeMap<String, UnixSeconds>,
    /// Whether the order waits for its turn in a queue of ours.
    queued: bool,
    /// When the first unreachable authority is tried again.
    back_at: Option<UnixSeconds>,
    /// Authorities that answered for this name, or may not issue for it: its wait for an order there is over.
    answered: Vec<String>,
    /// The most informative result, its authority, and whether it counts as an attempt.
    said: Option<(String, Verdict, bool)>,
}

impl Round {
    /// Begins a round for a domain with this certificate.
    pub(crate) fn begin(certificate: &CertificateState) -> Self {
        Self {
            attempts: certificate.attempts,
            waiting: certificate.waiting.clone(),
            queued: false,
            back_at: None,
            answered: Vec::new(),
            said: None,
        }
    }

    /// Whether an authority must not be asked yet, and is skipped.
    pub(crate) fn skips(&mut self, authority: &str, now: UnixSeconds) -> bool {
        let wait = self.waiting.get(authority).filter(|until| **until > now).copied();
        if let (Some(until), None) = (wait, &self.said) {
            let limited = IssueError::RateLimited { until: Some(until), message: String::new() };
            self.said = Some((authority.to_owned(), Verdict::Refused(limited), false));
        }
        wait.is_some()
    }

    /// Records that these authorities may not issue for the name.
    pub(crate) fn excludes<'a>(&mut self, authorities: impl IntoIterator<Item = &'a str>) {
        self.answered.extend(authorities.into_iter().map(str::to_owned));
    }

    /// Records why an authority issued no certificate. Returns whether the next one is tried. A rate limit without an end
    /// is retried after growing pauses, like a failure.
    pub(crate) fn record(&mut self, authority: &str, verdict: Verdict) -> bool {
        self.waiting.remove(authority);
        let wait = if let Verdict::Refused(why) = &verdict { Some(why).filter(|why| why.is_wait()) } else { None };
        match wait.map(|why| (why, why.until())) {
            Some((IssueError::RateLimited { .. }, Some(until))) => {
                self.waiting.insert(authority.to_owned(), until);
            }
            Some((_, Some(until))) => self.back_at = self.back_at.into_iter().chain([until]).min(),
            Some((_, None)) => self.queued = true,
            None => {}
        }
        if !wait.is_some_and(IssueError::keeps_place) {
            self.answered.push(authority.to_owned());
        }
        let (is_attempt, next_authority) = (wait.is_none(), verdict.asks_next(self.attempts));
        // A failure that the owner can fix is more informative than another authority's rate limit.
        if is_attempt || !matches!(self.said, Some((_, _, true))) {
            self.said = Some((authority.to_owned(), verdict, is_attempt));
        }
        next_authority
    }

    /// The label of the metric of rounds without a certificate. Rate limits have their own label and alert.
    pub(crate) fn label(&self) -> &'static str {
        match self.said.as_ref().map(|(_, verdict, _)| verdict.code()) {
            Some(ProblemCode::CaRateLimited) => "limited",
            Some(ProblemCode::CertQueued) => "queued",
            Some(ProblemCode::EdgeUnavailable) => "edge_unavailable",
            _ => "failed",
        }
    }
}

/// The domain after a round without a certificate, and the records to write with it.
pub(crate) fn unissued(mut domain: Domain, round: Round, now: UnixMillis, jitter: f64) -> (Domain, Vec<Action>) {
    let Round { waiting, queued, back_at, answered, said, .. } = round;
    let soonest = waiting.values().copied().chain(back_at).min();
    let was_asked = said.is_some();
    let (authority, verdict, is_attempt) = said.unwrap_or((String::new(), Verdict::NoAuthority, true));
    let (code, phrase) = (verdict.code(), verdict.phrase());
    let attempts = domain.certificate.attempts.saturating_add(is_attempt.into());
    // The earliest authority decides. One without a wait follows its schedule of failures; a queue has its own.
    let next = match soonest {
        _ if is_attempt => Some(schedule::next_attempt(attempts, now, jitter).to_seconds()),
        soonest => soonest.map(|soonest| schedule::after(soonest, jitter)),
    };
    let is_new = domain.problems.iter().all(|problem| problem.code != code);
    let renews = domain.certificate.is_valid(now.to_seconds());
    domain.certificate.attempts = attempts;
    domain.certificate.status = match (is_attempt, renews) {
        (true, _) => CertificateStatus::Failed,
        (false, true) => CertificateStatus::Renewing,
        (false, false) => CertificateStatus::Queued,
    };
    if is_attempt {
        domain.certificate.last_error = Some(phrase.clone());
    }
    domain.certificate.next_attempt_at = next;
    domain.certificate.rate_limited_until = (code == ProblemCode::CaRateLimited).then_some(soonest).flatten();
    domain.certificate.waiting = waiting;
    domain.certificate.queued = queued;
    domain.problems.retain(|problem| problem.code != code && !WAITING.contains(&problem.code));
    let message = if was_asked { explain(code, &domain.name) } else { phrase.clone() };
    let words = if let Verdict::Refused(error) = &verdict { error.verdict() } else { None };
    let observed = words.or_else(|| was_asked.then_some(phrase));
    let problem = Problem::new(code, domain.name.as_str(), message, fix(code, was_asked));
    let problem = if is_attempt { problem.holding_up() } else { problem.waiting() };
    domain.problems.push(problem.until(next).seen([], observed));
    // The wait begins at its turn if it waits behind its owner's own orders.
    domain.record_wait(!matches!(verdict, Verdict::Refused(IssueError::Queued { is_own: true, .. })), now);
    domain.due_at = due_at(&domain, now, jitter);
    let mut actions = Vec::new();
    // A place that is kept without a wait for it would stop the names behind it.
    if is_attempt && !queued {
        actions.push(Action::LeaveQueue);
    } else {
        actions.extend(answered.into_iter().map(Action::LeaveQueueAt));
    }
    if verdict.ends_order() {
        actions.extend([Action::ForgetOrder(authority), Action::WithdrawChallenges]);
    }
    if is_attempt {
        let detail = json!({ "attempt": attempts, "error": domain.certificate.last_error });
        actions.push(Action::Record("domain.certificate.failed", detail));
    } else if is_new {
        actions.push(Action::Record("domain.certificate.waiting", json!({ "reason": code })));
    }
    actions.push(Action::Save);
    (domain, actions)
}

/// The domain with its new certificate, and the records to write with it. `has_advice`: the authority advises on the
/// time of renewal.
pub(crate) fn issued(
    mut domain: Domain,
    (authority, has_advice): (&str, bool),
    (bundle, facts): (Box<CertificateBundle>, CertificateFacts),
    now: UnixMillis,
    jitter: f64,
) -> (Domain, Vec<Action>) {
    let renewed = domain.certificate.not_after.is_some();
    let renew_at = schedule::renew_at(bundle.not_before.to_millis(), bundle.not_after.to_millis(), jitter);
    domain.certificate = CertificateState {
        status: CertificateStatus::Deployed,
        ca: Some(authority.to_owned()),
        serial: Some(facts.serial),
        not_before: Some(bundle.not_before),
        not_after: Some(bundle.not_after),
        key_type: Some(facts.key_type),
        renew_at: Some(renew_at.to_seconds()),
        advice_at: has_advice.then(|| now.to_seconds().plus(ADVICE_AFTER_SECONDS)),
        ..CertificateState::default()
    };
    domain.problems.retain(|problem| !is_with_authority(problem.code) && problem.code != ProblemCode::CertDelayed);
    domain.waits_since = None;
    domain.touch(now);
    let event = if renewed { "domain.certificate.renewed" } else { "domain.certificate.issued" };
    let detail = json!({ "ca": authority, "serial": domain.certificate.serial });
    let mut actions = vec![Action::Deploy(bundle), Action::FinishOrders, Action::WithdrawChallenges];
    actions.push(Action::Record(event, detail));
    if matches!(domain.status, Status::Issuing | Status::ActionRequired | Status::Suspended) {
        transition(&mut domain, Status::Active, now, &mut actions);
    }
    domain.due_at = due_at(&domain, now, jitter);
    actions.extend([Action::Save, Action::Publish]);
    (domain, actions)
}

/// The domain with an order that waits for an authority until `until`; nothing else changes.
pub(crate) fn postponed(mut domain: Domain, until: UnixMillis, now: UnixMillis, jitter: f64) -> Domain {
    let next = Some(schedule::after(until.plus(999).to_seconds(), jitter));
    domain.certificate.next_attempt_at = next;
    for problem in domain.problems.iter_mut().filter(|problem| WAITING.contains(&problem.code)) {
        problem.retry_at = next;
    }
    domain.due_at = due_at(&domain, now, jitter);
    domain
}

/// The fix for a failure. If no authority was asked, the platform has none for the name, and waiting does not help.
fn fix(code: ProblemCode, was_asked: bool) -> &'static str {
    match code {
        ProblemCode::ChallengeUnreachable => {
            "Remove the proxy, redirect or firewall rule that keeps requests for this name from reaching the platform, \
             then choose Re-verify."
        }
        ProblemCode::CaaForbids => "Let CAA records allow the authority, or remove them, then choose Re-verify.",
        ProblemCode::CaRejected => "The authority does not issue for this name; use another one.",
        _ if was_asked => "No action is needed: we try again automatically.",
        _ => "Ask the operator of the platform to configure a certificate authority, then choose Re-verify.",
    }
}

/// The failure's explanation for the domain's owner.
fn explain(code: ProblemCode, name: &Hostname) -> String {
    match code {
        ProblemCode::ChallengeUnreachable => format!("The certificate authority could not reach us under {name}."),
        ProblemCode::CaRejected => format!("The certificate authority refuses to issue a certificate for {name}."),
        ProblemCode::CaaForbids => {
            format!("The certificate authority found CAA records that forbid it to issue for {name}.")
        }
        ProblemCode::CaRateLimited => "The rate limit of the certificate authority is reached.".to_owned(),
        ProblemCode::CertQueued => {
            format!("The certificate for {name} waits in our queue, because the authority limits our orders.")
        }
        ProblemCode::EdgeUnavailable => {
            format!("Our gateways cannot be reached, so the certificate authority cannot check {name}.")
        }
        _ => format!("The certificate authority did not issue a certificate for {name} this time."),
    }
}
