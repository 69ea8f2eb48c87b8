//! Three replicas over one PostgreSQL: each gateway has its own control plane and orders-service.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::deployment::Deployment;
use crate::world::until;

const REPLICAS: usize = 3;

// rule: 4.2.204, 4.2.409
#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_of_everything_are_one_platform() {
    let deployment = Arc::new(Deployment::of_replicas(REPLICAS).await);
    // Created at the first replica; when this returns, every gateway has it from its own control plane.
    let key = deployment.project("shop", "{\"id\":1}\n{\"id\":2}\n".to_owned()).await;
    let client = deployment.client();
    for gateway in 0..REPLICAS {
        let request = deployment.request(&client, gateway, Method::GET, "shop", "/v1/store/orders");
        let listed: Vec<Value> = request.bearer_auth(&key).send().await.unwrap().json().await.unwrap();
        assert_eq!(listed.len(), 2, "all replicas list what one imported");
    }
    let mut racers = JoinSet::new();
    for number in 0..60 {
        let (deployment, key) = (deployment.clone(), key.clone());
        racers.spawn(async move {
            let client = deployment.client();
            let request = deployment.request(&client, number % REPLICAS, Method::DELETE, "shop", "/v1/store/orders/1");
            request.bearer_auth(key).send().await.unwrap().status().as_u16()
        });
    }
    let mut tally = BTreeMap::new();
    for status in racers.join_all().await {
        *tally.entry(status).or_insert(0) += 1;
    }
    assert_eq!(tally, BTreeMap::from([(204, 1), (409, 59)]));
    // Revoked at the second replica: every gateway refuses the key.
    let suspended = deployment.control(1, Method::PATCH, "/projects/shop").json(&json!({ "suspended": true }));
    let suspended = suspended.send().await.unwrap();
    assert!(suspended.status().is_success(), "{}", suspended.text().await.unwrap());
    for gateway in 0..REPLICAS {
        until("the gateway knows of the suspension", async || {
            let request = deployment.request(&client, gateway, Method::GET, "shop", "/v1/store/orders");
            request.bearer_auth(&key).send().await.is_ok_and(|answer| !answer.status().is_success())
        })
        .await;
    }
}
