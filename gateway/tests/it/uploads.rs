//! Slow uploads: a client may pause, and an upload has a maximum duration. The same over both versions of HTTP.

use std::time::Duration;

use bytes::Bytes;

use crate::world::client::{Ask, Reply};
use crate::world::upstream::{Act, response};
use crate::world::{DEMO, World, h2, within};

/// Sends a POST with a body in two pieces and a pause of this length between, over HTTP/1.1 or HTTP/2.
async fn upload(world: &World, over_h2: bool, length: usize, pause: Option<Duration>) -> Reply {
    let ask = Ask::new("POST", DEMO, "/v2/orders").key(&world.key.text).field("Content-Length", &length.to_string());
    let (first, second) = (vec![b'a'; length / 2], vec![b'b'; length - length / 2]);
    if over_h2 {
        let client = world.h2(DEMO).await;
        let (reply, mut body) = client.begin(&ask).await;
        body.send_data(Bytes::from(first), false).unwrap();
        if let Some(pause) = pause {
            // The test is about this pause of the client.
            tokio::time::sleep(pause).await;
            body.send_data(Bytes::from(second), true).unwrap();
        }
        within(h2::read(reply)).await
    } else {
        let mut client = world.tls(DEMO).await;
        client.send([ask.to_bytes(), first].concat()).await;
        if let Some(pause) = pause {
            // The test is about this pause of the client.
            tokio::time::sleep(pause).await;
            client.send(second).await;
        }
        client.reply("POST").await.expect("a response")
    }
}

#[tokio::test]
async fn a_pause_of_the_client_is_not_the_upstreams() {
    let world = World::with(|setup| setup.orders = "first_byte_timeout = \"100ms\"").await;
    for over_h2 in [false, true] {
        world.orders.next(Act::Answer(response("201 Created", "", "made").into_bytes()));
        let reply = upload(&world, over_h2, 20, Some(Duration::from_millis(500))).await;
        assert_eq!((reply.status, reply.text()), (201, "made"), "over HTTP/2: {over_h2}");
    }
    let bodies: Vec<_> = world.orders.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies, [b"aaaaaaaaaabbbbbbbbbb", b"aaaaaaaaaabbbbbbbbbb"]);
}

#[tokio::test]
async fn an_upload_beyond_the_time_of_its_request_ends_and_the_client_is_to_blame() {
    let world = World::with(|setup| setup.orders = "first_byte_timeout = \"1h\"\ntotal_timeout = \"300ms\"").await;
    for over_h2 in [false, true] {
        let reply = upload(&world, over_h2, 20, None).await;
        reply.refused(408, "request_timeout");
        assert_eq!(world.log.line_of(reply.request_id()).await["blame"], "client", "over HTTP/2: {over_h2}");
    }
}

#[tokio::test]
async fn a_silent_upstream_after_an_upload_is_to_blame() {
    let world = World::with(|setup| setup.orders = "first_byte_timeout = \"1h\"\ntotal_timeout = \"300ms\"").await;
    for over_h2 in [false, true] {
        world.orders.next(Act::Hang);
        let reply = upload(&world, over_h2, 20, Some(Duration::ZERO)).await;
        reply.refused(504, "upstream_timeout");
        let line = world.log.line_of(reply.request_id()).await;
        assert_eq!(
            (&line["blame"], &line["error"]),
            (&"upstream".into(), &"Upstream ReadTimedout".into()),
            "{over_h2}"
        );
    }
}
