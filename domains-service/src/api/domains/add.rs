//! Adding a domain, and checking what that would need.

use axum::response::IntoResponse;
use axum::routing::on;
use chassis::openapi::{Method, Parameter, Presence, Success};
use chassis::refusal::Refusal;
use contract::schema;
use http::{StatusCode, header};
use serde_json::json;
use verification::facts::Claim;

use super::super::extract::{Authorised, Json, Params};
use super::super::types::{self, DomainCheck, NewDomain};
use super::super::{Operation, projects};
use super::change::{permit_redirect, rule_of};
use super::verify::throttle;
use super::{LIST, answers_domain, no_domain, reading, representation, response, writing};
use crate::app::App;
use crate::common::Core;
use crate::domain::name::{Attachable, NameError};
use crate::domain::{Domain, RedirectRule};
use crate::error::{ApiError, ApiResult, Code};
use crate::reconcile;
use crate::store::domains;
use crate::store::projects::ProjectRecord;
use crate::throttle::Asking;

pub(in crate::api) const OPERATIONS: &[Operation] = &[ADD, CHECK];

const ADD: Operation = Operation {
    summary: "Add a domain",
    description: "Verification and the certificate follow automatically once the `records` exist.",
    body: Some((schema::of::<NewDomain>, Presence::Required)),
    answers: &[
        answers_domain(201, "The domain was added. Create the `records`."),
        answers_domain(200, "The project has the domain already."),
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

const CHECK: Operation = Operation {
    summary: "Check a name",
    description: "Checks a name without adding it.",
    parameters: &[Parameter {
        required: true,
        ..Parameter::query("name", "The name that might be added.", || json!({ "type": "string", "minLength": 1 }))
    }],
    answers: &[Success::new(200, "What was seen.", schema::of::<DomainCheck>)],
    errors: &[
        Code::InvalidDomain,
        Code::ReservedDomain,
        Code::PublicSuffix,
        Code::PlatformDomain,
        Code::VerifyThrottled,
        Code::ResolverUnavailable,
    ],
    ..reading("checkDomain", "/v1/projects/{project}/domain-check", |get| on(get, check))
};

/// `POST …/domains`.
async fn add(
    Authorised { part: app, actor, project: id, .. }: Authorised<0, App>,
    Json(wanted): Json<NewDomain>,
) -> ApiResult {
    let core = &app.core;
    let name = core.settings.attachable(&wanted.name).map_err(unattachable)?.name;
    let rule = wanted.redirect.as_ref().map(rule_of).transpose()?;
    if wanted.primary && rule.is_some() {
        return Code::RedirectLoop.fail("The primary domain cannot redirect. Leave out primary or redirect.");
    }
    let mut write = core.store.write().await?;
    let project = projects::find(&mut write, &id).await?;
    let limit = preconditions(core, &project)?;
    if let Some(known) = domains::find_domain(write.connection(), &id, &name).await? {
        if known.removal.is_some() {
            return Code::RemovalInProgress.fail("The domain is being removed. Add it again in a moment.");
        }
        let Some(what) = differs(&known, wanted.primary, rule.as_ref()) else {
            return response(&app, &project, &known, StatusCode::OK).await; // adding twice is added
        };
        return Code::DomainExists.fail(format!("The domain exists with a different {what}. Use PATCH to change it."));
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
    core.wake.notify_one();
    response(&app, &project, &domain, StatusCode::CREATED).await
}

/// The field in which the request differs from the domain that is attached already.
fn differs(known: &Domain, primary: bool, rule: Option<&RedirectRule>) -> Option<&'static str> {
    match rule {
        _ if primary && !(known.primary || known.primary_wanted) => Some("role"),
        Some(rule) if known.redirect.as_ref() != Some(rule) => Some("redirect"),
        _ => None,
    }
}

/// Requires a paid plan and a successful deploy. Returns the number of domains in the plan.
fn preconditions(core: &Core, project: &ProjectRecord) -> Result<u32, Refusal> {
    let limit = core.settings.plans.of(project.plan).domains;
    if limit == 0 {
        let message = format!("Custom domains need the Pro plan or above; this project is on {}.", project.plan);
        return Err(Code::PlanRequired.refuse(message));
    }
    if project.deployed_at.is_none() {
        return Err(Code::ProjectNotDeployed.refuse("Deploy the project successfully before adding a domain."));
    }
    Ok(limit)
}

fn unattachable(error: NameError) -> ApiError {
    let refusal = match error {
        NameError::Invalid(reason, message) => Code::InvalidDomain
            .refuse(format!("The name cannot be attached: {message}."))
            .with_details(json!({ "reason": reason })),
        NameError::Reserved => Code::ReservedDomain.refuse(
            "The name is reserved for special use, such as example.com or printer.local. Attach a name that you own.",
        ),
        NameError::PublicSuffix => Code::PublicSuffix
            .refuse("The name is a public suffix. Attach your own name below it, such as shop.co.uk below co.uk."),
        NameError::Platform => Code::PlatformDomain.refuse(
            "The name belongs to the platform's own zone. A project is already served at its platform host; attach a \
             domain of your own.",
        ),
    };
    refusal.into()
}

/// `GET …/domain-check?name=`: the records and conflicts of a name, without adding it.
async fn check(
    Authorised { part: App { core, issuing, api, .. }, project: id, .. }: Authorised<0, App>,
    params: Params,
) -> ApiResult {
    let project = projects::load(&core, &id).await?;
    let text = params.text("name").unwrap_or_default();
    let Attachable { name, local, .. } = core.settings.attachable(text).map_err(unattachable)?;
    throttle(&api.throttles, Asking::Check, &id, name.as_str())?;
    let claims = domains::find_claims(&mut core.store.reader().acquire().await?, &name).await?;
    let mut domain = Domain::added(name, id, core.clock.now());
    let claim = reconcile::claim(&claims, &project, &domain);
    let Some(check) = reconcile::check_dns(&issuing, &project, &domain, claim).await else { return Err(no_domain()) };
    if check.judged.resolver_down {
        let message = "No DNS resolver of the platform answers right now. Try again shortly.";
        return Err(Code::ResolverUnavailable.refuse(message).with_header(header::RETRY_AFTER, "5").into());
    }
    domain.is_apex = check.judged.is_apex;
    domain.checks = check.checks;
    domain.problems = check.judged.problems;
    let types::Domain { name, unicode_name, is_apex, records, problems, checks, .. } =
        representation(&core, &project, &domain);
    let contested = claim == Claim::Contested;
    let checked = DomainCheck { name, unicode_name, local, is_apex, contested, records, problems, checks };
    Ok(axum::Json(checked).into_response())
}
