//! Within a stable version nothing released is removed or changed (docs/tenant/versioning.md): the present description
//! of `/v1` contains the released one. Additions are allowed.

use serde_json::Value;

/// Texts for people, which may change.
const PROSE: [&str; 3] = ["description", "summary", "title"];

/// Members with lists of requirements on clients: these lists may not grow.
const DEMANDS: [&str; 2] = ["required", "parameters"];

/// Finds everything of `released` that is missing in `current` or differs there.
fn lost(released: &Value, current: &Value, place: &str, found: &mut Vec<String>) {
    match (released, current) {
        (Value::Object(before), Value::Object(now)) => {
            for (name, before) in before.iter().filter(|(name, _)| !PROSE.contains(&name.as_str())) {
                let place = format!("{place}/{name}");
                match now.get(name) {
                    Some(now) => lost(before, now, &place, found),
                    None => found.push(format!("{place} is gone")),
                }
            }
            for name in DEMANDS.iter().filter(|name| now.contains_key(**name) && !before.contains_key(**name)) {
                found.push(format!("{place}/{name} is a new requirement"));
            }
        }
        (Value::Array(before), Value::Array(now)) => {
            for item in before {
                let kept = now.iter().any(|now| {
                    let mut differences = Vec::new();
                    lost(item, now, "", &mut differences);
                    differences.is_empty()
                });
                if !kept {
                    found.push(format!("{place} has lost {item}"));
                }
            }
            if DEMANDS.iter().any(|name| place.ends_with(name)) && now.len() > before.len() {
                found.push(format!("{place} asks for more than before"));
            }
        }
        (before, now) if before == now => {}
        (before, now) => found.push(format!("{place} was {before} and is {now}")),
    }
}

fn differences(released: &Value, current: &Value) -> Vec<String> {
    let mut found = Vec::new();
    lost(&with_responses(released), &with_responses(current), "", &mut found);
    found
}

/// The document with references to shared responses replaced by the responses; clients see no difference.
fn with_responses(document: &Value) -> Value {
    fn put(value: &mut Value, document: &Value) {
        let place =
            value.get("$ref").and_then(Value::as_str).filter(|place| place.starts_with("#/components/responses/"));
        if let Some(found) = place.and_then(|place| document.pointer(place.trim_start_matches('#'))) {
            *value = found.clone();
        }
        match value {
            Value::Object(members) => members.values_mut().for_each(|member| put(member, document)),
            Value::Array(items) => items.iter_mut().for_each(|item| put(item, document)),
            _ => {}
        }
    }
    let mut whole = document.clone();
    whole["components"].as_object_mut().unwrap().remove("responses");
    put(&mut whole, document);
    whole
}

// rule: 9.5
// promise: orders.1
#[test]
fn everything_released_in_v1_still_exists() {
    let released = include_str!("../../../../docs/reference/openapi/released/orders-1.0.0.json");
    let mut released: Value = serde_json::from_str(released).unwrap();
    // Schemas that no operation of `/v1` uses were those of `/v2`.
    loop {
        let text = released.to_string();
        let schemas = released["components"]["schemas"].as_object_mut().unwrap();
        let before = schemas.len();
        schemas.retain(|name, _| text.contains(&format!("\"#/components/schemas/{name}\"")));
        if schemas.len() == before {
            break;
        }
    }
    let broken = differences(&released, &super::v1());
    assert!(broken.is_empty(), "this breaks clients of /v1:\n{}", broken.join("\n"));
}

#[test]
fn only_breaking_changes_are_reported() {
    let released = super::v1();
    let changed = |pointer: &str, value: Value| {
        let mut document = released.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let name = &name.replace("~1", "/");
        let parent = document.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match value {
            Value::Null => drop(parent.remove(name)),
            value => drop(parent.insert(name.clone(), value)),
        }
        differences(&released, &document)
    };
    let list = "/paths/~1store~1orders/get";
    for (pointer, value) in [
        ("/paths/~1pets~1{petId}", Value::Null),
        ("/components/schemas/Order/properties/complete", Value::Null),
        ("/components/schemas/Order/properties/quantity/type", "string".into()),
        ("/components/schemas/Order/required", serde_json::json!(["id"])),
        (&format!("{list}/responses/304"), Value::Null),
        ("/components/responses/Error401/x-error-codes", serde_json::json!([])),
        (&format!("{list}/parameters"), serde_json::json!([{ "name": "page", "in": "query", "required": true }])),
    ] {
        assert!(!changed(pointer, value).is_empty(), "{pointer}");
    }
    for (pointer, value) in [
        ("/info/description", "Better words.".into()),
        (&format!("{list}/responses/418"), serde_json::json!({ "description": "New." })),
        (&format!("{list}/responses/200/headers/X-New"), serde_json::json!({ "schema": { "type": "string" } })),
    ] {
        assert!(changed(pointer, value).is_empty(), "{pointer}");
    }
}
