//! `/v2`, stability `beta`: what `/v1` lacks. Filters, sort and cursors on the list; one order; create; ship; history.
//!
//! The same scopes, quotas and errors as `/v1`. Being beta, it may still change; every answer says so.

pub(super) mod create_order;
mod cursor;
pub(super) mod get_order;
pub(super) mod list_orders;
mod parameters;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use chassis::openapi::MarkValue;

/// The mark of operations whose stability the description states.
pub(super) const STABILITY: &str = "x-stability";

/// Says how stable an operation is.
const STABILITY_HEADER: &str = "x-api-stability";

const BETA: &[(&str, MarkValue)] = &[(STABILITY, MarkValue::Word("beta"))];

/// Around operations that are marked so.
pub(super) async fn beta(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert(HeaderName::from_static(STABILITY_HEADER), HeaderValue::from_static("beta"));
    response
}
