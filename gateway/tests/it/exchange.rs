//! One exchange for both versions: clients, upstreams and logs see no difference between them. Bodies of requests have a table
//! of their own ([`crate::bodies`]).

use std::future::poll_fn;

use contract::site::RedirectStatus;

use crate::world::client::{Ask, Reply};
use crate::world::entities::{certificate, redirecting};
use crate::world::upstream::{Act, response};
use crate::world::{BLOG, DEMO, ORDERS, SHOP, World, eventually, within};

const WWW: &str = "www.shop.example";

#[tokio::test]
async fn what_the_gateway_says_itself_is_the_same_over_both_versions() {
    let world = World::start().await;
    world.control.put(certificate(WWW)).await;
    world.control.put(redirecting(WWW, "demo", Some((SHOP, Some(RedirectStatus::MovedPermanently))))).await;
    let key = format!("Bearer {}", world.key.text);
    for (ask, status) in [
        (Ask::get(DEMO, ORDERS), 401),
        (Ask::new("HEAD", DEMO, ORDERS), 401),
        (Ask::get(DEMO, ORDERS).field("Authorization", "Bearer x"), 401),
        (Ask::get(DEMO, "/nowhere").field("Authorization", &key), 404),
        (Ask::new("PUT", DEMO, ORDERS).field("Authorization", &key), 405),
        (
            Ask::new("OPTIONS", DEMO, ORDERS)
                .field("Origin", "https://a.example")
                .field("Access-Control-Request-Method", "GET"),
            204,
        ),
        (Ask::get(WWW, "/a?b=c"), 301),
        (Ask::get(SHOP, "/"), 401),
    ] {
        let host = ask.host.clone();
        let (mut old, new) = (world.tls(&host).await, world.h2(&host).await);
        let (given, other) = (old.ask(&ask).await, new.ask(&ask).await);
        assert_eq!(given.status, status, "{given:?}");
        assert_eq!((given.status, loose(&given), given.text()), (other.status, loose(&other), other.text()), "{ask:?}");
        let (line, second) = (world.log.line_of(given.request_id()).await, world.log.line_of(other.request_id()).await);
        let names = |line: &serde_json::Value| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&line), names(&second), "{line} {second}");
        for name in ["status", "code", "host", "path", "method", "surface", "bytes_sent", "project", "key_id", "tls"] {
            assert_eq!(line.get(name), second.get(name), "{name} of {line} and {second}");
        }
        // Both connections go on, also when a body of nothing was announced.
        let announced = ask.clone().field("Content-Length", "0");
        assert_eq!((old.ask(&announced).await.status, new.ask(&ask).await.status), (status, status));
    }
    world.assert_upstreams_untouched();
    world.end().await;
}

/// What an upstream is told, but for what differs from request to request.
pub(crate) fn told(head: &crate::world::wire::Head) -> (String, Vec<(String, String)>) {
    // Via names the client's version.
    let own =
        ["x-request-id", "traceparent", "tollhouse-identity", "tollhouse-identity-token", "content-length", "via"];
    let fields = head.fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    let mut fields: Vec<_> = fields.filter(|(name, _)| !own.contains(&name.as_str())).collect();
    fields.sort();
    (head.first_line.clone(), fields)
}

/// Fields without their order and spelling, which HTTP does not care about, and the coding of the body.
pub(crate) fn loose(reply: &Reply) -> Vec<(String, String)> {
    // The last three are of HTTP/1.1 alone.
    let own =
        ["x-request-id", "date", "x-ratelimit-remaining", "ratelimit", "connection", "keep-alive", "transfer-encoding"];
    let fields = reply.head.fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    let mut fields: Vec<_> = fields.filter(|(name, _)| !own.contains(&name.as_str())).collect();
    fields.sort();
    fields
}

/// Requests, and what the upstream does with them.
fn cases() -> Vec<(&'static str, Act)> {
    let answer = |text: &str| Act::Answer(text.as_bytes().to_vec());
    let and_close = |text: &str| Act::AnswerAndClose(text.as_bytes().to_vec());
    let chunks =
        "HTTP/1.1 200 OK\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[1\r\n2;x=y\r\n,2\r\n1\r\n]\r\n0\r\n\r\n";
    let forged = "X-RateLimit-Limit: 1\r\nServer: s\r\nX-Request-Id: mine\r\nConnection: x-own\r\nX-Own: 1\r\n\
        Access-Control-Allow-Origin: https://evil.example\r\nKeep-Alive: 5\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n";
    vec![
        ("GET", answer(&response("200 OK", "X-A: 1\r\nx-a: 2\r\n", "[]"))),
        ("GET", answer(&response("200 OK", forged, "[]"))),
        ("GET", answer(&response("201 Of Course", "", ""))),
        ("GET", answer("HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n")),
        ("GET", answer("HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n")),
        ("GET", answer(chunks)),
        ("GET", answer(&response("200 OK", "", &"x".repeat(300_000)))),
        ("GET", and_close("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nto the end")),
        ("GET", and_close("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold")),
        ("GET", and_close("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort")),
        ("GET", and_close("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n")),
        ("GET", Act::AnswerAndReset(Vec::new())),
        ("HEAD", answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")),
        ("DELETE", answer(&response("409 Conflict", "", "{}"))),
    ]
}

fn ask_for(world: &World, method: &str) -> Ask {
    let mut ask = world.list().field("X-Some", "1").field("x-some", "2").field("TE", "trailers");
    ask.method = method.to_owned();
    ask.target = if method == "DELETE" { format!("{ORDERS}/7") } else { format!("{ORDERS}?a=b&c=%20") };
    ask
}

/// Client, upstream and log saw the same.
pub(crate) async fn assert_alike(world: &World, what: &str, given: &Reply, expected: &Reply) {
    // How much of a response that breaks off arrives is a matter of time: over HTTP/2 a reset overtakes what waits.
    let seen = |reply: &Reply| (reply.status, reply.complete.then(|| reply.text().to_owned()));
    assert_eq!(seen(given), seen(expected), "{what}");
    assert_eq!(loose(given), loose(expected), "{what}");
    let requests = world.orders.requests();
    let [.., first, second] = requests.as_slice() else { panic!("{what}: {requests:?}") };
    assert_eq!(told(&first.head), told(&second.head), "{what}");
    let (line, other) = (world.log.line_of(given.request_id()).await, world.log.line_of(expected.request_id()).await);
    let names = |line: &serde_json::Value| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&line), names(&other), "{what}: {line} {other}");
    let whole = if given.complete { ["bytes_sent"].as_slice() } else { &[] };
    for name in ["status", "code", "path", "method", "upstream", "attempts", "error"].iter().chain(whole) {
        assert_eq!(line.get(name), other.get(name), "{what}: {name} of {line} and {other}");
    }
}

#[tokio::test]
async fn what_is_forwarded_is_the_same_over_both_versions() {
    let world = World::start().await;
    let (client, mut old) = (world.h2(DEMO).await, world.tls(DEMO).await);
    for (number, (method, act)) in cases().into_iter().enumerate() {
        let what = format!("case {number}, {method}");
        let ask = ask_for(&world, method);
        world.orders.next(act.clone());
        let given = client.try_ask(&ask).await.unwrap();
        world.orders.next(act);
        let Some(expected) = old.try_ask(&ask).await else { panic!("{what}: no reply") };
        assert_alike(&world, &what, &given, &expected).await;
        // The upstream's version is its own (RFC 9110 section 6.2).
        assert!(expected.head.first_line.starts_with("HTTP/1.1 "), "{what}");
        if !expected.complete || expected.header("connection") == Some("close") {
            old = world.tls(DEMO).await;
        }
    }
    drop(client);
    world.end().await;
}

/// A client that says how long its body is, and one that does not.
#[tokio::test]
async fn over_http2_bodies_arrive_as_they_were_sent() {
    let world = World::start().await;
    let client = world.h2(BLOG).await;
    let large = "0123456789".repeat(60_000);
    for body in ["x", &large] {
        let mut ask = Ask::new("POST", BLOG, "/a").body(body);
        assert_eq!(client.ask(&ask).await.status, 200);
        ask.fields.clear();
        assert_eq!(client.ask(&ask).await.status, 200);
        let requests = world.blog.requests();
        let [.., measured, unmeasured] = requests.as_slice() else { panic!("{requests:?}") };
        for (request, length, coding) in
            [(measured, Some(body.len().to_string()), None), (unmeasured, None, Some("chunked"))]
        {
            assert!(request.complete && request.body == body.as_bytes(), "{}", request.raw_head);
            assert_eq!(request.head.get("content-length"), length.as_deref());
            assert_eq!(request.head.get("transfer-encoding"), coding);
        }
    }
    assert_eq!(world.blog.connections(), 1, "one after the other they share a connection");
    drop(client);
    world.end().await;
}

#[tokio::test]
async fn over_http2_a_body_that_becomes_too_large_is_413() {
    let world = World::start().await;
    let client = world.h2(DEMO).await;
    let mut ask = Ask::new("POST", DEMO, "/v2/orders").key(&world.key.text);
    ask.body = vec![b'x'; 101];
    client.ask(&ask).await.refused(413, "body_too_large");
    ask.body.pop();
    assert_eq!(client.ask(&ask).await.status, 200);
    let complete: Vec<_> = world.orders.requests().into_iter().filter(|request| request.complete).collect();
    assert_eq!(complete.len(), 1, "{complete:?}");
    assert_eq!(complete[0].body.len(), 100);
}

/// What is left of the body goes nowhere, and the connection with half a request in it serves nobody else.
#[tokio::test]
async fn over_http2_an_answer_before_the_body_was_read_is_the_answer() {
    let world = World::start().await;
    let client = world.h2(BLOG).await;
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n0\r\n\r\n".to_owned();
    for early in [response("200 OK", "", "early"), chunked] {
        world.blog.next(Act::AnswerBeforeBody(early.into_bytes()));
        let (response, mut body) = client.begin(&Ask::new("POST", BLOG, "/early")).await;
        body.send_data("half".into(), false).unwrap();
        let mut answer = within(response).await.expect("an answer");
        let mut text = Vec::new();
        while let Some(piece) = within(answer.body_mut().data()).await {
            text.extend_from_slice(&piece.expect("it ends, and is not cut"));
        }
        assert_eq!(text, b"early");
        body.send_data("the other half".into(), true).expect("no reset: that would cost some their answer");
    }
    assert_eq!(client.ask(&Ask::get(BLOG, "/next")).await.status, 200);
    world.blog.asked(3).await;
    let requests = world.blog.requests();
    assert!(requests.iter().all(|request| request.complete == (request.head.first_line == "GET /next HTTP/1.1")));
    assert_eq!(world.blog.connections(), 3);
}

#[tokio::test]
async fn over_http2_a_client_that_leaves_in_its_body_takes_its_request_with_it() {
    let world = World::start().await;
    let client = world.h2(BLOG).await;
    let (response, mut body) = client.begin(&Ask::new("POST", BLOG, "/half")).await;
    body.send_data("half".into(), false).unwrap();
    eventually("the upstream is asked", async || (world.blog.heads() == 1).then_some(())).await;
    body.send_reset(h2::Reason::CANCEL);
    within(response).await.unwrap_err();
    world.blog.asked(1).await;
    assert!(!world.blog.only_request().complete);
    assert_eq!(client.ask(&Ask::get(BLOG, "/next")).await.status, 200);
    drop(client);
    world.end().await;
}

#[tokio::test]
async fn over_http2_a_client_that_waits_for_permission_gets_it_from_us_alone() {
    let world = World::start().await;
    let client = world.h2(BLOG).await;
    let ask = Ask::new("POST", BLOG, "/").field("Expect", "100-continue").field("Content-Length", "5");
    let (mut response, mut body) = client.begin(&ask).await;
    let permission = within(poll_fn(|cx| response.poll_informational(cx))).await.unwrap().unwrap();
    assert_eq!((permission.status(), permission.headers().len()), (http::StatusCode::CONTINUE, 0));
    body.send_data("12345".into(), true).unwrap();
    assert_eq!(within(response).await.unwrap().status(), 200);
    let request = world.blog.only_request();
    assert_eq!((request.body.as_slice(), request.head.get("expect")), (&b"12345"[..], None));
}

#[tokio::test]
async fn over_http2_interim_responses_go_on() {
    let world = World::start().await;
    let client = world.h2(BLOG).await;
    let text = format!("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n{}", response("200 OK", "", "[]"));
    world.blog.next(Act::Answer(text.into_bytes()));
    let (mut response, mut body) = client.begin(&Ask::get(BLOG, "/")).await;
    body.send_data(bytes::Bytes::new(), true).unwrap();
    let hint = within(poll_fn(|cx| response.poll_informational(cx))).await.unwrap().unwrap();
    assert_eq!((hint.status().as_u16(), hint.headers()["link"].to_str().unwrap()), (103, "</x>"));
    assert_eq!(within(response).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_connection_to_an_upstream_serves_many_requests_and_one_that_died_none() {
    let world = World::start().await;
    let mut client = world.tls(BLOG).await;
    for _ in 0..5 {
        assert_eq!(client.ask(&Ask::get(BLOG, "/")).await.status, 200);
    }
    assert_eq!(world.blog.connections(), 1);
    world.blog.next(Act::AnswerAndClose(response("200 OK", "", "bye").into_bytes()));
    for _ in 0..5 {
        assert_eq!(client.ask(&Ask::get(BLOG, "/")).await.status, 200);
    }
    assert_eq!(world.blog.connections(), 2, "the next one is opened when the first has said that it is gone");
    // What comes behind a response belongs to nobody.
    let more = format!("{}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", response("200 OK", "", "good"));
    world.blog.next(Act::Answer(more.into_bytes()));
    assert_eq!(client.ask(&Ask::get(BLOG, "/")).await.text(), "good");
    assert_ne!(client.ask(&Ask::get(BLOG, "/")).await.text(), "poison");
}

#[tokio::test]
async fn an_upstream_whose_client_has_left_is_left_as_well() {
    let world = World::start().await;
    world.blog.next(Act::Hang);
    let mut client = world.tls(BLOG).await;
    client.send(Ask::get(BLOG, "/").to_bytes()).await;
    world.blog.asked(1).await;
    client.wire.close().await;
    world.blog.left(1).await;
    world.end().await;
}

/// The door takes a list for no request for a WebSocket, so the upstream is not asked to switch and must not.
#[tokio::test]
async fn a_switch_of_protocols_that_the_upstream_was_not_asked_for_is_502() {
    let world = World::start().await;
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    world.blog.next(Act::Answer(switched.as_bytes().to_vec()));
    let ask = Ask::get(BLOG, "/").field("Connection", "upgrade").field("Upgrade", "websocket, x");
    let reply = world.tls(BLOG).await.ask(&ask).await;
    reply.refused(502, "upstream_invalid");
    assert_eq!(world.blog.only_request().head.get("upgrade"), None);
}
