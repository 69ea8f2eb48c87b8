//! Ordering a certificate and putting it into service.
//!
//! A working certificate is never replaced by a worse one, and a failed order changes nothing that is served: it is
//! noted, with the moment of the next attempt.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::certificate::CertificateBundle;
use contract::feed::Entity;
use contract::hostname::Hostname;
use contract::time::UnixSeconds;
use serde_json::json;
use tokio::time::Instant;

use crate::domain::problems::{WAITING, is_with_authority};
use crate::actor::Actor;
use crate::app::{App, jitter};
use crate::domain::{CertificateState, CertificateStatus, Domain, Status, Wait, name, schedule};
use crate::issuer::bundle::{self, Facts};
use crate::issuer::{IssueError, IssueRequest, Issuer};
use crate::publish;
use crate::store::leased::Leased;
use crate::store::{StoreError, Write, acme, domains};
use verification::problem::{Problem, ProblemCode};

/// How soon after it is issued an authority is asked when it would like a certificate to be renewed.
const ADVICE_AFTER_SECONDS: i64 = 3_600;

/// The longest all attempts of one turn take together; shorter than the lease they are made under.
const ORDER_TIME_MAX: Duration = Duration::from_mins(2);

/// Why no certificate came of an order.
struct Failure {
    code: ProblemCode,
    /// What its owner reads: a phrase of ours for each class of failure.
    phrase: String,
    /// The authority's own verdict about the name, for its owner. What comes from elsewhere is for the log alone.
    verdict: Option<String>,
    /// From when on this authority may be asked again, where that is known.
    until: Option<UnixSeconds>,
    /// The authority has given its verdict: the next attempt begins with a new order.
    is_final: bool,
    /// Whether it was an attempt of the name's: what the authority's absence, its limits or our queue hold up is none.
    is_attempt: bool,
    /// Whether another authority may be asked at once.
    leads_on: bool,
    /// Whose failure it is.
    authority: Option<String>,
}

/// Failures in a row, of an authority or of a name at it, before the next authority is asked.
const FAILURES_BEFORE_NEXT: u32 = 2;

impl Failure {
    /// What stands in the way of one proof stands in the way of the next; an authority that does not answer gets a second
    /// chance, as its order is in progress.
    fn of(error: &IssueError, authority: &str, attempts: u32) -> Self {
        let waits =
            matches!(error, IssueError::Queued { .. } | IssueError::RateLimited { .. } | IssueError::Away { .. });
        let is_final = !waits && !matches!(error, IssueError::Unavailable(_));
        let leads_on = match error {
            IssueError::Unreachable(_) => false,
            IssueError::Away { failures, .. } => *failures >= FAILURES_BEFORE_NEXT,
            IssueError::Unavailable(_) => attempts >= FAILURES_BEFORE_NEXT,
            _ => true,
        };
        Self {
            code: error.code(),
            phrase: error.phrase().to_owned(),
            verdict: error.verdict(),
            until: error.until(),
            is_final,
            // A limit that does not say when it ends is left alone ever longer, as a failure is.
            is_attempt: !waits || error.until().is_none(),
            leads_on,
            authority: Some(authority.to_owned()),
        }
    }
}

/// Orders a certificate from the first permitted authority that issues one, and publishes it.
pub(super) async fn order(
    app: &App,
    leased: Leased<Domain>,
    permitted: &[(String, Vec<String>)],
) -> Result<(), StoreError> {
    let domain = leased.record();
    let local = name::attachable(domain.name.as_str(), &app.platform, app.names).is_ok_and(|name| name.local);
    let mut failure = Failure {
        code: ProblemCode::CaUnavailable,
        phrase: "No certificate authority is configured for this name.".to_owned(),
        verdict: None,
        until: None,
        is_final: false,
        is_attempt: true,
        leads_on: true,
        authority: None,
    };
    let mut waiting = domain.certificate.waiting.clone();
    let mut back_at = None;
    let deadline = Instant::now() + ORDER_TIME_MAX;
    for (issuer, methods) in app.authorities.choose(local, permitted) {
        // Whoever asked us to wait is left alone, whatever the others do.
        let wait = waiting.get(issuer.name()).filter(|wait| !wait.queued && wait.until > app.clock.now_seconds());
        if let Some(wait) = wait {
            if failure.authority.is_none() {
                let limited = IssueError::RateLimited { until: Some(wait.until), message: String::new() };
                failure = Failure::of(&limited, issuer.name(), domain.certificate.attempts);
            }
            continue;
        }
        match issue(app, domain, issuer.as_ref(), methods, deadline).await {
            Ok((bundle, facts)) => return succeed(app, leased, issuer.name(), bundle, facts).await,
            Err(error) => {
                waiting.remove(issuer.name());
                match (error.code, error.until) {
                    (ProblemCode::CaUnavailable, until) => back_at = back_at.into_iter().chain(until).min(),
                    (code, Some(until)) => {
                        let wait = Wait { until, queued: code == ProblemCode::CertQueued };
                        waiting.insert(issuer.name().to_owned(), wait);
                    }
                    _ => {}
                }
                let leads_on = error.leads_on;
                // What the owner can do something about says more than that another authority makes us wait.
                if failure.authority.is_none() || error.is_attempt || !failure.is_attempt {
                    failure = error;
                }
                if !leads_on {
                    break;
                }
            }
        }
    }
    let soonest = waiting.values().map(|wait| wait.until).chain(back_at).min();
    fail(app, leased, failure, (waiting, soonest)).await
}

async fn issue(
    app: &App,
    domain: &Domain,
    authority: &dyn Issuer,
    methods: Vec<String>,
    deadline: Instant,
) -> Result<(CertificateBundle, Facts), Failure> {
    let now = app.clock.now_seconds();
    // An authority is told which of its own certificates the new one replaces.
    let replaces = match &domain.certificate.ca {
        Some(ca) if ca == authority.name() => app.store.published_chain(&domain.name).await.unwrap_or_default(),
        _ => None,
    };
    let request = IssueRequest {
        hostname: domain.name.clone(),
        methods,
        now,
        project: domain.project.uid.clone(),
        attempt: domain.certificate.attempts,
        queued: domain.certificate.waiting.get(authority.name()).is_some_and(|wait| wait.queued),
        replaces,
    };
    let issued = match tokio::time::timeout_at(deadline, authority.issue(&request)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(IssueError::Unavailable("it did not finish in time".to_owned())),
    };
    let warn = |error: &dyn std::fmt::Display| {
        tracing::warn!(domain = %domain.name, authority = authority.name(), %error, "a certificate order failed");
    };
    let issued = issued.map_err(|error| {
        // Of an authority's absence and of a queue a line for each name would say nothing more.
        if !matches!(error, IssueError::Away { .. } | IssueError::Queued { .. }) {
            warn(&error);
        }
        Failure::of(&error, authority.name(), domain.certificate.attempts)
    })?;
    // An order takes its time: what it brought may have begun to be valid after it was made.
    let now = app.clock.now_seconds();
    let deployed_from = domain.certificate.not_before;
    let checked = bundle::bundle(&issued, &domain.name, now, deployed_from, &app.sealing);
    checked.map_err(|unfit| {
        warn(&format!("{unfit}: {}", unfit.cause()));
        Failure {
            code: ProblemCode::CaUnavailable,
            phrase: format!("The authority returned a certificate that cannot be used: {unfit}."),
            verdict: None,
            until: None,
            is_final: true,
            is_attempt: true,
            leads_on: true,
            authority: Some(authority.name().to_owned()),
        }
    })
}

async fn succeed(
    app: &App,
    mut leased: Leased<Domain>,
    authority: &str,
    bundle: CertificateBundle,
    facts: Facts,
) -> Result<(), StoreError> {
    let mut write = app.store.write().await?;
    let now = write.now();
    let Some(mut domain) = leased.reload(&mut write).await? else {
        return give_up(write, leased.record()).await; // what came too late is not served
    };
    let before = domain.status;
    let renewed = domain.certificate.not_after.is_some();
    let renew_at = schedule::renew_at(bundle.not_before.to_millis(), bundle.not_after.to_millis(), jitter());
    domain.certificate = CertificateState {
        status: CertificateStatus::Deployed,
        ca: Some(authority.to_owned()),
        serial: Some(facts.serial),
        not_before: Some(bundle.not_before),
        not_after: Some(bundle.not_after),
        key_type: Some(facts.key_type),
        renew_at: Some(renew_at.to_seconds()),
        advice_at: app.authorities.find(authority).map(|_| now.to_seconds().plus(ADVICE_AFTER_SECONDS)),
        ..CertificateState::default()
    };
    domain.problems.retain(|problem| !is_with_authority(problem.code) && problem.code != ProblemCode::CertDelayed);
    domain.touch(now);
    tracing::info!(domain = %domain.name, authority, chain = bundle::fingerprint(&bundle.chain_pem),
        not_after = bundle.not_after.0, "a certificate was issued");
    write.put(Entity::Certificate(bundle)).await?;
    acme::finish_orders(write.connection(), &domain.name).await?;
    publish::withdraw_challenges(&mut write, &domain).await?;
    let event = if renewed { "domain.certificate.renewed" } else { "domain.certificate.issued" };
    let detail = json!({ "ca": authority, "serial": domain.certificate.serial });
    write.record(&domain.project, Some(&domain.name), event, &Actor::system(), detail).await?;
    if matches!(before, Status::Issuing | Status::ActionRequired | Status::Suspended) {
        super::settle(&mut write, &mut domain, Status::Active, before).await?;
    }
    domain.due_at = super::due_at(&domain, now);
    let after = domain.status;
    leased.save(&mut write, domain).await?;
    publish::site_and_dependants(&mut write, leased.record()).await?;
    leased.release(&mut write).await?;
    write.commit().await?;
    app.metrics.moved(before, after);
    app.metrics.certificate_orders.with_label_values(&[if renewed { "renewed" } else { "issued" }]).inc();
    Ok(())
}

/// The order waits until an authority is back: nothing else has changed.
pub(super) async fn postpone(app: &App, mut leased: Leased<Domain>) -> Result<(), StoreError> {
    let mut write = app.store.write().await?;
    let now = write.now();
    let Some(mut domain) = leased.reload(&mut write).await? else { return Ok(()) };
    let until = app.authorities.away_until(now).unwrap_or(now).plus(999).to_seconds();
    domain.certificate.next_attempt_at = Some(schedule::after(until, jitter()));
    domain.due_at = super::due_at(&domain, now);
    leased.save(&mut write, domain).await?;
    leased.release(&mut write).await?;
    write.commit().await?;
    Ok(())
}

/// The domain was removed or lost while its order was in progress: what the order proved is given up, unless the name is
/// still somebody's.
async fn give_up(mut write: Write, gone: &Domain) -> Result<(), StoreError> {
    let now = write.now();
    acme::abandon_orders(write.connection(), &gone.name, now).await?;
    // Another project may be proving the name by now.
    if domains::find_claims(write.connection(), &gone.name).await?.holder.is_none() {
        publish::withdraw_challenges(&mut write, gone).await?;
    }
    write.commit().await?;
    Ok(())
}

async fn fail(
    app: &App,
    mut leased: Leased<Domain>,
    failure: Failure,
    (waiting, soonest): (BTreeMap<String, Wait>, Option<UnixSeconds>),
) -> Result<(), StoreError> {
    // Being limited is nobody's mistake but the pace: an alert of its own.
    let result = match failure.code {
        ProblemCode::CaRateLimited => "limited",
        ProblemCode::CertQueued => "queued",
        _ => "failed",
    };
    app.metrics.certificate_orders.with_label_values(&[result]).inc();
    let mut write = app.store.write().await?;
    let now = write.now();
    let Some(mut domain) = leased.reload(&mut write).await? else { return give_up(write, leased.record()).await };
    let attempts = domain.certificate.attempts.saturating_add(failure.is_attempt.into());
    // The first authority that can be asked is; one that does not make us wait has its failure's schedule.
    let next = match soonest {
        Some(soonest) if !failure.is_attempt => schedule::after(soonest, jitter()),
        _ => schedule::next_attempt(attempts, now, jitter()).to_seconds(),
    };
    domain.certificate.attempts = attempts;
    domain.certificate.status = CertificateStatus::Failed;
    domain.certificate.last_error = Some(failure.phrase.clone());
    domain.certificate.next_attempt_at = Some(next);
    domain.certificate.rate_limited_until =
        matches!(failure.code, ProblemCode::CaRateLimited | ProblemCode::CertQueued).then_some(soonest).flatten();
    domain.certificate.waiting = waiting;
    domain.problems.retain(|problem| problem.code != failure.code && !WAITING.contains(&problem.code));
    let fix = fix(failure.code, failure.authority.is_some());
    let message =
        if failure.authority.is_some() { explain(failure.code, &domain.name) } else { failure.phrase.clone() };
    let observed = failure.verdict.or_else(|| failure.authority.is_some().then_some(failure.phrase));
    let problem = Problem::new(failure.code, domain.name.as_str(), message, fix).until(Some(next)).seen([], observed);
    domain.problems.push(problem);
    domain.due_at = super::due_at(&domain, now);
    if failure.is_final {
        if let Some(authority) = &failure.authority {
            acme::forget_order(write.connection(), authority, &domain.name).await?;
        }
        publish::withdraw_challenges(&mut write, &domain).await?;
    }
    let detail = json!({ "attempt": attempts, "error": domain.certificate.last_error });
    write.record(&domain.project, Some(&domain.name), "domain.certificate.failed", &Actor::system(), detail).await?;
    leased.save(&mut write, domain).await?;
    leased.release(&mut write).await?;
    write.commit().await?;
    Ok(())
}

/// What to do about a failure. Without an authority that was asked, the platform has none for the name: waiting is no cure.
fn fix(code: ProblemCode, was_asked: bool) -> &'static str {
    match code {
        ProblemCode::ChallengeUnreachable => "Remove whatever stands between the name and us, then choose Re-verify.",
        ProblemCode::CaaForbids => "Let CAA records allow the authority, or remove them, then choose Re-verify.",
        ProblemCode::CaRejected => "The authority does not issue for this name; use another one.",
        _ if was_asked => "There is nothing to do: we try again automatically.",
        _ => "Ask the operator of the platform to configure a certificate authority, then choose Re-verify.",
    }
}

/// What an authority's failure means for the domain's owner.
fn explain(code: ProblemCode, name: &Hostname) -> String {
    match code {
        ProblemCode::ChallengeUnreachable => format!("The certificate authority could not reach us under {name}."),
        ProblemCode::CaRejected => format!("The certificate authority issues no certificate for {name}."),
        ProblemCode::CaaForbids => format!("The certificate authority sees CAA records that forbid one for {name}."),
        ProblemCode::CaRateLimited => {
            "The certificate authority asks us to wait before the next certificate.".to_owned()
        }
        ProblemCode::CertQueued => format!(
            "The certificate for {name} waits in our queue: the authority lets us order only so many in a while."
        ),
        _ => format!("The certificate authority did not issue a certificate for {name} this time."),
    }
}
