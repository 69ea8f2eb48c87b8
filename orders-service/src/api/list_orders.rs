//! `GET /v1/store/orders`: every order of the caller's project, as one JSON array.
//!
//! A list of up to 256 orders has a Content-Length. A longer list is streamed: the status is sent after the first batch
//! was read. If the store fails later, the connection is closed without the closing bracket and without HTTP's end of
//! body, so that the client notices the missing rest.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::on;
use bytes::Bytes;
use chassis::openapi::{ExtensionValue, Method, Success};
use contract::identity::Identity;
use contract::key::Scope;
use contract::schema;
use futures_util::stream;

use super::{Api, Operation};
use crate::error::ApiError;
use crate::etag;
use crate::json::{JsonArray, OrderV1};
use crate::scan::Scan;
use crate::store::StoreError;

pub(super) const OPERATION: Operation = Operation {
    tag: "orders",
    summary: "List orders",
    description: "All orders placed in the store, in one response, in the order of their ids.",
    scope: Some(Scope::OrdersRead),
    answers: &[Success::new(200, "All orders.", schema::of::<Vec<OrderV1>>).with(&["ETag"]), NOT_MODIFIED],
    // The published reference offers no way to try it.
    extensions: &[("x-try-it", ExtensionValue::Is(false))],
    ..Operation::internal("listOrders", Method::Get, "/v1/store/orders", |get| on(get, list_orders))
};

/// The response to a client that has the current list.
pub(super) const NOT_MODIFIED: Success =
    Success::empty(304, "Nothing changed since the ETag in If-None-Match.").with(&["ETag"]);

pub(super) async fn list_orders(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let project = api.authorise(&identity, Scope::OrdersRead)?;
    let mut scan = Scan::begin(api.store.clone(), project).await?;
    let tag = etag::of(api.store.store_id(), scan.edition());
    if etag::is_current(&headers, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, caching(tag)).into_response());
    }
    let mut array = JsonArray::begin();
    array.push(&scan.next().await?.unwrap_or_default());
    let body = if scan.is_finished() {
        Body::from(array.end())
    } else {
        Body::from_stream(rest(api, scan, array, identity.request_id))
    };
    Ok((caching(tag), [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Caching headers: only the caller may store the list, and must revalidate it before each use.
pub(super) fn caching(tag: String) -> [(HeaderName, String); 3] {
    [
        (header::ETAG, tag),
        (header::CACHE_CONTROL, "private, no-cache".to_owned()),
        (header::VARY, "authorization, accept-encoding".to_owned()),
    ]
}

/// The body from the first batch on, which `array` contains. The next batch is read after the previous one was sent, so
/// a slow client costs the memory of one batch.
fn rest(
    api: Api,
    scan: Scan,
    array: JsonArray,
    request_id: String,
) -> impl stream::Stream<Item = Result<Bytes, StoreError>> {
    stream::try_unfold(Some((scan, array)), move |state| {
        let metrics = api.metrics.clone();
        let request_id = request_id.clone();
        async move {
            let Some((mut scan, mut array)) = state else { return Ok(None) };
            let ready = array.take();
            if !ready.is_empty() {
                return Ok(Some((ready, Some((scan, array)))));
            }
            match scan.next().await {
                Ok(Some(orders)) => {
                    array.push(&orders);
                    Ok(Some((array.take(), Some((scan, array)))))
                }
                Ok(None) => Ok(Some((array.end(), None))),
                Err(error) => {
                    metrics.store_errors.with_label_values(&[error.kind.as_str()]).inc();
                    tracing::error!(
                        request.id = request_id, kind = error.kind.as_str(), %error,
                        "ended a list early: the database failed"
                    );
                    Err(error)
                }
            }
        }
    })
}
