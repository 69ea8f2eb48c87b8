//! WebSocket: allowed on public sites, refused on APIs.

use contract::feed::{Entity, EntityName};
use contract::plan::Plan;
use contract::project::Project;

use crate::world::client::{Ask, status_of};
use crate::world::entities::project;
use crate::world::upstream::Act;
use crate::world::{BLOG, ORDERS, World};

pub(crate) fn upgrade(ask: Ask) -> Ask {
    ask.field("Connection", "Upgrade")
        .field("Upgrade", "websocket")
        .field("Sec-WebSocket-Version", "13")
        .field("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
}

#[tokio::test]
async fn a_public_site_supports_websockets() {
    let world = World::start().await;
    world.blog.next(Act::Echo);
    let mut client = world.tls(BLOG).await;
    // Bytes sent with the request belong to the WebSocket once the upstream has agreed.
    let mut ask = upgrade(Ask::get(BLOG, "/socket"));
    ask.body = b"early".to_vec();
    client.send(ask.to_bytes()).await;
    let head = client.head().await;
    assert_eq!(status_of(&head), 101);
    assert_eq!(head.get("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert!(head.get("upgrade").is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket")));
    assert!(head.get("x-request-id").is_some());
    assert_eq!(client.wire.exactly(5).await, b"early");
    for message in [&b"\x81\x05hello"[..], &[0; 3_000], b"\r\n\r\nGET / HTTP/1.1\r\n\r\n"] {
        client.send(message).await;
        assert_eq!(crate::world::within(client.wire.exactly(message.len())).await, message);
    }
    let request = world.blog.only_request();
    assert_eq!(request.head.get("sec-websocket-key"), Some("dGhlIHNhbXBsZSBub25jZQ=="));
    assert!(request.head.get("upgrade").is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket")));
    drop(client);
}

#[tokio::test]
async fn a_site_may_decline_and_answer_like_any_other() {
    let world = World::start().await;
    let mut client = world.tls(BLOG).await;
    let reply = client.ask(&upgrade(Ask::get(BLOG, "/"))).await;
    assert_eq!((reply.status, reply.text()), (200, "[]"));
    assert_eq!(client.ask(&Ask::get(BLOG, "/")).await.status, 200, "the connection stays a connection of requests");
}

// promise: edge.6
#[tokio::test]
async fn a_request_after_a_declined_upgrade_is_read_as_a_request() {
    let world = World::start().await;
    let mut client = world.tls(BLOG).await;
    let mut bytes = upgrade(Ask::get(BLOG, "/1")).to_bytes();
    bytes.extend(Ask::get(BLOG, "/2").field("Tollhouse-Identity-Token", "forged").to_bytes());
    client.send(bytes).await;
    assert_eq!(client.reply("GET").await.expect("the first response").status, 200);
    assert_eq!(client.reply("GET").await.expect("the second response").status, 200);
    let requests = world.blog.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|request| request.head.get("tollhouse-identity-token") != Some("forged")));
}

#[tokio::test]
async fn an_api_refuses_websockets() {
    let world = World::start().await;
    let reply = world.ask(upgrade(world.list())).await;
    assert_eq!((reply.status, reply.text()), (200, "[]"));
    let head = world.orders.only_request().head;
    assert_eq!((head.get("upgrade"), head.get("connection")), (None, None), "the upstream is not asked to switch");
    let stranger = upgrade(Ask::get(crate::world::DEMO, ORDERS));
    world.ask(stranger).await.refused(401, "missing_api_key");
}

#[tokio::test]
async fn no_upgrade_to_other_protocols_is_forwarded() {
    let world = World::start().await;
    let ask = Ask::get(BLOG, "/").field("Connection", "Upgrade, HTTP2-Settings").field("Upgrade", "h2c");
    assert_eq!(world.ask(ask.field("HTTP2-Settings", "AAMAAABkAAQAAP__")).await.status, 200);
    let head = world.blog.only_request().head;
    assert_eq!((head.get("upgrade"), head.get("http2-settings")), (None, None));
}

#[tokio::test]
async fn asking_for_another_protocol_lifts_no_limit() {
    let world = World::with(|setup| setup.blog = "body_bytes_max = 10").await;
    // Bytes after a WebSocket's head could be a body or frames; the gateway refuses the ambiguity.
    for (protocol, status, code) in [("websocket", 400, "body_not_allowed"), ("anything", 413, "body_too_large")] {
        let ask = Ask::new("POST", BLOG, "/").field("Connection", "Upgrade").field("Upgrade", protocol);
        let mut ask = ask.field("Transfer-Encoding", "chunked");
        ask.body = format!("20\r\n{}\r\n0\r\n\r\n", "x".repeat(0x20)).into_bytes();
        world.ask(ask.clone()).await.refused(status, code);
        ask.method = "GET".to_owned();
        world.ask(ask).await.refused(status, code);
    }
    assert!(world.blog.requests().iter().all(|request| !request.complete), "never a whole request");
}

// promise: domains.1
#[tokio::test]
async fn a_websocket_ends_when_its_domain_is_removed() {
    a_websocket_ends(async |world| world.control.remove(EntityName::Site(BLOG.parse().unwrap())).await).await;
}

#[tokio::test]
async fn a_websocket_ends_when_its_project_is_suspended() {
    let suspended = Project { suspended: true, ..project("blog", Plan::Pro) };
    a_websocket_ends(async |world| world.control.put(Entity::Project(suspended.clone())).await).await;
}

async fn a_websocket_ends(change: impl AsyncFnOnce(&World)) {
    let world = World::start().await;
    world.blog.next(Act::Echo);
    let mut client = world.tls(BLOG).await;
    client.send(upgrade(Ask::get(BLOG, "/")).to_bytes()).await;
    assert_eq!(status_of(&client.head().await), 101);
    client.send("hello").await;
    assert_eq!(client.wire.exactly(5).await, b"hello");
    change(&world).await;
    assert_eq!(client.rest().await, b"");
}
