//! Identifies a request: its gateway, its session, and the project in which an operator acts.

use std::sync::Arc;

use axum::extract::{RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chassis::guard::identity_required;
use domains_api::actor::Origin;

use super::fault::Fault;
use super::session::{COOKIE, Session, presented};
use super::{Dashboard, explain};

/// The header of automatic requests of an open page (`app.js`).
const BY_ITSELF: &str = "x-by-itself";

/// Identifies the gateway and the client. Requests get their [`Origin`] as an extension.
pub(super) async fn came_through(
    State(dashboard): State<Arc<Dashboard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(origin) = dashboard.control_plane.origin(request.extensions()) else {
        return identity_required().into_response();
    };
    request.extensions_mut().insert(origin);
    next.run(request).await
}

/// Finds the session of a request and adds it as a [`Session`], if there is one.
pub(super) async fn recognise(State(dashboard): State<Arc<Dashboard>>, mut request: Request, next: Next) -> Response {
    let secret = presented(request.headers(), COOKIE).map(str::to_owned);
    let origin = request.extensions().get::<Origin>().cloned();
    let (Some(secret), Some(origin)) = (secret, origin) else { return next.run(request).await };
    // Automatic requests of an open page do not keep the session alive.
    let by_itself = request.uri().path().ends_with("/live") || request.headers().contains_key(BY_ITSELF);
    match dashboard.control_plane.find_session(&secret, origin, by_itself).await {
        Ok(Some(signed_in)) => {
            request.extensions_mut().insert(Session::of(dashboard.control_plane.clone(), signed_in, &secret));
            next.run(request).await
        }
        Ok(None) => next.run(request).await,
        // A failed lookup does not end the session: the page shows the error.
        Err(refused) => explain::page(None, &Fault::from(refused)).into_response(),
    }
}

/// Gives an operator access to the project in the path.
pub(super) async fn find_project(
    State(dashboard): State<Arc<Dashboard>>,
    parameters: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    let name = parameters.iter().find(|(parameter, _)| *parameter == "project").and_then(|(_, name)| name.parse().ok());
    let session = request.extensions_mut().get_mut::<Session>().filter(|session| session.is_operator());
    if let Some((session, name)) = session.zip(name) {
        match dashboard.control_plane.in_project(session.actor.clone(), &name).await {
            Ok(actor) => session.act_as(actor),
            Err(refused) => return Fault::from(refused).into_response(),
        }
    }
    next.run(request).await
}
