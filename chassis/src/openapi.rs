//! What the interface descriptions (OpenAPI 3.1) of the services have in common. Which operations there are, what they take
//! and what they answer is each service's own.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What a document says about the interface.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Its name.
    pub title: &'a str,
    /// Its version.
    pub version: &'a str,
    /// What it is for.
    pub description: &'a str,
    /// Where its paths begin.
    pub base: &'a str,
    /// Below which host that is.
    pub host: &'a str,
}

/// The document over `operations`: path, method and what [`operation`] made.
pub fn document(
    about: About<'_>,
    tags: &Value,
    operations: impl IntoIterator<Item = (&'static str, &'static str, Value)>,
    components: &Value,
) -> Value {
    let mut paths: BTreeMap<&str, BTreeMap<&str, Value>> = BTreeMap::new();
    for (path, method, operation) in operations {
        paths.entry(path).or_default().insert(method, operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": about.title,
            "version": about.version,
            "description": about.description,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": about.base, "description": about.host }],
        "tags": tags,
        "security": [{ "bearerAuth": [] }],
        "paths": paths,
        "components": components,
    })
}

/// The security scheme of API keys.
pub fn bearer(description: &str) -> Value {
    json!({ "bearerAuth": { "type": "http", "scheme": "bearer", "description": description } })
}

/// `operation` with its parameters and its body, where it has any.
pub fn operation(mut operation: Value, parameters: Vec<Value>, body: Option<Value>) -> Value {
    if !parameters.is_empty() {
        set(&mut operation, "parameters", parameters.into());
    }
    if let Some(body) = body {
        set(&mut operation, "requestBody", body);
    }
    operation
}

fn set(of: &mut Value, name: &str, value: Value) {
    if let Some(of) = of.as_object_mut() {
        of.insert(name.to_owned(), value);
    }
}

/// A reference to a schema.
pub fn schema(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// JSON of a schema.
pub fn content(schema: &Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

/// A query parameter that may be left out.
pub fn query(name: &str, description: &str, schema: &Value) -> Value {
    json!({ "name": name, "in": "query", "required": false, "description": description, "schema": schema })
}

/// A response with the headers that every response has, and some of its own.
pub fn response(description: &str, content: Option<&Value>, own: &[&str]) -> Value {
    let headers = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"].iter().chain(own);
    let reference = |name: &&str| ((*name).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }));
    let headers: Map<String, Value> = headers.map(reference).collect();
    let mut response = json!({ "description": description, "headers": headers });
    if let Some(content) = content {
        set(&mut response, "content", content.clone());
    }
    response
}

/// Codes of refusals with the same status, together.
pub fn by_status<'c>(codes: impl IntoIterator<Item = (u16, &'c str)>) -> BTreeMap<u16, Vec<&'c str>> {
    let mut found: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for (status, code) in codes {
        found.entry(status).or_default().push(code);
    }
    found
}

/// A response with an Error body; status 0 is every other one.
pub fn error_response(status: u16, codes: &[&str], content: &Value) -> Value {
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
    let mut response = response(&description, Some(content), own);
    if !codes.is_empty() {
        set(&mut response, "x-error-codes", codes.into());
    }
    response
}

/// Every header that a response may have: those of the gateway and of refusals, and the service's own with what they say.
pub fn headers(own: &[(&str, &str)]) -> Value {
    const NUMBERS: &[(&str, &str)] = &[
        ("X-RateLimit-Limit", "The limit that applies."),
        ("X-RateLimit-Remaining", "Requests left in the current window."),
        ("X-RateLimit-Reset", "Unix timestamp at which the limit resets."),
        ("Retry-After", "Seconds after which a retry is worth it."),
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
