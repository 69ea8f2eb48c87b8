//! Exactly the limit, for all clients and gateways together.

use super::*;
use std::collections::BTreeMap;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn three_gateways_admit_exactly_the_limit_and_the_books_agree_with_the_logs() {
    // The largest first: all of them fit into one minute.
    let limits = [(extent("FLEET_LARGEST", 5_000), 100_000), (1_000, 100_000), (300, 100_000), (60, 100_000)];
    for repeat in 1..=extent("FLEET_REPEATS", 1) {
        let fleet = Fleet::in_a_fresh_minute(3, &limits, "bans = \"off\"\non_store_down = \"deny\"").await;
        for (tenant, (limit, _)) in limits.into_iter().enumerate() {
            fleet.fresh_minute(if limit > 1_000 { 45 } else { 15 }).await;
            let before = fleet.store_calls();
            let outcome = fleet.burst(tenant, limit * 3).await;
            let calls = fleet.store_calls() - before;
            outcome.only(&[200, 429]);
            assert_eq!(outcome.broken, 0);
            // A busy machine spreads the burst over the next minutes, and may be too slow to spend thousands in one.
            match outcome.refused.keys().next() {
                Some(spent) => assert_eq!(outcome.admitted.get(spent), Some(&limit), "{outcome:?}"),
                None => assert!(limit > 1_000, "three times as many asked, and none was refused: {outcome:?}"),
            }
            assert!(outcome.admitted.values().all(|admitted| *admitted <= limit), "{outcome:?}");
            println!(
                "repeat {repeat}: {limit} a minute, {} asked, {} let through, {calls} calls",
                limit * 3,
                outcome.total()
            );
            if limit >= 1_000 {
                // Eight of a hundred.
                assert!(calls * 100 <= u64::from(limit) * 3 * 8, "{calls} calls for {} requests", limit * 3);
            }
            eventually("unspent units are returned", async || {
                (fleet.day_charged(tenant) == u64::from(outcome.total())).then_some(())
            })
            .await;
            eventually("the access logs say the same", async || {
                (fleet.admitted_by_logs(tenant) == u64::from(outcome.total())).then_some(())
            })
            .await;
        }
    }
}

/// The pause between two of 1,000 requests a minute.
const STEADY: Duration = Duration::from_millis(60);

/// Statements for 1,000 admitted requests that docs/operator/capacity.md promises at most.
const STATEMENTS_MAX: u64 = 80;

#[tokio::test(flavor = "multi_thread")]
async fn steady_requests_take_few_statements_and_idle_gateways_write_once_a_second() {
    let fleet = Fleet::in_a_fresh_minute(3, &[(2_000, 100_000)], "bans = \"off\"\non_store_down = \"deny\"").await;
    let mut nodes = Vec::new();
    for node in 0..3 {
        nodes.push(fleet.connect(node, 0).await);
    }
    let mut pause = tokio::time::interval(STEADY);
    let (learning, requests) = (60_u64, u64::from(extent("FLEET_STEADY", 150)));
    let (mut admitted, mut learned, mut before) = (0, 0, 0);
    for (number, node) in (0..learning + requests).zip((0..3).cycle()) {
        if number == learning {
            (learned, before) = (std::mem::take(&mut admitted), fleet.store_calls());
        }
        pause.tick().await;
        admitted += u64::from(nodes[node].ask(&fleet.ask(0)).await.status == 200);
    }
    let statements = fleet.store_calls() - before;
    println!("{statements} statements for {admitted} of {requests} steady requests");
    // A node that has just renewed its lease counts with all of it.
    assert!(statements * 1_000 <= admitted * STATEMENTS_MAX + 3 * 1_000, "{statements} for {admitted}");
    // The leases are handed back.
    eventually("nothing is held", async || (fleet.day_charged(0) == learned + admitted).then_some(())).await;
    let (writes, began) = (fleet.writes(), Instant::now());
    eventually("seconds pass", async || (fleet.writes() >= writes + 9).then_some(())).await;
    let took = began.elapsed();
    println!("9 writes of three idle gateways took {took:?}");
    assert!(took > Duration::from_millis(1_500), "each gateway writes once a second: {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_costs_no_store_call_and_no_day() {
    let fleet = Fleet::in_a_fresh_minute(3, &[(1_000, 200)], "bans = \"off\"\non_store_down = \"deny\"").await;
    assert_eq!(fleet.burst(0, 600).await.total(), 200);
    eventually("the day holds every request", async || (fleet.day_charged(0) == 200).then_some(())).await;
    // Every node gets the refusal once, and again in each new minute.
    let minute = fleet.store_time() / 60;
    fleet.burst(0, 60).await.only(&[429]);
    let before = fleet.store_calls();
    let refused = extent("FLEET_REFUSALS", 5_000);
    let outcome = fleet.burst(0, refused).await;
    assert_eq!(outcome.statuses, BTreeMap::from([(429, refused)]));
    let calls = fleet.store_calls() - before;
    let minutes = fleet.store_time() / 60 - minute;
    println!("{refused} refused, {calls} calls, {minutes} minutes began");
    assert!(calls <= 3 * minutes, "{calls} calls while {minutes} minutes began");
    assert_eq!(fleet.day_charged(0), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_days_limit_is_exact_and_requests_refused_by_the_minute_cost_no_day() {
    let limits = [(1_000, 400), (60, 1_000), (60, 1_000), (60, 1_000)];
    let fleet = Fleet::in_a_fresh_minute(3, &limits, "on_store_down = \"deny\"").await;
    let outcome = fleet.burst(0, 1_200).await;
    outcome.only(&[200, 429]);
    assert_eq!(outcome.total(), 400, "{outcome:?}");
    // A minute may end in the middle; three in a row do not.
    for tenant in 1..limits.len() {
        let outcome = fleet.burst(tenant, 10_000).await;
        outcome.only(&[200, 429]);
        eventually("the day has all admitted requests", async || {
            (fleet.day_charged(tenant) == u64::from(outcome.total())).then_some(())
        })
        .await;
        if outcome.admitted.len() == 1 {
            assert_eq!(outcome.total(), 60, "{outcome:?}");
            return;
        }
    }
    panic!("three bursts, and each straddled a minute");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_gateway_returns_its_lease_and_a_killed_one_loses_at_most_it() {
    let limits = [(1_000, 100_000), (1_000, 100_000)];
    let mut fleet = Fleet::in_a_fresh_minute(3, &limits, "on_store_down = \"deny\"").await;
    for (tenant, victim) in [(0, 2), (1, 1)] {
        fleet.fresh_minute(30).await;
        let before = fleet.burst(tenant, 300).await;
        if tenant == 0 {
            fleet.nodes[victim].process.terminate();
            assert!(fleet.nodes[victim].process.ended().await.success(), "a clean end");
        } else {
            fleet.nodes[victim].process.kill();
        }
        fleet.nodes.remove(victim);
        let after = fleet.burst(tenant, 3_000).await;
        let mut minutes = before.admitted.clone();
        for (minute, admitted) in &after.admitted {
            *minutes.entry(*minute).or_default() += admitted;
        }
        assert!(minutes.values().all(|admitted| *admitted <= 1_000), "{minutes:?}");
        // One node in twenty of the minute is the most that a lease may be.
        let least = if tenant == 0 { 1_000 } else { 950 };
        assert!(minutes.values().next().is_some_and(|admitted| *admitted >= least), "{minutes:?}");
    }
}
