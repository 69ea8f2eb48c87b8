#[path = "../../../../chassis/tests/support/differences.rs"]
mod differences;

use std::collections::BTreeSet;
use std::path::Path;

use contract::rejection::Rejection;

use super::*;
use crate::api::name;

#[test]
fn the_committed_copy_matches_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/openapi").join(FILE);
    let committed = std::fs::read_to_string(path).unwrap();
    let hint = "cargo run -p domains-service -- --write-openapi docs/reference/openapi";
    let found = differences::differences(&serde_json::from_str(&committed).unwrap(), &document());
    assert!(
        found.is_empty(),
        "docs/reference/openapi/{FILE} is not what the code says; run: {hint}\n{}",
        found.join("\n")
    );
    assert!(committed == printed(), "docs/reference/openapi/{FILE} is written another way; run: {hint}");
}

#[test]
fn every_operation_is_described_once_and_counted_under_its_name() {
    let document = document();
    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, described) in methods.as_object().unwrap() {
            let id = described["operationId"].as_str().unwrap();
            for side in ["/v1", "/internal"] {
                assert!(
                    name(&method.to_uppercase(), &format!("{side}{path}")) == id || id == "showAcmeAccount",
                    "{id}"
                );
            }
            assert!(ids.insert(id.to_owned()), "{id} is described twice");
        }
    }
    assert_eq!(ids.len(), OPERATIONS.iter().copied().flatten().count());
}

#[test]
fn every_reference_leads_somewhere_and_every_part_is_used() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    for reference in &found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
    for kind in ["schemas", "headers", "responses"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            // An operation with codes of its own has the response to itself: it may be that all operations have.
            let is_used = found.contains(&format!("#/components/{kind}/{name}"));
            assert!(is_used || kind == "responses", "{kind}/{name} is not used");
        }
    }
}

#[test]
fn every_code_of_the_catalogue_that_a_caller_can_meet_is_described() {
    // What operators alone can meet, and what an unknown path or a missing signature comes to.
    const ELSEWHERE: &[&str] = &[
        "identity_required",
        "token_required",
        "history",
        "unknown_revision",
        "too_many_processes",
        "credential_exists",
        "command_line_credential",
        "invalid_project",
        "project_exists",
        "project_reserved",
    ];
    let text = printed();
    let edge =
        Rejection::ALL.iter().filter(|rejection| rejection.met() == Met::Anywhere).map(|rejection| rejection.code());
    for code in crate::catalogue().map(|entry| entry.code).chain(edge).filter(|code| !ELSEWHERE.contains(code)) {
        assert!(text.contains(&format!("\"{code}\"")), "no operation is described as answering {code}");
    }
}
