//! How this service says no: every code with its status, and the one place where trouble becomes a response.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use chassis::refusal::Refusal;
use contract::error::ErrorBody;

use crate::order::{ShipError, Status};
use crate::store::{ChangeError, FaultKind, StoreError};

contract::catalogue! {
    /// One refusal of this service.
    pub(crate) enum Code {
        /// A query parameter of `/v2` is unknown, repeated or out of bounds.
        InvalidParameter = 400 "invalid_parameter" "A query parameter is not valid.";
        /// The text is no cursor.
        InvalidCursor = 400 "invalid_cursor" "This is no cursor. Follow the links, or start again without a cursor.";
        /// The body is not the JSON the operation takes.
        InvalidBody = 400 "invalid_body" "The body is not the JSON object this operation takes.";
        /// The `Idempotency-Key` is empty, too long or repeated.
        InvalidIdempotencyKey = 400 "invalid_idempotency_key" "Send one Idempotency-Key of 1 to 255 visible ASCII characters.";
        /// A line of an import cannot be taken; nothing was imported.
        ImportFailed = 400 "import_failed" "The import failed; nothing was imported.";
        /// A key of staging in production, or the other way round.
        WrongEnvironment = 401 "wrong_environment" "This API key belongs to another deployment. Use a key of this one.";
        /// The key may not do this.
        InsufficientScope = 403 "insufficient_scope" "This API key may not do this.";
        /// The key belongs to another project than the site.
        WrongProject = 403 "wrong_project" "This API key belongs to another project.";
        /// There is nothing at this path.
        NotFound = 404 "not_found" "There is nothing at this path.";
        /// The project has no such order.
        OrderNotFound = 404 "order_not_found" "There is no order with this id.";
        /// No order of the project is for this pet.
        PetNotFound = 404 "pet_not_found" "There is no pet with this id in the orders of this store.";
        /// The path exists, the method does not.
        MethodNotAllowed = 405 "method_not_allowed" "The method is not allowed here; the Allow header lists those that are.";
        /// The body did not come in time.
        RequestTimeout = 408 "request_timeout" "The body did not arrive in time. Send the request again.";
        /// Only a pending order can be cancelled or shipped, and this one is on its way.
        OrderAlreadyShipped = 409 "order_already_shipped" "The order has already shipped.";
        /// Only a pending order can be cancelled or shipped, and this one was called off.
        OrderAlreadyCancelled = 409 "order_already_cancelled" "The order is cancelled already.";
        /// An import of another client is in progress.
        ImportInProgress = 409 "import_in_progress" "Another import is in progress. Try again when it is done.";
        /// No id that JSON clients can hold is left.
        OrderIdsExhausted = 409 "order_ids_exhausted" "The store has an order with the largest id there may be, so none can be added.";
        /// The operation is past its sunset date.
        EndpointSunset = 410 "endpoint_sunset" "This operation has been removed. The Link header says where to read on.";
        /// The body is larger than the operation takes.
        BodyTooLarge = 413 "body_too_large" "The request body is too large.";
        /// The import has more lines or bytes than one import may have; nothing was imported.
        ImportTooLarge = 413 "import_too_large" "The import is too large; nothing was imported. Split it.";
        /// The body is not announced as JSON.
        UnsupportedMediaType = 415 "unsupported_media_type" "Send the body as Content-Type: application/json.";
        /// The idempotency key was used for another request.
        IdempotencyKeyReused = 409 "idempotency_key_reused" "This Idempotency-Key was used for a different request. Use a new one.";
        /// A fault of ours.
        InternalError = 500 "internal_error" "Something went wrong on our side.";
        /// Nobody says whether there is such a project.
        ControlPlaneUnavailable = 503 "control_plane_unavailable" "Nothing was imported: the control plane does not say whether there is such a project.";
        /// The store cannot answer right now.
        StorageUnavailable = 503 "storage_unavailable" "The store cannot answer right now; the request may be repeated.";
        /// No space left on the disk.
        StorageFull = 503 "storage_full" "The store has no space left; nothing was changed. Reading still works.";
    }
}

/// Every code this service answers with, and its HTTP status. Each has a heading in `docs/reference/errors.md`.
pub fn catalogue() -> impl Iterator<Item = (&'static str, u16)> {
    let guards = [(chassis::guard::IDENTITY_REQUIRED, 401), (chassis::guard::TOKEN_REQUIRED, 401)];
    guards.into_iter().chain(Code::ALL.iter().map(|code| (code.code(), code.status())))
}

impl Code {
    /// The refusal with the catalogue's message.
    pub(crate) fn refuse(self) -> ApiError {
        self.because(self.message())
    }

    /// The refusal with a message of its own.
    pub(crate) fn because(self, message: impl Into<String>) -> ApiError {
        ApiError::Refused(Refusal::new(self.status(), self.code(), message))
    }
}

/// Why a handler has no result.
#[derive(Clone, Debug)]
pub(crate) enum ApiError {
    /// The client (or operator) has to do something.
    Refused(Refusal),
    /// The store has trouble. Logged and counted by the observer, which finds it in the response's extensions.
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

/// Left in a response's extensions: the body, for whoever writes it in another form.
#[derive(Clone)]
pub(crate) struct Refused(pub(crate) ErrorBody);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (refusal, trouble) = match self {
            Self::Refused(refusal) => (refusal, None),
            Self::Store(error) => (of_trouble(&error), Some(error)),
        };
        let body = refusal.body().clone();
        let mut response = refusal.into_response();
        response.extensions_mut().insert(Refused(body));
        if let Some(trouble) = trouble {
            response.extensions_mut().insert(trouble);
        }
        response
    }
}

/// Seconds after which repeating a request that met trouble is worth it.
const RETRY_AFTER: &str = "1";

fn of_trouble(error: &StoreError) -> Refusal {
    let code = if error.kind == FaultKind::Full { Code::StorageFull } else { Code::StorageUnavailable };
    Refusal::new(code.status(), code.code(), code.message()).with_header(header::RETRY_AFTER, RETRY_AFTER)
}

/// A refusal to ship, in the words of the API.
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
        let mut codes: Vec<_> = catalogue().map(|(code, _)| code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), catalogue().count());
        assert!(catalogue().all(|(_, status)| (400..600).contains(&status)));
    }

    #[test]
    fn trouble_of_the_store_is_never_told_in_its_own_words_and_says_when_to_retry() {
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
