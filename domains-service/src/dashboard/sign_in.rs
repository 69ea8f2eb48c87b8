//! Signing in with an API key, and out.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use contract::key::{PresentedKey, Scope};
use contract::window::Window;
use http::header;
use serde_json::json;

use super::Dashboard;
use super::fault::Fault;
use super::form::{Fields, Posted};
use super::session::{self, Session};
use super::shell::{Shell, html, html_with};
use super::words as w;
use crate::actor::{Actor, Origin};
use crate::store::keys::{self, KeyRecord};

/// Whoever may do one of these finds something to do here.
const SCOPES: [Scope; 3] = [Scope::DomainsRead, Scope::DomainsWrite, Scope::KeysWrite];

#[derive(Template)]
#[template(path = "sign_in.html")]
struct Page {
    shell: Shell,
    problem: Option<String>,
    signed_out: bool,
}

/// `GET /`.
pub(super) async fn home(session: Session) -> Redirect {
    match session.project() {
        Some(project) => Redirect::to(&format!("/projects/{project}/domains")),
        None => Redirect::to("/operator"),
    }
}

/// `GET /sign-in`.
pub(super) async fn show(session: Option<Extension<Session>>, request: axum::extract::RawQuery) -> Response {
    if session.is_some() {
        return Redirect::to("/").into_response();
    }
    let signed_out = request.0.as_deref() == Some("signed-out");
    html(&Page { shell: Shell::outside(w::SIGN_IN), problem: None, signed_out })
}

/// `POST /sign-in`.
pub(super) async fn sign_in(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(origin): Extension<Origin>,
    fields: Fields,
) -> Result<Response, Fault> {
    let refused = |status, problem: String| {
        let problem = Some(problem);
        Ok(html_with(status, &Page { shell: Shell::outside(w::SIGN_IN), problem, signed_out: false }))
    };
    if let Err(seconds) = dashboard.app.api.throttles.sign_in_from(origin.client) {
        return refused(429, w::too_many_attempts(seconds));
    }
    let Ok(presented) = PresentedKey::parse(fields.text("key")) else {
        return refused(400, w::NOT_A_KEY.to_owned());
    };
    if let Err(seconds) = dashboard.app.api.throttles.sign_in_with(presented.digest().to_text()) {
        return refused(429, w::too_many_attempts(seconds));
    }
    let found = dashboard.app.core.store.key_by_digest(presented.digest()).await?;
    let now = dashboard.app.core.clock.now_seconds();
    let Some(key) = found.filter(|key| session::is_usable(key, now)) else {
        return refused(401, w::UNKNOWN_KEY.to_owned());
    };
    if !SCOPES.iter().any(|scope| key.scopes.contains(*scope)) {
        return refused(403, w::KEY_WITHOUT_USE.to_owned());
    }
    let cookie = session::open(&dashboard, Some((key.project.clone(), key.id.clone())), None, &origin).await?;
    note(&dashboard, &key, origin).await?;
    let home = Redirect::to(&format!("/projects/{}/domains", key.project));
    Ok(([(header::SET_COOKIE, cookie)], home).into_response())
}

/// Whoever owns the project can see who came in, and with which key.
async fn note(dashboard: &Dashboard, key: &KeyRecord, origin: Origin) -> Result<(), Fault> {
    let actor = Actor::holder(&key.id, key.project.clone(), key.scopes.clone(), origin);
    let mut write = dashboard.app.core.store.write().await?;
    let now = write.now();
    keys::note_use(write.connection(), &key.id, Window::Minute.index(now), now).await?;
    write.record(&key.project, None, "dashboard.signed_in", &actor, json!({ "key": key.id })).await?;
    write.commit().await?;
    Ok(())
}

/// `POST /sign-out`: here, or wherever the same key is signed in.
pub(super) async fn sign_out(
    State(dashboard): State<Arc<Dashboard>>,
    Posted { session, fields }: Posted,
) -> Result<Response, Fault> {
    dashboard.app.core.store.end_sessions(&session.record, fields.is_set("everywhere")).await?;
    Ok(([(header::SET_COOKIE, session::no_cookie()?)], Redirect::to("/sign-in?signed-out")).into_response())
}
