//! `/v1`, as the specification has it.

use chassis::openapi::{content, response, schema};
use serde_json::{Value, json};

use super::Operation;
use super::schemas::id_parameter;
use crate::error::Code;

pub(super) fn document() -> Value {
    let tags = json!([
        { "name": "orders", "description": "List orders and cancel pending ones." },
        { "name": "Store", "description": "The store." },
        { "name": "Pets", "description": "The pets." },
    ]);
    let description = "List all orders placed in the store and cancel a pending order by its identifier.";
    super::document("Pet Store Orders", "1.0.0", description, "/v1", &tags, &[list(), cancel(), pet()])
}

fn list() -> Operation {
    let orders = json!({ "type": "array", "items": schema("Order") });
    Operation {
        id: "listOrders",
        method: "get",
        path: "/store/orders",
        tag: "orders",
        summary: "List orders",
        description: "All orders placed in the store, in one response, in the order of their ids.",
        scope: "orders:read",
        parameters: Vec::new(),
        request_body: None,
        success: (200, response("All orders.", Some(&content(&orders)), &["ETag"])),
        also: vec![(304, response("Nothing changed since the ETag in If-None-Match.", None, &["ETag"]))],
        errors: &[],
        // The published reference offers no way to try it.
        markers: json!({ "x-try-it": false }),
    }
}

fn cancel() -> Operation {
    Operation {
        id: "cancelOrder",
        method: "delete",
        path: "/store/orders/{orderId}",
        tag: "orders",
        summary: "Cancel an order",
        description: "Only an order with status `pending` can be cancelled. Once this is answered, the cancellation lasts.",
        scope: "orders:write",
        parameters: vec![id_parameter("orderId", "The identifier of the order to cancel.")],
        request_body: None,
        success: (204, response("The order was cancelled.", None, &[])),
        also: Vec::new(),
        errors: &[Code::OrderNotFound, Code::OrderAlreadyShipped, Code::OrderAlreadyCancelled],
        markers: json!({}),
    }
}

fn pet() -> Operation {
    let own = ["Deprecation", "Sunset", "Link"];
    Operation {
        id: "getPet",
        method: "get",
        path: "/pets/{petId}",
        tag: "Pets",
        summary: "Find a pet",
        description: "Whether the store has an order for this pet. Deprecated: it will be gone after the Sunset date.",
        scope: "orders:read",
        parameters: vec![id_parameter("petId", "The identifier of the pet.")],
        request_body: None,
        success: (200, response("The pet.", Some(&content(&schema("Pet"))), &own)),
        also: Vec::new(),
        errors: &[Code::PetNotFound, Code::EndpointSunset],
        markers: json!({ "deprecated": true }),
    }
}
