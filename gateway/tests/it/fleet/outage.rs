//! Gateways that start and restart while Redis is away.

use super::faults::all_are_back;
use super::*;

/// Waits until a minute of this machine's clock has so many seconds left.
async fn fresh_minute_of_the_machine(seconds: i64) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    while 60 - jiff::Timestamp::now().as_second().rem_euclid(60) < seconds {
        looks.tick().await;
    }
}

/// Waits until a gateway admits its share.
async fn shares(node: &Node) {
    node.is_ready().await;
    eventually("the gateway knows its share", async || {
        (node.admin.metric("edge_quota_mode{mode=\"share\"}").await == 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_gateways_share_the_limit_without_redis_and_a_restart_spends_no_share_again() {
    let mut fleet = Fleet::start(3, &[(60, 100_000)], "bans = \"off\"\non_store_down = \"share\"").await;
    fleet.redis.kill();
    for number in 0..3 {
        fleet.nodes[number].process.terminate();
        assert!(fleet.nodes[number].process.ended().await.success(), "a clean end");
        let data = fleet.directory.path().join(format!("data-{}", fleet.nodes[number].admin.0.port()));
        std::fs::remove_dir_all(data).unwrap();
    }
    for number in 0..3 {
        fleet.nodes[number].process = fleet.launch(number, 0).0;
    }
    for node in &fleet.nodes {
        shares(node).await;
    }
    fresh_minute_of_the_machine(25).await;
    let outcome = fleet.burst(0, 240).await;
    outcome.only(&[200, 503]);
    assert_eq!(outcome.total(), 60, "{outcome:?}");
    fleet.nodes[0].process.terminate();
    assert!(fleet.nodes[0].process.ended().await.success(), "a clean end");
    fleet.nodes[0].process = fleet.launch(0, 0).0;
    shares(&fleet.nodes[0]).await;
    let again = fleet.burst_at(0..1, 0, 50).await;
    assert!(again.admitted.keys().all(|minute| !outcome.admitted.contains_key(minute)), "{outcome:?}, then {again:?}");
    fleet.redis.restart();
    all_are_back(&fleet).await;
    let all = u64::from(outcome.total() + again.total());
    eventually("everything is claimed", async || (fleet.day_charged(0) == all).then_some(())).await;
}
