#[path = "../../../../chassis/tests/support/differences.rs"]
mod differences;

use std::collections::BTreeSet;
use std::path::Path;

use contract::rejection::Rejection;

use super::super::label;
use super::*;

fn committed(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/openapi").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

// rule: 9.1, 9.5
// promise: orders.1
#[test]
fn the_committed_documents_match_the_code() {
    for (name, document) in [("orders-v1.json", v1()), ("orders-v2.json", v2())] {
        let hint = "cargo run -p orders-service -- --write-openapi docs/reference/openapi";
        let found = differences::differences(&committed(name), &document);
        assert!(
            found.is_empty(),
            "docs/reference/openapi/{name} differs from the code; run: {hint}\n{}",
            found.join("\n")
        );
    }
}

// promise: orders.1
#[test]
fn every_operation_is_described_once_and_counted_under_its_name() {
    let mut described = BTreeSet::new();
    for (base, document) in [("/v1", v1()), ("/v2", v2())] {
        assert_eq!(document["servers"][0]["url"], base);
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                assert_eq!(label(&method.to_uppercase(), &format!("{base}{path}")), Some(id.as_str()));
                assert!(described.insert(id.clone()), "{id} is described twice");
            }
        }
    }
    assert_eq!(described.len(), OPERATIONS.len());
    assert_eq!(label("HEAD", "/v1/store/orders"), Some("listOrders"));
    assert_eq!(label("POST", "/v1/store/orders"), None);
}

#[test]
fn every_refusal_that_a_caller_can_meet_is_described() {
    // Refusals for operators, and for a missing signature.
    let elsewhere = [
        "identity_required",
        "token_required",
        "import_failed",
        "import_in_progress",
        "import_too_large",
        "control_plane_unavailable",
    ];
    let texts = [v1(), v2()].map(|document| document.to_string());
    let is_in = |text: &String, code: &str| text.contains(&format!("\"{code}\""));
    for rejection in Rejection::ALL {
        assert!(texts.iter().all(|text| is_in(text, rejection.code())), "{rejection:?}");
    }
    for code in crate::catalogue().map(|entry| entry.code).filter(|code| !elsewhere.contains(code)) {
        assert!(texts.iter().any(|text| is_in(text, code)), "no operation is described as answering {code}");
    }
}

// rule: 1.2, 1.4, 4.1.4, 5.1, 9.1, 9.4
// promise: orders.1
#[test]
fn the_document_matches_the_specification() {
    let document = v1();
    assert_eq!(document["info"]["version"], "1.0.0");
    assert_eq!(document["components"]["securitySchemes"]["bearerAuth"]["scheme"], "bearer");
    assert_eq!(document["security"], json!([{ "bearerAuth": [] }]));
    let list = &document["paths"]["/store/orders"]["get"];
    assert_eq!(
        (&list["operationId"], &list["tags"], &list["x-try-it"]),
        (&json!("listOrders"), &json!(["orders"]), &json!(false))
    );
    assert_eq!(list.get("parameters"), None);
    let cancel = &document["paths"]["/store/orders/{orderId}"]["delete"];
    for status in ["204", "401", "404", "409", "429"] {
        assert!(cancel["responses"].get(status).is_some(), "{status}");
    }
    assert_eq!(document["paths"]["/pets/{petId}"]["get"]["deprecated"], true);
    let v2 = v2();
    for methods in v2["paths"].as_object().unwrap().values() {
        for operation in methods.as_object().unwrap().values() {
            assert_eq!(operation["x-stability"], "beta");
        }
    }
}

#[test]
fn every_reference_resolves() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    for document in [v1(), v2()] {
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
    }
}

#[test]
fn every_operation_and_every_error_has_its_anchor() {
    let page = REFERENCE.as_str();
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
