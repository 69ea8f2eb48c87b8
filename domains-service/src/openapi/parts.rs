//! Headers, parameters and responses that operations share.

use std::collections::BTreeMap;

use contract::key::Scope;
use serde_json::{Map, Value, json};

use super::{Answer, schemas};
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

/// A reference to a schema.
pub(super) fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

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

/// A query parameter that may be left out.
pub(super) fn query(name: &str, description: &str, schema: &Value) -> Value {
    json!({ "name": name, "in": "query", "required": false, "description": description, "schema": schema })
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

fn headers_of(own: &[&str]) -> Map<String, Value> {
    ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]
        .iter()
        .chain(own)
        .map(|name| ((*name).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") })))
        .collect()
}

/// A response with the headers every response has, and some of its own.
pub(super) fn response(answer: &Answer) -> Value {
    let mut response = json!({ "description": answer.description, "headers": headers_of(answer.headers) });
    if let (Some(schema), Some(response)) = (answer.schema, response.as_object_mut()) {
        let content = json!({ "application/json": { "schema": reference(schema) } });
        response.insert("content".to_owned(), content);
    }
    response
}

/// Codes with the same status, together.
pub(super) fn by_status<'c>(codes: impl Iterator<Item = (u16, &'c str)>) -> BTreeMap<u16, Vec<&'c str>> {
    let mut found: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for (status, code) in codes {
        found.entry(status).or_default().push(code);
    }
    found
}

/// The Error response that operations share which add no codes of their own to its status.
pub(super) fn shared_error(status: u16) -> Value {
    json!({ "$ref": format!("#/components/responses/{}", error_name(status)) })
}

fn error_name(status: u16) -> String {
    if status == 0 { "Error".to_owned() } else { format!("Error{status}") }
}

fn shared_errors() -> Map<String, Value> {
    let stated = by_status(ANY_ERRORS.iter().copied());
    let stated = stated.iter().map(|(status, codes)| (error_name(*status), error_response(*status, codes)));
    stated.chain([(error_name(0), error_response(0, &[]))]).collect()
}

/// An Error response; status 0 is every other one.
pub(super) fn error_response(status: u16, codes: &[&str]) -> Value {
    let description = match status {
        0 => "Any other refusal.".to_owned(),
        401 => "Missing or invalid API key.".to_owned(),
        _ => format!("`{}`", codes.join("`, `")),
    };
    let own: &[&str] = match status {
        401 => &["WWW-Authenticate"],
        405 => &["Allow"],
        429 | 503 => &["Retry-After"],
        _ => &[],
    };
    let mut response = json!({
        "description": description,
        "headers": headers_of(own),
        "content": { "application/json": { "schema": reference("Error") } },
    });
    if let Some(response) = response.as_object_mut().filter(|_| !codes.is_empty()) {
        response.insert("x-error-codes".to_owned(), codes.into());
    }
    response
}

/// Everything under `components`.
pub(super) fn components() -> Value {
    let description =
        format!("Your API key: `Authorization: Bearer <API_KEY>`. Its scopes: `{}`.", Scope::WORDS.join("`, `"));
    json!({
        "securitySchemes": { "bearerAuth": { "type": "http", "scheme": "bearer", "description": description } },
        "headers": headers(),
        "responses": shared_errors(),
        "schemas": schemas::all(),
    })
}

fn headers() -> Value {
    let integer =
        |description: &str| json!({ "description": description, "schema": { "type": "integer", "minimum": 0 } });
    let text = |description: &str| json!({ "description": description, "schema": { "type": "string" } });
    json!({
        "X-RateLimit-Limit": integer("The limit that applies."),
        "X-RateLimit-Remaining": integer("Requests left in the current window."),
        "X-RateLimit-Reset": integer("Unix timestamp at which the limit resets."),
        "Retry-After": integer("Seconds after which a retry is worth it."),
        "WWW-Authenticate": text("How to authenticate (RFC 6750)."),
        "Allow": text("The methods that are allowed here."),
        "ETag": text("The domain's revision. Send it as If-Match to change what you have seen."),
        "X-Edge-Ack": text("How many of the live gateways no longer serve it, and how long that took: `3/3; 4ms`."),
    })
}
