//! `/openapi.json`, also below the version it describes: what this API is, for machines. No scope is needed.

use std::sync::{Arc, LazyLock};

use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use chassis::routes::Routes;

use crate::app::App;
use crate::openapi;

static DOCUMENT: LazyLock<String> = LazyLock::new(openapi::printed);

/// The routes.
pub(super) fn routes() -> Routes<Arc<App>> {
    vec![("/openapi.json", get(document)), ("/v1/openapi.json", get(document))]
}

async fn document() -> impl IntoResponse {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "private, max-age=300")];
    (headers, DOCUMENT.as_str())
}
