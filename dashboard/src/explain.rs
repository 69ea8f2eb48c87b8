//! The page shown instead of one that cannot be shown: the reason, and a link to continue.

use askama::Template;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use super::control_plane::Refused;
use super::fault::Fault;
use super::session::Session;
use super::shell::{Section, Shell, html_with};
use super::words as w;

#[derive(Template)]
#[template(path = "fault.html")]
struct Page<'a> {
    shell: Shell,
    refused: &'a Refused,
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
    html_with(refused.status, &Page { shell, refused })
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
