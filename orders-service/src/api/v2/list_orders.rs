//! `GET /v2/store/orders`: one page of orders, and a link to the next.

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use contract::identity::Identity;
use contract::key::Scope;
use serde::Serialize;

use super::super::{Api, list_orders::caching};
use super::cursor;
use super::parameters::Parameters;
use crate::error::{ApiError, Code};
use crate::etag;
use crate::order::ShipDate;
use crate::store::{After, PageQuery};
use crate::wire::OrderLine;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    orders: Vec<OrderLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

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
    let tag = etag::of(api.store.mark(), api.store.edition(&project).await?);
    if etag::is_current(&headers, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, caching(tag)).into_response());
    }
    // One more than the page shows says whether there is a next one.
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
