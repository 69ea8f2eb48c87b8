//! Upstreams with several addresses, of which some are dead, stopped or silent: requests go to the others.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::faults::assert_failed;
use crate::world::client::Ask;
use crate::world::upstream::{Act, Upstream};
use crate::world::{BLOG, DEMO, World, eventually};

/// An address that refuses connections while the socket lives: the socket holds the port and does not listen.
pub(crate) fn refusing_address() -> (TcpSocket, SocketAddr) {
    let held = TcpSocket::new_v4().unwrap();
    held.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = held.local_addr().unwrap();
    (held, address)
}

/// The part of `/status` about an upstream.
async fn status_of(world: &World, upstream: &str) -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_str(&world.admin.get("/status").await.1).unwrap();
    let upstreams = status["upstreams"].as_array().unwrap();
    upstreams.iter().find(|one| one["name"] == upstream).unwrap().clone()
}

#[tokio::test]
async fn an_upstream_that_accepts_connections_again_is_reached_before_a_request_tries_it() {
    let (held, refusing) = refusing_address();
    let world = World::with(|setup| setup.orders_endpoints = vec![refusing]).await;
    let status = async || status_of(&world, "orders").await;
    assert!(status().await["tried_seconds_ago"].is_null());
    world.ask(world.list()).await.refused(502, "upstream_unreachable");
    let failing = status().await;
    assert!(failing["up"] == 0 && failing["tried_seconds_ago"].is_u64(), "{failing}");
    let _back = held.listen(16).unwrap();
    let reached = eventually("the upstream counts as reached", async || {
        let status = status().await;
        (status["up"] == 1).then_some(status)
    });
    assert!(reached.await["tried_seconds_ago"].is_null());
}

// promise: faults.10
#[tokio::test]
async fn while_one_address_works_no_request_fails() {
    for dead in [1, 2, 4] {
        let living = Upstream::start().await;
        let refusing: Vec<_> = (0..dead).map(|_| refusing_address()).collect();
        let mut endpoints: Vec<SocketAddr> = refusing.iter().map(|(_, address)| *address).collect();
        endpoints.push(living.address);
        let world = World::with(|setup| setup.orders_endpoints = endpoints).await;
        let mut client = world.tls(DEMO).await;
        for _ in 0..20 {
            assert_eq!(client.ask(&world.list()).await.status, 200, "{dead} are dead");
            let reply = client.ask(&Ask::new("DELETE", DEMO, "/v1/store/orders/1").key(&world.key.text)).await;
            assert_eq!(reply.status, 200, "{dead} are dead");
            world.clock.advance(Duration::from_millis(400));
        }
        assert_eq!(living.requests().len(), 40);
        world.admin.counts("edge_upstream_requests_total{outcome=\"answered\"}", 40).await;
        world.end().await;
    }
}

#[tokio::test]
async fn with_all_addresses_dead_the_answer_is_502_after_one_attempt_at_each() {
    let refusing = [refusing_address(), refusing_address(), refusing_address()];
    let endpoints = refusing.iter().map(|(_, address)| *address).collect();
    let world = World::with(|setup| setup.orders_endpoints = endpoints).await;
    let reply = world.ask(world.list()).await;
    assert_failed(&reply, 502, "upstream_unreachable", 299);
    assert_eq!(world.log.line_of(reply.request_id()).await["attempts"], 3);
}

/// A stopped process: the kernel accepts its connections, and no request gets a response.
#[tokio::test]
async fn a_stopped_address_delays_one_request_in_ten_seconds_until_it_goes_on() {
    let living = Upstream::start().await;
    let stopped = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoints = vec![stopped.local_addr().unwrap(), living.address];
    let world = World::with(|setup| {
        setup.orders = "first_byte_timeout = \"150ms\"";
        setup.orders_endpoints = endpoints;
    })
    .await;
    let mut client = world.tls(DEMO).await;
    for _ in 0..3 {
        let mut delayed = 0;
        for _ in 0..6 {
            let reply = client.ask(&world.list()).await;
            assert_eq!(reply.status, 200);
            delayed += u64::from(world.log.line_of(reply.request_id()).await["attempts"] == 2);
        }
        assert_eq!(delayed, 1, "one request tries it");
        let status = status_of(&world, "orders").await;
        assert!(
            status["up"] == 1 && status["failing_because"] == "it accepts connections but does not respond",
            "{status}"
        );
        world.clock.advance(Duration::from_secs(10));
    }
    // It goes on, and the next request that tries it ends the silence.
    stopped.set_nonblocking(true).unwrap();
    let going_on = Upstream::over(TcpListener::from_std(stopped).unwrap());
    for _ in 0..2 {
        assert_eq!(client.ask(&world.list()).await.status, 200);
    }
    assert_eq!(status_of(&world, "orders").await["up"], 2);
    // Those that were given up, and one that was not.
    going_on.asked(4).await;
}

#[tokio::test]
async fn a_safe_request_whose_process_dies_is_served_by_another_address() {
    let (dying, living) = (Upstream::start().await, Upstream::start().await);
    let endpoints = vec![dying.address, living.address];
    let world = World::with(|setup| setup.orders_endpoints = endpoints).await;
    for _ in 0..16 {
        dying.next(Act::AnswerAndClose(Vec::new()));
    }
    let mut failed = 0;
    for _ in 0..8 {
        assert_eq!(world.ask(world.list()).await.status, 200);
        let reply = world.ask(Ask::new("DELETE", DEMO, "/v1/store/orders/1").key(&world.key.text)).await;
        failed += usize::from(reply.status == 502);
    }
    assert!(dying.requests().len() > failed, "safe requests too were sent to it");
    assert_eq!(living.requests().len() + failed, 16, "only what was sent to it and may not be repeated fails");
}

/// An address that answers no connection while the sockets live: its queue is full, so the kernel drops the packets.
async fn silent_address() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let listener = socket.listen(0).unwrap();
    let (address, mut held) = (listener.local_addr().unwrap(), Vec::new());
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        held.push(stream.unwrap());
    }
    (address, listener, held)
}

#[tokio::test]
async fn an_address_that_drops_packets_does_not_delay_requests() {
    let (silent, _listener, _held) = silent_address().await;
    for upstreams_of_http2 in [false, true] {
        let upstream = if upstreams_of_http2 { Upstream::over_http2().await } else { Upstream::start().await };
        let world = World::with(|setup| {
            setup.upstreams_of_http2 = upstreams_of_http2;
            // Longer than a test may take.
            setup.blog = "connect_timeout = \"1m\"\nfirst_byte_timeout = \"1m\"";
            setup.blog_endpoints = vec![silent, upstream.address];
        })
        .await;
        // Two requests: each of the addresses is the first choice of one.
        for _ in 0..2 {
            let reply = world.ask(Ask::get(BLOG, "/")).await;
            assert_eq!(reply.status, 200, "{upstreams_of_http2}");
            let line = world.log.line_of(reply.request_id()).await;
            assert_eq!(line["endpoint"], upstream.address.to_string(), "{line}");
            assert_eq!(line["attempts"], 1, "{line}");
        }
        world.end().await;
    }
}

#[tokio::test]
async fn an_http2_address_that_swallows_packets_counts_as_failing_although_another_one_was_sooner() {
    let (silent, _listener, _held) = silent_address().await;
    let upstream = Upstream::over_http2().await;
    let world = World::with(|setup| {
        setup.upstreams_of_http2 = true;
        setup.blog = "connect_timeout = \"1s\"";
        setup.blog_endpoints = vec![silent, upstream.address];
    })
    .await;
    // Two requests: each of the addresses is the first choice of one.
    for _ in 0..2 {
        assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
    }
    eventually("the address that swallows packets counts as failing", async || {
        (status_of(&world, "blog").await["up"] == 1).then_some(())
    })
    .await;
    world.end().await;
}
