//! Upstreams that send more or less than one response, or other bytes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::upstream_responses::malformed;
use crate::world::client::{Ask, status_of};
use crate::world::upstream::{Act, response};
use crate::world::wire::Framing;
use crate::world::{BLOG, DEMO, World};

// promise: edge.8
#[tokio::test]
async fn malformed_responses_are_502() {
    let world = World::start().await;
    for (what, bytes) in malformed() {
        world.orders.next(Act::AnswerAndClose(bytes.into_bytes()));
        let reply = world.ask(world.list()).await;
        assert_eq!(reply.status, 502, "{what}: {reply:?}");
        reply.refused(502, "upstream_invalid");
        assert_eq!(world.log.line_of(reply.request_id()).await["blame"], "upstream", "{what}");
    }
    world.admin.counts("edge_upstream_requests_total{outcome=\"invalid\"}", 12).await;
}

/// Interim responses are bounded, and so is a request whose upstream sends nothing else.
// promise: edge.8
#[tokio::test]
async fn a_flood_of_interim_responses_is_cut() {
    let world = World::start().await;
    let flood = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".repeat(1_000);
    world.orders.next(Act::AnswerAndClose((flood + &response("200 OK", "", "[]")).into_bytes()));
    let mut client = world.tls(DEMO).await;
    client.send(world.list().field("Connection", "close").to_bytes()).await;
    let seen = String::from_utf8(client.rest().await).unwrap();
    assert!(seen.matches("HTTP/1.1 103 ").count() <= 16, "{seen}");
    assert!(seen.contains("HTTP/1.1 502 ") && !seen.contains(" 200 OK"), "{seen}");
    world.admin.counts("edge_upstream_requests_total{outcome=\"invalid\"}", 1).await;
}

/// Length and coding together: the coding counts, the length never reaches the client, and bytes that the upstream hid
/// behind the last chunk answer no request.
// promise: edge.8
#[tokio::test]
async fn an_answer_with_length_and_coding_poisons_no_connection() {
    let world = World::start().await;
    let hidden = response("200 OK", "", "\"poison\"");
    let both = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n{hidden}"
    );
    world.orders.next(Act::Answer(both.into_bytes()));
    let reply = world.ask(world.list()).await;
    assert!(matches!((reply.status, reply.text()), (200, "[]") | (502, _)), "{reply:?}");
    for _ in 0..3 {
        assert_eq!(world.ask(world.list()).await.text(), "[]");
    }
}

/// An endless, slow response ends at the upstream's time limit of a request.
// promise: edge.8
#[tokio::test]
async fn a_dripping_response_is_cut_at_the_end_of_the_requests_time() {
    let world = World::start().await;
    let gate = Arc::new(Semaphore::new(0));
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[1\r\n".to_vec();
    world.orders.next(Act::AnswerInTwo(head, gate.clone(), b"1\r\n,\r\n".to_vec()));
    let mut client = world.tls(DEMO).await;
    client.send(world.list().to_bytes()).await;
    assert_eq!(status_of(&client.head().await), 200);
    world.clock.advance(Duration::from_secs(31));
    gate.add_permits(1);
    client.rest().await;
    world.admin.counts("edge_upstream_requests_total{outcome=\"timeout\"}", 1).await;
    // A late response head is reported as such.
    let gate = Arc::new(Semaphore::new(0));
    world.orders.next(Act::AnswerInTwo(Vec::new(), gate.clone(), response("200 OK", "", "[]").into_bytes()));
    let mut client = world.tls(DEMO).await;
    client.send(world.list().to_bytes()).await;
    world.orders.asked(2).await;
    world.clock.advance(Duration::from_secs(31));
    gate.add_permits(1);
    client.reply("GET").await.expect("an answer").refused(504, "upstream_timeout");
}

/// A site's download may take any time while it keeps the minimum rate.
#[tokio::test]
async fn a_streaming_site_has_no_limit_on_response_time() {
    let world = World::start().await;
    let gate = Arc::new(Semaphore::new(0));
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n".to_vec();
    world.blog.next(Act::AnswerInTwo(head, gate.clone(), b"2\r\ncd\r\n0\r\n\r\n".to_vec()));
    let mut client = world.tls(BLOG).await;
    client.send(Ask::get(BLOG, "/").to_bytes()).await;
    let head = client.head().await;
    world.clock.advance(Duration::from_hours(2));
    gate.add_permits(1);
    let body = client.wire.body(Framing::Chunked).await;
    assert_eq!((status_of(&head), body.bytes.as_slice(), body.complete), (200, &b"abcd"[..], true));
}

/// An upgrade to another protocol cannot hold a permit of an upstream for an hour.
// promise: faults.11
#[tokio::test]
async fn an_unanswered_upgrade_is_504() {
    let world = World::with(|setup| setup.blog = "connect_timeout = \"100ms\"\nfirst_byte_timeout = \"150ms\"").await;
    for early in ["", "early frames"] {
        world.blog.next(Act::Hang);
        let mut client = world.tls(BLOG).await;
        let ask = Ask::get(BLOG, "/socket").field("Connection", "Upgrade").field("Upgrade", "websocket");
        let mut bytes =
            ask.field("Sec-WebSocket-Version", "13").field("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==").to_bytes();
        bytes.extend_from_slice(early.as_bytes());
        client.send(bytes).await;
        client.reply("GET").await.expect("an answer").refused(504, "upstream_timeout");
        assert_eq!(client.rest().await, b"");
    }
    world.blog.left(2).await;
    world.admin.counts("edge_upstream_requests_total{outcome=\"timeout\"}", 2).await;
}

/// One request in ten may be retried, with ten saved up: an upstream that drops every connection does not get every
/// request twice.
// promise: faults.12
#[tokio::test]
async fn retries_have_a_budget() {
    let world = World::start().await;
    let mut twice = 0;
    for _ in 0..30 {
        assert_eq!(world.ask(world.list()).await.status, 200);
        // The idle connection dies under the next request, and so does the fresh one after it.
        world.orders.next(Act::AnswerAndClose(Vec::new()));
        world.orders.next(Act::AnswerAndClose(Vec::new()));
        let before = world.orders.requests().len();
        let reply = world.ask(world.list()).await;
        reply.refused(502, "upstream_invalid");
        let asked = world.orders.requests().len() - before;
        twice += usize::from(asked == 2);
        if asked == 1 {
            // The second act was not needed.
            world.ask(world.list()).await.refused(502, "upstream_invalid");
        }
    }
    // Ten saved up, and a tenth of less than a hundred requests.
    assert!((10..=19).contains(&twice), "{twice} of 30 were sent twice");
}
