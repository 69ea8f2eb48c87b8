//! `/openapi.json`, also below the version it describes: what this API is, for machines. No scope is needed.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

use crate::app::App;
use crate::openapi;

static DOCUMENT: LazyLock<String> = LazyLock::new(openapi::printed);

/// The routes.
pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/openapi.json", get(document)).route("/v1/openapi.json", get(document))
}

async fn document() -> impl IntoResponse {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "private, max-age=300")];
    (headers, DOCUMENT.as_str())
}
