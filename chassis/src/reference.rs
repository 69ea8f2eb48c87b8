//! The API reference for people: one page without scripts, generated from the OpenAPI documents.

use std::collections::BTreeMap;

use askama::Template;
use axum::http::{HeaderName, header};
use contract::rejection::Coded;
use serde_json::{Value, json};

/// The page loads no resources.
pub const POLICY: (HeaderName, &str) =
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");

/// The media type of the page.
pub const HTML: (HeaderName, &str) = (header::CONTENT_TYPE, "text/html; charset=utf-8");

#[derive(Template)]
#[template(path = "reference.html")]
struct Page<'d> {
    documents: &'d [Value],
    /// Every header of responses, in any version.
    headers: Vec<(&'d String, &'d Value)>,
    title: &'d str,
    /// Every refusal of the service: status, code, and message if it has one.
    codes: Vec<(u16, &'static str, &'static str)>,
}

/// The page of an API's documents, the stable version first, with the service's refusals.
pub fn page(documents: &[Value], catalogue: &[impl Coded]) -> String {
    let headers: BTreeMap<_, _> =
        documents.iter().flat_map(|document| members(document, "/components/headers")).collect();
    let headers = headers.into_iter().collect();
    // Writing to a string cannot fail.
    let title = documents.first().map(|document| text(document, "/info/title")).unwrap_or_default();
    let codes = catalogue.iter().map(|code| (code.status(), code.code(), code.message())).collect();
    Page { documents, headers, title, codes }.render().unwrap_or_default()
}

/// The members of an object in a document.
fn members<'v>(value: &'v Value, place: &str) -> impl Iterator<Item = (&'v String, &'v Value)> + use<'v> {
    value.pointer(place).and_then(Value::as_object).into_iter().flatten()
}

/// The items of a list in a document.
fn items<'v>(value: &'v Value, place: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
    value.pointer(place).and_then(Value::as_array).into_iter().flatten()
}

fn text<'v>(value: &'v Value, place: &str) -> &'v str {
    value.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

/// The stability of an operation. Without a mark it is stable.
fn stability(operation: &Value) -> &str {
    operation.get("x-stability").and_then(Value::as_str).unwrap_or("stable")
}

fn is_required(schema: &Value, field: &str) -> bool {
    items(schema, "/required").any(|name| name == field)
}

fn anchor(base: &str, name: &str) -> String {
    format!("{}-{name}", base.rsplit('/').next().unwrap_or_default())
}

/// The name of the schema in a reference.
fn referred(schema: &Value) -> Option<&str> {
    schema.get("$ref").and_then(Value::as_str).and_then(|place| place.rsplit('/').next())
}

/// Resolves a reference; returns any other value unchanged.
fn resolved<'v>(document: &'v Value, thing: &'v Value) -> &'v Value {
    let place = thing.get("$ref").and_then(Value::as_str);
    place.and_then(|place| document.pointer(place.trim_start_matches('#'))).unwrap_or(thing)
}

/// The schema whose fields describe a body.
fn named(schema: &Value) -> Option<&str> {
    let parts = [Some(schema), schema.get("items"), schema.pointer("/anyOf/0")];
    parts.into_iter().flatten().find_map(referred)
}

/// A type in a few words, with its bounds.
fn kind(schema: &Value) -> String {
    if let Some(name) = referred(schema) {
        return name.to_owned();
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        let word = |word: &Value| word.as_str().map_or_else(|| word.to_string(), str::to_owned);
        return words.iter().map(word).collect::<Vec<_>>().join(" | ");
    }
    if let Some(choices) = schema.get("anyOf").and_then(Value::as_array) {
        return choices.iter().map(kind).collect::<Vec<_>>().join(" | ");
    }
    let word = match schema.get("type") {
        Some(Value::String(word)) => word.clone(),
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | "),
        _ => String::new(),
    };
    match (word.as_str(), schema.get("items"), schema.get("format").and_then(Value::as_str)) {
        ("array", Some(items), _) => format!("list of {}", kind(items)),
        (_, _, Some(format)) => format!("{word} ({format})"),
        _ => word,
    }
}

/// An example value of a schema, as text.
fn example_text(document: &Value, schema: &Value) -> String {
    format!("{:#}", example(document, schema, 0))
}

/// An example value of a schema.
fn example(document: &Value, schema: &Value, depth: u8) -> Value {
    const DEPTH_MAX: u8 = 8;
    if depth > DEPTH_MAX {
        return Value::Null;
    }
    if let Some(given) = schema.get("example").or_else(|| schema.pointer("/enum/0")).or_else(|| schema.get("default")) {
        return given.clone();
    }
    if let Some(first) = schema.pointer("/anyOf/0") {
        return example(document, first, depth + 1);
    }
    if let Some(place) = schema.get("$ref").and_then(Value::as_str) {
        let found = document.pointer(place.trim_start_matches('#')).unwrap_or(&Value::Null);
        return example(document, found, depth + 1);
    }
    let first = schema.get("type").and_then(|kind| kind.as_str().or_else(|| kind.get(0)?.as_str()));
    match first.unwrap_or("object") {
        "string" if schema.get("format").is_some_and(|format| format == "date-time") => json!("2026-01-31T12:00:00Z"),
        "string" => json!("text"),
        "integer" | "number" => {
            let least = schema.get("minimum").and_then(Value::as_i64).unwrap_or(0);
            json!(least.max(42).min(schema.get("maximum").and_then(Value::as_i64).unwrap_or(i64::MAX)))
        }
        "boolean" => json!(false),
        "array" => json!([example(document, schema.get("items").unwrap_or(&Value::Null), depth + 1)]),
        _ => {
            let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
            properties.map(|(name, inner)| (name.clone(), example(document, inner, depth + 1))).collect()
        }
    }
}
