//! The gateway's replica: current within a second, kept without the control plane, and never replaced by bad data.

mod damage;

use contract::feed::{Change, Effect, Entity, EntityName, Frame, Mark, Revision};
use contract::plan::Plan;
use contract::time::UnixMillis;

use crate::world::client::{Ask, Client, handshake};
use crate::world::control::line;
use crate::world::entities::{limited, project, site};
use crate::world::upstream::{Act, response};
use crate::world::{BLOG, DEMO, ORDERS, SHOP, World, certificates, eventually};

fn name(host: &str) -> EntityName {
    EntityName::Site(host.parse().unwrap())
}

fn change(revision: u64, effect: Effect) -> String {
    line(&Frame::Change(Change { revision: Revision(revision), mark: Mark(revision), at: UnixMillis(0), effect }))
}

// rule: 1.19
// promise: domains.1
#[tokio::test]
async fn removing_a_domain_stops_traffic_at_once_on_open_http_1_connections() {
    let world = World::start().await;
    let (mut open, mut bystander) = (world.tls(SHOP).await, world.tls(DEMO).await);
    let ask = Ask::get(SHOP, ORDERS).key(&world.key.text);
    assert_eq!(open.ask(&ask).await.status, 200);
    assert_eq!(bystander.ask(&world.list()).await.status, 200);
    world.control.remove(name(SHOP)).await;
    // From the report on: no response for the name, and the connection is over.
    assert!(open.try_ask(&ask).await.is_none());
    assert_eq!(open.rest().await, b"");
    // New connections are refused.
    if let Ok(stream) = handshake(world.https, Some(SHOP), certificates::client(&[b"http/1.1"])).await {
        let mut fresh = Client { wire: crate::world::wire::Wire::new(stream) };
        fresh.ask(&ask).await.refused(404, "unknown_host");
    }
    world.ask_plain(Ask::get(SHOP, "/")).await.refused(404, "unknown_host");
    assert_eq!(bystander.ask(&world.list()).await.status, 200, "other names are not disturbed");
    assert_eq!(world.orders.requests().len(), 3);
}

// rule: 1.19
// promise: domains.1
#[tokio::test]
async fn removing_a_domain_stops_traffic_at_once_on_open_http_2_connections() {
    let world = World::start().await;
    let open = world.h2(BLOG).await;
    assert_eq!(open.ask(&Ask::get(BLOG, "/")).await.status, 200);
    world.control.remove(name(BLOG)).await;
    let reply = open.try_ask(&Ask::get(BLOG, "/")).await;
    assert!(reply.is_err() || reply.is_ok_and(|reply| reply.status >= 400));
    open.ended().await;
    assert!(handshake(world.https, Some(BLOG), certificates::client(&[b"h2"])).await.is_err());
    assert_eq!(world.blog.requests().len(), 1);
}

// rule: 1.19
// promise: domains.1
#[tokio::test]
async fn removing_a_domain_ends_the_request_that_is_in_progress() {
    let world = World::start().await;
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let whole = response("200 OK", "", "[]").into_bytes();
    world.blog.next(Act::AnswerInTwo(Vec::new(), gate.clone(), whole));
    let mut client = world.tls(BLOG).await;
    client.send(Ask::get(BLOG, "/").to_bytes()).await;
    world.blog.asked(1).await;
    world.control.remove(name(BLOG)).await;
    gate.add_permits(1);
    assert_eq!(client.rest().await, b"", "not a byte of the response");
}

#[tokio::test]
async fn the_reported_revision_is_the_published_one() {
    let world = World::start().await;
    world.control.put(site("a.tollhouse.localhost", "blog")).await;
    world.control.remove(name("a.tollhouse.localhost")).await;
    let reports = world.control.reports();
    let last = reports.last().expect("a report");
    assert_eq!(last.position(), Some(world.control.position()));
    assert_eq!(last.applied, Revision(3));
    assert!(reports.iter().all(|report| report.node == last.node), "one node, one name");
    assert!(reports.is_sorted_by_key(|report| report.applied));
    assert_eq!(world.admin.metric("edge_replica_revision").await, 3);
    let (_, status) = world.admin.get("/status").await;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["revision"], &status["node"]), (&3.into(), &last.node.as_str().into()));
}

// promise: domains.29, edge.22, faults.17
#[tokio::test]
async fn a_gateway_that_restarts_while_the_control_plane_is_dead_serves_everything() {
    let mut world = World::start().await;
    world.control.put(site("late.tollhouse.localhost", "blog")).await;
    world.control.die().await;
    world.begin_stop();
    world.stopped().await.expect("a clean end");
    world.run().await;
    assert_eq!(world.admin.get("/readyz").await.0, 200);
    assert_eq!(world.ask(world.list()).await.status, 200);
    assert_eq!(world.ask(Ask::get(SHOP, ORDERS).key(&world.key.text)).await.status, 200, "a customer's certificate");
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
    assert_eq!(world.ask(Ask::get("late.tollhouse.localhost", "/")).await.status, 200);
    world.ask(Ask::get(DEMO, ORDERS)).await.refused(401, "missing_api_key");
}

async fn refusal(world: &World) -> Option<String> {
    let (_, status) = world.admin.get("/status").await;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let why = status["replica_refuses"].as_str()?;
    Some(format!("{why}: {}", status["replica_remedy"].as_str().expect("a refusal has a next step")))
}

async fn refuses(world: &World) -> String {
    eventually("the control plane's state is refused", async || refusal(world).await).await
}

async fn follows(world: &World) {
    eventually("the control plane is followed", async || refusal(world).await.is_none().then_some(())).await;
}

/// Accepts the control plane's data as an operator; returns the resulting changes.
async fn accept(world: &World) -> serde_json::Value {
    let authorization = world.operator();
    assert_eq!(world.admin.ask("POST", "/replica/accept", &authorization).await.0, 200);
    eventually("the snapshot is taken", async || {
        let (_, said) = world.admin.ask("GET", "/replica/accept", &authorization).await;
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        (said["state"] == "taken").then_some(said)
    })
    .await
}

#[tokio::test]
async fn another_database_removes_nothing_until_an_operator_accepts_it() {
    let mut world = World::start().await;
    world.control.put(site("late.tollhouse.localhost", "blog")).await;
    let right = world.control.lose_database();
    let why = refuses(&world).await;
    assert!(why.contains("tollhouse node accept"), "{why}");
    assert!(world.admin.metric("edge_replica_refused_total{reason=\"history\"}").await > 0);
    world.begin_stop();
    world.stopped().await.expect("a clean end");
    world.run().await;
    world.is_ready().await;
    assert_eq!(world.ask(Ask::get("late.tollhouse.localhost", "/")).await.status, 200, "after a restart as well");
    refuses(&world).await;
    world.control.put_back(right);
    follows(&world).await;
    world.control.put(site("later.tollhouse.localhost", "blog")).await;
    assert_eq!(world.ask(Ask::get("later.tollhouse.localhost", "/")).await.status, 200);

    drop(world.control.lose_database());
    refuses(&world).await;
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200, "despite the other database");
    assert_eq!(world.admin.ask("POST", "/replica/accept", "").await.0, 401, "operators alone");
    let changed = accept(&world).await;
    assert!(changed["hostnames"]["removed"]["count"].as_u64().unwrap() > 2, "{changed}");
    assert!(world.admin.metric("edge_replica_revision").await > 1_000);
    assert_eq!(refusal(&world).await, None);
    world.ask_plain(Ask::get(BLOG, "/")).await.refused(404, "unknown_host");
}

#[tokio::test]
async fn a_database_restored_to_an_earlier_state_is_refused_at_any_revision() {
    let world = World::start().await;
    let late = "late.tollhouse.localhost";
    let yesterday = world.control.copy_database();
    world.control.put(site(late, "blog")).await;
    world.control.remove(name(BLOG)).await;
    world.control.put_back(yesterday);
    refuses(&world).await;
    let applied = || world.control.reports().last().map(|report| report.applied);
    eventually("the gateway reports that it has applied nothing of this history", async || {
        (applied() == Some(Revision(0))).then_some(())
    })
    .await;
    // The revisions that the gateway has, and more, with other changes.
    for number in 0..3 {
        world.control.publish(Effect::Put(site(&format!("other-{number}.tollhouse.localhost"), "blog")));
        let refused = world.control.refused();
        eventually("the gateway asks again", async || (world.control.refused() > refused).then_some(())).await;
        refuses(&world).await;
    }
    world.control.forget_changes();
    let refused = world.control.refused();
    eventually("the gateway asks again", async || (world.control.refused() > refused).then_some(())).await;
    world.ask_plain(Ask::get(BLOG, "/")).await.refused(404, "unknown_host");
    assert_eq!(world.ask(Ask::get(late, "/")).await.status, 200, "the last good state is served");

    let changed = accept(&world).await;
    assert_eq!(changed["hostnames"]["removed"]["names"], serde_json::json!([late]), "{changed}");
    assert!(changed["hostnames"]["added"]["names"].as_array().unwrap().contains(&BLOG.into()), "{changed}");
    follows(&world).await;
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
    world.control.put(site("later.tollhouse.localhost", "blog")).await;
    assert_eq!(world.ask(Ask::get("later.tollhouse.localhost", "/")).await.status, 200, "changes arrive again");
}

#[tokio::test]
async fn an_acceptance_without_a_refused_state_is_refused_and_has_no_later_effect() {
    let world = World::start().await;
    let nothing = async || {
        let (status, said) = world.admin.ask("POST", "/replica/accept", &world.operator()).await;
        assert_eq!(status, 409, "{said}");
        assert!(said.contains("nothing_to_accept") && said.contains("There is nothing to accept"), "{said}");
    };
    nothing().await;
    // Nor during an outage of the control plane after which another database comes back.
    world.control.die().await;
    nothing().await;
    drop(world.control.lose_database());
    world.control.revive();
    refuses(&world).await;
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
}

#[tokio::test]
async fn an_acceptance_is_valid_only_for_the_refused_database() {
    let world = World::start().await;
    let right = world.control.lose_database();
    refuses(&world).await;
    let refused = world.control.copy_database();
    world.control.die().await;
    let authorization = world.operator();
    assert_eq!(world.admin.ask("POST", "/replica/accept", &authorization).await.0, 200);
    // A third database replaces it.
    world.control.put_back(right);
    drop(world.control.lose_database());
    world.control.publish(Effect::Put(site("third.tollhouse.localhost", "blog")));
    let before = world.control.refused();
    world.control.revive();
    eventually("the gateway asks again", async || (world.control.refused() > before + 1).then_some(())).await;
    let (_, said) = world.admin.ask("GET", "/replica/accept", &authorization).await;
    assert!(said.contains("\"none\"") && said.contains("node accept"), "{said}");
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200, "the last good state is served");
    // And it is used up.
    world.control.put_back(refused);
    refuses(&world).await;
    let before = world.control.refused();
    eventually("the gateway asks again", async || (world.control.refused() > before).then_some(())).await;
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
}

// promise: faults.17
#[tokio::test]
async fn a_gateway_without_any_data_reports_that_it_is_starting() {
    let world = World::with(|setup| setup.control_plane_is_dead = true).await;
    let (status, report) = world.admin.get("/readyz").await;
    assert_eq!(status, 503, "{report}");
    assert!(report.contains("replica"), "{report}");
    let reply = world.ask_plain(Ask::get(BLOG, "/")).await;
    reply.refused(503, "starting");
    assert_eq!(reply.number("retry-after"), 1);
    world.control.revive();
    world.control.applied(1).await;
    assert_eq!(world.admin.get("/readyz").await.0, 200);
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
}

// promise: faults.18
#[tokio::test]
async fn changes_missed_during_an_outage_are_applied_afterwards() {
    let world = World::start().await;
    world.control.die().await;
    for _ in 0..10 {
        assert_eq!(world.ask(world.list()).await.status, 200);
    }
    world.control.publish(Effect::Put(Entity::Project(project("demo", Plan::Business))));
    let revision = world.control.publish(Effect::Remove(name(BLOG)));
    world.control.revive();
    world.control.applied(revision).await;
    assert_eq!(world.control.asked_after().last(), Some(&1), "it went on where it was");
    assert_eq!(world.ask(world.list()).await.number("x-ratelimit-limit"), 1_000);
    assert!(handshake(world.https, Some(BLOG), certificates::client(&[])).await.is_err());
}

#[tokio::test]
async fn a_gateway_too_far_behind_applies_a_snapshot_and_drops_everything_absent_from_it() {
    let world = World::start().await;
    let open = world.h2(BLOG).await;
    assert_eq!(open.ask(&Ask::get(BLOG, "/")).await.status, 200);
    world.control.die().await;
    let revision = world.control.publish(Effect::Remove(name(BLOG)));
    world.control.forget_changes();
    world.control.revive();
    world.control.applied(revision).await;
    let reply = open.try_ask(&Ask::get(BLOG, "/")).await;
    assert!(reply.is_err() || reply.is_ok_and(|reply| reply.status >= 400));
    open.ended().await;
    assert_eq!(world.ask(world.list()).await.status, 200);
}

#[tokio::test]
async fn a_silent_stream_is_requested_again() {
    let world = World::start().await;
    world.control.fall_silent();
    world.control.asked(2).await;
    world.control.speak_again();
    assert_eq!(world.ask(world.list()).await.status, 200);
    world.control.put(Entity::Project(project("demo", Plan::Business))).await;
    assert_eq!(world.ask(world.list()).await.number("x-ratelimit-limit"), 1_000);
}

// promise: faults.27
#[tokio::test]
async fn a_change_that_comes_twice_is_applied_once() {
    let world = World::start().await;
    world.control.put(Entity::Project(limited("demo", 7, 1_000))).await;
    world.control.put(Entity::Project(limited("demo", 9, 1_000))).await;
    world.control.say(&change(2, Effect::Put(Entity::Project(limited("demo", 7, 1_000)))));
    world.control.say(&change(3, Effect::Put(Entity::Project(limited("demo", 9, 1_000)))));
    world.control.put(site("a.tollhouse.localhost", "blog")).await;
    assert_eq!(world.ask(world.list()).await.number("x-ratelimit-limit"), 9);
    assert_eq!(world.control.asked_after(), [0], "the stream continues");
}

// promise: faults.27
#[tokio::test]
async fn after_a_gap_the_missing_change_is_requested() {
    let world = World::start().await;
    world.control.put(Entity::Project(limited("demo", 7, 1_000))).await;
    world.control.say(&change(4, Effect::Remove(name(DEMO))));
    world.control.asked(2).await;
    assert_eq!(world.control.asked_after(), [0, 2]);
    let reply = world.ask(world.list()).await;
    assert_eq!((reply.status, reply.number("x-ratelimit-limit")), (200, 7));
}
