//! Keys and data derived from them. The canary is a secret that must appear nowhere.

use crate::world::client::Ask;
use crate::world::{BLOG, DEMO, ORDERS, World};

// promise: edge.13
#[tokio::test]
async fn every_spelling_of_host_method_and_version_uses_one_bucket() {
    let world = World::start().await;
    let mut left = Vec::new();
    for host in [DEMO, "DEMO.tollhouse.localhost", "demo.tollhouse.localhost."] {
        let mut client = world.tls(DEMO).await;
        left.push(client.ask(&Ask::get(host, ORDERS).key(&world.key.text)).await.number("x-ratelimit-remaining"));
    }
    let head = Ask::new("HEAD", DEMO, ORDERS).key(&world.key.text);
    left.push(world.ask(head).await.number("x-ratelimit-remaining"));
    left.push(world.h2(DEMO).await.ask(&world.list()).await.number("x-ratelimit-remaining"));
    assert_eq!(left, [299, 298, 297, 296, 295]);
}

// promise: edge.13
#[tokio::test]
async fn no_request_breaks_a_log_line() {
    let world = World::start().await;
    let agent = format!("\x1b[31m\"}}{{\"status\":200,{}", "A".repeat(6_000));
    for name in ["User-Agent", "Referer", "X-Request-Id", "Accept"] {
        let agent = agent.replace('\x1b', "");
        let reply = world.ask(Ask::get(BLOG, "/%0d%0a%22,%7b").field(name, &agent)).await;
        assert_eq!(reply.status, 200);
        let line = world.log.line_of(reply.request_id()).await;
        assert!(line.to_string().len() < 4_000, "a line has a bound: {}", line.to_string().len());
    }
    assert_eq!(world.log.lines().len(), 4);
}
