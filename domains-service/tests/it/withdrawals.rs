//! Withdrawals: every kind is answered, listed, counted and ended in the same way.

mod counters;
mod history;

use std::sync::Arc;

use chassis::clock::Clock as _;
use serde_json::{Value, json};

use crate::stores;
use crate::world::{Answer, Bend, Platform, eventually};

/// A project with two active names, of which one is the primary one, and a gateway that has applied all of it and falls
/// silent.
async fn with_a_silent_gateway() -> Platform {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    for name in ["a.localhost", "b.localhost"] {
        platform.local_domain("demo", json!({ "name": name })).await;
    }
    platform.report("silent", platform.newest_revision().await).await;
    platform.clock.advance(std::time::Duration::from_secs(6));
    platform
}

async fn listed(platform: &Platform) -> Value {
    platform.operator("GET", "/withdrawals", Value::Null).await.body
}

/// Asserts that exactly this withdrawal is listed and waits for the silent gateway, and that operators, metrics and
/// events say the same.
async fn waits(platform: &Platform, what: &str, which: &str) {
    let list = listed(platform).await;
    let one = &list["withdrawals"][0];
    let (now, seconds) = (platform.clock.now(), platform.clock.now_seconds().0);
    assert_eq!((&list["total"], &one["what"], &one["which"]), (&json!(1), &json!(what), &json!(which)), "{list}");
    assert_eq!((&one["project"], &one["lagging"]), (&json!("demo"), &json!(["tests/silent"])), "{list}");
    assert_eq!(one["since"].as_str().unwrap(), jiff::Timestamp::from_millisecond(now.0).unwrap().to_string());
    assert_eq!(platform.operator("GET", "/status", Value::Null).await.body["withdrawals"], 1);
    let metrics = platform.metrics().await;
    for line in [
        format!("domains_withdrawals{{what=\"{what}\"}} 1"),
        format!("domains_withdrawal_awaited_timestamp_seconds{{process=\"tests/silent\"}} {seconds}"),
        format!("domains_withdrawal_oldest_timestamp_seconds {seconds}"),
    ] {
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
}

/// The gateway applies everything: no withdrawal waits any more.
async fn ends(platform: &Platform) {
    platform.report("silent", platform.newest_revision().await).await;
    eventually(async || {
        let list = listed(platform).await;
        if list == json!({ "withdrawals": [], "total": 0 }) { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    let metrics = platform.metrics().await;
    assert!(!metrics.contains("domains_withdrawal_awaited_timestamp_seconds{"), "{metrics}");
    assert!(metrics.contains("domains_withdrawal_oldest_timestamp_seconds 0"), "{metrics}");
}

fn is_202(answer: &Answer) {
    assert_eq!((answer.status, &answer.body["lagging"]), (202, &json!(["tests/silent"])), "{answer:?}");
    assert!(answer.header("x-edge-ack").starts_with("0/1; "), "{answer:?}");
}

/// The project's newest event of a waiting withdrawal.
async fn event(platform: &Platform, what: &str) {
    let events = platform.owner("demo").get("/v1/projects/demo/events").await.body;
    let newest = events["events"].as_array().unwrap().iter().find(|event| event["type"] == "withdrawal.waiting");
    let detail = &newest.unwrap()["detail"];
    assert_eq!((&detail["what"], &detail["lagging"]), (&json!(what), &json!(["tests/silent"])), "{events}");
}

// rule: 1.19
// promise: domains.3
#[tokio::test]
async fn a_removed_name_waits_for_a_silent_gateway() {
    let platform = with_a_silent_gateway().await;
    let owner = platform.owner("demo");
    let path = "/v1/projects/demo/domains/b.localhost";
    is_202(&owner.send("DELETE", path, Value::Null).await);
    event(&platform, "name").await;
    waits(&platform, "name", "b.localhost").await;
    is_202(&owner.send("DELETE", path, Value::Null).await);
    let shown = owner.get(path).await.body;
    assert_eq!((&shown["status"], &shown["withdrawal"]["lagging"]), (&json!("removing"), &json!(["tests/silent"])));
    let events = owner.get(&format!("{path}/events")).await.body;
    let told = events["events"].as_array().unwrap().iter().filter(|event| event["type"] == "withdrawal.waiting");
    assert_eq!(told.count(), 1, "{events}");
    ends(&platform).await;
    assert_eq!(owner.send("DELETE", path, Value::Null).await.code(), (404, "domain_not_found"));
    let last = owner.send("DELETE", "/v1/projects/demo/domains/a.localhost", Value::Null);
    assert_eq!(platform.while_following("silent", last).await.status, 204);
}

// promise: domains.3, edge.18
#[tokio::test]
async fn a_revoked_key_waits_for_a_silent_gateway() {
    let platform = with_a_silent_gateway().await;
    let owner = platform.owner("demo");
    let body = json!({ "scopes": ["orders:read"] });
    let key = owner.send("POST", "/v1/projects/demo/keys", body.clone()).await.body;
    let path = format!("/v1/projects/demo/keys/{}", key["id"].as_str().unwrap());
    is_202(&owner.send("DELETE", &path, Value::Null).await);
    event(&platform, "key").await;
    waits(&platform, "key", key["id"].as_str().unwrap()).await;
    is_202(&owner.send("DELETE", &path, Value::Null).await);
    let listed = async || {
        let keys = owner.get("/v1/projects/demo/keys").await.body;
        keys["keys"].as_array().unwrap().iter().find(|one| one["id"] == key["id"]).cloned().unwrap()
    };
    assert_eq!(listed().await["withdrawal"]["lagging"], json!(["tests/silent"]));
    ends(&platform).await;
    assert_eq!(owner.send("DELETE", &path, Value::Null).await.status, 204);
    assert_eq!(listed().await["withdrawal"], Value::Null);
    // A rotation without overlap is a revocation too.
    platform.clock.advance(std::time::Duration::from_secs(6));
    let old = owner.send("POST", "/v1/projects/demo/keys", body).await.body;
    let path = format!("/v1/projects/demo/keys/{}", old["id"].as_str().unwrap());
    platform.report("slow", 1).await;
    let rotated = owner.send("POST", &format!("{path}/rotate"), json!({ "overlap_seconds": 0 })).await;
    let waits = &rotated.body["rotated"]["withdrawal"]["lagging"];
    assert_eq!((rotated.status, waits), (201, &json!(["tests/silent", "tests/slow"])));
}

#[tokio::test]
async fn a_key_that_ends_sooner_after_a_rotation_waits_for_a_silent_gateway() {
    let platform = with_a_silent_gateway().await;
    let owner = platform.owner("demo");
    let body = json!({ "scopes": ["orders:read"] });
    let old = owner.send("POST", "/v1/projects/demo/keys", body).await.body;
    let id = old["id"].as_str().unwrap();
    let path = format!("/v1/projects/demo/keys/{id}");
    let rotate = async || owner.send("POST", &format!("{path}/rotate"), json!({ "overlap_seconds": 60 })).await;
    let rotated = rotate().await;
    let waits_for = &rotated.body["rotated"]["withdrawal"]["lagging"];
    assert_eq!((rotated.status, waits_for), (201, &json!(["tests/silent"])), "{rotated:?}");
    event(&platform, "key").await;
    waits(&platform, "key", id).await;
    ends(&platform).await;
    // Its end is not earlier, so nothing is withdrawn.
    platform.clock.advance(std::time::Duration::from_secs(6));
    let again = rotate().await;
    assert_eq!((again.status, &again.body["rotated"]["withdrawal"]), (201, &Value::Null), "{again:?}");
    assert_eq!(again.body["rotated"]["expires_at"], rotated.body["rotated"]["expires_at"]);
}

// promise: domains.3
#[tokio::test]
async fn a_removed_project_waits_for_a_silent_gateway() {
    let platform = with_a_silent_gateway().await;
    is_202(&platform.operator("DELETE", "/projects/demo", Value::Null).await);
    waits(&platform, "project", "demo").await;
    is_202(&platform.operator("DELETE", "/projects/demo", Value::Null).await);
    let removed = platform.operator("GET", "/removed-projects", Value::Null).await.body;
    assert_eq!(removed["projects"][0]["withdrawal"]["lagging"], json!(["tests/silent"]), "{removed}");
    ends(&platform).await;
    let again = platform.operator("DELETE", "/projects/demo", Value::Null).await;
    assert_eq!(again.code(), (404, "project_not_found"));
}

// promise: domains.3
#[tokio::test]
async fn an_erased_project_waits_for_a_silent_gateway() {
    let platform = with_a_silent_gateway().await;
    for _ in 0..2 {
        is_202(&platform.operator("DELETE", "/projects/demo?now=true", Value::Null).await);
        waits(&platform, "project", "demo").await;
    }
    ends(&platform).await;
    let again = platform.operator("DELETE", "/projects/demo?now=true", Value::Null).await;
    assert_eq!(again.code(), (404, "project_not_found"));
}

// promise: domains.3
#[tokio::test]
async fn a_suspension_waits_for_a_silent_gateway() {
    let platform = with_a_silent_gateway().await;
    for _ in 0..2 {
        let suspended = platform.operator("PATCH", "/projects/demo", json!({ "suspended": true })).await;
        assert_eq!((suspended.status, &suspended.body["suspended"]), (202, &json!(true)), "{suspended:?}");
        assert_eq!(suspended.body["withdrawal"]["lagging"], json!(["tests/silent"]));
        waits(&platform, "suspension", "demo").await;
    }
    let shown = platform.operator("GET", "/projects/demo", Value::Null).await.body;
    assert_eq!(shown["withdrawal"]["lagging"], json!(["tests/silent"]));
    ends(&platform).await;
    let again = platform.operator("PATCH", "/projects/demo", json!({ "suspended": true })).await;
    assert_eq!((again.status, &again.body["withdrawal"]), (200, &Value::Null));
    // A resumed project is served again.
    platform.clock.advance(std::time::Duration::from_secs(6));
    platform.operator("PATCH", "/projects/demo", json!({ "suspended": false })).await;
    platform.report("slow", 1).await;
    let suspended = platform.operator("PATCH", "/projects/demo", json!({ "suspended": true })).await;
    assert_eq!(suspended.status, 202);
    assert_eq!(platform.operator("PATCH", "/projects/demo", json!({ "suspended": false })).await.status, 200);
    assert_eq!(listed(&platform).await["total"], 0);
}

// promise: domains.3
#[tokio::test]
async fn closed_access_waits_for_a_silent_gateway() {
    let platform = with_a_silent_gateway().await;
    let set = async |body: Value| platform.operator("PATCH", "/projects/demo", body).await;
    for (what, open, closed) in [
        ("access", json!({ "access": "public" }), json!({ "access": "key" })),
        ("cors", json!({ "cors": "open" }), json!({ "cors": ["https://app.example"] })),
    ] {
        assert_eq!(set(open.clone()).await.status, 200, "{what}: opening withdraws nothing");
        assert_eq!(listed(&platform).await["total"], 0, "{what}");
        for _ in 0..2 {
            let answer = set(closed.clone()).await;
            assert_eq!((answer.status, &answer.body["withdrawal"]["what"]), (202, &json!(what)), "{answer:?}");
            assert_eq!(answer.body["withdrawal"]["lagging"], json!(["tests/silent"]));
            waits(&platform, what, "demo").await;
        }
        event(&platform, what).await;
        // Opened again it is served by right.
        assert_eq!(set(open.clone()).await.status, 200, "{what}");
        assert_eq!(listed(&platform).await["total"], 0, "{what}");
        assert_eq!(set(closed.clone()).await.status, 202, "{what}");
        ends(&platform).await;
        let again = set(closed).await;
        assert_eq!((again.status, &again.body["withdrawal"]), (200, &Value::Null), "{what}");
        platform.clock.advance(std::time::Duration::from_secs(6));
    }
}

// promise: domains.3
#[tokio::test]
async fn an_upstream_that_a_project_leaves_waits_for_a_silent_gateway() {
    let platform = with_a_silent_gateway().await;
    for upstream in ["other", "orders"] {
        let moved = platform.operator("PATCH", "/projects/demo", json!({ "upstream": upstream })).await;
        assert_eq!((moved.status, &moved.body["upstream"]), (202, &json!(upstream)), "{moved:?}");
        waits(&platform, "upstream", "demo").await;
    }
    // Two withdrawals of one change.
    let closed = platform.operator("PATCH", "/projects/demo", json!({ "upstream": "third", "suspended": true })).await;
    assert_eq!((closed.status, &closed.body["withdrawal"]["what"]), (202, &json!("suspension")), "{closed:?}");
    assert_eq!(listed(&platform).await["total"], 2);
    ends(&platform).await;
}

// promise: domains.3
#[tokio::test]
async fn a_changed_redirect_waits_for_a_silent_gateway() {
    let platform = with_a_silent_gateway().await;
    let owner = platform.owner("demo");
    let path = "/v1/projects/demo/domains/b.localhost";
    let body = json!({ "redirect": { "to": "a.localhost" } });
    for _ in 0..2 {
        let changed = owner.send("PATCH", path, body.clone()).await;
        assert_eq!((changed.status, &changed.body["redirect"]["to"]), (202, &json!("a.localhost")), "{changed:?}");
        assert_eq!(changed.body["withdrawal"]["lagging"], json!(["tests/silent"]));
        waits(&platform, "redirect", "b.localhost").await;
    }
    event(&platform, "redirect").await;
    let shown = owner.get(path).await;
    assert_eq!(shown.body["withdrawal"]["what"], "redirect");
    ends(&platform).await;
    let after = owner.get(path).await;
    assert_eq!(after.body["withdrawal"], Value::Null);
    assert_eq!(shown.header("etag"), after.header("etag"), "the record is the same");
    assert_eq!(owner.send("PATCH", path, body).await.status, 200);
}

#[tokio::test]
async fn a_name_that_the_worker_takes_away_waits_for_a_silent_gateway() {
    let platform = with_a_silent_gateway().await;
    platform.operator("PATCH", "/projects/demo", json!({ "plan": "free" })).await;
    platform.clock.advance(std::time::Duration::from_hours(7 * 24 - 1));
    platform.report("cut-off", platform.newest_revision().await).await;
    platform.clock.advance(std::time::Duration::from_hours(2));
    for name in ["a.localhost", "b.localhost"] {
        platform.operator("POST", &format!("/projects/demo/domains/{name}/verify"), Value::Null).await;
    }
    let suspended = platform.domain_in("demo", "b.localhost", "suspended").await;
    assert_eq!(
        (&suspended["withdrawal"]["what"], &suspended["withdrawal"]["lagging"]),
        (&json!("name"), &json!(["tests/cut-off"]))
    );
    // Served again, by right.
    platform.operator("PATCH", "/projects/demo", json!({ "plan": "pro" })).await;
    for name in ["a.localhost", "b.localhost"] {
        let active = platform.domain_in("demo", name, "active").await;
        assert_eq!(active["withdrawal"], Value::Null);
    }
    assert_eq!(listed(&platform).await["total"], 0);
}

// promise: domains.3
#[tokio::test]
async fn withdrawals_survive_a_restart() {
    let mut platform = with_a_silent_gateway().await;
    let owner = platform.owner("demo");
    let body = json!({ "suspended": true });
    assert_eq!(platform.operator("PATCH", "/projects/demo", body).await.status, 202);
    assert_eq!(owner.send("DELETE", "/v1/projects/demo/domains/b.localhost", Value::Null).await.status, 202);
    platform.stop().await;
    let directory: Arc<_> = platform.directory.clone();
    let platform = Platform::bent(Bend { directory: Some(directory), ..Bend::default() }).await;
    let list = listed(&platform).await;
    let whats: Vec<&str> =
        list["withdrawals"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
    assert_eq!(whats, ["suspension", "name"], "{list}");
    assert!(
        list["withdrawals"].as_array().unwrap().iter().all(|one| one["lagging"] == json!(["tests/silent"])),
        "{list}"
    );
    ends(&platform).await;
}

#[tokio::test]
async fn a_withdrawal_beyond_the_maximum_waits_like_the_oldest_on_record() {
    let platform = with_a_silent_gateway().await;
    let owner = platform.owner("demo");
    let key = owner.send("POST", "/v1/projects/demo/keys", json!({ "scopes": ["orders:read"] })).await.body;
    let path = format!("/v1/projects/demo/keys/{}", key["id"].as_str().unwrap());
    is_202(&owner.send("DELETE", &path, Value::Null).await);
    let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
         INSERT INTO withdrawals (what, which, project, project_name, revision, since)
         SELECT 'key', 'key ' || i, project, project_name, revision, since FROM withdrawals, n";
    stores::execute(platform.directory.path(), many).await;
    let forgotten = format!("DELETE FROM withdrawals WHERE which = '{}'", key["id"].as_str().unwrap());
    stores::execute(platform.directory.path(), &forgotten).await;
    is_202(&owner.send("DELETE", &path, Value::Null).await);
    ends(&platform).await;
    assert_eq!(owner.send("DELETE", &path, Value::Null).await.status, 204);
}
