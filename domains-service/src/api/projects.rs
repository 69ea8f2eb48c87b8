//! Projects: operators create, change and deploy them; keys can read their own.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chassis::openapi::{Method, Success};
use contract::browsers::{Browsers, Cors, Hsts};
use contract::feed::Entity;
use contract::key::Scope;
use contract::plan::{Limits, Plan};
use contract::project::{Access, ProjectId, ProjectUid, RESERVED_LABELS, UpstreamName};
use contract::schema::{self, Given};
use contract::site::{Serves, Site};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::extract::{Authorised, Field, Json, NUMBER_CURSOR, Params};
use super::types::{self, AcmeAccount, AcmeAccounts, Events, Projects};
use super::{Operation, PROJECT, view};
use crate::actor::Actor;
use crate::app::Issuing;
use crate::common::Core;
use crate::domain::proof::{KEY_BYTES, ProofKey};
use crate::error::{ApiError, ApiResult, Code};
use crate::gateways::Gateways;
use crate::project::ProjectRef;
use crate::store::events::{EVENTS_PER_PAGE, Through};
use crate::store::projects::{self, ProjectRecord};
use crate::store::withdrawals::Kind;
use crate::store::{Result, Write, domains};
use crate::withdrawals::{self, PendingWithdrawals};

/// Operations on a project, for its keys.
pub(super) const OPERATIONS: &[Operation] = &[SHOW, EVENTS, ACME_ACCOUNT];

const SHOW: Operation = Operation {
    tag: "projects",
    summary: "Show a project",
    description: "Any key of the project may call this.",
    answers: &[Success::new(200, "The project.", schema::of::<types::Project>)],
    ..Operation::internal("showProject", Method::Get, PROJECT, |get| on(get, show))
};

const EVENTS: Operation = Operation {
    tag: "projects",
    summary: "List events",
    description: "The audit log of a project.",
    scope: Some(Scope::DomainsRead),
    parameters: &[NUMBER_CURSOR],
    answers: &[Success::new(200, "A page of events, newest first.", schema::of::<Events>)],
    errors: &[Code::InvalidQuery],
    ..Operation::internal("listEvents", Method::Get, "/v1/projects/{project}/events", |get| on(get, events))
};

const ACME_ACCOUNT: Operation = Operation {
    tag: "projects",
    summary: "Show the authorities' accounts",
    description: "What CAA records may say so that certificates can be issued for your domains.",
    answers: &[Success::new(200, "The accounts.", schema::of::<AcmeAccounts>)],
    ..Operation::internal("showAcmeAccount", Method::Get, "/v1/acme-account", |get| on(get, acme_account))
};

const ALL: Operation = Operation::internal("listProjects", Method::Get, "/internal/projects", |get| on(get, list));

/// Operations on all projects, for operators.
pub(super) const OF_ALL: &[Operation] =
    &[ALL, Operation::internal("createProject", Method::Post, "/internal/projects", |post| on(post, create))];

/// Operations on one project, for operators only.
pub(super) const OF_OPERATORS: &[Operation] = &[
    Operation::internal("changeProject", Method::Patch, "/internal/projects/{project}", |patch| on(patch, change)),
    Operation::internal("deployProject", Method::Post, "/internal/projects/{project}/deploy", |post| on(post, deploy)),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewProject {
    id: String,
    #[serde(default)]
    plan: Given<Plan>,
    #[serde(default)]
    upstream: Given<String>,
    #[serde(default)]
    access: Given<Access>,
    limits: Option<Limits>,
    cors: Option<Cors>,
    hsts: Option<Hsts>,
}

/// `POST /internal/projects`.
async fn create(
    State(core): State<Arc<Core>>,
    State(gateways): State<Arc<Gateways>>,
    Extension(actor): Extension<Actor>,
    Json(wanted): Json<NewProject>,
) -> ApiResult {
    let name: ProjectId = wanted.id.parse().map_err(|error| invalid("id", error))?;
    let upstream = wanted.upstream.0.as_deref().unwrap_or("orders");
    let upstream: UpstreamName = upstream.parse().map_err(|error| invalid("upstream", error))?;
    if RESERVED_LABELS.contains(&name.as_str()) {
        return Code::ProjectReserved.fail("The platform uses this name. Choose another name.");
    }
    if core.settings.platform.child(name.as_str()).is_err() {
        return Code::InvalidProject
            .fail("The project's hostname would have more than 253 characters. Choose a shorter name.");
    }
    // One whose record is damaged keeps its name.
    core.store.repair_projects(Some(&name)).await?;
    let mut write = core.store.write().await?;
    if projects::find_named(write.connection(), &name).await?.is_some() {
        return Code::ProjectExists.fail("A project of this name exists.");
    }
    let now = write.now();
    let salt = chassis::random::bytes::<16>()?;
    let project = ProjectRecord {
        id: ProjectRef { uid: ProjectUid::from_random(chassis::random::bytes()?), name },
        salt: URL_SAFE_NO_PAD.encode(salt),
        proof_key: ProofKey::new(chassis::random::bytes::<KEY_BYTES>()?.to_vec()),
        plan: wanted.plan.0.unwrap_or(Plan::Free),
        limits: wanted.limits,
        access: wanted.access.0.unwrap_or(Access::Key),
        upstream,
        suspended: false,
        browsers: Browsers { cors: wanted.cors, hsts: wanted.hsts },
        created_at: now,
        updated_at: now,
        deployed_at: None,
        unpaid_since: None,
        removed: None,
        unreadable: None,
    };
    save(&core, &mut write, &project).await?;
    write.record(&project.id, None, "project.created", &actor, json!({ "plan": project.plan })).await?;
    gateways.commit_everywhere(write).await?;
    Ok((StatusCode::CREATED, axum::Json(view::project(&core, &project))).into_response())
}

fn invalid(field: &str, error: contract::project::InvalidLabel) -> ApiError {
    Code::InvalidProject.refuse(format!("{field}: {error}.")).into()
}

/// Saves a project and publishes it.
pub(super) async fn save(core: &Core, write: &mut Write, project: &ProjectRecord) -> ApiResult<()> {
    projects::save_project(write.connection(), project).await?;
    Ok(write.put(Entity::Project(project.published(&core.settings.plans))).await?)
}

/// Publishes the project at its own host.
pub(super) async fn publish_host(core: &Core, write: &mut Write, project: &ProjectRecord) -> ApiResult<()> {
    if let Some(hostname) = project.host(&core.settings.platform) {
        let serves = Serves::Project(project.id.name.clone());
        write.put(Entity::Site(Site { hostname, serves, redirect: None })).await?;
    }
    Ok(())
}

/// The project, or 404.
pub(super) async fn find(write: &mut Write, id: &ProjectRef) -> ApiResult<ProjectRecord> {
    projects::find_project(write.connection(), id).await?.ok_or_else(none)
}

/// The project, or 404, without a transaction.
pub(super) async fn load(core: &Core, id: &ProjectRef) -> ApiResult<ProjectRecord> {
    projects::find_project(core.store.reader(), id).await?.ok_or_else(none)
}

/// The refusal for an unknown project.
pub(super) fn none() -> ApiError {
    Code::ProjectNotFound.refuse("There is no such project.").into()
}

/// `GET /internal/projects`.
async fn list(State(core): State<Arc<Core>>, params: Params) -> ApiResult {
    let limit = params.limit()?;
    let found = core.store.projects(params.text("cursor").unwrap_or_default(), limit).await?;
    let (projects, next_cursor) =
        view::page(&found, limit, |project| project.id.name.to_string(), |project| view::project(&core, project));
    Ok(axum::Json(Projects { projects, next_cursor }).into_response())
}

/// `GET …/projects/{project}`.
async fn show(Authorised { part: gateways, project, .. }: Authorised<0, Arc<Gateways>>) -> ApiResult {
    response(&gateways, &load(&gateways.core, &project).await?).await
}

/// Withdrawals of a project that stays served.
const WITHDRAWN: &[Kind] = &[Kind::Suspension, Kind::Access, Kind::Upstream, Kind::Cors];

/// A project as a response, with the withdrawals that a gateway has not confirmed.
async fn response(gateways: &Gateways, project: &ProjectRecord) -> ApiResult {
    let mut shown = view::project(&gateways.core, project);
    let pending = PendingWithdrawals::of(gateways, &project.id.uid).await?;
    shown.withdrawal = pending.find(WITHDRAWN, project.id.name.as_str());
    Ok(axum::Json(shown).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProjectChange {
    plan: Option<Plan>,
    upstream: Option<String>,
    access: Option<Access>,
    suspended: Option<bool>,
    #[serde(default)]
    limits: Field<Limits>,
    /// The CORS answers; `null` leaves them to the upstream.
    #[serde(default)]
    cors: Field<Cors>,
    #[serde(default)]
    hsts: Field<Hsts>,
}

/// `PATCH /internal/projects/{project}`: 202 while a gateway may still serve the previous state.
async fn change(
    Authorised { part: gateways, actor, project: id, .. }: Authorised<0, Arc<Gateways>>,
    Json(change): Json<ProjectChange>,
) -> ApiResult {
    let core = &gateways.core;
    let upstream = change.upstream.map(|name| name.parse::<UpstreamName>()).transpose();
    let upstream = upstream.map_err(|error| invalid("upstream", error))?;
    let mut write = core.store.write().await?;
    let now = write.now();
    let mut project = find(&mut write, &id).await?;
    let before = project.clone();
    project.plan = change.plan.unwrap_or(project.plan);
    change.limits.apply(&mut project.limits);
    change.cors.apply(&mut project.browsers.cors);
    change.hsts.apply(&mut project.browsers.hsts);
    project.access = change.access.unwrap_or(project.access);
    project.upstream = upstream.unwrap_or(project.upstream);
    project.suspended = change.suspended.unwrap_or(project.suspended);
    project.updated_at = now;
    let pays = |project: &ProjectRecord| core.settings.plans.of(project.plan).domains > 0;
    if pays(&project) {
        project.unpaid_since = None;
    } else if pays(&before) {
        project.unpaid_since = Some(now);
    }
    save(core, &mut write, &project).await?;
    if project.plan != before.plan {
        domains::check_again(write.connection(), &project.id, now).await?;
    }
    let detail = json!({
        "plan": project.plan, "limits": project.limits, "access": project.access, "upstream": project.upstream,
        "suspended": project.suspended, "browsers": project.browsers,
    });
    write.record(&project.id, None, "project.changed", &actor, detail).await?;
    let waits = spread(&gateways, write, &before, &project).await?;
    core.wake.notify_one();
    let mut answer = response(&gateways, &project).await?;
    if waits {
        *answer.status_mut() = StatusCode::ACCEPTED;
    }
    Ok(answer)
}

/// Commits a change of a project and waits for the gateways. Returns whether one may still serve what this change or an earlier one
/// has withdrawn.
async fn spread(
    gateways: &Gateways,
    mut write: Write,
    before: &ProjectRecord,
    project: &ProjectRecord,
) -> Result<bool> {
    let name = project.id.name.as_str();
    let mut fresh = Vec::new();
    for (what, was_withdrawn, is_withdrawn) in [
        (Kind::Suspension, before.suspended, project.suspended),
        (Kind::Access, before.access == Access::Key, project.access == Access::Key),
        (Kind::Upstream, before.upstream == project.upstream, true),
        (Kind::Cors, before.browsers.cors == project.browsers.cors, project.browsers.cors != Some(Cors::Open)),
    ] {
        if !is_withdrawn {
            write.forget_withdrawal(what, name, &project.id).await?;
        } else if !was_withdrawn {
            write.record_withdrawal(what, name, &project.id).await?;
            fresh.push(what);
        }
    }
    let acknowledged = if fresh.is_empty() {
        gateways.commit_everywhere(write).await?;
        withdrawals::repeat(gateways, (WITHDRAWN, name), &project.id).await?
    } else {
        Some(withdrawals::confirm(gateways, write, (&fresh, name), &project.id).await?)
    };
    Ok(acknowledged.is_some_and(|acknowledged| !acknowledged.lagging.is_empty()))
}

/// `POST /internal/projects/{project}/deploy`: records a successful deploy; the project is served from then on.
async fn deploy(Authorised { part: gateways, actor, project: id, .. }: Authorised<0, Arc<Gateways>>) -> ApiResult {
    let core = &gateways.core;
    let mut write = core.store.write().await?;
    let now = write.now();
    let mut project = find(&mut write, &id).await?;
    project.deployed_at = Some(now);
    project.updated_at = now;
    save(core, &mut write, &project).await?;
    publish_host(core, &mut write, &project).await?;
    write.record(&id, None, "project.deployed", &actor, json!({})).await?;
    gateways.commit_everywhere(write).await?;
    Ok(axum::Json(view::project(core, &project)).into_response())
}

/// `GET …/projects/{project}/events`.
async fn events(Authorised { part: core, actor, project: id, .. }: Authorised, params: Params) -> ApiResult {
    load(&core, &id).await?;
    let events = core.store.events(&id, None, Some(params.number_cursor()?)).await?;
    Ok(events_page(&events, &actor))
}

/// A page of events, newest first.
pub(super) fn events_page(events: &[Through], actor: &Actor) -> Response {
    let cursor = |event: &Through| event.event.id.to_string();
    if actor.is_operator() {
        let (list, next) = view::page(events, EVENTS_PER_PAGE, cursor, view::event_for_operators);
        return axum::Json(json!({ "events": list, "next_cursor": next })).into_response();
    }
    let (events, next_cursor) = view::page(events, EVENTS_PER_PAGE, cursor, |through| through.event.clone());
    axum::Json(Events { events, next_cursor }).into_response()
}

/// `GET /v1/acme-account`: the values for a customer's CAA records.
async fn acme_account(State(issuing): State<Arc<Issuing>>) -> Response {
    let identities = issuing.authorities.caa();
    let accounts = identities.iter().map(|identity| {
        let uri = identity.account_uri.as_ref();
        AcmeAccount {
            ca: identity.domain.clone(),
            account_uri: identity.account_uri.clone(),
            caa: format!("0 issue \"{}\"", identity.domain),
            caa_pinned: uri.map(|uri| format!("0 issue \"{}; accounturi={uri}\"", identity.domain)),
        }
    });
    axum::Json(AcmeAccounts { accounts: accounts.collect() }).into_response()
}
