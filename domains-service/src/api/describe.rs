//! The description of this API, for machines and for people: `/openapi.json`, also below the version it describes, and `/reference`. No
//! scope is needed.
//!
//! The document (OpenAPI 3.1) is generated from [`super::OPERATIONS`]. It describes the public API as clients of the gateway see
//! it, so it includes the gateway's own responses (401, 429, 5xx) and headers. Operators have the same calls below `/internal`,
//! with their own token.

use std::sync::LazyLock;

use axum::http::{HeaderName, header};
use axum::response::IntoResponse;
use axum::routing::on;
use chassis::openapi::{self, Interface, Method, Parameter};
use chassis::reference;
use contract::key::Scope;
use contract::rejection::Met;
use contract::schema::SchemaOf;
use serde_json::{Value, json};

use super::{OPERATIONS, Operation};
use crate::error::Code;

/// The name of the committed copy.
pub(crate) const FILE: &str = "domains-v1.json";

static DOCUMENT: LazyLock<String> = LazyLock::new(|| openapi::printed(&document()));
static REFERENCE: LazyLock<String> = LazyLock::new(|| reference::page(&[document()], Code::ALL));

const CACHING: (HeaderName, &str) = (header::CACHE_CONTROL, "private, max-age=300");

/// The paths of the description, which does not list them.
pub(super) const DESCRIPTIONS: &[Operation] = &[
    Operation::internal("showDescription", Method::Get, "/openapi.json", |get| on(get, show)),
    Operation::internal("showDescription", Method::Get, "/v1/openapi.json", |get| on(get, show)),
    Operation::internal("showReference", Method::Get, "/reference", |get| on(get, page)),
];

async fn show() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json"), CACHING], printed())
}

async fn page() -> impl IntoResponse {
    ([reference::POLICY, reference::HTML, CACHING], REFERENCE.as_str())
}

/// The description as it is served and committed.
pub(crate) fn printed() -> &'static str {
    DOCUMENT.as_str()
}

/// Parameters of paths.
const PATH_PARAMETERS: &[Parameter] = &[
    Parameter::path("project", "The project's id.", text),
    Parameter::path("key", "The key's id.", text),
    Parameter::path("domain", "The domain's name.", text),
    Parameter::path("webhook", "The webhook's id.", text),
    Parameter::path("delivery", "The delivery's id.", || json!({ "type": "integer", "format": "int64", "minimum": 1 })),
];

const ERROR_BODIES: &[(&str, SchemaOf)] = &[("application/json", openapi::error_body_with_details)];

fn text() -> Value {
    json!({ "type": "string", "minLength": 1 })
}

fn document() -> Value {
    let interface = Interface {
        title: "Tollhouse Projects and Domains",
        version: "1.0.0",
        description: "Projects, API keys, custom domains with their certificates, and webhooks.",
        base: "/v1",
        host: "Below the host `api.` of the platform.",
        met: &[Met::Anywhere],
        keys: format!("Your API key: `Authorization: Bearer <API_KEY>`. Its scopes: `{}`.", Scope::WORDS.join("`, `")),
        tags: &[
            ("projects", "Projects and what happened in them."),
            ("keys", "API keys."),
            ("domains", "Custom domains and their certificates."),
            ("webhooks", "Messages about what happens to domains."),
        ],
        segments: PATH_PARAMETERS,
        headers: &[
            ("ETag", "The domain's revision. Send it as If-Match to change what you have seen."),
            ("X-Edge-Ack", "How many of the live gateways no longer serve it, and how long that took: `3/3; 4ms`."),
        ],
        errors: &[
            Code::InsufficientScope,
            Code::ProjectNotFound,
            Code::MethodNotAllowed,
            Code::RequestTimeout,
            Code::BodyTooLarge,
            Code::TooManyChanges,
            Code::InternalError,
            Code::RecordUnreadable,
            Code::StorageUnavailable,
            Code::StorageFull,
        ],
        error_bodies: ERROR_BODIES,
    };
    openapi::document(&interface, OPERATIONS.iter().copied().flatten())
}

#[cfg(test)]
mod tests;
