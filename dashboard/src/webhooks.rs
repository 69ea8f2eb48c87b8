//! Project → Webhooks: receivers, deliveries, and repeats.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::{IntoResponse, Redirect};
use axum::routing::{get, post};
use contract::key::Scope;
use http::HeaderMap;
use serde_json::{Value, json};

use super::Dashboard;
use super::fault::PageResult;
use super::form::Posted;
use super::once;
use super::session::Session;
use super::shell::{Outcome, Section, Shell, html_with};
use super::words as w;
use chassis::percent::segment;
use domains_api::Operation;
use domains_api::project::ProjectRef;
use domains_api::types::{Deliveries, Delivery, EVENTS, Webhook, Webhooks};

/// The pages and buttons, below the project's path.
pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/webhooks", get(list).post(create))
        .route("/webhooks/{webhook}", get(show))
        .route("/webhooks/{webhook}/change", post(change))
        .route("/webhooks/{webhook}/test", post(test))
        .route("/webhooks/{webhook}/repeat", post(repeat))
}

#[derive(Template)]
#[template(path = "webhooks.html")]
struct ListPage {
    shell: Shell,
    endpoints: Vec<Webhook>,
    url: String,
}

#[derive(Template)]
#[template(path = "webhook.html")]
struct OnePage {
    shell: Shell,
    endpoint: Webhook,
    deliveries: Vec<Delivery>,
    secret: Option<String>,
}

/// `GET /projects/{project}/webhooks`.
async fn list(session: Session, Path(id): Path<String>, RawQuery(query): RawQuery) -> PageResult {
    list_page(&session, &id, w::notice(&query.unwrap_or_default()).map(Ok), "").await
}

async fn list_page(session: &Session, id: &str, outcome: Outcome, url: &str) -> PageResult {
    let project = session.authorise(id, Some(Scope::DomainsRead))?;
    let place = [project.name.as_str()];
    let found: Webhooks = session.get(Operation::ListWebhooks, &place, "limit=200").await?;
    let shell = Shell::within(session, &project, Section::Webhooks, w::WEBHOOKS).after(outcome);
    Ok(html_with(shell.status(), &ListPage { shell, endpoints: found.webhooks, url: url.to_owned() }))
}

/// `POST /projects/{project}/webhooks`: a new endpoint, its secret shown once in the answer.
async fn create(Path(id): Path<String>, Posted { session, fields }: Posted) -> PageResult {
    let project = session.authorise(&id, Some(Scope::DomainsWrite))?;
    let kinds: Vec<&str> = fields.all("event").collect();
    let kinds = (!kinds.is_empty()).then_some(kinds);
    let body = json!({ "url": fields.text("url"), "description": fields.text("description"), "events": kinds });
    match session.call(Operation::CreateWebhook, (&[project.name.as_str()], ""), &body).await {
        Ok(answered) => with_secret(&session, &project, &answered.body),
        Err(refused) => list_page(&session, &id, Some(Err(refused)), fields.text("url")).await,
    }
}

/// Redirects to the page that shows the new secret.
fn with_secret(session: &Session, project: &ProjectRef, body: &Value) -> PageResult {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let place = format!("/projects/{project}/webhooks/{}?made", segment(text("id")));
    once::lead(session, &place, &text("secret"))
}

/// `GET …/webhooks/{webhook}`.
async fn show(
    session: Session,
    Path((id, webhook)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> PageResult {
    let Some(secret) = once::find(&session, &headers) else {
        return one_page(&session, &id, &webhook, w::notice(&query.unwrap_or_default()).map(Ok), None).await;
    };
    once::done(one_page(&session, &id, &webhook, None, Some(secret)).await?)
}

async fn one_page(session: &Session, id: &str, webhook: &str, outcome: Outcome, secret: Option<String>) -> PageResult {
    let project = session.authorise(id, Some(Scope::DomainsRead))?;
    let place = [project.name.as_str(), webhook];
    let endpoint: Webhook = session.get(Operation::ShowWebhook, &place, "").await?;
    let sent: Deliveries = session.get(Operation::ListWebhookDeliveries, &place, "limit=50").await?;
    let shell = Shell::within(session, &project, Section::Webhooks, endpoint.url.0.clone()).after(outcome);
    Ok(html_with(shell.status(), &OnePage { shell, endpoint, deliveries: sent.deliveries, secret }))
}

/// `POST …/webhooks/{webhook}/change`: switched on or off, a new secret, or removed.
async fn change(Path((id, webhook)): Path<(String, String)>, Posted { session, fields }: Posted) -> PageResult {
    let project = session.authorise(&id, Some(Scope::DomainsWrite))?;
    let (operation, body) = match fields.text("action") {
        "remove" => (Operation::RemoveWebhook, Value::Null),
        "rotate" => (Operation::RotateWebhookSecret, json!({})),
        action => (Operation::ChangeWebhook, json!({ "enabled": action == "on" })),
    };
    let removes = operation == Operation::RemoveWebhook;
    let place = [project.name.as_str(), &webhook];
    match session.call(operation, (&place, ""), &body).await {
        Ok(_) if removes => Ok(Redirect::to(&format!("/projects/{project}/webhooks?removed")).into_response()),
        Ok(answered) if answered.body.get("secret").is_some() => with_secret(&session, &project, &answered.body),
        Ok(_) => {
            let place = format!("/projects/{project}/webhooks/{}?saved", segment(&webhook));
            Ok(Redirect::to(&place).into_response())
        }
        Err(refused) => Err(refused.into()),
    }
}

/// `POST …/webhooks/{webhook}/test`: sends a message without content.
async fn test(Path((id, webhook)): Path<(String, String)>, Posted { session, fields: _ }: Posted) -> PageResult {
    carry_out(&session, &id, &[&webhook], Operation::TestWebhook, "tested").await
}

/// `POST …/webhooks/{webhook}/repeat`: sends a delivery again.
async fn repeat(Path((id, webhook)): Path<(String, String)>, Posted { session, fields }: Posted) -> PageResult {
    carry_out(&session, &id, &[&webhook, fields.text("delivery")], Operation::RepeatWebhookDelivery, "repeated").await
}

/// Calls an operation on a webhook, which is named first, or on what it has. A refusal is shown on the webhook's page.
async fn carry_out(session: &Session, id: &str, named: &[&str], operation: Operation, notice: &str) -> PageResult {
    let project = session.authorise(id, Some(Scope::DomainsWrite))?;
    let webhook = named.first().copied().unwrap_or_default();
    match session.call(operation, (&[&[project.name.as_str()][..], named].concat(), ""), &Value::Null).await {
        Ok(_) => {
            let place = format!("/projects/{project}/webhooks/{}?{notice}", segment(webhook));
            Ok(Redirect::to(&place).into_response())
        }
        Err(refused) => one_page(session, id, webhook, Some(Err(refused)), None).await,
    }
}
