//! `/v2`, stability `beta`. It adds to `/v1`: filters, sort and cursors of the list; get, create and ship an order;
//! history.
//!
//! Scopes, quotas and errors are those of `/v1`. A beta may change; the header `X-API-Stability` of every response says
//! so.

pub(super) mod create_order;
mod cursor;
pub(super) mod get_order;
pub(super) mod list_orders;
mod parameters;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use chassis::openapi::ExtensionValue;

/// The OpenAPI extension that states the stability of an operation.
pub(super) const STABILITY: &str = "x-stability";

/// The header that states the stability of an operation.
const STABILITY_HEADER: &str = "x-api-stability";

const BETA: &[(&str, ExtensionValue)] = &[(STABILITY, ExtensionValue::Word("beta"))];

/// Middleware of beta operations: adds the header.
pub(super) async fn beta(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert(HeaderName::from_static(STABILITY_HEADER), HeaderValue::from_static("beta"));
    response
}
