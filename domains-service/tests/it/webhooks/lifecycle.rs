//! Endpoints: created, changed, disabled, enabled, removed; deliveries repeated.

use std::time::Duration;

use serde_json::{Value, json};

use super::{WEBHOOKS, deliveries, endpoint, happen, is_signed, platform};
use crate::webhooks::receiver::Receiver;
use crate::world::START;

#[tokio::test]
async fn an_endpoint_that_fails_for_days_is_switched_off_and_can_be_switched_on() {
    let (platform, receiver) = (platform().await, Receiver::start().await);
    let (id, _) = endpoint(&platform, &receiver, json!(["domain.created"])).await;
    let (owner, one) = (platform.owner("demo"), format!("{WEBHOOKS}/{id}"));
    receiver.answer_with(&[500; 11]);
    happen(&platform, "a.localhost").await;
    // Ten attempts, each recorded with another time; then the delivery fails.
    let mut noted = Value::Null;
    for minutes in [0, 1, 6, 34, 133, 331, 661, 925, 1_321, 1_585] {
        platform.clock.advance(Duration::from_mins(minutes));
        let list = deliveries(&platform, &id, |list| list[0]["last_attempt_at"] != noted).await;
        noted.clone_from(&list[0]["last_attempt_at"]);
    }
    let list = deliveries(&platform, &id, |list| list[0]["state"] == "failed").await;
    assert_eq!((&list[0]["attempts"], receiver.all().len()), (&json!(10), 10));
    let failing = owner.get(&one).await.body;
    assert_eq!((&failing["enabled"], &failing["failing_since"]), (&json!(true), &json!("2026-06-15T00:00:00Z")));
    // The next one finds that it has failed for longer than five days.
    platform.clock.advance(Duration::from_hours(40));
    happen(&platform, "b.localhost").await;
    deliveries(&platform, &id, |list| list.len() == 2 && list[0]["state"] == "failed").await;
    let off = owner.get(&one).await.body;
    assert_eq!((&off["enabled"], &off["disabled_reason"]), (&json!(false), &json!("failing")), "{off:#}");
    happen(&platform, "c.localhost").await;
    let list = deliveries(&platform, &id, |list| !list.is_empty()).await;
    assert_eq!(list.len(), 2, "nothing is kept for an endpoint that is off");
    let repeat = format!("{one}/deliveries/{}/repeat", list[0]["id"]);
    assert_eq!(owner.send("POST", &repeat, Value::Null).await.code(), (409, "webhook_disabled"));
    let events = owner.get("/v1/projects/demo/events").await.body;
    let told = events["events"].as_array().unwrap().iter().find(|event| event["type"] == "webhook.disabled").unwrap();
    assert_eq!(told["detail"], json!({ "webhook": id, "reason": "failing" }));

    let on = owner.send("PATCH", &one, json!({ "enabled": true })).await.body;
    assert_eq!((&on["enabled"], &on["failing_since"]), (&json!(true), &Value::Null));
    let before = receiver.all().len();
    let repeated = owner.send("POST", &repeat, Value::Null).await;
    assert_eq!((repeated.status, &repeated.body["state"]), (202, &json!("waiting")));
    assert!(receiver.message(before).await.header("webhook-id").starts_with("msg_"));
}

#[tokio::test]
async fn an_answer_of_410_disables_the_endpoint() {
    let (platform, receiver) = (platform().await, Receiver::start().await);
    receiver.answer_with(&[410]);
    let (id, _) = endpoint(&platform, &receiver, json!(["domain.created"])).await;
    happen(&platform, "a.localhost").await;
    let list = deliveries(&platform, &id, |list| list[0]["state"] == "failed").await;
    assert_eq!((&list[0]["last_result"], &list[0]["last_status"]), (&json!("gone"), &json!(410)));
    let off = platform.owner("demo").get(&format!("{WEBHOOKS}/{id}")).await.body;
    assert_eq!(off["disabled_reason"], "gone");
}

#[tokio::test]
async fn endpoints_are_changed_switched_off_and_removed() {
    let (platform, receiver, other) = (platform().await, Receiver::start().await, Receiver::start().await);
    let (id, _) = endpoint(&platform, &receiver, json!(["domain.created"])).await;
    let (owner, one) = (platform.owner("demo"), format!("{WEBHOOKS}/{id}"));
    let body = json!({ "url": other.url(), "description": "the other one", "events": ["domain.*"] });
    let changed = owner.send("PATCH", &one, body).await.body;
    assert_eq!((&changed["description"], &changed["events"]), (&json!("the other one"), &json!(["domain.*"])));
    assert!(changed.get("secret").is_none());
    happen(&platform, "a.localhost").await;
    other.message(0).await;
    let off = owner.send("PATCH", &one, json!({ "enabled": false })).await.body;
    assert_eq!((&off["enabled"], &off["disabled_reason"]), (&json!(false), &json!("owner")));
    assert_eq!(owner.send("DELETE", &one, Value::Null).await.status, 204);
    assert_eq!(owner.send("DELETE", &one, Value::Null).await.code(), (404, "webhook_not_found"));
    assert_eq!(owner.get(&format!("{one}/deliveries")).await.code(), (404, "webhook_not_found"));
    assert_eq!(owner.get(WEBHOOKS).await.body["webhooks"], json!([]));
    // Removing a project removes its endpoints.
    let (gone, _) = endpoint(&platform, &receiver, Value::Null).await;
    assert!(platform.operator("DELETE", "/projects/demo", Value::Null).await.status < 300);
    platform.project("demo", "pro").await;
    assert_eq!(owner.get(&format!("{WEBHOOKS}/{gone}")).await.code(), (404, "webhook_not_found"));
    assert!(receiver.all().is_empty());
}

#[tokio::test]
async fn wrong_webhooks_are_refused() {
    let platform = platform().await;
    let owner = platform.owner("demo");
    let url = "https://hooks.example.com/";
    for (body, code) in [
        (json!({}), "invalid_body"),
        (json!({ "url": url, "events": [] }), "invalid_body"),
        (json!({ "url": url, "events": ["order.lost"] }), "invalid_body"),
        (json!({ "url": url, "secret": "mine" }), "invalid_body"),
        (json!({ "url": url, "description": "x".repeat(101) }), "invalid_body"),
        (json!({ "url": "hooks.example.com" }), "invalid_webhook_url"),
        (json!({ "url": "ftp://hooks.example.com/" }), "invalid_webhook_url"),
        (json!({ "url": "https://me:secret@hooks.example.com/" }), "invalid_webhook_url"),
    ] {
        assert_eq!(owner.send("POST", WEBHOOKS, body.clone()).await.code(), (400, code), "{body}");
    }
    let unknown = platform.operator("POST", "/projects/unknown/webhooks", json!({ "url": url })).await;
    assert_eq!(unknown.code(), (404, "project_not_found"));
    let mut last = Value::Null;
    for _ in 0..20 {
        let made = owner.send("POST", WEBHOOKS, json!({ "url": url })).await;
        assert_eq!(made.status, 201);
        last = made.body["id"].clone();
    }
    assert_eq!(owner.send("POST", WEBHOOKS, json!({ "url": url })).await.code(), (403, "webhook_limit_reached"));
    let one = format!("{WEBHOOKS}/{}", last.as_str().unwrap());
    for (path, code) in [
        (format!("{one}/deliveries/1/repeat"), (404, "delivery_not_found")),
        (format!("{one}/deliveries/x/repeat"), (404, "delivery_not_found")),
        (format!("{WEBHOOKS}/wh_none/deliveries/1/repeat"), (404, "webhook_not_found")),
    ] {
        assert_eq!(owner.send("POST", &path, Value::Null).await.code(), code, "{path}");
    }
    for query in ["state=lost", "limit=0", "cursor=x", "cursor=0", "cursor=01", "cursor=%2B1"] {
        assert_eq!(owner.get(&format!("{one}/deliveries?{query}")).await.code(), (400, "invalid_query"), "{query}");
    }
    for list in [WEBHOOKS, "/v1/projects/demo/keys"] {
        for cursor in ["0.5", "5.", "5.a b", "-1.wh", "x"] {
            let listed = owner.get(&format!("{list}?cursor={}", chassis::percent::segment(cursor))).await;
            assert_eq!(listed.code(), (400, "invalid_query"), "{list} {cursor}");
        }
    }
    let long = format!("/v1/projects/demo/domains?name={}", "a".repeat(254));
    assert_eq!(owner.get(&long).await.code(), (400, "invalid_query"));
    // A change needs at least one field, and only some fields may be null.
    for body in [Value::Null, json!({ "events": null }), json!({ "url": null })] {
        assert_eq!(owner.send("PATCH", &one, body.clone()).await.code(), (400, "invalid_body"), "{body}");
    }
}

#[tokio::test]
async fn deliveries_are_listed_by_page_and_by_state() {
    let (platform, receiver) = (platform().await, Receiver::start().await);
    receiver.answer_with(&[500]);
    let (id, _) = endpoint(&platform, &receiver, json!(["domain.created"])).await;
    for name in ["a.localhost", "b.localhost", "c.localhost"] {
        happen(&platform, name).await;
    }
    let all = deliveries(&platform, &id, |list| {
        list.len() == 3 && list.iter().filter(|one| one["state"] == "delivered").count() == 2
    })
    .await;
    let (owner, path) = (platform.owner("demo"), format!("{WEBHOOKS}/{id}/deliveries"));
    let waiting = owner.get(&format!("{path}?state=waiting")).await.body;
    assert_eq!(waiting["deliveries"], json!([all[2]]));
    let first = owner.get(&format!("{path}?limit=2")).await.body;
    assert_eq!(first["deliveries"], json!([all[0], all[1]]));
    let second = owner.get(&format!("{path}?limit=2&cursor={}", first["next_cursor"].as_str().unwrap())).await.body;
    assert_eq!((&second["deliveries"], &second["next_cursor"]), (&json!([all[2]]), &Value::Null));
}

#[tokio::test]
async fn an_owner_can_send_a_test_message() {
    let (platform, receiver) = (platform().await, Receiver::start().await);
    let (id, secret) = endpoint(&platform, &receiver, json!(["domain.removed"])).await;
    let (owner, one) = (platform.owner("demo"), format!("{WEBHOOKS}/{id}"));
    let sent = owner.send("POST", &format!("{one}/test"), Value::Null).await;
    assert_eq!((sent.status, &sent.body["type"]), (202, &json!("webhook.test")), "{sent:?}");
    let message = receiver.message(0).await;
    assert!(is_signed(&message, &secret, START));
    assert_eq!(message.json(), sent.body["payload"], "what was sent is shown");
    assert_eq!(message.json()["data"], json!({ "project_id": "demo", "webhook": id }));
    deliveries(&platform, &id, |list| list.len() == 1 && list[0]["state"] == "delivered").await;
    assert_eq!(owner.send("PATCH", &one, json!({ "enabled": false })).await.status, 200);
    assert_eq!(owner.send("POST", &format!("{one}/test"), Value::Null).await.code(), (409, "webhook_disabled"));
}
