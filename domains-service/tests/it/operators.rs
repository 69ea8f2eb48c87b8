//! Operators' tokens: name, expiry, and time of last use.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{Platform, eventually};

async fn status(platform: &Platform, token: &str, path: &str) -> u16 {
    let url = format!("{}{path}", platform.internal);
    platform.client.get(url).bearer_auth(token).send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_token_opens_the_operators_api_until_it_ends_or_is_revoked() {
    let platform = Platform::start().await;
    let made = platform.operator("POST", "/credentials", json!({ "kind": "operator", "name": "ada", "days": 2 })).await;
    assert_eq!(made.status, 201, "{made:?}");
    let ada = made.body["token"].as_str().unwrap().to_owned();
    let again = platform.operator("POST", "/credentials", json!({ "kind": "operator", "name": "ada" })).await;
    assert_eq!(again.code(), (409, "credential_exists"));
    let made = platform.operator("POST", "/credentials", json!({ "kind": "operator", "name": "bob" })).await;
    let bob = made.body["token"].as_str().unwrap().to_owned();
    for token in [&ada, &bob] {
        assert_eq!(status(&platform, token, "/internal/projects").await, 200);
        assert_eq!(status(&platform, token, "/internal/edge/feed?node=a&after=0").await, 401);
    }
    let listed = eventually(async || {
        let listed = platform.operator("GET", "/credentials?kind=operator", Value::Null).await;
        if listed.body["credentials"][0]["last_used_at"].is_string() { Ok(listed) } else { Err(format!("{listed:?}")) }
    })
    .await;
    let names: Vec<_> = listed.body["credentials"].as_array().unwrap().iter().map(|token| &token["name"]).collect();
    assert_eq!(names, ["ada", "bob", "command-line"]);
    assert!(!listed.body.to_string().contains(&ada));
    assert_eq!(platform.operator("DELETE", "/credentials/operator/bob", Value::Null).await.status, 200);
    assert_eq!(status(&platform, &bob, "/internal/projects").await, 401);
    platform.clock.advance(Duration::from_hours(48));
    assert_eq!(status(&platform, &ada, "/internal/projects").await, 401);
    let renewed = platform.operator("POST", "/credentials", json!({ "kind": "operator", "name": "ada" })).await;
    assert_eq!(renewed.status, 201, "the name of one that has ended is free");
}

#[tokio::test]
async fn the_audit_log_names_the_operator_whose_token_it_was() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let made = platform.operator("POST", "/credentials", json!({ "kind": "operator", "name": "ada" })).await;
    let url = format!("{}/internal/projects/demo/domains", platform.internal);
    let add = platform.client.post(url).bearer_auth(made.body["token"].as_str().unwrap());
    let added = add.json(&json!({ "name": "shop.localhost" })).send().await.unwrap();
    assert_eq!(added.status(), 201);
    let events = platform.operator("GET", "/projects/demo/domains/shop.localhost/events", Value::Null).await;
    assert!(events.body.to_string().contains("operator:ada"), "{events:?}");
}
