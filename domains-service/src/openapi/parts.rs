//! Headers, parameters and responses that operations share.

use chassis::openapi::{self, query, schema};
use contract::key::Scope;
use serde_json::{Map, Value, json};

use super::schemas;
use crate::api::domains::NAME_PART_MAX;
use crate::domain::Status;
use crate::error::Code;

/// Refusals any operation may have: the gateway's and this service's.
pub(super) const ANY_ERRORS: &[(u16, &str)] = &[
    (400, "bad_request"),
    (401, "missing_api_key"),
    (401, "invalid_api_key"),
    (401, "expired_api_key"),
    (403, Code::InsufficientScope.as_str()),
    (404, Code::ProjectNotFound.as_str()),
    (405, Code::MethodNotAllowed.as_str()),
    (408, Code::RequestTimeout.as_str()),
    (413, Code::BodyTooLarge.as_str()),
    (429, "rate_limit_exceeded"),
    (429, "daily_quota_exceeded"),
    (429, "api_key_banned"),
    (429, "too_many_in_progress"),
    (429, Code::TooManyChanges.as_str()),
    (500, Code::InternalError.as_str()),
    (500, Code::RecordUnreadable.as_str()),
    (502, "upstream_unreachable"),
    (503, Code::StorageUnavailable.as_str()),
    (503, Code::StorageFull.as_str()),
    (503, "overloaded"),
    (503, "identity_refused"),
    (504, "upstream_timeout"),
];

/// What stands in a path.
const SEGMENTS: &[(&str, &str)] = &[
    ("project", "The project's id."),
    ("key", "The key's id."),
    ("domain", "The domain's name."),
    ("webhook", "The webhook's id."),
    ("delivery", "The delivery's id."),
];

/// The parameters that a path names.
pub(super) fn path_parameters(path: &str) -> Vec<Value> {
    let named = SEGMENTS.iter().filter(|(name, _)| path.contains(&format!("{{{name}}}")));
    let parameter = |(name, description): &(&str, &str)| {
        let schema = match *name {
            "delivery" => json!({ "type": "integer", "format": "int64", "minimum": 1 }),
            _ => json!({ "type": "string", "minLength": 1 }),
        };
        json!({ "name": name, "in": "path", "required": true, "description": description, "schema": schema })
    };
    named.map(parameter).collect()
}

/// Where a page begins.
pub(super) fn cursor() -> Value {
    query("cursor", "`next_cursor` of the page before.", &json!({ "type": "string" }))
}

/// Where a page of a list begins that goes by the moment at which things were made.
pub(super) fn moment_cursor() -> Value {
    let schema = json!({ "type": "string", "pattern": "^[1-9][0-9]{0,14}\\.[A-Za-z0-9_-]{1,40}$" });
    query("cursor", "`next_cursor` of the page before.", &schema)
}

/// Where a page of a list begins that is numbered.
pub(super) fn number_cursor() -> Value {
    let schema = json!({ "type": "string", "pattern": "^[1-9][0-9]{0,17}$" });
    query("cursor", "`next_cursor` of the page before.", &schema)
}

/// What names are to hold.
pub(super) fn name_part() -> Value {
    query("name", "Part of the names wanted; absent: any.", &json!({ "type": "string", "maxLength": NAME_PART_MAX }))
}

/// In which state they are to be.
pub(super) fn status() -> Value {
    query("status", "The state of those wanted; absent: any.", &json!({ "type": "string", "enum": Status::WORDS }))
}

/// How long a page is.
pub(super) fn limit() -> Value {
    let schema = json!({ "type": "integer", "minimum": 1, "maximum": 200, "default": 50 });
    query("limit", "Items of a page.", &schema)
}

/// The Error response that operations share which add no codes of their own to its status.
pub(super) fn shared_error(status: u16) -> Value {
    json!({ "$ref": format!("#/components/responses/{}", error_name(status)) })
}

fn error_name(status: u16) -> String {
    if status == 0 { "Error".to_owned() } else { format!("Error{status}") }
}

fn shared_errors() -> Map<String, Value> {
    let stated = openapi::by_status(ANY_ERRORS.iter().copied());
    let stated = stated.iter().map(|(status, codes)| (error_name(*status), error_response(*status, codes)));
    stated.chain([(error_name(0), error_response(0, &[]))]).collect()
}

/// An Error response; status 0 is every other one.
pub(super) fn error_response(status: u16, codes: &[&str]) -> Value {
    openapi::error_response(status, codes, &openapi::content(&schema("Error")))
}

/// Everything under `components`.
pub(super) fn components() -> Value {
    let description =
        format!("Your API key: `Authorization: Bearer <API_KEY>`. Its scopes: `{}`.", Scope::WORDS.join("`, `"));
    json!({
        "securitySchemes": openapi::bearer(&description),
        "headers": openapi::headers(&[
            ("ETag", "The domain's revision. Send it as If-Match to change what you have seen."),
            ("X-Edge-Ack", "How many of the live gateways no longer serve it, and how long that took: `3/3; 4ms`."),
        ]),
        "responses": shared_errors(),
        "schemas": schemas::all(),
    })
}
