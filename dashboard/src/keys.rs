//! Project → API keys: create, show once, rotate, revoke; the last use of each, and its ban.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::{IntoResponse, Redirect};
use axum::routing::{get, post};
use contract::key::Scope;
use contract::time::UnixMillis;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Dashboard;
use super::control_plane::Answered;
use super::fault::{Fault, PageResult};
use super::form::Posted;
use super::moment::Moment;
use super::once;
use super::session::Session;
use super::shell::{Outcome, Section, Shell, html_with};
use super::words as w;
use chassis::percent::segment;
use domains_api::Operation;
use domains_api::project::ProjectRef;
use domains_api::types::{Key, Keys};

/// The pages and buttons, below the project's path.
pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/keys", get(show).post(create))
        .route("/keys/{key}/rotate", post(rotate))
        .route("/keys/{key}/revoke", post(revoke))
}

/// Lifetimes offered, in days; 0: it does not expire.
const LIFETIMES: [i64; 4] = [0, 30, 90, 365];

/// Overlaps of a rotation offered, in seconds.
const OVERLAPS: [u32; 4] = [0, 3_600, 86_400, 7 * 86_400];

/// Every key of the project: their number is bounded, so all of them are a few pages.
async fn all_keys(session: &Session, project: &ProjectRef) -> Result<Vec<Key>, Fault> {
    let mut all = Vec::new();
    let mut page = "limit=200".to_owned();
    loop {
        let place = [project.name.as_str()];
        let Keys { keys, next_cursor } = session.get(Operation::ListKeys, &place, &page).await?;
        all.extend(keys);
        match next_cursor {
            Some(next) => page = format!("limit=200&cursor={}", segment(&next)),
            None => return Ok(all),
        }
    }
}

/// A key on the page.
struct Row {
    key: Key,
    used: Option<Moment>,
    has_expired: bool,
    is_mine: bool,
}

impl Row {
    fn of(key: Key, session: &Session, now: UnixMillis) -> Self {
        let expiry = key.expires_at.as_deref().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        Self {
            used: key.last_used_at.as_deref().and_then(|text| Moment::in_minute(text, now)),
            has_expired: expiry.is_some_and(|at| at.as_millisecond() <= now.0),
            is_mine: session.holder.as_ref().is_some_and(|(_, id)| *id == key.id),
            key,
        }
    }

    fn is_usable(&self) -> bool {
        !self.key.revoked && !self.has_expired
    }

    fn name(&self) -> &str {
        if self.key.label.is_empty() { self.key.id.as_str() } else { &self.key.label }
    }
}

/// A new key with its secret.
#[derive(Serialize, Deserialize)]
struct Made {
    key: String,
    label: String,
    id: String,
}

#[derive(Template)]
#[template(path = "keys.html")]
struct Page {
    shell: Shell,
    rows: Vec<Row>,
    gone: Vec<Row>,
    made: Option<Made>,
    label: String,
}

/// `GET /projects/{project}/keys`.
async fn show(session: Session, Path(id): Path<String>, RawQuery(query): RawQuery, headers: HeaderMap) -> PageResult {
    let Some(made) = once::find(&session, &headers) else {
        return page(&session, &id, w::notice(&query.unwrap_or_default()).map(Ok), None, "").await;
    };
    once::done(page(&session, &id, None, Some(made), "").await?)
}

/// Redirects to the page that shows the new key.
fn made(session: &Session, project: &ProjectRef, answered: Answered) -> PageResult {
    let made: Made = answered.read()?;
    once::lead(session, &format!("/projects/{project}/keys?made"), &made)
}

/// The page, with the new key if one was made, else with the label that was typed.
async fn page(session: &Session, id: &str, outcome: Outcome, made: Option<Made>, label: &str) -> PageResult {
    let project = session.authorise(id, Some(Scope::KeysWrite))?;
    let keys = all_keys(session, &project).await?;
    let now = session.now();
    let all = keys.into_iter().rev().map(|key| Row::of(key, session, now));
    let (rows, gone): (Vec<Row>, Vec<Row>) = all.partition(Row::is_usable);
    let shell = Shell::within(session, &project, Section::Keys, w::KEYS).after(outcome);
    Ok(html_with(shell.status(), &Page { shell, rows, gone, made, label: label.to_owned() }))
}

/// `POST /projects/{project}/keys`: a new key, shown once.
async fn create(Path(id): Path<String>, Posted { session, fields }: Posted) -> PageResult {
    let project = session.authorise(&id, Some(Scope::KeysWrite))?;
    let scopes: Vec<&str> = fields.all("scope").collect();
    let days = fields.text("days").parse::<i64>().ok().filter(|days| LIFETIMES.contains(days)).unwrap_or(0);
    let ends = session.now().to_seconds().plus(days * 86_400);
    let expires_at = (days > 0).then(|| jiff::Timestamp::from_second(ends.0).unwrap_or_default().to_string());
    let label = fields.text("label");
    let body = json!({ "label": label, "scopes": scopes, "expires_at": expires_at });
    match session.call(Operation::CreateKey, (&[project.name.as_str()], ""), &body).await {
        Ok(answered) => made(&session, &project, answered),
        Err(refused) => page(&session, &id, Some(Err(refused)), None, label).await,
    }
}

/// `POST …/keys/{key}/rotate`: a new key like it, which works beside it for a while.
async fn rotate(Path((id, key)): Path<(String, String)>, Posted { session, fields }: Posted) -> PageResult {
    let project = session.authorise(&id, Some(Scope::KeysWrite))?;
    let overlap = fields.text("overlap").parse::<u32>().ok().filter(|overlap| OVERLAPS.contains(overlap));
    let body = overlap.map_or(json!({}), |overlap| json!({ "overlap_seconds": overlap }));
    let named = [project.name.as_str(), &key];
    match session.call(Operation::RotateKey, (&named, ""), &body).await {
        Ok(answered) => made(&session, &project, answered),
        Err(refused) => page(&session, &id, Some(Err(refused)), None, "").await,
    }
}

/// `POST …/keys/{key}/revoke`.
async fn revoke(Path((id, key)): Path<(String, String)>, Posted { session, fields: _ }: Posted) -> PageResult {
    let project = session.authorise(&id, Some(Scope::KeysWrite))?;
    let named = [project.name.as_str(), &key];
    match session.call(Operation::RevokeKey, (&named, ""), &Value::Null).await {
        Ok(_) => Ok(Redirect::to(&format!("/projects/{project}/keys?revoked")).into_response()),
        Err(refused) => page(&session, &id, Some(Err(refused)), None, "").await,
    }
}
