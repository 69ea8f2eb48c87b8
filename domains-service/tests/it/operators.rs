//! Operators' tokens: with a name, an end, and the time of their last use.

use std::time::Duration;

use chassis::secret::Secret;
use serde_json::{Value, json};

use crate::stores::{execute, over_postgres};
use crate::world::{Platform, eventually};

async fn status(platform: &Platform, token: &str, path: &str) -> u16 {
    let url = format!("{}{path}", platform.internal);
    platform.client.get(url).bearer_auth(token).send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_token_opens_the_operators_api_until_it_ends_or_is_revoked() {
    let platform = Platform::start().await;
    let made = platform.operator("POST", "/operator-tokens", json!({ "name": "ada", "days": 2 })).await;
    assert_eq!(made.status, 201, "{made:?}");
    let ada = made.body["token"].as_str().unwrap().to_owned();
    let again = platform.operator("POST", "/operator-tokens", json!({ "name": "ada" })).await;
    assert_eq!(again.code(), (409, "token_exists"));
    let made = platform.operator("POST", "/operator-tokens", json!({ "name": "bob" })).await;
    let bob = made.body["token"].as_str().unwrap().to_owned();
    for token in [&ada, &bob] {
        assert_eq!(status(&platform, token, "/internal/projects").await, 200);
        assert_eq!(status(&platform, token, "/internal/edge/feed?node=a&after=0").await, 401);
    }
    let listed = eventually(200, async || {
        let listed = platform.operator("GET", "/operator-tokens", Value::Null).await;
        if listed.body["tokens"][0]["last_used_at"].is_string() { Ok(listed) } else { Err(format!("{listed:?}")) }
    })
    .await;
    let names: Vec<_> = listed.body["tokens"].as_array().unwrap().iter().map(|token| &token["name"]).collect();
    assert_eq!(names, ["ada", "bob"]);
    assert!(!listed.body.to_string().contains(&ada));
    assert_eq!(platform.operator("DELETE", "/operator-tokens/bob", Value::Null).await.status, 204);
    assert_eq!(status(&platform, &bob, "/internal/projects").await, 401);
    platform.clock.advance(Duration::from_hours(48));
    assert_eq!(status(&platform, &ada, "/internal/projects").await, 401);
    let renewed = platform.operator("POST", "/operator-tokens", json!({ "name": "ada" })).await;
    assert_eq!(renewed.status, 201, "the name of one that has ended is free");
}

#[tokio::test]
async fn the_audit_log_names_the_operator_whose_token_it_was() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let made = platform.operator("POST", "/operator-tokens", json!({ "name": "ada" })).await;
    let url = format!("{}/internal/projects/demo/domains", platform.internal);
    let add = platform.client.post(url).bearer_auth(made.body["token"].as_str().unwrap());
    let added = add.json(&json!({ "name": "shop.localhost" })).send().await.unwrap();
    assert_eq!(added.status(), 201);
    let events = platform.operator("GET", "/projects/demo/domains/shop.localhost/events", Value::Null).await;
    assert!(events.body.to_string().contains("operator:ada"), "{events:?}");
}

#[tokio::test]
async fn credentials_are_accepted_while_the_database_takes_no_writes() {
    let platform = Platform::start().await;
    let mut tokens = Vec::new();
    let made = platform.operator("POST", "/operator-tokens", json!({ "name": "ada" })).await;
    tokens.push(("/internal/projects", made.body["token"].as_str().unwrap().to_owned()));
    for (kind, path) in [("gateway", "/internal/edge/feed?node=a&after=0"), ("service", "/internal/erasures")] {
        let made = platform.operator("POST", "/gateways", json!({ "name": kind, "kind": kind })).await;
        let credential = Secret::parse(made.body["credential"].as_str().unwrap()).unwrap();
        tokens.push((path, credential.to_token().to_string()));
    }
    let full = if over_postgres() {
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no space left'; END $$;
         CREATE TRIGGER full_disk BEFORE UPDATE ON operator_tokens EXECUTE FUNCTION full_disk();
         CREATE TRIGGER full_disk BEFORE UPDATE ON gateways EXECUTE FUNCTION full_disk()"
    } else {
        "CREATE TRIGGER full_tokens BEFORE UPDATE ON operator_tokens BEGIN SELECT RAISE(FAIL, 'no space left'); END;
         CREATE TRIGGER full_gateways BEFORE UPDATE ON gateways BEGIN SELECT RAISE(FAIL, 'no space left'); END"
    };
    execute(platform.directory.path(), full).await;
    for (path, token) in &tokens {
        assert_eq!(status(&platform, token, path).await, 200, "{path}");
    }
}
