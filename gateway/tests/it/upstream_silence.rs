//! Upstreams over HTTP/2 with open connections that fall silent while new ones work. Each such connection costs at most
//! one request, and later requests use new connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Semaphore;

use crate::world::client::{Ask, Reply};
use crate::world::h2::H2;
use crate::world::h2_upstream::{H2Request, H2Upstream};
use crate::world::relay::Relay;
use crate::world::secure::{file, front, usual};
use crate::world::upstream::{Act, Upstream, response};
use crate::world::{BLOG, Setup, World, certificates, eventually};

/// Requests after each silence.
const REQUESTS: usize = 6;

/// An upstream that names the connection of a request, with TLS or without, and the relay to it.
struct Scene {
    upstream: H2Upstream,
    relay: Relay,
    world: World,
    _files: tempfile::TempDir,
}

async fn scene(tls: bool, streams_max: u32, lines: &'static str) -> Scene {
    let upstream = H2Upstream::start(streams_max, answer).await;
    let to = if tls { behind_tls(upstream.address).await } else { upstream.address };
    let relay = Relay::start(to).await;
    let files = tempfile::tempdir().unwrap();
    let root = file(files.path(), "root.pem", &certificates::root());
    let world = World::with(|setup: &mut Setup| {
        setup.blog = lines;
        setup.blog_urls = vec![format!("{}://{}", if tls { "https" } else { "h2c" }, relay.address)];
        if tls {
            setup.blog_tables = format!("[upstreams.blog.tls]\nca_certificate_file = \"{}\"", root.display());
        }
    })
    .await;
    Scene { upstream, relay, world, _files: files }
}

/// TLS on which HTTP/2 is agreed.
async fn behind_tls(to: SocketAddr) -> SocketAddr {
    let mut config = usual(&["127.0.0.1"]);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    front(to, config).await
}

async fn answer(mut request: H2Request) {
    let connection = request.connection.to_string();
    if request.head.headers.get("content-type").is_none_or(|kind| kind != "application/grpc") {
        return request.answer(&[("x-connection", &connection)], "").await;
    }
    let mut stream = request.begin(200, &[("content-type", "application/grpc"), ("x-connection", &connection)], false);
    let trailers = [("grpc-status", "0")].map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let _ = stream.send_trailers(trailers.into_iter().collect());
}

fn post() -> Ask {
    Ask::new("POST", BLOG, "/").body("x")
}

fn call() -> Ask {
    Ask::new("POST", BLOG, "/shop.Orders/List")
        .field("Content-Type", "application/grpc")
        .field("TE", "trailers")
        .body("x")
}

/// Sends requests one after the other; how many failed, all of them before the first that did not.
async fn failures(client: &H2, ask: &Ask, is_failure: impl Fn(&Reply) -> bool) -> usize {
    let mut failed = Vec::new();
    for _ in 0..REQUESTS {
        failed.push(is_failure(&client.ask(ask).await));
    }
    let count = failed.iter().filter(|failed| **failed).count();
    assert!(failed[count..].iter().all(|failed| !failed), "a request failed after one that did not: {failed:?}");
    count
}

fn is_timeout(reply: &Reply) -> bool {
    if reply.status == 504 {
        return true;
    }
    assert_eq!(reply.status, 200, "{reply:?}");
    false
}

/// The status of a call that failed is in the head of its response.
fn is_late_call(reply: &Reply) -> bool {
    assert_eq!(reply.status, 200, "{reply:?}");
    match reply.header("grpc-status") {
        None => false,
        status => {
            assert_eq!(status, Some("4"), "{reply:?}");
            true
        }
    }
}

#[tokio::test]
async fn a_connection_that_falls_silent_costs_one_request() {
    for tls in [false, true] {
        let Scene { upstream, relay, world, _files } = scene(tls, 100, "first_byte_timeout = \"2s\"").await;
        let client = world.h2(BLOG).await;
        assert_eq!(failures(&client, &post(), is_timeout).await, 0);
        for round in 1..=2 {
            relay.silence();
            assert_eq!(failures(&client, &post(), is_timeout).await, 1, "TLS {tls}, round {round}");
            assert_eq!(upstream.connections(), 1 + round, "TLS {tls}");
        }
        drop(client);
        world.end().await;
    }
}

#[tokio::test]
async fn a_connection_that_falls_silent_costs_one_call_of_grpc() {
    for tls in [false, true] {
        let Scene { upstream, relay, world, _files } = scene(tls, 100, "first_byte_timeout = \"2s\"").await;
        let client = world.h2(BLOG).await;
        assert_eq!(failures(&client, &call(), is_late_call).await, 0);
        relay.silence();
        assert_eq!(failures(&client, &call(), is_late_call).await, 1, "TLS {tls}");
        assert_eq!(upstream.connections(), 2, "TLS {tls}");
        drop(client);
        world.end().await;
    }
}

/// Health checks open a new connection each, so they do not notice: the address stays in use.
#[tokio::test]
async fn health_checks_over_new_connections_change_nothing() {
    let lines = "first_byte_timeout = \"2s\"\n\
                 health = { path = \"/health\", every = \"20ms\", timeout = \"10s\", falls = 1, rises = 1 }";
    let Scene { upstream, relay, world, _files } = scene(false, 100, lines).await;
    let client = world.h2(BLOG).await;
    assert_eq!(failures(&client, &post(), is_timeout).await, 0);
    let checked = upstream.connections();
    eventually("health checks", async || (upstream.connections() > checked + 2).then_some(())).await;
    relay.silence();
    assert_eq!(failures(&client, &post(), is_timeout).await, 1);
    drop(client);
    world.end().await;
}

#[tokio::test]
async fn each_of_several_silent_connections_costs_one_request_at_most() {
    let Scene { upstream, relay, world, _files } = scene(false, 1, "first_byte_timeout = \"2s\"").await;
    let client = world.h2(BLOG).await;
    let ask = post();
    let replies = join_all((0..3).map(|_| client.ask(&ask))).await;
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    let before = upstream.connections();
    assert!(before > 1, "{before} connections");
    relay.silence();
    let failed = failures(&client, &post(), is_timeout).await;
    assert!((1..=before).contains(&failed), "{failed} requests failed on {before} connections");
    drop(client);
    world.end().await;
}

/// A safe request is retried when its connection does not answer a PING.
#[tokio::test]
async fn a_get_on_a_silent_connection_is_served_by_another_connection() {
    let Scene { upstream, relay, world, _files } = scene(false, 100, "first_byte_timeout = \"60s\"").await;
    let client = world.h2(BLOG).await;
    assert_eq!(client.ask(&Ask::get(BLOG, "/")).await.status, 200);
    relay.silence();
    for _ in 0..3 {
        assert_eq!(client.ask(&Ask::get(BLOG, "/")).await.status, 200);
    }
    assert_eq!(upstream.connections(), 2);
    drop(client);
    world.end().await;
}

/// Any number of them: none is refused because of earlier retries.
#[tokio::test]
async fn all_gets_on_a_silent_connection_are_served_by_another_connection() {
    const EVERY: Duration = Duration::from_millis(40);
    let Scene { upstream, relay, world, _files } = scene(false, 100, "first_byte_timeout = \"60s\"").await;
    let client = world.h2(BLOG).await;
    let ask = Ask::get(BLOG, "/");
    assert_eq!(client.ask(&ask).await.status, 200);
    relay.silence();
    // 25 a second for three seconds: the first fifty are sent before the connection is in doubt.
    let (client, ask) = (&client, &ask);
    let paced = (0..75).map(async |number| {
        tokio::time::sleep(EVERY * number).await;
        let reply = client.ask(ask).await;
        (reply.status, reply.header("x-connection").map(str::to_owned))
    });
    let replies = join_all(paced).await;
    let failed = replies.iter().filter(|(status, _)| *status != 200).count();
    assert_eq!(failed, 0, "of 75");
    assert!(replies.iter().all(|(_, connection)| *connection == replies[0].1), "{replies:?}");
    assert_eq!(upstream.connections(), 2);
    drop(replies);
    world.end().await;
}

/// Requests that may not be retried avoid a connection long before it is known to be dead.
#[tokio::test]
async fn few_posts_are_sent_on_a_silent_connection() {
    const EVERY: Duration = Duration::from_millis(66);
    let Scene { upstream, relay, world, _files } = scene(false, 100, "first_byte_timeout = \"2s\"").await;
    let client = world.h2(BLOG).await;
    let ask = post();
    assert_eq!(client.ask(&ask).await.status, 200);
    relay.silence();
    let (client, ask) = (&client, &ask);
    let paced = (0..45).map(async |number| {
        // A steady rate, which the test is about.
        tokio::time::sleep(EVERY * number).await;
        is_timeout(&client.ask(ask).await)
    });
    let failed = join_all(paced).await;
    let count = failed.iter().filter(|failed| **failed).count();
    assert!(failed[count..].iter().all(|failed| !failed), "a request failed after one that did not: {failed:?}");
    // Four begin within 250 ms; without the check 30 would in two seconds.
    assert!((1..=8).contains(&count), "{count} of 45 failed");
    assert_eq!(upstream.connections(), 2);
    world.end().await;
}

/// More connections, or requests on one, than the retry budget, and a NAT has forgotten all of them.
#[tokio::test]
async fn kept_connections_that_are_all_reset_cost_no_request() {
    const KEPT: usize = 30;
    for http2 in [false, true] {
        let (gate, waiting) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (h1, h2) = (Upstream::start().await, H2Upstream::start(100, slowly(gate.clone(), waiting.clone())).await);
        let relay = Relay::start(if http2 { h2.address } else { h1.address }).await;
        let url = format!("{}://{}", if http2 { "h2c" } else { "http" }, relay.address);
        let world = World::with(|setup| setup.blog_urls = vec![url]).await;
        let client = world.h2(BLOG).await;
        let hello = response("200 OK", "", "hello").into_bytes();
        (0..KEPT).for_each(|_| h1.next(Act::AnswerInTwo(Vec::new(), gate.clone(), hello.clone())));
        let ask = Ask::get(BLOG, "/");
        let first = async { join_all((0..KEPT).map(|_| client.ask(&ask))).await };
        let opened = async {
            let there = async || (waiting.load(Ordering::Relaxed) + h1.requests().len() >= KEPT).then_some(());
            eventually("requests at the upstream", there).await;
            gate.add_permits(2 * KEPT);
        };
        let (replies, ()) = tokio::join!(first, opened);
        assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
        relay.forget();
        let replies = join_all((0..KEPT).map(|_| client.ask(&ask))).await;
        let statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
        assert_eq!(statuses, [200; KEPT], "HTTP/2 {http2}");
        drop(client);
        world.end().await;
    }
}

/// Answers when the gate has a permit, and counts waiting requests.
fn slowly(
    gate: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
) -> impl Fn(H2Request) -> futures_util::future::BoxFuture<'static, ()> + Send + Sync + 'static {
    move |request| {
        let (gate, waiting) = (gate.clone(), waiting.clone());
        Box::pin(async move {
            waiting.fetch_add(1, Ordering::Relaxed);
            gate.acquire().await.unwrap().forget();
            answer(request).await;
        })
    }
}

/// A request that waits for its response on a connection which answers PING leaves it to others.
#[tokio::test]
async fn a_slow_request_keeps_no_connection_from_serving_others() {
    let (gate, waiting) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (opened, counted) = (gate.clone(), waiting.clone());
    let upstream = H2Upstream::start(100, move |request: H2Request| {
        let (opened, counted) = (opened.clone(), counted.clone());
        async move {
            if request.head.uri.path() == "/slow" {
                counted.fetch_add(1, Ordering::Relaxed);
                opened.acquire().await.unwrap().forget();
            }
            answer(request).await;
        }
    })
    .await;
    let relay = Relay::start(upstream.address).await;
    let world = World::with(|setup| setup.blog_urls = vec![format!("h2c://{}", relay.address)]).await;
    let client = world.h2(BLOG).await;
    let held = client.hold(&Ask::get(BLOG, "/slow")).await;
    eventually("the slow request", async || (waiting.load(Ordering::Relaxed) == 1).then_some(())).await;
    assert_eq!(failures(&client, &post(), is_timeout).await, 0);
    gate.add_permits(1);
    assert_eq!(crate::world::h2::read(held).await.status, 200);
    assert_eq!(upstream.connections(), 1);
    drop(client);
    world.end().await;
}
