//! OpenAPI documents: JSON generated from operations.

use std::collections::BTreeMap;

use contract::rejection::{Coded, Met, Rejection};
use contract::schema::{SchemaOf, SharedSchemas};
use serde_json::{Map, Value, json};

use super::{ExtensionValue, Operation, Parameter, Presence, Success};

/// The schema of the Error body, for [`Interface::error_bodies`].
pub fn error_body(shared: &mut SharedSchemas) -> Value {
    shared.entry("Error").or_insert_with(|| {
        json!({
            "type": "object",
            "required": ["code", "message", "status"],
            "properties": {
                "code": { "type": "string", "description": "Machine-readable error code." },
                "message": { "type": "string", "description": "Human-readable description." },
                "status": { "type": "integer", "minimum": 400, "maximum": 599, "description": "The HTTP status code." },
            },
        })
    });
    json!({ "$ref": "#/components/schemas/Error" })
}

/// The same, with details.
pub fn error_body_with_details(shared: &mut SharedSchemas) -> Value {
    let reference = error_body(shared);
    if let Some(properties) = shared.get_mut("Error").and_then(|error| error.get_mut("properties")) {
        let what = "Further values, for some codes (see their documentation).";
        set(properties, "details", json!({ "type": "object", "description": what }));
    }
    reference
}

/// The parts of a document besides its operations.
pub struct Interface<C: 'static> {
    /// Its name.
    pub title: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its description.
    pub description: &'static str,
    /// The prefix of its paths.
    pub base: &'static str,
    /// The description of its host.
    pub host: &'static str,
    /// The clients of that host.
    pub met: &'static [Met],
    /// The description of API keys.
    pub keys: String,
    /// Tags with their descriptions.
    pub tags: &'static [(&'static str, &'static str)],
    /// Parameters of paths.
    pub segments: &'static [Parameter],
    /// Headers of its responses, besides those of the gateway and of refusals.
    pub headers: &'static [(&'static str, &'static str)],
    /// Refusals of all operations, besides the gateway's.
    pub errors: &'static [C],
    /// Media types of refusals and their schemas.
    pub error_bodies: &'static [(&'static str, SchemaOf)],
}

/// The document of the operations with a tag below the interface's prefix.
pub fn document<'o, S: 'static, C: Coded + 'static>(
    interface: &Interface<C>,
    operations: impl IntoIterator<Item = &'o Operation<S, C>>,
) -> Value {
    let mut shared = SharedSchemas::new();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in operations.into_iter().filter(|operation| !operation.tag.is_empty()) {
        if let Some(path) = operation.path.strip_prefix(interface.base) {
            let described = interface.describe(operation, &mut shared);
            paths.entry(path).or_default().insert(operation.method.as_str().to_lowercase(), described);
        }
    }
    let any = interface.any_errors();
    let responses: Map<String, Value> = std::iter::once((&0, &Vec::new()))
        .chain(&any)
        .map(|(status, codes)| (error_name(*status), interface.error(*status, codes, &mut shared)))
        .collect();
    let tags: Vec<_> = interface.tags.iter().map(|(name, what)| json!({ "name": name, "description": what })).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": interface.title,
            "version": interface.version,
            "description": interface.description,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": interface.base, "description": interface.host }],
        "tags": tags,
        "security": [{ "bearerAuth": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "bearerAuth": { "type": "http", "scheme": "bearer", "description": interface.keys } },
            "headers": headers(interface.headers),
            "responses": responses,
            "schemas": shared,
        },
    })
}

/// A document as text, as served and committed.
pub fn printed(document: &Value) -> String {
    format!("{document:#}\n")
}

type ByStatus = BTreeMap<u16, Vec<&'static str>>;

impl<C: Coded> Interface<C> {
    /// The refusals of all operations: the gateway's that clients of this interface can get, and the
    /// service's.
    fn any_errors(&self) -> ByStatus {
        let edge = Rejection::ALL.iter().filter(|rejection| self.met.contains(&rejection.met()));
        let mut found = ByStatus::new();
        edge.for_each(|rejection| add_code(&mut found, *rejection));
        self.errors.iter().for_each(|code| add_code(&mut found, *code));
        found
    }

    fn describe<S>(&self, operation: &Operation<S, C>, shared: &mut SharedSchemas) -> Value {
        let mut responses = Map::new();
        for Success { status, description, schema, headers } in operation.answers {
            let content = schema.map(|schema| json!({ "application/json": { "schema": schema(shared) } }));
            responses.insert(status.to_string(), response(description, content, headers));
        }
        let mut errors = self.any_errors();
        let common: Vec<u16> = std::iter::once(0).chain(errors.keys().copied()).collect();
        operation.errors.iter().for_each(|code| add_code(&mut errors, *code));
        for status in common {
            let name = if status == 0 { "default".to_owned() } else { status.to_string() };
            responses.insert(name, json!({ "$ref": format!("#/components/responses/{}", error_name(status)) }));
        }
        for (status, codes) in errors {
            if operation.errors.iter().any(|code| code.status() == status) {
                responses.insert(status.to_string(), self.error(status, &codes, shared));
            }
        }
        let scope = operation.scope.map(|scope| format!(" Needs the scope `{scope}`.")).unwrap_or_default();
        let mut described = json!({
            "operationId": operation.id,
            "tags": [operation.tag],
            "summary": operation.summary,
            "description": format!("{}{scope}", operation.description),
            "responses": responses,
        });
        let in_path = self.segments.iter().filter(|part| operation.path.contains(&format!("{{{}}}", part.name)));
        let parameters: Vec<_> = in_path.chain(operation.parameters).map(parameter).collect();
        if !parameters.is_empty() {
            set(&mut described, "parameters", parameters.into());
        }
        if let Some((schema, body)) = operation.body {
            let content = json!({ "application/json": { "schema": schema(shared) } });
            let required = body == Presence::Required;
            set(&mut described, "requestBody", json!({ "required": required, "content": content }));
        }
        for (name, extension) in operation.extensions {
            let value = match extension {
                ExtensionValue::Is(value) => json!(value),
                ExtensionValue::Word(word) => json!(word),
            };
            set(&mut described, name, value);
        }
        described
    }

    /// A response with an Error body; status 0 means any other status.
    fn error(&self, status: u16, codes: &[&str], shared: &mut SharedSchemas) -> Value {
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
        let bodies = self.error_bodies.iter();
        let content: Map<_, _> =
            bodies.map(|(media, schema)| ((*media).to_owned(), json!({ "schema": schema(shared) }))).collect();
        let mut response = response(&description, Some(content.into()), own);
        if !codes.is_empty() {
            set(&mut response, "x-error-codes", codes.into());
        }
        response
    }
}

/// Adds a code to the codes of its status, once.
fn add_code(found: &mut ByStatus, refusal: impl Coded) {
    let codes = found.entry(refusal.status()).or_default();
    if !codes.contains(&refusal.code()) {
        codes.push(refusal.code());
    }
}

fn parameter(of: &Parameter) -> Value {
    json!({
        "name": of.name, "in": of.location, "required": of.required, "description": of.description, "schema": (of.schema)(),
    })
}

fn error_name(status: u16) -> String {
    if status == 0 { "Error".to_owned() } else { format!("Error{status}") }
}

fn set(of: &mut Value, name: &str, value: Value) {
    if let Some(of) = of.as_object_mut() {
        of.insert(name.to_owned(), value);
    }
}

/// A response with the headers of all responses and its own.
fn response(description: &str, content: Option<Value>, own: &[&str]) -> Value {
    let headers = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"].iter().chain(own);
    let reference = |name: &&str| ((*name).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }));
    let headers: Map<String, Value> = headers.map(reference).collect();
    let mut response = json!({ "description": description, "headers": headers });
    if let Some(content) = content {
        set(&mut response, "content", content);
    }
    response
}

/// Every header of responses: those of the gateway, of refusals, and of the service with their
/// descriptions.
fn headers(own: &[(&str, &str)]) -> Value {
    const NUMBERS: &[(&str, &str)] = &[
        ("X-RateLimit-Limit", "The limit that applies."),
        ("X-RateLimit-Remaining", "Requests left in the current window."),
        ("X-RateLimit-Reset", "Unix timestamp at which the limit resets."),
        ("Retry-After", "Seconds to wait before a retry."),
    ];
    const TEXTS: &[(&str, &str)] =
        &[("WWW-Authenticate", "How to authenticate (RFC 6750)."), ("Allow", "The methods that are allowed here.")];
    let header = |(name, description): &(&str, &str), schema: Value| {
        ((*name).to_owned(), json!({ "description": description, "schema": schema }))
    };
    let numbers = NUMBERS.iter().map(|named| header(named, json!({ "type": "integer", "minimum": 0 })));
    let texts = TEXTS.iter().chain(own).map(|named| header(named, json!({ "type": "string" })));
    numbers.chain(texts).collect::<Map<_, _>>().into()
}
