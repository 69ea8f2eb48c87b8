//! Tables that grow with what customers do: each is filled, and ends where docs/reference/bounds.md says.

use super::*;
use crate::store::{Created, Idempotency, NewOrder};

const MANY: i64 = 400;

async fn rows(store: &SqlOrders, statement: &'static str) -> i64 {
    sqlx::query_scalar(statement).fetch_one(writer(store)).await.unwrap()
}

async fn create(store: &SqlOrders, key: i64, at: UnixMillis) -> i64 {
    let idempotency = Idempotency { key: key.to_string(), fingerprint: 1, expires_at: at.plus(1_000) };
    let new = NewOrder { pet_id: None, quantity: None, ship_date: None };
    match store.create(&demo(), new, Some(idempotency), at).await.unwrap() {
        Created::Now(order) | Created::Before(order) => order.id,
    }
}

#[tokio::test]
async fn an_order_leaves_one_row_one_key_and_so_many_events_however_often_it_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqlOrders::open(&directory.path().join("orders.db").into()).await.unwrap();
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
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM order_events").await, 2 * MANY, "created, and what came of it");
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM order_outbox").await, 2 * MANY);
    }
    // Nobody is told anything: the oldest go.
    store.forget(Vec::new(), 100).await.unwrap();
    assert_eq!(rows(&store, "SELECT COUNT(*) FROM order_outbox").await, 100);
    // The keys expire: those who come later remove more than they add.
    for key in 0..MANY / 4 {
        create(&store, MANY + key, AT.plus(1_000)).await;
    }
    assert_eq!(rows(&store, "SELECT COUNT(*) FROM idempotency_keys").await, MANY / 4);
    store.close().await;
}

#[tokio::test]
async fn projects_that_were_erased_are_remembered_for_a_time() {
    const DAY_MILLIS: i64 = 86_400_000;
    let directory = tempfile::tempdir().unwrap();
    let store = SqlOrders::open(&directory.path().join("orders.db").into()).await.unwrap();
    for number in 0..100_u8 {
        store.erase(&ProjectUid::from_random([number; 16]), AT).await.unwrap();
    }
    assert_eq!(rows(&store, "SELECT COUNT(*) FROM erased_projects").await, 100);
    store.erase(&demo(), AT.plus(400 * DAY_MILLIS + 1)).await.unwrap();
    assert_eq!(rows(&store, "SELECT COUNT(*) FROM erased_projects").await, 1);
    store.close().await;
}
