//! The service with PostgreSQL: several replicas, and a server that is stopped, locked, full or read-only.

#[path = "../../../chassis/tests/support/postgres.rs"]
pub(crate) mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use server::{Address, Server, name_in};

use crate::world::{World, lines, refusal, until};

/// Deadline of a response: the store's own deadline, and some time for a busy machine.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(8);

async fn replica(url: &str) -> World {
    World::with(&format!("[store]\nkind = \"postgres\"\nurl = \"{url}\"\nconnections = 5\n")).await
}

async fn cancel(world: &World, id: i64) -> u16 {
    world.delete(&format!("/v1/store/orders/{id}")).await.status().as_u16()
}

async fn listed(world: &World) -> usize {
    let response = world.get("/v1/store/orders").await;
    assert_eq!(response.status(), 200);
    response.json::<Vec<serde_json::Value>>().await.unwrap().len()
}

/// The refusal of a request; it must arrive in time.
async fn refused(world: &World, method: Method, target: &str) -> (u16, String) {
    let asking = world.request(method, target).send();
    let response = tokio::time::timeout(ANSWER_WAIT_MAX, asking).await.expect("an answer in time").unwrap();
    assert_eq!(response.headers()["retry-after"], "1");
    refusal(response).await
}

/// Waits until a cancellation succeeds, without help from outside.
async fn recovered(world: &World, id: i64) {
    until("it has recovered", async || cancel(world, id).await == 204).await;
}

fn unavailable() -> (u16, String) {
    (503, "storage_unavailable".to_owned())
}

// rule: 4.2.204
#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_cancellations_of_one_order_over_three_replicas_one_succeeds() {
    let server = Server::shared();
    let url = server.database();
    let replicas = [replica(&url).await, replica(&url).await, replica(&url).await];
    replicas[0].given(&lines(0..1_000)).await;
    for world in &replicas {
        assert_eq!(listed(world).await, 1_000, "all replicas list the imported orders");
    }
    let mut cancelled = 0;
    for round in 0..5 {
        let target = format!("/v1/store/orders/{round}");
        let attempts = (0..20).map(|number| replicas[number % 3].delete(&target));
        let statuses: Vec<u16> =
            futures_util::future::join_all(attempts).await.iter().map(|response| response.status().as_u16()).collect();
        assert!(statuses.iter().all(|status| [204, 409].contains(status)), "{statuses:?}");
        cancelled += statuses.iter().filter(|status| **status == 204).count();
    }
    assert_eq!(cancelled, 5);
    // Every replica sees the write: the list's tag has changed everywhere.
    let tag = replicas[0].get("/v1/store/orders").await.headers()["etag"].clone();
    assert_eq!(cancel(&replicas[1], 500).await, 204);
    for world in &replicas {
        let request = world.request(Method::GET, "/v1/store/orders").header("if-none-match", tag.clone());
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
    assert_eq!(server.sql(name_in(&url), "SELECT COUNT(*) FROM orders WHERE status = 'cancelled'"), "6");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_gives_503_in_time_and_the_service_recovers_after_its_start() {
    let server = Server::start(&[]);
    let world = replica(&server.database()).await;
    world.given(&lines(0..100)).await;
    assert_eq!(cancel(&world, 1).await, 204);
    server.stop();
    for (method, target) in [(Method::GET, "/v1/store/orders"), (Method::DELETE, "/v1/store/orders/2")] {
        assert_eq!(refused(&world, method, target).await, unavailable());
    }
    assert_eq!(world.ready().await, 200, "a restart of this process would not help");
    server.start_again();
    recovered(&world, 2).await;
    assert_eq!(cancel(&world, 1).await, 409, "acknowledged changes are still there");
    assert_eq!(listed(&world).await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_standby_has_every_acknowledged_change() {
    let primary = Arc::new(Server::start(&[]));
    let database = name_in(&primary.database()).to_owned();
    let address = Address::of(&primary);
    let replicas = [replica(&address.url(&database)).await, replica(&address.url(&database)).await];
    replicas[0].given(&lines(0..5_000)).await;
    let standby = primary.standby();
    let count = "SELECT COUNT(*) FROM orders WHERE status = 'cancelled'";
    let cancelling = async {
        let mut next = 0;
        while cancel(&replicas[usize::from(next % 2 == 0)], next).await == 204 {
            next += 1;
        }
        next
    };
    let failing = tokio::task::spawn_blocking({
        let (primary, database) = (primary.clone(), database.clone());
        move || {
            let deadline = Instant::now() + Duration::from_secs(20);
            while primary.sql(&database, count).parse::<i64>().unwrap() < 20 {
                assert!(Instant::now() < deadline, "nothing is cancelled");
            }
            primary.stop();
        }
    });
    let (acknowledged, failed) = tokio::join!(cancelling, failing);
    failed.unwrap();
    assert!((20..5_000).contains(&acknowledged), "{acknowledged} before the server failed");
    address.lead_to(&standby);
    for world in &replicas {
        until("the standby is read", async || world.get("/v1/store/orders").await.status() == 200).await;
        assert_eq!(
            refused(world, Method::DELETE, "/v1/store/orders/4000").await,
            unavailable(),
            "a standby refuses changes"
        );
    }
    standby.promote();
    recovered(&replicas[0], 4_001).await;
    recovered(&replicas[1], 4_002).await;
    for id in 0..acknowledged {
        assert_eq!(cancel(&replicas[0], id).await, 409, "order {id} was cancelled, and acknowledged");
    }
    // The interrupted cancellation may have succeeded.
    let cancelled = standby.sql(&database, count).parse::<i64>().unwrap();
    assert!((acknowledged + 2..=acknowledged + 3).contains(&cancelled), "{cancelled} of {acknowledged}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_lock_of_another_session_changes_get_503_in_time_and_reads_work() {
    let server = Server::shared();
    let url = server.database();
    let world = replica(&url).await;
    world.given(&lines(0..10)).await;
    // An operator's session in the middle of a transaction.
    let database = name_in(&url).to_owned();
    let holder = std::thread::spawn(move || {
        let text = "BEGIN; SELECT * FROM stores FOR UPDATE; SELECT pg_sleep(20)";
        Server::shared().try_sql(&database, text)
    });
    let waits = "SELECT COUNT(*) FROM pg_stat_activity WHERE query LIKE '%FOR UPDATE; SELECT pg_sleep%' \
                 AND wait_event = 'PgSleep'";
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.sql(name_in(&url), waits) != "1" {
        assert!(Instant::now() < deadline, "the session did not get the lock in time");
    }
    assert_eq!(refused(&world, Method::DELETE, "/v1/store/orders/1").await, unavailable());
    assert_eq!(listed(&world).await, 10, "reads do not wait for the lock");
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' \
               AND datname = current_database()";
    server.sql(name_in(&url), end);
    assert!(holder.join().unwrap().is_err(), "its session was ended");
    recovered(&world, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_reported_as_full_and_reads_work() {
    let server = Server::shared();
    let url = server.database();
    let world = replica(&url).await;
    world.given(&lines(0..10)).await;
    // The server's error when a file cannot grow.
    server.sql(
        name_in(&url),
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$; \
         CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON orders EXECUTE FUNCTION full_disk()",
    );
    let full = (503, "storage_full".to_owned());
    assert_eq!(refused(&world, Method::DELETE, "/v1/store/orders/1").await, full);
    assert_eq!(world.import("demo", lines(20..30)).await.status(), 503);
    assert_eq!(listed(&world).await, 10);
    server.sql(name_in(&url), "DROP TRIGGER full_disk ON orders");
    recovered(&world, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_server_gives_503_until_it_accepts_changes() {
    let server = Server::start(&[]);
    let url = server.database();
    let world = replica(&url).await;
    world.given(&lines(0..10)).await;
    let read_only = |word: &str| {
        server.sql("postgres", &format!("ALTER SYSTEM SET default_transaction_read_only = {word}"));
        server.sql("postgres", "SELECT pg_reload_conf()");
        let deadline = Instant::now() + Duration::from_secs(20);
        while server.sql("postgres", "SHOW default_transaction_read_only") != word {
            assert!(Instant::now() < deadline);
        }
    };
    read_only("on");
    // Sessions notice the change a moment later.
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut id = 0;
    loop {
        let response = world.delete(&format!("/v1/store/orders/{id}")).await;
        match response.status().as_u16() {
            204 => id += 1,
            _ => break assert_eq!(refusal(response).await, unavailable()),
        }
        assert!(Instant::now() < deadline && id < 10);
    }
    assert_eq!(listed(&world).await, 10);
    read_only("off");
    recovered(&world, 9).await;
    let metrics = world.metrics().await;
    assert!(metrics.contains("orders_store_errors_total{kind=\"io\"}"), "{metrics}");
}
