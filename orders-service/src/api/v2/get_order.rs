//! Operations on one order: get, cancel, ship, and its history.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::routing::on;
use axum::{Extension, Json};
use chassis::openapi::{Method, Success};
use contract::identity::Identity;
use contract::key::Scope;
use contract::project::ProjectUid;
use contract::schema;

use super::super::cancel_order::{self, NOT_AN_ID, no_order, order_id};
use super::super::{Api, Operation};
use super::BETA;
use crate::error::{ApiError, Code, ship_refusal};
use crate::json::OrderLine;
use crate::order::ShipDate;
use crate::store::EventKind;

/// `GET /v2/store/orders/{orderId}`. The other operations on one order take their common fields from it.
pub(in super::super) const GET: Operation = Operation {
    tag: "orders",
    summary: "Get an order",
    description: "The order.",
    scope: Some(Scope::OrdersRead),
    answers: &[Success::new(200, "The order.", schema::of::<OrderLine>).with(&["X-API-Stability"])],
    errors: &[Code::OrderNotFound],
    extensions: BETA,
    ..Operation::internal("getOrder", Method::Get, "/v2/store/orders/{orderId}", |get| on(get, get_order))
};

pub(in super::super) const CANCEL: Operation = Operation {
    id: "cancelOrderV2",
    path: GET.path,
    description: "Only a pending order can be cancelled.",
    answers: &[Success::empty(204, "The order was cancelled.").with(&["X-API-Stability"])],
    extensions: BETA,
    ..cancel_order::OPERATION
};

pub(in super::super) const SHIP: Operation = Operation {
    id: "shipOrderV2",
    method: Method::Post,
    path: "/v2/store/orders/{orderId}/ship",
    handler: |post| on(post, ship_order),
    summary: "Ship an order",
    description: "Only a pending order can be shipped. Its ship date becomes the current time, and it counts as complete.",
    scope: Some(Scope::OrdersWrite),
    errors: cancel_order::OPERATION.errors,
    ..GET
};

pub(in super::super) const HISTORY: Operation = Operation {
    id: "getOrderHistory",
    path: "/v2/store/orders/{orderId}/history",
    handler: |get| on(get, order_history),
    summary: "Get an order's history",
    description: "Events of the order, oldest first. An imported order has the events since its import.",
    answers: &[Success::new(200, "What happened.", schema::of::<History>).with(&["X-API-Stability"])],
    ..GET
};

type OrderId = Result<Path<String>, PathRejection>;

pub(super) async fn get_order(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    id: OrderId,
) -> Result<Json<OrderLine>, ApiError> {
    let (project, id) = named(&api, &identity, Scope::OrdersRead, id)?;
    let order = api.store.find(&project, id).await?.ok_or_else(|| no_order(id))?;
    Ok(Json(order.into()))
}

pub(super) async fn ship_order(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    id: OrderId,
) -> Result<Json<OrderLine>, ApiError> {
    let (project, id) = named(&api, &identity, Scope::OrdersWrite, id)?;
    let shipped = api.store.ship(&project, id, api.clock.now()).await;
    shipped.map(|order| Json(order.into())).map_err(|error| ship_refusal(id, error))
}

contract::message! {
    pub(super) sparse History = "Events of an order." {
        events: Vec<HistoryEvent> = "Oldest first.";
    }
}

contract::message! {
    pub(super) sparse HistoryEvent as "" = "One event." {
        event: EventKind;
        at: ShipDate = "When.";
    }
}

pub(super) async fn order_history(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    id: OrderId,
) -> Result<Json<History>, ApiError> {
    let (project, id) = named(&api, &identity, Scope::OrdersRead, id)?;
    let events = api.store.events(&project, id).await?.ok_or_else(|| no_order(id))?;
    let events = events.into_iter().map(|event| HistoryEvent { event: event.kind, at: ShipDate::at(event.at) });
    Ok(Json(History { events: events.collect() }))
}

fn named(api: &Api, identity: &Identity, scope: Scope, id: OrderId) -> Result<(ProjectUid, i64), ApiError> {
    let project = api.authorise(identity, scope)?;
    let id = order_id(id).ok_or_else(|| Code::OrderNotFound.because(NOT_AN_ID))?;
    Ok((project, id))
}
