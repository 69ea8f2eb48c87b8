//! The interface descriptions (OpenAPI 3.1), made from the same constants the handlers use.
//!
//! One document per version of the API: `/v1` (1.0.0) as the specification has it, `/v2` (beta). They describe what a
//! client of the gateway meets, so the gateway's own answers (401, 429, 5xx) and headers are in them.

#[cfg(test)]
mod compatibility;
mod schemas;
mod v1;
mod v2;

use chassis::openapi::{self, About};
use serde_json::{Map, Value, json};

use crate::error::Code;

/// The description of `/v1`.
pub(crate) fn v1() -> Value {
    v1::document()
}

/// The description of `/v2`.
pub(crate) fn v2() -> Value {
    v2::document()
}

/// One operation as its version's module states it.
struct Operation {
    id: &'static str,
    method: &'static str,
    /// Below the base address, which ends in the version.
    path: &'static str,
    tag: &'static str,
    summary: &'static str,
    description: &'static str,
    scope: &'static str,
    parameters: Vec<Value>,
    request_body: Option<Value>,
    /// The answer when all goes well.
    success: (u16, Value),
    /// Other answers that are no errors.
    also: Vec<(u16, Value)>,
    /// Errors of this operation's own; those that any operation may have are added to all.
    errors: &'static [Code],
    /// `x-` markers and `deprecated`.
    markers: Value,
}

/// What is the same in both documents.
fn document(
    title: &str,
    version: &str,
    description: &str,
    base: &str,
    tags: &Value,
    operations: &[Operation],
) -> Value {
    let about = About { title, version, description, base, host: "Below the host of your project." };
    let operations = operations.iter().map(|operation| (operation.path, operation.method, operation.describe()));
    let mut document = openapi::document(about, tags, operations, &schemas::components());
    leave_out_what_nothing_refers_to(&mut document);
    document
}

/// Takes schemas away that belong to the other version: a generator would make types of them.
fn leave_out_what_nothing_refers_to(document: &mut Value) {
    loop {
        let text = document.to_string();
        let Some(schemas) = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut) else { return };
        let before = schemas.len();
        schemas.retain(|name, _| text.contains(&format!("\"#/components/schemas/{name}\"")));
        if schemas.len() == before {
            return;
        }
    }
}

impl Operation {
    fn describe(&self) -> Value {
        let mut responses = Map::new();
        responses.insert(self.success.0.to_string(), self.success.1.clone());
        for (status, response) in &self.also {
            responses.insert(status.to_string(), response.clone());
        }
        let own = self.errors.iter().map(|code| (code.status(), code.as_str()));
        for (status, codes) in openapi::by_status(schemas::ANY_ERRORS.iter().copied().chain(own)) {
            responses.insert(status.to_string(), schemas::error_response(status, &codes));
        }
        responses.insert("default".to_owned(), schemas::error_response(0, &[]));
        let mut operation = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "description": format!("{} Needs the scope `{}`.", self.description, self.scope),
            "responses": responses,
        });
        if let (Some(operation), Some(markers)) = (operation.as_object_mut(), self.markers.as_object()) {
            operation.extend(markers.clone());
        }
        openapi::operation(operation, self.parameters.clone(), self.request_body.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::operations;

    fn committed(name: &str) -> Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/openapi").join(name);
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    // rule: 9.1, 9.5
    // promise: orders.1
    #[test]
    fn the_committed_copies_are_what_the_code_says() {
        for (name, document) in [("orders-v1.json", v1()), ("orders-v2.json", v2())] {
            let hint = "cargo run -p orders-service -- --write-openapi docs/reference/openapi";
            assert!(
                committed(name) == document,
                "docs/reference/openapi/{name} is not what the code says; run: {hint}"
            );
        }
    }

    // promise: orders.1
    #[test]
    fn every_operation_is_described_and_nothing_else_is() {
        let mut described = BTreeSet::new();
        for (base, document) in [("/v1", v1()), ("/v2", v2())] {
            assert_eq!(document["servers"][0]["url"], base);
            for (path, methods) in document["paths"].as_object().unwrap() {
                for (method, operation) in methods.as_object().unwrap() {
                    let id = operation["operationId"].as_str().unwrap().to_owned();
                    described.insert((id, method.to_uppercase(), format!("{base}{path}")));
                }
            }
        }
        let served: BTreeSet<_> = operations::ALL
            .iter()
            .filter(|operation| operation.path.starts_with("/v"))
            .map(|operation| (operation.id.to_owned(), operation.method.to_owned(), operation.path.to_owned()))
            .collect();
        assert_eq!(described, served);
    }

    // rule: 1.2, 1.4, 4.1.4, 5.1, 9.1, 9.4
    // promise: orders.1
    #[test]
    fn the_document_says_what_the_specification_says() {
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
    fn every_reference_leads_somewhere() {
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
}
