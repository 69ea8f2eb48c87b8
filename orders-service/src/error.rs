//! Refusals of this service: every code with its status and message, and the conversion of a store's failure to a
//! response.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use chassis::guard::GuardCode;
use chassis::refusal::Refusal;
use contract::error::ErrorBody;
use contract::rejection::CodeEntry;

use crate::order::{ShipError, Status};
use crate::store::{ChangeError, FaultKind, StoreError};

contract::catalogue! {
    /// One refusal of this service.
    pub(crate) enum Code {
        /// A query parameter of `/v2` is unknown, repeated or out of bounds.
        InvalidParameter = 400 "invalid_parameter" "A query parameter is not valid.", Client;
        /// The cursor is invalid.
        InvalidCursor = 400 "invalid_cursor" "Invalid cursor. Use the next link, or start without a cursor.", Client;
        /// The body is not the JSON the operation takes.
        InvalidBody = 400 "invalid_body" "The body is not the JSON object this operation takes.", Client;
        /// The `Idempotency-Key` is empty, too long or repeated.
        InvalidIdempotencyKey = 400 "invalid_idempotency_key" "Send one Idempotency-Key of 1 to 255 visible ASCII characters.", Client;
        /// A line of an import is invalid; nothing was imported.
        ImportFailed = 400 "import_failed" "The import failed; nothing was imported.", Platform;
        /// A key of staging in production, or the other way round.
        WrongEnvironment = 401 "wrong_environment" "This API key belongs to another deployment. Use a key of this one.", Client;
        /// The key lacks the operation's scope.
        InsufficientScope = 403 "insufficient_scope" "This API key lacks a required scope.", Client;
        /// The key belongs to another project than the site.
        WrongProject = 403 "wrong_project" "This API key belongs to another project.", Client;
        /// No operation has this path.
        NotFound = 404 "not_found" "There is nothing at this path.", Client;
        /// The project has no order with this id.
        OrderNotFound = 404 "order_not_found" "There is no order with this id.", Client;
        /// No order of the project is for this pet.
        PetNotFound = 404 "pet_not_found" "There is no pet with this id in the orders of this store.", Client;
        /// The path exists, the method does not.
        MethodNotAllowed = 405 "method_not_allowed" "The method is not allowed here; the Allow header lists those that are.", Client;
        /// The body did not arrive in time.
        RequestTimeout = 408 "request_timeout" "The body did not arrive in time. Send the request again.", Client;
        /// Only a pending order can be cancelled or shipped; this one has shipped.
        OrderAlreadyShipped = 409 "order_already_shipped" "The order has already shipped.", Client;
        /// Only a pending order can be cancelled or shipped; this one is cancelled.
        OrderAlreadyCancelled = 409 "order_already_cancelled" "The order is already cancelled.", Client;
        /// An import of another client is in progress.
        ImportInProgress = 409 "import_in_progress" "Another import is in progress. Try again when it is done.", Platform;
        /// The project has an order with the largest id that JSON clients can represent.
        OrderIdsExhausted = 409 "order_ids_exhausted" "The project has an order with the largest allowed id (9007199254740991); no order can be added.", Customer;
        /// The operation is past its sunset date.
        EndpointSunset = 410 "endpoint_sunset" "This operation has been removed. The Link header names the page that explains it.", Client;
        /// The body is larger than the operation takes.
        BodyTooLarge = 413 "body_too_large" "The request body is too large.", Client;
        /// The import has more lines or bytes than one import may have; nothing was imported.
        ImportTooLarge = 413 "import_too_large" "The import is too large; nothing was imported. Split it.", Platform;
        /// The Content-Type of the body is not JSON.
        UnsupportedMediaType = 415 "unsupported_media_type" "Send the body as Content-Type: application/json.", Client;
        /// The idempotency key was used for another request.
        IdempotencyKeyReused = 409 "idempotency_key_reused" "This Idempotency-Key was used for a different request. Use a new one.", Client;
        /// A fault of this service.
        InternalError = 500 "internal_error" "The service failed to process the request. Its log has the reason.", Platform;
        /// The control plane did not answer whether the project exists.
        ControlPlaneUnavailable = 503 "control_plane_unavailable" "Nothing was imported: the control plane is unreachable, so the project could not be checked.", Platform;
        /// The store failed for the moment.
        StorageUnavailable = 503 "storage_unavailable" "The database is unavailable. Retry shortly.", Platform;
        /// No space left on the disk.
        StorageFull = 503 "storage_full" "The store's disk is full; nothing was changed. Reading still works.", Platform;
    }
}

/// Every code of this service. Each has a heading in `docs/reference/errors.md`.
pub fn catalogue() -> impl Iterator<Item = CodeEntry> {
    GuardCode::entries().chain(Code::entries())
}

impl Code {
    /// The refusal with the catalogue's message.
    pub(crate) fn refuse(self) -> ApiError {
        self.because(self.message())
    }

    /// The refusal with another message.
    pub(crate) fn because(self, message: impl Into<String>) -> ApiError {
        ApiError::Refused(Refusal::new(self.status(), self.code(), message))
    }
}

/// Why a handler failed.
#[derive(Clone, Debug)]
pub(crate) enum ApiError {
    /// The request is refused: the client or the operator must act.
    Refused(Refusal),
    /// The store failed. The observer finds the error in the response's extensions, logs it and counts it.
    Store(StoreError),
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The refusal's body in the response's extensions, for middleware that writes it in another form.
#[derive(Clone)]
pub(crate) struct Refused(pub(crate) ErrorBody);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (refusal, fault) = match self {
            Self::Refused(refusal) => (refusal, None),
            Self::Store(error) => (refusal_of(&error), Some(error)),
        };
        let body = refusal.body().clone();
        let mut response = refusal.into_response();
        response.extensions_mut().insert(Refused(body));
        if let Some(fault) = fault {
            response.extensions_mut().insert(fault);
        }
        response
    }
}

/// Value of `Retry-After` after a failure of the store, in seconds.
const RETRY_AFTER: &str = "1";

fn refusal_of(error: &StoreError) -> Refusal {
    let code = if error.kind == FaultKind::Full { Code::StorageFull } else { Code::StorageUnavailable };
    Refusal::new(code.status(), code.code(), code.message()).with_header(header::RETRY_AFTER, RETRY_AFTER)
}

/// The response to a refused shipment.
pub(crate) fn ship_refusal(id: i64, error: ChangeError<ShipError>) -> ApiError {
    match error {
        ChangeError::NotFound => Code::OrderNotFound.because(format!("There is no order {id}.")),
        ChangeError::Refused(ShipError::AlreadyShipped) => {
            Code::OrderAlreadyShipped.because(format!("Order {id} has already shipped."))
        }
        ChangeError::Refused(ShipError::Cancelled) => Code::OrderAlreadyCancelled
            .because(format!("Order {id} is {}. Only a pending order can be shipped.", Status::Cancelled)),
        ChangeError::Store(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_statuses_are_refusals() {
        let mut codes: Vec<_> = catalogue().map(|entry| entry.code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), catalogue().count());
        assert!(catalogue().all(|entry| (400..600).contains(&entry.status)));
    }

    #[test]
    fn a_failure_of_the_store_hides_its_details_and_names_a_retry_time() {
        for &kind in FaultKind::ALL {
            let response = ApiError::from(StoreError::new(kind, "/secret/path is broken")).into_response();
            assert_eq!(response.status(), 503);
            assert_eq!(response.headers()[header::RETRY_AFTER], "1");
            let body = &response.extensions().get::<Refused>().unwrap().0;
            assert!(!body.message.contains("secret"), "{kind:?}");
            let expected = if kind == FaultKind::Full { "storage_full" } else { "storage_unavailable" };
            assert_eq!(body.code, expected);
        }
    }
}
