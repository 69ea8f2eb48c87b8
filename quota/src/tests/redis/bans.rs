//! Bans and lifts that Redis stores for nodes that come later.

use super::faults::{ask_in_turn, named, short_budget};
use super::nodes::Nodes;
use super::*;
use crate::settings::OnStoreDown;

#[tokio::test]
async fn stored_bans_are_read_anew_from_another_server() {
    const STORED: usize = 1_500;
    let mut redis = Redis::start();
    let fill = |redis: &Redis| {
        let mut command = vec!["HSET".to_owned(), "tollhouse:bans".to_owned()];
        for until in 1..=STORED {
            let text = format!(r#"{{"banned":{{"key":"{}","since":0,"until":{until},"#, key(1))
                + r#""reason":"strikes","level":1,"shadow":false}}"#;
            command.extend([format!("field-{until}"), text]);
        }
        redis.ask(&command.iter().map(String::as_str).collect::<Vec<_>>());
    };
    fill(&redis);
    let store = store(&[redis.port], RedisMode::Standalone, 1).await;
    let (_, mut after) = store.stored_notifications(None).await.unwrap();
    assert!(after.is_some(), "one part does not have all");
    // After a restart the fields are in another order.
    redis.kill();
    redis.restart();
    fill(&redis);
    let mut part = Vec::new();
    eventually("the new server is read", async || match store.stored_notifications(after.clone()).await {
        Ok(read) => {
            (part, after) = read;
            true
        }
        Err(_) => false,
    })
    .await;
    while after.is_some() {
        let (more, next) = store.stored_notifications(after).await.unwrap();
        part.extend(more);
        after = next;
    }
    let mut texts: Vec<String> = part.into_iter().map(|stored| stored.text).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), STORED);
}

// During an outage, bans and lifts hold at their node; afterwards they hold at every node.
#[tokio::test(flavor = "multi_thread")]
async fn bans_and_lifts_are_delivered_when_the_store_is_back() {
    let mut redis = Redis::within_a_day();
    let nodes = short_budget(&redis, 2, OnStoreDown::Allow).await;
    let far = UnixSeconds(4_000_000_000);
    let is_banned = async |node: usize, number: u8| {
        let outcome = nodes.all[node].charge(&named("bans"), limits(1_000, 100_000), &key(number)).await;
        matches!(outcome, Err(ChargeError::Banned { until, .. }) if until == far)
    };
    nodes.all[0].ban(&key(7), far).unwrap();
    eventually("the other node knows the ban", async || is_banned(1, 7).await).await;
    redis.kill();
    eventually("every node knows", async || {
        ask_in_turn(&nodes, &named("bans"), limits(1_000, 100_000), 2).await;
        nodes.all.iter().all(|node| node.mode() == Mode::Allow)
    })
    .await;
    nodes.all[0].ban(&key(8), far).unwrap();
    assert!(nodes.all[0].lift(&key(7)));
    let holds = async || {
        assert_eq!((is_banned(0, 7).await, is_banned(0, 8).await), (false, true), "at the node of the change");
        assert_eq!((is_banned(1, 7).await, is_banned(1, 8).await), (true, false), "at the other node");
    };
    holds().await;
    redis.restart();
    eventually("every node is back", async || nodes.all.iter().all(|node| node.mode() == Mode::Lease)).await;
    eventually("the other node has received it", async || {
        (is_banned(1, 7).await, is_banned(1, 8).await) == (false, true)
    })
    .await;
    assert_eq!((is_banned(0, 7).await, is_banned(0, 8).await), (false, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn bans_survive_an_emptied_store_and_lifted_ones_do_not_return() {
    let redis = Redis::within_a_day();
    let nodes = short_budget(&redis, 2, OnStoreDown::Allow).await;
    let far = UnixSeconds(4_000_000_000);
    for number in [7, 8] {
        nodes.all[0].ban(&key(number), far).unwrap();
    }
    eventually("the other node knows both", async || nodes.all[1].bans().len() == 2).await;
    assert!(nodes.all[1].lift(&key(7)));
    eventually("the first node knows the end", async || nodes.all[0].bans().len() == 1).await;
    redis.ask(&["FLUSHALL"]);
    eventually("both are sent again", async || redis.ask(&["HGETALL", "tollhouse:bans"]).lines().count() == 4).await;
    // A ban repeated by a node that missed the lift.
    let missed = redis.ask(&["HGET", "tollhouse:bans", key(8).as_str()]).replace(key(8).as_str(), key(7).as_str());
    redis.ask(&["PUBLISH", "tollhouse:notifications", &format!(r#"{{"from":"another","notification":{missed}}}"#)]);
    nodes.all[0].ban(&key(6), far).unwrap();
    eventually("what came after it was received", async || nodes.all[1].bans().len() == 2).await;
    let banned: Vec<_> = nodes.all[1].bans().into_iter().map(|ban| ban.key).collect();
    assert!(banned.contains(&key(8)) && banned.contains(&key(6)), "{banned:?}");
    let later = Nodes::named(11, &[redis.port], RedisMode::Standalone, 2, |_| {}).await;
    eventually("a newcomer knows them", async || later.all[0].bans().len() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bans_that_are_over_leave_the_store() {
    let redis = Redis::within_a_day();
    let over = |number: u8| {
        format!(
            r#"{{"banned":{{"key":"{}","since":1,"until":61,"reason":"strikes","level":1,"shadow":false}}}}"#,
            key(number)
        )
    };
    let lifted = |number: u8| format!(r#"{{"lifted":{{"key":"{}","began":1}}}}"#, key(number));
    for number in 0..200 {
        let text = if number % 2 == 0 { over(number) } else { lifted(number) };
        redis.ask(&["HSET", "tollhouse:bans", key(number).as_str(), &text]);
    }
    let _nodes = Nodes::start(&[redis.port], RedisMode::Standalone, 1, |_| {}).await;
    eventually("all are forgotten", async || redis.ask(&["EXISTS", "tollhouse:bans"]) == "0").await;
}

// rule: 8.3
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_banned_by_the_strikes_of_all_nodes() {
    let redis = Redis::in_a_fresh_minute();
    let nodes = Nodes::start(&[redis.port], RedisMode::Standalone, 3, |settings| {
        settings.ban.grace = Duration::ZERO;
        settings.ban.strikes_min = 60;
    })
    .await;
    let limits = limits(2, 1_000);
    // Fewer strikes than a ban takes at any one node; more at all together, even though each forgives its first ones.
    for _ in 0..40 {
        for node in &nodes.all {
            let _ = node.charge(&named("strikes"), limits, &key(5)).await;
        }
    }
    eventually("every node has banned the key", async || {
        nodes.all.iter().all(|node| node.bans().iter().map(|ban| (&ban.key, ban.level)).eq([(&key(5), 1)]))
    })
    .await;
}
