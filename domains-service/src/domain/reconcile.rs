//! Applies a DNS check to a domain: decided here, written by `crate::reconcile`.
//!
//! [`decide`] takes the domain, the result of the check, and other facts from the database. It returns the new domain
//! and all other records to write, in order. [`super::order`] decides about the result of a certificate order.

use contract::certificate::CertificateBundle;
use contract::time::{UnixMillis, UnixSeconds};
use serde_json::{Value, json};

use super::Domain;
use super::schedule::{self, LEASE_MILLIS};
use super::state::{StateFacts, Status, next_state};
use crate::project::ProjectRef;
use verification::facts::Claim;
use verification::problem::{Problem, ProblemCode};
use verification::verdict::{Checks, Judgement, Ownership, Records};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod table;

/// Problems that the platform or the authority resolves; the owner can do nothing.
pub(super) const WAITING: [ProblemCode; 3] =
    [ProblemCode::CaRateLimited, ProblemCode::CertQueued, ProblemCode::CaUnavailable];

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
        Asked = "asked",
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

impl DnsCheck {
    /// Whether even the zone could not be asked, without a known reason.
    pub(crate) fn unreachable(&self) -> bool {
        let is_known = self.judged.problems.iter().any(|problem| problem.code == ProblemCode::DnsDnssec);
        let has_no_zone = self.checks.as_ref().is_some_and(|checks| checks.zone.is_none());
        self.judged.records == Records::Unknown && has_no_zone && !is_known
    }
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
    /// Whether the plan pays for custom domains, or did until lately.
    pub(crate) pays: bool,
    pub(crate) reason: Reason,
    /// In `0.0..1.0`: spreads the times of later checks.
    pub(crate) jitter: f64,
}

/// Authorities that may issue, best first, with the methods they may use.
pub(crate) type Permitted = Vec<(String, Vec<String>)>;

/// A record to write, or an effect, besides the domain.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// The project holds the name from now on.
    SetHolder,
    /// The project takes the name from another one. That project's domain had this state, and becomes this.
    TakeOver(ProjectRef, Option<(Status, Box<Domain>)>),
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
    let certified = domain.certificate.is_valid(now.to_seconds());
    let status = if next.status == Status::Issuing && certified { Status::Active } else { next.status };
    domain.is_apex = judged.is_apex.or(domain.is_apex);
    domain.checks = checks.or(domain.checks);
    domain.problems = problems(&domain, judged.problems, next.delayed, policy.pays, before);
    domain.failing_since = next.failing_since;
    domain.checked_at = Some(now);
    transition(&mut domain, status, now, &mut actions);
    domain.due_at = due_at(&domain, now, policy.jitter);
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
        actions.push(Action::Order(judged.permitted));
    }
    (domain, actions)
}

fn facts(domain: &Domain, policy: &Policy, now: UnixMillis) -> StateFacts {
    StateFacts {
        status: domain.status,
        status_since: domain.status_since,
        failing_since: domain.failing_since,
        certified: domain.certificate.is_valid(now.to_seconds()),
        paid: policy.pays,
        waits_for_us: domain.problems.iter().any(|problem| WAITING.contains(&problem.code)),
        delayed: policy.reason == Reason::Schedule
            && domain.problems.iter().any(|problem| problem.code == ProblemCode::CertDelayed),
    }
}

/// The problems of a check, and the platform's own. Problems with the authority stay until an order succeeds.
fn problems(domain: &Domain, mut seen: Vec<Problem>, delayed: bool, pays: bool, before: Status) -> Vec<Problem> {
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
    if !pays && before != Status::Removing {
        seen.push(Problem::new(
            ProblemCode::PlanRequired,
            place,
            "The project's plan has no custom domains.",
            "Choose the Pro plan or above; the domain is then served again by itself.",
        ));
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
                let was = lost.status;
                domain.certificate = std::mem::take(&mut lost.certificate);
                lost.primary = false;
                lost.problems.clear();
                lost.set_status(Status::PendingOwnership, now);
                lost.watched_since = now;
                lost.due_at = schedule::next_check(lost.status, now, now, jitter);
                (was, lost)
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

/// Whether a certificate is to be ordered now, where it may be.
fn may_order(domain: &Domain, reason: Reason, now: UnixSeconds) -> bool {
    let certificate = &domain.certificate;
    let is_needed = certificate.renew_at.is_none_or(|at| at <= now) || !certificate.is_valid(now);
    let is_time = certificate.next_attempt_at.is_none_or(|at| at <= now);
    // An owner's request does not override an authority's rate limit. Our own queue may have moved.
    let is_limited = certificate.rate_limited_until.is_some_and(|until| until > now)
        && !certificate.waiting.values().any(|wait| wait.queued);
    is_needed && (is_time || (reason == Reason::Asked && !is_limited))
}

/// When the domain is due next: at the next check, or when the certificate needs it, whichever is first.
pub(super) fn due_at(domain: &Domain, now: UnixMillis, jitter: f64) -> Option<UnixMillis> {
    let check = if domain.status == Status::Active && domain.failing_since.is_some() {
        Some(schedule::second_check(now))
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
