//! Middleware around every request: measures and counts it, and logs failures of the store.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use contract::identity::Identity;

use std::sync::Arc;

use chassis::clock::Clock;

use crate::metrics::{self, Metrics, OTHER};
use crate::store::{FaultKind, StoreError};

/// The middleware's state.
#[derive(Clone)]
pub(crate) struct Observer {
    pub(crate) metrics: Metrics,
    pub(crate) clock: Arc<dyn Clock>,
    /// Returns the name of the operation with this method and path pattern.
    pub(crate) label: fn(&str, &str) -> Option<&'static str>,
}

/// Measures and counts a request. The gateway logs each request; this service logs it at debug, and at error if the
/// store failed.
pub(crate) async fn observe(State(observer): State<Observer>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let pattern = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let operation = (observer.label)(method.as_str(), pattern).unwrap_or(OTHER);
    let started = observer.clock.monotonic();
    let response = next.run(request).await;
    let took = observer.clock.monotonic().saturating_sub(started);
    let metrics = &observer.metrics;
    metrics.durations.with_label_values(&[operation]).observe(took.as_secs_f64());
    metrics.requests.with_label_values(&[operation, metrics::status_class(response.status())]).inc();
    let request_id = response.extensions().get::<RequestId>().map_or("", |id| &id.0);
    if let Some(error) = response.extensions().get::<StoreError>() {
        metrics.store_errors.with_label_values(&[error.kind.as_str()]).inc();
        *metrics.last_trouble.lock() = Some((error.kind, observer.clock.now()));
        tracing::error!(
            request.id = request_id, operation, kind = error.kind.as_str(), %error, what_to_do = error.kind.remedy(),
            "the database failed; refused the request"
        );
    } else if response.status().is_success() && !method.is_safe() {
        // It was written.
        metrics.last_trouble.lock().take_if(|(kind, _)| *kind != FaultKind::Corrupt);
    }
    tracing::debug!(
        request.id = request_id,
        operation,
        method = %method,
        status = response.status().as_u16(),
        duration_ms = took.as_secs_f64() * 1_000.0,
        "answered"
    );
    response
}

/// The gateway's id of a request, in the response's extensions for the observer.
#[derive(Clone)]
struct RequestId(String);

/// Middleware inside the guard: copies the request's id from the identity to the response.
pub(crate) async fn name(request: Request, next: Next) -> Response {
    let id = request.extensions().get::<Identity>().map(|identity| RequestId(identity.request_id.clone()));
    let mut response = next.run(request).await;
    if let Some(id) = id {
        response.extensions_mut().insert(id);
    }
    response
}
