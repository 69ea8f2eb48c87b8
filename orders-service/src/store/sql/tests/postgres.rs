//! Orders in PostgreSQL: the conformance suite over two replicas, and conflicts between replicas.

#[path = "../../../../../chassis/tests/support/postgres.rs"]
mod server;

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use chassis::secret::Secret;
use chassis::sql::PostgresSettings;
use contract::project::ProjectUid;
use contract::time::UnixMillis;

use self::server::{Server, name_in};
use super::{AT, demo, orders};
use crate::order::Status;
use crate::store::{
    ChangeError, Created, Edition, FaultKind, Idempotency, NewOrder, OrderStore, StoreError, conformance,
};

async fn replica(url: &str) -> OrderStore {
    let settings = PostgresSettings::new(Secret::parse_password(url).unwrap(), 5).unwrap();
    OrderStore::open(&settings.into()).await.unwrap()
}

/// Two replicas over one database, called in turn: each must see the other's acknowledged changes.
#[derive(Clone)]
struct Replicas(Arc<([OrderStore; 2], AtomicUsize)>);

impl Replicas {
    async fn over(url: &str) -> Self {
        // Both start at the same time and find an empty database.
        let (one, other) = tokio::join!(replica(url), replica(url));
        assert_eq!(one.store_id(), other.store_id());
        Self(Arc::new(([one, other], AtomicUsize::new(0))))
    }
}

impl Deref for Replicas {
    type Target = OrderStore;

    fn deref(&self) -> &OrderStore {
        let (each, turn) = &*self.0;
        &each[turn.fetch_add(1, Ordering::Relaxed) % 2]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_pass_the_conformance_suite() {
    let made = Mutex::new(Vec::new());
    conformance::suite(|| async {
        let replicas = Replicas::over(&Server::shared().database()).await;
        made.lock().unwrap().push(replicas.clone());
        replicas
    })
    .await;
    let made = made.into_inner().unwrap();
    for Replicas(replicas) in made {
        for store in &replicas.0 {
            store.close().await;
        }
    }
}

const NEW: NewOrder = NewOrder { pet_id: Some(4), quantity: Some(2), ship_date: None };

#[tokio::test(flavor = "multi_thread")]
async fn ids_and_idempotency_keys_are_used_once_over_all_replicas() {
    let replicas = Replicas::over(&Server::shared().database()).await;
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..60_i64 {
        let replicas = replicas.clone();
        // Twenty keys, each used three times; two projects, so that groups hold several.
        let key = Idempotency { key: (number / 3).to_string(), fingerprint: 1, expires_at: UnixMillis(AT.0 + 1_000) };
        clients.spawn(async move {
            let project: ProjectUid = if number / 3 % 2 == 0 { demo() } else { "other".parse().unwrap() };
            let first = replicas.create(&project, NEW, Some(key.clone()), AT).await.unwrap();
            let again = replicas.create(&project, NEW, Some(key), AT).await.unwrap();
            let id = |created| match created {
                Created::Now(order) | Created::Before(order) => order.id,
            };
            assert_eq!(id(first), id(again));
            (project, id(first))
        });
    }
    let mut ids = clients.join_all().await;
    ids.sort_by(|left, right| (left.0.as_str(), left.1).cmp(&(right.0.as_str(), right.1)));
    ids.dedup();
    let expected: Vec<i64> = (1..=10).chain(1..=10).collect();
    assert_eq!(ids.iter().map(|(_, id)| *id).collect::<Vec<_>>(), expected);
    assert_eq!(replicas.edition(&demo()).await, Ok(Edition { version: 10, orders: 10 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn imports_cancellations_and_creations_of_replicas_never_deadlock() {
    let replicas = Replicas::over(&Server::shared().database()).await;
    let projects: Vec<ProjectUid> = ["a", "b", "c", "d"].map(|name| name.parse().unwrap()).to_vec();
    for project in &projects {
        replicas.import(project, orders(1..200)).await.unwrap();
    }
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..160_i64 {
        let (replicas, project) = (replicas.clone(), projects[usize::try_from(number % 4).unwrap()].clone());
        clients.spawn(async move {
            match number % 5 {
                0 => replicas
                    .import(&project, orders(1_000 + number * 10..1_005 + number * 10))
                    .await
                    .map(|_| ())
                    .unwrap(),
                // The creations below use the same ids; either can come first.
                1 => drop(replicas.import(&project, orders(200 + number..201 + number)).await),
                2 => drop(replicas.create(&project, NEW, None, AT).await.unwrap()),
                _ => drop(replicas.cancel(&project, number % 160 + 1, AT).await.unwrap()),
            }
        });
    }
    clients.join_all().await;
}

#[tokio::test]
async fn a_damaged_row_fails_alone_and_a_list_with_a_lost_row_fails() {
    let server = Server::shared();
    let url = server.database();
    let store = replica(&url).await;
    store.import(&demo(), orders(0..10)).await.unwrap();
    server.sql(name_in(&url), "UPDATE orders SET status = 'shipped' WHERE id = 3");
    let is_corrupt = |error: &StoreError| error.kind == FaultKind::Corrupt;
    assert!(matches!(store.find(&demo(), 3).await, Err(error) if is_corrupt(&error)));
    let project = demo();
    let (damaged, sound) = tokio::join!(store.cancel(&project, 3, AT), store.cancel(&project, 4, AT));
    assert!(matches!(damaged, Err(ChangeError::Store(error)) if is_corrupt(&error)));
    assert_eq!(sound.unwrap().status, Status::Cancelled);
    server.sql(name_in(&url), "DELETE FROM orders WHERE id = 3");
    let error = super::listed(Arc::new(store)).await.unwrap_err();
    assert!(is_corrupt(&error) && error.to_string().contains("has 10 orders, but only 9"), "{error}");
}
