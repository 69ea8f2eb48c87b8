//! Upstreams that are unreachable, slow, broken or overloaded: the client gets the right error, and no request is sent
//! twice.

use std::net::Ipv4Addr;
use std::sync::Arc;

use contract::feed::Entity;
use contract::plan::Plan;
use contract::project::{Access, Project};
use tokio::sync::Semaphore;

use crate::addresses::refusing_address;
use crate::world::client::{Ask, Client, Reply};
use crate::world::entities::project;
use crate::world::upstream::{Act, response};
use crate::world::{BLOG, DEMO, MINUTE_END, ORDERS, World, eventually};

/// Asserts a failure that is charged and has `Retry-After`.
#[track_caller]
pub(crate) fn assert_failed(reply: &Reply, status: u16, code: &str, left: i64) {
    reply.refused(status, code);
    assert_eq!(reply.number("retry-after"), 1);
    assert_eq!(reply.rate_limit_headers(), (300, left, MINUTE_END));
}

// promise: faults.10
#[tokio::test]
async fn an_upstream_that_refuses_connections_is_502() {
    let (_held, refusing) = refusing_address();
    let world = World::with(|setup| setup.orders_endpoints = vec![refusing]).await;
    let reply = world.ask(world.list()).await;
    assert_failed(&reply, 502, "upstream_unreachable", 299);
    let line = world.log.line_of(reply.request_id()).await;
    assert_eq!((&line["blame"], &line["upstream"]), (&"upstream".into(), &"orders".into()));
    world.admin.counts("edge_upstream_requests_total{outcome=\"connect_error\"}", 1).await;
    // Other sites are as well as ever.
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
}

// promise: faults.11
#[tokio::test]
async fn an_upstream_that_does_not_answer_in_time_is_504() {
    let world = World::with(|setup| setup.orders = "first_byte_timeout = \"150ms\"").await;
    world.orders.next(Act::Hang);
    let reply = world.ask(world.list()).await;
    assert_failed(&reply, 504, "upstream_timeout", 299);
    world.admin.counts("edge_upstream_requests_total{outcome=\"timeout\"}", 1).await;
    world.orders.left(1).await;
    assert_eq!(world.orders.requests().len(), 1, "asked once");
    assert_eq!(world.ask(world.list()).await.status, 200);
}

// promise: faults.12
#[tokio::test]
async fn an_upstream_that_breaks_off_before_or_in_its_head_is_502() {
    let world = World::start().await;
    let mut left = 299;
    for act in [
        Act::AnswerAndClose(Vec::new()),
        Act::AnswerAndReset(Vec::new()),
        Act::AnswerAndClose(b"HTTP/1.1 200 OK\r\nContent-Ty".to_vec()),
        Act::AnswerAndReset(b"HTTP/1.1 200 OK\r\nContent-Ty".to_vec()),
    ] {
        // A new connection each time: a request that was sent on it may have been executed.
        world.orders.next(act);
        assert_failed(&world.ask(world.list()).await, 502, "upstream_invalid", left);
        left -= 1;
    }
    assert_eq!(world.orders.requests().len(), 4, "asked once each");
}

// promise: orders.6, edge.8, faults.12
#[tokio::test]
async fn a_truncated_body_is_never_forwarded_as_complete() {
    let world = World::start().await;
    let short = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[1,2,3".to_vec();
    let open = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n[1,2,3\r\n".to_vec();
    let torn = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n[1,2,3".to_vec();
    for bytes in [short, open, torn] {
        for act in [Act::AnswerAndClose(bytes.clone()), Act::AnswerAndReset(bytes.clone())] {
            world.orders.next(act.clone());
            let mut client = world.tls(DEMO).await;
            // The head may have been sent or not; a response must not look complete.
            let reply = client.try_ask(&world.list()).await;
            assert!(reply.is_none_or(|reply| !reply.complete), "{:?}", String::from_utf8_lossy(&bytes));
            assert_eq!(client.rest().await, b"", "the connection ends");

            world.orders.next(act);
            let reply = world.h2(DEMO).await.try_ask(&world.list()).await;
            assert!(reply.is_err() || reply.is_ok_and(|reply| !reply.complete), "over HTTP/2");
        }
    }
    assert_eq!(world.orders.requests().len(), 12, "asked once each");
}

#[tokio::test]
async fn a_body_that_stalls_is_cut_off() {
    let world = World::with(|setup| setup.orders = "first_byte_timeout = \"150ms\"").await;
    let never = Arc::new(Semaphore::new(0));
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[1,2,3".to_vec();
    world.orders.next(Act::AnswerInTwo(head, never, Vec::new()));
    let mut client = world.tls(DEMO).await;
    let reply = client.try_ask(&world.list()).await.expect("the head had come");
    assert!(reply.status == 200 && !reply.complete, "{reply:?}");
}

// promise: faults.11
#[tokio::test]
async fn beyond_the_requests_an_upstream_may_have_in_progress_is_503() {
    let world = World::with(|setup| setup.orders = "in_flight_max = 1").await;
    let gate = Arc::new(Semaphore::new(0));
    let whole = response("200 OK", "", "[]").into_bytes();
    world.orders.next(Act::AnswerInTwo(Vec::new(), gate.clone(), whole));
    let mut first = world.tls(DEMO).await;
    first.send(world.list().to_bytes()).await;
    world.orders.asked(1).await;
    // It never reached an upstream because of us: the unit is returned, though shown figures never rise.
    assert_failed(&world.ask(world.list()).await, 503, "overloaded", 298);
    // A bulkhead: the other upstream has its own permits.
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
    gate.add_permits(1);
    assert_eq!(first.reply("GET").await.expect("a response").status, 200);
    let reply = world.ask(world.list()).await;
    assert_eq!(
        (reply.status, reply.rate_limit_headers()),
        (200, (300, 298, MINUTE_END)),
        "two were served, two are charged"
    );
    assert_eq!(world.orders.requests().len(), 2);
}

// promise: faults.11
#[tokio::test]
async fn one_project_leaves_permits_of_its_upstream_to_others() {
    let world = World::with(|setup| setup.orders = "in_flight_max = 8").await;
    let blog = Project { access: Access::Public, upstream: "orders".parse().unwrap(), ..project("blog", Plan::Pro) };
    world.control.put(Entity::Project(blog)).await;
    let gate = Arc::new(Semaphore::new(0));
    let mut waiting = Vec::new();
    for number in 1..=7 {
        world.orders.next(Act::AnswerInTwo(Vec::new(), gate.clone(), response("200 OK", "", "[]").into_bytes()));
        let mut client = world.tls(DEMO).await;
        client.send(world.list().to_bytes()).await;
        world.orders.asked(number).await;
        waiting.push(client);
    }
    // Nothing is charged: shown figures never rise, but only admitted requests count in the end.
    let reply = world.ask(world.list()).await;
    assert_failed(&reply, 429, "too_many_in_progress", 292);
    let line = world.log.line_of(reply.request_id()).await;
    assert_eq!((&line["blame"], &line["project_id"]), (&"client".into(), &"demo".into()));
    let series =
        "edge_requests_total{blame=\"client\",code=\"too_many_in_progress\",status_class=\"4xx\",surface=\"api\"}";
    world.admin.counts(series, 1).await;
    assert_eq!(world.ask(Ask::get(BLOG, ORDERS)).await.status, 200, "another project, the same upstream");
    gate.add_permits(7);
    for client in &mut waiting {
        assert_eq!(client.reply("GET").await.expect("a response").status, 200);
    }
    assert_eq!(
        world.ask(world.list()).await.rate_limit_headers(),
        (300, 292, MINUTE_END),
        "eight were served, eight are charged"
    );
    assert_eq!(world.orders.requests().len(), 9);
}

// promise: edge.26, faults.11
#[tokio::test]
async fn one_visitor_leaves_permits_of_a_site_to_others() {
    let world = World::with(|setup| setup.blog = "in_flight_max = 8").await;
    let gate = Arc::new(Semaphore::new(0));
    let mut waiting = Vec::new();
    for number in 1..=6 {
        world.blog.next(Act::AnswerInTwo(Vec::new(), gate.clone(), response("200 OK", "", "hello").into_bytes()));
        let mut client = world.tls(BLOG).await;
        client.send(Ask::get(BLOG, "/").to_bytes()).await;
        world.blog.asked(number).await;
        waiting.push(client);
    }
    let reply = world.ask(Ask::get(BLOG, "/")).await;
    reply.refused(429, "too_many_in_progress");
    assert_eq!(reply.number("retry-after"), 1);
    let neighbour = Ipv4Addr::new(127, 0, 0, 2).into();
    let mut other = Client::tls_from(world.https, neighbour, BLOG).await;
    assert_eq!(other.ask(&Ask::get(BLOG, "/")).await.status, 200, "another visitor of the same site");
    gate.add_permits(6);
    for client in &mut waiting {
        assert_eq!(client.reply("GET").await.expect("a response").status, 200);
    }
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
}

#[tokio::test]
async fn an_unconfigured_upstream_is_503_and_costs_nothing() {
    let world = World::start().await;
    let lost = Project { upstream: "lost".parse().unwrap(), ..project("demo", Plan::Pro) };
    world.control.put(Entity::Project(lost)).await;
    for _ in 0..2 {
        assert_failed(&world.ask(world.list()).await, 503, "upstream_unknown", 299);
    }
    world.control.put(Entity::Project(project("demo", Plan::Pro))).await;
    assert_eq!(world.ask(world.list()).await.rate_limit_headers(), (300, 299, MINUTE_END));
}

#[tokio::test]
async fn a_client_that_leaves_releases_its_permit() {
    let world = World::with(|setup| setup.orders = "in_flight_max = 1").await;
    world.orders.next(Act::Hang);
    let mut first = world.tls(DEMO).await;
    first.send(world.list().to_bytes()).await;
    world.orders.asked(1).await;
    drop(first);
    world.orders.left(1).await;
    let mut client = world.tls(DEMO).await;
    eventually("a place", async || (client.ask(&world.list()).await.status == 200).then_some(())).await;
}

/// A world with an idle upstream connection that dies with the next request.
async fn world_with_a_dying_connection() -> World {
    let world = World::start().await;
    assert_eq!(world.ask(world.list()).await.status, 200);
    world.orders.next(Act::AnswerAndClose(Vec::new()));
    world
}

#[tokio::test]
async fn reading_is_tried_again_when_an_idle_connection_had_died() {
    let world = world_with_a_dying_connection().await;
    let reply = world.ask(world.list()).await;
    assert_eq!((reply.status, reply.number("x-ratelimit-remaining")), (200, 298), "and charged once");
    let connections: Vec<usize> = world.orders.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 0, 1]);
    assert_eq!(world.log.line_of(reply.request_id()).await["attempts"], 2);
}

// promise: faults.12
/// Of a body that was sent already, as much is kept as a second attempt needs.
#[tokio::test]
async fn a_get_with_a_body_is_retried_with_its_whole_body() {
    let world = World::start().await;
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
    world.blog.next(Act::AnswerAndClose(Vec::new()));
    let body = "0123456789".repeat(1_000);
    let reply = world.ask(Ask::new("GET", BLOG, "/").body(&body)).await;
    assert_eq!(reply.status, 200);
    let requests = world.blog.requests();
    let seen: Vec<_> = requests.iter().map(|one| (one.connection, one.complete, one.body.len())).collect();
    assert_eq!(seen, [(0, true, 0), (0, true, body.len()), (1, true, body.len())]);
    assert_eq!(requests[2].body, body.as_bytes());
}

#[tokio::test]
async fn cancelling_is_not_tried_again_because_it_may_have_been_carried_out() {
    for (method, path) in [("DELETE", "/v1/store/orders/1"), ("POST", "/v2/orders")] {
        let world = world_with_a_dying_connection().await;
        let reply = world.ask(Ask::new(method, DEMO, path).key(&world.key.text)).await;
        assert_failed(&reply, 502, "upstream_invalid", 298);
        assert_eq!(world.orders.requests().len(), 2, "{method} was sent once");
        world.end().await;
    }
}

#[tokio::test]
async fn a_connection_with_an_unread_response_is_not_used_again() {
    let world = World::start().await;
    // The upstream answers twice to one question.
    let twice = [response("200 OK", "", "[]"), response("200 OK", "", "[\"poison\"]")].concat();
    world.orders.next(Act::Answer(twice.into_bytes()));
    let mut client = world.tls(DEMO).await;
    assert_eq!(client.ask(&world.list()).await.text(), "[]");
    let other = Ask::get(crate::world::OTHER, "/v1/store/orders").key(&world.other_key.text);
    assert_eq!(world.ask(other).await.text(), "[]", "the bytes behind the response answer no request");
    assert_eq!(client.ask(&world.list()).await.text(), "[]");
}
