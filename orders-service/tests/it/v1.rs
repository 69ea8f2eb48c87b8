//! `/v1`: authorisation, responses, and unknown paths and methods.

use contract::key::Environment;
use contract::time::UnixMillis;
use reqwest::Method;

use crate::world::{NOW, World, caller, refusal, signed, signed_for};

const ORDERS: &str = "{\"id\":1,\"petId\":10,\"quantity\":2,\"shipDate\":\"2026-12-01T08:00:00+01:00\",\"complete\":false}\n\
                      {\"id\":2,\"status\":\"shipped\",\"complete\":true}\n\
                      {\"id\":3,\"status\":\"cancelled\"}\n\
                      {\"id\":9223372036854775807}\n";

// rule: 1.1, 2.1, 2.6, 2.7, 4.1.200
// promise: orders.3
#[tokio::test]
async fn the_list_is_every_order_of_the_project_with_exactly_the_five_fields() {
    let world = World::new().await;
    world.given(ORDERS).await;
    world.import("other", "{\"id\":99}").await;
    let response = world.get("/v1/store/orders").await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(
        response.text().await.unwrap(),
        "[{\"id\":1,\"petId\":10,\"quantity\":2,\"shipDate\":\"2026-12-01T07:00:00Z\",\"complete\":false},\
         {\"id\":2,\"complete\":true},{\"id\":3},{\"id\":9223372036854775807}]"
    );
}

// rule: 4.1.200
#[tokio::test]
async fn a_store_without_orders_is_an_empty_array() {
    let world = World::new().await;
    let response = world.get("/v1/store/orders").await;
    assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (200, "[]"));
}

// rule: 4.1.2, 9.2
#[tokio::test]
async fn the_list_has_no_query_parameters_and_ignores_them() {
    let world = World::new().await;
    world.given(ORDERS).await;
    let all = world.get("/v1/store/orders").await.text().await.unwrap();
    assert_eq!(world.get("/v1/store/orders?limit=1&status=shipped").await.text().await.unwrap(), all);
}

// rule: 3.1, 4.2.204
#[tokio::test]
async fn a_pending_order_is_cancelled_without_a_body_and_stays_in_the_list() {
    let world = World::new().await;
    world.given(ORDERS).await;
    let response = world.delete("/v1/store/orders/1").await;
    assert_eq!(response.status(), 204);
    assert_eq!(response.text().await.unwrap(), "");
    let summary = world.orders.summary(&"demo".parse().unwrap()).await.unwrap();
    assert_eq!((summary.pending, summary.shipped, summary.cancelled), (1, 1, 2));
    assert!(world.get("/v1/store/orders").await.text().await.unwrap().starts_with("[{\"id\":1,"));
}

// rule: 3.2, 4.2.4, 4.2.409, 7.409
#[tokio::test]
async fn a_shipped_order_and_a_cancelled_one_cannot_be_cancelled() {
    let world = World::new().await;
    world.given(ORDERS).await;
    for _ in 0..2 {
        assert_eq!(refusal(world.delete("/v1/store/orders/2").await).await, (409, "order_already_shipped".to_owned()));
        assert_eq!(
            refusal(world.delete("/v1/store/orders/3").await).await,
            (409, "order_already_cancelled".to_owned())
        );
    }
    let summary = world.orders.summary(&"demo".parse().unwrap()).await.unwrap();
    assert_eq!((summary.pending, summary.shipped, summary.cancelled), (2, 1, 1));
}

// rule: 4.2.2, 4.2.404, 7.404
#[tokio::test]
async fn an_unknown_or_malformed_order_id_is_404() {
    let world = World::new().await;
    world.given(ORDERS).await;
    world.import("other", "{\"id\":99}").await;
    for id in [
        "4",
        "99",
        "0",
        "-1",
        "01",
        "+1",
        "1.0",
        "1e0",
        "%201",
        "1%20",
        "1%2F2",
        "%ff",
        "one",
        "9223372036854775808",
        "-9223372036854775809",
        "-0",
        "%D9%A1",
    ] {
        let response = world.delete(&format!("/v1/store/orders/{id}")).await;
        assert_eq!(refusal(response).await, (404, "order_not_found".to_owned()), "{id}");
    }
    assert_eq!(world.delete("/v1/store/orders/%31").await.status(), 204, "%31 is another spelling of 1");
    assert_eq!(world.delete("/v1/store/orders/9223372036854775807").await.status(), 204);
}

// rule: 4.0.1, 4.1.1, 4.2.1
#[tokio::test]
async fn an_unknown_path_or_method_is_404_or_405_with_an_error_body() {
    let world = World::new().await;
    for target in [
        "/",
        "/v1",
        "/v1/",
        "/v1/store",
        "/v1/store/orders/",
        "/v1/store/orders/1/",
        "/v1/pets",
        "/v3/store/orders",
        "/livez",
        "/metrics",
        "/internal/orders/demo/summary",
    ] {
        assert_eq!(refusal(world.get(target).await).await, (404, "not_found".to_owned()), "{target}");
    }
    for (method, target, allow) in [
        (Method::POST, "/v1/store/orders", "GET,HEAD"),
        (Method::DELETE, "/v1/store/orders", "GET,HEAD"),
        (Method::OPTIONS, "/v1/store/orders", "GET,HEAD"),
        (Method::GET, "/v1/store/orders/1", "DELETE"),
        (Method::PUT, "/v1/store/orders/1", "DELETE"),
        (Method::POST, "/v1/pets/1", "GET,HEAD"),
    ] {
        let response = world.request(method.clone(), target).send().await.unwrap();
        assert_eq!(response.headers()["allow"], allow, "{method} {target}");
        assert_eq!(refusal(response).await, (405, "method_not_allowed".to_owned()), "{method} {target}");
    }
}

// rule: 4.0.2
#[tokio::test]
async fn every_request_without_the_gateways_signature_is_refused() {
    let world = World::new().await;
    world.given(ORDERS).await;
    for (method, target) in [
        (Method::GET, "/v1/store/orders"),
        (Method::DELETE, "/v1/store/orders/1"),
        (Method::GET, "/v1/pets/10"),
        (Method::GET, "/nothing"),
        (Method::POST, "/v1/store/orders"),
    ] {
        let bare = world.unsigned(method.clone(), target);
        assert_eq!(refusal(bare.send().await.unwrap()).await, (401, "identity_required".to_owned()), "{target}");
        let forged = world.unsigned(method.clone(), target).header("tollhouse-identity-token", "v1.e30.AAAA");
        assert_eq!(refusal(forged.send().await.unwrap()).await, (401, "identity_required".to_owned()), "{target}");
        let forged = world.unsigned(method.clone(), target).header("tollhouse-identity-token", "e30.e30.AAAA");
        assert_eq!(refusal(forged.send().await.unwrap()).await, (401, "identity_required".to_owned()), "{target}");
        let bearer = world.unsigned(method.clone(), target).bearer_auth("th_live_x");
        assert_eq!(refusal(bearer.send().await.unwrap()).await, (401, "identity_required".to_owned()), "{target}");
    }
    let long_ago = UnixMillis(NOW.0 - 61_000);
    let delete = || world.unsigned(Method::DELETE, "/v1/store/orders/1");
    let stale = signed(delete(), Some(caller()), long_ago).send().await.unwrap();
    assert!(
        stale.headers().contains_key("tollhouse-identity-refused"),
        "the gateway must not blame its caller for a stale signature"
    );
    assert_eq!(refusal(stale).await, (401, "identity_required".to_owned()));
    let elsewhere = signed_for("domains", delete(), Some(caller()), NOW);
    assert_eq!(refusal(elsewhere.send().await.unwrap()).await, (401, "identity_required".to_owned()));
    let twice = world.request(Method::GET, "/v1/store/orders").header("tollhouse-identity-token", "e30.e30.AAAA");
    assert_eq!(refusal(twice.send().await.unwrap()).await, (401, "identity_required".to_owned()));
    let without_key = signed(world.unsigned(Method::GET, "/v1/store/orders"), None, NOW);
    assert_eq!(refusal(without_key.send().await.unwrap()).await, (401, "identity_required".to_owned()));
    assert_eq!(world.orders.summary(&"demo".parse().unwrap()).await.unwrap().pending, 2);
}

// rule: 1.3
// promise: orders.22
#[tokio::test]
async fn a_test_deployment_accepts_test_keys() {
    let mut world = World::with("environment = \"test\"\n").await;
    let refused = world.get("/v1/store/orders").await;
    assert_eq!(refused.headers()["www-authenticate"], "Bearer realm=\"api\", error=\"invalid_token\"");
    assert_eq!(refusal(refused).await, (401, "wrong_environment".to_owned()));
    world.caller.environment = Environment::Test;
    assert_eq!(world.get("/v1/store/orders").await.status(), 200);
}

// rule: 1.1
#[tokio::test]
async fn a_project_never_sees_or_changes_another_projects_orders() {
    let mut world = World::new().await;
    world.given(ORDERS).await;
    world.caller.project = "other".parse().unwrap();
    world.caller.project_uid = "other".parse().unwrap();
    assert_eq!(world.get("/v1/store/orders").await.text().await.unwrap(), "[]");
    assert_eq!(refusal(world.delete("/v1/store/orders/1").await).await, (404, "order_not_found".to_owned()));
    assert_eq!(world.orders.summary(&"demo".parse().unwrap()).await.unwrap().pending, 2);
}

// rule: 9.1
// promise: orders.2
#[tokio::test]
async fn the_interface_descriptions_need_no_api_key() {
    let mut world = World::new().await;
    world.caller.scopes = [].into_iter().collect();
    for (target, version) in
        [("/openapi.json", "1.0.0"), ("/v1/openapi.json", "1.0.0"), ("/v2/openapi.json", "2.0.0-beta")]
    {
        let response = world.get(target).await;
        assert_eq!(response.headers()["content-type"], "application/json");
        let document: serde_json::Value = response.json().await.unwrap();
        assert_eq!(
            (&document["openapi"], &document["info"]["version"]),
            (&"3.1.0".into(), &version.into()),
            "{target}"
        );
    }
    let page = world.get("/reference").await;
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    assert!(page.text().await.unwrap().contains("id=\"getPet\""));
}

#[tokio::test]
async fn every_request_is_counted_under_its_operation() {
    let world = World::new().await;
    world.given(ORDERS).await;
    world.get("/v1/store/orders").await;
    world.request(Method::HEAD, "/v1/store/orders").send().await.unwrap();
    world.delete("/v1/store/orders/1").await;
    world.delete("/v1/store/orders/1").await;
    world.delete("/v1/store/orders/2").await;
    world.delete("/v1/store/orders/x").await;
    world.get("/nothing").await;
    let metrics = world.metrics().await;
    for line in [
        "orders_http_requests_total{operation=\"listOrders\",status_class=\"2xx\"} 2",
        "orders_http_requests_total{operation=\"cancelOrder\",status_class=\"2xx\"} 1",
        "orders_http_requests_total{operation=\"cancelOrder\",status_class=\"4xx\"} 3",
        "orders_http_requests_total{operation=\"cancelOrder\",status_class=\"5xx\"} 0",
        "orders_http_requests_total{operation=\"importOrders\",status_class=\"2xx\"} 1",
        "orders_http_requests_total{operation=\"other\",status_class=\"4xx\"} 1",
        "orders_http_request_duration_seconds_count{operation=\"listOrders\"} 2",
        "orders_cancel_total{result=\"cancelled\"} 1",
        "orders_cancel_total{result=\"already_cancelled\"} 1",
        "orders_cancel_total{result=\"already_shipped\"} 1",
        "orders_cancel_total{result=\"not_found\"} 1",
        "orders_cancel_total{result=\"error\"} 0",
        "orders_store_errors_total{kind=\"full\"} 0",
    ] {
        assert!(metrics.lines().any(|have| have == line), "{line} is missing from\n{metrics}");
    }
}
