//! Several control planes over one PostgreSQL, and a server that is stopped or locked.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use contract::feed::{Effect, Entity, Frame};
use serde_json::{Value, json};

use crate::gateways::enrolled;
use crate::stores::postgres::{Address, Server, name_in};
use crate::stores::{in_postgres, url_in};
use crate::world::{Bend, Platform, eventually};

const SHOP: &str = "/v1/projects/demo/domains/shop.localhost";

/// Two replicas over a database of a server.
async fn replicas(server: &Server) -> [Platform; 2] {
    replicas_at(&server.database()).await
}

async fn replicas_at(url: &str) -> [Platform; 2] {
    let directory = Arc::new(in_postgres(url));
    // At once: both find an empty database.
    let start = || Platform::bent(Bend { directory: Some(directory.clone()), ..Bend::default() });
    let (one, other) = tokio::join!(start(), start());
    [one, other]
}

/// Waits until a replica answers `is`, without any action on it.
async fn until(platform: &Platform, path: &str, is: impl Fn(u16) -> bool) {
    eventually(async || {
        let answer = platform.operator("GET", path, Value::Null).await;
        if is(answer.status) { Ok(()) } else { Err(format!("{path} goes on answering {answer:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_at_one_replica_reaches_gateways_that_follow_another() {
    let [one, other] = replicas(Server::shared()).await;
    let mut stream = other.follow(0).await;
    let (_, start) = stream.snapshot().await;
    one.project("demo", "pro").await;
    assert_eq!(other.operator("GET", "/projects/demo", Value::Null).await.status, 200, "read your writes, anywhere");
    one.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    let mut last = start;
    loop {
        let change = stream.change().await;
        assert_eq!(change.revision.0, last + 1, "no gap");
        last = change.revision.0;
        if matches!(&change.effect, Effect::Put(Entity::Site(site)) if site.hostname.as_str() == "shop.localhost") {
            break;
        }
    }
}

// rule: 1.19
#[tokio::test(flavor = "multi_thread")]
async fn a_removal_waits_for_gateways_that_report_to_another_replica() {
    let [one, other] = replicas(Server::shared()).await;
    one.project("demo", "pro").await;
    one.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    let (_, revision) = other.follow(0).await.snapshot().await;
    // The other replica receives a report shortly after it was made.
    let reported = async |reports: [(&str, u64); 2]| {
        eventually(async || {
            for (node, applied) in reports {
                other.report(node, applied).await;
            }
            let nodes = one.operator("GET", "/nodes", Value::Null).await.body;
            let knows = |(node, applied): (&str, u64)| {
                let mut nodes = nodes["nodes"].as_array().into_iter().flatten();
                nodes.any(|known| known["node"] == format!("tests/{node}") && known["applied"] == applied)
            };
            if reports.into_iter().all(knows) { Ok(()) } else { Err(nodes.to_string()) }
        })
        .await;
    };
    reported([("a", revision), ("b", revision)]).await;
    let owner = one.owner("demo");
    let answer = other.while_following("a", owner.send("DELETE", SHOP, Value::Null)).await;
    assert_eq!((answer.status, &answer.body), (202, &json!({ "lagging": ["tests/b"] })), "{answer:?}");
    assert!(answer.header("x-edge-ack").starts_with("1/2; "), "{answer:?}");
    assert_eq!(other.owner("demo").get(SHOP).await.body["status"], "removing");
    for node in ["a", "b"] {
        other.report(node, other.newest_revision().await).await;
    }
    for replica in [&one, &other] {
        replica.domain_when("demo", "shop.localhost", |domain| domain["code"] == "domain_not_found").await;
    }
    // With all gateways up to date a removal is answered as done, 204, when both confirm within one second.
    let mut number = 0;
    eventually(async || {
        number += 1;
        let name = format!("till-{number}.localhost");
        one.local_domain("demo", json!({ "name": name })).await;
        let path = format!("/v1/projects/demo/domains/{name}");
        let last = owner.send("DELETE", &path, Value::Null);
        let answer = Box::pin(other.while_following("a", other.while_following("b", last))).await;
        let is_done = answer.status == 204 && answer.header("x-edge-ack").starts_with("2/2; ");
        if is_done { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_two_replicas_give_gapless_revisions() {
    let [one, other] = replicas(Server::shared()).await;
    let mut stream = other.follow(0).await;
    let (_, start) = stream.snapshot().await;
    let create = |index: usize| {
        let platform = if index.is_multiple_of(2) { &one } else { &other };
        platform.operator("POST", "/projects", json!({ "id": format!("p{index}"), "plan": "pro" }))
    };
    let answers = futures_util::future::join_all((0..40).map(create)).await;
    assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
    let mut expected = start;
    let mut projects = 0;
    while projects < 40 {
        match stream.next().await.unwrap() {
            Frame::Change(change) => {
                expected += 1;
                assert_eq!(change.revision.0, expected);
                projects += u32::from(matches!(change.effect, Effect::Put(Entity::Project(_))));
            }
            Frame::Heartbeat { revision, .. } => assert_eq!(revision.0, expected),
            frame => panic!("{frame:?}"),
        }
    }
    assert_eq!(one.follow(0).await.snapshot().await.1, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_server_the_answer_is_503_and_its_return_is_noticed() {
    let server = Server::start(&[]);
    let directory = Arc::new(in_postgres(&server.database()));
    let platform = Platform::bent(Bend { directory: Some(directory), ..Bend::default() }).await;
    platform.project("demo", "pro").await;
    let owner = platform.owner("demo");
    // The caller's key was created before.
    assert_eq!(owner.get("/v1/projects/demo").await.status, 200);
    let (entities, revision) = platform.follow(0).await.snapshot().await;
    server.stop();
    let asking = owner.send("POST", "/v1/projects/demo/domains", json!({ "name": "shop.localhost" }));
    let answer = tokio::time::timeout(Duration::from_secs(10), asking).await.expect("an answer in time");
    assert_eq!((answer.code(), answer.header("retry-after")), ((503, "storage_unavailable"), "1"));
    let ready = platform.client.get(format!("{}/readyz", platform.admin)).send().await.unwrap();
    assert_eq!(ready.status(), 200, "starting this process anew would repair nothing");
    server.start_again();
    until(&platform, "/projects/demo", |status| status == 200).await;
    let (again, at) = platform.follow(0).await.snapshot().await;
    assert_eq!((again.len(), at), (entities.len(), revision));
    platform.local_domain("demo", json!({ "name": "shop.localhost" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_named_and_reads_continue() {
    let server = Server::shared();
    let [one, _other] = replicas(server).await;
    one.project("demo", "pro").await;
    let url = url_in(one.directory.path());
    // The server's own words when a file cannot grow.
    server.sql(
        name_in(&url),
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$; \
         CREATE TRIGGER full_disk BEFORE INSERT ON changes EXECUTE FUNCTION full_disk()",
    );
    let refused = one.operator("POST", "/projects", json!({ "id": "second" })).await;
    assert_eq!(refused.code(), (503, "storage_full"), "{refused:?}");
    assert_eq!(one.operator("GET", "/projects/demo", Value::Null).await.status, 200);
    let status = one.operator("GET", "/status", Value::Null).await.body;
    assert_eq!(status["trouble"]["code"], "storage_full", "{status}");
    server.sql(name_in(&url), "DROP TRIGGER full_disk ON changes");
    one.project("second", "pro").await;
    let status = one.operator("GET", "/status", Value::Null).await.body;
    assert_eq!(status["trouble"], Value::Null, "it ends with its cause");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_takes_over_continues_the_same_history() {
    let primary = Server::start(&[]);
    let database = name_in(&primary.database()).to_owned();
    let address = Address::of(&primary);
    let [one, other] = replicas_at(&address.url(&database)).await;
    one.project("demo", "pro").await;
    // Their keys are created while changes are accepted.
    for replica in [&one, &other] {
        assert_eq!(replica.owner("demo").get("/v1/projects/demo").await.status, 200);
    }
    let standby = primary.standby();
    one.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    let (entities, revision) = other.follow(0).await.snapshot().await;
    tokio::task::block_in_place(|| primary.stop());
    let refused = other.owner("demo").send("DELETE", SHOP, Value::Null).await;
    assert_eq!(refused.code(), (503, "storage_unavailable"));
    address.lead_to(&standby);
    until(&one, "/projects/demo", |status| status == 200).await;
    let refused = one.owner("demo").send("DELETE", SHOP, Value::Null).await;
    assert_eq!(refused.code(), (503, "storage_unavailable"), "a standby takes no changes");
    tokio::task::block_in_place(|| standby.promote());
    for replica in [&one, &other] {
        until(replica, "/projects/demo", |status| status == 200).await;
        let (again, at) = replica.follow(0).await.snapshot().await;
        assert_eq!((again.len(), at), (entities.len(), revision), "what was acknowledged is there, and nothing else");
    }
    let mut stream = other.follow(0).await;
    stream.snapshot().await;
    one.local_domain("demo", json!({ "name": "other.localhost" })).await;
    assert_eq!(stream.change().await.revision.0, revision + 1, "no gap");
}

/// The sessions of [`hold`].
const HOLDERS: &str = "FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";

/// A session that holds the lock of this statement until it is ended.
async fn hold(database: &str, lock: &str) -> JoinHandle<Result<String, String>> {
    let (of, text) = (database.to_owned(), format!("BEGIN; {lock}; SELECT pg_sleep(60)"));
    let holder = std::thread::spawn(move || Server::shared().try_sql(&of, &text));
    eventually(async || {
        let count = Server::shared().sql(database, &format!("SELECT COUNT(*) {HOLDERS}"));
        if count == "1" { Ok(()) } else { Err("no connection holds the lock".to_owned()) }
    })
    .await;
    holder
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_is_503_in_time_and_reads_continue() {
    let server = Server::shared();
    let [one, other] = replicas(server).await;
    one.project("demo", "pro").await;
    let url = url_in(one.directory.path());
    let database = name_in(&url).to_owned();
    let holder = hold(&database, "SELECT * FROM revision_counter FOR UPDATE").await;
    for platform in [&one, &other] {
        let answer = platform.operator("POST", "/projects", json!({ "id": "second" })).await;
        assert_eq!(answer.code(), (503, "storage_unavailable"));
        assert_eq!(platform.operator("GET", "/projects/demo", Value::Null).await.status, 200);
    }
    server.sql(&database, &format!("SELECT pg_terminate_backend(pid) {HOLDERS}"));
    assert!(holder.join().unwrap().is_err(), "its session was ended");
    one.project("second", "pro").await;
}

/// A gateway of another history comes back each second; a stolen credential may do so as often as it wants.
#[tokio::test(flavor = "multi_thread")]
async fn followers_of_another_history_with_one_credential_leave_the_database_to_others() {
    let server = Server::shared();
    let directory = Some(Arc::new(in_postgres(&server.database())));
    let platform = Platform::bent(Bend { directory, ..Bend::default() }).await;
    platform.project("demo", "pro").await;
    let (thief, newest) = (enrolled(&platform, "thief").await, platform.newest_revision().await);
    let database = name_in(&url_in(platform.directory.path())).to_owned();
    let holder = hold(&database, "LOCK TABLE changes IN ACCESS EXCLUSIVE MODE").await;
    let url = format!("{}/internal/edge/feed?node=a&after={newest}&mark=0123456789abcdef", platform.internal);
    let followers: Vec<_> =
        (0..40).map(|_| tokio::spawn(platform.client.get(&url).bearer_auth(&thief).send())).collect();
    let waiting =
        "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    eventually(async || {
        let count = server.sql(&database, waiting);
        if count == "0" { Err("no follower reads the database".to_owned()) } else { Ok(()) }
    })
    .await;
    for _ in 0..20 {
        assert_eq!(platform.operator("GET", "/projects/demo", Value::Null).await.status, 200);
    }
    server.sql(&database, &format!("SELECT pg_terminate_backend(pid) {HOLDERS}"));
    assert!(holder.join().unwrap().is_err(), "its session was ended");
    for follower in followers {
        let status = follower.await.unwrap().unwrap().status().as_u16();
        assert!([409, 503].contains(&status), "{status}");
    }
}
