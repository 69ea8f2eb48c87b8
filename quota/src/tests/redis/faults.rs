//! Redis down, frozen, emptied, read-only, full, with lost scripts; and back.

use super::nodes::Nodes;
use super::*;
use crate::settings::OnStoreDown;

pub(super) fn named(name: &str) -> ProjectUid {
    name.parse().unwrap()
}

/// Charges at the nodes in turn; returns how many requests were admitted.
pub(super) async fn ask_in_turn(nodes: &Nodes, project: &ProjectUid, limits: Limits, requests: usize) -> u32 {
    let mut admitted = 0;
    for number in 0..requests {
        let outcome = nodes.all[number % nodes.all.len()].charge(project, limits, &key(1)).await;
        admitted += u32::from(outcome.is_ok());
    }
    admitted
}

/// The minute of the server's clock.
pub(super) fn minute(redis: &Redis) -> i64 {
    redis.ask(&["TIME"]).lines().next().unwrap().parse::<i64>().unwrap() / 60
}

pub(super) async fn short_budget(redis: &Redis, count: u64, on_store_down: OnStoreDown) -> Nodes {
    Nodes::start(&[redis.port], RedisMode::Standalone, count, |settings| {
        settings.call_budget = Duration::from_millis(100);
        settings.on_store_down = on_store_down;
    })
    .await
}

// promise: faults.1
#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_each_node_has_its_share_and_the_day_is_right_afterwards() {
    let mut redis = Redis::in_a_fresh_minute();
    let nodes = short_budget(&redis, 3, OnStoreDown::Share).await;
    for attempt in 0..5 {
        let (project, limits) = (named(&format!("share-{attempt}")), limits(300, 10_000));
        let began = minute(&redis);
        let mut admitted = ask_in_turn(&nodes, &project, limits, 30).await;
        assert_eq!(admitted, 30);
        redis.kill();
        eventually("every node knows", async || {
            admitted += ask_in_turn(&nodes, &project, limits, 3).await;
            nodes.all.iter().all(|node| node.mode() == Mode::Share)
        })
        .await;
        // No request waits for an unavailable store, none gets an error of ours, and the shares are bounded.
        for number in 0..1_200 {
            match nodes.all[number % 3].charge(&project, limits, &key(1)).await {
                Ok(_) => admitted += 1,
                // The share is spent, the limit is not: 503, because a 429 would be wrong.
                Err(ChargeError::Exceeded { .. } | ChargeError::Unavailable { .. }) => {}
                other @ Err(ChargeError::Banned { .. }) => panic!("{other:?}"),
            }
        }
        redis.restart();
        eventually("every node is back", async || nodes.all.iter().all(|node| node.mode() == Mode::Lease)).await;
        let ended = minute(&redis);
        // Every node repeats its charges to the emptied server: nothing is lost or counted twice.
        eventually("the record equals the admitted requests", async || {
            let record = nodes.all[0].usage(&project).await;
            matches!(record, Ok(Some(record)) if record.day_charged == u64::from(admitted))
        })
        .await;
        if ended == began {
            // Within one minute: the earlier grants, and a share of the whole limit for each node.
            assert!(admitted <= 300 + 30, "{admitted} of 300");
            return;
        }
    }
    panic!("five attempts, and each straddled a minute");
}

// promise: faults.8
#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_store_learns_before_it_grants() {
    let redis = Redis::in_a_fresh_minute();
    let nodes = short_budget(&redis, 3, OnStoreDown::Deny).await;
    for attempt in 0..5 {
        let (project, limits) = (named(&format!("flush-{attempt}")), limits(100, 10_000));
        let began = minute(&redis);
        let mut admitted = ask_in_turn(&nodes, &project, limits, 60).await;
        redis.ask(&["FLUSHALL"]);
        // The node that did not spend before could be granted the units of the others.
        for _ in 0..200 {
            admitted += u32::from(nodes.all[attempt % 3].charge(&project, limits, &key(1)).await.is_ok());
        }
        if minute(&redis) == began {
            assert!(admitted <= 100, "{admitted} of 100");
            return;
        }
    }
    panic!("five attempts, and each straddled a minute");
}

// promise: faults.9
#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_clock_steps_back_behind_its_start_grants_on() {
    let redis = Redis::within_a_day();
    let nodes = short_budget(&redis, 2, OnStoreDown::Deny).await;
    let (project, limits) = (named("step"), limits(1_000, 1_000_000));
    let mut admitted = ask_in_turn(&nodes, &project, limits, 10).await;
    assert_eq!(admitted, 10);
    redis.step_clock(-600);
    // A node that spent nothing yet needs a grant of the store.
    for fresh in 0..10 {
        let project = named(&format!("after-the-step-{fresh}"));
        eventually("the store grants after its clock stepped back", async || {
            ask_in_turn(&nodes, &project, limits, 2).await == 2
        })
        .await;
    }
    eventually("the store grants units of the same windows", async || {
        let more = ask_in_turn(&nodes, &project, limits, 100).await;
        admitted += more;
        more == 100
    })
    .await;
    let record = nodes.all[0].usage(&project).await;
    assert!(
        matches!(&record, Ok(Some(record)) if record.day_charged >= u64::from(admitted)),
        "{record:?} of {admitted}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_store_delays_only_the_first() {
    let redis = Redis::within_a_day();
    let nodes = short_budget(&redis, 1, OnStoreDown::Allow).await;
    let (project, limits) = (named("frozen"), limits(100_000, 1_000_000));
    redis.freeze();
    eventually("the node stops asking", async || {
        assert!(nodes.all[0].charge(&project, limits, &key(1)).await.is_ok(), "no request is refused for our fault");
        nodes.all[0].mode() == Mode::Allow
    })
    .await;
    // Not a measurement: if each of the thousand requests waited for its budget, they would take a minute and a half.
    let all = async {
        for _ in 0..1_000 {
            assert!(nodes.all[0].charge(&project, limits, &key(1)).await.is_ok());
        }
    };
    assert!(tokio::time::timeout(PATIENCE, all).await.is_ok());
    redis.thaw();
    eventually("the node asks again", async || nodes.all[0].mode() == Mode::Exact).await;
    eventually("admitted requests are in the record", async || {
        let record = nodes.all[0].usage(&project).await;
        matches!(record, Ok(Some(record)) if record.day_charged >= 1_000)
    })
    .await;
}

// promise: faults.7
#[tokio::test(flavor = "multi_thread")]
async fn lost_scripts_are_loaded_again() {
    let redis = Redis::within_a_day();
    let nodes = short_budget(&redis, 1, OnStoreDown::Deny).await;
    for round in 0..3 {
        redis.ask(&["SCRIPT", "FLUSH"]);
        let outcome = nodes.all[0].charge(&named(&format!("flushed-{round}")), limits(10, 100), &key(1)).await;
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

// promise: faults.6
#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_still_executes_statements() {
    let redis = Redis::with(&["--maxmemory-policy", "noeviction"]);
    let nodes = short_budget(&redis, 2, OnStoreDown::Deny).await;
    let charge = async |project: &str| {
        let outcome = nodes.all[0].charge(&named(project), limits(1_000, 10_000), &key(1)).await;
        assert!(outcome.is_ok(), "{project}: {outcome:?}");
    };
    charge("known").await;
    fill(&redis);
    let heartbeats = || redis.ask(&["HVALS", "tollhouse:gateways"]);
    let before = heartbeats();
    for _ in 0..5 {
        charge("known").await;
        charge("new").await;
    }
    eventually("both have sent a heartbeat", async || {
        heartbeats().lines().zip(before.lines()).filter(|(now, before)| now != before).count() == 2
    })
    .await;
    assert!(nodes.all.iter().all(|node| node.mode() == Mode::Lease));
}

/// Fills a server, so that it adds nothing more.
fn fill(redis: &Redis) {
    redis.ask(&["EVAL", "return redis.call('SET', 'ballast', string.rep('x', 3000000))", "0"]);
    redis.ask(&["CONFIG", "SET", "maxmemory", "1mb"]);
    assert!(redis.ask(&["SET", "another", "key"]).contains("OOM"), "the server is full");
}

// promise: faults.6
#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_is_named_until_it_has_room_again() {
    let redis = Redis::with(&["--maxmemory-policy", "noeviction"]);
    let nodes = short_budget(&redis, 2, OnStoreDown::Share).await;
    assert_eq!(nodes.all[0].trouble(), None);
    fill(&redis);
    eventually("every node reports a full server", async || {
        nodes.all.iter().all(|node| {
            node.trouble().is_some_and(|outage| {
                outage.to_string().contains("OOM") && outage.remedy().starts_with("raise maxmemory of Redis")
            })
        })
    })
    .await;
    let far = UnixSeconds(4_000_000_000);
    nodes.all[0].ban(&key(7), far).unwrap();
    assert!(!redis.ask(&["HGETALL", "tollhouse:bans"]).contains(key(7).as_str()), "the ban is not stored");
    redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually("the trouble ends with its cause", async || nodes.all[0].trouble().is_none()).await;
    eventually("the ban is stored", async || {
        redis.ask(&["HGETALL", "tollhouse:bans"]).contains(key(7).as_str()) && nodes.all[1].bans().len() == 1
    })
    .await;
}

// promise: faults.5
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_was_demoted_is_left_for_the_new_one() {
    for _ in 0..3 {
        let old = Redis::in_a_fresh_minute();
        let new = old.beside(&["--replicaof", "127.0.0.1", &old.port.to_string()]);
        if fails_over_within_a_minute(&old, &new).await {
            return;
        }
    }
    panic!("three attempts in fresh minutes, and each took longer than one");
}

/// A master fails over to its replica, and no more than the limit is admitted, if all happens within one minute.
async fn fails_over_within_a_minute(old: &Redis, new: &Redis) -> bool {
    eventually("the replica is in step", async || new.ask(&["INFO", "replication"]).contains("master_link_status:up"))
        .await;
    let nodes = Nodes::start(&[old.port, new.port], RedisMode::Standalone, 2, |settings| {
        settings.call_budget = Duration::from_millis(100);
        settings.on_store_down = OnStoreDown::Deny;
    })
    .await;
    let (project, limits) = (named("demoted"), limits(100, 10_000));
    let began = minute(new);
    let mut admitted = ask_in_turn(&nodes, &project, limits, 40).await;
    // Writes that the replica never received, then the reverse.
    new.ask(&["REPLICAOF", "NO", "ONE"]);
    admitted += ask_in_turn(&nodes, &project, limits, 20).await;
    old.ask(&["REPLICAOF", "127.0.0.1", &new.port.to_string()]);
    eventually("the nodes have found the new master", async || {
        admitted += ask_in_turn(&nodes, &project, limits, 2).await;
        new.ask(&["EXISTS", "tollhouse:gateways"]) == "1"
            && nodes.all.iter().all(|node| node.mode() == Mode::Lease)
            && !new.ask(&["HGET", &format!("tollhouse:bucket:{{{project}}}"), "record"]).is_empty()
    })
    .await;
    admitted += ask_in_turn(&nodes, &project, limits, 300).await;
    let within = minute(new) == began;
    assert!(!within || admitted <= 100, "{admitted} of 100");
    within
}
