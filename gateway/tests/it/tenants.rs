//! Tenants share upstreams and platform hosts; none can use up another's permits or read another's bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use contract::feed::Entity;
use contract::plan::Plan;
use contract::project::{Access, Project, ProjectUid};
use contract::site::{Serves, Site};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::upstream_responses::{Dice, random_response};
use crate::world::client::{Ask, Client};
use crate::world::entities::{TestKey, project, public, site};
use crate::world::upstream::{Act, response};
use crate::world::wire::{Framing, Head, Wire};
use crate::world::{BLOG, DEMO, ORDERS, OTHER, Setup, World};

/// A host of the platform, for keys of all projects.
const API: &str = "api.tollhouse.localhost";
const NEWS: &str = "news.tollhouse.localhost";

/// An upstream with eight permits, for a platform host with ten keys of one project and one of another.
async fn world_with_few_places() -> (World, Vec<TestKey>) {
    let keys: Vec<TestKey> = (2..12).map(|number| TestKey::new("demo", number)).collect();
    let world = World::with(|setup| {
        setup.orders = "in_flight_max = 8";
        let serves = Serves::Platform { upstream: "orders".parse().unwrap(), access: Access::Key };
        setup.entities.push(Entity::Site(Site { hostname: API.parse().unwrap(), serves, redirect: None }));
        setup.entities.extend(keys.iter().map(TestKey::entity));
    });
    (world.await, keys)
}

/// Another tenant is served on the same host and on its own, while a tenant with all its permits in use is refused.
async fn assert_others_are_served(world: &World, noisy: &TestKey) {
    world.ask(Ask::get(API, ORDERS).key(&noisy.text)).await.refused(429, "too_many_in_progress");
    world.ask(Ask::get(DEMO, ORDERS).key(&noisy.text)).await.refused(429, "too_many_in_progress");
    for host in [API, OTHER] {
        let reply = world.ask(Ask::get(host, ORDERS).key(&world.other_key.text)).await;
        assert_eq!(reply.status, 200, "{host}");
    }
}

#[tokio::test]
async fn unread_responses_of_one_key_leave_permits_of_the_platforms_host_to_others() {
    let (world, _) = world_with_few_places().await;
    let client = world.h2(API).await;
    let large = response("200 OK", "", &"x".repeat(1 << 20)).into_bytes();
    let mut unread = Vec::new();
    for number in 1..=7 {
        world.orders.next(Act::Answer(large.clone()));
        unread.push(client.hold(&Ask::get(API, ORDERS).key(&world.key.text)).await);
        world.orders.asked(number).await;
    }
    assert_others_are_served(&world, &world.key).await;
    drop(unread);
    crate::world::eventually("a place", async || {
        (world.ask(Ask::get(API, ORDERS).key(&world.key.text)).await.status == 200).then_some(())
    })
    .await;
}

/// A project is removed during its requests, and another takes its name: the requests do not count for the new one.
#[tokio::test]
async fn a_project_of_the_same_name_has_its_own_permits() {
    let (world, _) = world_with_few_places().await;
    let gate = Arc::new(Semaphore::new(0));
    let hold = async |key: &TestKey, count: usize| {
        let before = world.orders.requests().len();
        let mut waiting = Vec::new();
        for number in 1..=count {
            world.orders.next(Act::AnswerInTwo(Vec::new(), gate.clone(), response("200 OK", "", "[]").into_bytes()));
            let mut client = world.tls(API).await;
            client.send(Ask::get(API, ORDERS).key(&key.text).to_bytes()).await;
            world.orders.asked(before + number).await;
            waiting.push(client);
        }
        waiting
    };
    let of_the_first = hold(&world.key, 7).await;
    let uid = ProjectUid::from_random([7; 16]);
    world.control.put(Entity::Project(Project { uid: uid.clone(), ..project("demo", Plan::Pro) })).await;
    let mut key = TestKey::new("demo", 40);
    key.record.project_uid = uid;
    world.control.put(key.entity()).await;
    let reply = world.ask(Ask::get(API, ORDERS).key(&key.text)).await;
    assert_eq!(reply.status, 200, "the first project's requests do not count for the second");
    gate.add_permits(7);
    for mut client in of_the_first {
        assert_eq!(client.reply("GET").await.expect("a response").status, 200);
    }
    let of_the_second = hold(&key, 7).await;
    world.ask(Ask::get(API, ORDERS).key(&key.text)).await.refused(429, "too_many_in_progress");
    gate.add_permits(7);
    drop(of_the_second);
    world.end().await;
}

#[tokio::test]
async fn ten_keys_of_one_project_share_the_permits_of_one() {
    let (world, keys) = world_with_few_places().await;
    let mut waiting = Vec::new();
    for (number, key) in keys.iter().take(7).enumerate() {
        world.orders.next(Act::Hang);
        let mut client = world.tls(API).await;
        client.send(Ask::get(API, ORDERS).key(&key.text).to_bytes()).await;
        world.orders.asked(number + 1).await;
        waiting.push(client);
    }
    for key in &keys {
        assert_others_are_served(&world, key).await;
    }
}

/// A response that a connection does not outlive.
struct Last {
    method: &'static str,
    head: &'static str,
}

#[tokio::test]
async fn a_response_with_a_forbidden_body_is_the_last_of_its_connection() {
    let world = World::start().await;
    let last = [
        Last { method: "HEAD", head: "200 OK\r\nContent-Length: 9\r\n" },
        Last { method: "HEAD", head: "200 OK\r\nTransfer-Encoding: chunked\r\n" },
        Last { method: "GET", head: "204 No Content\r\nContent-Length: 9\r\n" },
        Last { method: "GET", head: "204 No Content\r\nTransfer-Encoding: chunked\r\n" },
        Last { method: "GET", head: "304 Not Modified\r\nContent-Length: 9\r\n" },
        Last { method: "GET", head: "304 Not Modified\r\nTransfer-Encoding: chunked\r\n" },
    ];
    for Last { method, head } in last {
        for (body, over_h2) in [("", false), ("", true), ("body", false)] {
            let before = world.blog.requests().len();
            let first = Ask::new(method, BLOG, "/");
            let first = if body.is_empty() { first } else { first.body(body) };
            world.blog.next(Act::Answer(format!("HTTP/1.1 {head}ETag: \"1\"\r\n\r\n").into_bytes()));
            let reply = if over_h2 { world.h2(BLOG).await.ask(&first).await } else { world.ask(first.clone()).await };
            let what = format!("{method} {head} {body} {over_h2}");
            assert_eq!(format!("{}", reply.status), head[..3], "{what}");
            assert_eq!(reply.header("etag"), Some("\"1\""), "{what}");
            let line = world.log.line_of(reply.request_id()).await;
            assert_eq!((line.get("error"), line.get("code")), (None, None), "{what}");
            let second = Ask::new("POST", BLOG, "/").body("more");
            assert_eq!(world.ask(second).await.status, 200, "{what}");
            assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200, "{what}");
            let connections: Vec<usize> = world.blog.requests()[before..].iter().map(|one| one.connection).collect();
            assert_eq!(connections.iter().filter(|one| **one == connections[0]).count(), 1, "{what}: {connections:?}");
        }
    }
}

/// The world with two public sites behind one upstream.
async fn world_with_two_sites(change: impl FnOnce(&mut Setup)) -> World {
    World::with(|setup| {
        setup.entities.push(Entity::Project(public("news")));
        setup.entities.push(site(NEWS, "news"));
        change(setup);
    })
    .await
}

#[tokio::test]
async fn a_connection_to_an_upstream_carries_requests_of_one_tenant() {
    for (settings, expected) in [("", [0, 1, 0, 1]), ("shared_connections = true", [0, 0, 0, 0])] {
        let world = world_with_two_sites(|setup| setup.blog = settings).await;
        for host in [BLOG, NEWS, BLOG, NEWS] {
            assert_eq!(world.ask(Ask::get(host, "/")).await.status, 200);
        }
        let connections: Vec<usize> = world.blog.requests().iter().map(|request| request.connection).collect();
        assert_eq!(connections, expected, "{settings}");
        world.end().await;
    }
}

#[tokio::test]
async fn idle_connections_of_a_tenant_are_closed_for_those_of_others() {
    let world = world_with_two_sites(|setup| setup.blog = "in_flight_max = 1").await;
    for host in [BLOG, NEWS, BLOG] {
        assert_eq!(world.ask(Ask::get(host, "/")).await.status, 200);
    }
    let connections: Vec<usize> = world.blog.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 1, 2], "there are never more connections than places");
}

/// An upstream that answers at random, and holds back some bytes until the next request has arrived on the connection,
/// the latest possible time.
async fn random_upstream(seed: u64, asked: Arc<Mutex<Vec<String>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        let mut seed = seed;
        while let Ok((stream, _)) = listener.accept().await {
            seed += 1;
            connections.spawn(answer_at_random(stream, Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)), asked.clone()));
        }
    });
    address
}

async fn answer_at_random(stream: TcpStream, mut dice: Dice, asked: Arc<Mutex<Vec<String>>>) {
    let mut wire = Wire::new(stream);
    let mut late = Vec::new();
    while let Ok(Some(raw_head)) = wire.raw_head().await {
        let head = Head::parse(&raw_head);
        let host = head.get("host").expect("a host").to_owned();
        asked.lock().push(host.clone());
        // Bytes of the previous exchange, at the worst time.
        if !late.is_empty() && wire.send(&late).await.is_err() {
            return;
        }
        wire.body(head.framing(Framing::Length(0))).await;
        let mut bytes = random_response(&mut dice, &host);
        if dice.below(3) == 0 {
            bytes.extend(random_response(&mut dice, &host));
        }
        let kept = usize::try_from(dice.below(bytes.len() as u64)).unwrap();
        late = if dice.below(2) == 0 { bytes.split_off(kept) } else { random_response(&mut dice, &host) };
        if wire.send(&bytes).await.is_err() || dice.below(8) == 0 {
            return wire.close().await;
        }
    }
}

#[tokio::test]
async fn no_byte_of_an_upstream_reaches_another_tenant() {
    const ASKED: usize = 400;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let upstream = random_upstream(0, asked.clone()).await;
    // Half a response may be waited for: not for long.
    let world = world_with_two_sites(|setup| {
        setup.blog = "first_byte_timeout = \"50ms\"";
        setup.blog_endpoints = vec![upstream];
    })
    .await;
    let mut dice = Dice(0x746f_6c6c);
    let mut served = 0;
    let hosts = [BLOG, NEWS];
    for _ in 0..ASKED {
        let host = dice.one_of(&hosts);
        let ask = Ask::new(dice.one_of(&["GET", "HEAD", "GET", "DELETE"]), host, "/");
        let ask = if dice.below(3) == 0 { Ask::new("POST", host, "/").body("body") } else { ask };
        let reply = if dice.below(2) == 0 {
            world.h2(host).await.try_ask(&ask).await.ok()
        } else {
            Client::tls(world.https, host).await.try_ask(&ask).await
        };
        let Some(reply) = reply else { continue };
        served += usize::from(reply.status < 500);
        let all = format!("{:?} {}", reply.head, String::from_utf8_lossy(&reply.body));
        for stranger in hosts.iter().filter(|one| **one != host) {
            assert!(!all.contains(stranger), "{host} was given {all}");
        }
    }
    let asked = asked.lock();
    assert!(served > ASKED / 4, "{served} were served");
    assert!(hosts.iter().all(|host| asked.iter().filter(|one| one == host).count() > ASKED / 4));
}
