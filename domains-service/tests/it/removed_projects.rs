//! A removed project: its sessions end, and its webhooks get nothing until it is restored.

use std::time::Duration;

use chassis::clock::Clock as _;
use serde_json::{Value, json};

use crate::dashboard::Browser;
use crate::identities::{PROJECT, RESTORE, busy, remove};
use crate::webhooks::receiver::Receiver;
use crate::world::{Platform, START, eventually};

/// A project with a webhook for domains that refused its first message and waits for a second attempt: the webhook.
async fn waiting(platform: &Platform, project: &str, receiver: &Receiver) -> String {
    platform.project(project, "pro").await;
    let webhook = json!({ "url": receiver.url(), "events": ["domain.created"] });
    let made = platform.operator("POST", &format!("/projects/{project}/webhooks"), webhook).await;
    assert_eq!(made.status, 201, "{made:?}");
    receiver.answer_with(&[503]);
    platform.local_domain(project, json!({ "name": format!("{project}.localhost") })).await;
    receiver.message(0).await;
    let webhook = made.body["id"].as_str().unwrap().to_owned();
    deliveries(platform, project, &webhook, |list| list[0]["last_status"] == 503).await;
    webhook
}

/// The deliveries of a webhook, once they are as expected.
async fn deliveries(platform: &Platform, project: &str, webhook: &str, are: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    eventually(async || {
        let path = format!("/v1/projects/{project}/webhooks/{webhook}/deliveries");
        let list = platform.owner(project).get(&path).await.body["deliveries"].as_array().unwrap().clone();
        if are(&list) { Ok(list) } else { Err(format!("the deliveries are {list:#?}")) }
    })
    .await
}

#[tokio::test]
async fn removal_signs_out_and_a_restore_does_not_sign_in_again() {
    let platform = Platform::start().await;
    busy(&platform).await;
    let mut browser = Browser::signed_in(&platform, "acme", &["domains:read"]).await;
    let cookie = browser.cookie.clone();
    assert_eq!(browser.get("/projects/acme/domains").await.status, 200);
    assert_eq!(remove(&platform, "").await.status, 204);
    assert_eq!(browser.get("/projects/acme/domains").await.location(), "/sign-in");
    assert_eq!(platform.operator("POST", RESTORE, Value::Null).await.status, 200);
    browser.cookie = cookie;
    assert_eq!(browser.get("/projects/acme/domains").await.location(), "/sign-in", "the session of before is open");
    let mut other = Browser::signed_in(&platform, "acme", &["domains:read"]).await;
    assert_eq!(other.get("/projects/acme/domains").await.status, 200, "the restored project can be signed in to");
}

#[tokio::test]
async fn webhooks_of_a_removed_project_get_nothing_until_it_is_restored() {
    let platform = Platform::start().await;
    let (receiver, of_other) = (Receiver::start().await, Receiver::start().await);
    let webhook = waiting(&platform, "acme", &receiver).await;
    waiting(&platform, "other", &of_other).await;
    assert_eq!(remove(&platform, "").await.status, 204);
    // Both second attempts are due. Two messages to the other project, one after the other, are two searches at least.
    platform.clock.advance(Duration::from_secs(6));
    of_other.message(1).await;
    platform.local_domain("other", json!({ "name": "more.localhost" })).await;
    of_other.message(2).await;
    assert_eq!(receiver.all().len(), 1, "a removed project was sent a message");
    platform.clock.advance(Duration::from_mins(1));
    assert_eq!(platform.operator("POST", RESTORE, Value::Null).await.status, 200);
    let message = receiver.message(1).await;
    assert_eq!(message.header("webhook-id"), receiver.message(0).await.header("webhook-id"));
    assert_eq!(
        message.header("webhook-timestamp"),
        platform.clock.now_seconds().0.to_string(),
        "sent after the restore"
    );
    deliveries(&platform, "acme", &webhook, |list| list[0]["state"] == "delivered" && list[0]["attempts"] == 2).await;
}

#[tokio::test]
async fn an_order_event_of_a_removed_project_reaches_no_webhook() {
    let platform = Platform::start().await;
    let uid = busy(&platform).await;
    let hand_over = async |number: i64| {
        let event = json!({ "number": number, "project": uid, "kind": "order.created", "at": START, "order": {} });
        let request = platform.client.post(format!("{}/internal/events/orders", platform.internal));
        let request = request.bearer_auth(platform.orders_service().await);
        let answer = request.json(&json!({ "source": "ab12", "events": [event] })).send().await.unwrap();
        assert_eq!(answer.status(), 204);
    };
    assert_eq!(remove(&platform, "").await.status, 204);
    hand_over(1).await;
    assert_eq!(platform.operator("POST", RESTORE, Value::Null).await.status, 200);
    hand_over(2).await;
    let listed = platform.owner("acme").get(&format!("{PROJECT}/webhooks")).await.body;
    let webhook = listed["webhooks"][0]["id"].as_str().unwrap();
    let of_orders = |list: &[Value]| {
        let of_orders = list.iter().filter(|one| one["type"] == "order.created");
        of_orders.map(|one| one["message_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let list = deliveries(&platform, "acme", webhook, |list| !of_orders(list).is_empty()).await;
    assert_eq!(of_orders(&list), ["msg_ab12_2"]);
}
