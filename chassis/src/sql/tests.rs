//! The same statements on both databases, and the behaviour when a server is slow or unavailable.

mod origin;
#[path = "../../tests/support/postgres.rs"]
mod postgres;
mod power;
mod start;

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use sqlx::migrate::Migrator;

use self::postgres::{Server, name_in};
use super::*;
use crate::secret::Secret;

fn migrations() -> Migrations {
    Migrations { sqlite: Migrator::DEFAULT, postgres: Migrator::DEFAULT }
}

async fn open(url: &str) -> anyhow::Result<Database> {
    let settings = PostgresSettings::new(Secret::parse_password(url).unwrap(), 4).unwrap();
    Database::open(&settings.into(), &migrations()).await
}

async fn of_server(url: &str) -> Database {
    open(url).await.unwrap()
}

/// Guards against hanging tests. No test takes this long, so no time is measured.
const HANGS_AFTER: Duration = Duration::from_mins(1);

async fn ends<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANGS_AFTER, work).await.expect("it hangs")
}

/// The SQLSTATE with which a server refused us. After a vain wait the error is only a text.
fn refusal(error: &anyhow::Error) -> String {
    let refused = error.downcast_ref::<sqlx::Error>().expect("nothing was waited for");
    refused.as_database_error().unwrap().code().unwrap().into_owned()
}

async fn both(directory: &Path) -> [Database; 2] {
    let file = Database::open(&directory.join("x.db").into(), &migrations()).await.unwrap();
    [file, of_server(&Server::shared().database()).await]
}

const TABLE: &str = "CREATE TABLE things (id BIGINT PRIMARY KEY, name TEXT, flag BOOLEAN, size BIGINT)";

crate::record! {
    #[derive(Debug, PartialEq, Eq)]
    struct Thing {
        id: i64,
        name: Option<String>,
        flag: Option<bool>,
        size: Option<i64>,
    }
}

#[tokio::test]
async fn a_statement_means_the_same_to_both() {
    let directory = tempfile::tempdir().unwrap();
    for database in both(directory.path()).await {
        query(TABLE).execute(&database.write).await.unwrap();
        for (id, name, flag, size) in
            [(i64::MIN, Some("ä \u{1f600}"), Some(true), Some(i64::MAX)), (7, None, None, None)]
        {
            let insert = query("INSERT INTO things (id, name, flag, size) VALUES ($1, $2, $3, $4)");
            let done = insert.bind(id).bind(name).bind(flag).bind(size).execute(&database.write).await.unwrap();
            assert_eq!(done.rows_affected(), 1);
        }
        let all: Vec<Thing> = query_as("SELECT * FROM things ORDER BY id").fetch_all(&database.read).await.unwrap();
        let first = Thing { id: i64::MIN, name: Some("ä \u{1f600}".into()), flag: Some(true), size: Some(i64::MAX) };
        assert_eq!(all, [first, Thing { id: 7, name: None, flag: None, size: None }]);
        let count: i64 = query_scalar("SELECT COUNT(*) FROM things WHERE flag IS NULL AND id = $1")
            .bind(7_i64)
            .fetch_one(&database.read)
            .await
            .unwrap();
        assert_eq!(count, 1);
        let none: Option<(String,)> =
            query_as("SELECT name FROM things WHERE id = $1").bind(8_i64).fetch_optional(&database.read).await.unwrap();
        assert_eq!(none, None);
        let twice = query("INSERT INTO things (id) VALUES (7)").execute(&database.write).await.unwrap_err();
        assert!(twice.as_database_error().unwrap().is_unique_violation());
    }
}

/// SQLite stores anything in any column; PostgreSQL refuses all of this.
#[tokio::test]
async fn a_column_that_cannot_be_read_fails_neither_its_row_nor_others() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(&directory.path().join("x.db").into(), &migrations()).await.unwrap();
    query(TABLE).execute(&database.write).await.unwrap();
    query(
        "INSERT INTO things (id, name, flag, size) VALUES (1, 'a', TRUE, 1), (2, CAST(x'62ff' AS TEXT), TRUE, 2),
             (3, x'63', TRUE, 3), (4, 'd', 'yes', 4), (5, 'e', TRUE, 'five'), (6, 'f', TRUE, 6.5), ('seven', 'g', NULL, 7)",
    )
    .execute(&database.write)
    .await
    .unwrap();
    let all = || query_as::<Found<Thing>>("SELECT * FROM things ORDER BY id");
    let found = all().fetch_all(&database.read).await.unwrap();
    let bad: Vec<_> = found.iter().map(|found| found.bad.as_ref().map(|bad| bad.column)).collect();
    let named = Some("name");
    assert_eq!(bad, [None, named, named, Some("flag"), Some("size"), Some("size"), Some("id")]);
    let names: Vec<_> = found.iter().map(|found| found.row.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["a", "b\\xff", "c", "d", "e", "f", "g"], "bytes that are not text are escaped");
    assert_eq!((found[3].row.flag, found[4].row.size, found[6].row.id), (None, None, 0));
    let pairs: Vec<Found<(String, i64)>> =
        query_as("SELECT name, id FROM things WHERE id < 3 ORDER BY id").fetch_all(&database.read).await.unwrap();
    assert_eq!(pairs.iter().filter(|found| found.bad.is_none()).count(), 1);
    // A reader of whole rows gets an error, and the connection stays usable.
    let whole = query_as::<Thing>("SELECT * FROM things ORDER BY id").fetch_all(&database.read).await;
    assert!(matches!(&whole, Err(sqlx::Error::ColumnDecode { index, .. }) if index == "name"), "{whole:?}");
    // A missing column is a wrong statement, not an unreadable row.
    let wrong = query_as::<Found<Thing>>("SELECT id FROM things").fetch_all(&database.read).await;
    assert!(matches!(wrong, Err(sqlx::Error::ColumnNotFound(_))), "{wrong:?}");
}

#[tokio::test]
async fn an_uncommitted_transaction_leaves_no_change_and_its_connection_is_reused() {
    let directory = tempfile::tempdir().unwrap();
    for database in both(directory.path()).await {
        query(TABLE).execute(&database.write).await.unwrap();
        // More rounds than connections: each must come back without its transaction.
        for round in 0..12 {
            let mut dropped = database.write.begin(Begin::Write).await.unwrap();
            query("INSERT INTO things (id) VALUES (1)").execute(&mut dropped).await.unwrap();
            if round % 2 == 0 {
                dropped.roll_back().await;
            }
        }
        let mut kept = database.write.begin(Begin::Write).await.unwrap();
        query("INSERT INTO things (id) VALUES (2)").execute(&mut kept).await.unwrap();
        kept.commit().await.unwrap();
        let ids: Vec<i64> = query_scalar("SELECT id FROM things").fetch_all(&database.read).await.unwrap();
        assert_eq!(ids, [2], "{:?}", database.kind());
    }
}

#[tokio::test]
async fn nothing_of_a_transaction_with_a_failed_statement_is_committed() {
    let directory = tempfile::tempdir().unwrap();
    for database in both(directory.path()).await {
        query(TABLE).execute(&database.write).await.unwrap();
        let mut write = database.write.begin(Begin::Write).await.unwrap();
        query("INSERT INTO things (id) VALUES (1)").execute(&mut write).await.unwrap();
        query("INSERT INTO things (id) VALUES (1)").execute(&mut write).await.unwrap_err();
        assert!(write.has_failed());
        write.commit().await.unwrap_err();
        let count: i64 = query_scalar("SELECT COUNT(*) FROM things").fetch_one(&database.read).await.unwrap();
        assert_eq!(count, 0, "{:?}", database.kind());
    }
}

#[tokio::test]
async fn a_cancelled_caller_leaves_no_open_transaction() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let database = Database::open(&path.clone().into(), &migrations()).await.unwrap();
    query(TABLE).execute(&database.write).await.unwrap();
    let other = crate::sqlite::Sqlite::open(&path).await.unwrap();
    let mut lock = other.write.acquire().await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *lock).await.unwrap();
    // It waits for the lock, and the driver continues the transaction.
    tokio::time::timeout(Duration::from_millis(50), database.write.begin(Begin::Write)).await.unwrap_err();
    sqlx::query("ROLLBACK").execute(&mut *lock).await.unwrap();
    query("INSERT INTO things (id) VALUES (1)").execute(&database.write).await.unwrap();
    let count: i64 = query_scalar("SELECT COUNT(*) FROM things").fetch_one(&database.read).await.unwrap();
    assert_eq!(count, 1, "it was acknowledged, and is in a transaction that is never committed");
}

#[tokio::test]
async fn a_snapshot_is_of_one_moment() {
    let directory = tempfile::tempdir().unwrap();
    for database in both(directory.path()).await {
        query(TABLE).execute(&database.write).await.unwrap();
        let mut snapshot = database.read.begin(Begin::Snapshot).await.unwrap();
        let count = || query_scalar::<i64>("SELECT COUNT(*) FROM things");
        assert_eq!(count().fetch_one(&mut snapshot).await.unwrap(), 0);
        query("INSERT INTO things (id) VALUES (1)").execute(&database.write).await.unwrap();
        assert_eq!(count().fetch_one(&mut snapshot).await.unwrap(), 0, "{:?}", database.kind());
        drop(snapshot);
        assert_eq!(count().fetch_one(&database.read).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_statement_that_was_left_does_not_spoil_the_next() {
    let database = of_server(&Server::shared().database()).await;
    for _ in 0..6 {
        let slow = query("SELECT pg_sleep(3)").execute(&database.read);
        tokio::time::timeout(Duration::from_millis(50), slow).await.unwrap_err();
    }
    let one: i64 = query_scalar("SELECT $1").bind(1_i64).fetch_one(&database.read).await.unwrap();
    assert_eq!(one, 1);
}

#[tokio::test]
async fn sessions_have_the_settings_of_the_pool() {
    let database = of_server(&Server::shared().database()).await;
    for (setting, expected) in [
        ("lock_timeout", "2s"),
        ("statement_timeout", "4s"),
        ("idle_in_transaction_session_timeout", "30s"),
        ("tcp_keepalives_idle", "15"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        ("application_name", "tollhouse"),
    ] {
        let setting_value = query_scalar::<String>("SELECT current_setting($1)").bind(setting);
        assert_eq!(setting_value.fetch_one(&database.read).await.unwrap(), expected, "{setting}");
    }
}

#[tokio::test]
async fn a_lock_and_a_slow_statement_are_given_up_and_a_longer_one_must_be_allowed() {
    let url = Server::shared().database();
    let settings = PostgresSettings::new(Secret::parse_password(&url).unwrap(), 4).unwrap();
    let settings = settings.telling([("lock_timeout", "100"), ("statement_timeout", "300")]);
    let database = Database::open(&settings.into(), &migrations()).await.unwrap();
    query(TABLE).execute(&database.write).await.unwrap();
    query("INSERT INTO things (id) VALUES (1)").execute(&database.write).await.unwrap();
    let mut holder = database.write.begin(Begin::Write).await.unwrap();
    query("UPDATE things SET size = 1 WHERE id = 1").execute(&mut holder).await.unwrap();
    let refused = query("UPDATE things SET size = 2 WHERE id = 1").execute(&database.write).await.unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().code().unwrap(), "55P03");
    drop(holder);
    let refused = query("SELECT pg_sleep(60)").execute(&database.read).await.unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().code().unwrap(), "57014");
    let mut patient = database.write.begin(Begin::Write).await.unwrap();
    patient.allow(Duration::from_secs(30)).await.unwrap();
    query("SELECT pg_sleep(0.6)").execute(&mut patient).await.unwrap();
    patient.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_or_silent_server_is_reported_in_time_and_reconnected() {
    let server = Server::start(&[]);
    let url = server.database();
    let database = of_server(&url).await;
    let count = || query_scalar::<i64>("SELECT COUNT(*) FROM pg_database WHERE datname = $1").bind(name_in(&url));
    assert_eq!(count().fetch_one(&database.read).await.unwrap(), 1);
    server.stop();
    let gone = ends(count().fetch_one(&database.read)).await.unwrap_err();
    assert!(matches!(gone, sqlx::Error::PoolTimedOut), "a connection is waited for, and given up: {gone}");
    server.start_again();
    assert_eq!(count().fetch_one(&database.read).await.unwrap(), 1, "connections of the old server are found out");
    // A server on a dead machine is silent: all of its processes are stopped.
    let mut connection = database.read.acquire().await.unwrap();
    let processes = server.processes();
    let signal = |name: &str| {
        let done = std::process::Command::new("kill").arg(name).args(&processes).status().unwrap();
        assert!(done.success());
    };
    signal("-STOP");
    let answers = tokio::time::timeout(HANGS_AFTER, async {
        let silent = count().fetch_one(&mut connection).await;
        drop(connection);
        (silent, count().fetch_one(&database.read).await)
    })
    .await;
    // Whatever the result: a stopped server cannot be shut down.
    signal("-CONT");
    let (silent, other) = answers.expect("both time out while the server is stopped");
    // TCP would report it too, much later, with an error of the system.
    let is_ours = |error: &std::io::Error| error.kind() == ErrorKind::TimedOut && error.raw_os_error().is_none();
    assert!(matches!(&silent, Err(sqlx::Error::Io(error)) if is_ours(error)), "{silent:?}");
    assert!(matches!(other, Err(sqlx::Error::PoolTimedOut)), "{other:?}");
    let deadline = Instant::now() + Duration::from_secs(20);
    while count().fetch_one(&database.read).await.is_err() {
        assert!(Instant::now() < deadline, "it did not recover");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_shows_in_the_metrics_and_callers_do_not_wait() {
    let server = Server::start(&[]);
    let database = of_server(&server.database()).await;
    let registry = crate::metrics::registry("test").unwrap();
    let metrics = StoreMetrics::register(&registry, "test").unwrap();
    let shutdown = crate::shutdown::Shutdown::new();
    let watching = tokio::spawn(watch(database.clone(), metrics, shutdown.clone()));
    let shows_one_of = async |lines: &[&str]| {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let all = crate::metrics::render(&registry).unwrap();
            if all.lines().any(|line| lines.contains(&line)) {
                return;
            }
            assert!(Instant::now() < deadline, "none of {lines:?} is among\n{all}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let shows = async |line: &str| shows_one_of(&[line]).await;
    shows("test_store_up 1").await;
    shows("test_store_connections_max 4").await;
    shows("test_store_connections{state=\"busy\"} 0").await;
    // If a connection is returned late, the next caller opens a second one.
    shows_one_of(&["test_store_connections{state=\"idle\"} 1", "test_store_connections{state=\"idle\"} 2"]).await;
    server.stop();
    shows("test_store_up 0").await;
    // All at once, like many clients: none of them gets a connection.
    let queries = (0..50).map(|_| query("SELECT 1").execute(&database.read));
    for answer in futures_util::future::join_all(queries).await {
        assert!(matches!(answer, Err(sqlx::Error::Io(_))), "{answer:?}");
    }
    server.start_again();
    shows("test_store_up 1").await;
    query("SELECT 1").execute(&database.read).await.unwrap();
    shutdown.begin();
    watching.await.unwrap();
}

#[tokio::test]
async fn a_database_without_durable_commits_is_refused() {
    let server = Server::shared();
    let url = server.database();
    server.sql("postgres", &format!("ALTER DATABASE {} SET synchronous_commit = off", name_in(&url)));
    let error = open(&url).await.unwrap_err();
    assert!(format!("{error:#}").contains("set it to on"), "{error:#}");
}

#[tokio::test]
async fn a_server_that_refuses_us_is_not_waited_for_and_its_password_stays_secret() {
    let url = Server::shared().url("nothing_here").replace("tollhouse@", "tollhouse:hunter2@");
    let error = ends(open(&url)).await.unwrap_err();
    assert_eq!(refusal(&error), "3D000");
    let text = format!("{error:#}");
    assert!(text.contains("nothing_here") && !text.contains("hunter2"), "{text}");
}

#[test]
fn a_migration_with_one_text_has_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let postgres = folder.path().join("postgres");
    std::fs::create_dir(&postgres).unwrap();
    for file in [folder.path().join("0001_a.sql"), folder.path().join("0002_b.sql"), postgres.join("0001_a.sql")] {
        std::fs::write(file, "").unwrap();
    }
    let migrations = Migrations::new(&[("0001_a.sql", "A", "B"), ("0002_b.sql", "C", "C")]);
    assert!(migrations.are_all_of(folder.path()).unwrap());
    assert!(!Migrations::new(&[("0001_a.sql", "A", "B")]).are_all_of(folder.path()).unwrap());
    std::fs::write(postgres.join("0002_b.sql"), "").unwrap();
    assert!(!migrations.are_all_of(folder.path()).unwrap());
}
