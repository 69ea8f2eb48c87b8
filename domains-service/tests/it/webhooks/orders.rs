//! Events of orders: relayed by the orders-service, delivered like those of domains.

use chassis::guard::operator_token;
use contract::event::{EVENTS_MAX, OrderEvent, OrderEvents};
use contract::key::Scope;
use contract::time::UnixMillis;
use serde_json::{Value, json};

use super::{WEBHOOKS, deliveries, endpoint, happen, is_signed, platform};
use crate::webhooks::receiver::{Received, Receiver};
use crate::world::{Bend, Platform, START};

/// Something that happened to an order of the project `demo`.
async fn event(platform: &Platform, number: i64, kind: &str) -> OrderEvent {
    OrderEvent {
        number,
        project: platform.identity(&"demo".parse().unwrap()).await,
        kind: kind.to_owned(),
        at: UnixMillis(1_781_481_600_000),
        order: json!({ "id": number * 10, "status": "cancelled" }),
    }
}

async fn hand_over_with(platform: &Platform, token: &str, body: &Value) -> (u16, Value) {
    let url = format!("{}/internal/events/orders", platform.internal);
    let request = platform.client.post(url).bearer_auth(token).json(body);
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.unwrap()).unwrap_or_default())
}

async fn hand_over(platform: &Platform, source: &str, events: Vec<OrderEvent>) -> u16 {
    let body = serde_json::to_value(OrderEvents { source: source.to_owned(), events }).unwrap();
    hand_over_with(platform, &platform.orders_service().await, &body).await.0
}

// promise: orders.23
#[tokio::test]
async fn a_repeatedly_relayed_order_event_is_delivered_once() {
    let (mut platform, receiver) = (platform().await, Receiver::start().await);
    let (id, secret) = endpoint(&platform, &receiver, json!(["order.cancelled", "order.shipped"])).await;
    let mut first = Vec::new();
    for (number, kind) in [(1, "order.cancelled"), (2, "order.created"), (3, "order.shipped")] {
        first.push(event(&platform, number, kind).await);
    }
    assert_eq!(hand_over(&platform, "ab12", first.clone()).await, 204);
    let message = receiver.message(1).await;
    assert!(is_signed(&message, &secret, START));
    assert_eq!(message.header("webhook-id"), "msg_ab12_3");
    assert_eq!(
        message.json(),
        json!({
            "type": "order.shipped",
            "timestamp": "2026-06-15T00:00:00Z",
            "data": { "event_id": 3, "project_id": "demo", "order": { "id": 30, "status": "cancelled" } },
        })
    );
    // Again, as by a service that did not get the answer, also across a restart of this one.
    assert_eq!(hand_over(&platform, "ab12", first.clone()).await, 204);
    platform.stop().await;
    let platform = Platform::bent(Bend { directory: Some(platform.directory.clone()), ..Bend::default() }).await;
    assert_eq!(hand_over(&platform, "ab12", first).await, 204);
    // Numbers of another database are other events.
    assert_eq!(hand_over(&platform, "cd34", vec![event(&platform, 1, "order.cancelled").await]).await, 204);
    assert_eq!(receiver.message(2).await.header("webhook-id"), "msg_cd34_1");
    let list = deliveries(&platform, &id, |list| list.iter().all(|one| one["state"] == "delivered")).await;
    assert_eq!((list.len(), receiver.all().len()), (3, 3));
}

// promise: orders.25
#[tokio::test]
async fn an_endpoint_without_a_list_gets_every_event_its_owner_may_see() {
    let (platform, all, orders) = (platform().await, Receiver::start().await, Receiver::start().await);
    let domains = Receiver::start().await;
    endpoint(&platform, &all, Value::Null).await;
    let blind = platform.caller("demo", &[Scope::DomainsRead, Scope::DomainsWrite]);
    assert_eq!(blind.send("POST", WEBHOOKS, json!({ "url": domains.url() })).await.status, 201);
    endpoint(&platform, &orders, json!(["order.*"])).await;
    assert_eq!(hand_over(&platform, "ab12", vec![event(&platform, 1, "order.created").await]).await, 204);
    happen(&platform, "a.localhost").await;
    assert_eq!(orders.message(0).await.json()["type"], "order.created");
    assert_eq!(domains.message(0).await.json()["type"], "domain.created");
    let of_domains = |message: &Received| message.json()["type"].as_str().unwrap().starts_with("domain.");
    all.message(1).await;
    assert!(all.all().iter().any(of_domains) && !all.all().iter().all(of_domains));
    assert!(domains.all().iter().all(of_domains));
    assert!(!orders.all().iter().any(of_domains));
}

// promise: orders.25
#[tokio::test]
async fn order_events_need_an_owner_who_may_read_orders() {
    let (platform, receiver) = (platform().await, Receiver::start().await);
    let owner_of_domains = platform.caller("demo", &[Scope::DomainsRead, Scope::DomainsWrite]);
    let wanted = |events: &[&str]| json!({ "url": receiver.url(), "events": events });
    let refused = owner_of_domains.send("POST", WEBHOOKS, wanted(&["domain.active", "order.shipped"])).await;
    assert_eq!(refused.code(), (403, "insufficient_scope"));
    let made = owner_of_domains.send("POST", WEBHOOKS, wanted(&["domain.*"])).await;
    assert_eq!(made.status, 201);
    let one = format!("{WEBHOOKS}/{}", made.body["id"].as_str().unwrap());
    let refused = owner_of_domains.send("PATCH", &one, json!({ "events": ["order.*"] })).await;
    assert_eq!(refused.code(), (403, "insufficient_scope"));
    let owner = platform.owner("demo");
    assert_eq!(owner.send("PATCH", &one, json!({ "events": ["order.*"] })).await.status, 200);
    // A caller that may not read orders may not redirect their events either.
    let led = json!({ "url": receiver.url() });
    assert_eq!(owner_of_domains.send("PATCH", &one, led).await.code(), (403, "insufficient_scope"));
}

// promise: orders.25
#[tokio::test]
async fn only_services_can_relay_and_only_valid_events() {
    let platform = platform().await;
    let sound = json!({ "source": "ab12", "events": [event(&platform, 1, "order.created").await] });
    let token = platform.orders_service().await;
    let (status, body) = hand_over_with(&platform, &operator_token(&platform.secret).to_token(), &sound).await;
    assert_eq!((status, &body["code"]), (401, &json!("token_required")));
    let many = vec![event(&platform, 1, "order.created").await; EVENTS_MAX + 1];
    for unsound in [
        json!({ "source": "ab12" }),
        json!({ "source": "", "events": [] }),
        json!({ "source": "ab12", "events": [event(&platform, 1, "domain.removed").await] }),
        json!({ "source": "ab12", "events": many }),
    ] {
        let (status, body) = hand_over_with(&platform, &token, &unsound).await;
        assert_eq!((status, &body["code"]), (400, &json!("invalid_body")), "{body}");
    }
    let large = json!({ "source": "ab12", "events": [], "more": "x".repeat(300_000) });
    let (status, body) = hand_over_with(&platform, &token, &large).await;
    assert_eq!((status, &body["code"]), (413, &json!("body_too_large")));
    assert_eq!(hand_over_with(&platform, &token, &sound).await.0, 204);
}
