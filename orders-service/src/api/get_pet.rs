//! `GET /v1/pets/{petId}`, deprecated: whether the store has orders for a pet.
//!
//! The specification names the operation but not its fields. Orders contain only a pet's id, so a pet of an order is
//! `{"id": …}` and any other is 404. Every response, also a refusal, has the deprecation headers; from the sunset date
//! on every response is 410.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::on;
use axum::{Extension, Json};
use chassis::openapi::{ExtensionValue, Method, Success};
use contract::identity::Identity;
use contract::key::Scope;
use contract::schema;

use super::{Api, DEPRECATED, Operation};
use crate::error::{ApiError, Code};
use crate::order;

pub(super) const OPERATION: Operation = Operation {
    tag: "Pets",
    summary: "Find a pet",
    description: "Whether the store has an order for this pet. Deprecated: it will be removed after the Sunset date.",
    scope: Some(Scope::OrdersRead),
    answers: &[Success::new(200, "The pet.", schema::of::<Pet>).with(&["Deprecation", "Sunset", "Link"])],
    errors: &[Code::PetNotFound, Code::EndpointSunset],
    extensions: &[(DEPRECATED, ExtensionValue::Is(true))],
    ..Operation::internal("getPet", Method::Get, "/v1/pets/{petId}", |get| on(get, get_pet))
};

contract::message! {
    pub(super) sparse Pet = "A pet that occurs in an order." {
        id: i64 = "The pet's identifier.";
    }
}

pub(super) async fn get_pet(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Pet>, ApiError> {
    let project = api.authorise(&identity, Scope::OrdersRead)?;
    let Some(id) = id.ok().and_then(|Path(text)| order::parse_id(&text)) else {
        return Err(Code::PetNotFound.refuse());
    };
    if api.store.knows_pet(&project, id).await? { Ok(Json(Pet { id })) } else { Err(Code::PetNotFound.refuse()) }
}

/// Middleware of the operation: counts the call, refuses it after the sunset, and adds the deprecation headers.
pub(super) async fn deprecated(State(api): State<Api>, request: Request, next: Next) -> Response {
    api.metrics.deprecated_calls.with_label_values(&[OPERATION.id]).inc();
    let over = api.pets.is_over(api.clock.now_seconds());
    let mut response = if over { Code::EndpointSunset.refuse().into_response() } else { next.run(request).await };
    api.pets.decorate(response.headers_mut());
    response
}
