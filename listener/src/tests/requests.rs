//! Requests through one stream: the handler's reads and the client's responses.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::rig::{GET, POST_5, POST_CHUNKED, read, rig, rig_with};
use crate::{Client as _, ConnectionEvent, ListenerSettings};
use contract::rejection::Rejection;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The refusal as the client receives it, without the date.
fn refusal(rejection: Rejection, reason: &str) -> String {
    let body = rejection.body().to_json();
    format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Request-Id: test-request\r\nConnection: close\r\n\r\n{body}",
        rejection.status(),
        body.len()
    )
}

fn without_date(response: &str) -> String {
    let lines: Vec<_> = response.split("\r\n").filter(|line| !line.starts_with("Date: ")).collect();
    lines.join("\r\n")
}

#[tokio::test(start_paused = true)]
async fn a_request_passes_byte_for_byte() {
    let mut rig = rig();
    rig.send(GET).await;
    assert_eq!(rig.read().await.unwrap(), GET);
    assert!(rig.nothing_to_read().await);
    rig.respond(OK).await;
    assert_eq!(rig.received().await, OK);
}

#[tokio::test(start_paused = true)]
async fn a_refused_head_is_answered_here_and_no_handler_sees_it() {
    let mut rig = rig();
    rig.send("GET /a?key=secret HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n").await;
    assert_eq!(rig.read().await.unwrap(), "");
    assert_eq!(*rig.hooks.refusals.lock(), [(Rejection::BadHost, "GET /a".to_owned())]);
    assert_eq!(without_date(&rig.received().await), refusal(Rejection::BadHost, "Bad Request"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_head_request_is_answered_without_a_body() {
    let mut rig = rig();
    rig.send("HEAD / HTTP/1.1\r\n\r\n").await;
    assert_eq!(rig.read().await.unwrap(), "");
    let received = rig.received().await;
    assert!(received.contains("Content-Length: ") && received.ends_with("\r\n\r\n"), "{received}");
}

#[tokio::test(start_paused = true)]
async fn the_slot_is_held_until_the_client_has_read_the_refusal() {
    let mut rig = rig();
    rig.send("nonsense\r\n").await;
    assert_eq!(rig.read().await.unwrap(), "");
    let (connections, mut client) = (rig.connections, rig.client);
    drop(rig.stream);
    assert_eq!(connections.live(), 1);
    let mut received = String::new();
    client.read_to_string(&mut received).await.unwrap();
    assert!(received.starts_with("HTTP/1.1 400 "));
    // The client neither closes nor stops sending: lingering ends at its own deadline.
    connections.wait_until_closed().await;
    assert_eq!(rig.hooks.count(ConnectionEvent::Closed), 1);
}

#[tokio::test(start_paused = true)]
async fn each_pipelined_request_is_read_after_the_previous_response() {
    let mut rig = rig();
    rig.send(format!("{GET}{POST_5}hello{GET}")).await;
    for expected in [GET, &format!("{POST_5}hello"), GET] {
        assert_eq!(rig.read().await.unwrap(), expected);
        assert!(rig.nothing_to_read().await);
        rig.respond(OK).await;
    }
    assert!(rig.nothing_to_read().await);
    assert_eq!(rig.received().await, OK.repeat(3));
}

#[tokio::test(start_paused = true)]
async fn a_bad_request_after_a_good_one_is_answered_second() {
    let mut rig = rig();
    rig.send(format!("{GET}GET / HTTP/1.1\r\n\r\n")).await;
    assert_eq!(rig.read().await.unwrap(), GET);
    rig.respond(OK).await;
    assert_eq!(rig.read().await.unwrap(), "");
    assert_eq!(without_date(&rig.received().await), format!("{OK}{}", refusal(Rejection::BadHost, "Bad Request")));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_noticed_while_its_request_is_in_progress() {
    let mut rig = rig();
    rig.send(GET).await;
    rig.read().await.unwrap();
    rig.connection.request_seen();
    rig.client.shutdown().await.unwrap();
    assert_eq!(rig.read().await.unwrap(), "");
}

#[tokio::test(start_paused = true)]
async fn a_bad_chunk_after_the_head_fails_the_read_and_the_handler_answers() {
    let mut rig = rig();
    rig.send(format!("{POST_CHUNKED}5\r\nhello\r\n")).await;
    assert_eq!(rig.read().await.unwrap(), format!("{POST_CHUNKED}hello"));
    rig.connection.request_seen();
    rig.send("5;\r\nhello\r\n").await;
    let refused = rig.read().await.unwrap_err();
    assert_eq!((refused.kind(), refused.to_string().as_str()), (ErrorKind::InvalidData, Rejection::BadFraming.code()));
    assert!(rig.hooks.refused().is_empty(), "the handler logs it");
    rig.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    rig.stream.flush().await.unwrap();
    assert_eq!(rig.read().await.unwrap_err().kind(), ErrorKind::InvalidData, "it stays refused");
    assert_eq!(rig.received().await, "HTTP/1.1 400 Bad Request\r\n\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_bad_chunk_with_its_head_reaches_no_handler() {
    let mut rig = rig();
    rig.send(format!("{POST_CHUNKED}0x5\r\nhello")).await;
    assert_eq!(rig.read().await.unwrap(), "");
    assert_eq!(*rig.hooks.refusals.lock(), [(Rejection::BadFraming, "POST / HTTP/1.1".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn body_bytes_are_passed_without_their_framing_and_the_next_head_is_not() {
    let mut rig = rig();
    rig.send(POST_5).await;
    assert_eq!(rig.read().await.unwrap(), POST_5);
    rig.connection.request_seen();
    rig.send(format!("hello{GET}")).await;
    assert_eq!(rig.read().await.unwrap(), "hello");
    assert!(rig.nothing_to_read().await);

    rig.done();
    assert_eq!(rig.read().await.unwrap(), GET);
    rig.respond("").await;
    rig.send(POST_CHUNKED).await;
    assert_eq!(rig.read().await.unwrap(), POST_CHUNKED);
    rig.connection.request_seen();
    rig.send(format!("5\r\nhello\r\n0\r\n\r\n{GET}")).await;
    assert_eq!(rig.read().await.unwrap(), "hello");
    assert!(rig.nothing_to_read().await);
}

#[tokio::test(start_paused = true)]
async fn a_websocket_gets_its_bytes_after_the_upstream_agreed() {
    let upgrade = "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut rig = rig();
    rig.send(format!("{upgrade}\u{1}frame")).await;
    assert_eq!(rig.read().await.unwrap(), upgrade);
    rig.connection.request_seen();
    assert!(rig.nothing_to_read().await);
    rig.stream.switch();
    assert_eq!(rig.read().await.unwrap(), "\u{1}frame");
    rig.send("\u{2}\r\n\r\nanything").await;
    assert_eq!(rig.read().await.unwrap(), "\u{2}\r\n\r\nanything");
}

#[tokio::test(start_paused = true)]
async fn a_405_names_methods() {
    let mut rig = rig();
    rig.stream.refuse(Rejection::MethodNotAllowed);
    let received = rig.received().await;
    assert!(received.starts_with("HTTP/1.1 405 ") && received.contains("\r\nAllow: GET, "), "{received}");
}

#[tokio::test(start_paused = true)]
async fn a_response_is_sent_at_its_flush_in_one_piece() {
    let mut rig = rig();
    rig.send(GET).await;
    rig.read().await.unwrap();
    rig.connection.request_seen();
    rig.stream.write_all(b"head ").await.unwrap();
    rig.stream.write_all(b"body").await.unwrap();
    let mut buffer = [0; 64];
    let early = tokio::time::timeout(std::time::Duration::from_millis(1), rig.client.read(&mut buffer)).await;
    assert!(early.is_err(), "nothing travels before the flush");
    rig.stream.flush().await.unwrap();
    assert_eq!(rig.client.read(&mut buffer).await.unwrap(), 9);
    assert_eq!(&buffer[..9], b"head body");
}

#[tokio::test(start_paused = true)]
async fn large_writes_keep_their_order() {
    let mut rig = rig();
    rig.send(GET).await;
    rig.read().await.unwrap();
    rig.connection.request_seen();
    let large = "0123456789abcdef".repeat(4_096);
    let expected = format!("head{large}tail");
    let (mut client, mut stream) = (rig.client, rig.stream);
    let reading = tokio::spawn(async move {
        let mut received = String::new();
        client.read_to_string(&mut received).await.unwrap();
        received
    });
    for piece in ["head", &large, "tail"] {
        stream.write_all(piece.as_bytes()).await.unwrap();
    }
    stream.flush().await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(reading.await.unwrap(), expected);
}

// rule: 1.19
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_ended_from_outside_ends_at_once() {
    let host = contract::hostname::Hostname::parse("a.example").unwrap();
    let mut rig = rig();
    rig.send(GET).await;
    rig.read().await.unwrap();
    rig.connection.request_seen();
    rig.connection.record_host(&host);
    assert_eq!(rig.connections.close_where(|name| name.as_str() == "other.example"), 0);

    let connections = std::sync::Arc::clone(&rig.connections);
    let waiting = async {
        let read = rig.read().await;
        (read, rig)
    };
    let ((read, mut rig), closed) = tokio::join!(waiting, async { connections.close_where(|name| *name == host) });
    assert_eq!(closed, 1);
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionAborted);
    let written = rig.stream.write_all(OK.as_bytes()).await;
    assert_eq!(written.unwrap_err().kind(), ErrorKind::ConnectionAborted);
    let hooks = std::sync::Arc::clone(&rig.hooks);
    assert_eq!(rig.received().await, "");
    assert_eq!(hooks.count(ConnectionEvent::Ended), 1);
    connections.wait_until_closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_in_small_pieces_arrives_in_order() {
    let mut rig = rig_with(ListenerSettings::default(), None, 16);
    let message = format!("{POST_CHUNKED}5\r\nhello\r\n1;a=b\r\n \r\n000a\r\nhow are yo\r\n0\r\nX: y\r\n\r\n");
    let (mut client, mut stream) = (rig.client, rig.stream);
    let sending = tokio::spawn(async move {
        client.write_all(message.as_bytes()).await.unwrap();
        client
    });
    let mut seen = String::new();
    rig.connection.request_seen();
    while !seen.ends_with("how are yo") {
        let piece = read(&mut stream).await.unwrap();
        assert_ne!(piece, "");
        seen += &piece;
    }
    assert_eq!(seen, format!("{POST_CHUNKED}hello how are yo"));
    rig.client = sending.await.unwrap();
}
