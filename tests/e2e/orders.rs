//! The orders API as in the tables of its specification, through the gateway over TLS.

use reqwest::Method;
use serde_json::Value;

use crate::world::{Platform, error, rate_limit_headers};

/// One platform for all steps; each step uses its own orders or leaves them unchanged.
#[tokio::test]
async fn the_orders_api_follows_its_specification() {
    let platform = Platform::start();
    a_key_lists_every_order_of_its_store(&platform).await;
    a_pending_order_is_cancelled_once_and_a_shipped_one_never(&platform).await;
    a_malformed_order_id_is_404(&platform).await;
    without_a_valid_key_every_operation_is_401_and_says_how_to_send_one(&platform).await;
    wrong_methods_paths_and_bodies_are_refused_before_anything_happens(&platform).await;
    a_key_is_limited_to_its_scopes(&platform).await;
    the_pets_operation_says_that_it_goes_away(&platform).await;
    a_project_sees_its_own_store_alone(&platform).await;
}

// rule: 1.1, 1.4, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 4.0.1, 4.0.3, 4.1.1, 4.1.200, 8.5, 8.7, 8.8, 8.9
// promise: orders.3
async fn a_key_lists_every_order_of_its_store(platform: &Platform) {
    let (client, shop) = (platform.client(), platform.project("pro"));
    let response = shop.request(platform, &client, Method::GET, "/v1/store/orders").send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    let (limit, remaining, reset) = rate_limit_headers(&response);
    assert_eq!((limit, remaining, reset % 60), (300, 299, 0));
    let orders: Vec<Value> = response.json().await.unwrap();
    assert_eq!(orders.len(), 40);
    for order in &orders {
        for field in order.as_object().unwrap().keys() {
            assert!(["id", "petId", "quantity", "shipDate", "complete"].contains(&field.as_str()), "{order}");
        }
        assert!(order["id"].is_i64() && order["petId"].is_i64() && order["quantity"].is_i64());
        assert!(order["complete"].is_boolean());
        assert!(order["shipDate"].as_str().unwrap().ends_with('Z'));
    }
}

// rule: 3.1, 3.2, 4.2.1, 4.2.4, 4.2.204, 4.2.404, 4.2.409, 7.1, 7.404, 7.409, 2.8, 2.9, 2.10
async fn a_pending_order_is_cancelled_once_and_a_shipped_one_never(platform: &Platform) {
    let (client, shop) = (platform.client(), platform.project("pro"));
    let (pending, shipped) = (shop.pending[0], shop.shipped[0]);
    let cancelled = shop.cancel(platform, &client, pending).await.unwrap();
    assert_eq!(cancelled.status(), 204);
    assert_eq!(rate_limit_headers(&cancelled).0, 300);
    assert_eq!(cancelled.bytes().await.unwrap().len(), 0);
    let again = shop.cancel(platform, &client, pending).await.unwrap();
    assert_eq!(error(again).await, (409, "order_already_cancelled".to_owned()));
    let shipped = shop.cancel(platform, &client, shipped).await.unwrap();
    assert_eq!(error(shipped).await, (409, "order_already_shipped".to_owned()));
    let unknown = shop.cancel(platform, &client, 4_711).await.unwrap();
    assert_eq!(error(unknown).await, (404, "order_not_found".to_owned()));
    assert!(shop.list(platform, &client).await.iter().any(|order| order["id"] == pending), "it stays in the list");
}

// rule: 4.2.2
async fn a_malformed_order_id_is_404(platform: &Platform) {
    let (client, shop) = (platform.client(), platform.project("pro"));
    for id in
        ["0", "-1", "+5", "05", "5.0", "1e3", "9223372036854775807", "9223372036854775808", "%2F", "abc", "%D9%A1"]
    {
        let path = format!("/v1/store/orders/{id}");
        let response = shop.request(platform, &client, Method::DELETE, &path).send().await.unwrap();
        assert_eq!(error(response).await, (404, "order_not_found".to_owned()), "{id}");
    }
}

// rule: 4.0.2, 4.1.401, 4.2.401, 5.1, 5.2, 5.3, 7.401
async fn without_a_valid_key_every_operation_is_401_and_says_how_to_send_one(platform: &Platform) {
    let (client, shop, other) = (platform.client(), platform.project("pro"), platform.project("free"));
    let paths = [(Method::GET, "/v1/store/orders"), (Method::DELETE, "/v1/store/orders/1"), (Method::GET, "/nowhere")];
    for (method, path) in paths {
        let missing = shop.bare(platform, &client, method.clone(), path).send().await.unwrap();
        assert!(missing.headers()["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
        assert_eq!(rate_limit_headers(&missing).0, 60, "the limit of an address");
        assert_eq!(error(missing).await, (401, "missing_api_key".to_owned()), "{path}");
        let mut typo = shop.key.clone();
        typo.replace_range(20..21, if &typo[20..21] == "a" { "b" } else { "a" });
        for key in [typo.as_str(), "nonsense", other.key.as_str()] {
            let refused = shop.bare(platform, &client, method.clone(), path).bearer_auth(key).send().await.unwrap();
            assert_eq!(error(refused).await, (401, "invalid_api_key".to_owned()), "{path}");
        }
    }
    let listed = shop.list(platform, &client).await;
    assert_eq!(listed.len(), 40, "nothing was cancelled, and a valid key still passes");
}

// rule: 4.1.1, 4.1.3, 4.2.3, 7.2
async fn wrong_methods_paths_and_bodies_are_refused_before_anything_happens(platform: &Platform) {
    let (client, shop) = (platform.client(), platform.project("business"));
    let ask = async |method: Method, path: &str, body: &'static str| {
        let request = shop.request(platform, &client, method, path);
        let request = if body.is_empty() { request } else { request.body(body) };
        let response = request.send().await.unwrap();
        let allow = response.headers().get("allow").map(|allow| allow.to_str().unwrap().to_owned());
        assert_eq!(rate_limit_headers(&response).0, 1_000);
        let (status, code) = error(response).await;
        (status, code, allow.unwrap_or_default())
    };
    let refused = |status: u16, code: &str, allow: &str| (status, code.to_owned(), allow.to_owned());
    let list_methods = "GET, HEAD, OPTIONS";
    assert_eq!(ask(Method::POST, "/v1/store/orders", "").await, refused(405, "method_not_allowed", list_methods));
    assert_eq!(ask(Method::GET, "/v1/store/orders/1", "").await, refused(405, "method_not_allowed", "DELETE, OPTIONS"));
    assert_eq!(ask(Method::GET, "/v1/store/orders/", "").await, refused(404, "not_found", ""));
    assert_eq!(ask(Method::GET, "/v3", "").await, refused(404, "not_found", ""));
    let pending = format!("/v1/store/orders/{}", shop.pending[0]);
    assert_eq!(ask(Method::DELETE, &pending, "{}").await, refused(400, "body_not_allowed", ""));
    assert_eq!(ask(Method::GET, "/v1/store/orders", "x").await, refused(400, "body_not_allowed", ""));
    assert_eq!(shop.cancel(platform, &client, shop.pending[0]).await.unwrap().status(), 204, "it was still pending");
}

// rule: 5.4
async fn a_key_is_limited_to_its_scopes(platform: &Platform) {
    let (client, mut shop) = (platform.client(), platform.project("pro"));
    let pending = shop.pending[0];
    shop.key.clone_from(&shop.read_only_key);
    assert_eq!(shop.list(platform, &client).await.len(), 40);
    let refused = shop.cancel(platform, &client, pending).await.unwrap();
    assert_eq!(error(refused).await, (403, "insufficient_scope".to_owned()));
}

// rule: 1.5, 9.1, 9.3
// promise: orders.21
async fn the_pets_operation_says_that_it_goes_away(platform: &Platform) {
    let (client, shop) = (platform.client(), platform.project("pro"));
    let response = shop.request(platform, &client, Method::GET, "/v1/pets/101").send().await.unwrap();
    let deprecation = response.headers()["deprecation"].to_str().unwrap();
    assert!(deprecation.strip_prefix('@').unwrap().parse::<i64>().unwrap() > 0);
    assert!(response.headers().contains_key("link"));
    assert!(!response.headers().contains_key("sunset"), "no date is configured");
    assert_eq!(response.status(), 200);
}

// rule: 1.1
async fn a_project_sees_its_own_store_alone(platform: &Platform) {
    let (client, pro, free) = (platform.client(), platform.project("pro"), platform.project("free"));
    let id = pro.pending[1];
    assert_eq!(pro.cancel(platform, &client, id).await.unwrap().status(), 204);
    assert_eq!(free.cancel(platform, &client, id).await.unwrap().status(), 204, "the other store's order was pending");
}
