//! The API's description: `/openapi.json` for programs, `/reference` for people. Neither needs a scope.
//!
//! Each version of the API has an OpenAPI 3.1 document, generated from [`super::OPERATIONS`]: `/v1` (1.0.0) follows the
//! specification, `/v2` is beta. `/openapi.json` returns the document of `/v1`. The documents describe the API as
//! clients see it through the gateway, so they include the gateway's own responses (401, 429, 5xx) and headers.

use std::sync::LazyLock;

use axum::http::{HeaderName, header};
use axum::response::IntoResponse;
use axum::routing::on;
use chassis::openapi::{self, Interface, Method, Parameter};
use chassis::reference;
use contract::rejection::Met;
use contract::schema::{self, SchemaOf};
use serde_json::{Value, json};

use super::problem::Problem;
use super::{OPERATIONS, Operation};
use crate::error::Code;
use crate::metrics::OTHER;

static V1: LazyLock<String> = LazyLock::new(|| openapi::printed(&v1()));
static V2: LazyLock<String> = LazyLock::new(|| openapi::printed(&v2()));
static REFERENCE: LazyLock<String> = LazyLock::new(|| reference::page(&[v1(), v2()], Code::ALL));

/// The operations that serve the descriptions. The documents do not list them.
pub(super) const DESCRIPTIONS: &[Operation] = &[
    Operation::internal(OTHER, Method::Get, "/openapi.json", |get| on(get, || async { document(&V1) })),
    Operation::internal(OTHER, Method::Get, "/v1/openapi.json", |get| on(get, || async { document(&V1) })),
    Operation::internal(OTHER, Method::Get, "/v2/openapi.json", |get| on(get, || async { document(&V2) })),
    Operation::internal(OTHER, Method::Get, "/reference", |get| on(get, page)),
];

const CACHING: (HeaderName, &str) = (header::CACHE_CONTROL, "private, max-age=300");

fn document(text: &'static LazyLock<String>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json"), CACHING], text.as_str())
}

async fn page() -> impl IntoResponse {
    ([reference::POLICY, reference::HTML, CACHING], REFERENCE.as_str())
}

/// The OpenAPI documents with the file names of their committed copies.
pub(crate) fn documents() -> [(&'static str, String); 2] {
    [("orders-v1.json", V1.clone()), ("orders-v2.json", V2.clone())]
}

/// The description of `/v1`.
fn v1() -> Value {
    let interface = Interface {
        title: "Pet Store Orders",
        version: "1.0.0",
        description: "List all orders placed in the store and cancel a pending order by its identifier.",
        base: "/v1",
        tags: &[("orders", "List orders and cancel pending ones."), ("Store", "The store."), ("Pets", "The pets.")],
        ..both()
    };
    openapi::document(&interface, OPERATIONS)
}

/// The description of `/v2`.
fn v2() -> Value {
    let interface = Interface {
        title: "Pet Store Orders v2",
        version: "2.0.0-beta",
        description: "The next version of the orders API. Beta: it may still change.",
        base: "/v2",
        tags: &[("orders", "Find, place, cancel and ship orders.")],
        ..both()
    };
    openapi::document(&interface, OPERATIONS)
}

/// Parameters in paths.
const SEGMENTS: &[Parameter] = &[
    Parameter::path("orderId", "The identifier of the order.", id),
    Parameter::path("petId", "The identifier of the pet.", id),
];

const ERROR_BODIES: &[(&str, SchemaOf)] =
    &[("application/json", openapi::error_body), ("application/problem+json", schema::of::<Problem>)];

/// The parts that both documents share.
fn both() -> Interface<Code> {
    Interface {
        title: "",
        version: "",
        description: "",
        base: "",
        host: "Below the host of your project.",
        met: Met::ALL,
        keys: "Your API key: `Authorization: Bearer <API_KEY>`.".to_owned(),
        tags: &[],
        segments: SEGMENTS,
        headers: &[
            ("ETag", "Changes whenever an order of the project changes. Send it back as If-None-Match."),
            ("Location", "The path of the new order."),
            ("Link", "Links to other pages, or to where a deprecation is explained (RFC 8288)."),
            ("Deprecation", "Since when the operation is deprecated: @ and a Unix timestamp (RFC 9745)."),
            ("Sunset", "When the operation will be removed (RFC 8594); absent while no date is set."),
            ("Idempotency-Replayed", "`true` if this repeats the first response."),
            ("X-API-Stability", "How stable the operation is: `beta` may still change."),
        ],
        errors: &[
            Code::WrongEnvironment,
            Code::InsufficientScope,
            Code::WrongProject,
            Code::MethodNotAllowed,
            Code::InternalError,
            Code::StorageUnavailable,
            Code::StorageFull,
        ],
        error_bodies: ERROR_BODIES,
    }
}

/// The schema of an id.
pub(super) fn id() -> Value {
    json!({ "type": "integer", "format": "int64", "minimum": i64::MIN, "maximum": i64::MAX })
}

#[cfg(test)]
mod compatibility;
#[cfg(test)]
mod tests;
