//! Attending to one domain: look at DNS, move it to where it belongs, order a certificate when everything passes.
//!
//! One worker acts on a domain at a time, under a lease that ends by itself; what it found is written only if nobody
//! else has taken the lease since. Between looking and writing the world may have changed, so the transaction reads the
//! domain again and decides by what it finds there.

mod advice;
mod order;
mod problems;

use std::time::Duration;

use contract::feed::Revision;
use contract::time::UnixMillis;
use serde_json::json;

use crate::actor::Actor;
use crate::app::{App, jitter};
use crate::domain::state::{Standing, UNPAID_GRACE_MILLIS, advance};
use crate::domain::{Domain, Status, name, schedule};
use crate::publish;
use crate::store::projects::{ProjectRecord, find_project};
use crate::store::withdrawals::What;
use crate::store::{StoreError, Write, domains};
use verification::collect::{Subject, collect};
use verification::problem::ProblemCode;
use verification::verdict::{self, Checks, Claim, Expectation, Judgement, Ownership, Records};

/// How long a worker may act on a domain before another may. Longer than any look and any order.
const LEASE: Duration = Duration::from_mins(3);

/// A look at DNS younger than this is as good as another while nothing but an order is waited for, in milliseconds.
const SEEN_LATELY: i64 = 3_600_000;

contract::words! {
    /// Why somebody looks.
    pub(crate) enum Reason {
        /// Its time has come.
        Schedule = "schedule",
        /// Its owner asked.
        Asked = "asked",
    }
}

/// What came of attending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attended {
    /// The domain is where it belongs.
    Done,
    /// Somebody else is at it, or it is gone.
    Elsewhere,
}

/// Looks at a domain and does what is to be done.
pub(crate) async fn attend(app: &App, domain: &Domain, reason: Reason) -> Result<Attended, StoreError> {
    let now = app.clock.now();
    let lease = i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX);
    let Some(fence) = app.store.lease_domain(domain, now, now.plus(lease)).await? else {
        return Ok(Attended::Elsewhere);
    };
    if reason == Reason::Schedule && waits_only_for_authorities(app, domain, now) {
        order::postpone(app, domain, fence).await?;
        return Ok(Attended::Done);
    }
    let started = app.clock.monotonic();
    let look = look(app, domain).await?;
    let seconds = app.clock.monotonic().saturating_sub(started).as_secs_f64();
    app.metrics.verify_seconds.with_label_values(&[reason.as_str()]).observe(seconds);
    let Some(look) = look else { return Ok(Attended::Elsewhere) };
    advice::ask(app, domain, fence).await?;
    let Some(applied) = apply(app, domain, fence, look, reason).await? else { return Ok(Attended::Elsewhere) };
    if let Some(permitted) = applied.order {
        order::order(app, &applied.domain, fence, &permitted).await?;
    }
    Ok(Attended::Done)
}

/// Whether all that is due is an order, and every authority is away: DNS was seen lately and need not be asked again.
fn waits_only_for_authorities(app: &App, domain: &Domain, now: UnixMillis) -> bool {
    let seen_lately = domain.checked_at.is_some_and(|at| now.since(at) < SEEN_LATELY);
    seen_lately && domain.certificate.next_attempt_at.is_some() && app.authorities.away_until(now).is_some()
}

/// What one look brought.
pub(crate) struct Look {
    pub(crate) judged: Judgement,
    pub(crate) checks: Option<Checks>,
    /// What was known of the ownership when it began.
    claim: Claim,
}

impl Look {
    /// Whether not even the zone could be asked for, and nobody said why.
    pub(crate) fn unreachable(&self) -> bool {
        let is_known = self.judged.problems.iter().any(|problem| problem.code == ProblemCode::DnsDnssec);
        let has_no_zone = self.checks.as_ref().is_some_and(|checks| checks.zone.is_none());
        self.judged.records == Records::Unknown && has_no_zone && !is_known
    }
}

/// Looks at DNS; `None` when the project is gone.
async fn look(app: &App, domain: &Domain) -> Result<Option<Look>, StoreError> {
    let Some(project) = app.store.find_project(&domain.project).await? else { return Ok(None) };
    let mut connection = app.store.reader().acquire().await?;
    let claims = domains::find_claims(&mut connection, &domain.name).await?;
    drop(connection);
    Ok(look_at(app, &project, domain, claim(&claims, &project, domain)).await)
}

/// What is known of a domain's ownership before DNS is asked.
pub(crate) fn claim(claims: &domains::Claims, project: &ProjectRecord, domain: &Domain) -> Claim {
    if claims.contest(&project.id, &project.salt) {
        Claim::Contested
    } else if domain.status.is_served() && claims.holder.as_ref() == Some(&project.id) {
        Claim::Proven
    } else {
        Claim::Open
    }
}

/// Looks at DNS for a name as a project's domain; `None` when the name may not be attached any more.
pub(crate) async fn look_at(app: &App, project: &ProjectRecord, domain: &Domain, claim: Claim) -> Option<Look> {
    let attachable = name::attachable(domain.name.as_str(), &app.platform, app.names).ok()?;
    if attachable.local {
        return Some(Look { judged: Judgement::local(claim == Claim::Contested), checks: None, claim });
    }
    let target = app.prover.target(project);
    let text = app.prover.ownership_text(project, &domain.name);
    let authorities = app.authorities.caa();
    let subject = Subject {
        name: &domain.name,
        registrable: &attachable.delegable,
        target: &target,
        claim,
        caa: !authorities.is_empty(),
    };
    let facts = collect(app.dns.as_ref(), &app.dns_config, app.clock.as_ref(), &subject).await;
    let expected = Expectation {
        name: &domain.name,
        target: &target,
        edge: &app.edge_addresses,
        text: &text,
        claim,
        authorities: &authorities,
    };
    let judged = verdict::judge(&facts, &expected);
    let checks = verdict::checks(&facts, &expected, &judged, app.clock.now().0);
    Some(Look { judged, checks: Some(checks), claim })
}

/// What was written.
struct Applied {
    domain: Domain,
    /// A certificate is to be ordered, from the authorities CAA permits.
    order: Option<Vec<(String, Vec<String>)>>,
}

/// Writes what a look found. `None`: the domain is gone, being removed, or somebody else's.
async fn apply(
    app: &App,
    seen: &Domain,
    fence: i64,
    look: Look,
    reason: Reason,
) -> Result<Option<Applied>, StoreError> {
    let mut write = app.store.write().await?;
    let now = write.now();
    let Some(mut domain) = domains::find_domain(write.connection(), &seen.project, &seen.name).await? else {
        return Ok(None);
    };
    let Some(project) = find_project(write.connection(), &seen.project).await? else { return Ok(None) };
    if domain.lease_fence != fence || domain.removal.is_some() {
        return Ok(None);
    }
    let Look { mut judged, checks, claim: claimed } = look;
    let claims = domains::find_claims(write.connection(), &domain.name).await?;
    let claims_now = claim(&claims, &project, &domain);
    if claims_now > claimed {
        judged.ownership = Ownership::Unknown; // somebody was faster; the next look asks for the proof
    }
    let before = domain.status;
    let next = advance(&standing(app, &domain, &project, now, reason), &judged, now);
    let takes_over = next.may_issue && claims.holder.as_ref() != Some(&project.id);
    if takes_over {
        take_over(app, &mut write, &mut domain, &claims).await?;
    }
    let certified = domain.certificate.is_valid(now.to_seconds());
    let status = if next.status == Status::Issuing && certified { Status::Active } else { next.status };
    domain.is_apex = judged.is_apex.or(domain.is_apex);
    domain.checks = checks.or(domain.checks);
    domain.problems =
        problems::problems(&domain, judged.problems, next.delayed, project_pays(app, &project, now), before);
    domain.failing_since = next.failing_since;
    domain.checked_at = Some(now);
    settle(&mut write, &mut domain, status, before).await?;
    let due = domain.certificate.renew_at.is_none_or(|at| at <= now.to_seconds());
    let may_try = domain.certificate.next_attempt_at.is_none_or(|at| at <= now.to_seconds());
    // An authority that asked us to stay away is not asked because an owner is impatient; our own queue may have moved.
    let is_limited = domain.certificate.rate_limited_until.is_some_and(|until| until > now.to_seconds())
        && !domain.certificate.waiting.values().any(|wait| wait.queued);
    let order = next.may_issue && (due || !certified) && (may_try || (reason == Reason::Asked && !is_limited));
    domain.due_at = due_at(&domain, now);
    if order {
        // Should this process die over the order, the next one goes on when the lease is over.
        let lease = i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX);
        domain.due_at = Some(domain.due_at.map_or(now.plus(lease), |due| due.min(now.plus(lease))));
    }
    domains::save_domain(write.connection(), &domain).await?;
    publish::site_and_dependants(&mut write, &domain).await?;
    if let Some(loser) = claims.holder.filter(|_| takes_over && write.changes_the_edge()) {
        // A gateway that does not hear of it serves the loser under the winner's name.
        write.withdrawn(What::Name, domain.name.as_str(), &loser).await?;
    }
    if !order {
        domains::release_lease(write.connection(), &domain).await?;
    }
    write.commit().await?;
    app.metrics.moved(before, domain.status);
    Ok(Some(Applied { domain, order: order.then_some(judged.permitted) }))
}

fn standing(app: &App, domain: &Domain, project: &ProjectRecord, now: UnixMillis, reason: Reason) -> Standing {
    Standing {
        status: domain.status,
        status_since: domain.status_since,
        failing_since: domain.failing_since,
        certified: domain.certificate.is_valid(now.to_seconds()),
        paid: project_pays(app, project, now),
        waits_for_us: domain.problems.iter().any(|problem| problems::WAITING.contains(&problem.code)),
        delayed: reason == Reason::Schedule && domain.problems.iter().any(|p| p.code == ProblemCode::CertDelayed),
    }
}

/// Whether the plan has custom domains, or had until lately.
pub(crate) fn project_pays(app: &App, project: &ProjectRecord, now: UnixMillis) -> bool {
    app.plans.of(project.plan).domains > 0
        || project.unpaid_since.is_some_and(|since| now.since(since) < UNPAID_GRACE_MILLIS)
}

/// Moves the domain to `status` and does what belongs to arriving there.
async fn settle(write: &mut Write, domain: &mut Domain, status: Status, before: Status) -> Result<(), StoreError> {
    let now = write.now();
    domain.enter(status, now);
    if status == before {
        return Ok(());
    }
    let event = match status {
        Status::Active => "domain.active",
        Status::Issuing => "domain.verified",
        Status::Degraded => "domain.degraded",
        Status::Suspended => "domain.suspended",
        _ if before.is_served() || before == Status::Issuing => "domain.unverified",
        _ => "domain.status_changed",
    };
    let detail = json!({ "from": before.as_str(), "to": status.as_str() });
    write.record(&domain.project, Some(&domain.name), event, &Actor::system(), detail).await?;
    if status == Status::Active {
        become_primary_if_wanted(write, domain).await?;
    }
    tracing::info!(domain = %domain.name, project.id = %domain.project, from = before.as_str(),
        to = status.as_str(), "a domain changed its state");
    Ok(())
}

/// The first domain of a project that becomes active is its primary one, and one that was meant to be is too.
async fn become_primary_if_wanted(write: &mut Write, domain: &mut Domain) -> Result<(), StoreError> {
    if domain.primary || domain.redirect.is_some() {
        return Ok(());
    }
    let primary = domains::find_primary(write.connection(), &domain.project).await?;
    match primary {
        // One that cannot be read stays what it is.
        Some(mut old) if domain.primary_wanted && old.unreadable.is_none() => {
            old.primary = false;
            let now = write.now();
            old.touch(now);
            domains::save_domain(write.connection(), &old).await?;
            publish::site(write, &old).await?;
        }
        Some(_) => return Ok(()),
        None => {}
    }
    domain.primary = true;
    domain.primary_wanted = false;
    let detail = json!({ "primary": domain.name });
    write.record(&domain.project, Some(&domain.name), "domain.primary_changed", &Actor::system(), detail).await
}

/// Gives the name to the domain's project. Whoever held it loses it, is told, and its certificate serves on: the name
/// has the same visitors.
async fn take_over(
    app: &App,
    write: &mut Write,
    domain: &mut Domain,
    claims: &domains::Claims,
) -> Result<(), StoreError> {
    let now = write.now();
    if let Some(loser) = &claims.holder
        && let Some(mut lost) = domains::find_domain(write.connection(), loser, &domain.name).await?
    {
        let before = lost.status;
        domain.certificate = std::mem::take(&mut lost.certificate);
        lost.primary = false;
        lost.problems.clear();
        lost.enter(Status::PendingOwnership, now);
        lost.watched_since = now;
        lost.due_at = schedule::next_look(lost.status, now, now, jitter());
        // A row that cannot be read stays as it is: once it is mended, the next look finds that the name is held by another.
        if lost.unreadable.is_none() {
            domains::save_domain(write.connection(), &lost).await?;
        }
        let detail = json!({ "to_another_project": true });
        write.record(loser, Some(&lost.name), "domain.transferred", &Actor::system(), detail).await?;
        domains::hold(write.connection(), &domain.name, &domain.project).await?;
        for dependant in domains::dependants(write.connection(), &lost).await? {
            publish::site(write, &dependant).await?;
        }
        let detail = json!({ "from_another_project": true });
        write.record(&domain.project, Some(&domain.name), "domain.transferred", &Actor::system(), detail).await?;
        app.metrics.moved(before, lost.status);
        return Ok(());
    }
    domains::hold(write.connection(), &domain.name, &domain.project).await
}

/// When the worker looks next: at the next check, or when the certificate needs it, whichever is first.
fn due_at(domain: &Domain, now: UnixMillis) -> Option<UnixMillis> {
    let check = if domain.status == Status::Active && domain.failing_since.is_some() {
        Some(schedule::second_look(now))
    } else {
        schedule::next_look(domain.status, domain.watched_since, now, jitter())
    };
    let renewal = domain.certificate.renew_at.map(contract::time::UnixSeconds::to_millis);
    let attempt = domain.certificate.next_attempt_at.map(contract::time::UnixSeconds::to_millis);
    let advice = domain.certificate.advice_at.map(contract::time::UnixSeconds::to_millis);
    // A renewal whose time has come waits for its next attempt.
    let certificate = match (renewal, attempt) {
        (Some(renewal), Some(attempt)) => Some(renewal.max(attempt)),
        (renewal, attempt) => renewal.or(attempt),
    };
    [check, certificate.filter(|at| *at > now), advice.filter(|at| *at > now)].into_iter().flatten().min()
}

/// Takes domains out of service: from the commit on, no gateway that has applied it serves their names. Returns the
/// revision to wait for.
pub(crate) async fn remove(
    app: &App,
    mut write: Write,
    domains_to_remove: Vec<Domain>,
    project: &ProjectRecord,
    actor: &Actor,
) -> Result<Revision, StoreError> {
    let now = write.now();
    let mut removed = Vec::new();
    for mut domain in domains_to_remove {
        let before = domain.status;
        publish::withdraw(&mut write, &domain).await?;
        domains::let_go(write.connection(), &domain.name, &project.id, &project.salt, now).await?;
        domain.primary = false;
        domain.redirect = None;
        domain.due_at = None;
        if domain.unreadable.take().is_some() {
            // From now on it is one that is removed, and nothing of what could not be read is needed for that.
            domain.problems.clear();
        }
        domain.enter(Status::Removing, now);
        write.record(&project.id, Some(&domain.name), "domain.removed", actor, json!({})).await?;
        app.metrics.moved(before, domain.status);
        removed.push(domain);
    }
    // The revision that contains the withdrawals; the commit below adds no further change.
    let revision = write.revision();
    for domain in &mut removed {
        domain.removal = Some(revision.0);
        domains::save_domain(write.connection(), domain).await?;
        write.forget_withdrawal(What::Redirect, domain.name.as_str(), &project.id).await?;
        write.withdrawn(What::Name, domain.name.as_str(), &project.id).await?;
    }
    write.commit().await
}
