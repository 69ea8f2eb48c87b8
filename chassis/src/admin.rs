//! The admin listener: health, metrics, and whatever the process adds. Never on a data port.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parking_lot::Mutex;

use crate::config::Told;
use crate::guard::require_token;
use crate::health::Health;
use crate::metrics::{self, Registry};
use crate::secret::Secret;

/// Requests the admin listener works on at once; a storm of scrapes waits for each other, not for the data plane.
pub const CONCURRENT_REQUESTS_MAX: usize = 8;

#[derive(Clone)]
struct Admin {
    health: Health,
    registry: Registry,
}

/// `/livez`, `/readyz` and `/metrics`.
pub fn router(health: Health, registry: Registry) -> Router {
    Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .with_state(Admin { health, registry })
}

/// `GET {path}`, with the operator's token: every setting that the process was given and is in force.
pub fn settings(path: &str, told: Arc<Mutex<Told>>, operator: Arc<Secret>) -> Router {
    Router::new()
        .route(path, get(move || async move { axum::Json(told.lock().to_json()) }))
        .route_layer(axum::middleware::from_fn_with_state(operator, require_token))
}

async fn readyz(State(admin): State<Admin>) -> Response {
    let status = if admin.health.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(admin.health.report())).into_response()
}

async fn metrics_text(State(admin): State<Admin>) -> Response {
    match metrics::render(&admin.registry) {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")).into_response(),
    }
}
