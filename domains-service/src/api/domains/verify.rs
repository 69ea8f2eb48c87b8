//! Checking a domain's DNS at once.

use std::time::Duration;

use axum::routing::on;
use chassis::openapi::Method;
use chassis::refusal::Refusal;
use http::{StatusCode, header};
use serde_json::json;
use verification::problem::ProblemCode;

use super::super::extract::Authorised;
use super::super::{Operation, projects};
use super::{answers_domain, load, no_domain, response, writing};
use crate::actor::Actor;
use crate::app::{App, Issuing};
use crate::common::Core;
use crate::domain::{Domain, Status};
use crate::error::{ApiResult, Code};
use crate::project::ProjectRef;
use crate::reconcile::{self, Reason, Reconciled};
use crate::store::{Result, domains};
use crate::throttle::{Asking, Throttles};

/// Maximum duration of a response to Verify; a longer check continues without it.
const VERIFY_TIME_MAX: Duration = Duration::from_secs(8);

/// Interval of attempts to lease a domain that another task has leased.
const LEASE_RETRY: Duration = Duration::from_millis(50);

pub(in crate::api) const OPERATIONS: &[Operation] = &[Operation {
    summary: "Verify a domain",
    description: "Checks DNS now, and starts the schedule of checks again.",
    answers: &[
        answers_domain(200, "The domain after the check."),
        answers_domain(202, "The check continues; read the domain again."),
    ],
    errors: &[Code::DomainNotFound, Code::RemovalInProgress, Code::VerifyThrottled],
    ..writing("verifyDomain", Method::Post, "/v1/projects/{project}/domains/{domain}/verify", |post| on(post, verify))
}];

/// `POST …/domains/{domain}/verify`: checks DNS now. The schedule of checks starts again, and so do the 30 minutes.
async fn verify(Authorised { part: app, actor, project: id, rest: [name], .. }: Authorised<1, App>) -> ApiResult {
    let core = &app.core;
    let project = projects::load(core, &id).await?;
    let domain = load(core, &id, &name).await?;
    if domain.removal.is_some() {
        return Code::RemovalInProgress.fail("The domain is being removed.");
    }
    throttle(&app.api.throttles, Asking::Verify, &id, domain.name.as_str())?;
    begin_again(core, &domain, &actor).await?;
    // On a task of its own, so that a client that leaves does not break it off.
    let check = tokio::spawn({
        let (issuing, domain) = (app.issuing.clone(), domain.clone());
        async move { check_now(&issuing, &domain).await }
    });
    let done = match tokio::time::timeout(VERIFY_TIME_MAX, check).await {
        Ok(Ok(checked)) => checked.map(|()| true)?,
        Ok(Err(_)) => return Code::InternalError.fail("The DNS check failed unexpectedly. Try again."),
        Err(_) => false,
    };
    let domain = load(core, &id, &name).await?;
    response(&app, &project, &domain, if done { StatusCode::OK } else { StatusCode::ACCEPTED }).await
}

/// Checks DNS, after a check in progress ends: that one may have read records from before the owner's last change.
async fn check_now(issuing: &Issuing, domain: &Domain) -> Result<()> {
    while reconcile::reconcile(issuing, domain, Reason::Requested).await? == Reconciled::Elsewhere {
        let found = issuing.core.store.find_domain(&domain.project, &domain.name).await?;
        if found.is_none_or(|domain| domain.removal.is_some()) {
            return Ok(()); // gone meanwhile
        }
        tokio::time::sleep(LEASE_RETRY).await;
    }
    Ok(())
}

/// Refuses a check that comes too early.
pub(super) fn throttle(throttles: &Throttles, asking: Asking, project: &ProjectRef, name: &str) -> Result<(), Refusal> {
    throttles.admit(asking, project, name).map_err(|wait| {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let message = format!("A domain is checked once in ten seconds. Retry in {seconds} s.");
        Code::VerifyThrottled.refuse(message).with_header(header::RETRY_AFTER, &seconds.max(1).to_string())
    })
}

async fn begin_again(core: &Core, domain: &Domain, actor: &Actor) -> ApiResult<()> {
    let mut write = core.store.write().await?;
    let now = write.now();
    let mut domain =
        domains::find_domain(write.connection(), &domain.project, &domain.name).await?.ok_or_else(no_domain)?;
    domain.watched_since = now;
    if domain.problems.extract_if(.., |problem| problem.code == ProblemCode::CertDelayed).count() > 0 {
        domain.set_status(Status::Issuing, now);
    }
    domains::save_domain(write.connection(), &domain).await?;
    write.record(&domain.project, Some(&domain.name), "domain.verify_requested", actor, json!({})).await?;
    write.commit().await?;
    Ok(())
}
