//! HTTP/2 through a listener.

use std::sync::Arc;
use std::time::Duration;

use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::certificates::{certificate, client, connect};
use super::listeners::{Open, open_with, soon};
use crate::fakes::FakeHooks;
use crate::{ConnectionEvent, ListenerSettings};

async fn secure(settings: ListenerSettings) -> (Open, Arc<CertifiedKey>) {
    let (hooks, key) = (Arc::new(FakeHooks::default()), certificate(&["a.example"]));
    hooks.certificates.lock().insert("a.example".parse().unwrap(), Arc::clone(&key));
    (open_with(Arc::<FakeHooks>::clone(&hooks), settings, true, hooks, [1; 32]).await, key)
}

fn browser(open: &Open, key: &CertifiedKey) -> reqwest::Client {
    let tls = (*client(key, &[b"h2"])).clone();
    let builder = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy();
    builder.resolve("a.example", open.address).build().unwrap()
}

async fn get(browser: &reqwest::Client, open: &Open, path: &str) -> String {
    let url = format!("https://a.example:{}{path}", open.address.port());
    let response = browser.get(url).send().await.unwrap();
    assert_eq!((response.status(), response.version()), (http::StatusCode::OK, http::Version::HTTP_2));
    response.text().await.unwrap()
}

#[tokio::test]
async fn streams_share_one_connection() {
    let (open, key) = secure(ListenerSettings::default()).await;
    let browser = browser(&open, &key);
    assert_eq!(get(&browser, &open, "/1").await, "GET /1 0\n");
    let (second, third) = tokio::join!(get(&browser, &open, "/2"), get(&browser, &open, "/3"));
    assert_eq!((second.as_str(), third.as_str()), ("GET /2 0\n", "GET /3 0\n"));
    assert_eq!(open.hooks.count(ConnectionEvent::Opened), 1);
    assert_eq!(open.connections.in_flight(), 0);
}

#[tokio::test]
async fn a_connection_sends_goaway_after_its_last_request() {
    let (open, key) = secure(ListenerSettings { requests_per_connection: 2, ..ListenerSettings::default() }).await;
    let browser = browser(&open, &key);
    for path in ["/1", "/2"] {
        assert_eq!(get(&browser, &open, path).await, format!("GET {path} 0\n"));
    }
    soon(open.connections.wait_until_closed()).await;
    assert_eq!(get(&browser, &open, "/3").await, "GET /3 0\n");
    assert_eq!(open.hooks.count(ConnectionEvent::Opened), 2);
}

#[tokio::test]
async fn an_old_connection_and_one_at_shutdown_send_goaway() {
    let aged = ListenerSettings { connection_age: Duration::from_secs(1), ..ListenerSettings::default() };
    let (open, key) = secure(aged).await;
    let old_browser = browser(&open, &key);
    assert_eq!(get(&old_browser, &open, "/").await, "GET / 0\n");
    soon(open.connections.wait_until_closed()).await;

    let (open, key) = secure(ListenerSettings::default()).await;
    let browser = browser(&open, &key);
    assert_eq!(get(&browser, &open, "/").await, "GET / 0\n");
    open.shutdown.send(true).unwrap();
    soon(open.connections.wait_until_closed()).await;
    assert!(TcpStream::connect(open.address).await.is_err());
}

#[tokio::test]
async fn a_connection_without_requests_is_ended_and_one_with_a_request_in_progress_is_not() {
    let settings = ListenerSettings { h2_idle_timeout: Duration::from_millis(300), ..ListenerSettings::default() };
    let (open, key) = secure(settings).await;
    let (resting, busy) = (browser(&open, &key), browser(&open, &key));
    assert_eq!(get(&resting, &open, "/").await, "GET / 0\n");
    let (send, receive) = tokio::sync::mpsc::channel::<std::io::Result<bytes::Bytes>>(1);
    let body = futures_util::stream::unfold(receive, async |mut receive| Some((receive.recv().await?, receive)));
    let url = format!("https://a.example:{}/slow", open.address.port());
    let asking = tokio::spawn(busy.post(url).body(reqwest::Body::wrap_stream(body)).send());
    soon(open.hooks.happens(ConnectionEvent::Closed)).await;
    assert_eq!((open.hooks.count(ConnectionEvent::Closed), open.hooks.count(ConnectionEvent::Opened)), (1, 2));
    send.send(Ok(bytes::Bytes::from_static(b"hello"))).await.unwrap();
    drop(send);
    let answer = asking.await.unwrap().unwrap();
    assert!(answer.text().await.unwrap().starts_with("POST /slow "));
    soon(open.connections.wait_until_closed()).await;
}

#[tokio::test]
async fn a_removed_hosts_connections_are_closed() {
    let (open, key) = secure(ListenerSettings::default()).await;
    let browser = browser(&open, &key);
    assert_eq!(get(&browser, &open, "/").await, "GET / 0\n");
    assert_eq!(open.connections.close_where(|host| host.as_str() == "a.example"), 1);
    soon(open.connections.wait_until_closed()).await;
    assert_eq!(open.hooks.count(ConnectionEvent::Ended), 1);
}

#[tokio::test]
async fn an_idle_connection_gets_goaway_before_it_is_closed() {
    let settings = ListenerSettings { h2_idle_timeout: Duration::from_millis(50), ..ListenerSettings::default() };
    let (open, key) = secure(settings).await;
    let tcp = TcpStream::connect(open.address).await.unwrap();
    let mut stream = connect(&client(&key, &[b"h2"]), "a.example", tcp).await.unwrap();
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, &[])].concat();
    stream.write_all(&preface).await.unwrap();
    let mut kinds = Vec::new();
    loop {
        let mut head = [0; 9];
        soon(stream.read_exact(&mut head)).await.unwrap();
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.unwrap();
        kinds.push(head[3]);
        match head[3] {
            // The ping that tests whether the client received the first GOAWAY.
            6 => stream.write_all(&frame(6, 1, &payload)).await.unwrap(),
            7 if payload[..4] == [0; 4] => break,
            _ => {}
        }
    }
    let goaways: Vec<_> = kinds.iter().filter(|kind| **kind == 7).collect();
    assert_eq!(goaways.len(), 2, "{kinds:?}");
    assert_eq!(soon(stream.read(&mut [0; 1])).await.unwrap(), 0);
    soon(open.connections.wait_until_closed()).await;
}

/// Bytes that are in the kernel when the last response is written still reach a client that reads slowly and
/// acknowledges.
#[tokio::test]
async fn the_last_response_of_a_connection_arrives_whole() {
    let (open, key) = secure(ListenerSettings { requests_per_connection: 1, ..ListenerSettings::default() }).await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 * 1024).unwrap();
    let stream =
        connect(&client(&key, &[b"h2"]), "a.example", socket.connect(open.address).await.unwrap()).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 20);
    let (mut sender, connection) = builder.handshake::<_, bytes::Bytes>(stream).await.unwrap();
    let driven = tokio::spawn(connection);
    let request = http::Request::get("https://a.example/large").body(()).unwrap();
    let (response, _) = sender.send_request(request, true).unwrap();
    let (_, mut body) = soon(response).await.unwrap().into_parts();
    let mut came = 0;
    while let Some(piece) = soon(body.data()).await {
        came += piece.as_ref().unwrap().len();
        body.flow_control().release_capacity(piece.unwrap().len()).unwrap();
        // A client that reads slowly.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(came, 262_144);
    drop(sender);
    soon(driven).await.unwrap().unwrap();
    soon(open.connections.wait_until_closed()).await;
}

/// A frame of HTTP/2 on stream 0.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags, 0, 0, 0, 0], payload].concat()
}

/// Sends the preface and then `times` times the frames, as far as the listener reads them, without reading an answer.
async fn flood(open: &Open, key: &CertifiedKey, frames: &[u8], times: usize) {
    let tcp = TcpStream::connect(open.address).await.unwrap();
    let stream = connect(&client(key, &[b"h2"]), "a.example", tcp).await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let reading = tokio::spawn(async move { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await });
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, &[])].concat();
    writer.write_all(&preface).await.unwrap();
    let many = frames.repeat(100);
    for _ in 0..times.div_ceil(100) {
        if writer.write_all(&many).await.is_err() {
            break;
        }
    }
    // The listener ends the connection; neither task of this test does.
    let _end_or_reset = reading.await.unwrap();
}

#[tokio::test]
async fn a_flood_of_frames_that_do_no_work_ends_its_connection_and_no_other() {
    let (open, key) = secure(ListenerSettings::default()).await;
    let bystander = browser(&open, &key);
    assert_eq!(get(&bystander, &open, "/1").await, "GET /1 0\n");
    let floods =
        [("ping", 6, &[0; 8][..]), ("settings", 4, &[]), ("window update", 8, &[0, 0, 0, 1]), ("unknown", 77, &[])];
    for (number, (what, kind, payload)) in (1..).zip(floods) {
        soon(flood(&open, &key, &frame(kind, 0, payload), 100_000)).await;
        assert_eq!(open.hooks.count(ConnectionEvent::Flooded), number, "{what}");
    }
    assert_eq!(get(&bystander, &open, "/2").await, "GET /2 0\n");
    assert_eq!(open.hooks.count(ConnectionEvent::Opened), 5);
}
