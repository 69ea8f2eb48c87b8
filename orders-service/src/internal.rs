//! The operators' listener: import, export, ship and count orders. A request needs a pass from the control plane.
//!
//! A pass gives access to the orders of every project, so this listener belongs on loopback or a private network.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::on;
use axum::{Json, Router, middleware};
use chassis::clock::Clock;
use chassis::config::EffectiveSettings;
use chassis::guard::{PassGuard, require_pass};
use chassis::openapi::{self, Method};
use chassis::peer::Listeners;
use chassis::refusal::Refusal;
use contract::project::ProjectUid;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::api::{method_not_allowed, not_found, panicked};
use crate::control_plane::ControlPlane;
use crate::error::{ApiError, Code, ship_refusal};
use crate::import::ImportFailure;
use crate::json::OrderLine;
use crate::metrics::{Metrics, OTHER};
use crate::observe::{self, Observer};
use crate::order;
use crate::orders::Orders;
use crate::store::Summary;

/// Longest wait for the next bytes of an import. One import runs at a time, so a stalled one would block the others.
const IMPORT_SILENCE_MAX: Duration = Duration::from_secs(30);

/// The state of the handlers.
#[derive(Clone)]
pub(crate) struct Internal {
    pub(crate) orders: Orders,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) control_plane: ControlPlane,
    pub(crate) listeners: Listeners,
}

type Operation = openapi::Operation<Internal, Code>;

/// Every operation on this listener.
pub(crate) const OPERATIONS: &[Operation] = &[
    Operation::internal(OTHER, Method::Get, "/internal/status", |get| on(get, status)),
    Operation::internal("importOrders", Method::Post, "/internal/orders/{project}/import", |post| {
        on(post, import).layer(RequestBodyTimeoutLayer::new(IMPORT_SILENCE_MAX))
    }),
    Operation::internal("exportOrders", Method::Get, "/internal/orders/{project}/export", |get| on(get, export)),
    Operation::internal("summariseOrders", Method::Get, "/internal/orders/{project}/summary", |get| on(get, summary)),
    Operation::internal("shipOrder", Method::Post, "/internal/orders/{project}/{id}/ship", |post| on(post, ship)),
];

fn label(method: &str, pattern: &str) -> Option<&'static str> {
    openapi::label(OPERATIONS, method, pattern)
}

/// The router of the operators' listener.
pub(crate) fn router(internal: Internal, effective: Arc<Mutex<EffectiveSettings>>, guard: PassGuard) -> Router {
    let observer = Observer { metrics: internal.metrics.clone(), clock: internal.clock.clone(), label };
    openapi::routed(OPERATIONS, str::to_owned)
        .merge(chassis::admin::settings("/internal/settings", effective))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(guard, require_pass))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(observer, observe::observe))
        .with_state(internal)
}

/// Version, newest fault of the store, faults of TLS certificates, and age of the trusted keys.
async fn status(State(internal): State<Internal>) -> Json<serde_json::Value> {
    let now = internal.clock.now();
    let trouble = *internal.metrics.last_trouble.lock();
    let trouble = trouble.map(|(kind, at)| {
        let seconds_ago = (now.0 - at.0).max(0) / 1_000;
        serde_json::json!({ "kind": kind.as_str(), "what_to_do": kind.remedy(), "at": at, "seconds_ago": seconds_ago })
    });
    let confirmed = Some(internal.metrics.trust_confirmed.get()).filter(|at| *at > 0);
    Json(serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "store_trouble": trouble,
        "listener_certificate_faults": internal.listeners.faults(now.to_seconds()),
        "panicked_tasks": internal.metrics.tasks.panicked(),
        "trust_seconds_old": confirmed.map(|at| (now.to_seconds().0 - at).max(0)),
    }))
}

/// The number of imported orders.
#[derive(serde::Serialize)]
struct Imported {
    imported: u64,
}

async fn import(
    State(internal): State<Internal>,
    project: Result<Path<String>, PathRejection>,
    body: Body,
) -> Result<Json<Imported>, ApiError> {
    let project = project_in(project)?;
    // An erasure that starts after this check also erases these orders, or the store refuses the import.
    match internal.control_plane.has_project(&project).await {
        Ok(true) => {}
        Ok(false) => return Err(no_project()),
        Err(error) => {
            tracing::warn!(
                %error,
                project.uid = %project,
                "refused an import: cannot ask the control plane whether the project exists"
            );
            return Err(Code::ControlPlaneUnavailable.refuse());
        }
    }
    let imported = internal.orders.import(&project, body.into_data_stream()).await.map_err(import_refusal)?;
    tracing::info!(project.id = %project, imported, "imported orders");
    Ok(Json(Imported { imported }))
}

fn import_refusal(failure: ImportFailure) -> ApiError {
    match failure {
        ImportFailure::Line { line, ref reason } => {
            let details = serde_json::json!({ "line": line, "reason": reason });
            let message = format!("Nothing was imported. {}", capitalised(&failure.to_string()));
            let code = Code::ImportFailed;
            Refusal::new(code.status(), code.code(), message).with_details(details).into()
        }
        ImportFailure::Broken(reason) => {
            Code::ImportFailed.because(format!("Nothing was imported. Cannot read the lines: {reason}"))
        }
        ImportFailure::TooLarge => {
            Code::ImportTooLarge.because(format!("Nothing was imported. {}", capitalised(&failure.to_string())))
        }
        ImportFailure::InProgress => Code::ImportInProgress.refuse(),
        ImportFailure::NoProject => no_project(),
        ImportFailure::Store(error) => error.into(),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

async fn export(
    State(internal): State<Internal>,
    project: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let project = project_in(project)?;
    let mut lines = Box::pin(internal.orders.export(&project));
    // The status is sent after the first lines were read: a failing store then gives a refusal, not a broken body.
    let first = lines.next().await.transpose()?;
    let rest = lines.inspect(|piece| {
        if let Err(error) = piece {
            tracing::error!(kind = error.kind.as_str(), %error, "ended an export early: the database failed");
        }
    });
    let body = Body::from_stream(futures_util::stream::iter(first.map(Ok)).chain(rest));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

async fn summary(
    State(internal): State<Internal>,
    project: Result<Path<String>, PathRejection>,
) -> Result<Json<Summary>, ApiError> {
    Ok(Json(internal.orders.summary(&project_in(project)?).await?))
}

async fn ship(
    State(internal): State<Internal>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<OrderLine>, ApiError> {
    let Ok(Path((project, id))) = path else { return Err(Code::NotFound.refuse()) };
    let project = project_in(Ok(Path(project)))?;
    let Some(id) = order::parse_id(&id) else { return Err(Code::OrderNotFound.refuse()) };
    match internal.orders.ship(&project, id, internal.clock.now()).await {
        Ok(order) => Ok(Json(order.into())),
        Err(error) => Err(ship_refusal(id, error)),
    }
}

fn project_in(segment: Result<Path<String>, PathRejection>) -> Result<ProjectUid, ApiError> {
    let project = segment.ok().and_then(|Path(text)| text.parse().ok());
    project.ok_or_else(no_project)
}

fn no_project() -> ApiError {
    Code::NotFound.because("Unknown project.")
}
