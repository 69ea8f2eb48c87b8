//! When a page cannot be shown: why, in the service's own words, and where to go from here.

use askama::Template;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use domains_api::actor::NotPermitted;
use http::StatusCode;

use super::control_plane::Refused;
use super::session::Session;
use super::shell::{Section, Shell, html};
use super::words as w;

/// Why a page cannot be shown.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// Nobody is signed in.
    SignIn,
    /// The service says no.
    Refused(Box<Refused>),
}

impl Fault {
    pub(super) fn refused(status: u16, code: &str, message: &str) -> Self {
        Self::Refused(Box::new(Refused { status, code: code.to_owned(), message: message.to_owned() }))
    }

    /// The failure is ours: logged here, once.
    pub(super) fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!(error = format!("{error:#}"), "a request failed");
        Refused::internal().into()
    }

    pub(super) fn nothing_here() -> Self {
        Self::refused(404, "not_found", "There is nothing at this address.")
    }
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        Self::Refused(Box::new(refused))
    }
}

impl From<NotPermitted> for Fault {
    fn from(error: NotPermitted) -> Self {
        let (status, code) = match error {
            NotPermitted::NoSuchProject => (404, "project_not_found"),
            NotPermitted::Needs(_) => (403, "insufficient_scope"),
        };
        Self::refused(status, code, &error.to_string())
    }
}

impl IntoResponse for Fault {
    /// Only a mark: [`explain`] knows who is signed in and writes the page.
    fn into_response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

#[derive(Template)]
#[template(path = "fault.html")]
struct Page {
    shell: Shell,
    title: &'static str,
    message: String,
    code: String,
    needs_scope: bool,
}

/// The page of a fault.
pub(super) fn page(session: Option<&Session>, fault: &Fault) -> Response {
    let refused = match fault {
        Fault::SignIn => return Redirect::to("/sign-in").into_response(),
        Fault::Refused(refused) => refused,
    };
    let title = w::fault_title(refused.status);
    let shell = match session {
        Some(session) => Shell::of(session, Section::None, title),
        None => Shell::outside(title),
    };
    let page = Page {
        shell,
        title,
        message: refused.message.clone(),
        code: refused.code.clone(),
        needs_scope: refused.code == "insufficient_scope",
    };
    let mut response = html(&page);
    *response.status_mut() = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// Turns faults into pages.
pub(super) async fn explain(request: Request, next: Next) -> Response {
    let session = request.extensions().get::<Session>().cloned();
    let response = next.run(request).await;
    match response.extensions().get::<Fault>() {
        Some(fault) => page(session.as_ref(), fault),
        None => response,
    }
}
