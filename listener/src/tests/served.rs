//! A small service behind a listener.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::certificates::{certificate, client, connect};
use super::listeners::{Open, exchange, open_with, soon};
use super::rig::{GET, POST_5, POST_CHUNKED};
use crate::fakes::FakeHooks;
use crate::{ConnectionEvent, ListenerSettings};
use contract::rejection::Rejection;

async fn rig(settings: ListenerSettings) -> Open {
    let service = Arc::new(FakeHooks::default());
    open_with(Arc::<FakeHooks>::clone(&service), settings, false, service, [7; 32]).await
}

/// Lengths of head and body of the first message, if it is complete.
fn complete(received: &[u8]) -> Option<(usize, usize)> {
    let head_bytes = received.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&received[..head_bytes]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let body_bytes = length.unwrap_or(0);
    (received.len() - head_bytes >= body_bytes).then_some((head_bytes, body_bytes))
}

/// Reads one response; returns its body.
async fn body<S: tokio::io::AsyncRead + Unpin>(io: &mut S) -> String {
    let mut received = Vec::new();
    loop {
        if let Some((head_bytes, body_bytes)) = complete(&received) {
            assert!(received.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", received.escape_ascii());
            assert_eq!(received.len(), head_bytes + body_bytes);
            return String::from_utf8(received[head_bytes..].to_vec()).unwrap();
        }
        // Byte by byte, so that no byte of the next response is read.
        received.push(soon(io.read_u8()).await.unwrap());
    }
}

#[tokio::test]
async fn requests_of_every_framing_share_a_connection() {
    let rig = rig(ListenerSettings::default()).await;
    let mut client = TcpStream::connect(rig.address).await.unwrap();
    for (request, answer) in [
        (GET.to_owned(), "GET / 0\n"),
        (format!("{POST_5}hello"), "POST / 5\n"),
        (format!("{POST_CHUNKED}5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"), "POST / 5\n"),
        (GET.to_owned(), "GET / 0\n"),
    ] {
        client.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(body(&mut client).await, answer);
    }
    assert_eq!(rig.hooks.count(ConnectionEvent::Opened), 1);
    assert!(rig.hooks.broken.lock().is_empty());
}

#[tokio::test]
async fn a_body_larger_than_any_buffer_arrives() {
    let rig = rig(ListenerSettings::default()).await;
    let mut client = TcpStream::connect(rig.address).await.unwrap();
    let head = "PUT /large HTTP/1.1\r\nHost: a.example\r\nContent-Length: 300000\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&vec![b'x'; 300_000]).await.unwrap();
    assert_eq!(body(&mut client).await, "PUT /large 300000\n");
    client.write_all(GET.as_bytes()).await.unwrap();
    assert_eq!(body(&mut client).await, "GET / 0\n");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let rig = rig(ListenerSettings::default()).await;
    let mut client = TcpStream::connect(rig.address).await.unwrap();
    let requests =
        format!("GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n{POST_5}helloGET /3 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    client.write_all(requests.as_bytes()).await.unwrap();
    for answer in ["GET /1 0\n", "POST / 5\n", "GET /3 0\n"] {
        assert_eq!(body(&mut client).await, answer);
    }
}

#[tokio::test]
async fn no_part_of_a_smuggled_request_passes_the_listener() {
    let rig = rig(ListenerSettings::default()).await;
    let smuggled = "GET /admin HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let payloads = [
        ("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", format!("0\r\n\r\n{smuggled}"), 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", format!("5c\r\n{smuggled}0\r\n\r\n"), 400),
        ("Content-Length: 0\r\nContent-Length: 38\r\n", smuggled.to_owned(), 400),
        ("Content-Length: +38\r\n", smuggled.to_owned(), 400),
        ("Transfer-Encoding: xchunked\r\n", smuggled.to_owned(), 400),
        ("Transfer-Encoding: identity\r\n", smuggled.to_owned(), 501),
        ("Transfer_Encoding: chunked\r\n", smuggled.to_owned(), 400),
        ("Transfer-Encoding: chunked\r\n", format!("0\n\n{smuggled}"), 400),
        ("Transfer-Encoding: chunked\r\n", format!("1;\n{smuggled}"), 400),
        ("Connection: Authorization\r\n", String::new(), 400),
        ("Expect: 100-continue\r\n", String::new(), 417),
    ];
    let mut refused = 0;
    for (fields, rest, status) in payloads {
        let answer = exchange(rig.address, format!("POST / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n{rest}")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{fields:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{fields:?}: {answer}");
        refused += 1;
        assert_eq!(rig.hooks.refused().len(), refused, "one refusal, one report");
    }
    assert_eq!(rig.hooks.heads.load(Ordering::Acquire), 0);
}

#[tokio::test]
async fn a_bad_chunk_in_mid_body_is_answered_by_the_handler() {
    let rig = rig(ListenerSettings::default()).await;
    let mut client = TcpStream::connect(rig.address).await.unwrap();
    client.write_all(format!("{POST_CHUNKED}5\r\nhello\r\n").as_bytes()).await.unwrap();
    while rig.hooks.body_bytes.load(Ordering::Acquire) == 0 {
        tokio::task::yield_now().await;
    }
    client.write_all(b"0x5\r\nhello").await.unwrap();
    let mut answer = String::new();
    soon(client.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(*rig.hooks.broken.lock(), [Rejection::BadFraming]);
    assert!(rig.hooks.refused().is_empty());
}

#[tokio::test]
async fn a_slow_body_is_answered_408_by_the_handler() {
    let mut settings = ListenerSettings::default();
    settings.body_minimum_rate.grace = Duration::from_millis(50);
    let rig = rig(settings).await;
    let answer = exchange(rig.address, format!("{POST_5}hel")).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(*rig.hooks.broken.lock(), [Rejection::RequestTimeout]);
}

#[tokio::test]
async fn connect_is_answered_with_our_body_by_the_listener() {
    let rig = rig(ListenerSettings::default()).await;
    let answer = exchange(rig.address, "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{answer}");
    assert!(answer.ends_with(&Rejection::MethodNotAllowed.body().to_json()), "{answer}");
    assert_eq!(rig.hooks.refused(), [Rejection::MethodNotAllowed]);
    assert_eq!(rig.hooks.heads.load(Ordering::Acquire), 0);
}

#[tokio::test]
async fn a_websocket_passes_with_the_bytes_that_came_early() {
    let rig = rig(ListenerSettings::default()).await;
    let mut client = TcpStream::connect(rig.address).await.unwrap();
    let upgrade = "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write_all(format!("{upgrade}early").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
    let mut echoed = [0; 10];
    client.write_all(b" late").await.unwrap();
    client.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"early late");
}

#[tokio::test]
async fn a_connection_is_closed_after_its_last_request() {
    let rig = rig(ListenerSettings { requests_per_connection: 2, ..ListenerSettings::default() }).await;
    let mut client = TcpStream::connect(rig.address).await.unwrap();
    client.write_all(GET.as_bytes()).await.unwrap();
    assert_eq!(body(&mut client).await, "GET / 0\n");
    client.write_all(GET.as_bytes()).await.unwrap();
    let mut last = String::new();
    soon(client.read_to_string(&mut last)).await.unwrap();
    assert!(last.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{last}");
    soon(rig.connections.wait_until_closed()).await;
}

#[tokio::test]
async fn at_the_signal_idle_connections_close() {
    let rig = rig(ListenerSettings::default()).await;
    let mut client = TcpStream::connect(rig.address).await.unwrap();
    client.write_all(GET.as_bytes()).await.unwrap();
    assert_eq!(body(&mut client).await, "GET / 0\n");
    rig.shutdown.send(true).unwrap();
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    soon(rig.connections.wait_until_closed()).await;
}

#[tokio::test]
async fn the_same_service_serves_tls() {
    let (hooks, key) = (Arc::new(FakeHooks::default()), certificate(&["a.example"]));
    hooks.certificates.lock().insert("a.example".parse().unwrap(), Arc::clone(&key));
    let open = open_with(Arc::<FakeHooks>::clone(&hooks), ListenerSettings::default(), true, hooks, [1; 32]).await;
    let tcp = TcpStream::connect(open.address).await.unwrap();
    let mut tls = connect(&client(&key, &[b"http/1.1"]), "a.example", tcp).await.unwrap();
    for _ in 0..3 {
        tls.write_all(format!("{POST_5}hello").as_bytes()).await.unwrap();
        assert_eq!(body(&mut tls).await, "POST / 5\n");
    }
    tls.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut refusal = String::new();
    soon(tls.read_to_string(&mut refusal)).await.unwrap();
    assert!(refusal.starts_with("HTTP/1.1 400 ") && refusal.contains("bad_host"), "{refusal}");
}
