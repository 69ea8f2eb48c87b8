//! Orders in PostgreSQL: the conformance suite over two replicas, and conflicts between replicas.

#[path = "../../../../../chassis/tests/support/postgres.rs"]
mod server;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use chassis::secret::Secret;
use chassis::sql::PostgresSettings;
use contract::project::ProjectUid;
use contract::time::UnixMillis;

use self::server::{Server, name_in};
use super::super::SqlOrders;
use super::{AT, demo, orders};
use crate::order::{CancelError, Order, ShipError, Status};
use crate::store::{
    ChangeError, CreateError, Created, Edition, Event, FaultKind, Idempotency, ImportError, NewOrder, OrderStore,
    PageQuery, StoreError, Summary, Waiting, conformance,
};

async fn replica(url: &str) -> SqlOrders {
    let settings = PostgresSettings::new(Secret::parse_password(url).unwrap(), 5).unwrap();
    SqlOrders::open(&settings.into()).await.unwrap()
}

/// Two replicas over one database, called in turn: each must see the other's acknowledged changes.
struct Replicas {
    each: [SqlOrders; 2],
    turn: AtomicUsize,
}

impl Replicas {
    async fn over(url: &str) -> Self {
        // Both start at the same time and find an empty database.
        let (one, other) = tokio::join!(replica(url), replica(url));
        assert_eq!(one.store_id(), other.store_id());
        Self { each: [one, other], turn: AtomicUsize::new(0) }
    }

    fn next(&self) -> &SqlOrders {
        &self.each[self.turn.fetch_add(1, Ordering::Relaxed) % 2]
    }
}

#[async_trait]
impl OrderStore for Replicas {
    fn store_id(&self) -> &str {
        self.next().store_id()
    }

    async fn edition(&self, project: &ProjectUid) -> Result<Edition, StoreError> {
        self.next().edition(project).await
    }

    async fn batch(&self, project: &ProjectUid, after: Option<i64>, limit: u32) -> Result<Vec<Order>, StoreError> {
        self.next().batch(project, after, limit).await
    }

    async fn page(&self, project: &ProjectUid, query: &PageQuery) -> Result<Vec<Order>, StoreError> {
        self.next().page(project, query).await
    }

    async fn find(&self, project: &ProjectUid, id: i64) -> Result<Option<Order>, StoreError> {
        self.next().find(project, id).await
    }

    async fn events(&self, project: &ProjectUid, id: i64) -> Result<Option<Vec<Event>>, StoreError> {
        self.next().events(project, id).await
    }

    async fn knows_pet(&self, project: &ProjectUid, pet_id: i64) -> Result<bool, StoreError> {
        self.next().knows_pet(project, pet_id).await
    }

    async fn summary(&self, project: &ProjectUid) -> Result<Summary, StoreError> {
        self.next().summary(project).await
    }

    async fn cancel(&self, project: &ProjectUid, id: i64, at: UnixMillis) -> Result<Order, ChangeError<CancelError>> {
        self.next().cancel(project, id, at).await
    }

    async fn ship(&self, project: &ProjectUid, id: i64, at: UnixMillis) -> Result<Order, ChangeError<ShipError>> {
        self.next().ship(project, id, at).await
    }

    async fn create(
        &self,
        project: &ProjectUid,
        order: NewOrder,
        idempotency: Option<Idempotency>,
        at: UnixMillis,
    ) -> Result<Created, CreateError> {
        self.next().create(project, order, idempotency, at).await
    }

    async fn import(&self, project: &ProjectUid, orders: Vec<Order>) -> Result<u64, ImportError> {
        self.next().import(project, orders).await
    }

    async fn erase(&self, project: &ProjectUid, at: UnixMillis) -> Result<(), StoreError> {
        self.next().erase(project, at).await
    }

    async fn undelivered(&self, limit: u32) -> Result<Waiting, StoreError> {
        self.next().undelivered(limit).await
    }

    async fn forget(&self, delivered: Vec<i64>, keep: u32) -> Result<u64, StoreError> {
        self.next().forget(delivered, keep).await
    }

    async fn close(&self) {
        for store in &self.each {
            store.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_pass_the_conformance_suite() {
    let made = Mutex::new(Vec::new());
    conformance::suite(|| async {
        let replicas = Arc::new(Replicas::over(&Server::shared().database()).await);
        made.lock().unwrap().push(replicas.clone());
        replicas as Arc<dyn OrderStore>
    })
    .await;
    let made = made.into_inner().unwrap();
    for replicas in made {
        replicas.close().await;
    }
}

const NEW: NewOrder = NewOrder { pet_id: Some(4), quantity: Some(2), ship_date: None };

#[tokio::test(flavor = "multi_thread")]
async fn ids_and_idempotency_keys_are_used_once_over_all_replicas() {
    let replicas = Arc::new(Replicas::over(&Server::shared().database()).await);
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
    let replicas = Arc::new(Replicas::over(&Server::shared().database()).await);
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
