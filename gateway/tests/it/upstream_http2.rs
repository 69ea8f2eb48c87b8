//! Upstreams over HTTP/2, negotiated in the TLS handshake or configured.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use contract::feed::Entity;
use futures_util::future::join_all;
use h2::Reason;
use tokio::sync::{Semaphore, watch};

use crate::world::client::Ask;
use crate::world::entities::{public, site};
use crate::world::h2_upstream::{H2Request, H2Upstream, going_away, pausing, send};
use crate::world::secure::{file, front, usual};
use crate::world::upstream::{Act, Upstream};
use crate::world::{BLOG, Setup, World, certificates, eventually, within};

const NEWS: &str = "news.tollhouse.localhost";

/// A world with the blog over HTTP/2 in clear text at this address, and a second project.
async fn world(at: SocketAddr, change: impl FnOnce(&mut Setup)) -> World {
    World::with(|setup| {
        setup.blog_urls = vec![format!("h2c://{at}")];
        setup.entities.extend([Entity::Project(public("news")), site(NEWS, "news")]);
        change(setup);
    })
    .await
}

/// Sends the body back, after the requested fields.
async fn echo(mut asked: H2Request) {
    let path = asked.head.uri.path().to_owned();
    let body = asked.read().await;
    asked.answer(&[("x-path", &path)], body).await;
}

#[tokio::test]
async fn requests_of_both_versions_share_a_connection_over_http2() {
    let upstream = H2Upstream::start(100, echo).await;
    let world = world(upstream.address, |_| {}).await;
    let large = "0123456789".repeat(60_000);
    let (new, mut old) = (world.h2(BLOG).await, world.tls(BLOG).await);
    for (number, body) in ["", "x", &large].into_iter().enumerate() {
        let ask = Ask::new("POST", BLOG, "/a?b").body(body);
        for reply in [new.ask(&ask).await, old.ask(&ask).await] {
            assert_eq!(
                (reply.status, reply.text() == body, reply.header("x-path")),
                (200, true, Some("/a")),
                "{number}"
            );
        }
        // Without a content-length.
        let mut ask = ask.clone();
        ask.fields.clear();
        assert_eq!(new.ask(&ask).await.text(), body);
    }
    let reply = old.ask(&Ask::new("HEAD", BLOG, "/")).await;
    assert_eq!((reply.status, reply.text()), (200, ""));
    assert_eq!(world.log.line_of(reply.request_id()).await["upstream_connection"], "reused h2");
    assert_eq!(upstream.connections(), 1);
    world.end().await;
}

#[tokio::test]
async fn an_upstream_gets_the_same_request_over_http2_and_http1() {
    let (upstream, mut taken) = H2Upstream::taken().await;
    let world = world(upstream.address, |setup| setup.blog = "host = \"blog.internal\"").await;
    let ask = Ask::get(BLOG, "/a?b=c").field("TE", "trailers, x").field("X-Own", "1").field("Connection", "close");
    let mut client = world.tls(BLOG).await;
    client.send(ask.to_bytes()).await;
    let asked = within(taken.recv()).await.unwrap();
    let field = |name: &str| asked.head.headers.get(name).map(|value| value.to_str().unwrap());
    assert_eq!(asked.head.uri, "http://blog.internal/a?b=c");
    assert_eq!(
        (field("te"), field("x-own"), field("connection"), field("host")),
        (Some("trailers"), Some("1"), None, None)
    );
    assert_eq!((field("x-forwarded-host"), field("x-forwarded-proto")), (Some(BLOG), Some("https")));
    asked.answer(&[("x-a", "1")], "text").await;
    let reply = client.reply("GET").await.unwrap();
    assert_eq!((reply.status, reply.text(), reply.header("x-a")), (200, "text", Some("1")));
    world.end().await;
}

#[tokio::test]
async fn with_tls_both_sides_agree_on_the_version() {
    let files = tempfile::tempdir().unwrap();
    let root = file(files.path(), "root.pem", &certificates::root());
    for (protocols, http2, kind) in [
        (&["h2", "http/1.1"][..], "true", "h2 tls"),
        (&["h2", "http/1.1"], "false", "h1 tls"),
        (&["http/1.1"], "true", "h1 tls"),
        (&[], "true", "h1 tls"),
    ] {
        let (new, old) = (H2Upstream::start(100, echo).await, Upstream::start().await);
        let mut config = usual(&["127.0.0.1"]);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let at = front(if kind == "h2 tls" { new.address } else { old.address }, config).await;
        let world = World::with(|setup| {
            setup.blog_urls = vec![format!("https://{at}")];
            setup.blog_tables =
                format!("[upstreams.blog.tls]\nhttp2 = {http2}\nca_certificate_file = \"{}\"", root.display());
        })
        .await;
        let mut client = world.tls(BLOG).await;
        for _ in 0..3 {
            let reply = client.ask(&Ask::get(BLOG, "/")).await;
            assert_eq!(reply.status, 200);
            let line = world.log.line_of(reply.request_id()).await;
            assert!(line["upstream_connection"].as_str().unwrap().ends_with(kind), "{protocols:?}: {line}");
        }
        assert_eq!(new.connections() + old.connections(), 1, "{protocols:?}");
        world.end().await;
    }
}

#[tokio::test]
async fn a_websocket_goes_to_an_upstream_of_both_versions_over_http1() {
    let files = tempfile::tempdir().unwrap();
    let root = file(files.path(), "root.pem", &certificates::root());
    let (new, old) = (H2Upstream::start(100, echo).await, Upstream::start().await);
    let at = versions_front(&new, &old).await;
    let world = World::with(|setup| {
        setup.blog_urls = vec![format!("https://{at}")];
        setup.blog_tables = format!("[upstreams.blog.tls]\nca_certificate_file = \"{}\"", root.display());
    })
    .await;
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.header("x-path"), Some("/"));
    old.next(Act::Echo);
    let ask = Ask::get(BLOG, "/").field("Connection", "upgrade").field("Upgrade", "websocket");
    let ask = ask.field("Sec-WebSocket-Version", "13").field("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    let mut client = world.tls(BLOG).await;
    client.send(ask.to_bytes()).await;
    let head = within(client.wire.head()).await.unwrap().unwrap();
    assert!(head.first_line.starts_with("HTTP/1.1 101 "), "{}", head.first_line);
    assert_eq!((new.connections(), old.connections()), (1, 1));
    drop(client);
    world.end().await;
}

/// TLS that forwards to one server or the other, by the negotiated protocol.
async fn versions_front(new: &H2Upstream, old: &Upstream) -> SocketAddr {
    let mut config = usual(&["127.0.0.1"]);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, new, old) = (listener.local_addr().unwrap(), new.address, old.address);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut outside) = acceptor.accept(stream).await else { return };
                let to = if outside.get_ref().1.alpn_protocol() == Some(b"h2") { new } else { old };
                let mut inside = tokio::net::TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
            });
        }
    });
    address
}

/// Two streams at once per connection: six requests at once need three connections, and none is refused.
#[tokio::test]
async fn an_upstreams_limit_of_streams_is_kept() {
    let (gate, at_once, most) =
        (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (opened, counted, highest) = (gate.clone(), at_once.clone(), most.clone());
    let upstream = H2Upstream::start(2, move |asked: H2Request| {
        let (opened, counted, highest) = (opened.clone(), counted.clone(), highest.clone());
        async move {
            highest.fetch_max(counted.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            opened.acquire().await.unwrap().forget();
            let connection = asked.connection.to_string();
            asked.answer(&[("x-connection", &connection)], "").await;
        }
    })
    .await;
    let world = world(upstream.address, |_| {}).await;
    let client = world.h2(BLOG).await;
    let (ask, waiting) = (Ask::get(BLOG, "/"), at_once.clone());
    let asking = join_all((0..6).map(|_| client.ask(&ask)));
    let opening = async {
        eventually("all six are there", async || (waiting.load(Ordering::Relaxed) == 6).then_some(())).await;
        gate.add_permits(6);
    };
    let (replies, ()) = tokio::join!(asking, opening);
    let mut connections: Vec<_> = replies.iter().map(|reply| reply.header("x-connection").unwrap()).collect();
    connections.sort_unstable();
    connections.chunk_by(|one, other| one == other).for_each(|chunk| assert!(chunk.len() <= 2, "{connections:?}"));
    assert!(upstream.connections() >= 3 && replies.iter().all(|reply| reply.status == 200));
    drop(client);
    world.end().await;
}

#[tokio::test]
async fn a_request_that_goaway_leaves_out_is_served_by_another_connection() {
    let upstream = H2Upstream::start(100, echo).await;
    let at = going_away(upstream.address, 3).await;
    let world = world(at, |_| {}).await;
    let client = world.h2(BLOG).await;
    let asks = ["one", "two", "three"].map(|body| Ask::new("POST", BLOG, "/").body(body));
    let replies = join_all(asks.iter().map(|ask| client.ask(ask))).await;
    for (reply, body) in replies.iter().zip(["one", "two", "three"]) {
        assert_eq!((reply.status, reply.text()), (200, body), "also what may not be repeated");
    }
    drop(client);
    world.end().await;
}

/// An upstream that restarts: six connections with room for one more request each say GOAWAY and go on serving another
/// one.
#[tokio::test]
async fn a_request_meets_any_number_of_connections_that_go_away() {
    let (upstream, mut taken) = H2Upstream::limited(2).await;
    let world = world(upstream.address, |_| {}).await;
    let client = world.h2(BLOG).await;
    let (mut held, mut replies) = (Vec::new(), Vec::new());
    for _ in 0..12 {
        replies.push(client.hold(&Ask::get(BLOG, "/")).await);
        held.push(within(taken.recv()).await.unwrap());
    }
    assert_eq!(upstream.connections(), 6);
    upstream.goes_away();
    // A later frame shows that the gateway has read the GOAWAY.
    for number in (0..12).step_by(2) {
        held.remove(number / 2).answer(&[], "").await;
        let reply = replies.remove(number / 2);
        assert_eq!(within(reply).await.unwrap().status(), 200);
    }
    let ask = Ask::new("POST", BLOG, "/").body("x");
    let (reply, ()) = tokio::join!(client.ask(&ask), async {
        within(taken.recv()).await.unwrap().answer(&[], "").await;
    });
    assert_eq!((reply.status, upstream.connections()), (200, 7));
    drop((client, held, replies));
    world.end().await;
}

#[tokio::test]
async fn a_refused_stream_is_retried_elsewhere_a_bounded_number_of_times() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let upstream = H2Upstream::start(100, move |mut asked: H2Request| {
        let number = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            if asked.head.uri.path() == "/never" || number == 0 {
                return asked.respond.send_reset(Reason::REFUSED_STREAM);
            }
            echo(asked).await;
        }
    })
    .await;
    let world = world(upstream.address, |_| {}).await;
    assert_eq!(world.ask(Ask::new("POST", BLOG, "/").body("once")).await.text(), "once");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let reply = world.ask(Ask::new("POST", BLOG, "/never").body("x")).await;
    reply.refused(502, "upstream_invalid");
    assert_eq!(world.log.line_of(reply.request_id()).await["reason"], "it sent RST_STREAM REFUSED_STREAM");
    assert_eq!(asked.load(Ordering::Relaxed), 2 + 4);
    assert_eq!(upstream.connections(), 1, "a refused stream does not make its connection suspect");
    world.end().await;
}

/// Each request is sent twice, and more often while the budget of retries lasts: ten of them, and one for ten requests.
#[tokio::test]
async fn an_upstream_that_refuses_all_streams_gets_a_bounded_number_of_retries_and_no_new_connections() {
    const REQUESTS: usize = 40;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let upstream = H2Upstream::start(100, move |mut asked: H2Request| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { asked.respond.send_reset(Reason::REFUSED_STREAM) }
    })
    .await;
    let world = world(upstream.address, |_| {}).await;
    for _ in 0..REQUESTS {
        world.ask(Ask::get(BLOG, "/")).await.refused(502, "upstream_invalid");
    }
    let sent = asked.load(Ordering::Relaxed);
    assert!(sent <= 2 * REQUESTS + 10 + REQUESTS / 10, "{sent} streams for {REQUESTS} requests");
    assert_eq!(upstream.connections(), 1);
    world.end().await;
}

/// The upstream refuses the request when it has all of it.
#[tokio::test]
async fn a_request_that_is_sent_again_keeps_its_trailers() {
    let (upstream, mut taken) = H2Upstream::taken().await;
    let world = world(upstream.address, |_| {}).await;
    let client = world.h2(BLOG).await;
    let (response, mut body) = client.begin(&Ask::new("POST", BLOG, "/").field("Trailer", "x-sum")).await;
    body.send_data("text".into(), false).unwrap();
    body.send_trailers([("x-sum".parse().unwrap(), "6".parse().unwrap())].into_iter().collect()).unwrap();
    for refuses in [true, false] {
        let mut asked = within(taken.recv()).await.unwrap();
        assert_eq!(within(asked.read()).await, b"text");
        assert_eq!(within(asked.body.trailers()).await.unwrap().expect("trailers")["x-sum"], "6", "{refuses}");
        if refuses {
            asked.respond.send_reset(Reason::REFUSED_STREAM);
        } else {
            asked.answer(&[], "").await;
        }
    }
    assert_eq!(within(response).await.unwrap().status(), 200);
    drop((client, body));
    world.end().await;
}

/// A request that was begun may have been executed.
#[tokio::test]
async fn a_reset_stream_is_not_retried_and_its_response_is_truncated() {
    let (upstream, mut taken) = H2Upstream::taken().await;
    let world = world(upstream.address, |_| {}).await;
    let ask = Ask::get(BLOG, "/");
    let refused = async { world.ask(ask.clone()).await.refused(502, "upstream_invalid").clone() };
    let (reply, ()) = tokio::join!(refused, async {
        within(taken.recv()).await.unwrap().respond.send_reset(Reason::INTERNAL_ERROR);
    });
    assert_eq!(world.log.line_of(reply.request_id()).await["reason"], "it sent RST_STREAM INTERNAL_ERROR");
    let client = world.h2(BLOG).await;
    let asking = client.hold(&ask).await;
    let mut asked = within(taken.recv()).await.expect("only this one: the first was not sent again");
    let mut answer = asked.begin(200, &[], false);
    send(&mut answer, "half".into(), false).await.unwrap();
    let mut reply = within(asking).await.unwrap();
    assert_eq!(within(reply.body_mut().data()).await.unwrap().unwrap(), "half");
    answer.send_reset(Reason::INTERNAL_ERROR);
    assert!(within(reply.body_mut().data()).await.unwrap().is_err());
    drop((client, reply));
    world.end().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_delays_no_other_client() {
    let large = Bytes::from(vec![b'x'; 4 << 20]);
    let upstream = H2Upstream::start(100, move |asked: H2Request| {
        let large = large.clone();
        async move {
            let body = if asked.head.uri.path() == "/large" { large } else { "small".into() };
            asked.answer(&[], body).await;
        }
    })
    .await;
    let world = world(upstream.address, |_| {}).await;
    let slow = world.h2(BLOG).await;
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(within(slow.hold(&Ask::get(BLOG, "/large")).await).await.unwrap());
    }
    let quick = world.h2(BLOG).await;
    for _ in 0..20 {
        assert_eq!(quick.ask(&Ask::get(BLOG, "/")).await.text(), "small");
    }
    assert_eq!(upstream.connections(), 1);
    drop((unread, slow, quick));
    world.end().await;
}

#[tokio::test]
async fn tenants_share_a_connection_only_if_the_settings_allow_it() {
    for (lines, connections) in [("", 2), ("shared_connections = true", 1)] {
        let upstream = H2Upstream::start(100, echo).await;
        let world = world(upstream.address, |setup| setup.blog = lines).await;
        for host in [BLOG, NEWS, BLOG, NEWS] {
            assert_eq!(world.ask(Ask::get(host, "/")).await.status, 200);
        }
        assert_eq!(upstream.connections(), connections, "{lines}");
        world.end().await;
    }
}

/// Two tenants on one connection, bodies of all sizes, streams that are reset in the middle: each gets its own bytes.
#[tokio::test]
async fn no_byte_of_one_exchange_reaches_another() {
    let upstream = H2Upstream::start(100, |mut asked: H2Request| async move {
        let path = asked.head.uri.path().to_owned();
        let body = asked.read().await;
        let mut stream = asked.begin(200, &[("x-path", &path)], false);
        let half = body.len() / 2;
        let cut = path.ends_with("cut");
        let _ = send(&mut stream, Bytes::copy_from_slice(&body[..half]), false).await;
        if cut {
            return stream.send_reset(Reason::CANCEL);
        }
        tokio::task::yield_now().await;
        let _ = send(&mut stream, Bytes::copy_from_slice(&body[half..]), false).await;
        let _ = stream.send_data(Bytes::new(), true);
    })
    .await;
    let world = world(upstream.address, |setup| setup.blog = "shared_connections = true").await;
    let clients = [(BLOG, world.h2(BLOG).await), (NEWS, world.h2(NEWS).await)];
    for round in 0..6_usize {
        let asks: Vec<(usize, String, Ask)> = (0..30)
            .map(|number| {
                let size = (number * 7_919 + round * 104_729) % 50_000;
                let cut = if number % 7 == 3 { "cut" } else { "" };
                let path = format!("/{number}-{round}{cut}");
                let host = clients[number % 2].0;
                let body = format!("{host}{path};").repeat(1 + size / 40);
                (number, body.clone(), Ask::new("POST", host, &path).body(&body))
            })
            .collect();
        let replies = join_all(asks.iter().map(|(number, _, ask)| clients[number % 2].1.try_ask(ask))).await;
        for ((_, body, ask), reply) in asks.iter().zip(replies) {
            let Ok(reply) = reply else { panic!("{}: no head", ask.target) };
            // A reset may overtake all that was to go before it.
            if ask.target.ends_with("cut") && reply.status == 502 {
                continue;
            }
            assert_eq!(reply.header("x-path"), Some(ask.target.as_str()));
            assert!(body.as_bytes().starts_with(&reply.body), "{}: bytes of another", ask.target);
            assert_eq!(reply.complete, !ask.target.ends_with("cut"), "{}", ask.target);
            assert!(!reply.complete || reply.body.len() == body.len());
        }
    }
    assert_eq!(upstream.connections(), 1);
    drop(clients);
    world.end().await;
}

#[tokio::test]
async fn interim_responses_and_trailers_are_forwarded() {
    let (upstream, mut taken) = H2Upstream::taken().await;
    let world = world(upstream.address, |_| {}).await;
    let client = world.h2(BLOG).await;
    let (mut response, mut body) = client.begin(&Ask::new("POST", BLOG, "/").field("TE", "trailers")).await;
    let mut asked = within(taken.recv()).await.unwrap();
    let hint = http::Response::builder().status(103).header("link", "</x>").body(()).unwrap();
    asked.respond.send_informational(hint).unwrap();
    let hint = within(poll_fn(|cx| response.poll_informational(cx))).await.unwrap().unwrap();
    assert_eq!((hint.status().as_u16(), hint.headers()["link"].to_str().unwrap()), (103, "</x>"));
    // In both directions at once: the response begins before the request has ended.
    let mut answer = asked.begin(200, &[("trailer", "x-sum")], false);
    let mut reply = within(response).await.unwrap();
    for text in ["one", "two"] {
        body.send_data(text.into(), false).unwrap();
        assert_eq!(within(asked.body.data()).await.unwrap().unwrap(), text);
        send(&mut answer, text.into(), false).await.unwrap();
        assert_eq!(within(reply.body_mut().data()).await.unwrap().unwrap(), text);
    }
    let mut fields = http::HeaderMap::new();
    fields.insert("x-sum", "6".parse().unwrap());
    body.send_trailers(fields.clone()).unwrap();
    assert!(within(asked.body.data()).await.is_none());
    assert_eq!(within(asked.body.trailers()).await.unwrap().unwrap()["x-sum"], "6");
    fields.insert("content-length", "9".parse().unwrap());
    answer.send_trailers(fields).unwrap();
    assert!(within(reply.body_mut().data()).await.is_none());
    let trailers = within(reply.body_mut().trailers()).await.unwrap().unwrap();
    assert_eq!((trailers.len(), &trailers["x-sum"]), (1, &http::HeaderValue::from_static("6")));
    drop((client, reply, body));
    world.end().await;
}

#[tokio::test]
async fn an_upstream_without_http2_is_502_with_a_reason() {
    let upstream = Upstream::start().await;
    let world = world(upstream.address, |_| {}).await;
    let reply = world.ask(Ask::get(BLOG, "/")).await;
    reply.refused(502, "upstream_invalid");
    assert_eq!(world.log.line_of(reply.request_id()).await["reason"], "it does not speak HTTP/2 on this port");
    world.end().await;
}

/// A limit of one stream, cold, and requests of both kinds at once: those that wait for the connection that is being
/// opened open another one as soon as the limit is known.
#[tokio::test]
async fn requests_that_wait_for_a_connection_with_few_streams_get_another() {
    for limit in [1, 4] {
        let upstream = H2Upstream::start(limit, echo).await;
        let world = world(upstream.address, |_| {}).await;
        let client = world.h2(BLOG).await;
        let asks = (0..48).map(|number| {
            let method = if number % 2 == 0 { "GET" } else { "POST" };
            Ask::new(method, BLOG, "/")
        });
        let asks: Vec<Ask> = asks.collect();
        for _ in 0..3 {
            for reply in join_all(asks.iter().map(|ask| client.ask(ask))).await {
                assert_eq!(reply.status, 200, "{limit}: {reply:?}");
            }
            upstream.goes_away();
        }
        drop(client);
        world.end().await;
    }
}

/// A server that sheds load allows no stream for a while: requests wait, and open no further connections.
#[tokio::test]
async fn a_server_that_allows_no_stream_is_waited_for() {
    let (allow, allowed) = watch::channel(false);
    let (at, connections) = pausing(allowed).await;
    let world = world(at, |setup| setup.blog = "connect_timeout = \"10s\"").await;
    let client = world.h2(BLOG).await;
    let (get, post) = (Ask::get(BLOG, "/"), Ask::new("POST", BLOG, "/"));
    let asking = async { tokio::join!(client.ask(&get), client.ask(&post)) };
    let allowing = async {
        eventually("a connection", async || (connections.load(Ordering::Relaxed) > 0).then_some(())).await;
        allow.send_replace(true);
    };
    let ((one, other), ()) = tokio::join!(asking, allowing);
    assert_eq!((one.status, other.status), (200, 200));
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    drop(client);
    world.end().await;
}

#[tokio::test]
async fn a_server_that_never_allows_a_stream_is_504_after_the_connect_timeout() {
    let (_allow, allowed) = watch::channel(false);
    let (at, connections) = pausing(allowed).await;
    let world = world(at, |setup| setup.blog = "connect_timeout = \"100ms\"\nfirst_byte_timeout = \"100ms\"").await;
    let reply = world.ask(Ask::get(BLOG, "/")).await;
    reply.refused(504, "upstream_timeout");
    let line = world.log.line_of(reply.request_id()).await;
    assert_eq!(line["reason"], "its HTTP/2 connections allow no requests");
    // A probe may have looked whether the address accepts connections.
    assert!(connections.load(Ordering::Relaxed) <= 2);
    world.end().await;
}

#[tokio::test]
async fn a_connection_gets_the_configured_number_of_requests_and_ends_with_its_age() {
    for (lines, expected) in [("requests_per_connection = 2", 3), ("requests_per_connection = 5", 1)] {
        let (new, old) = (H2Upstream::start(100, echo).await, Upstream::start().await);
        for (url, is_new) in [(format!("h2c://{}", new.address), true), (format!("http://{}", old.address), false)] {
            let world = World::with(|setup| {
                setup.blog_urls = vec![url.clone()];
                setup.blog = lines;
            })
            .await;
            for _ in 0..5 {
                assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
            }
            let opened = if is_new { new.connections() } else { old.connections() };
            assert_eq!(opened, expected, "{url}");
            world.end().await;
        }
    }
    let (new, old) = (H2Upstream::start(100, echo).await, Upstream::start().await);
    for (url, is_new) in [(format!("h2c://{}", new.address), true), (format!("http://{}", old.address), false)] {
        let world = World::with(|setup| {
            setup.blog_urls = vec![url.clone()];
            setup.blog = "connection_age = \"100ms\"";
        })
        .await;
        eventually("a second connection", async || {
            assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
            let opened = if is_new { new.connections() } else { old.connections() };
            (opened > 1).then_some(())
        })
        .await;
        world.end().await;
    }
}
