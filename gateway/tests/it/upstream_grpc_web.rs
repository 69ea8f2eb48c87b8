//! gRPC-Web as web pages send it, translated for grpcio and for a server of our own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::upstream_grpc::server;
use crate::world::client::{Ask, Reply, status_of};
use crate::world::h2_upstream::{H2Upstream, send};
use crate::world::{BLOG, World, within};

async fn world(to: &str, lines: &'static str) -> World {
    World::with(|setup| {
        setup.blog_urls = vec![format!("h2c://{to}")];
        setup.blog = lines;
    })
    .await
}

/// A frame: a flag, the length, and the contents.
fn frame(flag: u8, held: &[u8]) -> Vec<u8> {
    [&[flag], &u32::try_from(held.len()).unwrap().to_be_bytes()[..], held].concat()
}

/// The frames of a body: the messages, and the fields of the trailers.
fn frames(mut body: &[u8]) -> (Vec<Vec<u8>>, Vec<(String, String)>) {
    let (mut messages, mut trailers) = (Vec::new(), Vec::new());
    while !body.is_empty() {
        let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
        let held = &body[5..5 + length];
        if body[0] == 0x80 {
            let lines = std::str::from_utf8(held).unwrap();
            assert!(lines.ends_with("\r\n") && trailers.is_empty(), "{lines:?}");
            let fields = lines.lines().map(|line| line.split_once(": ").unwrap());
            trailers = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        } else {
            assert!(trailers.is_empty(), "the trailers are last");
            messages.push(held.to_vec());
        }
        body = &body[5 + length..];
    }
    (messages, trailers)
}

/// The bytes of a body in base64, in which every group may be padded.
fn plain(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(4).flat_map(|group| STANDARD.decode(group).unwrap()).collect()
}

/// A call with this body, in either form.
fn call(method: &str, is_text: bool, body: &[u8]) -> Ask {
    let (kind, body) = if is_text {
        ("application/grpc-web-text+proto", STANDARD.encode(body).into_bytes())
    } else {
        ("application/grpc-web+proto", body.to_vec())
    };
    let mut ask = Ask::new("POST", BLOG, &format!("/test.Echo/{method}")).field("Content-Type", kind);
    ask = ask.field("X-Grpc-Web", "1").field("Content-Length", &body.len().to_string());
    ask.body = body;
    ask
}

/// The messages and the trailers of a reply in this form.
fn read(reply: &Reply, is_text: bool) -> (Vec<Vec<u8>>, Vec<(String, String)>) {
    let kind = if is_text { "application/grpc-web-text" } else { "application/grpc-web" };
    let found = reply.header("content-type").unwrap_or_default();
    assert!(reply.status == 200 && [kind, &format!("{kind}+proto")].contains(&found), "{reply:?}");
    if is_text { frames(&plain(reply.text())) } else { frames(&reply.body) }
}

fn field<'a>(trailers: &'a [(String, String)], reply: &'a Reply, name: &str) -> Option<&'a str> {
    let found = trailers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    // Without a message, the status may be in the head.
    found.or_else(|| reply.header(name))
}

#[tokio::test]
async fn calls_of_web_pages_reach_a_third_party_grpc_server_over_both_versions() {
    let (server, port) = server().await;
    let world = world(&format!("127.0.0.1:{port}"), "grpc_web = true").await;
    let client = world.h2(BLOG).await;
    for is_text in [false, true] {
        for over_h2 in [false, true] {
            let ask = async |ask: Ask| if over_h2 { client.ask(&ask).await } else { world.ask(ask).await };
            let reply = ask(call("Unary", is_text, &frame(0, b"text"))).await;
            let (messages, trailers) = read(&reply, is_text);
            assert_eq!(messages, [b"text"], "{is_text} {over_h2}");
            let of_reply = |name| field(&trailers, &reply, name);
            assert_eq!((of_reply("grpc-status"), of_reply("x-sum")), (Some("0"), Some("4")), "{trailers:?}");
            assert_eq!(world.log.line_of(reply.request_id()).await["grpc_status"], 0);

            let large = vec![b'x'; 300_001];
            let reply = ask(call("Unary", is_text, &frame(0, &large))).await;
            assert_eq!(read(&reply, is_text).0, [large]);

            let reply = ask(call("FromServer", is_text, &frame(0, b"100"))).await;
            let expected: Vec<_> = (0..100).map(|number| number.to_string().into_bytes()).collect();
            assert_eq!(read(&reply, is_text).0, expected);

            let reply = ask(call("Unary", is_text, &frame(0, b"fail"))).await;
            let (messages, trailers) = read(&reply, is_text);
            let of_reply = |name| field(&trailers, &reply, name);
            assert_eq!((messages.len(), of_reply("grpc-status"), of_reply("x-why")), (0, Some("9"), Some("asked for")));
        }
    }
    drop(client);
    drop(server);
    world.end().await;
}

#[tokio::test]
async fn a_response_that_breaks_off_has_a_status_only_between_messages() {
    let (upstream, mut taken) = H2Upstream::taken().await;
    let world = world(&upstream.address.to_string(), "grpc_web = true").await;
    let message = frame(0, b"reply");
    for (sent, is_whole) in [(&message[..], true), (&message[..7], false)] {
        let mut client = world.tls(BLOG).await;
        client.send(call("Unary", false, &frame(0, b"x")).field("Connection", "close").to_bytes()).await;
        let mut asked = within(taken.recv()).await.unwrap();
        let mut answer = asked.begin(200, &[("content-type", "application/grpc")], false);
        send(&mut answer, Bytes::copy_from_slice(sent), false).await.unwrap();
        assert_eq!(status_of(&client.head().await), 200);
        let chunk = [format!("{:x}\r\n", sent.len()).as_bytes(), sent].concat();
        assert_eq!(within(client.wire.exactly(chunk.len())).await, chunk);
        answer.send_reset(h2::Reason::INTERNAL_ERROR);
        let rest = String::from_utf8_lossy(&client.rest().await).into_owned();
        let (has_status, has_end) = (rest.contains("grpc-status: 14\r\n"), rest.ends_with("\r\n0\r\n\r\n"));
        assert_eq!((has_status, has_end), (is_whole, is_whole), "{rest:?}");
    }
    world.end().await;
}

/// A refusal as gRPC-Web libraries read it: they reject other content types before they look at the HTTP status.
fn refused(reply: &Reply, kind: &str, status: &str) {
    let found = ["content-type", "grpc-status", "content-length"].map(|name| reply.header(name).unwrap_or_default());
    assert_eq!((reply.status, found, reply.text()), (200, [kind, status, "0"], ""), "{reply:?}");
    assert!(reply.header("grpc-message").is_some_and(|message| !message.is_empty()), "{reply:?}");
}

#[tokio::test]
async fn refusals_of_the_gateway_have_a_status_of_grpc() {
    let (upstream, mut taken) = H2Upstream::taken().await;
    let world = world(&upstream.address.to_string(), "grpc_web = true\nfirst_byte_timeout = \"10s\"").await;
    // The caller's time is over.
    let ask = call("Unary", false, &frame(0, b"x")).field("grpc-timeout", "30m");
    refused(&world.ask(ask).await, "application/grpc-web", "4");
    drop(within(taken.recv()).await);
    // The body is no base64.
    for body in ["AAAA*AAA", "AAAAA", "AA=A"] {
        let mut ask = call("Unary", true, b"");
        ask.fields.retain(|(name, _)| name != "Content-Length");
        refused(&world.ask(ask.body(body)).await, "application/grpc-web-text", "3");
    }
    // Before an upstream is known, over both versions.
    let mut ask = call("Unary", false, &frame(0, b"x"));
    ask.host = crate::world::DEMO.to_owned();
    refused(&world.ask(ask.clone()).await, "application/grpc-web", "16");
    let client = world.h2(crate::world::DEMO).await;
    refused(&client.ask(&ask).await, "application/grpc-web", "16");
    drop((client, upstream));
    world.end().await;
}

#[tokio::test]
async fn without_the_setting_a_call_is_forwarded_unchanged() {
    let upstream = H2Upstream::start(100, |mut asked| async move {
        let kind = asked.head.headers["content-type"].to_str().unwrap().to_owned();
        let body = asked.read().await;
        asked.answer(&[("content-type", &kind)], body).await;
    })
    .await;
    let world = world(&upstream.address.to_string(), "").await;
    let reply = world.ask(call("Unary", true, &frame(0, b"text"))).await;
    assert_eq!(reply.header("content-type"), Some("application/grpc-web-text+proto"));
    assert_eq!(plain(reply.text()), frame(0, b"text"));
    world.end().await;
}
