use serde_json::json;

use super::*;

fn healthy() -> Value {
    json!({
        "edges": [{
            "gateway": "edge-1", "node": "gw-1", "address": "10.0.0.1:9901", "ready": true, "draining": false, "revision": 7,
            "replica_refuses": null, "replica_remedy": "free space", "unregistered": null,
            "now": 1_000, "feed_received_at": 999, "clock_behind_milliseconds": 40,
            "clocks_off_milliseconds": { "quota_store": null, "control_plane": 59_000 }, "quota": { "mode": "lease", "store_trouble": null, "store_remedy": "start it" }, "log_lines_dropped": 0,
            "damaged_files": [], "settings_refused": null,
            "upstreams": [{ "name": "orders", "endpoints": 1, "up": 1 }],
            "platform_certificate_faults": [], "listener_certificate_faults": [], "panicked_tasks": [], "unusable_certificates": [],
            "certificates": [{ "host": "a.example", "kind": "domains", "ends_at": 1_800_000_000, "lifetime_left": 0.6 }],
        }],
        "control": { "revision": 7, "domains": { "issuing": 0 }, "certificate_authorities": [], "trouble": null, "unreadable_rows": null, "sealed_with_older": 3, "sealed_with_missing": 0,
            "credential_files_refused": [], "revocations_file_trouble": null, "gateways_of_another_history": [], "listener_certificate_faults": [],
            "panicked_tasks": [] },
        "orders": { "version": "1", "store_trouble": { "kind": "full", "what_to_do": "free space", "seconds_ago": 61 }, "trust_seconds_old": 60 },
        "nodes": { "revision": 7 },
        "withdrawals": { "withdrawals": [], "total": 0 },
    })
}

/// Each problem with its next step.
fn said(all: &Value) -> Vec<String> {
    let found = find(all).into_iter();
    found.map(|trouble| format!("{}: {}", trouble.problem, trouble.what_to_do)).collect()
}

#[test]
fn a_healthy_platform_has_no_problems() {
    assert_eq!(said(&healthy()), Vec::<String>::new());
}

#[test]
fn a_gateway_that_refuses_the_control_planes_data_is_named_once() {
    let mut all = healthy();
    for (field, value) in
        [("revision", json!(0)), ("feed_received_at", json!(0)), ("replica_refuses", json!("the disk is full"))]
    {
        *all.pointer_mut(&format!("/edges/0/{field}")).unwrap() = value;
    }
    assert_eq!(
        said(&all),
        ["gateway edge-1/gw-1 (10.0.0.1:9901) has no replica to serve: the disk is full: free space"]
    );
}

#[test]
fn a_background_task_that_panicked_is_named_with_its_process() {
    for (place, process) in [
        ("edges/0", "gateway edge-1/gw-1 (10.0.0.1:9901)"),
        ("control", "the domains-service"),
        ("orders", "the orders-service"),
    ] {
        let mut all = healthy();
        all.pointer_mut(&format!("/{place}")).unwrap()["panicked_tasks"] =
            json!([{ "task": "cleanup", "panics": 2, "seconds_ago": 7 }]);
        let found = said(&all);
        let begins = format!("the background task cleanup of {process} panicked 7 seconds ago and was started again");
        assert!(matches!(&*found, [only] if only.starts_with(&begins)), "{found:?}");
    }
}

#[test]
fn every_problem_of_a_gateway_is_named() {
    each_is_named(&[
        (
            "/edges/0",
            json!({ "gateway": "edge-1", "address": "10.0.0.1:9901", "unreachable": "refused" }),
            "gateway edge-1 (10.0.0.1:9901) does not answer",
        ),
        ("/edges/0/ready", json!(false), "is not ready"),
        ("/edges/0/draining", json!(true), "is out of rotation"),
        ("/edges/0/unregistered", json!("held"), "serves nothing until it reaches the control plane"),
        ("/edges/0/unregistered", json!("served"), "serves the replica from its graceful shutdown"),
        (
            "/edges/0/replica_refuses",
            json!("another database"),
            "serves its previous replica: another database: free space",
        ),
        ("/edges/0/clock_behind_milliseconds", json!(-90_400), "(10.0.0.1:9901) is 90 s ahead"),
        ("/edges/0/clocks_off_milliseconds/control_plane", json!(90_400), "and of the control plane differ by 90 s"),
        ("/edges/0/clocks_off_milliseconds/quota_store", json!(-60_001), "and of the quota store differ by 60 s"),
        (
            "/edges/0/quota",
            json!({ "mode": "share", "store_trouble": "the quota store did not answer in time", "store_remedy": "start the quota store" }),
            "counts without the quota store (share): the quota store did not answer in time: start the quota store",
        ),
        (
            "/edges/0/quota/store_trouble",
            json!("the quota store returned an error: OOM"),
            "gets errors from the quota store, and bans may not reach the other gateways: the quota store returned an \
             error: OOM: start it",
        ),
        ("/edges/0/feed_received_at", json!(900), "received nothing from the control plane for 100 seconds"),
        ("/edges/0/feed_received_at", json!(0), "has received nothing from the control plane since its start"),
        ("/edges/0/upstreams/0/up", json!(0), "reaches 0 of 1 addresses of upstream orders"),
        (
            "/edges/0/certificates/0/lifetime_left",
            json!(0.2),
            "the certificate of a.example has 20 % of its lifetime left, until 2027-01-15T08:00:00Z: `tollhouse domain show",
        ),
        (
            "/edges/0/platform_certificate_faults",
            json!([{ "problem": "p.pem is refused", "what_to_do": "replace it" }]),
            "gateway edge-1/gw-1 (10.0.0.1:9901): p.pem is refused: replace it",
        ),
        (
            "/edges/0/listener_certificate_faults",
            json!([{ "problem": "gateway-1.pem is refused", "what_to_do": "replace it" }]),
            "gateway edge-1/gw-1 (10.0.0.1:9901): gateway-1.pem is refused: replace it",
        ),
        (
            "/edges/0/unusable_certificates",
            json!([{ "hostname": "a.example", "reason": "the chain is empty" }]),
            "(10.0.0.1:9901) cannot use the newest certificate of a.example and keeps the previous one: the chain is empty",
        ),
        (
            "/edges/0/damaged_files",
            json!(["place.damaged"]),
            "(10.0.0.1:9901) found a damaged file in its data directory and started without it: check the disk, then \
             remove place.damaged",
        ),
        ("/edges/0/settings_refused", json!("it has mistakes"), "refuses its changed settings: it has mistakes"),
        ("/edges/0/log_lines_dropped", json!(3), "has dropped 3 log lines"),
        ("/edges/0/revision", json!(5), "is 2 revisions behind"),
    ]);
}

#[test]
fn every_problem_of_a_service_is_named() {
    each_is_named(&[
        ("/control", json!({ "unreachable": "refused" }), "the domains-service does not answer: refused"),
        (
            "/control/listener_certificate_faults",
            json!([{ "problem": "domains-service.pem is refused", "what_to_do": "replace it" }]),
            "the domains-service: domains-service.pem is refused: replace it",
        ),
        (
            "/control/domains/issuing",
            json!(2),
            "2 domains wait for a certificate, and no certificate authority is configured: configure [[authorities]]",
        ),
        ("/control/sealed_with_missing", json!(2), "lacks the sealing secret of 2 private keys or webhook secrets"),
        (
            "/control/gateways_of_another_history",
            json!(["edge-1", "edge-2"]),
            "lacks changes that these gateways have applied: edge-1, edge-2. It went back",
        ),
        (
            "/control/credential_files_refused",
            json!([{ "file": "secrets/gateways/edge-1.key", "reason": "revoked", "what_to_do": "remove the file" }]),
            "the credential file secrets/gateways/edge-1.key when it started: revoked: remove the file",
        ),
        (
            "/control/revocations_file_trouble",
            json!({ "problem": "revocations_file has 80000 of at most 100000 lines", "what_to_do": "move it away" }),
            "the domains-service: revocations_file has 80000 of at most 100000 lines: move it away",
        ),
        (
            "/control",
            json!({ "unreachable": "It does not answer. (storage_unavailable)", "code": "storage_unavailable" }),
            "the database of the domains-service failed 0 seconds ago: storage_unavailable",
        ),
        (
            "/control/trouble",
            json!({ "code": "storage_unavailable", "seconds_ago": 2 }),
            "the database of the domains-service failed 2 seconds ago: storage_unavailable: start the database",
        ),
        (
            "/control/trouble",
            json!({ "code": "storage_full", "seconds_ago": 2 }),
            "storage_full: free space on the disk of the database",
        ),
        (
            "/control/trouble",
            json!({ "code": "resolver_unavailable", "seconds_ago": 2 }),
            "the domains-service got no answer from any DNS resolver 2 seconds ago: check the network",
        ),
        (
            "/control/trouble",
            json!({ "code": "internal_error", "seconds_ago": 2 }),
            "the domains-service failed to process a request 2 seconds ago (internal_error): read the reason in its log",
        ),
        (
            "/control/unreadable_rows",
            json!({ "total": 1, "rows": [{
                "table": "domains", "row": "a.example", "of": "prj_1", "column": "checks", "reason": "EOF",
            }] }),
            "cannot read column checks of row a.example of prj_1 in domains and skips the row: EOF",
        ),
        (
            "/withdrawals",
            json!({ "total": 2, "withdrawals": [
                { "what": "key", "which": "key_a", "project": "demo", "since": "2026-06-15T00:00:00Z", "lagging": ["edge/gw-2"] },
                { "what": "name", "which": "a.example", "project": "demo", "since": "2026-06-15T00:00:01Z", "lagging": ["edge/gw-1", "edge/gw-2"] },
            ] }),
            "2 withdrawals are not confirmed by edge/gw-1, edge/gw-2, which may still serve them; the oldest is the key key_a of project demo",
        ),
        ("/orders", json!({ "unreachable": "refused" }), "the orders-service does not answer: refused"),
        (
            "/orders/trust_seconds_old",
            json!(600),
            "not received the trusted keys from the control plane for 10 minutes",
        ),
        (
            "/orders/store_trouble/seconds_ago",
            json!(3),
            "the database of the orders-service failed 3 seconds ago: full: free space",
        ),
    ]);
}

/// Checks that the words are the only trouble found where all is healthy but for the value at a place, and that it has a
/// next step.
fn each_is_named(cases: &[(&str, Value, &str)]) {
    for (place, value, words) in cases {
        let mut all = healthy();
        all.pointer_mut(place).unwrap().clone_from(value);
        let found = said(&all);
        assert!(found.len() == 1 && found[0].contains(words), "{place}: {found:?}");
        let what_to_do = &find(&all)[0].what_to_do;
        assert!(what_to_do.len() > 2, "{place} has no next step: {what_to_do:?}");
    }
}
