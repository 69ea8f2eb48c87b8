//! Start and end: ready when there is a site to serve, and ended only when the requests in progress are finished.

use std::sync::Arc;

use contract::feed::EntityName;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::rolling::pair::Pair;
use crate::world::client::{Ask, handshake};
use crate::world::upstream::{Act, response};
use crate::world::{BLOG, DEMO, World, certificates, eventually};

/// The next request at the upstream is answered when the gate opens.
fn hold(world: &World) -> Arc<Semaphore> {
    let gate = Arc::new(Semaphore::new(0));
    let whole = response("200 OK", "", "[1]").into_bytes();
    world.orders.next(Act::AnswerInTwo(Vec::new(), gate.clone(), whole));
    gate
}

async fn not_ready(world: &World) {
    eventually("readyz to say no", async || (world.admin.get("/readyz").await.0 == 503).then_some(())).await;
}

#[tokio::test]
async fn a_gateway_that_serves_is_alive_and_ready() {
    let world = World::start().await;
    assert_eq!(world.admin.get("/livez").await.0, 200);
    assert_eq!(world.admin.get("/readyz").await.0, 200);
    assert_eq!(world.admin.metric("edge_draining").await, 0);
}

#[tokio::test]
async fn admin_paths_are_not_reachable_through_the_data_ports() {
    let world = World::start().await;
    for path in ["/livez", "/readyz", "/metrics", "/status", "/bans", "/hosts/demo.tollhouse.localhost"] {
        world.ask(Ask::get(DEMO, path).key(&world.key.text)).await.refused(404, "not_found");
        for host in ["127.0.0.1", "localhost", "admin"] {
            let reply = world.plain().await.try_ask(&Ask::get(host, path)).await.expect("a response");
            assert!(matches!(reply.status, 400 | 404), "{reply:?}");
        }
    }
    world.assert_upstreams_untouched();
}

// promise: faults.20
#[tokio::test]
async fn an_idle_gateway_ends_at_once_and_so_do_idle_connections() {
    // Much longer than the test may take: the shutdown must not wait for it.
    let mut world = World::with(|setup| setup.drain = "lame_duck = \"0s\"\nrequests = \"300s\"").await;
    let (mut h1, h2) = (world.tls(DEMO).await, world.h2(BLOG).await);
    assert_eq!(h1.ask(&world.list()).await.status, 200);
    assert_eq!(h2.ask(&Ask::get(BLOG, "/")).await.status, 200);
    let mut plain = world.plain().await;
    assert_eq!(plain.ask(&Ask::get(BLOG, "/")).await.status, 301);
    world.begin_stop();
    assert_eq!(h1.rest().await, b"");
    assert_eq!(plain.rest().await, b"");
    h2.ended().await;
    world.stopped().await.expect("a clean end");
    for address in [world.http, world.https, world.admin.0] {
        assert!(tokio::net::TcpStream::connect(address).await.is_err(), "the listener is closed");
    }
}

// promise: faults.20
#[tokio::test]
async fn a_request_in_progress_is_finished_before_the_end() {
    let mut world = World::with(|setup| setup.drain = "lame_duck = \"0s\"\nrequests = \"300s\"").await;
    let gate = hold(&world);
    let mut h1 = world.tls(DEMO).await;
    h1.send(world.list().to_bytes()).await;
    world.orders.asked(1).await;
    let second_gate = hold(&world);
    let h2 = Arc::new(world.h2(DEMO).await);
    let asked = tokio::spawn({
        let (h2, ask) = (h2.clone(), world.list());
        async move { h2.ask(&ask).await }
    });
    world.orders.asked(2).await;
    world.begin_stop();
    not_ready(&world).await;
    world.admin.counts("edge_draining", 1).await;
    gate.add_permits(1);
    let reply = h1.reply("GET").await.expect("a response");
    assert_eq!((reply.status, reply.text(), reply.complete), (200, "[1]", true));
    assert_eq!(h1.rest().await, b"", "and then the connection ends");
    second_gate.add_permits(1);
    assert_eq!(asked.await.expect("the request's task").text(), "[1]");
    world.stopped().await.expect("a clean end");
}

// promise: faults.20
#[tokio::test]
async fn before_it_drains_a_gateway_is_not_ready_and_continues_to_serve() {
    // Longer than the test takes; the world ends before it.
    let world = World::with(|setup| setup.drain = "lame_duck = \"300s\"\nrequests = \"1s\"").await;
    let mut open = world.tls(DEMO).await;
    let reply = open.ask(&world.list()).await;
    assert_eq!((reply.status, reply.header("connection")), (200, Some("keep-alive")));
    let h2 = world.h2(DEMO).await;
    world.begin_stop();
    not_ready(&world).await;
    assert_eq!(world.admin.get("/livez").await.0, 200);
    let reply = open.ask(&world.list()).await;
    assert_eq!(reply.status, 200, "open connections stay open");
    assert_eq!(reply.header("connection"), Some("close"), "and are asked to leave with an answer, not without one");
    assert_eq!(open.rest().await, b"");
    assert_eq!(h2.ask(&world.list()).await.status, 200);
    assert_eq!(world.ask(world.list()).await.status, 200, "new ones are taken: load balancers need a moment");
}

// promise: faults.20
#[tokio::test]
async fn an_endless_request_is_cut_and_the_shutdown_reports_it() {
    let mut world = World::with(|setup| setup.drain = "lame_duck = \"0s\"\nrequests = \"1s\"").await;
    let _never = hold(&world);
    let mut client = world.tls(DEMO).await;
    client.send(world.list().to_bytes()).await;
    world.orders.asked(1).await;
    world.begin_stop();
    let error = world.stopped().await.expect_err("not a clean end");
    assert!(format!("{error:#}").contains("1 requests were still in progress"), "{error:#}");
    assert_eq!(client.rest().await, b"", "cut off, never half a response");
}

// rule: 1.19
// promise: domains.4
#[tokio::test]
async fn a_gateway_sends_goodbye_after_it_has_stopped_serving() {
    let mut world = World::with(|setup| setup.drain = "lame_duck = \"0s\"\nrequests = \"300s\"").await;
    let gate = hold(&world);
    let mut h1 = world.tls(DEMO).await;
    h1.send(world.list().to_bytes()).await;
    world.orders.asked(1).await;
    world.begin_stop();
    not_ready(&world).await;
    // While it drains it applies changes and reports them.
    world.control.remove(EntityName::Site(BLOG.parse().unwrap())).await;
    let said_goodbye = |world: &World| world.control.reports().iter().any(|report| report.goodbye);
    assert!(!said_goodbye(&world), "a request is in progress");
    gate.add_permits(1);
    assert_eq!(h1.reply("GET").await.expect("a response").status, 200);
    world.stopped().await.expect("a clean end");
    let reports = world.control.reports();
    let (last, before) = reports.split_last().expect("reports");
    assert!(last.goodbye && before.iter().all(|report| !report.goodbye), "{reports:?}");
    let place = last.place.as_deref().expect("a place");
    assert!(reports.iter().all(|report| report.place.as_deref() == Some(place) && report.node == last.node));
}

/// Shuts the gateway down gracefully, and then the control plane.
async fn stop_both(world: &mut World) {
    world.begin_stop();
    world.stopped().await.expect("a clean end");
    assert!(world.control.reports().last().is_some_and(|report| report.goodbye));
    world.control.die().await;
}

async fn status(world: &World) -> Value {
    serde_json::from_str(&world.admin.get("/status").await.1).unwrap()
}

// rule: 1.19
#[tokio::test]
async fn after_a_graceful_shutdown_the_gateway_serves_only_when_it_is_registered_again() {
    let mut world = World::start().await;
    assert_eq!(world.ask(world.list()).await.status, 200);
    // The control plane does not wait for a gateway that left its record, so all others may confirm the removal below.
    stop_both(&mut world).await;
    world.control.publish(contract::feed::Effect::Remove(world.key.entity().name()));
    for _ in 0..2 {
        world.run().await;
        let (code, ready) = world.admin.get("/readyz").await;
        assert_eq!((code, ready.contains("\"registered\":false")), (503, true), "{ready}");
        assert_eq!(
            (&status(&world).await["unregistered"], &status(&world).await["ready"]),
            (&json!("held"), &json!(false))
        );
        world.ask_plain(Ask::get(BLOG, "/")).await.refused(503, "starting");
        assert!(handshake(world.https, Some(DEMO), certificates::client(&[b"http/1.1"])).await.is_err());
        // Stopped again before the control plane got a report.
        world.begin_stop();
        world.stopped().await.expect("a clean end");
    }
    world.run().await;
    world.control.revive();
    world.is_ready().await;
    assert_eq!(status(&world).await["unregistered"], Value::Null);
    world.ask(world.list()).await.refused(401, "invalid_api_key");
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
    // The control plane got its report and waits for it, even if the process ends.
    world.control.die().await;
    world.begin_stop();
    world.stopped().await.expect("a clean end");
    world.run().await;
    assert_eq!(world.admin.get("/readyz").await.0, 200);
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
}

#[tokio::test]
async fn an_operator_can_have_it_served_without_the_control_plane() {
    let mut world = World::with(|setup| setup.feed = "serve_before_registered = true").await;
    stop_both(&mut world).await;
    world.run().await;
    assert_eq!(world.admin.get("/readyz").await.0, 200);
    assert_eq!(world.ask(world.list()).await.status, 200);
    assert_eq!(status(&world).await["unregistered"], "served");
    world.control.revive();
    eventually("the control plane has registered it", async || {
        status(&world).await["unregistered"].is_null().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_serves_without_the_control_plane_and_a_stopped_one_says_why_not() {
    let mut pair = Pair::single(None).await;
    pair.kill(0);
    pair.control_dies().await;
    for _ in 0..2 {
        pair.run(0);
        pair.serves().await;
        // Without a control plane for the goodbye, a clean stop ends in the same way.
        assert!(pair.terminate(0).await.success());
    }
    pair.control_comes_back();
    pair.run(0);
    pair.serves().await;
    assert!(!pair.log(0).contains("serve_before_registered"));
    assert!(pair.terminate(0).await.success());
    pair.control_dies().await;
    pair.run(0);
    eventually("the log says what is missing", async || {
        pair.log(0).contains("set serve_before_registered = true under [feed]").then_some(())
    })
    .await;
    assert_eq!(pair.admin(0).get("/readyz").await.0, 503);
}

/// The answer of readiness, after the gateway has checked its replica.
async fn readiness(pair: &Pair, node: usize) -> (u16, String) {
    eventually("the gateway knows its replica", async || {
        tokio::net::TcpStream::connect(pair.admin(node).0).await.ok()?;
        let (code, ready) = pair.admin(node).get("/readyz").await;
        // While the gateway waits, the replica counts as absent, and another condition gives the reason.
        let looked = ready.contains("\"replica\":true") || ready.contains("\"registered\"");
        looked.then_some((code, ready))
    })
    .await
}

// rule: 1.19
#[tokio::test(flavor = "multi_thread")]
async fn with_a_copied_directory_a_gateway_serves_only_when_it_is_registered() {
    let mut pair = Pair::single(None).await;
    pair.kill(0);
    pair.control_dies().await;
    // The control plane does not know such a process, with any copied files and after any number of starts.
    for left_out in [&[] as &[&str], &["place"]] {
        pair.copy_data(left_out);
        for _ in 0..2 {
            pair.run(1);
            let (code, ready) = readiness(&pair, 1).await;
            assert_eq!((code, ready.contains("\"registered\":false")), (503, true), "{left_out:?}: {ready}");
            pair.kill(1);
        }
    }
    // The original gateway is waited for, and serves.
    pair.run(0);
    pair.serves().await;
    pair.run(1);
    assert_eq!(readiness(&pair, 1).await.0, 503);
    pair.control_comes_back();
    eventually("the copy is registered", async || (pair.admin(1).get("/readyz").await.0 == 200).then_some(())).await;
    // From now on it is waited for as well.
    pair.kill(1);
    pair.control_dies().await;
    pair.run(1);
    readiness(&pair, 1).await;
    eventually("the copy serves", async || (pair.admin(1).get("/readyz").await.0 == 200).then_some(())).await;
}
