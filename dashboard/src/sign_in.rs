//! Signing in with an API key, and signing out.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use domains_api::actor::Origin;

use super::Dashboard;
use super::control_plane::NotSignedIn;
use super::fault::PageResult;
use super::form::{Fields, Posted};
use super::session::{self, Session};
use super::shell::{Shell, html, html_with};
use super::words as w;

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
) -> PageResult {
    let (status, problem) = match dashboard.control_plane.sign_in(fields.text("key"), origin).await {
        Ok((project, opened)) => {
            let home = format!("/projects/{project}/domains");
            return session::lead(session::COOKIE, &opened.secret, opened.seconds, &home);
        }
        Err(NotSignedIn::TooManyAttempts(seconds)) => (429, w::too_many_attempts(seconds)),
        Err(NotSignedIn::NotAKey) => (400, w::NOT_A_KEY.to_owned()),
        Err(NotSignedIn::NothingToDo) => (403, w::KEY_WITHOUT_USE.to_owned()),
        Err(NotSignedIn::UnknownKey | NotSignedIn::LinkSpent) => (401, w::UNKNOWN_KEY.to_owned()),
        Err(NotSignedIn::Refused(refused)) => return Err(refused.into()),
    };
    let problem = Some(problem);
    Ok(html_with(status, &Page { shell: Shell::outside(w::SIGN_IN), problem, signed_out: false }))
}

/// `POST /sign-out`: ends this session, or all sessions of the same key.
pub(super) async fn sign_out(
    State(dashboard): State<Arc<Dashboard>>,
    Posted { session, fields }: Posted,
) -> PageResult {
    dashboard.control_plane.end_session(&session, fields.is_set("everywhere")).await?;
    session::lead(session::COOKIE, "", 0, "/sign-in?signed-out")
}
