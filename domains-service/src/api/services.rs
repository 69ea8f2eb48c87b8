//! For other services of the platform: accepts their events for webhooks, tells which projects exist and which to
//! erase, and publishes the keys that they trust. Each has its own credential.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::on;
use chassis::openapi::Method;
use contract::erasure::{ERASURES_MAX, ERASURES_PATH, Erasures};
use contract::event::{ORDER_EVENTS_PATH, OrderEvents};
use contract::project::ProjectUid;
use contract::trust::{ORDERS_SERVICE, TRUST_PATH, Trust};
use http::StatusCode;

use super::Operation;
use super::extract::Path;
use crate::common::Core;
use crate::error::{ApiResult, Code};
use crate::gateways::Gateways;
use crate::keyring;
use crate::store::credentials::Credential;
use crate::store::{projects, webhooks};
use crate::worker::EVENTS_MILLIS;

/// Operations for services.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation::internal("takeOrderEvents", Method::Post, ORDER_EVENTS_PATH, |post| on(post, take_order_events)),
    Operation::internal("showTrust", Method::Get, TRUST_PATH, |get| on(get, trust)),
    Operation::internal("checkProject", Method::Get, "/internal/known-projects/{uid}", |get| on(get, known_project)),
    Operation::internal("listErasures", Method::Get, ERASURES_PATH, |get| on(get, erasures)),
    Operation::internal("confirmErasures", Method::Post, ERASURES_PATH, |post| on(post, erased)),
];

/// `POST /internal/events/orders`: 204 when all events are on disk. A service may send events again, also after an
/// error that stored some of them; each is delivered once.
pub(super) async fn take_order_events(
    State(core): State<Arc<Core>>,
    Extension(service): Extension<Credential>,
    body: Bytes,
) -> ApiResult {
    if service.name != ORDERS_SERVICE {
        return Code::InsufficientScope.fail(format!("Only {ORDERS_SERVICE} may send events of orders."));
    }
    let events: OrderEvents = serde_json::from_slice(&body)
        .map_err(|error| Code::InvalidBody.refuse(format!("The body is not a list of events: {error}.")))?;
    if !events.is_sound() {
        return Code::InvalidBody.fail("A value of these events is out of bounds.");
    }
    for some in events.events.chunks(webhooks::EVENTS_PER_WRITE) {
        let mut write = core.store.write().await?;
        webhooks::take(&mut write, &events.source, some).await?;
        write.commit().await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET /internal/erasures`: projects that are erased here and that the calling service must erase, oldest first.
/// They stay listed until the service confirms them.
pub(super) async fn erasures(State(core): State<Arc<Core>>, Extension(service): Extension<Credential>) -> ApiResult {
    let limit = i64::try_from(ERASURES_MAX).unwrap_or(i64::MAX);
    Ok(axum::Json(Erasures { projects: core.store.erasures(&service.name, limit).await? }).into_response())
}

/// `POST /internal/erasures`: the service confirms that it has erased these projects.
pub(super) async fn erased(
    State(core): State<Arc<Core>>,
    Extension(service): Extension<Credential>,
    body: Bytes,
) -> ApiResult {
    let done: Erasures = serde_json::from_slice(&body)
        .map_err(|error| Code::InvalidBody.refuse(format!("The body is not a list of projects: {error}.")))?;
    let mut write = core.store.write().await?;
    for project in done.projects.iter().take(ERASURES_MAX) {
        projects::record_erased(write.connection(), project, &service.name).await?;
    }
    let before = write.now().plus(-EVENTS_MILLIS);
    projects::end_erasures(write.connection(), before).await?;
    write.commit().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET /internal/known-projects/{project}`: whether a project with this identity exists. A removed project does
/// not, even while its data is kept.
pub(super) async fn known_project(State(core): State<Arc<Core>>, Path([project]): Path<1>) -> ApiResult {
    let project: ProjectUid = project.parse().map_err(|_| super::projects::none())?;
    let found = projects::find_by_uid(&mut core.store.reading().await?, &project).await?;
    found.map(|_| StatusCode::NO_CONTENT.into_response()).ok_or_else(super::projects::none)
}

/// `GET /internal/trust`: the keys that the service trusts.
pub(super) async fn trust(State(gateways): State<Arc<Gateways>>) -> ApiResult {
    let identities = keyring::identities(&gateways).await.map_err(|error| {
        tracing::error!(
            error = format!("{error:#}"),
            "cannot read the signing keys of the gateways; refusing a service that asks for them"
        );
        Code::StorageUnavailable.refuse("The database does not answer.")
    })?;
    Ok(axum::Json(Trust { gateways: identities.public.clone(), operators: gateways.passes() }).into_response())
}
