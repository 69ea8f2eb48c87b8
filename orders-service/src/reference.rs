//! The interface descriptions for people: one page without scripts, made from the same documents.

use std::fmt::Write as _;

use serde_json::Value;

use crate::error::Code;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;\
color:#1b1f24;background:#fff}h1,h2,h3{line-height:1.2}code{background:#eef1f4;padding:.1em .3em;border-radius:4px}\
table{border-collapse:collapse;width:100%}th,td{border:1px solid #d5dae0;padding:.3rem .5rem;text-align:left;\
vertical-align:top}.m{font-weight:700;text-transform:uppercase}.b{background:#fff3d6;padding:.1em .5em;\
border-radius:4px}@media(prefers-color-scheme:dark){body{background:#14171a;color:#e6e9ec}code{background:#262b30}\
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
            describe(page, operation);
        }
    }
}

fn describe(page: &mut String, operation: &Value) {
    if operation.get("deprecated") == Some(&Value::Bool(true)) {
        page.push_str("<p><span class=\"b\">deprecated</span></p>");
    }
    if let Some(stability) = operation.get("x-stability").and_then(Value::as_str) {
        let _ = write!(page, "<p><span class=\"b\">{}</span></p>", escape(stability));
    }
    let _ = write!(page, "<p>{}</p>", escape(text(operation, "/description")));
    if let Some(parameters) = operation.get("parameters").and_then(Value::as_array) {
        page.push_str("<table><tr><th>Parameter</th><th>In</th><th>Meaning</th></tr>");
        for parameter in parameters {
            row(page, "", &[text(parameter, "/name"), text(parameter, "/in"), text(parameter, "/description")]);
        }
        page.push_str("</table>");
    }
    page.push_str("<table><tr><th>Status</th><th>Meaning</th></tr>");
    for (status, response) in operation.get("responses").and_then(Value::as_object).into_iter().flatten() {
        row(page, "", &[status, text(response, "/description")]);
    }
    page.push_str("</table>");
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
    }
}
