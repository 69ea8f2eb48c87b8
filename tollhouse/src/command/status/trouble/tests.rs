use super::*;

fn healthy() -> Value {
    json!({
        "edges": [{
            "gateway": "edge-1", "node": "gw-1", "address": "10.0.0.1:9901", "ready": true, "draining": false, "revision": 7,
            "replica_refuses": null, "unheard": null,
            "now": 1_000, "feed_heard_at": 999, "clock_behind_milliseconds": 40,
            "clocks_off_milliseconds": { "quota_store": null, "control_plane": 59_000 }, "quota": { "mode": "lease" }, "log_lines_dropped": 0,
            "damaged_files": [],
            "upstreams": [{ "name": "orders", "endpoints": 1, "up": 1 }],
            "platform_certificate_faults": [], "listener_certificate_faults": [], "certificates_set_aside": [],
            "certificates": [{ "host": "a.example", "lifetime_left": 0.6 }],
        }],
        "control": { "revision": 7, "trouble": null, "unreadable_rows": null, "sealed_with_older": 3, "sealed_with_missing": 0,
            "credential_files_refused": [], "gateways_of_another_history": [], "listener_certificate_faults": [] },
        "orders": { "version": "1", "store_trouble": { "kind": "full", "seconds_ago": 61 }, "trust_seconds_old": 60 },
        "nodes": { "revision": 7 },
        "withdrawals": { "withdrawals": [], "total": 0 },
    })
}

#[test]
fn a_healthy_platform_has_no_trouble() {
    assert_eq!(find(&healthy()), Vec::<String>::new());
}

#[test]
fn a_gateway_that_cannot_take_what_it_hears_is_named_once() {
    let mut all = healthy();
    for (field, value) in
        [("revision", json!(0)), ("feed_heard_at", json!(0)), ("replica_refuses", json!("the disk is full"))]
    {
        *all.pointer_mut(&format!("/edges/0/{field}")).unwrap() = value;
    }
    assert_eq!(find(&all), ["gateway edge-1/gw-1 (10.0.0.1:9901) has nothing to serve yet: the disk is full"]);
}

#[test]
fn every_fault_is_named() {
    let cases = [
        (
            "/edges/0",
            json!({ "gateway": "edge-1", "address": "10.0.0.1:9901", "unreachable": "refused" }),
            "gateway edge-1 (10.0.0.1:9901) does not answer",
        ),
        ("/edges/0/ready", json!(false), "is not ready"),
        ("/edges/0/draining", json!(true), "is out of rotation"),
        ("/edges/0/unheard", json!("held"), "serves nothing until the control plane has heard it"),
        ("/edges/0/unheard", json!("served"), "serves what it knew when it was stopped in order"),
        ("/edges/0/replica_refuses", json!("another database"), "serves what it knew before: another database"),
        ("/edges/0/clock_behind_milliseconds", json!(-90_400), "(10.0.0.1:9901) is 90 s ahead"),
        (
            "/edges/0/clocks_off_milliseconds/control_plane",
            json!(90_400),
            "the clocks of gateway edge-1/gw-1 (10.0.0.1:9901) and of the control plane are 90 s apart",
        ),
        ("/edges/0/clocks_off_milliseconds/quota_store", json!(-60_001), "and of the quota store are 60 s apart"),
        ("/edges/0/quota/mode", json!("share"), "counts without the quota store: share"),
        ("/edges/0/feed_heard_at", json!(900), "last heard the control plane 100 seconds ago"),
        ("/edges/0/feed_heard_at", json!(0), "has not heard the control plane since it started"),
        ("/edges/0/upstreams/0/up", json!(0), "reaches 0 of 1 addresses of the service orders"),
        ("/edges/0/certificates/0/lifetime_left", json!(0.2), "the certificate of a.example has 20 %"),
        (
            "/edges/0/platform_certificate_faults",
            json!(["p.pem is refused, and the certificate in use stays"]),
            "gateway edge-1/gw-1 (10.0.0.1:9901): p.pem is refused",
        ),
        (
            "/edges/0/listener_certificate_faults",
            json!(["gateway-1.pem is refused, and the certificate in use stays"]),
            "gateway edge-1/gw-1 (10.0.0.1:9901): gateway-1.pem is refused",
        ),
        (
            "/control/listener_certificate_faults",
            json!(["domains-service.pem is refused, and the certificate in use stays"]),
            "the domains-service: domains-service.pem is refused",
        ),
        (
            "/edges/0/certificates_set_aside",
            json!([{ "hostname": "a.example", "reason": "the chain is empty" }]),
            "(10.0.0.1:9901) does not use the newest certificate of a.example and keeps the one before: the chain is empty",
        ),
        (
            "/edges/0/damaged_files",
            json!(["place.damaged"]),
            "(10.0.0.1:9901) found a damaged file in its data directory and started without it: check the disk, then \
             remove place.damaged",
        ),
        ("/edges/0/log_lines_dropped", json!(3), "has dropped 3 log lines"),
        ("/edges/0/revision", json!(5), "is 2 revisions behind"),
        ("/control", json!({ "unreachable": "refused" }), "the domains-service does not answer: refused"),
        ("/control/sealed_with_missing", json!(2), "2 private keys or secrets of webhooks need a sealing secret"),
        (
            "/control/gateways_of_another_history",
            json!(["edge-1", "edge-2"]),
            "lacks changes that these gateways have applied: edge-1, edge-2. It went back",
        ),
        (
            "/control/credential_files_refused",
            json!([{ "file": "secrets/gateways/edge-1.key", "reason": "revoked", "what_to_do": "remove the file" }]),
            "the credential file secrets/gateways/edge-1.key when it started: remove the file",
        ),
        (
            "/control",
            json!({ "unreachable": "It does not answer. (storage_unavailable)", "code": "storage_unavailable" }),
            "the domains-service met trouble with its database 0 seconds ago: storage_unavailable",
        ),
        ("/control/trouble", json!({ "code": "storage_unavailable", "seconds_ago": 2 }), "storage_unavailable"),
        (
            "/control/unreadable_rows",
            json!({ "total": 1, "rows": [{
                "table": "domains", "row": "a.example", "of": "prj_1", "column": "checks", "reason": "EOF",
            }] }),
            "cannot read column checks of row a.example of prj_1 in domains and leaves the row aside: EOF",
        ),
        (
            "/withdrawals",
            json!({ "total": 2, "withdrawals": [
                { "what": "key", "which": "key_a", "project": "demo", "since": "2026-06-15T00:00:00Z", "lagging": ["edge/gw-2"] },
                { "what": "name", "which": "a.example", "project": "demo", "since": "2026-06-15T00:00:01Z", "lagging": ["edge/gw-1", "edge/gw-2"] },
            ] }),
            "2 withdrawals wait for edge/gw-1, edge/gw-2, which may serve them still; the oldest is the key key_a of project demo",
        ),
        ("/orders", json!({ "unreachable": "refused" }), "the orders-service does not answer: refused"),
        ("/orders/trust_seconds_old", json!(600), "told the orders-service 10 minutes ago whose identities"),
        (
            "/orders/store_trouble/seconds_ago",
            json!(3),
            "the orders-service met trouble with its database 3 seconds ago: full",
        ),
    ];
    for (place, value, words) in cases {
        let mut all = healthy();
        *all.pointer_mut(place).unwrap() = value;
        let found = find(&all);
        assert!(found.len() == 1 && found[0].contains(words), "{place}: {found:?}");
    }
}
