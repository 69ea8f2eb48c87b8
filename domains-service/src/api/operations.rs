//! Counting requests by operation.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use chassis::refusal::RefusalCode;

use crate::app::App;

/// Counts the request under its operation and class of status.
pub(super) async fn count(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let operation = super::name(request.method().as_str(), path);
    let response = next.run(request).await;
    let class = class(response.status().as_u16());
    app.core.metrics.requests.with_label_values(&[operation, class]).inc();
    if class == "5xx"
        && let Some(code) = response.extensions().get::<RefusalCode>()
    {
        *app.api.last_trouble.lock() = Some((code.0.clone(), app.core.clock.now()));
    }
    response
}

/// Counts a request for which there is no operation.
pub(super) fn unknown(app: &App) {
    app.core.metrics.requests.with_label_values(&["unknown", "4xx"]).inc();
}

const fn class(status: u16) -> &'static str {
    match status {
        ..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
}
