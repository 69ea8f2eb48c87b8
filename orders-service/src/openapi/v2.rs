//! `/v2`, beta.

use chassis::openapi::{content, query, response, schema};
use serde_json::{Value, json};

use super::Operation;
use super::schemas::{id_parameter, idempotency_key};
use crate::bounds::{CURSOR_PATTERN, LIMIT_DEFAULT, LIMIT_MAX, SORTS};
use crate::error::Code;

const LIST: &str = "/store/orders";
const ONE: &str = "/store/orders/{orderId}";

pub(super) fn document() -> Value {
    let tags = json!([{ "name": "orders", "description": "Find, place, cancel and ship orders." }]);
    let description = "The next version of the orders API. Beta: it may still change.";
    let operations = [list(), create(), get(), cancel(), ship(), history()];
    super::document("Pet Store Orders v2", "2.0.0-beta", description, "/v2", &tags, &operations)
}

/// An operation on one order that answers with it; the others differ from it.
fn on_one(id: &'static str, method: &'static str, summary: &'static str, description: &'static str) -> Operation {
    Operation {
        id,
        method,
        path: ONE,
        tag: "orders",
        summary,
        description,
        scope: "orders:read",
        parameters: vec![id_parameter("orderId", "The identifier of the order.")],
        request_body: None,
        success: (200, response("The order.", Some(&content(&schema("OrderV2"))), &["X-API-Stability"])),
        also: Vec::new(),
        errors: &[Code::OrderNotFound],
        markers: json!({ "x-stability": "beta" }),
    }
}

fn list() -> Operation {
    Operation {
        path: LIST,
        parameters: list_parameters(),
        success: (
            200,
            response("One page of orders.", Some(&content(&schema("Page"))), &["ETag", "Link", "X-API-Stability"]),
        ),
        also: vec![(304, response("Nothing changed since the ETag in If-None-Match.", None, &["ETag"]))],
        errors: &[Code::InvalidParameter, Code::InvalidCursor],
        ..on_one(
            "listOrdersV2",
            "get",
            "List orders",
            "One page of the project's orders. The Link header and `nextCursor` lead to the next page.",
        )
    }
}

fn list_parameters() -> Vec<Value> {
    let date = json!({ "type": "string", "format": "date-time" });
    let sorts: Vec<_> = SORTS.iter().map(|(word, _)| *word).collect();
    vec![
        query(
            "status",
            "Orders in this state.",
            &json!({ "type": "string", "enum": ["pending", "shipped", "cancelled"] }),
        ),
        query(
            "petId",
            "Orders of this pet.",
            &json!({ "type": "integer", "format": "int64", "minimum": i64::MIN, "maximum": i64::MAX }),
        ),
        query("complete", "Orders that are (not) fulfilled.", &json!({ "type": "boolean" })),
        query("shipDateFrom", "Ship date at this moment or later.", &date),
        query("shipDateBefore", "Ship date before this moment.", &date),
        query(
            "sort",
            "A minus turns the order around. Orders without a ship date come before all others, or after them.",
            &json!({ "type": "string", "enum": sorts, "default": "id" }),
        ),
        query(
            "limit",
            "Orders of a page.",
            &json!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT }),
        ),
        query(
            "cursor",
            "`nextCursor` of the page before, with the same filters. It carries its sort, which goes before the parameter.",
            &json!({ "type": "string", "pattern": CURSOR_PATTERN }),
        ),
    ]
}

fn create() -> Operation {
    let own = ["Location", "Idempotency-Replayed", "X-API-Stability"];
    Operation {
        path: LIST,
        scope: "orders:write",
        parameters: vec![idempotency_key()],
        request_body: Some(json!({ "required": true, "content": content(&schema("NewOrder")) })),
        success: (201, response("The order was placed.", Some(&content(&schema("OrderV2"))), &own)),
        errors: &[
            Code::InvalidBody,
            Code::InvalidIdempotencyKey,
            Code::OrderIdsExhausted,
            Code::RequestTimeout,
            Code::BodyTooLarge,
            Code::UnsupportedMediaType,
            Code::IdempotencyKeyReused,
        ],
        ..on_one("createOrder", "post", "Place an order", "Places a pending order under the next free id.")
    }
}

fn get() -> Operation {
    on_one("getOrder", "get", "Get an order", "The order as it stands.")
}

fn cancel() -> Operation {
    Operation {
        scope: "orders:write",
        success: (204, response("The order was cancelled.", None, &["X-API-Stability"])),
        errors: &[Code::OrderNotFound, Code::OrderAlreadyShipped, Code::OrderAlreadyCancelled],
        ..on_one("cancelOrderV2", "delete", "Cancel an order", "Only a pending order can be cancelled.")
    }
}

fn ship() -> Operation {
    Operation {
        path: "/store/orders/{orderId}/ship",
        scope: "orders:write",
        errors: &[Code::OrderNotFound, Code::OrderAlreadyShipped, Code::OrderAlreadyCancelled],
        ..on_one(
            "shipOrderV2",
            "post",
            "Ship an order",
            "Only a pending order can be shipped. Its ship date becomes the current time, and it counts as complete.",
        )
    }
}

fn history() -> Operation {
    Operation {
        path: "/store/orders/{orderId}/history",
        success: (200, response("What happened.", Some(&content(&schema("History"))), &["X-API-Stability"])),
        ..on_one(
            "getOrderHistory",
            "get",
            "Get an order's history",
            "What happened to the order, oldest first. Of an imported order, what happened since.",
        )
    }
}
