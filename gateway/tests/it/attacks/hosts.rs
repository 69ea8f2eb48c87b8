//! Hosts, server names in handshakes, forwarded headers.

use contract::rejection::Rejection::BadHost;

use super::{matrix, refused_by_listener, series};
use crate::world::client::Ask;
use crate::world::{DEMO, ORDERS, OTHER, World};

// promise: edge.9
#[tokio::test]
async fn ambiguous_hosts_are_refused() {
    refused_by_listener(matrix::hosts()).await;
}

// promise: edge.9
#[tokio::test]
async fn an_address_for_a_host_is_unknown() {
    let world = World::start().await;
    for host in ["127.0.0.1", "[::1]", "127.0.0.1:8080"] {
        let reply = world.plain().await.try_ask(&Ask::get(host, "/")).await.expect("an answer");
        reply.refused(BadHost.status(), BadHost.code());
    }
    world.assert_upstreams_untouched();
}

/// RFC 9113 section 8.3.1.
// promise: edge.9
#[tokio::test]
async fn over_http_2_authority_and_host_that_disagree_are_refused() {
    let world = World::start().await;
    let stranger = world.h2(DEMO).await;
    for host in [OTHER, "demo.tollhouse.localhost:1", "", "a, b"] {
        let refused = stranger.ask(&Ask::get(DEMO, ORDERS).field("Host", host)).await;
        refused.refused(400, "bad_host");
        let line = world.log.line_of(refused.request_id()).await;
        let said = ["code", "surface", "proto", "path"].map(|name| line[name].as_str());
        assert_eq!(said, ["bad_host", "listener", "h2", ORDERS].map(Some), "Host: {host}");
    }
    let posted = stranger.ask(&Ask::new("POST", DEMO, "/v2/orders").field("Host", OTHER).body("12345")).await;
    posted.refused(400, "bad_host");
    world.admin.counts(&series(BadHost), 5).await;
    world.assert_upstreams_untouched();
    assert_eq!(stranger.ask(&world.list()).await.status, 200, "the connection serves on");
}

// promise: edge.11
#[tokio::test]
async fn over_http_2_a_connection_with_many_malformed_requests_is_cut() {
    let world = World::start().await;
    let stranger = world.h2(DEMO).await;
    let wrong = Ask::get(DEMO, ORDERS).field("Host", OTHER);
    for _ in 1..32 {
        stranger.ask(&wrong).await.refused(400, "bad_host");
    }
    // Whether the last answer still reaches its client is a matter of chance.
    let _ = stranger.try_ask(&wrong).await;
    world.admin.counts("edge_connection_events_total{event=\"flooded\"}", 1).await;
    world.admin.counts(&series(BadHost), 32).await;
    stranger.try_ask(&world.list()).await.unwrap_err();
    world.assert_upstreams_untouched();
}
