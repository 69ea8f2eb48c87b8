//! The embedded store: the conformance suite, and faults of SQLite. Those of PostgreSQL are in `postgres`.

mod bounds;
mod postgres;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::project::ProjectUid;
use contract::time::UnixMillis;
use sqlx::Executor as _;

use crate::order::{Order, Status};
use crate::scan::Scan;
use crate::store::{ChangeError, CreateError, FaultKind, ImportError, OrderStore, StoreError, conformance};

const AT: UnixMillis = UnixMillis(1_795_176_000_000);

fn demo() -> ProjectUid {
    "demo".parse().unwrap()
}

fn writer(store: &OrderStore) -> &sqlx::SqlitePool {
    store.database.write.sqlite().unwrap()
}

fn orders(ids: std::ops::Range<i64>) -> Vec<Order> {
    ids.map(|id| Order {
        id,
        pet_id: Some(id * 3),
        quantity: None,
        ship_date: None,
        complete: Some(id % 2 == 0),
        status: Status::Pending,
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_passes_the_conformance_suite() {
    let directory = tempfile::tempdir().unwrap();
    let count = std::sync::atomic::AtomicU32::new(0);
    conformance::suite(|| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = directory.path().join(format!("{number}.db"));
        async move { Arc::new(OrderStore::open(&path.clone().into()).await.unwrap()) }
    })
    .await;
}

// rule: 4.2.204
// promise: orders.12, faults.13
#[tokio::test]
async fn a_commit_waits_for_the_disk() {
    const FULL: i64 = 2;
    let directory = tempfile::tempdir().unwrap();
    let store = OrderStore::open(&directory.path().join("orders.db").into()).await.unwrap();
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(writer(&store)).await.unwrap();
    let journal: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(writer(&store)).await.unwrap();
    assert_eq!((synchronous, journal.as_str()), (FULL, "wal"));
    store.close().await;
}

#[tokio::test]
async fn closing_writes_the_queued_changes_first() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.db");
    let project = demo();
    let store = OrderStore::open(&path.clone().into()).await.unwrap();
    store.import(&project, orders(0..100)).await.unwrap();
    let mut waiting: Vec<_> = (0..100).map(|id| Box::pin(store.cancel(&project, id, AT))).collect();
    for change in &mut waiting {
        assert!(futures_util::poll!(change).is_pending(), "it waits for the writer");
    }
    store.close().await;
    for change in waiting {
        assert_eq!(change.await.unwrap().status, Status::Cancelled);
    }
    let store = OrderStore::open(&path.into()).await.unwrap();
    assert_eq!(store.summary(&project).await.unwrap().cancelled, 100);
    store.close().await;
}

// promise: orders.13, faults.14
#[tokio::test]
async fn a_full_disk_is_reported_as_full_loses_no_change_and_recovers() {
    let directory = tempfile::tempdir().unwrap();
    let store = OrderStore::open(&directory.path().join("orders.db").into()).await.unwrap();
    store.import(&demo(), orders(0..10)).await.unwrap();
    // If the writer's connection may not enlarge the file, SQLite reports a full disk.
    let pages: i64 = sqlx::query_scalar("PRAGMA page_count").fetch_one(writer(&store)).await.unwrap();
    let limit = sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
    writer(&store).execute(sqlx::raw_sql(limit)).await.unwrap();
    let refused = store.import(&demo(), orders(100..20_000)).await;
    assert!(matches!(&refused, Err(ImportError::Store(error)) if error.kind == FaultKind::Full), "{refused:?}");
    assert_eq!(store.summary(&demo()).await.unwrap().pending, 10, "no order was stored");
    assert_eq!(store.cancel(&demo(), 3, AT).await.unwrap().status, Status::Cancelled, "the store writes again");
    assert_eq!(store.import(&demo(), orders(100..200)).await, Ok(100));
    store.close().await;
}

// promise: orders.14, faults.15
#[tokio::test]
async fn a_file_locked_by_another_process_is_busy_and_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.db");
    let store = OrderStore::open(&path.clone().into()).await.unwrap();
    store.import(&demo(), orders(0..10)).await.unwrap();
    let other = chassis::sqlite::Sqlite::open(&path).await.unwrap();
    let mut lock = other.write.acquire().await.unwrap();
    lock.execute("BEGIN IMMEDIATE").await.unwrap();
    let refused = store.cancel(&demo(), 3, AT).await;
    assert!(matches!(&refused, Err(ChangeError::Store(error)) if error.kind == FaultKind::Busy), "{refused:?}");
    assert_eq!(store.find(&demo(), 3).await.unwrap().unwrap().status, Status::Pending);
    lock.execute("ROLLBACK").await.unwrap();
    assert_eq!(store.cancel(&demo(), 3, AT).await.unwrap().status, Status::Cancelled);
}

// promise: orders.15, faults.16
#[tokio::test]
async fn a_damaged_row_fails_alone() {
    let directory = tempfile::tempdir().unwrap();
    let store = OrderStore::open(&directory.path().join("orders.db").into()).await.unwrap();
    store.import(&demo(), orders(0..10)).await.unwrap();
    writer(&store).execute("UPDATE orders SET status = 'shipped' WHERE id = 3").await.unwrap();
    let corrupt = |error: &StoreError| error.kind == FaultKind::Corrupt;
    assert!(matches!(store.find(&demo(), 3).await, Err(error) if corrupt(&error)));
    assert!(matches!(store.batch(&demo(), None, 10).await, Err(error) if corrupt(&error)));
    let project = demo();
    let (damaged, sound) = tokio::join!(store.cancel(&project, 3, AT), store.cancel(&project, 4, AT));
    assert!(matches!(damaged, Err(ChangeError::Store(error)) if corrupt(&error)));
    assert_eq!(sound.unwrap().status, Status::Cancelled);
}

// promise: orders.15, faults.16
#[tokio::test]
async fn a_number_that_cannot_be_raised_is_replaced_and_fails_no_other_project() {
    let directory = tempfile::tempdir().unwrap();
    let store = OrderStore::open(&directory.path().join("orders.db").into()).await.unwrap();
    let (project, other) = (demo(), "other".parse().unwrap());
    let new = crate::store::NewOrder { pet_id: None, quantity: None, ship_date: None };
    for project in [&project, &other] {
        store.import(project, orders(1..10)).await.unwrap();
        store.create(project, new, None, AT).await.unwrap();
    }
    for (damage, order) in [
        ("UPDATE stores SET version = 9223372036854775807 WHERE project = 'demo'", 2),
        ("UPDATE stores SET orders = 9223372036854775807 WHERE project = 'demo'", 3),
        ("UPDATE order_events SET sequence = 9223372036854775807 WHERE project = 'demo'", 10),
    ] {
        writer(&store).execute(damage).await.unwrap();
        // They share a commit.
        let (cancelled, made, sound) = tokio::join!(
            store.cancel(&project, order, AT),
            store.create(&project, new, None, AT),
            store.cancel(&other, order, AT)
        );
        assert!(cancelled.is_ok() && made.is_ok() && sound.is_ok(), "{damage}: {cancelled:?} {made:?} {sound:?}");
        let edition = store.edition(&project).await.unwrap();
        let there = store.batch(&project, None, 100).await.unwrap().len();
        assert_eq!(edition.orders, i64::try_from(there).unwrap(), "{damage}");
        assert!(edition.version < 1 << 62, "{damage}: {edition:?}");
    }
    store.close().await;
}

// promise: faults.16
#[tokio::test]
async fn a_damaged_count_of_events_ends_no_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.db");
    for damage in [
        "UPDATE sqlite_sequence SET seq = 9223372036854775807",
        "UPDATE sqlite_sequence SET seq = 'garbage'",
        "UPDATE order_outbox SET number = 9223372036854775807 WHERE number = (SELECT MAX(number) FROM order_outbox)",
    ] {
        let store = OrderStore::open(&path.clone().into()).await.unwrap();
        let new = crate::store::NewOrder { pet_id: None, quantity: None, ship_date: None };
        store.create(&demo(), new, None, AT).await.unwrap();
        writer(&store).execute(damage).await.unwrap();
        store.close().await;
        let store = OrderStore::open(&path.clone().into()).await.unwrap();
        let before = store.undelivered(100).await.unwrap().events.len();
        store.create(&demo(), new, None, AT).await.unwrap();
        assert_eq!(store.undelivered(100).await.unwrap().events.len(), before + 1, "{damage}");
        store.close().await;
    }
}

// promise: orders.15, faults.16
#[tokio::test]
async fn damage_found_during_a_change_rolls_the_change_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.db");
    let store = OrderStore::open(&path.clone().into()).await.unwrap();
    store.import(&demo(), orders(1..10)).await.unwrap();
    let text = "SELECT rootpage FROM sqlite_schema WHERE name = 'order_events'";
    let page: i64 = sqlx::query_scalar(text).fetch_one(writer(&store)).await.unwrap();
    let size: i64 = sqlx::query_scalar("PRAGMA page_size").fetch_one(writer(&store)).await.unwrap();
    store.close().await;
    let mut file = std::fs::read(&path).unwrap();
    // The order itself is written before its event.
    file[usize::try_from((page - 1) * size).unwrap()..][..8].fill(0xff);
    std::fs::write(&path, file).unwrap();
    let store = OrderStore::open(&path.into()).await.unwrap();
    let (project, new) = (demo(), crate::store::NewOrder { pet_id: None, quantity: None, ship_date: None });
    let before = store.edition(&project).await.unwrap();
    // They share a commit.
    let (made, cancelled) = tokio::join!(store.create(&project, new, None, AT), store.cancel(&project, 3, AT));
    let corrupt = |error: &StoreError| error.kind == FaultKind::Corrupt;
    assert!(matches!(&made, Err(CreateError::Store(error)) if corrupt(error)), "{made:?}");
    assert!(matches!(&cancelled, Err(ChangeError::Store(error)) if corrupt(error)), "{cancelled:?}");
    assert_eq!(store.batch(&project, None, 100).await.unwrap(), orders(1..10));
    assert_eq!(store.edition(&project).await.unwrap(), before);
    store.close().await;
}

// promise: orders.15, faults.16
#[tokio::test]
async fn damage_on_which_a_statement_fails_fails_no_other_change_of_the_commit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.db");
    let store = OrderStore::open(&path.clone().into()).await.unwrap();
    let (damaged, sound) = (demo(), "other".parse().unwrap());
    for project in [&damaged, &sound] {
        store.import(project, orders(1..10)).await.unwrap();
    }
    // Enough events that the pages of one project have none of the other.
    let text = "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers LIMIT 1000) \
                INSERT INTO order_events SELECT project, number, 1, 'created', 0 FROM numbers, stores";
    writer(&store).execute(text).await.unwrap();
    let size: i64 = sqlx::query_scalar("PRAGMA page_size").fetch_one(writer(&store)).await.unwrap();
    store.close().await;
    let mut file = std::fs::read(&path).unwrap();
    let has = |page: &[u8], text: &str| page.windows(text.len()).any(|part| part == text.as_bytes());
    let leaf_of_an_index = 10;
    for page in file.chunks_mut(usize::try_from(size).unwrap()) {
        if page[0] == leaf_of_an_index && has(page, "demo") && has(page, "created") && !has(page, "other") {
            page[..8].fill(0xff);
        }
    }
    std::fs::write(&path, file).unwrap();
    let store = OrderStore::open(&path.into()).await.unwrap();
    let before = store.edition(&damaged).await.unwrap();
    // They share a commit. The order is written before its event, which meets the damage.
    let (first, failed, last) =
        tokio::join!(store.cancel(&sound, 3, AT), store.cancel(&damaged, 3, AT), store.cancel(&sound, 4, AT));
    assert!(first.is_ok() && last.is_ok(), "{first:?} {last:?}");
    assert!(matches!(&failed, Err(ChangeError::Store(error)) if error.kind == FaultKind::Corrupt), "{failed:?}");
    assert_eq!(store.find(&damaged, 3).await.unwrap().unwrap().status, Status::Pending, "nothing of it is written");
    assert_eq!(store.edition(&damaged).await.unwrap(), before);
    assert_eq!(store.summary(&sound).await.unwrap().cancelled, 2);
    store.close().await;
}

// promise: orders.13, faults.14
#[tokio::test]
async fn an_import_that_was_reported_as_failed_adds_nothing_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.db");
    let store = OrderStore::open(&path.clone().into()).await.unwrap();
    // The writer waits for this connection until after the deadline of the import.
    let only_connection = writer(&store).acquire().await.unwrap();
    let refused = store.import_within(std::time::Duration::ZERO, &demo(), orders(1..10)).await;
    assert!(matches!(&refused, Err(ImportError::Store(error)) if error.kind == FaultKind::Busy), "{refused:?}");
    drop(only_connection);
    // Closing writes queued changes.
    store.close().await;
    let store = OrderStore::open(&path.into()).await.unwrap();
    assert_eq!(store.batch(&demo(), None, 100).await.unwrap(), []);
    assert_eq!(store.import(&demo(), orders(1..10)).await, Ok(9), "repeating it is safe");
    store.close().await;
}

// promise: orders.6
#[tokio::test]
async fn a_list_fails_at_its_end_if_an_order_disappeared() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(OrderStore::open(&directory.path().join("orders.db").into()).await.unwrap());
    store.import(&demo(), orders(0..10)).await.unwrap();
    writer(&store).execute("DELETE FROM orders WHERE id = 3").await.unwrap();
    let error = listed(store).await.unwrap_err();
    assert_eq!(error.kind, FaultKind::Corrupt);
    assert!(error.to_string().contains("has 10 orders, but only 9"), "{error}");
}

async fn listed(store: Arc<OrderStore>) -> Result<Vec<Order>, StoreError> {
    let mut scan = Scan::begin(store, demo()).await?;
    let mut listed = Vec::new();
    while let Some(batch) = scan.next().await? {
        listed.extend(batch);
    }
    Ok(listed)
}

async fn listed_from(path: &Path) -> Option<Vec<Order>> {
    let store = Arc::new(OrderStore::open(&path.to_owned().into()).await.ok()?);
    let listed = listed(store.clone()).await.ok();
    store.close().await;
    listed
}

// promise: orders.15, faults.16
#[tokio::test]
async fn a_flipped_byte_never_gives_a_wrong_list() {
    // A prime step, so that over the pages of the file the flips reach every offset within a page.
    const STRIDE: usize = 211;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.db");
    let store = OrderStore::open(&path.clone().into()).await.unwrap();
    store.import(&demo(), orders(0..300)).await.unwrap();
    store.close().await;
    let sound = std::fs::read(&path).unwrap();
    assert_eq!(listed_from(&path).await, Some(orders(0..300)));
    let (mut wrong, mut noticed, mut harmless) = (Vec::new(), 0, 0);
    for place in (0..sound.len()).step_by(STRIDE) {
        let mut damaged = sound.clone();
        damaged[place] ^= 0xff;
        let copy: PathBuf = directory.path().join(format!("{place}.db"));
        std::fs::write(&copy, &damaged).unwrap();
        match listed_from(&copy).await {
            None => noticed += 1,
            Some(listed) if listed == orders(0..300) => harmless += 1,
            Some(_) => wrong.push(place),
        }
        std::fs::remove_file(&copy).unwrap();
    }
    assert!(wrong.is_empty(), "flips at {wrong:?} gave wrong lists");
    assert!(noticed > 0 && harmless > 0, "{noticed} noticed, {harmless} harmless");
}

#[test]
fn every_migration_is_in_the_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    assert!(super::migrations().are_all_of(&folder).unwrap(), "list the files of migrations/ in sql.rs");
}
