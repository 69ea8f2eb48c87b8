//! Reconciles one domain: check DNS, decide, write, and order a certificate when all checks pass.
//!
//! One worker acts on a domain at a time, under a lease that expires. Its result is written only if no other worker has
//! taken the lease since. The world may change between a check and its write, so the transaction reads the domain again
//! and [decides](crate::domain::reconcile) by that state. When the database fails, nothing is written and the domain
//! is due again when the database is back.

mod advice;
mod issue;
mod primary;

use chassis::random::jitter;
use contract::feed::Entity;
use contract::time::UnixMillis;
use serde_json::json;

use crate::actor::Actor;
use crate::app::Issuing;
use crate::domain::reconcile::{Action, DnsCheck, Holder, LostDomain, Permitted, Policy, decide};
use crate::domain::state::UNPAID_GRACE_MILLIS;
use crate::domain::{Domain, Status, order};
use crate::issuer::Authorities;
use crate::metrics::Metrics;
use crate::plans::Plans;
use crate::project::ProjectRef;
use crate::publish;
use crate::store::domains::NameClaims;
use crate::store::leased::Leased;
use crate::store::projects::{ProjectRecord, find_project};
use crate::store::withdrawals::Kind;
use crate::store::{Result, Store, StoreError, Write, acme, domains, queue};
use verification::collect::{Subject, collect};
use verification::facts::Claim;
use verification::verdict::{self, Expectation, Judgement, Records};

pub(crate) use crate::domain::reconcile::Reason;

/// A DNS check younger than this is not repeated while the domain waits only for an order, in milliseconds.
const FRESH_MILLIS: i64 = 3_600_000;

/// The result of a reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reconciled {
    /// The check ended; its result is saved, or the order is postponed.
    Done,
    /// Another worker has claimed the domain, or it is gone.
    Elsewhere,
}

/// Checks a domain and applies the decision.
pub(crate) async fn reconcile(issuing: &Issuing, domain: &Domain, reason: Reason) -> Result<Reconciled> {
    let now = issuing.core.clock.now();
    let reconciled = Box::pin(reconcile_once(issuing, domain, reason, now)).await;
    if let Err(StoreError::Database(_)) = reconciled {
        issuing.core.store.give_back_later(domain, now);
    }
    reconciled
}

async fn reconcile_once(issuing: &Issuing, domain: &Domain, reason: Reason, now: UnixMillis) -> Result<Reconciled> {
    let core = &issuing.core;
    let Some(mut leased) = Leased::claim(&core.store, domain, now).await? else { return Ok(Reconciled::Elsewhere) };
    if reason == Reason::Schedule && waits_only_for_authorities(&issuing.authorities, domain, now) {
        postpone(&core.store, &issuing.authorities, leased).await?;
        return Ok(Reconciled::Done);
    }
    let started = core.clock.monotonic();
    let check = check(issuing, domain).await?;
    let seconds = core.clock.monotonic().saturating_sub(started).as_secs_f64();
    core.metrics.verify_seconds.with_label_values(&[reason.as_str()]).observe(seconds);
    let Some(check) = check else { return Ok(Reconciled::Elsewhere) };
    advice::ask(core, &issuing.authorities, &mut leased).await?;
    Box::pin(apply_check(issuing, leased, check, reason)).await
}

/// Whether only an order is due and every authority is unreachable: DNS was checked lately and is not asked again.
fn waits_only_for_authorities(authorities: &Authorities, domain: &Domain, now: UnixMillis) -> bool {
    let is_fresh = domain.checked_at.is_some_and(|at| now.since(at) < FRESH_MILLIS);
    let waits = domain.certificate.next_attempt_at.is_some() || domain.certificate.queued;
    is_fresh && waits && authorities.unreachable_until(now).is_some()
}

/// Postpones the order until an authority is reachable.
async fn postpone(store: &Store, authorities: &Authorities, mut leased: Leased<Domain>) -> Result<()> {
    let mut write = store.write().await?;
    let now = write.now();
    let Some(domain) = leased.reload(&mut write).await? else { return Ok(()) };
    let until = authorities.unreachable_until(now).unwrap_or(now);
    leased.save(&mut write, order::postponed(domain, until, now, jitter())).await?;
    leased.release(&mut write).await?;
    write.commit().await.map(drop)
}

/// Checks DNS. `None` if the project is gone or the name can no longer be attached.
async fn check(issuing: &Issuing, domain: &Domain) -> Result<Option<DnsCheck>> {
    let store = &issuing.core.store;
    let Some(project) = find_project(store.reader(), &domain.project).await? else { return Ok(None) };
    let claims = domains::find_claims(&mut store.reader().acquire().await?, &domain.name).await?;
    Ok(check_dns(issuing, &project, domain, claim(&claims, &project, domain)).await)
}

/// The state of a domain's ownership before the DNS check.
pub(crate) fn claim(claims: &NameClaims, project: &ProjectRecord, domain: &Domain) -> Claim {
    if claims.contest(&project.id, &project.salt) {
        Claim::Contested
    } else if domain.status.is_served() && claims.holder.as_ref() == Some(&project.id) {
        Claim::Proven
    } else {
        Claim::Open
    }
}

/// Checks the DNS of a name as a project's domain. `None` if the name can no longer be attached.
pub(crate) async fn check_dns(
    issuing: &Issuing,
    project: &ProjectRecord,
    domain: &Domain,
    claim: Claim,
) -> Option<DnsCheck> {
    let core = &issuing.core;
    let attachable = core.settings.attachable(domain.name.as_str()).ok()?;
    if attachable.local {
        return Some(DnsCheck { judged: Judgement::local(claim == Claim::Contested), checks: None, claim });
    }
    let target = project.proof().target(&core.settings.edge_zone);
    let text = project.proof().ownership_text(&domain.name);
    let authorities = issuing.authorities.caa();
    let subject = Subject {
        name: &domain.name,
        registrable: &attachable.delegable,
        target: &target,
        claim,
        caa: !authorities.is_empty(),
    };
    let facts = collect(issuing.dns.as_ref(), &issuing.dns_config, core.clock.as_ref(), &subject).await;
    let expected = Expectation {
        name: &domain.name,
        target: &target,
        edge: &issuing.edge_addresses,
        text: &text,
        claim,
        authorities: &authorities,
    };
    let judged = verdict::judge(&facts, &expected);
    let result = match judged.records {
        _ if judged.resolver_down => "resolver_down",
        Records::Unknown => "unanswered",
        _ => "answered",
    };
    core.metrics.dns_checks.with_label_values(&[result]).inc();
    let checks = verdict::checks(&facts, &expected, &judged, core.clock.now().0);
    Some(DnsCheck { judged, checks: Some(checks), claim })
}

/// Decides by a check, writes the decision, and orders a certificate if it includes one.
async fn apply_check(issuing: &Issuing, leased: Leased<Domain>, check: DnsCheck, reason: Reason) -> Result<Reconciled> {
    let core = &issuing.core;
    let mut write = core.store.write().await?;
    let now = write.now();
    let Some(domain) = leased.reload(&mut write).await? else { return Ok(Reconciled::Elsewhere) };
    let Some(project) = find_project(write.connection(), &domain.project).await? else {
        return Ok(Reconciled::Elsewhere);
    };
    let claims = domains::find_claims(write.connection(), &domain.name).await?;
    let policy = Policy {
        claim: claim(&claims, &project, &domain),
        served_until: served_until(&core.settings.plans, &project),
        holder: holder(&mut write, &domain, claims, &check).await?,
        reason,
        jitter: jitter(),
    };
    let before = domain.status;
    let (domain, actions) = decide(domain, check, &policy, now);
    let written = Box::pin(apply(&core.metrics, write, leased, (before, domain), actions)).await?;
    if let Some((leased, permitted)) = written {
        Box::pin(issue::order(issuing, leased, &permitted)).await?;
    }
    Ok(Reconciled::Done)
}

/// Applies the actions in order to a domain that was in the state `before`, and commits. Returns the lease and the
/// authorities if an order is among the actions; otherwise releases the lease.
async fn apply(
    metrics: &Metrics,
    mut write: Write,
    mut leased: Leased<Domain>,
    (before, mut domain): (Status, Domain),
    actions: Vec<Action>,
) -> Result<Option<(Leased<Domain>, Permitted)>> {
    let mut order = None;
    for action in actions {
        match action {
            Action::SetHolder => domains::set_holder(write.connection(), &domain.name, &domain.project).await?,
            Action::TakeOver(loser, lost) => take_over(metrics, &mut write, &domain, &loser, lost).await?,
            Action::Record(event, detail) => {
                write.record(&domain.project, Some(&domain.name), event, &Actor::system(), detail).await?;
            }
            Action::BecomePrimaryIfWanted => primary::become_if_wanted(&mut write, &mut domain).await?,
            Action::Save => leased.save(&mut write, domain.clone()).await?,
            Action::Publish => publish::site_and_dependants(&mut write, &domain).await?,
            Action::WithdrawFrom(loser) if write.changes_the_edge() => {
                write.record_withdrawal(Kind::Name, domain.name.as_str(), &loser).await?;
            }
            Action::WithdrawFrom(_) => {}
            Action::Deploy(bundle) => write.put(Entity::Certificate(*bundle)).await?,
            Action::FinishOrders => acme::finish_orders(write.connection(), &domain.name).await?,
            Action::ForgetOrder(authority) => {
                acme::forget_order(write.connection(), &authority, &domain.name).await?;
            }
            Action::LeaveQueue => queue::leave(write.connection(), &domain.name, &domain.project.uid).await?,
            Action::LeaveQueueAt(authority) => queue::leave_one(write.connection(), &authority, &domain.name).await?,
            Action::WithdrawChallenges => publish::withdraw_challenges(&mut write, &domain.name).await?,
            Action::Order(permitted) => order = Some(permitted),
        }
    }
    let next = if let Some(permitted) = order {
        Some((leased.while_held(), permitted))
    } else {
        leased.release(&mut write).await?;
        None
    };
    write.commit().await?;
    metrics.moved(before, domain.status);
    if before != domain.status {
        tracing::info!(domain = %domain.name, project.id = %domain.project, from = before.as_str(),
            to = domain.status.as_str(), "domain changed its state");
    }
    Ok(next)
}

/// Gives the name to the domain's project, and notifies the project that loses it. Domains of the loser stop
/// redirecting to the name in the same transaction.
async fn take_over(
    metrics: &Metrics,
    write: &mut Write,
    domain: &Domain,
    loser: &ProjectRef,
    lost: Option<LostDomain>,
) -> Result<()> {
    queue::leave(write.connection(), &domain.name, &loser.uid).await?;
    let Some(LostDomain { before, was_primary, domain: lost }) = lost else {
        return domains::set_holder(write.connection(), &domain.name, &domain.project).await;
    };
    // Read before the row changes: afterwards it is the target of no redirect to the primary domain.
    let dependants = domains::dependants(write.connection(), &lost, was_primary).await?;
    // An unreadable row stays as it is: after its repair the next check finds that another project holds the name.
    if lost.unreadable.is_none() {
        domains::save_domain(write.connection(), &lost).await?;
    }
    let detail = json!({ "to_another_project": true });
    write.record(loser, Some(&lost.name), "domain.transferred", &Actor::system(), detail).await?;
    domains::set_holder(write.connection(), &domain.name, &domain.project).await?;
    // Before the successor: it publishes the redirects to the primary domain with their new target.
    for dependant in dependants {
        let revision = write.revision();
        publish::site(write, &dependant).await?;
        if write.revision() != revision {
            // A gateway that misses the change would send the loser's visitors to the winner.
            write.record_withdrawal(Kind::Redirect, dependant.name.as_str(), loser).await?;
            let detail = json!({ "redirect_target_lost": lost.name });
            write.record(loser, Some(&dependant.name), "domain.updated", &Actor::system(), detail).await?;
        }
    }
    if was_primary {
        primary::succeed(write, loser).await?;
    }
    let detail = json!({ "from_another_project": true });
    write.record(&domain.project, Some(&domain.name), "domain.transferred", &Actor::system(), detail).await?;
    metrics.moved(before, lost.status);
    Ok(())
}

/// The project that holds the domain's name. Another project's domain is read and locked only if the check allows a
/// takeover.
async fn holder(write: &mut Write, domain: &Domain, claims: NameClaims, check: &DnsCheck) -> Result<Holder> {
    let Some(holder) = claims.holder else { return Ok(Holder::Free) };
    if holder == domain.project {
        return Ok(Holder::This);
    }
    let mut theirs = None;
    if check.judged.passes() {
        theirs = domains::find_domain(write.connection(), &holder, &domain.name).await?.map(Box::new);
    }
    Ok(Holder::Another(holder, theirs))
}

/// When the project's domains stop being served. `None` if its plan includes custom domains.
fn served_until(plans: &Plans, project: &ProjectRecord) -> Option<UnixMillis> {
    let has_domains = plans.of(project.plan).domains > 0;
    (!has_domains).then(|| project.unpaid_since.map_or(UnixMillis(0), |since| since.plus(UNPAID_GRACE_MILLIS)))
}

/// Takes domains out of service: a gateway that has applied the commit no longer serves their names. The caller commits.
pub(crate) async fn remove(
    metrics: &Metrics,
    write: &mut Write,
    domains_to_remove: Vec<Domain>,
    project: &ProjectRecord,
    actor: &Actor,
) -> Result<()> {
    let now = write.now();
    let had_primary = domains_to_remove.iter().any(|domain| domain.primary);
    let mut removed = Vec::new();
    for mut domain in domains_to_remove {
        let before = domain.status;
        queue::leave(write.connection(), &domain.name, &project.id.uid).await?;
        publish::withdraw(write, &domain).await?;
        domains::release(write.connection(), &domain.name, &project.id, &project.salt, now).await?;
        domain.primary = false;
        domain.redirect = None;
        domain.due_at = None;
        domain.waits_since = None;
        if domain.unreadable.take().is_some() {
            // The domain is being removed now, which needs none of the unreadable columns.
            domain.problems.clear();
        }
        domain.set_status(Status::Removing, now);
        write.record(&project.id, Some(&domain.name), "domain.removed", actor, json!({})).await?;
        metrics.moved(before, domain.status);
        removed.push(domain);
    }
    // The revision that contains the withdrawals.
    let revision = write.revision();
    for domain in &mut removed {
        domain.removal = Some(revision.0);
        domains::save_domain(write.connection(), domain).await?;
        write.forget_withdrawal(Kind::Redirect, domain.name.as_str(), &project.id).await?;
        write.record_withdrawal(Kind::Name, domain.name.as_str(), &project.id).await?;
    }
    if had_primary {
        primary::succeed(write, &project.id).await?;
    }
    Ok(())
}
