//! gRPC through the gateway: with grpcio on both sides, and cases that need a server of our own.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use bytes::Bytes;
use http::HeaderMap;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::world::client::Ask;
use crate::world::h2_upstream::{H2Upstream, send};
use crate::world::secure::file;
use crate::world::{BLOG, DEMO, World, certificates, eventually, within};

/// Python with grpcio, as `./check` installs it.
#[expect(clippy::disallowed_methods, reason = "where tools are, not settings of a process")]
fn python() -> PathBuf {
    let usual = || Path::new(&std::env::var("HOME").unwrap()).join(".cache/tollhouse-tools/grpc/bin/python");
    let python = std::env::var("TOLLHOUSE_GRPC").map_or_else(|_| usual(), PathBuf::from);
    assert!(python.exists(), "grpcio is missing: ./check installs it (grpc_peers.txt) to {}", python.display());
    python
}

fn script(arguments: &[&str]) -> Command {
    let mut command = Command::new(python());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/grpc_peers.py")).args(arguments);
    // The environment's proxies do not apply to loopback.
    command.env("no_grpc_proxy", "*").env("GRPC_ENABLE_FORK_SUPPORT", "0").kill_on_drop(true);
    command
}

/// A third-party gRPC server, and its port. It ends with its input.
pub(crate) async fn server() -> (Child, u16) {
    let mut server = script(&["serve"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python");
    let mut line = String::new();
    within(BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line)).await.unwrap();
    let port = line.trim().parse().expect("a port");
    (server, port)
}

async fn world(to: &str, lines: &'static str) -> World {
    World::with(|setup| {
        setup.blog_urls = vec![format!("h2c://{to}")];
        setup.blog = lines;
    })
    .await
}

#[tokio::test]
async fn all_kinds_of_calls_pass_between_third_party_clients_and_servers() {
    let (server, port) = server().await;
    let world = world(&format!("127.0.0.1:{port}"), "in_flight_max = 1000").await;
    run(&world, "call").await;
    drop(server);
    world.end().await;
}

/// The C core answers each small message with two `WINDOW_UPDATE`s.
// promise: edge.11
#[tokio::test]
async fn many_small_messages_and_calls_do_not_count_as_a_flood() {
    let (server, port) = server().await;
    let world = world(&format!("127.0.0.1:{port}"), "in_flight_max = 1000").await;
    for work in ["messages", "calls", "streams"] {
        run(&world, work).await;
        assert_eq!(world.admin.metric("edge_connection_events_total{event=\"flooded\"}").await, 0, "{work}");
    }
    drop(server);
    world.end().await;
}

/// Has the client of grpcio do this work through the edge.
async fn run(world: &World, work: &str) {
    let files = tempfile::tempdir().unwrap();
    let root = file(files.path(), "root.pem", &certificates::root());
    let calling = script(&[work, &world.https.port().to_string(), BLOG, DEMO, root.to_str().unwrap()]).output();
    // Minutes on a machine that does much else.
    let called = tokio::time::timeout(std::time::Duration::from_mins(4), calling).await.expect("an end").unwrap();
    let said = String::from_utf8_lossy(&called.stdout).into_owned() + &String::from_utf8_lossy(&called.stderr);
    assert!(called.status.success(), "{said}\n{}", world.log.text());
}

#[tokio::test]
async fn the_grpc_health_protocol_is_used() {
    let (server, port) = server().await;
    let world = world(
        &format!("127.0.0.1:{port}"),
        "health = { grpc = \"shop.Orders\", every = \"20ms\", falls = 1, rises = 1, timeout = \"10s\" }",
    )
    .await;
    assert_up(&world, 1).await;
    // An unreachable address is still tried, so only log and status show it.
    drop(server);
    assert_up(&world, 0).await;
    world.end().await;
}

/// How many addresses of the blog answer health checks.
async fn assert_up(world: &World, up: u64) {
    eventually("the health of the blog", async || {
        let status: serde_json::Value = serde_json::from_str(&world.admin.get("/status").await.1).unwrap();
        let upstreams = status["upstreams"].as_array().unwrap().clone();
        upstreams.iter().any(|one| one["name"] == "blog" && one["in_turn"] == up).then_some(())
    })
    .await;
}

/// A gRPC call by its head.
fn call(host: &str, timeout: &str) -> Ask {
    Ask::new("POST", host, "/shop.Orders/List")
        .field("Content-Type", "application/grpc+proto")
        .field("TE", "trailers")
        .field("grpc-timeout", timeout)
}

#[tokio::test]
async fn a_refusal_is_a_status_of_grpc_in_the_head() {
    let (upstream, mut taken) = H2Upstream::taken().await;
    let world = world(&upstream.address.to_string(), "first_byte_timeout = \"50ms\"").await;
    let client = world.h2(DEMO).await;
    let reply = client.ask(&call(DEMO, "10S").body("x")).await;
    let field = |name: &str| reply.header(name).unwrap_or_default().to_owned();
    assert_eq!((reply.status, field("grpc-status").as_str(), reply.text()), (200, "16", ""));
    assert!(field("grpc-message").contains("API key") && field("content-type") == "application/grpc", "{reply:?}");
    let line = world.log.line_of(reply.request_id()).await;
    assert_eq!((&line["code"], &line["grpc_status"]), (&"missing_api_key".into(), &16.into()));
    let client = world.h2(BLOG).await;
    // The time that the caller grants, and that of the upstream: whichever is over first.
    for timeout in ["20m", "10S"] {
        let reply = client.ask(&call(BLOG, timeout).body("x")).await;
        assert_eq!((reply.status, reply.header("grpc-status")), (200, Some("4")), "{timeout}: {reply:?}");
        drop(within(taken.recv()).await);
    }
    // A client that speaks something else is answered as always.
    let reply = client.ask(&Ask::new("POST", BLOG, "/").field("Content-Type", "application/json").body("x")).await;
    reply.refused(504, "upstream_timeout");
    drop(client);
    world.end().await;
}

#[tokio::test]
async fn an_upstream_that_breaks_off_is_a_status_of_grpc_in_the_trailers() {
    let (upstream, mut taken) = H2Upstream::taken().await;
    let world = world(&upstream.address.to_string(), "first_byte_timeout = \"10s\"").await;
    let client = world.h2(BLOG).await;
    for (timeout, status) in [("60S", "14"), ("60S", "14"), ("300m", "4")] {
        let (response, _sending) = client.begin(&call(BLOG, timeout)).await;
        let mut asked = within(taken.recv()).await.unwrap();
        let mut answer = asked.begin(200, &[("content-type", "application/grpc")], false);
        send(&mut answer, Bytes::from_static(b"half"), false).await.unwrap();
        let mut reply = within(response).await.unwrap();
        assert_eq!(within(reply.body_mut().data()).await.unwrap().unwrap(), "half");
        if status == "14" {
            answer.send_reset(h2::Reason::INTERNAL_ERROR);
        }
        assert!(within(reply.body_mut().data()).await.is_none());
        let trailers: HeaderMap = within(reply.body_mut().trailers()).await.unwrap().expect("trailers");
        assert_eq!(trailers["grpc-status"].to_str().unwrap(), status);
        drop(answer);
    }
    drop(client);
    world.end().await;
}
