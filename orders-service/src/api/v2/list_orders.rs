//! `GET /v2/store/orders`: one page of orders with a link to the next page.

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::on;
use chassis::openapi::{Method, Success};
use contract::identity::Identity;
use contract::key::Scope;
use contract::schema;

use super::super::list_orders::{NOT_MODIFIED, caching};
use super::super::{Api, Operation};
use super::parameters::{PARAMETERS, Parameters};
use super::{BETA, cursor};
use crate::bounds::LIMIT_MAX;
use crate::error::{ApiError, Code};
use crate::etag;
use crate::json::OrderLine;
use crate::order::ShipDate;
use crate::store::{After, PageQuery};

contract::message! {
    sparse Page = "One page of orders." {
        orders: Vec<OrderLine>, { "maxItems": LIMIT_MAX };
        next_cursor as "nextCursor": Option<String> = "Absent on the last page.";
    }
}

pub(in super::super) const OPERATION: Operation = Operation {
    tag: "orders",
    summary: "List orders",
    description: "One page of the project's orders. The Link header and `nextCursor` lead to the next page.",
    scope: Some(Scope::OrdersRead),
    parameters: PARAMETERS,
    answers: &[
        Success::new(200, "One page of orders.", schema::of::<Page>).with(&["ETag", "Link", "X-API-Stability"]),
        NOT_MODIFIED,
    ],
    errors: &[Code::InvalidParameter, Code::InvalidCursor],
    extensions: BETA,
    ..Operation::internal("listOrdersV2", Method::Get, "/v2/store/orders", |get| on(get, list_orders))
};

pub(super) async fn list_orders(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let project = api.authorise(&identity, Scope::OrdersRead)?;
    let Ok(Query(pairs)) = query else {
        return Err(Code::InvalidParameter.because("The query is not percent-encoded UTF-8."));
    };
    let parameters = Parameters::read(&pairs)?;
    let tag = etag::of(api.store.store_id(), api.store.edition(&project).await?);
    if etag::is_current(&headers, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, caching(tag)).into_response());
    }
    // One order more than the page shows: its presence means that there is a next page.
    let limit = parameters.query.limit;
    let mut orders = api.store.page(&project, &PageQuery { limit: limit + 1, ..parameters.query }).await?;
    let shown = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = orders.len() > shown;
    orders.truncate(shown);
    let next_cursor = orders.last().filter(|_| more).map(|last| {
        let after = After { ship_date_micros: last.ship_date.map(ShipDate::micros), id: last.id };
        cursor::write(parameters.query.sort, after)
    });
    let mut links = vec![format!("</v2/store/orders?{}>; rel=\"first\"", parameters.link(None))];
    if let Some(cursor) = &next_cursor {
        links.push(format!("</v2/store/orders?{}>; rel=\"next\"", parameters.link(Some(cursor))));
    }
    let page = Page { orders: orders.into_iter().map(OrderLine::from).collect(), next_cursor };
    Ok((caching(tag), [(header::LINK, links.join(", "))], axum::Json(page)).into_response())
}
