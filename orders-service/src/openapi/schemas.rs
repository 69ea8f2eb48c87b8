//! Schemas, headers and responses that operations share.

use chassis::openapi::{self, schema};
use serde_json::{Value, json};

use crate::bounds::{IDEMPOTENCY_HOURS, LIMIT_MAX, QUANTITY_MAX};

/// Errors any operation may have: this service's and the gateway's.
pub(super) const ANY_ERRORS: &[(u16, &str)] = &[
    (400, "bad_request"),
    (401, "missing_api_key"),
    (401, "invalid_api_key"),
    (401, "expired_api_key"),
    (401, "wrong_environment"),
    (403, "insufficient_scope"),
    (403, "wrong_project"),
    (405, "method_not_allowed"),
    (429, "rate_limit_exceeded"),
    (429, "daily_quota_exceeded"),
    (429, "api_key_banned"),
    (429, "too_many_in_progress"),
    (500, "internal_error"),
    (502, "upstream_unreachable"),
    (503, "storage_unavailable"),
    (503, "storage_full"),
    (503, "overloaded"),
    (503, "identity_refused"),
    (504, "upstream_timeout"),
];

/// An Error response; status 0 is every other one.
pub(super) fn error_response(status: u16, codes: &[&str]) -> Value {
    let content = json!({
        "application/json": { "schema": schema("Error") },
        "application/problem+json": { "schema": schema("Problem") },
    });
    openapi::error_response(status, codes, &content)
}

/// A path parameter that is an int64.
pub(super) fn id_parameter(name: &str, description: &str) -> Value {
    json!({
        "name": name,
        "in": "path",
        "required": true,
        "description": description,
        "schema": { "type": "integer", "format": "int64", "minimum": i64::MIN, "maximum": i64::MAX },
    })
}

/// Everything under `components`.
pub(super) fn components() -> Value {
    json!({
        "securitySchemes": openapi::bearer("Your API key: `Authorization: Bearer <API_KEY>`."),
        "headers": openapi::headers(&[
            ("ETag", "Changes whenever an order of the project changes. Send it back as If-None-Match."),
            ("Location", "Where the new order is."),
            ("Link", "Links to other pages, or to where a deprecation is explained (RFC 8288)."),
            ("Deprecation", "Since when the operation is deprecated: @ and a Unix timestamp (RFC 9745)."),
            ("Sunset", "When the operation will be gone (RFC 8594); absent while no date is set."),
            ("Idempotency-Replayed", "`true` when the answer is the one given the first time."),
            ("X-API-Stability", "How stable the operation is: `beta` may still change."),
        ]),
        "schemas": schemas(),
    })
}

fn schemas() -> Value {
    let int64 = |description: &str| json!({ "type": "integer", "format": "int64", "description": description });
    let date = |description: &str| json!({ "type": "string", "format": "date-time", "description": description });
    let status = json!({
        "type": "string",
        "enum": ["pending", "shipped", "cancelled"],
        "description": "Only a pending order can be cancelled or shipped.",
    });
    let order = json!({
        "id": int64("Unique order identifier."),
        "petId": int64("Identifier of the animal in the order."),
        "quantity": { "type": "integer", "description": "Number of units ordered." },
        "shipDate": date("Expected or actual ship date."),
        "complete": { "type": "boolean", "description": "Whether the order has been fulfilled." },
    });
    let mut order_v2 = order.clone();
    if let Some(order) = order_v2.as_object_mut() {
        order.insert("status".to_owned(), status);
    }
    let error = json!({
        "code": { "type": "string", "description": "Machine-readable error code." },
        "message": { "type": "string", "description": "Human-readable description." },
        "status": { "type": "integer", "minimum": 400, "maximum": 599, "description": "The HTTP status code." },
    });
    json!({
        "Order": { "type": "object", "description": "What is not known is absent.", "properties": order },
        "Error": { "type": "object", "required": ["code", "message", "status"], "properties": error },
        "Problem": {
            "type": "object",
            "description": "The same refusal as RFC 9457 writes it, for clients that accept application/problem+json.",
            "required": ["type", "title", "status", "detail", "code", "message"],
            "properties": {
                "type": { "type": "string", "format": "uri-reference" },
                "title": { "type": "string" },
                "status": { "type": "integer", "minimum": 400, "maximum": 599 },
                "detail": { "type": "string" },
                "code": { "type": "string" },
                "message": { "type": "string" },
            },
        },
        "Pet": { "type": "object", "required": ["id"], "properties": { "id": int64("The pet's identifier.") } },
        "OrderV2": { "type": "object", "required": ["id", "status"], "properties": order_v2 },
        "NewOrder": {
            "type": "object",
            "required": ["petId", "quantity"],
            "additionalProperties": false,
            "properties": {
                "petId": {
                    "type": "integer", "format": "int64", "minimum": i64::MIN, "maximum": i64::MAX,
                    "description": "Identifier of the animal in the order.",
                },
                "quantity": {
                    "type": "integer", "minimum": 1, "maximum": QUANTITY_MAX,
                    "description": "Number of units ordered.",
                },
                "shipDate": date("Expected ship date."),
            },
        },
        "Page": {
            "type": "object",
            "required": ["orders"],
            "properties": {
                "orders": { "type": "array", "maxItems": LIMIT_MAX, "items": schema("OrderV2") },
                "nextCursor": { "type": "string", "description": "Absent on the last page." },
            },
        },
        "History": {
            "type": "object",
            "required": ["events"],
            "properties": {
                "events": {
                    "type": "array",
                    "description": "Oldest first.",
                    "items": {
                        "type": "object",
                        "required": ["event", "at"],
                        "properties": {
                            "event": { "type": "string", "enum": ["created", "shipped", "cancelled"] },
                            "at": date("When."),
                        },
                    },
                },
            },
        },
    })
}

/// The header of idempotent creation.
pub(super) fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "required": false,
        "description": format!(
            "A name of yours for this creation. Sent again within {IDEMPOTENCY_HOURS} hours with the same order, it is \
             answered as the first time and nothing is created."
        ),
        "schema": { "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$" },
    })
}
