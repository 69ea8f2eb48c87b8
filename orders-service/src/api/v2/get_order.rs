//! One order: as it stands, what happened to it, and shipping it.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use contract::identity::Identity;
use contract::key::Scope;
use contract::project::ProjectUid;
use serde::Serialize;

use super::super::Api;
use super::super::cancel_order::{NOT_AN_ID, no_order, order_id};
use crate::error::{ApiError, Code, ship_refusal};
use crate::order::ShipDate;
use crate::wire::OrderLine;

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

/// What happened to an order, oldest first.
#[derive(Serialize)]
pub(super) struct History {
    events: Vec<HistoryEvent>,
}

#[derive(Serialize)]
struct HistoryEvent {
    event: &'static str,
    at: ShipDate,
}

pub(super) async fn order_history(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    id: OrderId,
) -> Result<Json<History>, ApiError> {
    let (project, id) = named(&api, &identity, Scope::OrdersRead, id)?;
    let events = api.store.events(&project, id).await?.ok_or_else(|| no_order(id))?;
    let events =
        events.into_iter().map(|event| HistoryEvent { event: event.kind.as_str(), at: ShipDate::at(event.at) });
    Ok(Json(History { events: events.collect() }))
}

fn named(api: &Api, identity: &Identity, scope: Scope, id: OrderId) -> Result<(ProjectUid, i64), ApiError> {
    let project = api.authorise(identity, scope)?;
    let id = order_id(id).ok_or_else(|| Code::OrderNotFound.because(NOT_AN_ID))?;
    Ok((project, id))
}
