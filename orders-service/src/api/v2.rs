//! `/v2`, stability `beta`: what `/v1` lacks. Filters, sort and cursors on the list; one order; create; ship; history.
//!
//! The same scopes, quotas and errors as `/v1`. Being beta, it may still change; every answer says so.

mod create_order;
mod cursor;
mod get_order;
mod list_orders;
mod parameters;

use axum::http::{HeaderName, HeaderValue};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Router, extract::Request};
use chassis::routes::{Routes, routed};

use super::{Api, cancel_order, method_not_allowed};

/// Says how stable an operation is.
pub(crate) const STABILITY_HEADER: &str = "x-api-stability";

/// The paths and what may be done there.
pub(super) fn routes() -> Routes<Api> {
    vec![
        ("/v2/store/orders", get(list_orders::list_orders).post(create_order::create_order)),
        ("/v2/store/orders/{orderId}", get(get_order::get_order).delete(cancel_order::cancel_order)),
        ("/v2/store/orders/{orderId}/ship", post(get_order::ship_order)),
        ("/v2/store/orders/{orderId}/history", get(get_order::order_history)),
    ]
}

/// The routes.
pub(super) fn router() -> Router<Api> {
    routed(routes()).method_not_allowed_fallback(method_not_allowed).layer(middleware::from_fn(beta))
}

async fn beta(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert(HeaderName::from_static(STABILITY_HEADER), HeaderValue::from_static("beta"));
    response
}
