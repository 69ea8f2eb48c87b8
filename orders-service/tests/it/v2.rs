//! `/v2` (beta).

use contract::key::Scope;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::world::{World, refusal};

const ORDERS: &str = "{\"id\":1,\"petId\":10,\"shipDate\":\"2026-01-03T00:00:00Z\",\"complete\":true,\"status\":\"shipped\"}\n\
                      {\"id\":2,\"petId\":10,\"shipDate\":\"2026-01-01T00:00:00Z\",\"complete\":false}\n\
                      {\"id\":3,\"status\":\"cancelled\"}\n\
                      {\"id\":4,\"petId\":11,\"shipDate\":\"2026-01-02T00:00:00Z\"}\n\
                      {\"id\":5}\n";

fn ids(page: &Value) -> Vec<i64> {
    page["orders"].as_array().unwrap().iter().map(|order| order["id"].as_i64().unwrap()).collect()
}

fn next(response: &Response) -> Option<String> {
    let links = response.headers()["link"].to_str().unwrap();
    let next = links.split(", ").find(|link| link.ends_with("; rel=\"next\""))?;
    Some(next.split_once('<').unwrap().1.split_once('>').unwrap().0.to_owned())
}

async fn create(world: &World, key: Option<&str>, body: &str) -> Response {
    let request = world.request(Method::POST, "/v2/store/orders").header("content-type", "application/json");
    let request = key.into_iter().fold(request, |request, key| request.header("idempotency-key", key));
    request.body(body.to_owned()).send().await.unwrap()
}

// rule: 9.2, 9.4
// promise: orders.17
#[tokio::test]
async fn the_list_filters_sorts_and_links_to_the_next_page() {
    let world = World::new().await;
    world.given(ORDERS).await;
    let response = world.get("/v2/store/orders").await;
    assert_eq!((response.status().as_u16(), next(&response)), (200, None));
    assert_eq!(response.headers()["x-api-stability"], "beta");
    let page: Value = response.json().await.unwrap();
    assert_eq!(ids(&page), [1, 2, 3, 4, 5]);
    assert_eq!(page["orders"][2], json!({"id": 3, "status": "cancelled"}));
    assert_eq!(page.get("nextCursor"), None);
    for (query, expected) in [
        ("status=pending", vec![2, 4, 5]),
        ("petId=10&complete=true", vec![1]),
        ("shipDateFrom=2026-01-02T00:00:00Z&shipDateBefore=2026-01-03T01:00:00%2B01:00", vec![4]),
        ("sort=shipDate", vec![3, 5, 2, 4, 1]),
        ("sort=-shipDate", vec![1, 4, 2, 5, 3]),
        ("sort=-id&status=pending", vec![5, 4, 2]),
    ] {
        let page: Value = world.get(&format!("/v2/store/orders?{query}")).await.json().await.unwrap();
        assert_eq!(ids(&page), expected, "{query}");
        let (mut seen, mut target) = (Vec::new(), Some(format!("/v2/store/orders?{query}&limit=1")));
        while let Some(page) = target {
            let response = world.get(&page).await;
            target = next(&response);
            let page: Value = response.json().await.unwrap();
            assert_eq!(page["nextCursor"].is_string(), target.is_some());
            seen.extend(ids(&page));
        }
        assert_eq!(seen, expected, "{query} by one");
    }
}

// promise: orders.17
#[tokio::test]
async fn a_cursor_stays_valid_while_orders_are_added() {
    let world = World::new().await;
    world.given("{\"id\":10}\n{\"id\":20}\n{\"id\":30}\n").await;
    let first = world.get("/v2/store/orders?limit=2").await;
    let second = next(&first).unwrap();
    world.given("{\"id\":5}\n{\"id\":15}\n{\"id\":25}\n").await;
    let page: Value = world.get(&second).await.json().await.unwrap();
    assert_eq!(ids(&page), [25, 30], "no order is repeated or skipped");
}

// promise: orders.17
#[tokio::test]
async fn invalid_query_parameters_are_refused() {
    let world = World::new().await;
    for query in ["limit=0", "colour=red", "limit=1&limit=2", "status=lost", "sort=%ff"] {
        let response = world.get(&format!("/v2/store/orders?{query}")).await;
        assert_eq!(refusal(response).await, (400, "invalid_parameter".to_owned()), "{query}");
    }
    assert_eq!(refusal(world.get("/v2/store/orders?cursor=x").await).await, (400, "invalid_cursor".to_owned()));
}

#[tokio::test]
async fn an_unchanged_list_is_304() {
    let world = World::new().await;
    world.given(ORDERS).await;
    let tag = world.get("/v2/store/orders?limit=2").await.headers()["etag"].clone();
    let again = || world.request(Method::GET, "/v2/store/orders?limit=2").header("if-none-match", &tag).send();
    assert_eq!(again().await.unwrap().status(), 304);
    world.delete("/v2/store/orders/5").await;
    assert_eq!(again().await.unwrap().status(), 200);
}

// promise: orders.19
#[tokio::test]
async fn an_orders_history_lists_its_creation_and_shipping() {
    let world = World::new().await;
    let response = create(&world, None, "{\"petId\":7,\"quantity\":2,\"shipDate\":\"2026-12-24T00:00:00Z\"}").await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["location"]),
        (201, &"/v2/store/orders/1".parse().unwrap())
    );
    let mut order = json!({"id": 1, "petId": 7, "quantity": 2, "shipDate": "2026-12-24T00:00:00Z", "complete": false, "status": "pending"});
    assert_eq!(response.json::<Value>().await.unwrap(), order);
    assert_eq!(world.get("/v2/store/orders/1").await.json::<Value>().await.unwrap(), order);
    let ship = || world.request(Method::POST, "/v2/store/orders/1/ship").send();
    order["status"] = "shipped".into();
    order["complete"] = true.into();
    order["shipDate"] = "2026-11-20T12:00:00Z".into();
    assert_eq!(ship().await.unwrap().json::<Value>().await.unwrap(), order);
    assert_eq!(refusal(ship().await.unwrap()).await, (409, "order_already_shipped".to_owned()));
    assert_eq!(refusal(world.delete("/v2/store/orders/1").await).await, (409, "order_already_shipped".to_owned()));
    let history: Value = world.get("/v2/store/orders/1/history").await.json().await.unwrap();
    let at = "2026-11-20T12:00:00Z";
    assert_eq!(history, json!({"events": [{"event": "created", "at": at}, {"event": "shipped", "at": at}]}));
    create(&world, None, "{\"petId\":7,\"quantity\":1}").await;
    assert_eq!(world.delete("/v2/store/orders/2").await.status(), 204);
    for target in ["/v2/store/orders/3", "/v2/store/orders/3/history", "/v2/store/orders/01"] {
        assert_eq!(refusal(world.get(target).await).await, (404, "order_not_found".to_owned()), "{target}");
    }
}

// promise: orders.18
#[tokio::test]
async fn repeated_requests_with_an_idempotency_key_create_one_order() {
    let world = World::new().await;
    let first = create(&world, Some("k-1"), "{\"petId\":7,\"quantity\":2}").await;
    assert_eq!((first.status().as_u16(), first.headers().get("idempotency-replayed")), (201, None));
    let first = first.text().await.unwrap();
    let again = create(&world, Some("k-1"), "{ \"quantity\": 2.0, \"petId\": 7 }").await;
    assert_eq!((again.status().as_u16(), &again.headers()["idempotency-replayed"]), (201, &"true".parse().unwrap()));
    assert_eq!(again.headers()["location"], "/v2/store/orders/1");
    assert_eq!(again.text().await.unwrap(), first);
    let other = create(&world, Some("k-1"), "{\"petId\":8,\"quantity\":2}").await;
    assert_eq!(refusal(other).await, (409, "idempotency_key_reused".to_owned()));
    for bad in ["", " ", "a b", &"x".repeat(256)] {
        let refused = create(&world, Some(bad), "{\"petId\":7,\"quantity\":2}").await;
        assert_eq!(refusal(refused).await, (400, "invalid_idempotency_key".to_owned()), "{bad:?}");
    }
    let mut racers = Vec::new();
    for _ in 0..20 {
        racers.push(create(&world, Some("k-2"), "{\"petId\":7,\"quantity\":2}"));
    }
    for response in futures_util::future::join_all(racers).await {
        assert_eq!(response.headers()["location"], "/v2/store/orders/2");
    }
    // The 24 hours start with the first creation.
    world.clock.advance(std::time::Duration::from_hours(24) - std::time::Duration::from_millis(1));
    let again = create(&world, Some("k-1"), "{\"petId\":7,\"quantity\":2}").await;
    assert_eq!(again.headers()["location"], "/v2/store/orders/1");
    let other = create(&world, Some("k-1"), "{\"petId\":8,\"quantity\":2}").await;
    assert_eq!(refusal(other).await, (409, "idempotency_key_reused".to_owned()));
    world.clock.advance(std::time::Duration::from_millis(1));
    let later = create(&world, Some("k-1"), "{\"petId\":8,\"quantity\":2}").await;
    assert_eq!(later.headers()["location"], "/v2/store/orders/3", "after 24 hours the key can be used again");
}

#[tokio::test]
async fn an_invalid_order_is_refused() {
    let mut world = World::new().await;
    for body in [
        "",
        "[]",
        "[1, 1]",
        "{\"petId\":1,\"quantity\":1.5}",
        "{\"petId\":9223372036854775808,\"quantity\":1}",
        "{\"petId\":-9223372036854775809,\"quantity\":1}",
        "{\"petId\":9007199254740993.0,\"quantity\":1}",
        "{\"petId\":1e30,\"quantity\":1}",
        "{\"petId\":1,\"quantity\":1,\"shipDate\":null}",
        "{\"petId\":1}",
        "{\"petId\":1,\"quantity\":0}",
        "{\"petId\":1,\"quantity\":1000001}",
        "{\"petId\":1,\"quantity\":1,\"status\":\"shipped\"}",
        "{\"petId\":\"1\",\"quantity\":1}",
        "{\"petId\":1,\"quantity\":1,\"shipDate\":\"soon\"}",
        "{\"petId\":1,\"quantity\":1} x",
    ] {
        assert_eq!(refusal(create(&world, None, body).await).await, (400, "invalid_body".to_owned()), "{body}");
    }
    let large = format!("{{\"petId\":1,\"quantity\":1{}}}", " ".repeat(20_000));
    assert_eq!(refusal(create(&world, None, &large).await).await, (413, "body_too_large".to_owned()));
    let text =
        world.request(Method::POST, "/v2/store/orders").body("{\"petId\":1,\"quantity\":1}").send().await.unwrap();
    assert_eq!(refusal(text).await, (415, "unsupported_media_type".to_owned()));
    world.caller.scopes = [Scope::OrdersRead].into_iter().collect();
    let refused = create(&world, None, "{\"petId\":1,\"quantity\":1}").await;
    assert_eq!(refusal(refused).await, (403, "insufficient_scope".to_owned()));
    let refused = world.request(Method::POST, "/v2/store/orders/1/ship").send().await.unwrap();
    assert_eq!(refusal(refused).await, (403, "insufficient_scope".to_owned()));
    assert_eq!(world.get("/v1/store/orders").await.text().await.unwrap(), "[]");
}

// promise: orders.20
#[tokio::test]
async fn refusals_are_problem_details_if_the_client_accepts_them() {
    let world = World::new().await;
    for target in ["/v2/store/orders/9", "/v1/pets/9"] {
        let response =
            world.request(Method::GET, target).header("accept", "application/problem+json").send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (404, &"application/problem+json".parse().unwrap())
        );
        let body: Value = response.json().await.unwrap();
        assert_eq!(body["status"], 404);
        assert_eq!(body["title"], "Not Found");
        assert_eq!(body["detail"], body["message"]);
        assert!(body["type"].as_str().unwrap().ends_with(body["code"].as_str().unwrap()));
    }
    let usual = world.request(Method::GET, "/v2/store/orders/9").header("accept", "*/*").send().await.unwrap();
    assert_eq!(refusal(usual).await, (404, "order_not_found".to_owned()));
}
