//! Valid messages pass unchanged: one table over both versions, and clients that do unusual but valid things.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

use crate::world::client::{Ask, Client, Reply};
use crate::world::upstream::{Act, Received, response};
use crate::world::{BLOG, DEMO, ORDERS, World, within};

/// A local port that refuses connections: it is bound, so no other process gets it, and does not listen.
struct ClosedPort(TcpSocket);

impl ClosedPort {
    fn take() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        Self(socket)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

/// Sends one request over a version; returns the client's reply, and the request at the site's upstream.
async fn over(world: &World, h2: bool, ask: &Ask) -> (Reply, Option<Received>) {
    let before = world.blog.requests().len();
    let reply = if h2 { world.h2(BLOG).await.ask(ask).await } else { world.ask(ask.clone()).await };
    (reply, world.blog.requests().get(before).cloned())
}

#[tokio::test]
async fn requests_of_browsers_and_libraries_pass_over_both_versions() {
    let world = World::start().await;
    let targets = [
        "/?q=100%",
        "/?utm=50%off",
        "/?q=%u00fc",
        "/?q=a\\b",
        "/?q=%",
        "/?a=[1]&b={2}",
        "/?a|b^c`d",
        "/a//b",
        "/a;b=c",
        "/%7Euser",
        "/a?b?c",
        "/?",
        "/%e2%82%ac",
        "/a'b(c)*d!",
    ];
    for h2 in [false, true] {
        for target in targets {
            let (reply, got) = over(&world, h2, &Ask::get(BLOG, target)).await;
            assert_eq!(reply.status, 200, "{target} over HTTP/2: {h2}");
            let line = got.expect("it is asked").head.first_line;
            assert_eq!(line, format!("GET {target} HTTP/1.1"), "as it was sent");
        }
        for (name, value) in [
            ("x-empty", ""),
            ("te", "trailers"),
            ("accept", "text/html;q=0.9,*/*;q=0.8"),
            ("cookie", "a=b; c=\"d e\""),
            ("x-user_name", "1"),
        ] {
            let ask = Ask::new("POST", BLOG, "/").field(name, value).body("hello");
            let (reply, got) = over(&world, h2, &ask).await;
            assert_eq!(reply.status, 200, "{name}: {value} over HTTP/2: {h2}");
            assert_eq!(got.expect("it is asked").body, b"hello", "{name}");
        }
        for method in ["PROPFIND", "REPORT", "QUERY", "PURGE", "M-SEARCH"] {
            assert_eq!(over(&world, h2, &Ask::new(method, BLOG, "/")).await.0.status, 200, "{method}");
        }
        // An empty upload as boto3 announces it, and one with a body and an unusual spelling of the field.
        let nothing = Ask::new("PUT", BLOG, "/").field("expect", "100-continue").field("content-length", "0");
        assert_eq!(over(&world, h2, &nothing).await.0.status, 200);
    }
    let mut client = world.tls(BLOG).await;
    let ask = Ask::new("POST", BLOG, "/").field("Expect", "100-Continue").body("hello");
    client.send(ask.to_bytes()).await;
    assert_eq!(client.head().await.first_line, "HTTP/1.1 100 Continue");
    assert_eq!(client.reply("POST").await.unwrap().status, 200);
}

#[tokio::test]
async fn one_empty_line_before_a_request_is_skipped() {
    let world = World::start().await;
    let mut client = world.tls(BLOG).await;
    for _ in 0..2 {
        client.send([b"\r\n", &Ask::get(BLOG, "/").to_bytes()[..]].concat()).await;
        assert_eq!(client.reply("GET").await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_field_with_an_underscore_is_dropped_passed_or_refused_by_setting() {
    for (setting, name, expected) in [
        ("", "client_id", None),
        ("underscores = \"drop\"", "client_id", None),
        ("underscores = \"pass\"", "client_id", Some("7")),
        ("underscores = \"pass\"", "x_forwarded_for", None),
        ("underscores = \"pass\"", "tollhouse_identity", None),
    ] {
        let world = World::with(|setup| setup.blog = setting).await;
        for h2 in [false, true] {
            let (reply, got) = over(&world, h2, &Ask::get(BLOG, "/").field(name, "7")).await;
            assert_eq!(reply.status, 200, "{setting}");
            assert_eq!(got.expect("it is asked").head.get(name), expected, "{setting} {name} over HTTP/2: {h2}");
        }
        world.end().await;
    }
    let world = World::with(|setup| setup.blog = "underscores = \"refuse\"").await;
    for h2 in [false, true] {
        let (reply, got) = over(&world, h2, &Ask::get(BLOG, "/").field("client_id", "7")).await;
        reply.refused(400, "underscore_header");
        assert!(got.is_none());
    }
}

#[tokio::test]
async fn a_forwarded_request_names_the_gateway_in_via() {
    let world = World::start().await;
    for (h2, theirs, expected) in [
        (false, None, &["1.1 tollhouse"][..]),
        (true, None, &["2.0 tollhouse"]),
        (false, Some("1.0 fred, 1.1 cache (x)"), &["1.0 fred, 1.1 cache (x)", "1.1 tollhouse"]),
    ] {
        let ask = Ask::get(BLOG, "/");
        let ask = theirs.map_or(ask.clone(), |theirs| ask.field("Via", theirs));
        let (_, got) = over(&world, h2, &ask).await;
        let got = got.expect("it is asked");
        let vias = got.head.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("via"));
        assert_eq!(vias.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), expected);
    }
    world.end().await;
    let world = World::with(|setup| setup.blog = "drop_headers = [\"Via\"]").await;
    let (_, got) = over(&world, false, &Ask::get(BLOG, "/").field("Via", "1.1 fred")).await;
    assert_eq!(got.unwrap().head.get("via"), None, "nginx compresses nothing for who has one");
}

#[tokio::test]
async fn options_is_answered_or_forwarded_and_trace_is_refused() {
    let world = World::start().await;
    for h2 in [false, true] {
        let (reply, got) = over(&world, h2, &Ask::new("OPTIONS", BLOG, "/").field("Max-Forwards", "0")).await;
        assert_eq!((reply.status, got.is_none()), (204, true), "the gateway is the last");
        assert!(reply.header("allow").is_some_and(|allow| allow.contains("GET")));
        for (given, left) in [("1", "0"), ("70", "69"), ("much", "much")] {
            let (reply, got) = over(&world, h2, &Ask::new("OPTIONS", BLOG, "/").field("Max-Forwards", given)).await;
            assert_eq!((reply.status, got.unwrap().head.get("max-forwards")), (200, Some(left)));
        }
        let (_, got) = over(&world, h2, &Ask::get(BLOG, "/").field("Max-Forwards", "0")).await;
        assert_eq!(got.unwrap().head.get("max-forwards"), Some("0"), "it is for OPTIONS and TRACE alone");
        let (reply, got) = over(&world, h2, &Ask::new("TRACE", BLOG, "/").field("Max-Forwards", "0")).await;
        assert_eq!((reply.status, got.is_none()), (405, true));
    }
}

/// A balancer that sends neither a host nor HTTP/1.1 can still check the health.
#[tokio::test]
async fn a_health_check_needs_no_host() {
    let world = World::start().await;
    let path = "/.well-known/tollhouse/health";
    for check in [
        format!("GET {path} HTTP/1.0\r\n\r\n"),
        format!("HEAD {path} HTTP/1.0\r\nUser-Agent: balancer\r\n\r\n"),
        format!("GET {path} HTTP/1.1\r\nHost: 10.1.2.3\r\nConnection: close\r\n\r\n"),
        format!("GET {path} HTTP/1.1\r\nHost: {BLOG}\r\nConnection: close\r\n\r\n"),
    ] {
        let method = check.split(' ').next().unwrap();
        let mut client = world.plain().await;
        client.send(&check).await;
        let reply = client.reply(method).await.expect("an answer");
        assert_eq!((reply.status, reply.text()), (200, if method == "HEAD" { "" } else { "ok\n" }), "{check}");
    }
    let over_tls = world.ask(Ask::get(BLOG, path)).await;
    assert_eq!((over_tls.status, world.h2(BLOG).await.ask(&Ask::get(BLOG, path)).await.status), (200, 200));
    for other in ["GET / HTTP/1.0\r\n\r\n".to_owned(), format!("GET {path} HTTP/1.1\r\n\r\n")] {
        let mut client = world.plain().await;
        client.send(&other).await;
        client.reply("GET").await.unwrap().refused(400, "bad_host");
    }
    world.assert_upstreams_untouched();
}

#[tokio::test]
async fn a_client_that_has_ended_its_side_gets_its_response() {
    let world = World::start().await;
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let answer = response("200 OK", "", "late");
    world.blog.next(Act::AnswerInTwo(Vec::new(), gate.clone(), answer.into_bytes()));
    let mut client = world.tls(BLOG).await;
    client.send(Ask::get(BLOG, "/").field("Connection", "close").to_bytes()).await;
    world.blog.asked(1).await;
    client.wire.close().await;
    gate.add_permits(1);
    assert_eq!(client.reply("GET").await.expect("a response").text(), "late");
}

#[tokio::test]
async fn plain_http_at_the_port_of_https_gets_a_sentence() {
    let world = World::start().await;
    let mut client = Client::from(world.https, Ipv4Addr::LOCALHOST.into()).await;
    client.send(Ask::get(BLOG, "/").to_bytes()).await;
    let text = String::from_utf8(client.rest().await).unwrap();
    assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n") && text.contains("Use https://"), "{text}");
    drop(client);
    world.admin.counts("edge_tls_handshakes_total{outcome=\"plain_http\"}", 1).await;
}

#[tokio::test]
async fn a_browser_gets_an_error_page_and_a_program_gets_json() {
    let closed = ClosedPort::take();
    let world = World::with(|setup| setup.blog_endpoints = vec![closed.address()]).await;
    let html = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for h2 in [false, true] {
        let ask = Ask::get(BLOG, "/");
        let reply = over(&world, h2, &ask.clone().field("Accept", html)).await.0;
        assert_eq!((reply.status, reply.header("content-type")), (502, Some("text/html; charset=utf-8")));
        assert!(reply.text().contains(reply.request_id()), "{}", reply.text());
        assert!(reply.text().starts_with("<!doctype html>") && reply.text().contains("cannot be reached"));
        assert_eq!((reply.header("vary"), reply.header("cache-control")), (Some("Accept"), Some("no-store")));
        assert_eq!(world.log.line_of(reply.request_id()).await["code"], "upstream_unreachable");
        over(&world, h2, &ask.clone().field("Accept", "*/*")).await.0.refused(502, "upstream_unreachable");
        over(&world, h2, &ask).await.0.refused(502, "upstream_unreachable");
    }
    // An API answers with its own error, also to a browser.
    world.ask(Ask::get(DEMO, ORDERS).field("Accept", html)).await.refused(401, "missing_api_key");
}

#[tokio::test]
async fn a_site_can_have_its_own_error_page() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("error.html");
    std::fs::write(&file, "<p>Sorry: {status} {request_id} {unknown}</p>").unwrap();
    let line: &'static str = format!("error_page_file = {file:?}").leak();
    let closed = ClosedPort::take();
    let world = World::with(|setup| {
        setup.blog_endpoints = vec![closed.address()];
        setup.blog = line;
    })
    .await;
    let reply = world.ask(Ask::get(BLOG, "/").field("Accept", "text/html")).await;
    assert_eq!(reply.text(), format!("<p>Sorry: 502 {} {{unknown}}</p>", reply.request_id()));
}

/// A response that ends before its request: complete at once, except for a client that would then read nothing more,
/// not even a permission to send the rest.
#[tokio::test]
async fn a_response_that_ends_before_its_upload_arrives_whole() {
    let world = World::start().await;
    for (agent, at_once) in [("Mozilla/5.0", "early"), ("curl/7.88.1", "earl"), ("curl/8.5.0", "early")] {
        world.blog.next(Act::AnswerBeforeBodyAndClose(response("200 OK", "", "early").into_bytes()));
        let h2 = world.h2(BLOG).await;
        let ask = Ask::new("POST", BLOG, "/").field("user-agent", agent);
        let (head, mut upload) = h2.begin(&ask).await;
        let mut body = within(head).await.unwrap().into_body();
        let mut came = Vec::new();
        while came.len() < at_once.len() {
            came.extend_from_slice(&within(body.data()).await.expect("more").expect("no reset"));
        }
        assert_eq!(String::from_utf8_lossy(&came), at_once, "{agent}");
        assert_eq!(body.is_end_stream(), at_once == "early", "{agent}");
        // More than the windows hold, read and discarded.
        for _ in 0..64 {
            upload.reserve_capacity(64 * 1024);
            while upload.capacity() < 64 * 1024 {
                within(std::future::poll_fn(|cx| upload.poll_capacity(cx))).await.expect("no reset").unwrap();
            }
            upload.send_data(vec![b'x'; 64 * 1024].into(), false).unwrap();
        }
        upload.send_data(bytes::Bytes::new(), true).unwrap();
        while let Some(piece) = within(body.data()).await {
            came.extend_from_slice(&piece.expect("no reset"));
        }
        assert_eq!(came, b"early", "{agent}");
    }
}
