//! Domains: add, list, show, verify.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use axum::routing::on;
use chassis::openapi::{Method, Parameter, Presence, Success};
use chassis::refusal::Refusal;
use contract::hostname::Hostname;
use contract::key::Scope;
use contract::schema;
use http::{StatusCode, header};
use serde_json::json;

use super::changes::{permit_redirect, rule_of};
use super::extract::{Authorised, CURSOR, Json, LIMIT, NUMBER_CURSOR, Params};
use super::types::{self, DomainQuota, Domains, Events, NewDomain};
use super::{Handler, Operation, projects, view};
use crate::actor::Actor;
use crate::app::App;
use crate::domain::name::NameError;
use crate::domain::{Domain, RedirectRule, Status};
use crate::error::{ApiError, Code};
use crate::project::ProjectRef;
use crate::reconcile::{self, Reason, Reconciled};
use crate::store::projects::ProjectRecord;
use crate::store::withdrawals::What;
use crate::store::{StoreError, domains};
use crate::throttle::Asking;
use crate::withdrawals::PendingWithdrawals;
use verification::problem::ProblemCode;

/// The longest an answer to Verify takes; what takes longer goes on without it.
const VERIFY_TIME_MAX: Duration = Duration::from_secs(8);

/// Between two attempts to lease a domain that another task has leased.
const LEASE_RETRY: Duration = Duration::from_millis(50);

/// Characters of a name, and so of a part of one.
pub(crate) const NAME_PART_MAX: usize = 253;

/// What callers do with domains; [`changes`](super::changes) and [`check`](super::check) have the others.
pub(super) const OPERATIONS: &[Operation] = &[LIST, ADD, SHOW, VERIFY, EVENTS];

const LIST: Operation = Operation {
    summary: "List domains",
    description: "The project's domains, and how many its plan has.",
    parameters: &[
        Parameter::query(
            "name",
            "Part of the names wanted; absent: any.",
            || json!({ "type": "string", "maxLength": NAME_PART_MAX }),
        ),
        Parameter::query(
            "status",
            "The state of those wanted; absent: any.",
            || json!({ "type": "string", "enum": Status::WORDS }),
        ),
        CURSOR,
        LIMIT,
    ],
    answers: &[Success::new(200, "A page of domains, by name.", schema::of::<Domains>)],
    errors: &[Code::InvalidQuery],
    ..reading("listDomains", "/v1/projects/{project}/domains", |get| on(get, list))
};

const ADD: Operation = Operation {
    summary: "Add a domain",
    description: "Verification and the certificate follow by themselves once the `records` exist.",
    body: Some((schema::of::<NewDomain>, Presence::Required)),
    answers: &[
        Success::new(201, "The domain was added. Create the `records`.", schema::of::<types::Domain>).with(&["ETag"]),
        Success::new(200, "The project has the domain already.", schema::of::<types::Domain>).with(&["ETag"]),
    ],
    errors: &[
        Code::InvalidBody,
        Code::InvalidDomain,
        Code::ReservedDomain,
        Code::PublicSuffix,
        Code::PlatformDomain,
        Code::InvalidRedirectStatus,
        Code::PlanRequired,
        Code::DomainLimitReached,
        Code::DomainExists,
        Code::ProjectNotDeployed,
        Code::RedirectLoop,
        Code::RedirectTargetInactive,
        Code::PrimaryInUse,
        Code::RemovalInProgress,
    ],
    ..writing("addDomain", Method::Post, LIST.path, |post| on(post, add))
};

pub(super) const SHOW: Operation = Operation {
    summary: "Show a domain",
    description: "Where it stands, and what its owner has to do.",
    answers: &[Success::new(200, "The domain.", schema::of::<types::Domain>).with(&["ETag"])],
    ..reading("showDomain", "/v1/projects/{project}/domains/{domain}", |get| on(get, show))
};

const VERIFY: Operation = Operation {
    summary: "Verify a domain",
    description: "Checks DNS now, and starts the schedule of checks again.",
    answers: &[
        Success::new(200, "The domain after the check.", schema::of::<types::Domain>).with(&["ETag"]),
        Success::new(202, "The check continues; read the domain again.", schema::of::<types::Domain>).with(&["ETag"]),
    ],
    errors: &[Code::DomainNotFound, Code::RemovalInProgress, Code::VerifyThrottled],
    ..writing("verifyDomain", Method::Post, "/v1/projects/{project}/domains/{domain}/verify", |post| on(post, verify))
};

const EVENTS: Operation = Operation {
    summary: "List a domain's events",
    description: "What happened to it; a removed domain keeps its events.",
    parameters: &[NUMBER_CURSOR],
    answers: &[Success::new(200, "A page of events, newest first.", schema::of::<Events>)],
    errors: &[Code::InvalidQuery, Code::DomainNotFound],
    ..reading("listDomainEvents", "/v1/projects/{project}/domains/{domain}/events", |get| on(get, events))
};

/// An operation of one who may see domains; the others differ from it.
pub(super) const fn reading(id: &'static str, path: &'static str, handler: Handler) -> Operation {
    Operation {
        tag: "domains",
        scope: Some(Scope::DomainsRead),
        errors: &[Code::DomainNotFound],
        ..Operation::internal(id, Method::Get, path, handler)
    }
}

pub(super) const fn writing(id: &'static str, method: Method, path: &'static str, handler: Handler) -> Operation {
    Operation { method, scope: Some(Scope::DomainsWrite), ..reading(id, path, handler) }
}

/// `POST …/domains`.
pub(super) async fn add(
    Authorised { app, actor, project: id, .. }: Authorised,
    Json(wanted): Json<NewDomain>,
) -> Result<Response, ApiError> {
    let name = app.core.settings.attachable(&wanted.name).map_err(unattachable)?.name;
    let rule = wanted.redirect.as_ref().map(rule_of).transpose()?;
    if wanted.primary && rule.is_some() {
        return Err(Code::RedirectLoop.refuse("The primary domain serves; it cannot redirect.").into());
    }
    let mut write = app.core.store.write().await?;
    let project = projects::find(&mut write, &id).await?;
    let limit = preconditions(&app, &project)?;
    if let Some(known) = domains::find_domain(write.connection(), &id, &name).await? {
        if known.removal.is_some() {
            let message = "The domain is being removed. Add it again in a moment.";
            return Err(Code::RemovalInProgress.refuse(message).into());
        }
        return match differs(&known, wanted.primary, rule.as_ref()) {
            None => response(&app, &project, &known, StatusCode::OK).await, // adding twice is added
            Some(what) => {
                let message = format!("The domain exists with a different {what}. Use PATCH to change it.");
                Err(Code::DomainExists.refuse(message).into())
            }
        };
    }
    let used = domains::count_domains(write.connection(), &id).await?;
    if used >= u64::from(limit) {
        let message = format!("The plan has {limit} domains and all are in use. Remove one or choose a higher plan.");
        let details = json!({ "limit": limit, "used": used });
        return Err(Code::DomainLimitReached.refuse(message).with_details(details).into());
    }
    let mut domain = Domain::added(name, id.clone(), write.now());
    domain.primary_wanted = wanted.primary;
    if let Some(rule) = rule {
        permit_redirect(&mut write, &domain, &rule).await?;
        domain.redirect = Some(rule);
    }
    domains::save_domain(write.connection(), &domain).await?;
    write.record(&id, Some(&domain.name), "domain.created", &actor, json!({ "primary": wanted.primary })).await?;
    write.commit().await?;
    app.issuing.wake.notify_one();
    response(&app, &project, &domain, StatusCode::CREATED).await
}

/// What is wanted of a domain that is there already and has it otherwise.
fn differs(known: &Domain, primary: bool, rule: Option<&RedirectRule>) -> Option<&'static str> {
    match rule {
        _ if primary && !(known.primary || known.primary_wanted) => Some("role"),
        Some(rule) if known.redirect.as_ref() != Some(rule) => Some("redirect"),
        _ => None,
    }
}

/// A paid plan and a successful deploy. Returns how many domains the plan has.
fn preconditions(app: &App, project: &ProjectRecord) -> Result<u32, Refusal> {
    let limit = app.core.settings.plans.of(project.plan).domains;
    if limit == 0 {
        let message = format!("Custom domains need the Pro plan or above; this project is on {}.", project.plan);
        return Err(Code::PlanRequired.refuse(message));
    }
    if project.deployed_at.is_none() {
        return Err(Code::ProjectNotDeployed.refuse("Deploy the project successfully before adding a domain."));
    }
    Ok(limit)
}

pub(super) fn unattachable(error: NameError) -> ApiError {
    let refusal = match error {
        NameError::Invalid(reason, message) => Code::InvalidDomain
            .refuse(format!("The name cannot be attached: {message}."))
            .with_details(json!({ "reason": reason })),
        NameError::Reserved => Code::ReservedDomain.refuse("The name is reserved for other uses and cannot be owned."),
        NameError::PublicSuffix => Code::PublicSuffix
            .refuse("The name is a public suffix. Attach your own name below it, such as shop.co.uk below co.uk."),
        NameError::Platform => Code::PlatformDomain
            .refuse("The name lies in the platform's own zone; a project is served at its own name there already."),
    };
    refusal.into()
}

/// What of a domain is withdrawn and may be served still.
const WITHDRAWN: &[What] = &[What::Name, What::Redirect];

/// A domain as an answer. Its ETag is that of the record alone: how far the gateways are changes nothing in it.
pub(super) async fn response(
    app: &App,
    project: &ProjectRecord,
    domain: &Domain,
    status: StatusCode,
) -> Result<Response, ApiError> {
    let mut shown = view::domain(app, project, domain);
    let etag = view::etag(&shown);
    let pending = PendingWithdrawals::of(&app.core.store, &app.gateways, &project.id.uid).await?;
    shown.withdrawal = pending.find(WITHDRAWN, domain.name.as_str());
    Ok((status, [(header::ETAG, etag)], axum::Json(shown)).into_response())
}

/// `GET …/domains`.
pub(super) async fn list(
    Authorised { app, project: id, .. }: Authorised,
    params: Params,
) -> Result<Response, ApiError> {
    let limit = params.limit()?;
    let project = projects::load(&app, &id).await?;
    let status = params.text("status").filter(|word| !word.is_empty()).map(str::parse::<Status>).transpose();
    let status = status.map_err(|_| Code::InvalidQuery.refuse("status must be a state of domains, such as active."))?;
    let part = params.text("name").unwrap_or_default();
    if part.chars().count() > NAME_PART_MAX {
        return Err(Code::InvalidQuery.refuse(format!("name has at most {NAME_PART_MAX} characters.")).into());
    }
    let part = part.trim().to_lowercase();
    // A name in another script is kept in its ASCII form.
    let part = if part.is_ascii() { part } else { Hostname::parse(&part).map_or(part, |name| name.to_string()) };
    let wanted = (part.as_str(), status.map_or("", Status::as_str));
    let found = app.core.store.domains(&id, params.text("cursor").unwrap_or_default(), wanted, limit).await?;
    let used = app.core.store.count_domains(&id).await?;
    let pending = PendingWithdrawals::of(&app.core.store, &app.gateways, &id.uid).await?;
    let show = |domain: &Domain| types::Domain {
        withdrawal: pending.find(WITHDRAWN, domain.name.as_str()),
        ..view::domain(&app, &project, domain)
    };
    let (list, next) = view::page(&found, limit, |domain| domain.name.to_string(), show);
    let allocated = app.core.settings.plans.of(project.plan).domains;
    let quota = DomainQuota { allocated, used, hard_cap: true };
    Ok(axum::Json(Domains { domains: list, next_cursor: next, quota }).into_response())
}

/// The project's domain of a name in a path, or 404.
pub(super) async fn load(app: &App, id: &ProjectRef, name: &str) -> Result<Domain, ApiError> {
    let found = match Hostname::parse(name) {
        Ok(name) => app.core.store.find_domain(id, &name).await?,
        Err(_) => None,
    };
    found.ok_or_else(no_domain)
}

/// 404.
pub(super) fn no_domain() -> ApiError {
    Code::DomainNotFound.refuse("The project has no domain of this name.").into()
}

/// `GET …/domains/{domain}`.
pub(super) async fn show(
    Authorised { app, project: id, rest: [name], .. }: Authorised<1>,
) -> Result<Response, ApiError> {
    let project = projects::load(&app, &id).await?;
    let domain = load(&app, &id, &name).await?;
    response(&app, &project, &domain, StatusCode::OK).await
}

/// `POST …/domains/{domain}/verify`: checks DNS now. The schedule of checks starts again, and so do the 30 minutes.
pub(super) async fn verify(
    Authorised { app, actor, project: id, rest: [name], .. }: Authorised<1>,
) -> Result<Response, ApiError> {
    let project = projects::load(&app, &id).await?;
    let domain = load(&app, &id, &name).await?;
    if domain.removal.is_some() {
        return Err(Code::RemovalInProgress.refuse("The domain is being removed.").into());
    }
    throttle(&app, Asking::Verify, &id, domain.name.as_str())?;
    begin_again(&app, &domain, &actor).await?;
    // On a task of its own, so that a client that leaves does not break it off.
    let check = tokio::spawn({
        let (app, domain) = (app.clone(), domain.clone());
        async move { check_now(&app, &domain).await }
    });
    let done = match tokio::time::timeout(VERIFY_TIME_MAX, check).await {
        Ok(Ok(checked)) => checked.map(|()| true)?,
        Ok(Err(_)) => return Err(Code::InternalError.refuse("The DNS check failed unexpectedly. Try again.").into()),
        Err(_) => false,
    };
    let domain = load(&app, &id, &name).await?;
    response(&app, &project, &domain, if done { StatusCode::OK } else { StatusCode::ACCEPTED }).await
}

/// Checks DNS, after a check in progress ends: that one may have read records from before the owner's last change.
async fn check_now(app: &App, domain: &Domain) -> Result<(), StoreError> {
    while reconcile::reconcile(app, domain, Reason::Asked).await? == Reconciled::Elsewhere {
        if app
            .core
            .store
            .find_domain(&domain.project, &domain.name)
            .await?
            .is_none_or(|domain| domain.removal.is_some())
        {
            return Ok(()); // gone meanwhile
        }
        tokio::time::sleep(LEASE_RETRY).await;
    }
    Ok(())
}

pub(super) fn throttle(app: &App, asking: Asking, project: &ProjectRef, name: &str) -> Result<(), Refusal> {
    app.api.throttles.admit(asking, project, name).map_err(|wait| {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let message = format!("A domain is checked once in ten seconds. Ask again in {seconds} s.");
        Code::VerifyThrottled.refuse(message).with_header(header::RETRY_AFTER, &seconds.max(1).to_string())
    })
}

async fn begin_again(app: &App, domain: &Domain, actor: &Actor) -> Result<(), ApiError> {
    let mut write = app.core.store.write().await?;
    let now = write.now();
    let mut domain =
        domains::find_domain(write.connection(), &domain.project, &domain.name).await?.ok_or_else(no_domain)?;
    domain.watched_since = now;
    if domain.problems.iter().any(|problem| problem.code == ProblemCode::CertDelayed) {
        domain.problems.retain(|problem| problem.code != ProblemCode::CertDelayed);
        domain.set_status(Status::Issuing, now);
    }
    domains::save_domain(write.connection(), &domain).await?;
    write.record(&domain.project, Some(&domain.name), "domain.verify_requested", actor, json!({})).await?;
    write.commit().await?;
    Ok(())
}

/// `GET …/domains/{domain}/events`.
pub(super) async fn events(
    Authorised { app, actor, project: id, rest: [name], .. }: Authorised<1>,
    params: Params,
) -> Result<Response, ApiError> {
    projects::load(&app, &id).await?;
    let name = Hostname::parse(&name).map_err(|_| no_domain())?;
    let before = params.number_cursor()?;
    let events = app.core.store.events(&id, Some(&name), Some(before)).await?;
    if events.is_empty() {
        load(&app, &id, name.as_str()).await?; // never heard of: 404; a removed domain keeps its events
    }
    Ok(projects::events_page(&events, &actor))
}
