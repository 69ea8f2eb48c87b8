//! Redis and the network to it fail in every way. No request gets an error, and no limit is exceeded.

use std::time::Instant;

use contract::time::UnixSeconds;

use super::*;
use crate::world::credentials::identities;
use crate::world::upstream::{Act, response};

/// Sends requests one after the other to the nodes in turn; returns the results.
async fn in_turn(fleet: &Fleet, tenant: usize, requests: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let mut connections = Vec::new();
    for node in 0..fleet.nodes.len() {
        connections.push(fleet.connect(node, tenant).await);
    }
    for number in 0..requests {
        let reply = connections[number % connections.len()].try_ask(&fleet.ask(tenant)).await;
        outcome.record(reply.ok().as_ref());
    }
    outcome
}

pub(super) async fn all_are_back(fleet: &Fleet) {
    for number in 0..fleet.nodes.len() {
        fleet.serves(number).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_lose_nothing_and_grant_nothing_twice() {
    let limits = [(1_000, 100_000); 3];
    let turn = TURN.lock().await;
    // Patient, so that a slow call on a busy machine does not count as lost. Bans are off, because a key that continues
    // after 429 would be banned before its minute is full.
    let quota = "bans = \"off\"\non_store_down = \"deny\"";
    let fleet = Fleet::over(Redis::in_a_fresh_minute(), &[0; 3], &limits, quota, "300ms", turn).await;
    // A minute may end in the middle; three in a row do not.
    for tenant in 0..limits.len() {
        for proxy in &fleet.proxies {
            proxy.lose(20);
        }
        let mut outcome = Outcome::default();
        for _ in 0..4 {
            outcome.add(fleet.burst(tenant, 1_000).await);
        }
        for proxy in &fleet.proxies {
            proxy.lose(0);
        }
        all_are_back(&fleet).await;
        // On a busy machine a call may still be late, and its requests are refused.
        let mut bursts = 0;
        while outcome.total() < 1_000 && outcome.admitted.len() <= 1 {
            bursts += 1;
            assert!(bursts <= 20, "all that the limit allows is let through: {outcome:?}");
            outcome.add(fleet.burst(tenant, 3_000).await);
        }
        outcome.only(&[200, 429, 503]);
        assert!(outcome.admitted.values().all(|admitted| *admitted <= 1_000), "{outcome:?}");
        eventually("Redis has all admitted requests", async || {
            (fleet.day_charged(tenant) == u64::from(outcome.total())).then_some(())
        })
        .await;
        if outcome.admitted.len() == 1 {
            assert_eq!(outcome.total(), 1_000, "{outcome:?}");
            return;
        }
    }
    panic!("three attempts, and each straddled a minute");
}

// promise: faults.4
#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_node_has_its_share_and_the_others_stay_exact() {
    // Patient, so that the other nodes do not seem cut off on a busy machine.
    let limits = [(300, 100_000); 3];
    let fleet = Fleet::in_a_fresh_minute(3, &limits, "on_store_down = \"share\"").await;
    // A minute may end in the middle; three in a row do not.
    for tenant in 0..limits.len() {
        let before = in_turn(&fleet, tenant, 30).await;
        fleet.proxies[0].cut(true);
        eventually("the node knows", async || {
            let metrics = fleet.nodes[0].admin.metrics().await;
            metrics.get("edge_quota_mode{mode=\"share\"}").is_some_and(|on| on == "1").then_some(())
        })
        .await;
        let alone = fleet.burst_at(0..1, tenant, 1_000).await;
        alone.only(&[200, 429, 503]);
        let others = fleet.burst_at(1..3, tenant, 1_000).await;
        others.only(&[200, 429]);
        fleet.proxies[0].cut(false);
        all_are_back(&fleet).await;
        let total = before.total() + alone.total() + others.total();
        eventually("the day is right again, and counts nothing twice", async || {
            (fleet.day_charged(tenant) == u64::from(total)).then_some(())
        })
        .await;
        let mut minutes = before.admitted.keys().chain(alone.admitted.keys()).chain(others.admitted.keys());
        let first = minutes.next();
        if minutes.all(|minute| Some(minute) == first) {
            // At most the share of one of three nodes is too much.
            assert!(alone.total() <= 100, "{alone:?}");
            // The store's count is exact except for the lost node's lease, a twentieth of the minute.
            let known = before.total() + others.total();
            assert!((300 - 15..=300).contains(&known), "{before:?} {others:?}");
            return;
        }
    }
    panic!("three attempts, and each straddled a minute");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_network_delays_only_the_first_requests() {
    let fleet = Fleet::start(1, &[(100_000, 1_000_000)], "on_store_down = \"allow\"").await;
    fleet.proxies[0].swallow(true);
    let connection = fleet.connect(0, 0).await;
    eventually("the node stops asking", async || {
        assert_eq!(connection.ask(&fleet.ask(0)).await.status, 200, "the store's fault refuses no request");
        let metrics = fleet.nodes[0].admin.metrics().await;
        metrics.get("edge_quota_mode{mode=\"allow\"}").is_some_and(|on| on == "1").then_some(())
    })
    .await;
    let outcome = fleet.burst(0, 2_000).await;
    outcome.only(&[200]);
    fleet.proxies[0].swallow(false);
    all_are_back(&fleet).await;
    eventually("Redis has all admitted requests", async || {
        (fleet.day_charged(0) >= u64::from(outcome.total())).then_some(())
    })
    .await;
}

// promise: faults.2
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_store_causes_no_error_and_counts_right_when_it_thaws() {
    let fleet = Fleet::start(2, &[(10_000_000, 100_000_000)], "on_store_down = \"share\"").await;
    let mut outcome = fleet.burst(0, 500).await;
    fleet.redis.freeze();
    let began = Instant::now();
    let long = Duration::from_secs(u64::from(extent("FLEET_FREEZE", 0)));
    let mut slowest = Vec::new();
    loop {
        let connection = fleet.connect(0, 0).await;
        let asked = Instant::now();
        outcome.record(connection.try_ask(&fleet.ask(0)).await.ok().as_ref());
        slowest.push(asked.elapsed());
        outcome.add(fleet.burst(0, 1_000).await);
        if began.elapsed() >= long && slowest.len() > 1 {
            break;
        }
    }
    outcome.only(&[200]);
    slowest.sort_unstable();
    fleet.redis.thaw();
    let thawed = Instant::now();
    all_are_back(&fleet).await;
    println!(
        "frozen for {:?}: a request between the bursts took at most {:?}; back {:?} after the thaw",
        began.elapsed(),
        slowest[slowest.len() - 1],
        thawed.elapsed()
    );
    outcome.add(fleet.burst(0, 500).await);
    eventually("the day has all requests admitted meanwhile", async || {
        (fleet.day_charged(0) == u64::from(outcome.total())).then_some(())
    })
    .await;
}

// promise: faults.3
#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_for_a_slow_store_only_within_the_budget() {
    let fleet = Fleet::start(1, &[(100_000, 1_000_000)], "on_store_down = \"deny\"").await;
    eventually("a store that has just begun knows every node", async || {
        let reply = fleet.connect(0, 0).await.ask(&fleet.ask(0)).await;
        (reply.status == 200).then_some(())
    })
    .await;
    fleet.proxies[0].delay(Duration::from_millis(10));
    fleet.burst(0, 200).await.only(&[200]);
    fleet.proxies[0].delay(Duration::from_millis(400));
    eventually("the node stops asking", async || {
        let reply = fleet.connect(0, 0).await.ask(&fleet.ask(0)).await;
        assert!(matches!(reply.status, 200 | 503), "{reply:?}");
        if reply.status == 503 {
            reply.refused(503, "quota_unavailable");
            assert_eq!(reply.number("retry-after"), 1);
        }
        let metrics = fleet.nodes[0].admin.metrics().await;
        metrics.get("edge_quota_mode{mode=\"deny\"}").is_some_and(|on| on == "1").then_some(())
    })
    .await;
    // A gateway without its store is still ready.
    assert_eq!(fleet.nodes[0].admin.get("/readyz").await.0, 200);
    fleet.proxies[0].delay(Duration::ZERO);
    all_are_back(&fleet).await;
    fleet.burst(0, 100).await.only(&[200]);
}

// promise: faults.1
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_and_emptied_store_resets_no_limit() {
    let mut fleet = Fleet::start(3, &[(600, 100_000)], "on_store_down = \"deny\"").await;
    let mut outcome = fleet.burst(0, 400).await;
    fleet.redis.kill();
    let during = fleet.burst(0, 300).await;
    during.only(&[200, 429, 503]);
    outcome.add(during);
    fleet.redis.restart();
    all_are_back(&fleet).await;
    outcome.add(fleet.burst(0, 1_500).await);
    outcome.only(&[200, 429, 503]);
    assert!(outcome.admitted.values().all(|admitted| *admitted <= 600), "{outcome:?}");
    eventually("Redis has all admitted requests", async || {
        (fleet.day_charged(0) == u64::from(outcome.total())).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_store_is_reported_with_the_next_step_until_it_is_back() {
    let fleet = Fleet::start(1, &[(100, 1_000)], "").await;
    let node = &fleet.nodes[0];
    let trouble = async || {
        let status: serde_json::Value = serde_json::from_str(&node.admin.get("/status").await.1).unwrap();
        assert_eq!(status["quota"]["store_trouble"].is_null(), status["quota"]["store_remedy"].is_null(), "{status}");
        status["quota"]["store_remedy"].as_str().map(str::to_owned)
    };
    eventually("nothing is wrong", async || trouble().await.is_none().then_some(())).await;
    fleet.proxies[0].cut(true);
    let next_step = "start the quota store, or repair the network to it";
    eventually("the status names it", async || trouble().await.filter(|said| said == next_step)).await;
    eventually("the log names it", async || {
        let log = std::fs::read_to_string(&node.log).unwrap();
        log.lines().find(|line| line.contains("lost the quota store") && line.contains(next_step)).map(drop)
    })
    .await;
    fleet.proxies[0].cut(false);
    eventually("it ends with its cause", async || trouble().await.is_none().then_some(())).await;
}

// promise: edge.22
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_starts_without_its_store_and_finds_it_later() {
    let fleet = Fleet::start(1, &[(100, 1_000)], "on_store_down = \"deny\"").await;
    fleet.proxies[0].cut(true);
    let second = fleet.spawn(0, "on_store_down = \"deny\"", 0);
    second.is_ready().await;
    let reply = H2::connect(second.https, &fleet.tenants[0].host).await.ask(&fleet.ask(0)).await;
    reply.refused(503, "quota_unavailable");
    fleet.proxies[0].cut(false);
    eventually("it counts", async || {
        let reply = H2::connect(second.https, &fleet.tenants[0].host).await.ask(&fleet.ask(0)).await;
        (reply.status == 200).then_some(())
    })
    .await;
}

// promise: edge.22
#[tokio::test(flavor = "multi_thread")]
async fn gateways_serve_while_store_and_control_plane_are_dead_and_one_of_them_restarts() {
    let dead = Duration::from_secs(extent("DEAD_SECONDS", 4).into());
    let mut fleet = Fleet::start(2, &[(1_000_000, 100_000_000)], "").await;
    fleet.burst(0, 200).await.only(&[200]);
    fleet.redis.kill();
    fleet.control.die().await;
    let died = Instant::now();
    let mut answers = Outcome::default();
    let mut has_restarted = false;
    while died.elapsed() < dead {
        if !has_restarted && died.elapsed() >= dead / 2 {
            fleet.nodes[0].process.terminate();
            assert!(fleet.nodes[0].process.ended().await.success(), "a clean end");
            fleet.nodes[0].process = fleet.launch(0, 0).0;
            fleet.nodes[0].is_ready().await;
            has_restarted = true;
        }
        answers.add(fleet.burst(0, 100).await);
    }
    println!("store and control plane dead for {dead:?}, one gateway restarted meanwhile: {:?}", answers.statuses);
    answers.only(&[200]);
    assert!(has_restarted && answers.broken == 0, "{answers:?}");
    fleet.redis.restart();
    fleet.control.revive();
    all_are_back(&fleet).await;
}

// promise: faults.9
#[tokio::test(flavor = "multi_thread")]
async fn gateways_with_wrong_clocks_count_the_same_minutes() {
    let clocks = [0, 90, -45];
    let fleet = Fleet::with_clocks(&clocks, &[(300, 100_000)], "on_store_down = \"deny\"", "1s").await;
    fleet.fresh_minute(20).await;
    let mut resets = Vec::new();
    for (node, off_by) in clocks.into_iter().enumerate() {
        let reply = fleet.connect(node, 0).await.ask(&fleet.ask(0)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        resets.push(reply.number("x-ratelimit-reset"));
        let shown = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(reply.header("date").unwrap()).unwrap();
        let wrong = shown.as_second() - jiff::Timestamp::now().as_second();
        assert!((wrong - i64::from(off_by)).abs() < 5, "the clock of node {node} is off by {wrong} s");
    }
    assert!(resets.iter().all(|reset| *reset == resets[0]), "{resets:?}");
    let outcome = fleet.burst(0, 900).await;
    outcome.only(&[200, 429]);
    assert_eq!(outcome.total() + 3, 300, "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_step_while_redis_is_away_moves_no_minute_and_fails_no_request() {
    let turn = TURN.lock().await;
    let limits = [(300, 100_000); 2];
    let fleet = Fleet::over(Redis::start(), &[1, 0, 0], &limits, "on_store_down = \"share\"", "1s", turn).await;
    fleet.control.show_real_time();
    let now = || jiff::Timestamp::now().as_second();
    let keys = identities();
    in_turn(&fleet, 0, 3).await.only(&[200]);
    fleet.redis.freeze();
    for node in &fleet.nodes {
        eventually("the gateway counts without its store", async || {
            let metrics = node.admin.metrics().await;
            metrics.get("edge_quota_mode{mode=\"share\"}").is_some_and(|on| on == "1").then_some(())
        })
        .await;
    }
    fleet.step_clock(0, 180);
    eventually("the clock has stepped, and the gateway knows it", async || {
        let (_, status) = fleet.nodes[0].admin.get("/status").await;
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        (status["clock_behind_milliseconds"].as_i64().unwrap() < -170_000).then_some(())
    })
    .await;
    // A project that this gateway has not met before the outage.
    let reply = fleet.connect(0, 1).await.ask(&fleet.ask(1)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!((0..=61).contains(&(reply.number("x-ratelimit-reset") - now())), "{reply:?}");
    let asked = fleet.orders.requests().pop().unwrap();
    let token = asked.head.get("tollhouse-identity-token").expect("a token");
    keys.verify(token, &["orders"], UnixSeconds(now())).expect("good for a service that has the right time");
    fleet.redis.thaw();
    all_are_back(&fleet).await;
    for node in 0..fleet.nodes.len() {
        for tenant in 0..limits.len() {
            let reply = fleet.connect(node, tenant).await.ask(&fleet.ask(tenant)).await;
            assert_eq!(reply.status, 200, "gateway {node}, project {tenant}: {reply:?}");
            let ahead = reply.number("x-ratelimit-reset") - now();
            assert!((0..=61).contains(&ahead), "gateway {node}, project {tenant}, {ahead} s: {reply:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_refused_by_a_service_costs_the_caller_no_quota() {
    let fleet = Fleet::start(1, &[(300, 100_000)], "on_store_down = \"deny\"").await;
    let connection = fleet.connect(0, 0).await;
    assert_eq!(connection.ask(&fleet.ask(0)).await.status, 200);
    let fields = "Content-Type: application/json\r\nTollhouse-Identity-Refused: token\r\n";
    fleet.orders.next(Act::Answer(response("401 Unauthorized", fields, "{}").into_bytes()));
    let reply = connection.ask(&fleet.ask(0)).await;
    reply.refused(503, "identity_refused");
    assert_eq!(reply.number("retry-after"), 1);
    assert!(reply.header("tollhouse-identity-refused").is_none(), "{reply:?}");
    eventually("the unit is back", async || (fleet.day_charged(0) == 1).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_a_wrong_clock_tells_callers_and_upstreams_the_time_of_the_others() {
    let turn = TURN.lock().await;
    let limits = [(300, 100_000)];
    let fleet = Fleet::over(Redis::start(), &[90, -90], &limits, "on_store_down = \"deny\"", "1s", turn).await;
    fleet.control.show_real_time();
    let now = || jiff::Timestamp::now().as_second();
    let keys = identities();
    for (node, behind) in [(0, -90_000), (1, 90_000)] {
        eventually("the gateway knows that its clock is wrong", async || {
            let (_, status) = fleet.nodes[node].admin.get("/status").await;
            let status: serde_json::Value = serde_json::from_str(&status).unwrap();
            let found = status["clock_behind_milliseconds"].as_i64().unwrap();
            ((found - behind).abs() < 5_000).then_some(())
        })
        .await;
        let connection = fleet.connect(node, 0).await;
        assert_eq!(connection.ask(&fleet.ask(0)).await.status, 200);
        let asked = fleet.orders.requests().pop().unwrap();
        let token = asked.head.get("tollhouse-identity-token").expect("a token");
        let verified = keys.verify(token, &["orders"], UnixSeconds(now())).expect("valid by a correct clock");
        assert!((verified.issued_at.0 - now()).abs() < 30, "{verified:?}");
        let refused = connection.ask(&Ask::get(&fleet.tenants[0].host, ORDERS)).await;
        assert_eq!(refused.status, 401);
        assert!((0..=61).contains(&(refused.number("x-ratelimit-reset") - now())), "{refused:?}");
    }
}
