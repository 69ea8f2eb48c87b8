//! Responses outside of operations: unknown path, unknown method, panic.

use std::any::Any;

use axum::response::{IntoResponse as _, Response};

use crate::error::{ApiError, Code};

/// 404 for every path without an operation.
pub(crate) async fn not_found() -> ApiError {
    Code::NotFound.refuse()
}

/// 405; the router adds `Allow`.
pub(crate) async fn method_not_allowed() -> ApiError {
    Code::MethodNotAllowed.refuse()
}

/// 500 for a panic, which is a bug: this request fails, the service continues.
#[expect(clippy::needless_pass_by_value, reason = "the layer passes the panic by value")]
pub(crate) fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    tracing::error!(
        panic = text,
        "a handler panicked; answered 500. This is a defect: report it with the panic message from standard error"
    );
    Code::InternalError.refuse().into_response()
}
