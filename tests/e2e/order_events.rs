//! Events of orders: from a cancellation through the gateway to a webhook receiver that checks the signature.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use chassis::webhook::SigningSecret;
use contract::time::UnixSeconds;
use parking_lot::Mutex;
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::world::{Platform, until};

/// A received message: headers and body.
type Inbox = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// Starts a receiver on this machine; returns its address.
async fn receiver(inbox: Inbox) -> String {
    let take = async |State(inbox): State<Inbox>, headers: HeaderMap, body: String| {
        inbox.lock().push((headers, body));
        StatusCode::NO_CONTENT
    };
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/in", listener.local_addr().unwrap());
    let router = Router::new().route("/in", post(take)).with_state(inbox);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// The orders of the events of a kind with a valid signature.
fn genuine(inbox: &Inbox, secret: &SigningSecret, kind: &str) -> Vec<i64> {
    let inbox = inbox.lock();
    let signed = inbox.iter().filter(|(headers, body)| {
        let header = |name: &str| headers[name].to_str().unwrap();
        let at = UnixSeconds(header("webhook-timestamp").parse().unwrap());
        header("webhook-signature") == secret.sign(header("webhook-id"), at, body.as_bytes())
    });
    let sent = signed.map(|(_, body)| serde_json::from_str::<Value>(body).unwrap());
    sent.filter(|event| event["type"] == kind).map(|event| event["data"]["order"]["id"].as_i64().unwrap()).collect()
}

// promise: orders.23
#[tokio::test(flavor = "multi_thread")]
async fn events_of_orders_are_delivered_also_after_a_kill() {
    // The test world permits receivers on this machine.
    let mut platform = Platform::start_with(&["--test-world"]);
    let inbox = Inbox::default();
    let url = receiver(inbox.clone()).await;
    let (client, shop) = (platform.client(), platform.project("business"));
    let added = platform.json(&["webhook", "add", &shop.id, &url, "--event", "order.*"]);
    let secret = SigningSecret::parse(added["secret"].as_str().unwrap()).unwrap();

    let [cancelled, shipped, last @ ..] = shop.pending.as_slice() else { panic!("the demo has pending orders") };
    let placed = shop.request(&platform, &client, Method::POST, "/v2/store/orders");
    let placed = placed.json(&serde_json::json!({ "petId": 1, "quantity": 1 })).send().await.unwrap();
    assert_eq!(placed.status(), 201);
    let placed = placed.json::<Value>().await.unwrap()["id"].as_i64().unwrap();
    assert_eq!(shop.cancel(&platform, &client, *cancelled).await.unwrap().status(), 204);
    let ship = format!("/v2/store/orders/{shipped}/ship");
    assert_eq!(shop.request(&platform, &client, Method::POST, &ship).send().await.unwrap().status(), 200);
    until("all three are delivered", async || inbox.lock().len() >= 3).await;
    assert_eq!(genuine(&inbox, &secret, "order.created"), [placed]);
    assert_eq!(genuine(&inbox, &secret, "order.cancelled"), [*cancelled]);
    assert_eq!(genuine(&inbox, &secret, "order.shipped"), [*shipped]);

    // A refused change has no event; the event of a change acknowledged right before a kill is delivered after it.
    assert_eq!(shop.cancel(&platform, &client, *shipped).await.unwrap().status(), 409);
    for id in last {
        assert_eq!(shop.cancel(&platform, &client, *id).await.unwrap().status(), 204);
    }
    platform.kill();
    platform.up();
    let mut expected = vec![*cancelled];
    expected.extend(last);
    until("those before the kill are delivered", async || {
        let mut sent = genuine(&inbox, &secret, "order.cancelled");
        sent.sort_unstable();
        sent.dedup(); // at least once: the kill may have come between a delivery and its record
        sent == expected
    })
    .await;
}
