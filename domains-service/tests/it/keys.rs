//! API keys: created, shown once, rotated, revoked; stored as digests.

use chassis::clock::Clock as _;
use contract::feed::{Effect, Entity, EntityName};
use contract::key::{PresentedKey, Scope};
use serde_json::{Value, json};

use crate::world::{Bend, Platform};

const KEYS: &str = "/v1/projects/demo/keys";

// rule: 5.4
#[tokio::test]
async fn a_key_is_shown_once_and_published_as_a_digest() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let owner = platform.owner("demo");
    let body =
        json!({ "label": "ci", "scopes": ["orders:write", "orders:read"], "expires_at": "2027-01-31T00:00:00Z" });
    let made = owner.send("POST", KEYS, body).await;
    assert_eq!((made.status, made.header("cache-control")), (201, "no-store"));
    let secret = PresentedKey::parse(made.body["key"].as_str().unwrap()).unwrap();
    assert_eq!((&made.body["prefix"], made.body["last4"].as_str().unwrap()), (&json!("th_live_"), secret.last4()));
    assert_eq!(made.body["scopes"], json!(["orders:read", "orders:write"]));
    assert_eq!(made.body["expires_at"], "2027-01-31T00:00:00Z");
    let listed = owner.get(KEYS).await.body;
    // The other is the caller's own.
    let listed: Vec<_> = listed["keys"].as_array().unwrap().iter().collect();
    assert!(listed.len() == 2 && listed.iter().any(|one| one["id"] == made.body["id"]), "{listed:?}");
    assert!(listed.iter().all(|one| one.get("key").is_none()), "{listed:?}");
    let published = platform.snapshot().await.into_iter().find_map(|entity| match entity {
        Entity::Key(key) if key.id.as_str() == made.body["id"] => Some(key),
        _ => None,
    });
    let published = published.unwrap();
    assert_eq!(published.digest, secret.digest());
    assert!(published.scopes.contains(Scope::OrdersWrite) && !published.scopes.contains(Scope::KeysWrite));
}

#[tokio::test]
async fn keys_at_rest_are_digests() {
    let mut platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let made = platform.owner("demo").send("POST", KEYS, json!({ "scopes": ["orders:read"] })).await;
    let secret = made.body["key"].as_str().unwrap().to_owned();
    platform.stop().await;
    let bytes = crate::stores::at_rest(platform.directory.path());
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("orders:read"), "the database was read");
    assert!(!holds(&secret) && !holds(&secret[8..38]), "neither the key nor its random part is there");
}

#[tokio::test]
async fn a_caller_cannot_grant_a_scope_that_it_lacks() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let limited = platform.caller("demo", &[Scope::KeysWrite, Scope::OrdersRead]);
    let more = limited.send("POST", KEYS, json!({ "scopes": ["orders:read", "orders:write"] })).await;
    assert_eq!(more.code(), (403, "scope_not_grantable"));
    assert_eq!(limited.send("POST", KEYS, json!({ "scopes": ["orders:read"] })).await.status, 201);
    let full = platform.owner("demo").send("POST", KEYS, json!({ "scopes": ["domains:write"] })).await;
    let path = format!("{KEYS}/{}/rotate", full.body["id"].as_str().unwrap());
    assert_eq!(limited.send("POST", &path, Value::Null).await.code(), (403, "scope_not_grantable"));
    let without = platform.caller("demo", &[Scope::OrdersRead]);
    for (method, path) in [("POST", KEYS), ("GET", KEYS), ("DELETE", &format!("{KEYS}/key_aaaaaaaaaaaaaaaa"))] {
        let body = if method == "POST" { json!({ "scopes": ["orders:read"] }) } else { Value::Null };
        assert_eq!(without.send(method, path, body).await.code(), (403, "insufficient_scope"), "{method}");
    }
}

#[tokio::test]
async fn things_of_another_project_are_not_found() {
    let platform = Platform::start().await;
    for project in ["demo", "other"] {
        platform.project(project, "pro").await;
    }
    let theirs = platform.owner("other");
    let key = theirs.send("POST", "/v1/projects/other/keys", json!({ "scopes": ["orders:read"] })).await;
    let url = json!({ "url": "https://hooks.example.com/" });
    let webhook = theirs.send("POST", "/v1/projects/other/webhooks", url).await;
    platform.local_domain("other", json!({ "name": "shop.localhost" })).await;
    let key = format!("keys/{}", key.body["id"].as_str().unwrap());
    let webhook = format!("webhooks/{}", webhook.body["id"].as_str().unwrap());
    let owner = platform.owner("demo");
    for (method, path, body) in [
        ("POST", format!("{key}/rotate"), Value::Null),
        ("DELETE", key, Value::Null),
        ("GET", webhook.clone(), Value::Null),
        ("PATCH", webhook.clone(), json!({ "enabled": false })),
        ("POST", format!("{webhook}/rotate"), Value::Null),
        ("POST", format!("{webhook}/test"), Value::Null),
        ("GET", format!("{webhook}/deliveries"), Value::Null),
        ("POST", format!("{webhook}/deliveries/1/repeat"), Value::Null),
        ("DELETE", webhook, Value::Null),
        ("GET", "domains/shop.localhost".to_owned(), Value::Null),
        ("PATCH", "domains/shop.localhost".to_owned(), json!({ "redirect": null })),
        ("POST", "domains/shop.localhost/verify".to_owned(), Value::Null),
        ("GET", "domains/shop.localhost/events".to_owned(), Value::Null),
        ("DELETE", "domains/shop.localhost".to_owned(), Value::Null),
    ] {
        let answer = owner.send(method, &format!("/v1/projects/demo/{path}"), body).await;
        assert!(answer.status == 404 && answer.code().1.ends_with("_not_found"), "{method} {path}: {answer:?}");
    }
}

// rule: 5.4
#[tokio::test]
async fn a_rotated_key_overlaps_with_its_successor() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let owner = platform.owner("demo");
    let old = owner.send("POST", KEYS, json!({ "label": "ci", "scopes": ["orders:read"] })).await.body;
    let rotate = format!("{KEYS}/{}/rotate", old["id"].as_str().unwrap());
    let new = owner.send("POST", &rotate, json!({ "overlap_seconds": 3600.0 })).await;
    assert_eq!((new.status, &new.body["label"], &new.body["scopes"]), (201, &json!("ci"), &json!(["orders:read"])));
    assert_ne!(new.body["key"], old["key"]);
    assert_eq!(new.body["rotated"]["expires_at"], "2026-06-15T01:00:00Z");
    let expiry = platform.snapshot().await.into_iter().find_map(|entity| match entity {
        Entity::Key(key) if key.id.as_str() == old["id"] => Some(key.expires_at),
        _ => None,
    });
    assert_eq!(expiry.unwrap(), Some(platform.clock.now_seconds().plus(3_600)));
    // Without an overlap the old key is gone at once.
    let path = format!("{KEYS}/{}/rotate", new.body["id"].as_str().unwrap());
    let last = owner.send("POST", &path, json!({ "overlap_seconds": 0 })).await;
    assert_eq!(last.body["rotated"]["revoked"], true);
    assert_eq!(owner.send("POST", &path, Value::Null).await.code(), (409, "key_not_usable"));
    for wrong in [json!(2_592_001), json!(-1), json!(0.5), json!(4_294_967_296_i64)] {
        let refused = owner.send("POST", &path, json!({ "overlap_seconds": wrong })).await;
        assert_eq!(refused.code(), (400, "invalid_body"), "{wrong}");
    }
    assert_eq!(owner.send("POST", &path, json!([3600])).await.code(), (400, "invalid_body"), "a list is no object");
    platform.clock.advance(std::time::Duration::from_hours(1));
    assert_eq!(owner.send("POST", &rotate, Value::Null).await.code(), (409, "key_not_usable"), "the first has ended");
}

#[tokio::test]
async fn revoking_reaches_the_edge_and_can_be_repeated() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let owner = platform.owner("demo");
    let made = owner.send("POST", KEYS, json!({ "scopes": ["orders:read"] })).await.body;
    let digest = PresentedKey::parse(made["key"].as_str().unwrap()).unwrap().digest();
    let (_, revision) = platform.follow(0).await.snapshot().await;
    let mut stream = platform.follow(revision).await;
    let path = format!("{KEYS}/{}", made["id"].as_str().unwrap());
    assert_eq!(owner.send("DELETE", &path, Value::Null).await.status, 204);
    assert_eq!(stream.change().await.effect, Effect::Remove(EntityName::Key(digest)));
    assert_eq!(owner.send("DELETE", &path, Value::Null).await.status, 204);
    let unknown = owner.send("DELETE", &format!("{KEYS}/key_aaaaaaaaaaaaaaaa"), Value::Null).await;
    assert_eq!(unknown.code(), (404, "key_not_found"));
    assert_eq!(owner.send("DELETE", &format!("{KEYS}/nonsense"), Value::Null).await.code(), (404, "key_not_found"));
    let listed = owner.get(KEYS).await.body;
    let revoked = |key: &Value| key["id"] == made["id"] && key["revoked"] == true;
    assert!(listed["keys"].as_array().unwrap().iter().any(revoked), "{listed}");
}

#[tokio::test]
async fn wrong_keys_are_refused() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let owner = platform.owner("demo");
    for body in [
        json!({}),
        json!({ "scopes": [] }),
        json!({ "scopes": ["everything"] }),
        json!({ "scopes": ["orders:read"], "label": "x".repeat(101) }),
        json!({ "scopes": ["orders:read"], "label": "x\u{1b}[31mRED\u{7}" }),
        json!({ "scopes": ["orders:read"], "label": "ci\nkey_forged" }),
        json!({ "scopes": ["orders:read"], "label": "\u{202e}yolped" }),
        json!({ "scopes": ["orders:read"], "label": "\u{9b}2J" }),
        json!({ "scopes": ["orders:read"], "expires_at": "tomorrow" }),
        json!({ "scopes": ["orders:read"], "expires_at": "2020-01-01T00:00:00Z" }),
        json!({ "scopes": ["orders:read"], "key": "mine" }),
    ] {
        assert_eq!(owner.send("POST", KEYS, body.clone()).await.code(), (400, "invalid_body"), "{body}");
    }
    let theirs = owner.send("POST", "/v1/projects/other/keys", json!({ "scopes": ["orders:read"] })).await;
    assert_eq!(theirs.code(), (404, "project_not_found"));
    let unknown = platform.operator("POST", "/projects/unknown/keys", json!({ "scopes": ["orders:read"] })).await;
    assert_eq!(unknown.code(), (404, "project_not_found"));
}

#[tokio::test]
async fn a_project_has_a_bounded_number_of_keys() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let mut last = Value::Null;
    for _ in 0..100 {
        let made = platform.operator("POST", "/projects/demo/keys", json!({ "scopes": ["orders:read"] })).await;
        assert_eq!(made.status, 201);
        last = made.body["id"].clone();
    }
    let make = || platform.operator("POST", "/projects/demo/keys", json!({ "scopes": ["orders:read"] }));
    assert_eq!(make().await.code(), (403, "key_limit_reached"));
    let path = format!("/projects/demo/keys/{}", last.as_str().unwrap());
    assert_eq!(platform.operator("DELETE", &path, Value::Null).await.status, 204);
    assert_eq!(make().await.status, 201);
}

#[tokio::test]
async fn keys_survive_a_restart() {
    let mut platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let made = platform.operator("POST", "/projects/demo/keys", json!({ "scopes": ["orders:read"] })).await.body;
    platform.stop().await;
    let bend = Bend { directory: Some(platform.directory.clone()), ..Bend::default() };
    let again = Platform::bent(bend).await;
    let keys = again.operator("GET", "/projects/demo/keys", Value::Null).await.body;
    assert_eq!(keys["keys"][0]["id"], made["id"]);
    assert!(again.snapshot().await.iter().any(|entity| matches!(entity, Entity::Key(_))));
}

#[tokio::test]
async fn the_number_of_revoked_keys_is_bounded() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let mut id =
        platform.operator("POST", "/projects/demo/keys", json!({ "scopes": ["orders:read"] })).await.body["id"].clone();
    let first = id.clone();
    // Each rotation without an overlap leaves a revoked key.
    for _ in 0..405 {
        platform.clock.advance(std::time::Duration::from_millis(1));
        let path = format!("/projects/demo/keys/{}/rotate", id.as_str().unwrap());
        let rotated = platform.operator("POST", &path, json!({ "overlap_seconds": 0 })).await;
        assert_eq!(rotated.status, 201, "{rotated:?}");
        id = rotated.body["id"].clone();
    }
    let mut listed = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = platform.operator("GET", &format!("/projects/demo/keys?limit=150{cursor}"), Value::Null).await.body;
        let keys = page["keys"].as_array().unwrap();
        assert!(keys.len() <= 150);
        listed.extend(keys.iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let ids: std::collections::BTreeSet<&str> = listed.iter().map(|key| key["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), listed.len(), "no page repeats a key");
    assert_eq!(listed.iter().filter(|key| key["revoked"] == false).count(), 1);
    assert!((400..=402).contains(&listed.len()), "{} keys are listed", listed.len());
    assert!(!ids.contains(first.as_str().unwrap()), "the oldest are forgotten");
    let odd = platform.operator("GET", "/projects/demo/keys?cursor=x", Value::Null).await;
    assert_eq!(odd.code(), (400, "invalid_query"));
}
