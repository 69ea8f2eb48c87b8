//! `DELETE /v1/store/orders/{orderId}`: cancels a pending order. The response is sent after the change is on disk.

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::on;
use chassis::openapi::{Method, Success};
use contract::identity::Identity;
use contract::key::Scope;

use super::{Api, Operation};
use crate::error::{ApiError, Code};
use crate::metrics::CancelResult;
use crate::order::{self, CancelError};
use crate::store::ChangeError;

pub(super) const OPERATION: Operation = Operation {
    tag: "orders",
    summary: "Cancel an order",
    description: "Only an order with status `pending` can be cancelled. Once this is answered, the cancellation lasts.",
    scope: Some(Scope::OrdersWrite),
    answers: &[Success::empty(204, "The order was cancelled.")],
    errors: &[Code::OrderNotFound, Code::OrderAlreadyShipped, Code::OrderAlreadyCancelled],
    ..Operation::internal("cancelOrder", Method::Delete, "/v1/store/orders/{orderId}", |delete| {
        on(delete, cancel_order)
    })
};

/// The message for a malformed order id.
pub(crate) const NOT_AN_ID: &str = "There is no order with this id: an order id is a whole number from -9223372036854775808 to \
                         9223372036854775807, written without leading zeros.";

pub(crate) async fn cancel_order(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    id: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, ApiError> {
    let project = api.authorise(&identity, Scope::OrdersWrite)?;
    let count = |result: CancelResult| api.metrics.cancels.with_label_values(&[result.as_str()]).inc();
    let Some(id) = order_id(id) else {
        count(CancelResult::NotFound);
        return Err(Code::OrderNotFound.because(NOT_AN_ID));
    };
    let (result, answer) = match api.store.cancel(&project, id, api.clock.now()).await {
        Ok(_) => (CancelResult::Cancelled, Ok(StatusCode::NO_CONTENT)),
        Err(ChangeError::NotFound) => (CancelResult::NotFound, Err(no_order(id))),
        Err(ChangeError::Refused(CancelError::AlreadyShipped)) => {
            let message = format!("Order {id} has already shipped. Only a pending order can be cancelled.");
            (CancelResult::AlreadyShipped, Err(Code::OrderAlreadyShipped.because(message)))
        }
        Err(ChangeError::Refused(CancelError::AlreadyCancelled)) => {
            let message = format!("Order {id} is already cancelled. Only a pending order can be cancelled.");
            (CancelResult::AlreadyCancelled, Err(Code::OrderAlreadyCancelled.because(message)))
        }
        Err(ChangeError::Store(error)) => (CancelResult::Error, Err(error.into())),
    };
    count(result);
    answer
}

/// The order id in the path; `None` if it is malformed or its percent-encoding is invalid.
pub(crate) fn order_id(segment: Result<Path<String>, PathRejection>) -> Option<i64> {
    order::parse_id(&segment.ok()?.0)
}

pub(crate) fn no_order(id: i64) -> ApiError {
    Code::OrderNotFound.because(format!("There is no order {id}."))
}
