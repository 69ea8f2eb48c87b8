//! Webhooks: receivers of the events of a project's domains and orders. A secret is shown once, in the response that creates it.

pub(crate) mod deliveries;

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use axum::routing::on;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chassis::openapi::{Method, Presence, Success};
use chassis::webhook::{Sender, SigningSecret};
use contract::key::Scope;
use contract::schema::{self, Given};
use http::{StatusCode, header};
use serde_json::json;

use super::extract::{Authorised, Json, LIMIT, MOMENT_CURSOR, Params, moment_cursor, name_text, overlap};
use super::types::{
    CreatedWebhook, DESCRIPTION_CHARACTERS_MAX, NewWebhook, OVERLAP_SECONDS, OVERLAP_SECONDS_MAX, Rfc3339,
    SecretRotation, WantedEvents, Webhook, WebhookChange, WebhookUrl, Webhooks,
};
use super::view::page;
use super::{Handler, Operation, projects};
use crate::actor::Actor;
use crate::app::ApiState;
use crate::common::Core;
use crate::error::{ApiError, ApiResult, Code};
use crate::project::ProjectRef;
use crate::store::{Write, webhooks};
use crate::webhook::endpoint::{WANTED_MAX, generate_secret};
use crate::webhook::{DisabledReason, EVENTS, EndpointRecord, Wanted};

/// Maximum of webhooks of one project.
pub(crate) const WEBHOOKS_PER_PROJECT_MAX: u64 = 20;

/// Operations on webhooks.
pub(super) const OPERATIONS: &[Operation] = &[LIST, CREATE, SHOW, CHANGE, REMOVE, ROTATE];

const LIST: Operation = Operation {
    summary: "List webhooks",
    description: "The receivers of the project's events.",
    parameters: &[MOMENT_CURSOR, LIMIT],
    answers: &[Success::new(200, "A page of webhooks, the oldest first.", schema::of::<Webhooks>)],
    errors: &[Code::InvalidQuery],
    ..reading("listWebhooks", "/v1/projects/{project}/webhooks", |get| on(get, list))
};

const CREATE: Operation = Operation {
    summary: "Create a webhook",
    description: "Messages follow Standard Webhooks. The secret is shown only in this answer.",
    body: Some((schema::of::<NewWebhook>, Presence::Required)),
    answers: &[Success::new(201, "The webhook and its secret.", schema::of::<CreatedWebhook>)],
    errors: &[Code::InvalidBody, Code::InvalidWebhookUrl, Code::WebhookLimitReached],
    ..writing("createWebhook", Method::Post, LIST.path, |post| on(post, create))
};

const SHOW: Operation = Operation {
    summary: "Show a webhook",
    description: "Whether it is served, and since when it fails.",
    answers: &[Success::new(200, "The webhook.", schema::of::<Webhook>)],
    ..reading("showWebhook", "/v1/projects/{project}/webhooks/{webhook}", |get| on(get, show))
};

const CHANGE: Operation = Operation {
    summary: "Change a webhook",
    description: "Switching it off fails its waiting deliveries. Switched on, it receives events from then on.",
    body: Some((schema::of::<WebhookChange>, Presence::Required)),
    answers: &[Success::new(200, "The webhook as it is now.", schema::of::<Webhook>)],
    errors: &[Code::InvalidBody, Code::InvalidWebhookUrl, Code::WebhookNotFound],
    ..writing("changeWebhook", Method::Patch, SHOW.path, |patch| on(patch, change))
};

const REMOVE: Operation = Operation {
    summary: "Remove a webhook",
    description: "Events are no longer sent to it.",
    answers: &[Success::empty(204, "It is gone, with everything that waited for it.")],
    ..writing("removeWebhook", Method::Delete, SHOW.path, |delete| on(delete, remove))
};

const ROTATE: Operation = Operation {
    summary: "Rotate a webhook's secret",
    description: "For a while messages are signed with the new secret and the old one.",
    body: Some((schema::of::<SecretRotation>, Presence::Optional)),
    answers: &[Success::new(200, "The webhook and its new secret.", schema::of::<CreatedWebhook>)],
    errors: &[Code::InvalidBody, Code::WebhookNotFound],
    ..writing("rotateWebhookSecret", Method::Post, "/v1/projects/{project}/webhooks/{webhook}/rotate", |post| {
        on(post, rotate)
    })
};

/// An operation that only reads webhooks; the others are derived from it.
const fn reading(id: &'static str, path: &'static str, handler: Handler) -> Operation {
    Operation {
        tag: "webhooks",
        scope: Some(Scope::DomainsRead),
        errors: &[Code::WebhookNotFound],
        ..Operation::internal(id, Method::Get, path, handler)
    }
}

const fn writing(id: &'static str, method: Method, path: &'static str, handler: Handler) -> Operation {
    Operation { method, scope: Some(Scope::DomainsWrite), ..reading(id, path, handler) }
}

/// `POST …/webhooks`.
async fn create(
    Authorised { part: api, actor, project, .. }: Authorised<0, Arc<ApiState>>,
    Json(wanted): Json<NewWebhook>,
) -> ApiResult {
    // Without a list it receives all events that it may.
    let everything = || Wanted::everything(may_see_orders(&actor));
    let events = wanted.events.map_or_else(|| Ok(everything()), |WantedEvents(events)| parse_events(events))?;
    may_receive(&actor, &events)?;
    check(&api.webhook_sender, Some(&wanted.url.0), Some(&wanted.description))?;
    let mut write = api.core.store.write().await?;
    projects::find(&mut write, &project).await?;
    if webhooks::count_webhooks(write.connection(), &project).await? >= WEBHOOKS_PER_PROJECT_MAX {
        let message = format!("The project has {WEBHOOKS_PER_PROJECT_MAX} webhooks; remove one first.");
        return Code::WebhookLimitReached.fail(message);
    }
    let now = write.now();
    let id = format!("wh_{}", URL_SAFE_NO_PAD.encode(chassis::random::bytes::<12>()?));
    let (secret, sealed_secret) = generate_secret(&api.core.sealing, &id)?;
    let endpoint = EndpointRecord {
        id,
        project: project.clone(),
        url: wanted.url.0,
        description: wanted.description,
        events,
        sealed_secret,
        previous: None,
        failing_since: None,
        delivered_at: None,
        disabled: None,
        created_at: now,
        updated_at: now,
        unreadable: None,
    };
    webhooks::save_webhook(write.connection(), &endpoint).await?;
    let detail = json!({ "webhook": endpoint.id, "events": endpoint.events });
    write.record(&project, None, "webhook.created", &actor, detail).await?;
    write.commit().await?;
    Ok(with_secret(StatusCode::CREATED, &endpoint, &secret))
}

/// `GET …/webhooks`.
async fn list(Authorised { part: core, project, .. }: Authorised, params: Params) -> ApiResult {
    let (after, limit) = (params.moment_cursor()?, params.limit()?);
    projects::load(&core, &project).await?;
    let found = core.store.webhooks(&project, &after, limit).await?;
    let (list, next) = page(&found, limit, |endpoint| moment_cursor(endpoint.created_at, &endpoint.id), view);
    Ok(axum::Json(Webhooks { webhooks: list, next_cursor: next }).into_response())
}

/// `GET …/webhooks/{webhook}`.
async fn show(Authorised { part: core, actor, project, rest: [webhook], .. }: Authorised<1>) -> ApiResult {
    Ok(axum::Json(view(&load(&core, &actor, &project, &webhook).await?)).into_response())
}

/// `PATCH …/webhooks/{webhook}`. Disabling a webhook fails its waiting deliveries; enabling it sends events that happen
/// afterwards.
async fn change(
    Authorised { part: api, actor, project, rest: [webhook], .. }: Authorised<1, Arc<ApiState>>,
    Json(change): Json<WebhookChange>,
) -> ApiResult {
    let WebhookChange { url: Given(url), description: Given(description), .. } = change;
    let events = change.events.0.map(|WantedEvents(events)| parse_events(events)).transpose()?;
    check(&api.webhook_sender, url.as_ref().map(|WebhookUrl(url)| url.as_str()), description.as_deref())?;
    let mut write = api.core.store.write().await?;
    let mut endpoint = find(&mut write, &actor, &project, &webhook).await?;
    endpoint.url = url.map_or(endpoint.url, |WebhookUrl(url)| url);
    endpoint.events = events.unwrap_or(endpoint.events);
    may_receive(&actor, &endpoint.events)?;
    endpoint.description = description.unwrap_or(endpoint.description);
    endpoint.updated_at = write.now();
    match change.enabled.0 {
        Some(true) => (endpoint.disabled, endpoint.failing_since) = (None, None),
        Some(false) if endpoint.disabled.is_none() => {
            endpoint.disabled = Some((write.now(), DisabledReason::Owner));
            webhooks::fail_waiting(write.connection(), &endpoint.id).await?;
        }
        _ => {}
    }
    webhooks::save_webhook(write.connection(), &endpoint).await?;
    let detail = json!({ "webhook": endpoint.id, "events": endpoint.events, "enabled": endpoint.disabled.is_none() });
    write.record(&project, None, "webhook.changed", &actor, detail).await?;
    write.commit().await?;
    Ok(axum::Json(view(&endpoint)).into_response())
}

/// `POST …/webhooks/{webhook}/rotate`: a new secret; for a while messages are signed with both.
async fn rotate(
    Authorised { part: core, actor, project, rest: [webhook], .. }: Authorised<1>,
    Json(rotation): Json<SecretRotation>,
) -> ApiResult {
    let overlap = overlap(rotation.overlap_seconds, OVERLAP_SECONDS, OVERLAP_SECONDS_MAX)?;
    let mut write = core.store.write().await?;
    let now = write.now();
    let mut endpoint = find(&mut write, &actor, &project, &webhook).await?;
    let (secret, sealed) = generate_secret(&core.sealing, &endpoint.id)?;
    let old = std::mem::replace(&mut endpoint.sealed_secret, sealed);
    // One that a lost sealing secret took along cannot sign any more.
    let signs_on = overlap > 0 && core.sealing.has_secret_of(&old);
    endpoint.previous = signs_on.then(|| (old, now.plus(i64::from(overlap) * 1_000)));
    endpoint.updated_at = now;
    webhooks::save_webhook(write.connection(), &endpoint).await?;
    let detail = json!({ "webhook": endpoint.id, "overlap_seconds": overlap });
    write.record(&project, None, "webhook.secret_rotated", &actor, detail).await?;
    write.commit().await?;
    Ok(with_secret(StatusCode::OK, &endpoint, &secret))
}

/// `DELETE …/webhooks/{webhook}`, with its waiting deliveries.
async fn remove(Authorised { part: core, actor, project, rest: [webhook], .. }: Authorised<1>) -> ApiResult {
    let mut write = core.store.write().await?;
    let endpoint = find(&mut write, &actor, &project, &webhook).await?;
    webhooks::delete_webhook(write.connection(), &endpoint).await?;
    write.record(&project, None, "webhook.removed", &actor, json!({ "webhook": endpoint.id })).await?;
    write.commit().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn parse_events(entries: Vec<String>) -> ApiResult<Wanted> {
    Wanted::parse(entries).map_err(|unknown| {
        let message = match unknown {
            Some(entry) => {
                format!(
                    "events: {entry:?} is not an event; there are {}, and prefixes such as domain.* or order.*.",
                    EVENTS.join(", ")
                )
            }
            None => format!("events: name 1 to {WANTED_MAX} events, or leave it out for all that you may receive."),
        };
        Code::InvalidBody.refuse(message).into()
    })
}

/// Events of orders need the right to read orders, and so does every access to a webhook that receives them: its secret,
/// its deliveries and its address give access to the events.
fn may_receive(actor: &Actor, events: &Wanted) -> ApiResult<()> {
    if events.include_orders() && !may_see_orders(actor) {
        let scope = Scope::OrdersRead;
        return Code::InsufficientScope.fail(format!("Events of orders need a key with the scope {scope}."));
    }
    Ok(())
}

fn may_see_orders(actor: &Actor) -> bool {
    actor.may_grant(&std::iter::once(Scope::OrdersRead).collect())
}

fn check(sender: &Sender, url: Option<&str>, description: Option<&str>) -> ApiResult<()> {
    if let Some(Err(error)) = url.map(|url| sender.check(url)) {
        return Code::InvalidWebhookUrl.fail(format!("The webhook's url cannot be used: {error}."));
    }
    description.map_or(Ok(()), |text| name_text("description", text, DESCRIPTION_CHARACTERS_MAX))
}

/// The endpoint, or 404, within a transaction. One that receives orders exists only for actors who may read orders.
async fn find(write: &mut Write, actor: &Actor, project: &ProjectRef, id: &str) -> ApiResult<EndpointRecord> {
    projects::find(write, project).await?;
    let endpoint = webhooks::find_webhook(write.connection(), project, id).await?.ok_or_else(no_webhook)?;
    may_receive(actor, &endpoint.events)?;
    Ok(endpoint)
}

/// The same without a transaction.
async fn load(core: &Core, actor: &Actor, project: &ProjectRef, id: &str) -> ApiResult<EndpointRecord> {
    projects::load(core, project).await?;
    let endpoint = webhooks::find_webhook(core.store.reader(), project, id).await?.ok_or_else(no_webhook)?;
    may_receive(actor, &endpoint.events)?;
    Ok(endpoint)
}

fn no_webhook() -> ApiError {
    Code::WebhookNotFound.refuse("The project has no webhook of this id.").into()
}

fn with_secret(status: StatusCode, endpoint: &EndpointRecord, secret: &SigningSecret) -> Response {
    let body = CreatedWebhook { webhook: view(endpoint), secret: secret.to_text().to_string() };
    (status, [(header::CACHE_CONTROL, "no-store")], axum::Json(body)).into_response()
}

fn view(endpoint: &EndpointRecord) -> Webhook {
    Webhook {
        id: endpoint.id.clone(),
        project_id: endpoint.project.name.clone(),
        url: WebhookUrl(endpoint.url.clone()),
        description: endpoint.description.clone(),
        events: WantedEvents(endpoint.events.entries().to_vec()),
        enabled: endpoint.disabled.is_none(),
        disabled_at: endpoint.disabled.map(|(at, _)| at.into()),
        disabled_reason: endpoint.disabled.map(|(_, reason)| reason),
        failing_since: endpoint.failing_since.map(Rfc3339::from),
        last_delivered_at: endpoint.delivered_at.map(Rfc3339::from),
        previous_secret_until: endpoint.previous.as_ref().map(|(_, until)| (*until).into()),
        created_at: endpoint.created_at.into(),
        updated_at: endpoint.updated_at.into(),
    }
}
