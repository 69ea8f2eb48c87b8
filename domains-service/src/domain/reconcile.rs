//! Applies a DNS check to a domain: decided here, written by `crate::reconcile`.
//!
//! [`decide`] takes the domain, the result of the check, and other facts from the database. It returns the new domain
//! and all other records to write, in order. [`super::order`] decides about the result of a certificate order.

use std::net::IpAddr;

use contract::certificate::CertificateBundle;
use contract::time::{UnixMillis, UnixSeconds};
use domains_api::moment::rfc3339;
use serde_json::{Value, json};

use super::schedule::{self, LEASE_MILLIS};
use super::state::{DOUBT_MILLIS, StateFacts, Status, next_state};
use super::{CertificateStatus, Domain};
use crate::project::ProjectRef;
use verification::facts::Claim;
use verification::problem::{Problem, ProblemCode, Severity};
use verification::verdict::{Checks, Judgement, Ownership};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod table;

/// Problems that the platform or the authority resolves; the owner can do nothing.
pub(super) const WAITING: [ProblemCode; 4] =
    [ProblemCode::CaRateLimited, ProblemCode::CertQueued, ProblemCode::CaUnavailable, ProblemCode::EdgeUnavailable];

/// Problems between an authority and this service. Orders report them, not DNS checks.
pub(super) fn is_with_authority(code: ProblemCode) -> bool {
    WAITING.contains(&code) || matches!(code, ProblemCode::CaRejected | ProblemCode::ChallengeUnreachable)
}

contract::words! {
    /// Why a domain is checked.
    pub(crate) enum Reason {
        /// The check was due.
        Schedule = "schedule",
        /// The owner asked for it.
        Requested = "requested",
    }
}

/// The result of one DNS check.
#[derive(Clone, Debug)]
pub(crate) struct DnsCheck {
    pub(crate) judged: Judgement,
    /// The records; `None` for a name that only this machine knows.
    pub(crate) checks: Option<Checks>,
    /// The state of the ownership at the start of the check.
    pub(crate) claim: Claim,
}

/// Which project holds a name.
#[derive(Clone, Debug)]
pub(crate) enum Holder {
    /// No project.
    Free,
    /// The domain's own.
    This,
    /// Another one, and its domain of this name.
    Another(ProjectRef, Option<Box<Domain>>),
}

/// Other facts that a decision depends on, at the time of the decision.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// The state of the ownership now.
    pub(crate) claim: Claim,
    pub(crate) holder: Holder,
    /// When the domains stop being served because the plan has none; `None`: the plan has domains.
    pub(crate) served_until: Option<UnixMillis>,
    pub(crate) reason: Reason,
    /// In `0.0..1.0`: spreads the times of later checks.
    pub(crate) jitter: f64,
}

impl Policy {
    /// Whether the plan has custom domains, or had until lately.
    fn pays(&self, now: UnixMillis) -> bool {
        self.served_until.is_none_or(|until| now < until)
    }
}

/// The facts of the check that an order needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permitted {
    /// Authorities that may issue, best first, with the methods they may use.
    pub(crate) authorities: Vec<(String, Vec<String>)>,
    /// The addresses of the CNAME target.
    pub(crate) target_addresses: Vec<IpAddr>,
}

/// A domain whose project has lost its name.
#[derive(Clone, Debug)]
pub(crate) struct LostDomain {
    /// Its state before.
    pub(crate) before: Status,
    pub(crate) was_primary: bool,
    pub(crate) domain: Box<Domain>,
}

/// A record to write, or an effect, besides the domain.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// The project holds the name from now on.
    SetHolder,
    /// The project takes the name from another one, with that project's domain.
    TakeOver(ProjectRef, Option<LostDomain>),
    /// An event of the project.
    Record(&'static str, Value),
    /// The project's first active domain becomes its primary one, and so does one that is wanted as primary.
    BecomePrimaryIfWanted,
    /// Saves the domain. Effects that read it again follow this one.
    Save,
    /// Publishes the domain and those that redirect to it.
    Publish,
    /// The edge must not serve the name for this project any more.
    WithdrawFrom(ProjectRef),
    /// The certificate is put into service.
    Deploy(Box<CertificateBundle>),
    /// The certificate of the name's orders is in service.
    FinishOrders,
    /// The order at this authority led nowhere.
    ForgetOrder(String),
    /// The answers to challenges for the name are withdrawn.
    WithdrawChallenges,
    /// The name waits for no order any more.
    LeaveQueue,
    /// The name waits for no order of this authority any more.
    LeaveQueueAt(String),
    /// A certificate is ordered, under the same claim.
    Order(Permitted),
}

/// The domain after a check, and the records to write with it.
pub(crate) fn decide(mut domain: Domain, check: DnsCheck, policy: &Policy, now: UnixMillis) -> (Domain, Vec<Action>) {
    let DnsCheck { mut judged, checks, claim } = check;
    if policy.claim > claim {
        judged.ownership = Ownership::Unknown; // another project was faster; the next check asks for the proof
    }
    let before = domain.status;
    let next = next_state(&facts(&domain, policy, now), &judged, now);
    let mut actions = Vec::new();
    if next.may_issue {
        take_name(&mut domain, &policy.holder, now, policy.jitter, &mut actions);
    }
    let loses_place = if next.may_issue {
        domain.certificate.queued && !needs_certificate(&domain, now.to_seconds())
    } else {
        loses_place(&domain, &judged)
    };
    if loses_place {
        if std::mem::take(&mut domain.certificate.queued) {
            let is_valid = domain.certificate.is_valid(now.to_seconds());
            domain.certificate.status = if is_valid { CertificateStatus::Deployed } else { CertificateStatus::None };
            domain.problems.retain(|problem| !WAITING.contains(&problem.code));
        }
        // Also without a known wait: a worker that died during an order leaves a place.
        actions.push(Action::LeaveQueue);
    }
    let certified = domain.certificate.is_valid(now.to_seconds());
    let status = if next.status == Status::Issuing && certified { Status::Active } else { next.status };
    let is_unknown = judged.is_unknown();
    domain.is_apex = judged.is_apex.or(domain.is_apex);
    domain.checks = checks.or(domain.checks);
    let was_announced = domain.problems.iter().any(|problem| problem.code == ProblemCode::PlanRequired);
    domain.problems = problems(&domain, judged.problems, next.delayed, (policy.served_until, now), before);
    if let (false, Some(until)) = (was_announced, policy.served_until.filter(|until| *until > now)) {
        actions.push(Action::Record("domain.plan_ended", json!({ "served_until": rfc3339(until) })));
    }
    domain.failing_since = next.failing_since;
    domain.checked_at = Some(now);
    if next.may_issue || !is_unknown {
        domain.record_wait(next.may_issue, now);
    }
    transition(&mut domain, status, now, &mut actions);
    domain.due_at = due_at(&domain, now, policy.jitter);
    if let Some(until) = policy.served_until.filter(|until| *until > now) {
        domain.due_at = domain.due_at.map(|due| due.min(until));
    }
    let orders = next.may_issue && may_order(&domain, policy.reason, now.to_seconds());
    if orders {
        // If this process dies during the order, another one continues when the claim ends.
        let end = now.plus(LEASE_MILLIS);
        domain.due_at = Some(domain.due_at.map_or(end, |due| due.min(end)));
    }
    actions.extend([Action::Save, Action::Publish]);
    if let (true, Holder::Another(loser, _)) = (next.may_issue, &policy.holder) {
        // Without this, a gateway that misses the change would serve the loser under the winner's name.
        actions.push(Action::WithdrawFrom(loser.clone()));
    }
    if orders {
        let Judgement { permitted: authorities, target_addresses, .. } = judged;
        actions.push(Action::Order(Permitted { authorities, target_addresses }));
    }
    (domain, actions)
}

/// Whether a check without a pass costs the name its place in a queue. DNS that gives no answer does so only the second
/// time, and not if the fault is ours: a name that cannot be checked must not hold the place for ever.
fn loses_place(domain: &Domain, judged: &Judgement) -> bool {
    let failed_before = |problem: &Problem| problem.severity == Severity::Error && !is_with_authority(problem.code);
    !judged.is_unknown() || (!judged.resolver_down && domain.problems.iter().any(failed_before))
}

fn facts(domain: &Domain, policy: &Policy, now: UnixMillis) -> StateFacts {
    StateFacts {
        status: domain.status,
        status_since: domain.status_since,
        failing_since: domain.failing_since,
        certified: domain.certificate.is_valid(now.to_seconds()),
        paid: policy.pays(now),
        waits_for_us: domain.problems.iter().any(|problem| WAITING.contains(&problem.code)),
        delayed: policy.reason == Reason::Schedule
            && domain.problems.iter().any(|problem| problem.code == ProblemCode::CertDelayed),
    }
}

/// The problems of a check, and the platform's own. Problems with the authority stay until an order succeeds.
fn problems(
    domain: &Domain,
    mut seen: Vec<Problem>,
    delayed: bool,
    (served_until, now): (Option<UnixMillis>, UnixMillis),
    before: Status,
) -> Vec<Problem> {
    let place = domain.name.as_str();
    seen.extend(domain.problems.iter().filter(|problem| is_with_authority(problem.code)).cloned());
    if delayed {
        seen.push(Problem::new(
            ProblemCode::CertDelayed,
            place,
            "There is no certificate after 30 minutes.",
            "Check that CAA records do not block the certificate authority, then choose Re-verify.",
        ));
    }
    match served_until.filter(|_| before != Status::Removing) {
        Some(until) if now < until => {
            let message = format!(
                "The project's plan has no custom domains any more. {place} is served until {}; after that, visitors get an error.",
                rfc3339(until)
            );
            let fix = "Choose the Pro plan or above before that time.";
            seen.push(Problem::new(ProblemCode::PlanRequired, place, message, fix).waiting());
        }
        Some(_) => seen.push(Problem::new(
            ProblemCode::PlanRequired,
            place,
            "The project's plan has no custom domains.",
            "Choose the Pro plan or above; the domain is then served again automatically.",
        )),
        None => {}
    }
    seen
}

/// Gives the name to the domain's project. The former holder loses it; its certificate stays in service, because the
/// visitors are the same.
fn take_name(domain: &mut Domain, holder: &Holder, now: UnixMillis, jitter: f64, actions: &mut Vec<Action>) {
    match holder {
        Holder::This => {}
        Holder::Free => actions.push(Action::SetHolder),
        Holder::Another(loser, lost) => {
            let lost = lost.clone().map(|mut lost| {
                let (before, was_primary) = (lost.status, lost.primary);
                domain.certificate = std::mem::take(&mut lost.certificate);
                lost.primary = false;
                lost.waits_since = None;
                lost.problems.clear();
                lost.set_status(Status::PendingOwnership, now);
                lost.watched_since = now;
                lost.due_at = schedule::next_check(lost.status, now, now, jitter);
                LostDomain { before, was_primary, domain: lost }
            });
            actions.push(Action::TakeOver(loser.clone(), lost));
        }
    }
}

/// Moves the domain to `status`, with the effects of the new state.
pub(super) fn transition(domain: &mut Domain, status: Status, now: UnixMillis, actions: &mut Vec<Action>) {
    let before = domain.status;
    domain.set_status(status, now);
    if status == before {
        return;
    }
    let event = match status {
        Status::Active => "domain.active",
        Status::Issuing => "domain.verified",
        Status::Degraded => "domain.degraded",
        Status::Suspended => "domain.suspended",
        _ if before.is_served() || before == Status::Issuing => "domain.unverified",
        _ => "domain.status_changed",
    };
    actions.push(Action::Record(event, json!({ "from": before.as_str(), "to": status.as_str() })));
    if status == Status::Active {
        actions.push(Action::BecomePrimaryIfWanted);
    }
}

/// Whether there is no certificate, or its renewal is due.
fn needs_certificate(domain: &Domain, now: UnixSeconds) -> bool {
    domain.certificate.renew_at.is_none_or(|at| at <= now) || !domain.certificate.is_valid(now)
}

/// Whether a certificate is to be ordered now, where it may be.
fn may_order(domain: &Domain, reason: Reason, now: UnixSeconds) -> bool {
    let certificate = &domain.certificate;
    let is_time = certificate.next_attempt_at.is_none_or(|at| at <= now);
    // An owner's request does not override an authority's rate limit. A queue decides the order itself.
    let is_limited = certificate.rate_limited_until.is_some_and(|until| until > now);
    needs_certificate(domain, now) && (is_time || certificate.queued || (reason == Reason::Requested && !is_limited))
}

/// When the domain is due next: at the next check, or when the certificate needs it, whichever is first.
pub(super) fn due_at(domain: &Domain, now: UnixMillis, jitter: f64) -> Option<UnixMillis> {
    let check = if domain.status == Status::Active && domain.failing_since.is_some() {
        Some(now.plus(DOUBT_MILLIS))
    } else if domain.certificate.queued && domain.status == Status::Issuing {
        // Its turn makes it due.
        Some(now.plus(schedule::spread(schedule::DAILY_INTERVAL, jitter)))
    } else {
        schedule::next_check(domain.status, domain.watched_since, now, jitter)
    };
    let renewal = domain.certificate.renew_at.map(UnixSeconds::to_millis);
    let attempt = domain.certificate.next_attempt_at.map(UnixSeconds::to_millis);
    let advice = domain.certificate.advice_at.map(UnixSeconds::to_millis);
    // A due renewal waits for its next attempt.
    let certificate = match (renewal, attempt) {
        (Some(renewal), Some(attempt)) => Some(renewal.max(attempt)),
        (renewal, attempt) => renewal.or(attempt),
    };
    [check, certificate.filter(|at| *at > now), advice.filter(|at| *at > now)].into_iter().flatten().min()
}
