//! Reasons why a page cannot be shown, in the words of the service.

use axum::response::{IntoResponse, Response};
use domains_api::actor::NotPermitted;
use http::StatusCode;

use super::control_plane::Refused;

/// Why a page cannot be shown.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The request has no session.
    SignIn,
    /// The service refuses.
    Refused(Box<Refused>),
}

/// A page or a redirect, unless there is a reason against it.
pub(super) type PageResult = Result<Response, Fault>;

impl Fault {
    pub(super) fn refused(status: u16, code: &str, message: &str) -> Self {
        Self::Refused(Box::new(Refused { status, code: code.to_owned(), message: message.to_owned() }))
    }

    /// A defect or outage on our side, logged here once.
    pub(super) fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!(error = format!("{error:#}"), "the dashboard cannot answer a request; answered 500");
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
    /// Marks the response; [`explain`](super::explain::explain) knows who is signed in and renders the page.
    fn into_response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
