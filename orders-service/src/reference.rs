//! The interface descriptions for people: one page without scripts, made from the same documents.

use std::collections::BTreeMap;

use askama::Template;
use serde_json::{Value, json};

use crate::error::Code;

#[derive(Template)]
#[template(path = "reference.html")]
struct Page<'d> {
    documents: &'d [Value],
    /// Every header that an answer may carry, in any version.
    headers: Vec<(&'d String, &'d Value)>,
    codes: &'static [Code],
}

/// The page.
pub(crate) fn page(documents: &[Value]) -> String {
    let headers: BTreeMap<_, _> =
        documents.iter().flat_map(|document| members(document, "/components/headers")).collect();
    let headers = headers.into_iter().collect();
    // Writing to a string cannot fail.
    Page { documents, headers, codes: Code::ALL }.render().unwrap_or_default()
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

/// What is marked with nothing is as the versioning of the interface promises.
fn stability(operation: &Value) -> &str {
    operation.get("x-stability").and_then(Value::as_str).unwrap_or("stable")
}

fn is_required(schema: &Value, field: &str) -> bool {
    items(schema, "/required").any(|name| name == field)
}

fn anchor(base: &str, name: &str) -> String {
    format!("{}-{name}", base.rsplit('/').next().unwrap_or_default())
}

/// The name of what a schema refers to.
fn referred(schema: &Value) -> Option<&str> {
    schema.get("$ref").and_then(Value::as_str).and_then(|place| place.rsplit('/').next())
}

/// The schema whose fields tell what a body is.
fn named(schema: &Value) -> Option<&str> {
    referred(schema).or_else(|| schema.get("items").and_then(referred))
}

/// A type in a word or two, with what bounds it.
fn kind(schema: &Value) -> String {
    if let Some(name) = referred(schema) {
        return name.to_owned();
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | ");
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

/// A value that a schema describes, as text.
fn shown(document: &Value, schema: &Value) -> String {
    format!("{:#}", example(document, schema, 0))
}

/// A value that a schema describes.
fn example(document: &Value, schema: &Value, depth: u8) -> Value {
    const DEPTH_MAX: u8 = 8;
    if depth > DEPTH_MAX {
        return Value::Null;
    }
    if let Some(given) = schema.get("example").or_else(|| schema.pointer("/enum/0")).or_else(|| schema.get("default")) {
        return given.clone();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi;

    #[test]
    fn every_operation_and_every_error_has_its_anchor() {
        let page = page(&[openapi::v1(), openapi::v2()]);
        for anchor in ["listOrders", "cancelOrder", "getPet", "createOrder", "order_not_found", "endpoint_sunset"] {
            assert!(page.contains(&format!("id=\"{anchor}\"")), "{anchor}");
        }
        assert!(!page.contains("<script"));
        // Fields, examples, headers of limits, stability.
        for part in [
            "id=\"v2-NewOrder\"",
            "<td>petId</td><td>integer (int64)</td><td>yes</td>",
            "&#34;quantity&#34;: 42",
            "<td>X-RateLimit-Remaining</td>",
            "<span class=\"b\">beta</span>",
            "<span class=\"b\">stable</span>",
        ] {
            assert!(page.contains(part), "{part}");
        }
        let links = page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next());
        for link in links {
            assert!(page.contains(&format!("id=\"{link}\"")), "#{link} leads nowhere");
        }
    }
}
