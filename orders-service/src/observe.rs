//! Around every request: measured, counted, and its trouble told to the log. Handlers do none of this.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use contract::identity::Identity;

use std::sync::Arc;

use chassis::clock::Clock;

use crate::metrics::{self, Metrics, OTHER};
use crate::store::StoreError;

/// What the observer needs.
#[derive(Clone)]
pub(crate) struct Observer {
    pub(crate) metrics: Metrics,
    pub(crate) clock: Arc<dyn Clock>,
    /// The name of the operation with this method and pattern of a path.
    pub(crate) label: fn(&str, &str) -> Option<&'static str>,
}

/// Counts one request. The gateway writes the log line of record; here one is written at debug only, and at error when
/// the store had trouble.
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
        tracing::error!(request.id = request_id, operation, kind = error.kind.as_str(), %error, "the store has trouble");
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

/// The gateway's name for a request, left in the response for the observer.
#[derive(Clone)]
struct RequestId(String);

/// Inside the guard: carries the request's id from the identity to the response.
pub(crate) async fn name(request: Request, next: Next) -> Response {
    let id = request.extensions().get::<Identity>().map(|identity| RequestId(identity.request_id.clone()));
    let mut response = next.run(request).await;
    if let Some(id) = id {
        response.extensions_mut().insert(id);
    }
    response
}
