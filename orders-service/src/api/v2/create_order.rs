//! `POST /v2/store/orders`: places a pending order. With an `Idempotency-Key`, repeated requests create one order.
//!
//! Keys are separate per project. A repeated request with the same key and the same order within 24 hours gets the
//! first response with `Idempotency-Replayed: true`; with another order it gets 409. A refused request does not use its
//! key.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::on;
use chassis::openapi::{Method, Parameter, Presence, Success};
use contract::identity::Identity;
use contract::key::Scope;
use contract::schema::{self, Given};
use contract::time::UnixMillis;
use serde_json::json;

use super::super::{Api, Operation};
use super::BETA;
use crate::bounds::{IDEMPOTENCY_HOURS, QUANTITY_MAX};
use crate::error::{ApiError, Code};
use crate::json::OrderLine;
use crate::order::ShipDate;
use crate::store::{CreateError, Created, Idempotency, NewOrder};

pub(in super::super) const OPERATION: Operation = Operation {
    tag: "orders",
    summary: "Place an order",
    description: "Places a pending order under the next free id.",
    scope: Some(Scope::OrdersWrite),
    parameters: &[Parameter {
        name: "Idempotency-Key",
        location: "header",
        required: false,
        description: "A key of your choice for this creation. A repeated request with the same key and order within 24 \
                      hours returns the first response and creates nothing.",
        schema: || json!({ "type": "string", "minLength": 1, "maxLength": KEY_LENGTH_MAX, "pattern": "^[!-~]+$" }),
    }],
    body: Some((schema::of::<Placed>, Presence::Required)),
    answers: &[Success::new(201, "The order was placed.", schema::of::<OrderLine>).with(&[
        "Location",
        "Idempotency-Replayed",
        "X-API-Stability",
    ])],
    errors: &[
        Code::InvalidBody,
        Code::InvalidIdempotencyKey,
        Code::OrderIdsExhausted,
        Code::RequestTimeout,
        Code::BodyTooLarge,
        Code::UnsupportedMediaType,
        Code::IdempotencyKeyReused,
    ],
    extensions: BETA,
    ..Operation::internal("createOrder", Method::Post, "/v2/store/orders", |post| on(post, create_order))
};

/// Largest body in bytes: many times the size of an order.
const BODY_BYTES_MAX: usize = 16 * 1_024;

/// The header that marks a repeated response.
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Most characters of a key.
const KEY_LENGTH_MAX: usize = 255;

contract::message! {
    request Placed as "NewOrder" = "An order to place." {
        #[serde(deserialize_with = "chassis::json::whole")]
        pet_id as "petId": i64 = "Identifier of the animal in the order.", { "minimum": i64::MIN, "maximum": i64::MAX };
        #[serde(deserialize_with = "chassis::json::whole")]
        quantity: i64 = "Number of units ordered.", { "minimum": 1, "maximum": QUANTITY_MAX };
        #[serde(default)]
        ship_date as "shipDate": Given<ShipDate> = "Expected ship date.";
    }
}

pub(super) async fn create_order(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let project = api.authorise(&identity, Scope::OrdersWrite)?;
    if !is_json(&headers) {
        return Err(Code::UnsupportedMediaType.refuse());
    }
    let order = read_order(&api.whole_body(&headers, body, BODY_BYTES_MAX).await?)?;
    let now = api.clock.now();
    let idempotency = idempotency(&headers, &order, now)?;
    let (order, replayed) = match api.store.create(&project, order, idempotency, now).await {
        Ok(Created::Now(order)) => (order, false),
        Ok(Created::Before(order)) => (order, true),
        Err(CreateError::KeyReused) => return Err(Code::IdempotencyKeyReused.refuse()),
        Err(CreateError::IdsExhausted) => return Err(Code::OrderIdsExhausted.refuse()),
        // The gateway has not yet received the removal of the project.
        Err(CreateError::Erased) => {
            return Err(Code::WrongProject.because("The project of this API key has been removed."));
        }
        Err(CreateError::Store(error)) => return Err(error.into()),
    };
    let location = [(header::LOCATION, format!("/v2/store/orders/{}", order.id))];
    let mut response = (StatusCode::CREATED, location, axum::Json(OrderLine::from(order))).into_response();
    if replayed {
        response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn read_order(body: &[u8]) -> Result<NewOrder, ApiError> {
    let placed = chassis::json::object::<Placed>(body)
        .map_err(|error| Code::InvalidBody.because(format!("The body is not an order: {error}.")))?;
    if !(1..=QUANTITY_MAX).contains(&placed.quantity) {
        return Err(Code::InvalidBody.because(format!("quantity must be a whole number from 1 to {QUANTITY_MAX}.")));
    }
    let Placed { pet_id, quantity, ship_date: Given(ship_date) } = placed;
    Ok(NewOrder { pet_id: Some(pet_id), quantity: Some(quantity), ship_date })
}

/// The key with a fingerprint of the order's values, independent of the spelling of its JSON.
fn idempotency(headers: &HeaderMap, order: &NewOrder, now: UnixMillis) -> Result<Option<Idempotency>, ApiError> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value
        .to_str()
        .ok()
        .filter(|key| (1..=KEY_LENGTH_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()));
    let (Some(key), None) = (key, values.next()) else { return Err(Code::InvalidIdempotencyKey.refuse()) };
    let meaning = format!("{:?} {:?} {:?}", order.pet_id, order.quantity, order.ship_date.map(ShipDate::micros));
    Ok(Some(Idempotency {
        key: key.to_owned(),
        fingerprint: crc32fast::hash(meaning.as_bytes()),
        expires_at: now.plus(IDEMPOTENCY_HOURS * 3_600_000),
    }))
}
