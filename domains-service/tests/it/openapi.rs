//! The interface description, against the service that it describes.

use serde_json::{Value, json};

use crate::world::{Client, Platform};

async fn description(owner: &Client<'_>) -> Value {
    let answer = owner.get("/v1/openapi.json").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"));
    answer.body
}

/// The deviations of `value` from the schema.
fn mismatches(document: &Value, schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = document.pointer(reference.trim_start_matches('#')).unwrap();
        return mismatches(document, schema, value, place, found);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let fits = choices.iter().any(|choice| {
            let mut wrong = Vec::new();
            mismatches(document, choice, value, place, &mut wrong);
            wrong.is_empty()
        });
        if !fits {
            found.push(format!("{place}: {value} fits none of the choices"));
        }
        return;
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds = if schema["type"].is_array() { schema["type"].clone() } else { json!([schema["type"]]) };
    if !kinds.as_array().unwrap().contains(&json!(kind)) {
        found.push(format!("{place}: {value} is no {kinds}"));
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        found.push(format!("{place}: {value} is not in the list"));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        mismatches(document, &schema["items"], item, &format!("{place}/{index}"), found);
    }
    let (Some(fields), Some(properties)) = (value.as_object(), schema["properties"].as_object()) else { return };
    for name in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(name.as_str().unwrap()) {
            found.push(format!("{place}: {name} is missing"));
        }
    }
    for (name, value) in fields {
        match properties.get(name) {
            Some(schema) => mismatches(document, schema, value, &format!("{place}/{name}"), found),
            None => found.push(format!("{place}: {name} is not described")),
        }
    }
}

/// Sends a request, and compares the answer with the operation's description.
async fn agree(document: &Value, owner: &Client<'_>, id: &str, path: &str, body: Value, status: u16) -> Value {
    let operations = document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap());
    let (method, operation) = operations.into_iter().find(|(_, operation)| operation["operationId"] == id).unwrap();
    let answer = owner.send(&method.to_uppercase(), path, body).await;
    assert_eq!(answer.status, status, "{id}: {answer:?}");
    let response = &operation["responses"][status.to_string()];
    let response = match response["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => response,
    };
    assert!(response.is_object(), "{id} is not described as answering {status}");
    if !answer.body.is_null() {
        let mut found = Vec::new();
        mismatches(document, &response["content"]["application/json"]["schema"], &answer.body, id, &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
    for name in response["headers"].as_object().unwrap().keys().filter(|name| !name.starts_with("X-RateLimit")) {
        assert!(answer.headers.contains_key(name), "{id} promises the header {name}");
    }
    answer.body
}

#[tokio::test]
async fn the_service_answers_as_it_is_described() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let owner = platform.owner("demo");
    let document = description(&owner).await;
    let at = |rest: &str| format!("/v1/projects/demo{rest}");
    let ask = async |id: &str, path: String, body: Value, status: u16| {
        agree(&document, &owner, id, &path, body, status).await
    };
    ask("showProject", at(""), Value::Null, 200).await;
    ask("showUsage", at("/usage"), Value::Null, 200).await;
    ask("showAcmeAccount", "/v1/acme-account".to_owned(), Value::Null, 200).await;

    let key = ask("createKey", at("/keys"), json!({ "scopes": ["orders:read"] }), 201).await;
    let one = at(&format!("/keys/{}", key["id"].as_str().unwrap()));
    ask("rotateKey", format!("{one}/rotate"), Value::Null, 201).await;
    ask("listKeys", at("/keys"), Value::Null, 200).await;
    ask("revokeKey", one.clone(), Value::Null, 204).await;
    ask("createKey", at("/keys"), json!({ "scopes": [] }), 400).await;

    let hook = json!({ "url": "http://127.0.0.1:9/", "events": ["domain.created"] });
    let hook = ask("createWebhook", at("/webhooks"), hook, 201).await;
    let hook_at = at(&format!("/webhooks/{}", hook["id"].as_str().unwrap()));

    ask("addDomain", at("/domains"), json!({ "name": "shop.localhost" }), 201).await;
    ask("addDomain", at("/domains"), json!({ "name": "shop.localhost" }), 200).await;
    ask("addDomain", at("/domains"), json!({ "name": "a_b" }), 400).await;
    platform.domain_in("demo", "shop.localhost", "active").await;
    let old = json!({ "name": "old.localhost", "redirect": { "to": "primary", "status": 308 } });
    ask("addDomain", at("/domains"), old, 201).await;
    platform.domain_in("demo", "old.localhost", "active").await;
    ask("changeDomain", at("/domains/old.localhost"), json!({ "redirect": null }), 200).await;
    // A name without its record: checks, records and problems are there.
    platform.dns.zone("customer.test", &["192.31.196.1"]);
    ask("checkDomain", at("/domain-check?name=shop.customer.test"), Value::Null, 200).await;
    ask("addDomain", at("/domains"), json!({ "name": "www.customer.test" }), 201).await;
    platform.domain_when("demo", "www.customer.test", |domain| !domain["checks"].is_null()).await;
    let waiting = ask("showDomain", at("/domains/www.customer.test"), Value::Null, 200).await;
    assert!(!waiting["problems"].as_array().unwrap().is_empty() && !waiting["checks"]["nameservers"].is_null());
    ask("verifyDomain", at("/domains/www.customer.test/verify"), Value::Null, 200).await;
    ask("verifyDomain", at("/domains/www.customer.test/verify"), Value::Null, 429).await;
    ask("listDomains", at("/domains?limit=2"), Value::Null, 200).await;
    ask("listDomainEvents", at("/domains/shop.localhost/events"), Value::Null, 200).await;
    ask("listEvents", at("/events"), Value::Null, 200).await;
    ask("removeDomain", at("/domains/old.localhost"), Value::Null, 204).await;
    ask("showDomain", at("/domains/old.localhost"), Value::Null, 404).await;

    let list = ask("listWebhookDeliveries", format!("{hook_at}/deliveries"), Value::Null, 200).await;
    let delivery = list["deliveries"][0]["id"].as_i64().unwrap();
    ask("repeatWebhookDelivery", format!("{hook_at}/deliveries/{delivery}/repeat"), Value::Null, 202).await;
    ask("testWebhook", format!("{hook_at}/test"), Value::Null, 202).await;
    ask("listWebhooks", at("/webhooks"), Value::Null, 200).await;
    ask("showWebhook", hook_at.clone(), Value::Null, 200).await;
    ask("rotateWebhookSecret", format!("{hook_at}/rotate"), Value::Null, 200).await;
    ask("changeWebhook", hook_at.clone(), json!({ "enabled": false }), 200).await;
    ask("repeatWebhookDelivery", format!("{hook_at}/deliveries/{delivery}/repeat"), Value::Null, 409).await;
    ask("removeWebhook", hook_at, Value::Null, 204).await;
}

#[tokio::test]
async fn every_described_operation_is_served_and_no_other_method_is() {
    let platform = Platform::start().await;
    platform.project("mine", "pro").await;
    let owner = platform.owner("mine");
    let document = description(&owner).await;
    let mut count = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let place =
            format!("/v1{path}").replace("{project}", "mine").replace("{delivery}", "1").replace(['{', '}'], "");
        for method in ["get", "post", "patch", "delete", "put"] {
            let answer = owner.send(&method.to_uppercase(), &place, Value::Null).await;
            if methods.get(method).is_some() {
                assert!(!matches!(answer.code(), (404, "not_found") | (405, _)), "{method} {place}: {answer:?}");
                count += 1;
            } else {
                assert_eq!(answer.code(), (405, "method_not_allowed"), "{method} {place}");
            }
        }
    }
    let undescribed = ["/openapi.json", "/v1/openapi.json", "/reference"];
    let operations = domains_service::operations().filter(|(_, path, _)| !undescribed.contains(path));
    assert_eq!(count, operations.count());
    assert_eq!(owner.get("/openapi.json").await.body, document);
}
