//! `GET /v1/pets/{petId}`, deprecated: whether the store has orders for a pet.
//!
//! The specification names the operation and not its fields. This service knows of a pet only what its orders say: the
//! id. So a pet that occurs in an order is `{"id": …}`, and every other is 404. Every answer carries the deprecation
//! headers, refusals included; after the sunset date every answer is 410.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use contract::identity::Identity;
use contract::key::Scope;

use super::Api;
use crate::error::{ApiError, Code};
use crate::operations;
use crate::order;

/// A pet, as far as orders know it.
#[derive(serde::Serialize)]
pub(super) struct Pet {
    id: i64,
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

/// Around the operation: counts the call, ends it after the sunset, and says so on every answer.
pub(super) async fn deprecated(State(api): State<Api>, request: Request, next: Next) -> Response {
    api.metrics.deprecated_calls.with_label_values(&[operations::GET_PET]).inc();
    let over = api.pets.is_over(api.clock.now_seconds());
    let mut response = if over { Code::EndpointSunset.refuse().into_response() } else { next.run(request).await };
    api.pets.decorate(response.headers_mut());
    response
}
