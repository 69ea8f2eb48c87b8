//! 3.4: keys and data derived from them. The canary is a secret that must appear nowhere.

use crate::world::client::Ask;
use crate::world::{BLOG, DEMO, ORDERS, OTHER, World};

// promise: edge.13, edge.18
#[tokio::test]
async fn an_invalid_key_is_401_and_reaches_no_upstream() {
    let world = World::start().await;
    let key = &world.key.text;
    let mut broken = key.clone();
    let last = if broken.ends_with('a') { 'b' } else { 'a' };
    broken.pop();
    broken.push(last);
    let long = "x".repeat(4_000);
    for (what, value) in [
        ("no scheme", key.clone()),
        ("another scheme", format!("Basic {key}")),
        ("a key of another project", format!("Bearer {}", world.other_key.text)),
        ("a wrong checksum", format!("Bearer {broken}")),
        ("4 KB", format!("Bearer {long}")),
        ("two keys", format!("Bearer {key}, Bearer {key}")),
        ("quoted", format!("Bearer \"{key}\"")),
        ("in capitals", format!("Bearer {}", key.to_uppercase())),
        ("empty", "Bearer ".to_owned()),
    ] {
        let reply = world.ask(Ask::get(DEMO, ORDERS).field("Authorization", &value)).await;
        reply.refused(401, "invalid_api_key");
        assert!(reply.header("www-authenticate").is_some_and(|words| words.starts_with("Bearer")), "{what}");
        assert!(!reply.text().contains(key.as_str()), "{what}");
    }
    for target in [format!("{ORDERS}?api_key={key}"), format!("{ORDERS}?access_token={key}")] {
        world.ask(Ask::get(DEMO, &target)).await.refused(401, "missing_api_key");
    }
    let twice = Ask::get(DEMO, ORDERS).key(key).key(&world.other_key.text);
    let last = world.ask(twice).await;
    assert!(matches!(last.status, 400 | 401));
    world.assert_upstreams_untouched();
    world.log.line_of(last.request_id()).await;
    assert!(!world.log.text().contains(key.as_str()), "no key in a log");
}

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

// promise: edge.13
#[tokio::test]
async fn a_tenant_cannot_reach_anothers_project() {
    let world = World::start().await;
    for (host, key) in [(DEMO, &world.other_key.text), (OTHER, &world.key.text)] {
        world.ask(Ask::get(host, ORDERS).key(key)).await.refused(401, "invalid_api_key");
    }
    let mut client = world.tls(OTHER).await;
    client.ask(&Ask::get(DEMO, ORDERS).key(&world.key.text)).await.refused(421, "misdirected_request");
    world.assert_upstreams_untouched();
}
