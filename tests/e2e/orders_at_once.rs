//! Concurrent changes of an order through three gateways; and two deployments that refuse each other's keys.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use reqwest::Method;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::deployment::Deployment;
use crate::world::{error, until};

const GATEWAYS: usize = 3;

/// Sends concurrent requests, each by a separate client through the next gateway; returns the count of each status.
async fn race(
    deployment: &Arc<Deployment>,
    (project, key): (&str, &str),
    requests: impl IntoIterator<Item = (Method, String)>,
) -> BTreeMap<(String, u16), usize> {
    let mut racers = JoinSet::new();
    for (number, (method, path)) in requests.into_iter().enumerate() {
        let (deployment, client) = (deployment.clone(), deployment.client());
        let request = deployment.request(&client, number % GATEWAYS, method.clone(), project, &path).bearer_auth(key);
        racers.spawn(async move {
            let _kept = deployment;
            (method.to_string(), request.send().await.unwrap().status().as_u16())
        });
    }
    let mut tally = BTreeMap::new();
    while let Some(outcome) = racers.join_next().await {
        *tally.entry(outcome.unwrap()).or_insert(0) += 1;
    }
    tally
}

fn pending(ids: std::ops::Range<i64>) -> String {
    ids.fold(String::new(), |mut text, id| {
        let _ = writeln!(text, "{{\"id\":{id},\"petId\":{id}}}");
        text
    })
}

/// One deployment for both steps; each step uses a different project.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_through_three_gateways_agree() {
    let deployment = Arc::new(Deployment::start("live", GATEWAYS).await);
    of_a_hundred_cancellations_through_three_gateways_one_succeeds(&deployment).await;
    shipping_against_cancelling_through_three_gateways_leaves_one_truth(&deployment).await;
}

// rule: 4.2.204, 4.2.409
// promise: orders.9
async fn of_a_hundred_cancellations_through_three_gateways_one_succeeds(deployment: &Arc<Deployment>) {
    let key = deployment.project("shop", pending(1..4)).await;
    for order in 1..4 {
        let cancel = (Method::DELETE, format!("/v1/store/orders/{order}"));
        let tally = race(deployment, ("shop", &key), std::iter::repeat_n(cancel, 100)).await;
        let once = BTreeMap::from([(("DELETE".to_owned(), 204), 1), (("DELETE".to_owned(), 409), 99)]);
        assert_eq!(tally, once, "order {order}");
    }
}

// rule: 3.2
// promise: orders.10
async fn shipping_against_cancelling_through_three_gateways_leaves_one_truth(deployment: &Arc<Deployment>) {
    const ORDERS: i64 = 40;
    let key = deployment.project("mill", pending(0..ORDERS)).await;
    let both = (0..ORDERS).flat_map(|id| {
        let (cancel, ship) = (format!("/v1/store/orders/{id}"), format!("/v2/store/orders/{id}/ship"));
        // Alternating, so that neither is always first.
        if id % 2 == 0 {
            [(Method::DELETE, cancel), (Method::POST, ship)]
        } else {
            [(Method::POST, ship), (Method::DELETE, cancel)]
        }
    });
    let tally = race(deployment, ("mill", &key), both).await;
    let count = |method: &str, status: u16| tally.get(&(method.to_owned(), status)).copied().unwrap_or_default();
    let (cancelled, shipped) = (count("DELETE", 204), count("POST", 200));
    assert_eq!(cancelled + shipped, 40, "{tally:?}");
    assert_eq!((count("DELETE", 409), count("POST", 409)), (shipped, cancelled), "{tally:?}");
    // The store matches the responses, and each order has one event.
    let client = deployment.client();
    let get = async |path: String| -> Value {
        let answer = deployment.request(&client, 0, Method::GET, "mill", &path).bearer_auth(&key).send().await;
        answer.unwrap().json().await.unwrap()
    };
    let mut truth = BTreeMap::new();
    for id in 0..ORDERS {
        let status = get(format!("/v2/store/orders/{id}")).await["status"].as_str().unwrap().to_owned();
        let history = get(format!("/v2/store/orders/{id}/history")).await;
        let events: Vec<&str> =
            history["events"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!(events, [status.as_str()], "order {id}");
        *truth.entry(status).or_insert(0) += 1;
    }
    let expected = [("cancelled", cancelled), ("shipped", shipped)];
    let expected = expected.into_iter().filter(|(_, count)| *count > 0).map(|(word, count)| (word.to_owned(), count));
    assert_eq!(truth, expected.collect());
}

// rule: 1.3
// promise: orders.22
#[tokio::test(flavor = "multi_thread")]
async fn staging_and_production_are_the_same_programs_and_refuse_each_others_keys() {
    let (production, staging) = (Deployment::start("live", 1).await, Deployment::start("test", 1).await);
    let live = production.project("shop", pending(0..2)).await;
    let test = staging.project("shop", pending(0..3)).await;
    assert!(live.starts_with("th_live_") && test.starts_with("th_test_"), "{live} {test}");
    for (deployment, own, other, orders) in [(&production, &live, &test, 2), (&staging, &test, &live, 3)] {
        let client = deployment.client();
        let list =
            |key: &str| deployment.request(&client, 0, Method::GET, "shop", "/v1/store/orders").bearer_auth(key).send();
        let listed: Vec<Value> = list(own).await.unwrap().json().await.unwrap();
        assert_eq!(listed.len(), orders, "each has a store of its own");
        assert_eq!(error(list(other).await.unwrap()).await, (401, "invalid_api_key".to_owned()));
        let cancel = deployment.request(&client, 0, Method::DELETE, "shop", "/v1/store/orders/0").bearer_auth(other);
        assert_eq!(cancel.send().await.unwrap().status(), 401);
    }
    // Staging with a copy of production's data: the key is known there, and refused as a live key.
    let copy = Deployment::copy(production, "test").await;
    let client = copy.client();
    let list = |key: &str| copy.request(&client, 0, Method::GET, "shop", "/v1/store/orders").bearer_auth(key).send();
    let known: Value = copy.control(0, Method::GET, "/projects/shop/keys").send().await.unwrap().json().await.unwrap();
    assert_eq!(known["keys"].as_array().unwrap().len(), 1, "{known}");
    let own = copy.key("shop").await;
    until("its own key is known", async || list(&own).await.is_ok_and(|answer| answer.status() == 200)).await;
    assert_eq!(list(&own).await.unwrap().json::<Vec<Value>>().await.unwrap().len(), 2, "production's orders");
    assert_eq!(error(list(&live).await.unwrap()).await, (401, "invalid_api_key".to_owned()));
}
