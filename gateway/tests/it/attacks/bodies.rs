//! Chunks, trailers, early answers, pipelines.

use super::matrix::{self, smuggled};
use super::refused_by_listener;
use crate::world::client::Ask;
use crate::world::upstream::{Act, response};
use crate::world::{BLOG, DEMO, ORDERS, World};

// promise: edge.3
#[tokio::test]
async fn chunks_that_could_be_read_twice_are_refused() {
    refused_by_listener(matrix::chunks()).await;
}

// promise: edge.3
#[tokio::test]
async fn a_late_bad_chunk_is_refused_and_the_upstream_never_sees_a_whole_request() {
    let world = World::start().await;
    let mut client = world.tls(BLOG).await;
    client.send(format!("POST / HTTP/1.1\r\nHost: {BLOG}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n")).await;
    crate::world::eventually("the upstream has the head", async || (world.blog.heads() == 1).then_some(())).await;
    client.send(format!("5 \r\n12345\r\n0\r\n\r\n{}", smuggled())).await;
    client.reply("POST").await.expect("an answer").refused(400, "bad_framing");
    assert_eq!(client.rest().await, b"");
    crate::world::eventually("the upstream sees it end", async || {
        let requests = world.blog.requests();
        (requests.len() == 1 && !requests[0].complete).then_some(())
    })
    .await;
    assert_eq!(world.orders.connections(), 0);
}

// promise: edge.3
#[tokio::test]
async fn trailers_are_dropped() {
    let world = World::start().await;
    let mut client = world.tls(BLOG).await;
    let fields = "Transfer-Encoding: chunked\r\nTrailer: X-Late";
    client
        .send(format!("POST / HTTP/1.1\r\nHost: {BLOG}\r\n{fields}\r\n\r\n5\r\n12345\r\n0\r\nX-Late: 1\r\n\r\n"))
        .await;
    assert_eq!(client.reply("POST").await.expect("an answer").status, 200);
    let request = world.blog.only_request();
    assert_eq!((request.body.as_slice(), request.complete), (&b"12345"[..], true));
    assert!(request.head.all("x-late").is_empty() && request.head.all("trailer").is_empty(), "{request:?}");
}

/// Neither the gateway nor the upstream takes the unread rest of the body for the next request.
// promise: edge.7
#[tokio::test]
async fn an_answer_before_the_body_was_read_costs_both_connections() {
    let world = World::start().await;
    world.blog.next(Act::AnswerBeforeBody(response("200 OK", "", "early").into_bytes()));
    let mut client = world.tls(BLOG).await;
    let hidden = smuggled();
    let length = hidden.len() + 2;
    client.send(format!("POST /early HTTP/1.1\r\nHost: {BLOG}\r\nContent-Length: {length}\r\n\r\n12")).await;
    let reply = client.reply("POST").await.expect("an answer while the body is on its way");
    assert_eq!((reply.status, reply.text()), (200, "early"));
    client.send(hidden).await;
    assert_eq!(client.rest().await, b"", "no second answer, and the end");
    assert_eq!(world.ask(Ask::get(BLOG, "/next")).await.status, 200);
    world.blog.asked(2).await;
    let requests = world.blog.requests();
    let lines: Vec<_> = requests.iter().map(|request| request.head.first_line.as_str()).collect();
    assert!(lines.contains(&"POST /early HTTP/1.1") && lines.contains(&"GET /next HTTP/1.1"), "{lines:?}");
    assert_ne!(requests[0].connection, requests[1].connection, "{requests:?}");
    assert_eq!(requests.len(), 2, "{requests:?}");
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_no_half_request_to_others() {
    let world = World::start().await;
    let mut client = world.tls(BLOG).await;
    client.send(format!("POST / HTTP/1.1\r\nHost: {BLOG}\r\nContent-Length: 5\r\n\r\n12")).await;
    crate::world::eventually("the upstream is asked", async || (world.blog.heads() == 1).then_some(())).await;
    client.wire.close().await;
    crate::world::eventually("the request ends", async || {
        (world.admin.metric("edge_requests_in_flight").await == 0).then_some(())
    })
    .await;
    assert_eq!(world.ask(Ask::get(BLOG, "/next")).await.status, 200);
    world.blog.asked(2).await;
    let requests = world.blog.requests();
    let whole: Vec<_> = requests.iter().filter(|request| request.complete).collect();
    assert_eq!(whole.len(), 1);
    assert!(whole[0].head.first_line.starts_with("GET /next "), "{requests:?}");
    assert!(requests.iter().all(|request| request.complete || request.connection != whole[0].connection));
}

// promise: edge.7
#[tokio::test]
async fn pipelined_requests_are_answered_in_order_and_never_mixed() {
    let world = World::start().await;
    let mut client = world.tls(BLOG).await;
    for number in 0..3 {
        world.blog.next(Act::body("200 OK", &format!("\"answer {number}\"")));
    }
    let asks: Vec<u8> = (0..3).flat_map(|number| Ask::get(BLOG, &format!("/{number}")).to_bytes()).collect();
    client.send(asks).await;
    for number in 0..3 {
        let reply = client.reply("GET").await.expect("an answer");
        assert_eq!((reply.status, reply.text()), (200, format!("\"answer {number}\"").as_str()));
    }
    let lines: Vec<String> = world.blog.requests().into_iter().map(|request| request.head.first_line).collect();
    assert_eq!(lines, ["GET /0 HTTP/1.1", "GET /1 HTTP/1.1", "GET /2 HTTP/1.1"]);
}

/// CL.0 and 0.CL: bytes that a server which ignores a body would read as the next request.
// promise: edge.1
#[tokio::test]
async fn an_unexpected_body_is_never_read_as_a_request() {
    let world = World::start().await;
    for method in ["GET", "HEAD", "DELETE"] {
        let path = if method == "DELETE" { format!("{ORDERS}/1") } else { ORDERS.to_owned() };
        let hidden = smuggled();
        for framing in [format!("Content-Length: {}", hidden.len()), "Transfer-Encoding: chunked".to_owned()] {
            let mut client = world.tls(DEMO).await;
            let key = &world.key.text;
            let head =
                format!("{method} {path} HTTP/1.1\r\nHost: {DEMO}\r\nAuthorization: Bearer {key}\r\n{framing}\r\n\r\n");
            let body =
                if framing.starts_with('C') { hidden.clone() } else { format!("5\r\n12345\r\n0\r\n\r\n{hidden}") };
            client.send(head + &body).await;
            let reply = client.reply(method).await.expect("an answer");
            assert_eq!(reply.status, 400, "{method} with {framing}: {reply:?}");
            assert_eq!(client.rest().await, b"", "{method} with {framing}: no second answer");
            assert_eq!(world.log.line_of(reply.request_id()).await["code"], "body_not_allowed");
        }
    }
    world.assert_upstreams_untouched();
}
