//! WebSockets over HTTP/2 (RFC 8441), on either side; their limits; and their end when a gateway stops.

use std::sync::Arc;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};

use crate::websockets::upgrade;
use crate::world::client::{Ask, status_of};
use crate::world::h2::{H2, read};
use crate::world::h2_upstream::send;
use crate::world::upstream::{Act, accept, response};
use crate::world::{BLOG, ORDERS, World, eventually, within};

/// A Close frame with status 1001, from a server and, masked, from a client.
const GOING_AWAY: &[u8] = &[0x88, 2, 0x03, 0xe9];
const GOING_AWAY_MASKED: &[u8] = &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9];

/// A handshake over HTTP/2, as browsers send it.
fn handshake(host: &str, target: &str) -> Ask {
    Ask::get(host, target).field("Sec-WebSocket-Version", "13").field("Sec-WebSocket-Protocol", "chat")
}

async fn begin(client: &H2, ask: &Ask) -> (ResponseFuture, SendStream<Bytes>) {
    client.connect_to("websocket", ask).await
}

/// An accepted WebSocket: its head, and both directions.
async fn opened(client: &H2, ask: &Ask) -> (http::response::Parts, RecvStream, SendStream<Bytes>) {
    let (response, sending) = begin(client, ask).await;
    let (head, receiving) = within(response).await.expect("a response").into_parts();
    assert_eq!(head.status, 200);
    (head, receiving, sending)
}

/// As many bytes as these.
async fn arrive(from: &mut RecvStream, expected: &[u8]) {
    let mut all = Vec::new();
    while all.len() < expected.len() {
        let piece = within(from.data()).await.expect("more bytes").expect("no reset");
        from.flow_control().release_capacity(piece.len()).unwrap();
        all.extend_from_slice(&piece);
    }
    assert_eq!(all, expected);
}

/// Nothing follows, and the end is orderly.
async fn ends(from: &mut RecvStream) {
    while let Some(piece) = within(from.data()).await {
        assert_eq!(piece.expect("no reset"), b""[..]);
    }
}

#[tokio::test]
async fn a_websocket_over_http2_reaches_an_upstream_of_http1() {
    let world = World::start().await;
    world.blog.next(Act::Echo);
    let client = world.h2(BLOG).await;
    let (head, mut from, mut to) = opened(&client, &handshake(BLOG, "/socket?a=b")).await;
    assert!(head.headers.contains_key("x-request-id"));
    for name in ["sec-websocket-accept", "upgrade", "connection", "content-length"] {
        assert!(!head.headers.contains_key(name), "{head:?}");
    }
    let large = vec![7; 300_000];
    for message in [&b"\x81\x85maskhello"[..], b"\r\n\r\nGET / HTTP/1.1\r\n\r\n", &large] {
        let ((), sent) =
            tokio::join!(arrive(&mut from, message), send(&mut to, Bytes::copy_from_slice(message), false));
        sent.unwrap();
    }
    let request = world.blog.only_request();
    assert!(request.raw_head.starts_with("GET /socket?a=b HTTP/1.1\r\n"), "{}", request.raw_head);
    let field = |name| request.head.get(name);
    assert_eq!((field("upgrade"), field("connection")), (Some("websocket"), Some("upgrade")));
    assert_eq!((field("sec-websocket-version"), field("sec-websocket-protocol")), (Some("13"), Some("chat")));
    assert_eq!(field("sec-websocket-key").map(str::len), Some(24));
    // Other requests use the connection meanwhile.
    assert_eq!(client.ask(&Ask::get(BLOG, "/")).await.status, 200);
    send(&mut to, Bytes::new(), true).await.unwrap();
    ends(&mut from).await;
    drop(client);
    world.end().await;
}

/// As Chromium closes: its Close frame is the last of its side.
#[tokio::test]
async fn a_client_that_closes_and_ends_its_side_gets_the_close_frame_of_the_upstream() {
    let (tunnels, mut heads) = tunnels(true).await;
    let over_http1 = World::start().await;
    let over_http2 = World::with(|setup| setup.blog_urls = vec![format!("h2c://{tunnels}")]).await;
    for world in [&over_http1, &over_http2] {
        world.blog.next(Act::Echo);
        let client = world.h2(BLOG).await;
        let (_, mut from, mut to) = opened(&client, &handshake(BLOG, "/in-two-pieces")).await;
        send(&mut to, Bytes::from_static(&GOING_AWAY_MASKED[..3]), false).await.unwrap();
        arrive(&mut from, &GOING_AWAY_MASKED[..3]).await;
        send(&mut to, Bytes::from_static(&GOING_AWAY_MASKED[3..]), true).await.unwrap();
        arrive(&mut from, &GOING_AWAY_MASKED[3..]).await;
        ends(&mut from).await;
        world.blog.next(Act::Echo);
        let client = world.h2(BLOG).await;
        let (_, mut from, mut to) = opened(&client, &handshake(BLOG, "/socket")).await;
        send(&mut to, Bytes::from_static(GOING_AWAY_MASKED), true).await.unwrap();
        arrive(&mut from, GOING_AWAY_MASKED).await;
        ends(&mut from).await;
    }
    assert!(heads.recv().await.is_some());
    over_http1.end().await;
    over_http2.end().await;
}

#[tokio::test]
async fn an_upstream_that_does_not_accept_a_websocket_opens_none() {
    let world = World::start().await;
    let client = world.h2(BLOG).await;
    let ask = handshake(BLOG, "/");
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
    for act in [
        // Status 200 of a server that ignores the handshake would accept it over HTTP/2.
        Act::body("200 OK", "[]"),
        Act::body("204 No Content", ""),
        Act::Answer(format!("{switched}\r\n").into_bytes()),
        Act::Answer(format!("{switched}Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n").into_bytes()),
    ] {
        world.blog.next(act.clone());
        let (response, _to) = begin(&client, &ask).await;
        let reply = read(response).await;
        assert_eq!(reply.refused(502, "upstream_invalid").status, 502, "{act:?}");
    }
    world.blog.next(Act::Answer(response("403 Forbidden", "", "not you").into_bytes()));
    let (answered, _to) = begin(&client, &ask).await;
    let reply = read(answered).await;
    assert_eq!((reply.status, reply.text()), (403, "not you"));
    drop(client);
    world.end().await;
}

// promise: edge.6
#[tokio::test]
async fn only_websockets_of_sites_are_opened_by_connect() {
    let world = World::start().await;
    let client = world.h2(BLOG).await;
    // The gateway's own answers with status 200 would accept it too.
    let (response, _to) = begin(&client, &handshake(BLOG, "/.well-known/tollhouse/health")).await;
    read(response).await.refused(405, "method_not_allowed");
    for (protocol, fields) in [("connect-udp", &[][..]), ("", &[]), ("websocket", &[("content-length", "5")])] {
        let mut ask = handshake(BLOG, "/");
        for (name, value) in fields {
            ask = ask.field(name, value);
        }
        let (response, _to) = client.connect_to(protocol, &ask).await;
        let refused = within(response).await.map(|response| response.status().as_u16());
        assert!(refused.as_ref().map_or(true, |status| [400, 405].contains(status)), "{protocol}: {refused:?}");
    }
    world.assert_upstreams_untouched();
    let api = world.h2(crate::world::DEMO).await;
    let (response, _to) = begin(&api, &handshake(crate::world::DEMO, ORDERS)).await;
    read(response).await.refused(401, "missing_api_key");
    let (response, _to) = begin(&api, &handshake(crate::world::DEMO, ORDERS).key(&world.key.text)).await;
    read(response).await.refused(405, "method_not_allowed");
    world.assert_upstreams_untouched();
    drop((client, api));
    world.end().await;
}

/// An upstream over HTTP/2 that accepts WebSockets and echoes them; the heads that it got.
async fn tunnels(accepts: bool) -> (std::net::SocketAddr, tokio::sync::mpsc::Receiver<http::request::Parts>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (give, heads) = tokio::sync::mpsc::channel(8);
    tokio::spawn(async move {
        let mut served = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let give = give.clone();
            served.spawn(async move {
                let mut options = h2::server::Builder::new();
                if accepts {
                    options.enable_connect_protocol();
                }
                let mut connection = options.handshake::<_, Bytes>(stream).await.unwrap();
                let mut echoing = tokio::task::JoinSet::new();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let (head, mut body) = request.into_parts();
                    let _ = give.send(head).await;
                    echoing.spawn(async move {
                        let response = http::Response::builder().header("sec-websocket-protocol", "chat");
                        let mut to = respond.send_response(response.body(()).unwrap(), false).unwrap();
                        while let Some(Ok(piece)) = body.data().await {
                            let _ = body.flow_control().release_capacity(piece.len());
                            let _ = send(&mut to, piece, false).await;
                        }
                        let _ = to.send_data(Bytes::new(), true);
                    });
                }
            });
        }
    });
    (address, heads)
}

#[tokio::test]
async fn an_upstream_of_http2_that_announces_them_gets_websockets_of_both_versions() {
    let (address, mut heads) = tunnels(true).await;
    let world = World::with(|setup| setup.blog_urls = vec![format!("h2c://{address}")]).await;
    let mut client = world.tls(BLOG).await;
    client.send(upgrade(Ask::get(BLOG, "/one")).to_bytes()).await;
    let head = client.head().await;
    assert_eq!((status_of(&head), head.get("upgrade")), (101, Some("websocket")));
    assert_eq!(head.get("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!((head.get("sec-websocket-protocol"), head.get("transfer-encoding")), (Some("chat"), None));
    client.send("\x02\x05hello").await;
    assert_eq!(within(client.wire.exactly(7)).await, b"\x02\x05hello");
    let h2 = world.h2(BLOG).await;
    let (_, mut from, mut to) = opened(&h2, &handshake(BLOG, "/two")).await;
    send(&mut to, "\x02\x05hello".into(), false).await.unwrap();
    arrive(&mut from, b"\x02\x05hello").await;
    send(&mut to, Bytes::new(), true).await.unwrap();
    ends(&mut from).await;
    for path in ["/one", "/two"] {
        let head = within(heads.recv()).await.unwrap();
        let protocol = head.extensions.get::<h2::ext::Protocol>().map(h2::ext::Protocol::as_str);
        assert_eq!((head.method.as_str(), head.uri.path(), protocol), ("CONNECT", path, Some("websocket")));
        assert!(!head.headers.contains_key("sec-websocket-key"), "{head:?}");
    }
    drop((client, h2));
    world.end().await;
}

#[tokio::test]
async fn an_upstream_of_http2_that_does_not_announce_them_gets_no_connect() {
    let (address, mut heads) = tunnels(false).await;
    let world = World::with(|setup| setup.blog_urls = vec![format!("h2c://{address}")]).await;
    let client = world.h2(BLOG).await;
    let (response, _to) = begin(&client, &handshake(BLOG, "/")).await;
    read(response).await.refused(502, "upstream_invalid");
    assert_eq!(within(heads.recv()).await.unwrap().method, "GET");
    drop(client);
    world.end().await;
}

#[tokio::test]
async fn a_response_that_is_no_websocket_takes_no_place_of_one() {
    let world = World::with(|setup| setup.blog = "websockets_max = 1").await;
    let gate = Arc::new(Semaphore::new(0));
    let begun = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n1".to_vec();
    world.blog.next(Act::AnswerInTwo(begun, gate.clone(), b"2".to_vec()));
    let mut download = world.tls(BLOG).await;
    download.send(upgrade(Ask::get(BLOG, "/")).to_bytes()).await;
    assert_eq!(status_of(&download.head().await), 200);
    world.blog.next(Act::Echo);
    let mut client = world.tls(BLOG).await;
    client.send(upgrade(Ask::get(BLOG, "/")).to_bytes()).await;
    assert_eq!(status_of(&client.head().await), 101);
    gate.add_permits(1);
    drop((client, download));
    world.end().await;
}

#[tokio::test]
async fn websockets_have_limits_of_their_own() {
    let world = World::with(|setup| setup.blog = "websockets_max = 1\nwebsocket_idle_timeout = \"1s\"").await;
    world.blog.next(Act::Echo);
    let mut client = world.tls(BLOG).await;
    client.send(upgrade(Ask::get(BLOG, "/")).to_bytes()).await;
    assert_eq!(status_of(&client.head().await), 101);
    world.ask(upgrade(Ask::get(BLOG, "/"))).await.refused(503, "overloaded");
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200, "requests are counted apart");
    // It is silent for a second.
    assert_eq!(client.rest().await, b"");
    world.blog.next(Act::Echo);
    let mut client = world.tls(BLOG).await;
    let taken = eventually("the permit is free again", async || {
        client.send(upgrade(Ask::get(BLOG, "/")).to_bytes()).await;
        let head = client.head().await;
        if status_of(&head) == 101 {
            return Some(());
        }
        client = world.tls(BLOG).await;
        None
    });
    taken.await;
    drop(client);
    world.end().await;
}

/// An upstream that accepts one WebSocket, sends a part of a frame, and the rest on a signal. Then it reports
/// everything that it received.
async fn talks() -> (std::net::SocketAddr, oneshot::Sender<()>, oneshot::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (go_on, signal) = oneshot::channel::<()>();
    let (report, received) = oneshot::channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_buf(&mut head).await.unwrap();
        }
        let head = String::from_utf8(head).unwrap();
        let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
        let agreed = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {}\r\n\r\n",
            accept(key)
        );
        stream.write_all(agreed.as_bytes()).await.unwrap();
        stream.write_all(b"\x81\x05hel").await.unwrap();
        signal.await.unwrap();
        stream.write_all(b"lo").await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        report.send(all).unwrap();
    });
    (address, go_on, received)
}

const DRAIN: &str = "lame_duck = \"0s\"\nrequests = \"20s\"\nwebsockets = \"0s\"";

#[tokio::test]
async fn a_stopping_gateway_closes_websockets_between_two_frames() {
    let (address, go_on, received) = talks().await;
    let mut world = World::with(|setup| {
        setup.blog_endpoints = vec![address];
        setup.drain = DRAIN;
    })
    .await;
    let mut client = world.tls(BLOG).await;
    client.send(upgrade(Ask::get(BLOG, "/")).to_bytes()).await;
    assert_eq!(status_of(&client.head().await), 101);
    client.send(b"\x81\x83maskabc").await;
    assert_eq!(within(client.wire.exactly(5)).await, b"\x81\x05hel");
    world.begin_stop();
    eventually("the gateway is draining", async || (world.admin.metric("edge_draining").await == 1).then_some(()))
        .await;
    go_on.send(()).unwrap();
    assert_eq!(client.rest().await, [b"lo", GOING_AWAY].concat());
    assert_eq!(within(received).await.unwrap(), [b"\x81\x83maskabc", GOING_AWAY_MASKED].concat());
    world.stopped().await.expect("nothing is left in progress");
}

#[tokio::test]
async fn a_stopping_gateway_closes_websockets_over_http2() {
    let mut world = World::with(|setup| setup.drain = DRAIN).await;
    world.blog.next(Act::Echo);
    let client = world.h2(BLOG).await;
    let (_, mut from, mut to) = opened(&client, &handshake(BLOG, "/")).await;
    send(&mut to, Bytes::from_static(b"\x81\x85maskhello"), false).await.unwrap();
    arrive(&mut from, b"\x81\x85maskhello").await;
    world.begin_stop();
    arrive(&mut from, GOING_AWAY).await;
    ends(&mut from).await;
    drop((client, to));
    world.stopped().await.expect("nothing is left in progress");
}
