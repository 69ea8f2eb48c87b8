//! Requests with bodies, each sent over HTTP/1.1 and over HTTP/2, to upstreams of either version: the client gets the
//! same response, the upstream the same request, and the log the same line.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;

use crate::exchange::{REFUSAL, expected_fields, forwarded_head, loose};
use crate::world::client::{Ask, Client, Reply, status_of};
use crate::world::upstream::{Act, response};
use crate::world::{BLOG, DEMO, World, eventually, h2, within};

/// How a client declares the end of its body, and how it ends it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// With its length.
    Length,
    /// In chunks; over HTTP/2 without a length.
    Unknown,
    /// In chunks, with trailers.
    Trailers,
    /// With its length and `Expect: 100-continue`.
    Asking,
    /// It declares more than it sends, and waits for the response.
    Unfinished,
    /// It declares more than it sends, and disconnects.
    Leaving,
}

struct Case {
    what: &'static str,
    way: Way,
    pieces: Vec<Bytes>,
    pause: Duration,
    act: Act,
    /// The client's status; `None` after it disconnected.
    status: Option<u16>,
}

fn cases() -> Vec<Case> {
    let answer = || Act::Answer(response("201 Created", "X-A: 1\r\n", "made").into_bytes());
    let early = |status: &str| response(status, "", "early").into_bytes();
    let slow = Duration::from_millis(40);
    let large = Bytes::from("0123456789abcdef".repeat(40_000));
    let case = |what, way, pieces: &[&'static str], pause, act, status| {
        let pieces = pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
        Case { what, way, pieces, pause, act, status }
    };
    let none = Duration::ZERO;
    vec![
        case("a length", Way::Length, &["hello"], none, answer(), Some(201)),
        case("chunks", Way::Unknown, &["hello", "world"], none, answer(), Some(201)),
        case("no chunk", Way::Unknown, &[], none, answer(), Some(201)),
        case("trailers", Way::Trailers, &["hello"], none, answer(), Some(201)),
        case("asked for", Way::Asking, &["hello"], none, answer(), Some(201)),
        case("in pieces", Way::Length, &["a", "b", "c", "d", "e", "f"], slow, answer(), Some(201)),
        case("in chunks of a byte", Way::Unknown, &["a", "b", "c", "d", "e", "f"], slow, answer(), Some(201)),
        case("with a pause", Way::Length, &["hello", "world"], Duration::from_millis(600), answer(), Some(201)),
        Case {
            what: "large",
            way: Way::Length,
            pieces: vec![large.clone()],
            pause: none,
            act: answer(),
            status: Some(201),
        },
        Case {
            what: "large chunks",
            way: Way::Unknown,
            pieces: vec![large; 2],
            pause: none,
            act: answer(),
            status: Some(201),
        },
        case("an early response", Way::Unfinished, &["half"], none, Act::AnswerBeforeBody(early("200 OK")), Some(200)),
        case(
            "an early 413 of the upstream, which closes",
            Way::Unfinished,
            &["half"],
            none,
            Act::AnswerBeforeBodyAndClose(early("413 Too Much")),
            Some(413),
        ),
        case("a response that breaks off", Way::Length, &["x"], none, Act::AnswerAndReset(b"HT".to_vec()), Some(502)),
        case("abandoned", Way::Leaving, &["half"], slow, answer(), None),
    ]
}

fn ask(case: &Case, over_h2: bool) -> Ask {
    let length: usize = case.pieces.iter().map(Bytes::len).sum();
    let ask = Ask::new("POST", BLOG, "/body?a=b").field("Content-Type", "text/plain");
    match case.way {
        Way::Length => ask.field("Content-Length", &length.to_string()),
        Way::Asking => ask.field("Content-Length", &length.to_string()).field("Expect", "100-continue"),
        Way::Unfinished | Way::Leaving => ask.field("Content-Length", &(length + 1_000).to_string()),
        Way::Unknown | Way::Trailers if over_h2 => ask,
        Way::Unknown | Way::Trailers => ask.field("Transfer-Encoding", "chunked"),
    }
}

async fn over_h1(world: &World, case: &Case) -> Option<Reply> {
    let mut client: Client = world.tls(BLOG).await;
    client.send(ask(case, false).to_bytes()).await;
    if case.way == Way::Asking {
        assert_eq!(status_of(&client.head().await), 100);
    }
    let chunked = matches!(case.way, Way::Unknown | Way::Trailers);
    for piece in &case.pieces {
        // The case is about this pause of the client.
        tokio::time::sleep(case.pause).await;
        if chunked {
            client.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()).await;
        } else {
            client.send(piece).await;
        }
    }
    match case.way {
        Way::Unknown => client.send("0\r\n\r\n").await,
        Way::Trailers => client.send("0\r\nX-Sum: 1\r\n\r\n").await,
        Way::Leaving => {
            eventually("the upstream is asked", async || (world.blog.heads() > 0).then_some(())).await;
            drop(client);
            return None;
        }
        _ => {}
    }
    let reply = client.reply("POST").await.expect("a response");
    let closes = reply.header("connection") == Some("close");
    assert_eq!(closes, case.way == Way::Unfinished, "{}: {reply:?}", case.what);
    if closes {
        // The gateway reads a client that keeps sending, which sees an end and no reset.
        client.send("more").await;
        assert_eq!(client.rest().await, b"");
    } else if reply.complete {
        assert_eq!(client.ask(&Ask::get(BLOG, "/next")).await.status, 200, "{}: the connection stays open", case.what);
    }
    Some(reply)
}

async fn over_h2(world: &World, case: &Case) -> Option<Reply> {
    let client = world.h2(BLOG).await;
    let (mut response, mut body) = client.begin(&ask(case, true)).await;
    if case.way == Way::Asking {
        let permission = std::future::poll_fn(|cx| response.poll_informational(cx));
        assert_eq!(within(permission).await.unwrap().unwrap().status(), 100);
    }
    let last = case.pieces.len().saturating_sub(1);
    for (number, piece) in case.pieces.iter().enumerate() {
        // The case is about this pause of the client.
        tokio::time::sleep(case.pause).await;
        let ends = number == last && matches!(case.way, Way::Length | Way::Unknown | Way::Asking);
        body.send_data(piece.clone(), ends).unwrap();
    }
    match case.way {
        Way::Unknown if case.pieces.is_empty() => body.send_data(Bytes::new(), true).unwrap(),
        Way::Trailers => {
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-sum", http::HeaderValue::from_static("1"));
            body.send_trailers(trailers).unwrap();
        }
        Way::Leaving => {
            eventually("the upstream is asked", async || (world.blog.heads() > 0).then_some(())).await;
            body.send_reset(::h2::Reason::CANCEL);
            drop(within(response).await);
            return None;
        }
        _ => {}
    }
    let reply = within(h2::read(response)).await;
    assert_eq!(client.ask(&Ask::get(BLOG, "/next")).await.status, 200, "{}: the connection stays open", case.what);
    Some(reply)
}

/// The expected response for this status: status, fields and body.
fn expected(status: u16) -> (u16, Vec<(String, String)>, String) {
    let invalid = r#"{"code":"upstream_invalid","message":"The service behind this site sent an invalid response.","status":502}"#;
    let (fields, body) = match status {
        201 => ("content-length: 4\n x-a: 1", "made"),
        502 => ("content-length: 107\n retry-after: 1", invalid),
        _ => ("content-length: 5", "early"),
    };
    let refusal = if status == 502 { REFUSAL } else { "" };
    (status, expected_fields(&[fields, refusal]), body.to_owned())
}

/// A field of a log line. A field that no line has is a mistake of the test.
fn logged(line: &Value, name: &str) -> Value {
    let of_refusals = ["code", "blame"].contains(&name) && line["status"].as_u64().is_some_and(|status| status < 500);
    line.get(name).cloned().unwrap_or_else(|| {
        assert!(of_refusals, "a log line has no field {name}: {line}");
        Value::Null
    })
}

/// A request as client, upstream and log saw it.
type Seen = (Option<(u16, Vec<(String, String)>, String)>, (String, Vec<(String, String)>), Vec<u8>, bool, Value);

async fn seen(world: &World, case: &Case, reply: Option<Reply>) -> Seen {
    world.blog.asked(1).await;
    let request =
        world.blog.requests().into_iter().find(|one| one.head.first_line.contains("/body")).expect("a request");
    let line = world.log.line_of(request.head.get("x-request-id").expect("an id")).await;
    let same =
        ["status", "code", "blame", "path", "method", "surface", "upstream", "attempts", "bytes_in", "bytes_out"];
    let told_log = same.iter().map(|name| ((*name).to_owned(), logged(&line, name))).collect();
    let (first_line, mut fields) = forwarded_head(&request.head);
    fields.retain(|(name, _)| name != "x-forwarded-port");
    let lengths = request.head.get("content-length").map(str::to_owned);
    fields.push(("length".to_owned(), lengths.unwrap_or_default()));
    let reply = reply.map(|reply| (reply.status, loose(&reply), reply.text().to_owned()));
    assert_eq!(reply, case.status.map(expected), "{}: {line}", case.what);
    let (mut body, mut told_log): (_, Value) = (request.body, told_log);
    if matches!(case.way, Way::Unfinished | Way::Leaving) {
        // How much of it went up before it ended is a matter of time.
        body.clear();
        told_log["bytes_in"] = Value::Null;
    }
    (reply, (first_line, fields), body, request.complete, told_log)
}

#[tokio::test]
async fn bodies_are_the_same_over_both_versions() {
    for case in cases() {
        let mut all = Vec::new();
        for (client_h2, upstream_h2) in [(false, false), (true, false), (false, true), (true, true)] {
            let world = World::with(|setup| {
                setup.blog = "first_byte_timeout = \"300ms\"";
                setup.upstreams_of_http2 = upstream_h2;
            })
            .await;
            world.blog.next(case.act.clone());
            let reply = if client_h2 { over_h2(&world, &case).await } else { over_h1(&world, &case).await };
            let mut seen = seen(&world, &case, reply).await;
            // HTTP/1.1 alone has chunks.
            seen.1.1.retain(|(name, _)| name != "transfer-encoding");
            all.push(seen);
            world.end().await;
        }
        let [first, others @ ..] = all.as_slice() else { unreachable!() };
        for (number, other) in others.iter().enumerate() {
            assert_eq!(first, other, "{}, combination {}", case.what, number + 1);
        }
        if matches!(case.way, Way::Length | Way::Unknown | Way::Trailers | Way::Asking) {
            assert_eq!((&first.2, first.3), (&case.pieces.concat(), true), "{}", case.what);
        }
        assert!(case.way != Way::Leaving || !first.3, "never a whole request");
    }
}

/// Most clients send all of a body before they read.
#[tokio::test]
async fn a_refusal_reaches_a_client_that_sends_all_of_its_body_first() {
    let world = World::start().await;
    let body = vec![b'x'; 20_000_000];
    let ask = Ask::new("POST", DEMO, "/v2/orders").field("Content-Length", &body.len().to_string());
    let cases = [(ask.clone(), 401, "missing_api_key"), (ask.key(&world.key.text), 413, "body_too_large")];
    for (ask, status, code) in cases {
        let mut client = world.tls(DEMO).await;
        client.send(ask.to_bytes()).await;
        client.send(&body).await;
        let reply = client.reply("POST").await.expect("an answer");
        reply.refused(status, code);
        assert_eq!(reply.header("connection"), Some("close"));
        assert_eq!(client.rest().await, b"");
    }
    world.assert_upstreams_untouched();
}

/// A small body arrives with its head, so a refusal leaves the connection usable.
#[tokio::test]
async fn a_refusal_of_a_complete_request_leaves_its_connection_open() {
    let world = World::start().await;
    let mut client = world.tls(DEMO).await;
    for _ in 0..3 {
        let reply = client.ask(&Ask::new("POST", DEMO, "/v2/orders").body("{}")).await;
        reply.refused(401, "missing_api_key");
        assert_eq!(reply.header("connection"), Some("keep-alive"));
    }
}

/// Flushed bytes of an upstream are sent at once, with any method and any framing of the response.
#[tokio::test]
async fn the_response_to_a_post_is_streamed() {
    let world = World::start().await;
    let pieces = [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
    ];
    for (first, second) in pieces.into_iter().zip(["other", "5\r\nother\r\n0\r\n\r\n"]) {
        let gate = Arc::new(Semaphore::new(0));
        world.blog.next(Act::AnswerInTwo(first.into(), gate.clone(), second.into()));
        let mut client = world.tls(BLOG).await;
        client.send(Ask::new("POST", BLOG, "/").body("hello").to_bytes()).await;
        let head = client.head().await;
        let come = if head.get("content-length").is_some() { "first" } else { "5\r\nfirst" };
        assert_eq!(within(client.wire.exactly(come.len())).await, come.as_bytes());
        gate.add_permits(1);
        let rest = if head.get("content-length").is_some() { "other" } else { "\r\n5\r\nother\r\n0\r\n\r\n" };
        assert_eq!(within(client.wire.exactly(rest.len())).await, rest.as_bytes());
    }
}

/// Neither side waits for the other: megabytes go up and come back before the last of them was sent.
#[tokio::test]
async fn a_websocket_carries_megabytes_both_ways_at_once() {
    let world = World::start().await;
    world.blog.next(Act::Echo);
    let mut client = world.tls(BLOG).await;
    let ask = Ask::get(BLOG, "/").field("Connection", "Upgrade").field("Upgrade", "websocket");
    client.send(ask.to_bytes()).await;
    assert_eq!(status_of(&client.head().await), 101);
    let sent = Bytes::from("0123456789abcdef".repeat(500_000));
    let (socket, held) = client.wire.into_parts();
    assert!(held.is_empty());
    let (mut reading, mut writing) = tokio::io::split(socket);
    let all = sent.clone();
    let sending = tokio::spawn(async move {
        writing.write_all(&all).await.unwrap();
        writing.flush().await.unwrap();
        writing
    });
    let mut came = vec![0; sent.len()];
    within(reading.read_exact(&mut came)).await.unwrap();
    assert!(came == sent, "the response body equals the request body");
    drop(sending.await.unwrap());
}
