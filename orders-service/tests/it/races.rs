//! Concurrent changes of the same orders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orders_service::Orders;
use orders_service::order::Status;
use reqwest::Method;

use crate::world::{World, lines};

async fn race(world: &Arc<World>, targets: impl IntoIterator<Item = (bool, String)>) -> BTreeMap<(bool, u16), usize> {
    let mut racers = tokio::task::JoinSet::new();
    for (public, target) in targets {
        let world = world.clone();
        racers.spawn(async move {
            let request =
                if public { world.request(Method::DELETE, &target) } else { world.operator(Method::POST, &target) };
            (public, request.send().await.unwrap().status().as_u16())
        });
    }
    let mut tally = BTreeMap::new();
    while let Some(outcome) = racers.join_next().await {
        *tally.entry(outcome.unwrap()).or_insert(0) += 1;
    }
    tally
}

// rule: 4.2.204
// promise: orders.9
#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_cancellations_of_one_order_exactly_one_succeeds() {
    let world = Arc::new(World::new().await);
    world.given("{\"id\":1}\n").await;
    let tally = race(&world, (0..100).map(|_| (true, "/v1/store/orders/1".to_owned()))).await;
    assert_eq!(tally, BTreeMap::from([((true, 204), 1), ((true, 409), 99)]));
}

// rule: 3.2
// promise: orders.10
#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_shipping_and_cancelling_exactly_one_succeeds() {
    let world = Arc::new(World::new().await);
    world.given(&lines(0..50)).await;
    let both = (0..50)
        .flat_map(|id| [(true, format!("/v1/store/orders/{id}")), (false, format!("/internal/orders/demo/{id}/ship"))]);
    let tally = race(&world, both).await;
    let count = |key| i64::try_from(tally.get(&key).copied().unwrap_or_default()).unwrap();
    let (cancelled, shipped) = (count((true, 204)), count((false, 200)));
    assert_eq!(cancelled + shipped, 50, "{tally:?}");
    assert_eq!((count((true, 409)), count((false, 409))), (shipped, cancelled), "{tally:?}");
    let summary = world.orders.summary(&"demo".parse().unwrap()).await.unwrap();
    assert_eq!((summary.pending, summary.shipped, summary.cancelled), (0, shipped, cancelled));
}

// rule: 4.2.204
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_completes_the_requests_in_progress() {
    const LANES: usize = 16;
    const ORDERS: i64 = 3_000;
    /// Cancellations acknowledged before the shutdown; at that time every other lane has a request in progress or sends
    /// one.
    const FIRST: usize = 100;
    let world = World::new().await;
    world.given(&lines(0..ORDERS)).await;
    let orders = world.orders.clone();
    let (acknowledge, mut acknowledged) = tokio::sync::mpsc::channel(LANES);
    for lane in 0..LANES {
        let mine = (0..ORDERS).skip(lane).step_by(LANES);
        let requests: Vec<_> =
            mine.map(|id| (id, world.request(Method::DELETE, &format!("/v1/store/orders/{id}")))).collect();
        let acknowledge = acknowledge.clone();
        tokio::spawn(async move {
            for (id, request) in requests {
                // The service has stopped, or closed the connection between two requests.
                let Ok(answer) = request.send().await else { return };
                assert_eq!(answer.status(), 204, "order {id}");
                acknowledge.send(id).await.unwrap();
            }
        });
    }
    drop(acknowledge);
    let mut cancelled = BTreeSet::new();
    while cancelled.len() < FIRST {
        cancelled.insert(acknowledged.recv().await.unwrap());
    }
    let stopping = tokio::spawn(world.stop());
    while let Some(id) = acknowledged.recv().await {
        cancelled.insert(id);
    }
    let directory = stopping.await.unwrap();
    assert!(cancelled.len() > FIRST, "requests in progress were answered");
    assert!(cancelled.len() < usize::try_from(ORDERS).unwrap(), "the shutdown came before the last request");
    let project = "demo".parse().unwrap();
    let refused = orders.store().cancel(&project, ORDERS - 1, crate::world::NOW).await;
    assert!(refused.is_err(), "a closed store refuses changes");
    // Exactly the answered changes are stored.
    let kept = Orders::open(&directory.path().join("orders.db").into()).await.unwrap();
    for id in 0..ORDERS {
        let order = kept.store().find(&project, id).await.unwrap().unwrap();
        assert_eq!(
            order.status == Status::Cancelled,
            cancelled.contains(&id),
            "order {id} is {}",
            order.status.as_str()
        );
    }
    kept.close().await;
}
