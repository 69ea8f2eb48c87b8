//! `/openapi.json` and `/reference`: what this API is, for machines and for people. No scope is needed.
//!
//! `/openapi.json` is the description of the stable version, `/v1`; each version has its own below its base address.

use std::sync::LazyLock;

use axum::Router;
use axum::http::{HeaderName, header};
use axum::response::IntoResponse;
use axum::routing::get;
use chassis::routes::{Routes, routed};
use serde_json::Value;

use super::{Api, method_not_allowed};
use crate::{openapi, reference};

static V1: LazyLock<String> = LazyLock::new(|| printed(&openapi::v1()));
static V2: LazyLock<String> = LazyLock::new(|| printed(&openapi::v2()));
static REFERENCE: LazyLock<String> = LazyLock::new(|| reference::page(&[openapi::v1(), openapi::v2()]));

/// The paths and what may be done there.
pub(super) fn routes() -> Routes<Api> {
    vec![
        ("/openapi.json", get(|| async { document(&V1) })),
        ("/v1/openapi.json", get(|| async { document(&V1) })),
        ("/v2/openapi.json", get(|| async { document(&V2) })),
        ("/reference", get(page)),
    ]
}

/// The routes.
pub(super) fn router() -> Router<Api> {
    routed(routes()).method_not_allowed_fallback(method_not_allowed)
}

/// An interface description as it is served and committed.
pub(crate) fn printed(document: &Value) -> String {
    format!("{document:#}\n")
}

const CACHING: (HeaderName, &str) = (header::CACHE_CONTROL, "private, max-age=300");

fn document(text: &'static LazyLock<String>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json"), CACHING], text.as_str())
}

async fn page() -> impl IntoResponse {
    let policy =
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8"), CACHING, policy], REFERENCE.as_str())
}
