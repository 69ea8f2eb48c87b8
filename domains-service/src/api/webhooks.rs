//! Webhooks: who is told what happens to a project's domains and orders. A secret is shown once, in the answer that makes it.

pub(super) mod deliveries;

use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chassis::webhook::SigningSecret;
use contract::key::Scope;
use http::{StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::extract::{DomainsRead, DomainsWrite, Entered, Json, Params, moment_cursor, name_text, overlap, present};
use super::projects;
use super::view::{page, rfc3339};
use crate::actor::Actor;
use crate::app::App;
use crate::error::{Code, Stop};
use crate::project::ProjectRef;
use crate::store::{Write, webhooks};
use crate::webhook::endpoint::{WANTED_MAX, generate_secret};
use crate::webhook::{DisabledReason, EVENTS, EndpointRecord, Wanted};

/// Endpoints of one project.
pub(crate) const WEBHOOKS_PER_PROJECT_MAX: u64 = 20;

/// The longest description, in characters.
pub(crate) const DESCRIPTION_CHARACTERS_MAX: usize = 100;

/// How long the old secret signs as well after a rotation, unless said otherwise.
pub(crate) const OVERLAP_SECONDS: u32 = 86_400;

/// The longest overlap that can be asked for.
pub(crate) const OVERLAP_SECONDS_MAX: u32 = 30 * 86_400;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewWebhook {
    url: String,
    events: Option<Vec<String>>,
    #[serde(default)]
    description: String,
}

/// `POST …/webhooks`.
pub(super) async fn create(
    Entered { app, actor, project, .. }: Entered<DomainsWrite>,
    Json(wanted): Json<NewWebhook>,
) -> Result<Response, Stop> {
    // Nothing named is everything that may be told.
    let everything = || Wanted::everything(may_see_orders(&actor));
    let events = wanted.events.map_or_else(|| Ok(everything()), parse_events)?;
    may_be_told(&actor, &events)?;
    check(&app, Some(&wanted.url), Some(&wanted.description))?;
    let mut write = app.core.store.write().await?;
    projects::find(&mut write, &project).await?;
    if webhooks::count_webhooks(write.connection(), &project).await? >= WEBHOOKS_PER_PROJECT_MAX {
        let message = format!("The project has {WEBHOOKS_PER_PROJECT_MAX} webhooks; remove one first.");
        return Err(Code::WebhookLimitReached.refuse(message).into());
    }
    let now = write.now();
    let id = format!("wh_{}", URL_SAFE_NO_PAD.encode(chassis::random::bytes::<12>()?));
    let (secret, sealed_secret) = generate_secret(&app.core.sealing, &id)?;
    let endpoint = EndpointRecord {
        id,
        project: project.clone(),
        url: wanted.url,
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
pub(super) async fn list(Entered { app, project, .. }: Entered<DomainsRead>, params: Params) -> Result<Response, Stop> {
    let (after, limit) = (params.moment_cursor()?, params.limit()?);
    projects::load(&app, &project).await?;
    let found = app.core.store.webhooks(&project, &after, limit).await?;
    let (list, next) = page(&found, limit, |endpoint| moment_cursor(endpoint.created_at, &endpoint.id), view);
    Ok(axum::Json(json!({ "webhooks": list, "next_cursor": next })).into_response())
}

/// `GET …/webhooks/{webhook}`.
pub(super) async fn show(
    Entered { app, actor, project, rest: [webhook], .. }: Entered<DomainsRead, 1>,
) -> Result<Response, Stop> {
    let endpoint = load(&app, &actor, &project, &webhook).await?;
    Ok(axum::Json(view(&endpoint)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookChange {
    #[serde(default, deserialize_with = "present")]
    url: Option<String>,
    #[serde(default, deserialize_with = "present")]
    events: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present")]
    description: Option<String>,
    #[serde(default, deserialize_with = "present")]
    enabled: Option<bool>,
}

/// `PATCH …/webhooks/{webhook}`. Switching one off fails what waits for it; switching it on sends what happens from
/// then on.
pub(super) async fn change(
    Entered { app, actor, project, rest: [webhook], .. }: Entered<DomainsWrite, 1>,
    Json(change): Json<WebhookChange>,
) -> Result<Response, Stop> {
    let events = change.events.map(parse_events).transpose()?;
    check(&app, change.url.as_deref(), change.description.as_deref())?;
    let mut write = app.core.store.write().await?;
    let mut endpoint = find(&mut write, &actor, &project, &webhook).await?;
    endpoint.url = change.url.unwrap_or(endpoint.url);
    endpoint.events = events.unwrap_or(endpoint.events);
    may_be_told(&actor, &endpoint.events)?;
    endpoint.description = change.description.unwrap_or(endpoint.description);
    endpoint.updated_at = write.now();
    match change.enabled {
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretRotation {
    #[serde(default, deserialize_with = "chassis::json::maybe_whole")]
    overlap_seconds: Option<i64>,
}

/// `POST …/webhooks/{webhook}/rotate`: a new secret; for a while messages are signed with both.
pub(super) async fn rotate(
    Entered { app, actor, project, rest: [webhook], .. }: Entered<DomainsWrite, 1>,
    Json(rotation): Json<SecretRotation>,
) -> Result<Response, Stop> {
    let overlap = overlap(rotation.overlap_seconds, OVERLAP_SECONDS, OVERLAP_SECONDS_MAX)?;
    let mut write = app.core.store.write().await?;
    let now = write.now();
    let mut endpoint = find(&mut write, &actor, &project, &webhook).await?;
    let (secret, sealed) = generate_secret(&app.core.sealing, &endpoint.id)?;
    let old = std::mem::replace(&mut endpoint.sealed_secret, sealed);
    // One that a lost sealing secret took along cannot sign any more.
    let signs_on = overlap > 0 && app.core.sealing.has_secret_of(&old);
    endpoint.previous = signs_on.then(|| (old, now.plus(i64::from(overlap) * 1_000)));
    endpoint.updated_at = now;
    webhooks::save_webhook(write.connection(), &endpoint).await?;
    let detail = json!({ "webhook": endpoint.id, "overlap_seconds": overlap });
    write.record(&project, None, "webhook.secret_rotated", &actor, detail).await?;
    write.commit().await?;
    Ok(with_secret(StatusCode::OK, &endpoint, &secret))
}

/// `DELETE …/webhooks/{webhook}`, with everything that waits for it.
pub(super) async fn remove(
    Entered { app, actor, project, rest: [webhook], .. }: Entered<DomainsWrite, 1>,
) -> Result<Response, Stop> {
    let mut write = app.core.store.write().await?;
    let endpoint = find(&mut write, &actor, &project, &webhook).await?;
    webhooks::delete_webhook(write.connection(), &endpoint).await?;
    write.record(&project, None, "webhook.removed", &actor, json!({ "webhook": endpoint.id })).await?;
    write.commit().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn parse_events(entries: Vec<String>) -> Result<Wanted, Stop> {
    Wanted::parse(entries).map_err(|unknown| {
        let message = match unknown {
            Some(entry) => {
                format!(
                    "events: {entry:?} is no event; there are {}, and prefixes such as domain.* or order.*.",
                    EVENTS.join(", ")
                )
            }
            None => format!("events: name 1 to {WANTED_MAX} events, or leave it out for all that you may be told."),
        };
        Code::InvalidBody.refuse(message).into()
    })
}

/// Orders are told on behalf of those who may read them, and such a webhook is touched by them alone: its secret, its
/// deliveries and its address are worth what it is told.
fn may_be_told(actor: &Actor, events: &Wanted) -> Result<(), Stop> {
    if events.include_orders() && !may_see_orders(actor) {
        let scope = Scope::OrdersRead;
        let message = format!("Events of orders are told to holders of a key with the scope {scope}.");
        return Err(Code::InsufficientScope.refuse(message).into());
    }
    Ok(())
}

fn may_see_orders(actor: &Actor) -> bool {
    actor.may_grant(&std::iter::once(Scope::OrdersRead).collect())
}

fn check(app: &App, url: Option<&str>, description: Option<&str>) -> Result<(), Stop> {
    if let Some(Err(error)) = url.map(|url| app.api.webhook_sender.check(url)) {
        return Err(Code::InvalidWebhookUrl.refuse(format!("The webhook's url cannot be used: {error}.")).into());
    }
    description.map_or(Ok(()), |text| name_text("description", text, DESCRIPTION_CHARACTERS_MAX))
}

/// The endpoint, or 404, within a transaction. One that is told of orders is there for those who may see orders.
async fn find(write: &mut Write, actor: &Actor, project: &ProjectRef, id: &str) -> Result<EndpointRecord, Stop> {
    projects::find(write, project).await?;
    let endpoint = webhooks::find_webhook(write.connection(), project, id).await?.ok_or_else(no_webhook)?;
    may_be_told(actor, &endpoint.events)?;
    Ok(endpoint)
}

/// The same without a transaction.
async fn load(app: &App, actor: &Actor, project: &ProjectRef, id: &str) -> Result<EndpointRecord, Stop> {
    projects::load(app, project).await?;
    let endpoint = app.core.store.find_webhook(project, id).await?.ok_or_else(no_webhook)?;
    may_be_told(actor, &endpoint.events)?;
    Ok(endpoint)
}

fn no_webhook() -> Stop {
    Code::WebhookNotFound.refuse("The project has no webhook of this id.").into()
}

fn with_secret(status: StatusCode, endpoint: &EndpointRecord, secret: &SigningSecret) -> Response {
    let mut body = view(endpoint);
    if let Some(fields) = body.as_object_mut() {
        fields.insert("secret".to_owned(), json!(*secret.to_text()));
    }
    (status, [(header::CACHE_CONTROL, "no-store")], axum::Json(body)).into_response()
}

fn view(endpoint: &EndpointRecord) -> Value {
    json!({
        "id": endpoint.id,
        "project_id": endpoint.project,
        "url": endpoint.url,
        "description": endpoint.description,
        "events": endpoint.events,
        "enabled": endpoint.disabled.is_none(),
        "disabled_at": endpoint.disabled.map(|(at, _)| rfc3339(at)),
        "disabled_reason": endpoint.disabled.map(|(_, reason)| reason.as_str()),
        "failing_since": endpoint.failing_since.map(rfc3339),
        "last_delivered_at": endpoint.delivered_at.map(rfc3339),
        "previous_secret_until": endpoint.previous.as_ref().map(|(_, until)| rfc3339(*until)),
        "created_at": rfc3339(endpoint.created_at),
        "updated_at": rfc3339(endpoint.updated_at),
    })
}
