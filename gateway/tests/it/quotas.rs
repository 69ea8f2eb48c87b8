//! Quotas: a request is charged to minute and day or to neither, and the headers describe both.

use std::time::Duration;

use contract::feed::{Entity, EntityName};
use contract::plan::Plan;
use contract::project::{Project, ProjectUid};

use crate::world::client::{Ask, Reply};
use crate::world::entities::{TestKey, limited, project};
use crate::world::{DAY_END, DEMO, MINUTE_END, NOW, ORDERS, SHOP, World};

/// A world with these limits for the demo project.
async fn world_with(per_minute: u32, per_day: u32) -> World {
    let world = World::with(|setup| {
        setup.entities.retain(|entity| entity.name() != EntityName::Project("demo".parse().unwrap()));
        setup.entities.push(Entity::Project(limited("demo", per_minute, per_day)));
    });
    world.await
}

#[track_caller]
fn assert_refused(reply: &Reply, code: &str, limit: i64, reset: i64, now: i64) {
    reply.refused(429, code);
    assert_eq!(reply.rate_limit_headers(), (limit, 0, reset));
    assert_eq!(reply.number("retry-after"), reset - now);
}

// rule: 8.7, 8.8, 8.9
#[tokio::test]
async fn every_response_shows_the_remaining_requests() {
    let world = World::start().await;
    let mut client = world.tls(DEMO).await;
    for left in (290..300).rev() {
        let reply = client.ask(&world.list()).await;
        assert_eq!((reply.status, reply.rate_limit_headers()), (200, (300, left, MINUTE_END)));
        let (day, seconds) = (9_700 + left, DAY_END - NOW);
        assert_eq!(reply.header("ratelimit-policy"), Some("\"minute\";q=300;w=60, \"day\";q=10000;w=86400"));
        assert_eq!(
            reply.header("ratelimit"),
            Some(format!("\"minute\";r={left};t=50, \"day\";r={day};t={seconds}").as_str())
        );
        let exposed = reply.header("access-control-expose-headers").expect("scripts may read the headers");
        for name in ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After", "X-Request-Id"] {
            assert!(exposed.split(", ").any(|one| one == name), "{name}");
        }
    }
}

/// A project is removed and another one takes its name: it has its own quota, and the old key opens nothing of it, even
/// at a gateway that missed the removal.
#[tokio::test]
async fn a_project_of_the_same_name_has_its_own_quota() {
    let world = world_with(3, 100).await;
    let mut client = world.tls(DEMO).await;
    for left in [2, 1] {
        assert_eq!(client.ask(&world.list()).await.rate_limit_headers(), (3, left, MINUTE_END));
    }
    let uid = ProjectUid::from_random([7; 16]);
    world.control.put(Entity::Project(Project { uid: uid.clone(), ..limited("demo", 3, 100) })).await;
    client.ask(&world.list()).await.refused(401, "invalid_api_key");
    let mut key = TestKey::new("demo", 9);
    key.record.project_uid = uid;
    world.control.put(key.entity()).await;
    let reply = client.ask(&Ask::get(DEMO, ORDERS).key(&key.text)).await;
    assert_eq!((reply.status, reply.rate_limit_headers()), (200, (3, 2, MINUTE_END)));
}

// rule: 7.429, 8.1, 8.2, 8.12
#[tokio::test]
async fn a_request_beyond_the_minutes_limit_gets_retry_after() {
    let world = world_with(3, 100).await;
    let mut client = world.tls(DEMO).await;
    for left in [2, 1, 0] {
        assert_eq!(client.ask(&world.list()).await.rate_limit_headers(), (3, left, MINUTE_END));
    }
    for _ in 0..5 {
        let reply = client.ask(&world.list()).await;
        assert_refused(&reply, "rate_limit_exceeded", 3, MINUTE_END, NOW);
        assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
    }
    assert_eq!(world.orders.requests().len(), 3, "refused requests are never forwarded");
    // A client that waits exactly as long as `Retry-After` says is admitted.
    world.clock.advance(Duration::from_secs(u64::try_from(MINUTE_END - NOW).unwrap()));
    let reply = client.ask(&world.list()).await;
    assert_eq!((reply.status, reply.rate_limit_headers()), (200, (3, 2, MINUTE_END + 60)));
    assert!(reply.header("ratelimit").is_some_and(|both| both.contains("\"day\";r=96")), "five refusals cost no day");
}

// rule: 7.429, 8.1, 8.9
#[tokio::test]
async fn the_request_that_exceeds_the_day_waits_for_midnight() {
    let world = world_with(10, 3).await;
    let mut client = world.tls(DEMO).await;
    for left in [2, 1, 0] {
        assert_eq!(client.ask(&world.list()).await.rate_limit_headers(), (3, left, DAY_END), "the day has less");
    }
    assert_refused(&client.ask(&world.list()).await, "daily_quota_exceeded", 3, DAY_END, NOW);
    world.clock.advance(Duration::from_mins(1));
    assert_refused(&client.ask(&world.list()).await, "daily_quota_exceeded", 3, DAY_END, NOW + 60);
    world.clock.advance(Duration::from_secs(u64::try_from(DAY_END - NOW - 60).unwrap()));
    assert_eq!(client.ask(&world.list()).await.rate_limit_headers(), (3, 2, DAY_END + 86_400));
}

// rule: 8.10
#[tokio::test]
async fn all_keys_and_hosts_of_a_project_share_one_quota() {
    let world = world_with(3, 100).await;
    let second = TestKey::new("demo", 2);
    world.control.put(second.entity()).await;
    assert_eq!(world.ask(world.list()).await.number("x-ratelimit-remaining"), 2);
    let reply = world.ask(Ask::get(DEMO, ORDERS).key(&second.text)).await;
    assert_eq!(reply.number("x-ratelimit-remaining"), 1);
    let reply = world.ask(Ask::get(SHOP, ORDERS).key(&second.text)).await;
    assert_eq!(reply.number("x-ratelimit-remaining"), 0);
    world.ask(world.list()).await.refused(429, "rate_limit_exceeded");
}

// rule: 8.6.1, 8.6.2, 8.6.3
#[tokio::test]
async fn each_plan_has_the_limits_that_are_published() {
    let world = World::start().await;
    for (plan, minute, day) in [(Plan::Free, 60, 1_000), (Plan::Pro, 300, 10_000), (Plan::Business, 1_000, 100_000)] {
        world.control.put(Entity::Project(project("demo", plan))).await;
        let reply = world.ask(world.list()).await;
        let policy = format!("\"minute\";q={minute};w=60, \"day\";q={day};w=86400");
        assert_eq!(reply.header("ratelimit-policy"), Some(policy.as_str()));
        assert_eq!(reply.number("x-ratelimit-limit"), minute);
    }
}

#[tokio::test]
async fn counts_survive_a_restart_of_the_gateway() {
    let mut world = world_with(3, 100).await;
    assert_eq!(world.ask(world.list()).await.number("x-ratelimit-remaining"), 2);
    world.begin_stop();
    world.stopped().await.expect("a clean end");
    world.run().await;
    world.is_ready().await;
    assert_eq!(world.ask(world.list()).await.number("x-ratelimit-remaining"), 1);
}

// rule: 8.3, 8.11
#[tokio::test]
async fn a_key_that_keeps_asking_after_429_is_banned_for_a_while_and_its_siblings_are_not() {
    let world = world_with(2, 10_000).await;
    let sibling = TestKey::new("demo", 2);
    world.control.put(sibling.entity()).await;
    let mut client = world.tls(DEMO).await;
    for _ in 0..2 {
        assert_eq!(client.ask(&world.list()).await.status, 200);
    }
    client.ask(&world.list()).await.refused(429, "rate_limit_exceeded");
    // Refusals within a second of the first one do not count as abuse yet.
    for _ in 0..30 {
        client.ask(&world.list()).await.refused(429, "rate_limit_exceeded");
    }
    world.clock.advance(Duration::from_millis(1_001));
    for _ in 0..20 {
        client.ask(&world.list()).await.refused(429, "rate_limit_exceeded");
    }
    let until = NOW + 1 + 60;
    let reply = client.ask(&world.list()).await;
    reply.refused(429, "api_key_banned");
    assert_eq!(reply.rate_limit_headers(), (2, 0, until));
    assert_eq!(reply.number("retry-after"), 60);
    let line = world.log.line_of(reply.request_id()).await;
    assert_eq!(line["api_key_id"], world.key.record.id.as_str());
    // The other key of the project is refused for the quota alone.
    let other = world.ask(Ask::get(DEMO, ORDERS).key(&sibling.text)).await;
    other.refused(429, "rate_limit_exceeded");
    let (_, bans) = world.admin.get("/bans").await;
    assert!(bans.contains(world.key.record.id.as_str()), "{bans}");
    // Requests during the ban do not prolong it.
    world.clock.advance(Duration::from_secs(59));
    client.ask(&world.list()).await.refused(429, "api_key_banned");
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(client.ask(&world.list()).await.status, 200);
}

#[tokio::test]
async fn bans_and_lifts_need_an_operators_pass() {
    let world = World::start().await;
    let token = world.operator();
    let path = format!("/bans/{}", world.key.record.id);
    let (status, _) = world.admin.ask("POST", &format!("{path}?seconds=600"), "").await;
    assert_eq!(status, 401);
    assert_eq!(world.ask(world.list()).await.status, 200);
    let (status, _) = world.admin.ask("POST", &format!("{path}?seconds=600"), &token).await;
    assert_eq!(status, 200);
    let reply = world.ask(world.list()).await;
    reply.refused(429, "api_key_banned");
    assert_eq!((reply.number("retry-after"), reply.number("x-ratelimit-reset")), (600, NOW + 600));
    let (status, _) = world.admin.ask("DELETE", &path, &token).await;
    assert_eq!(status, 200);
    assert_eq!(world.ask(world.list()).await.number("x-ratelimit-remaining"), 298, "a ban costs nothing");
}
