//! State that all gateways share: bans, plan changes, revoked keys; and the limits in every answer.

use contract::feed::Effect;
use std::collections::BTreeMap;

use super::*;

/// Publishes, and waits until every node has applied it.
async fn everywhere(fleet: &Fleet, effect: Effect) {
    let revision = fleet.control.publish(effect);
    for node in &fleet.nodes {
        eventually("the change is applied", async || {
            (node.admin.metric("edge_replica_revision").await >= revision).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_ignores_429_is_banned_on_every_node_and_its_neighbour_is_not() {
    let fleet = Fleet::patient(2, &[(10, 100_000)], "on_store_down = \"deny\"", "1s").await;
    let other = TestKey::new("p0", 200);
    everywhere(&fleet, Effect::Put(other.entity())).await;
    let at = [fleet.connect(0, 0).await, fleet.connect(1, 0).await];
    let ask = fleet.ask(0);
    let banned = eventually("the key is banned", async || {
        let reply = at[0].ask(&ask).await;
        (reply.status == 429 && reply.text().contains("api_key_banned")).then_some(reply)
    })
    .await;
    let until = banned.number("x-ratelimit-reset");
    assert_eq!(banned.number("x-ratelimit-remaining"), 0);
    assert!((1..=60).contains(&banned.number("retry-after")));
    let elsewhere = eventually("the other node refuses it as well", async || {
        let reply = at[1].ask(&ask).await;
        reply.text().contains("api_key_banned").then_some(reply)
    })
    .await;
    assert_eq!(elsewhere.number("x-ratelimit-reset"), until, "until the same second");
    let reply = at[1].ask(&Ask::get(&fleet.tenants[0].host, ORDERS).key(&other.text)).await;
    assert!(!reply.text().contains("api_key_banned"), "another key of the project: {reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_higher_plan_and_a_revoked_key_take_effect_on_every_node() {
    let limits = [(20, 100_000); 3];
    let fleet = Fleet::in_a_fresh_minute(3, &limits, "bans = \"off\"\non_store_down = \"deny\"").await;
    let mut seen = Vec::new();
    // A minute may end in the middle; three in a row do not.
    for tenant in 0..limits.len() {
        let outcome = fleet.burst(tenant, 100).await;
        let raised = limited(&format!("p{tenant}"), 300, 100_000);
        everywhere(&fleet, Effect::Put(Entity::Project(raised))).await;
        let more = fleet.burst(tenant, 600).await;
        everywhere(&fleet, Effect::Remove(fleet.tenants[tenant].key.entity().name())).await;
        fleet.burst(tenant, 30).await.only(&[401]);
        if outcome.admitted.len() == 1 && outcome.admitted.keys().eq(more.admitted.keys()) {
            assert_eq!((outcome.total(), more.total()), (20, 280), "counts so far are kept: {outcome:?} {more:?}");
            return;
        }
        seen.push((outcome, more));
    }
    panic!("three attempts, and each straddled a minute: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_in_shadow_mode_is_measured_and_refuses_no_request() {
    let fleet = Fleet::start(1, &[(5, 100_000)], "shadow_plans = [\"enterprise\"]").await;
    let connection = fleet.connect(0, 0).await;
    for number in 0..40 {
        let reply = connection.ask(&fleet.ask(0)).await;
        assert_eq!(reply.status, 200, "{number}: {reply:?}");
        assert_eq!(reply.number("x-ratelimit-limit"), 5, "the figures are true");
    }
    let shadow = "edge_quota_decisions_total{outcome=\"shadow\",plan=\"enterprise\"}";
    assert!(fleet.nodes[0].admin.metric(shadow).await >= 30, "counted, and no key is banned for it");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_of_every_node_adds_up() {
    let fleet = Fleet::patient(3, &[(50, 100_000)], "bans = \"off\"\non_store_down = \"deny\"", "1s").await;
    let mut connections = Vec::new();
    for node in 0..3 {
        connections.push((fleet.connect(node, 0).await, BTreeMap::<i64, i64>::new()));
    }
    let unknown = TestKey::new("p0", 201);
    let began = std::time::Instant::now();
    // Windows follow the store's clock, which is another one shortly before midnight.
    let shown = fleet.redis.ask(&["TIME"]);
    let store_began: i64 = shown.lines().next().unwrap().parse().unwrap();
    let long = Duration::from_secs(u64::from(extent("FLEET_SECONDS", 0)));
    let mut number = 0;
    while number < 300 || began.elapsed() < long {
        let (connection, lowest) = &mut connections[number % 3];
        let ask = match number % 7 {
            0 => Ask::get(&fleet.tenants[0].host, "/nowhere").key(&fleet.tenants[0].key.text),
            1 => Ask::new("DELETE", &fleet.tenants[0].host, ORDERS).key(&fleet.tenants[0].key.text),
            2 if number < 100 => Ask::get(&fleet.tenants[0].host, ORDERS).key(&unknown.text),
            _ => fleet.ask(0),
        };
        let Ok(reply) = connection.try_ask(&ask).await else {
            // A connection that has carried its share of requests is ended politely.
            *connection = fleet.connect(number % 3, 0).await;
            continue;
        };
        assert!(matches!(reply.status, 200 | 401 | 404 | 405 | 429), "{reply:?}");
        let (limit, remaining, reset) = reply.rate_limit_headers();
        let now = store_began + began.elapsed().as_secs().cast_signed();
        assert!((0..=limit).contains(&remaining), "{reply:?}");
        assert!(reset > now - 2 && reset <= now + 86_401, "{reply:?}");
        assert_eq!(reply.header("retry-after").is_some(), reply.status == 429, "{reply:?}");
        if reply.status == 429 {
            assert_eq!(remaining, 0);
            assert!(now + reply.number("retry-after") >= reset - 1, "never before the reset: {reply:?}");
        }
        if reply.status != 401 {
            assert_eq!(limit, 50, "the minute binds");
            let before = lowest.entry(reset).or_insert(limit);
            assert!(remaining <= *before, "Remaining rises within a window on one node: {reply:?}");
            *before = remaining;
        }
        number += 1;
    }
    println!("{number} answers in {} s", began.elapsed().as_secs());
}

// promise: edge.18
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_under_load_is_refused_by_every_node() {
    let mut times = Vec::new();
    let quota = "bans = \"off\"\non_store_down = \"deny\"";
    let fleet = Fleet::patient(3, &[(1_000_000, 10_000_000)], quota, "1s").await;
    for repeat in 0..extent("FLEET_REPEATS", 2) {
        let key = TestKey::new("p0", u8::try_from(100 + repeat).unwrap());
        everywhere(&fleet, Effect::Put(key.entity())).await;
        let load = async {
            fleet.burst(0, 3_000).await.only(&[200]);
        };
        let revocation = async {
            let ask = Ask::get(&fleet.tenants[0].host, ORDERS).key(&key.text);
            let mut connections = Vec::new();
            for node in 0..3 {
                connections.push(fleet.connect(node, 0).await);
                assert_eq!(connections[node].ask(&ask).await.status, 200);
            }
            let revoked = std::time::Instant::now();
            let revision = fleet.control.publish(Effect::Remove(key.entity().name()));
            let refusals = connections.iter().zip(&fleet.nodes).map(async |(connection, node)| {
                eventually("the change is applied", async || {
                    (node.admin.metric("edge_replica_revision").await >= revision).then_some(())
                })
                .await;
                let seen = revoked.elapsed();
                // From the confirmation on, permanently.
                for _ in 0..20 {
                    connection.ask(&ask).await.refused(401, "invalid_api_key");
                }
                seen
            });
            futures_util::future::join_all(refusals).await
        };
        let ((), seen) = tokio::join!(load, revocation);
        times.extend(seen);
    }
    times.sort_unstable();
    println!(
        "{} revocations under load: median {:?}, last {:?}",
        times.len(),
        times[times.len() / 2],
        times[times.len() - 1]
    );
}
