//! The public listener: accepted identities, and the refusals of all other requests.

use std::collections::BTreeMap;

use contract::token::IDENTITY_TOKEN_HEADER;
use serde_json::{Value, json};

use crate::world::{Answer, Platform};

#[tokio::test]
async fn a_request_without_a_gateways_identity_is_refused() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let url = format!("{}/v1/projects/demo", platform.http);
    let bare = Answer::of(platform.client.get(&url).send().await.unwrap()).await;
    assert_eq!(bare.code(), (401, "identity_required"));
    let forged = platform.client.get(&url).header(IDENTITY_TOKEN_HEADER, "e30.e30.AAAA").send().await.unwrap();
    assert_eq!(Answer::of(forged).await.code(), (401, "identity_required"));
    for path in ["/internal/projects", "/internal/edge/feed?node=a", "/livez"] {
        let hidden = Answer::of(platform.client.get(format!("{}{path}", platform.http)).send().await.unwrap()).await;
        assert_eq!(hidden.code(), (401, "identity_required"), "{path}");
    }
}

#[tokio::test]
async fn operators_need_their_token() {
    let platform = Platform::start().await;
    let edge = platform.gateway().await;
    for path in ["/internal/projects", "/internal/nodes", "/internal/status", "/internal/nothing"] {
        let url = format!("{}{path}", platform.internal);
        let bare = Answer::of(platform.client.get(&url).send().await.unwrap()).await;
        assert_eq!(bare.code(), (401, "token_required"), "{path}");
        let gateways = Answer::of(platform.client.get(&url).bearer_auth(&edge).send().await.unwrap()).await;
        assert_eq!(gateways.code(), (401, "token_required"), "{path}");
    }
}

// rule: 7.1
#[tokio::test]
async fn every_refusal_is_an_error_body() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let owner = platform.owner("demo");
    let nowhere = owner.get("/v1/nothing").await;
    assert_eq!(nowhere.code(), (404, "not_found"));
    assert_eq!(nowhere.header("content-type"), "application/json");
    let method = owner.send("PUT", "/v1/projects/demo/domains", Value::Null).await;
    assert_eq!(method.code(), (405, "method_not_allowed"));
    let mut allowed: Vec<&str> = method.header("allow").split(',').collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
    let encoded = owner.get("/v1/projects/%ff/domains").await;
    assert_eq!(encoded.code(), (404, "not_found"));
    let large = owner.send("POST", "/v1/projects/demo/domains", json!({ "name": "x".repeat(20_000) })).await;
    assert_eq!(large.code(), (413, "body_too_large"));
    let query = owner.get("/v1/projects/demo/domains?limit=many").await;
    assert_eq!(query.code(), (400, "invalid_query"));
    let codes: BTreeMap<&str, u16> = domains_service::catalogue().map(|entry| (entry.code, entry.status)).collect();
    for answer in [nowhere, method, encoded, large, query] {
        assert_eq!(codes.get(answer.code().1), Some(&answer.status));
        assert_eq!(answer.body["status"], answer.status);
        assert_eq!(answer.body.as_object().unwrap().len(), 3, "{:?}", answer.body);
    }
}

#[tokio::test]
async fn requests_and_states_are_counted() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    platform.owner("demo").get("/v1/projects/demo").await;
    platform.owner("demo").get("/v1/nothing").await;
    let text = platform.metrics().await;
    for line in [
        "domains_http_requests_total{operation=\"showProject\",status_class=\"2xx\"} 1",
        "domains_http_requests_total{operation=\"createProject\",status_class=\"2xx\"} 1",
        "domains_http_requests_total{operation=\"unknown\",status_class=\"4xx\"} 1",
        "domains_state{state=\"active\"} 1",
        "domains_state{state=\"degraded\"} 0",
        "domains_certificate_orders_total{result=\"issued\"} 1",
        "domains_dns_queries_total{result=\"timeout\",type=\"caa\"} 0",
    ] {
        assert!(text.contains(line), "{line} not in:\n{text}");
    }
    assert!(text.contains("domains_transitions_total{from=\"issuing\",to=\"active\"} 1"));
    assert!(text.contains("domains_revision "));
}

#[tokio::test]
async fn health_is_only_on_the_admin_listener() {
    let platform = Platform::start().await;
    for (path, status) in [("/livez", 200), ("/readyz", 200), ("/metrics", 200), ("/internal/projects", 404)] {
        let answer = platform.client.get(format!("{}{path}", platform.admin)).send().await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
    }
}
