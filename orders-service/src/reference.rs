//! The interface descriptions for people: one page without scripts, made from the same documents.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::error::Code;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;\
color:#1b1f24;background:#fff}h1,h2,h3{line-height:1.2}code{background:#eef1f4;padding:.1em .3em;border-radius:4px}\
table{border-collapse:collapse;width:100%}th,td{border:1px solid #d5dae0;padding:.3rem .5rem;text-align:left;\
vertical-align:top}.m{font-weight:700;text-transform:uppercase}.b{background:#fff3d6;padding:.1em .5em;\
border-radius:4px}pre{background:#eef1f4;padding:.6rem;border-radius:4px;white-space:pre-wrap;overflow-wrap:anywhere}pre code{padding:0}\
@media(prefers-color-scheme:dark){body{background:#14171a;color:#e6e9ec}code,pre{background:#262b30}\
th,td{border-color:#3a4047}.b{background:#4a3b12}a{color:#7db7ff}}";

/// The page.
pub(crate) fn page(documents: &[Value]) -> String {
    let mut page = String::from("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.push_str(
        "<meta name=\"viewport\" content=\"width=device-width\"><title>Pet Store Orders: reference</title><style>",
    );
    page.push_str(STYLE);
    page.push_str("</style></head><body><h1>Pet Store Orders</h1>");
    page.push_str("<p>Every request carries an API key: <code>Authorization: Bearer &lt;API_KEY&gt;</code>. ");
    page.push_str(
        "The same for machines: <a href=\"/v1/openapi.json\">v1</a>, <a href=\"/v2/openapi.json\">v2</a>.</p>",
    );
    for document in documents {
        version(&mut page, document);
    }
    limit_headers(&mut page, documents);
    page.push_str("<h2 id=\"errors\">Errors</h2><table><tr><th>Status</th><th>Code</th><th>Message</th></tr>");
    for code in Code::ALL {
        row(&mut page, code.as_str(), &[&code.status().to_string(), code.as_str(), code.message()]);
    }
    page.push_str("</table></body></html>\n");
    page
}

fn version(page: &mut String, document: &Value) {
    let base = text(document, "/servers/0/url");
    // Writing to a string cannot fail.
    let _ = write!(page, "<h2>{} {}</h2>", escape(base), escape(text(document, "/info/version")));
    let _ = write!(page, "<p>{}</p>", escape(text(document, "/info/description")));
    for (path, methods) in document.get("paths").and_then(Value::as_object).into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let _ = write!(
                page,
                "<h3 id=\"{}\"><span class=\"m\">{}</span> <code>{}{}</code></h3>",
                escape(text(operation, "/operationId")),
                escape(method),
                escape(base),
                escape(path)
            );
            describe(page, base, document, operation);
        }
    }
    for (name, schema) in document.pointer("/components/schemas").and_then(Value::as_object).into_iter().flatten() {
        fields(page, base, document, name, schema);
    }
}

/// The headers that every answer carries.
fn limit_headers(page: &mut String, documents: &[Value]) {
    let mut headers = Map::new();
    for document in documents {
        let found = document.pointer("/components/headers").and_then(Value::as_object).into_iter().flatten();
        headers.extend(found.map(|(name, header)| (name.clone(), header.clone())));
    }
    page.push_str(
        "<h2 id=\"headers\">Headers of answers</h2><p>Every answer to a request with a key says what is left of ",
    );
    page.push_str("the limit that is nearest; 429 says in <code>Retry-After</code> when to come back.</p>");
    page.push_str("<table><tr><th>Header</th><th>Meaning</th></tr>");
    for (name, header) in &headers {
        row(page, "", &[name, text(header, "/description")]);
    }
    page.push_str("</table>");
}

/// The fields of a schema, and an example.
fn fields(page: &mut String, base: &str, document: &Value, name: &str, schema: &Value) {
    let _ = write!(page, "<h3 id=\"{}\"><code>{}</code></h3>", anchor(base, name), escape(name));
    let properties = schema.get("properties").and_then(Value::as_object);
    if properties.is_some_and(|properties| !properties.is_empty()) {
        page.push_str("<table><tr><th>Field</th><th>Type</th><th>Always there</th><th>Meaning</th></tr>");
    }
    for (field, inner) in properties.into_iter().flatten() {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let always = if required.into_iter().any(|one| one == field.as_str()) { "yes" } else { "no" };
        row(page, "", &[field, &kind(inner), always, text(inner, "/description")]);
    }
    if properties.is_some_and(|properties| !properties.is_empty()) {
        page.push_str("</table>");
    }
    let _ = write!(page, "<pre><code>{}</code></pre>", escape(&format!("{:#}", example(document, schema, 0))));
}

fn anchor(base: &str, name: &str) -> String {
    let version = base.rsplit('/').next().unwrap_or_default();
    escape(&format!("{version}-{name}"))
}

/// The name of what a schema refers to.
fn referred(schema: &Value) -> Option<&str> {
    schema.get("$ref").and_then(Value::as_str).and_then(|place| place.rsplit('/').next())
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

fn describe(page: &mut String, base: &str, document: &Value, operation: &Value) {
    if operation.get("deprecated") == Some(&Value::Bool(true)) {
        page.push_str("<p><span class=\"b\">deprecated</span></p>");
    }
    // What is marked with nothing is as the versioning of the interface promises.
    let stability = operation.get("x-stability").and_then(Value::as_str).unwrap_or("stable");
    let _ = write!(page, "<p><span class=\"b\">{}</span></p>", escape(stability));
    let _ = write!(page, "<p>{}</p>", escape(text(operation, "/description")));
    if let Some(parameters) = operation.get("parameters").and_then(Value::as_array) {
        page.push_str("<table><tr><th>Parameter</th><th>In</th><th>Meaning</th></tr>");
        for parameter in parameters {
            row(page, "", &[text(parameter, "/name"), text(parameter, "/in"), text(parameter, "/description")]);
        }
        page.push_str("</table>");
    }
    let sent = operation.pointer("/requestBody").and_then(|body| body.pointer(BODY));
    if let Some(schema) = sent {
        let _ = write!(page, "<p>Body: {}</p>", linked(base, schema));
        let _ = write!(page, "<pre><code>{}</code></pre>", escape(&format!("{:#}", example(document, schema, 0))));
    }
    page.push_str("<table><tr><th>Status</th><th>Meaning</th><th>Body</th><th>Headers</th></tr>");
    for (status, response) in operation.get("responses").and_then(Value::as_object).into_iter().flatten() {
        let headers = response.get("headers").and_then(Value::as_object).into_iter().flatten();
        let headers = headers.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        let body = response.pointer(BODY).map(|schema| linked(base, schema)).unwrap_or_default();
        let meaning = escape(text(response, "/description"));
        let _ = write!(page, "<tr><td>{}</td><td>{meaning}</td><td>{body}</td>", escape(status));
        let _ = write!(page, "<td>{}</td></tr>", escape(&headers));
    }
    page.push_str("</table>");
}

/// The schema of a body, in a request or a response.
const BODY: &str = "/content/application~1json/schema";

/// What a body is, with a link to its fields.
fn linked(base: &str, schema: &Value) -> String {
    let name = referred(schema).or_else(|| schema.get("items").and_then(referred));
    match name {
        Some(name) => format!("<a href=\"#{}\">{}</a>", anchor(base, name), escape(&kind(schema))),
        None => escape(&kind(schema)),
    }
}

fn row(page: &mut String, id: &str, cells: &[&str]) {
    let id = if id.is_empty() { String::new() } else { format!(" id=\"{}\"", escape(id)) };
    let _ = write!(page, "<tr{id}>");
    for cell in cells {
        let _ = write!(page, "<td>{}</td>", escape(cell));
    }
    page.push_str("</tr>");
}

fn text<'v>(value: &'v Value, place: &str) -> &'v str {
    value.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
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
            "&quot;quantity&quot;: 42",
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
