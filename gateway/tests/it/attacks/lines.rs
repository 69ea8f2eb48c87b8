//! Request lines, versions, other protocols, expectations, sizes, fields that `Connection` lists.

use contract::rejection::Rejection::BadRequest;

use super::matrix::{self, row};
use super::refused_by_listener;
use crate::world::{DEMO, ORDERS, World};

// promise: edge.4
#[tokio::test]
async fn request_lines_that_are_not_http_are_refused() {
    refused_by_listener(matrix::request_lines()).await;
}

// promise: edge.5
#[tokio::test]
async fn heads_beyond_their_limits_are_refused() {
    refused_by_listener(matrix::sizes()).await;
}

// promise: edge.6
#[tokio::test]
async fn expectations_and_nominations_that_deceive_are_refused() {
    refused_by_listener(matrix::expectations_and_connections()).await;
}

/// Bytes other than HTTP on the plain port.
// promise: edge.4
#[tokio::test]
async fn a_client_hello_on_the_plain_port_is_refused() {
    let world = World::start().await;
    let mut hello = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    hello.extend([7; 32]);
    super::is_refused(&world, world.plain().await, &row("a ClientHello", hello, BadRequest)).await;
}

/// TRACE reaches no upstream, and the rest of its request is not taken for the next one.
// promise: edge.4
#[tokio::test]
async fn trace_and_unknown_methods_reach_no_upstream() {
    let world = World::start().await;
    for method in ["TRACE", "TRACK", "PROPFIND", "get", "FOO!BAR"] {
        let mut client = world.tls(DEMO).await;
        let head =
            format!("{method} {ORDERS} HTTP/1.1\r\nHost: {DEMO}\r\nAuthorization: Bearer {}\r\n\r\n", world.key.text);
        client.send(head).await;
        let reply = client.reply(method).await.expect("an answer");
        reply.refused(405, "method_not_allowed");
        assert_eq!(reply.header("allow"), Some("GET, HEAD, OPTIONS"), "{method}");
    }
    world.assert_upstreams_untouched();
}
