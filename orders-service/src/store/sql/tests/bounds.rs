//! Tables that grow with customers' requests: each is filled up to its bound in docs/reference/bounds.md.

use super::*;
use crate::store::{Created, Idempotency, NewOrder};

const MANY: i64 = 400;

async fn rows(store: &OrderStore, statement: &'static str) -> i64 {
    sqlx::query_scalar(statement).fetch_one(writer(store)).await.unwrap()
}

async fn create(store: &OrderStore, key: i64, at: UnixMillis) -> i64 {
    let idempotency = Idempotency { key: key.to_string(), fingerprint: 1, expires_at: at.plus(1_000) };
    let new = NewOrder { pet_id: None, quantity: None, ship_date: None };
    match store.create(&demo(), new, Some(idempotency), at).await.unwrap() {
        Created::Now(order) | Created::Before(order) => order.id,
    }
}

#[tokio::test]
async fn repeated_requests_add_no_rows_and_the_outbox_stays_within_its_bound() {
    let directory = tempfile::tempdir().unwrap();
    let store = OrderStore::open(&directory.path().join("orders.db").into()).await.unwrap();
    for _ in 0..3 {
        for key in 0..MANY {
            let id = create(&store, key, AT).await;
            let _ = if key % 2 == 0 {
                store.ship(&demo(), id, AT).await.is_ok()
            } else {
                store.cancel(&demo(), id, AT).await.is_ok()
            };
        }
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM orders").await, MANY);
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM stores").await, 1);
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM idempotency_keys").await, MANY);
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM order_events").await, 2 * MANY, "created, and one change");
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM order_outbox").await, 2 * MANY);
    }
    // Without deliveries, the oldest events are dropped.
    store.forget(Vec::new(), 100).await.unwrap();
    assert_eq!(rows(&store, "SELECT COUNT(*) FROM order_outbox").await, 100);
    // After the keys expired, each new key removes more than it adds.
    for key in 0..MANY / 4 {
        create(&store, MANY + key, AT.plus(1_000)).await;
    }
    assert_eq!(rows(&store, "SELECT COUNT(*) FROM idempotency_keys").await, MANY / 4);
    store.close().await;
}

#[tokio::test]
async fn erased_projects_are_remembered_for_400_days() {
    const DAY_MILLIS: i64 = 86_400_000;
    let directory = tempfile::tempdir().unwrap();
    let store = OrderStore::open(&directory.path().join("orders.db").into()).await.unwrap();
    for number in 0..100_u8 {
        store.erase(&ProjectUid::from_random([number; 16]), AT).await.unwrap();
    }
    assert_eq!(rows(&store, "SELECT COUNT(*) FROM erased_projects").await, 100);
    store.erase(&demo(), AT.plus(400 * DAY_MILLIS + 1)).await.unwrap();
    assert_eq!(rows(&store, "SELECT COUNT(*) FROM erased_projects").await, 1);
    store.close().await;
}
