//! Without the store each node admits its share of the limits.

use super::*;

// rule: 8.12
#[tokio::test]
async fn without_the_store_a_spent_share_has_a_retry_time() {
    for (limits, window) in [(limits(60, 1_000), Window::Minute), (limits(100, 60), Window::Day)] {
        let store = FaultyStore::new(3);
        let quota = over(&store, OnStoreDown::Share, SHORT);
        quota.heartbeat().await;
        store.set_behaviour(Behaviour::Fails);
        assert_eq!(outcomes(&quota, limits, 21).await, (20, 0, 1));
        let refused = quota.charge(&project(), limits, &key(1)).await.unwrap_err();
        let ChargeError::Unavailable { retry_after_seconds, spent, allowances } = refused else {
            unreachable!("{refused:?}")
        };
        assert_eq!(spent, Some(window));
        let until = allowances.of(window).resets_at.to_millis().since(allowances.as_of);
        assert_eq!(i64::from(retry_after_seconds), (until + 999) / 1_000);
    }
}

// rule: 8.12
#[tokio::test]
async fn without_the_store_the_nodes_take_turns_with_a_unit_that_cannot_be_divided() {
    let mut admitted = [[0; 3]; 3];
    for (index, minutes) in (0..).zip(&mut admitted) {
        let store = FaultyStore::new(3);
        let fleet = Fleet { nodes: store.nodes, index };
        let settings = QuotaSettings { fleet: Some(fleet), call_budget: SHORT, ..QuotaSettings::new(1) };
        let quota = Quota::new(store.clone(), settings, store.clock.clone());
        store.set_behaviour(Behaviour::Fails);
        for admitted in minutes {
            *admitted = outcomes(&quota, limits(1, 1_000), 5).await.0;
            store.clock.skip(60_000);
        }
    }
    for number in 0..3 {
        let (node, minute) = (admitted[number].iter().sum::<u32>(), admitted.iter().map(|of| of[number]).sum::<u32>());
        assert_eq!((node, minute), (1, 1), "each node once, and one in each minute: {admitted:?}");
    }
}

// rule: 8.1
#[tokio::test]
async fn a_limit_smaller_than_the_fleet_is_admitted_in_full() {
    let mut admitted = 0;
    for index in 0..3 {
        let store = FaultyStore::new(3);
        let fleet = Fleet { nodes: store.nodes, index };
        let settings = QuotaSettings { fleet: Some(fleet), call_budget: SHORT, ..QuotaSettings::new(1) };
        let quota = Quota::new(store.clone(), settings, store.clock.clone());
        store.set_behaviour(Behaviour::Fails);
        admitted += outcomes(&quota, limits(2, 1_000), 10).await.0;
    }
    assert_eq!(admitted, 2, "three nodes that were started without the store and remember each other");
}

// rule: 8.1
#[tokio::test]
async fn a_node_that_does_not_know_the_fleet_denies_until_the_control_plane_has_announced_it() {
    let store = FaultyStore::new(3);
    let settings = QuotaSettings { fleet: None, call_budget: SHORT, ..QuotaSettings::new(1) };
    let quota = Quota::new(store.clone(), settings, store.clock.clone());
    store.set_behaviour(Behaviour::Fails);
    assert_eq!(outcomes(&quota, limits(60, 1_000), 10).await, (0, 0, 10));
    assert_eq!((quota.mode(), quota.fleet()), (Mode::Deny, None));
    quota.announce_fleet(Fleet { nodes: store.nodes, index: 1 });
    assert_eq!(outcomes(&quota, limits(60, 1_000), 10).await, (0, 0, 10), "others may just be joining");
    store.clock.skip(3_000);
    assert_eq!(outcomes(&quota, limits(60, 1_000), 100).await, (20, 0, 80));
    assert_eq!(quota.mode(), Mode::Share);
}

// rule: 8.1
#[tokio::test]
async fn a_restart_in_an_outage_spends_no_share_again_and_loses_no_unit() {
    let store = FaultyStore::new(3);
    let mut quota = over(&store, OnStoreDown::Share, SHORT);
    quota.heartbeat().await;
    store.set_behaviour(Behaviour::Fails);
    let limits = limits(30, 75);
    for (generation, shares) in [(2, [10, 0]), (3, [10, 0]), (4, [5, 0])] {
        assert_eq!(outcomes(&quota, limits, 20).await.0, shares[0], "generation {}", generation - 1);
        let saved = serde_json::to_string(&quota.unclaimed()).unwrap();
        let settings = QuotaSettings {
            place: 1,
            start: generation,
            fleet: quota.fleet(),
            unclaimed: serde_json::from_str(&saved).unwrap(),
            call_budget: SHORT,
            ..QuotaSettings::new(generation.into())
        };
        quota = Quota::new(store.clone(), settings, store.clock.clone());
        assert_eq!(outcomes(&quota, limits, 20).await.0, shares[1], "generation {generation} in the same minute");
        store.clock.skip(60_000);
    }
    store.set_behaviour(Behaviour::Works);
    quota.heartbeat().await;
    comes(|| store.bucket.lock().as_ref().filter(|bucket| bucket.view(store.now()).day_charged == 25).map(drop)).await;
    comes(|| quota.unclaimed().is_empty().then_some(())).await;
}

#[tokio::test]
async fn unclaimed_units_can_be_read_at_any_time() {
    const PROJECTS: usize = 50;
    let store = FaultyStore::new(3);
    let quota = over(&store, OnStoreDown::Share, SHORT);
    quota.heartbeat().await;
    store.set_behaviour(Behaviour::Fails);
    for number in 0..PROJECTS {
        let project = format!("p{number}").parse().unwrap();
        assert!(quota.charge(&project, limits(60, 1_000), &key(1)).await.is_ok());
    }
    // The action of each heartbeat.
    let ends = std::sync::atomic::AtomicBool::new(false);
    let saved = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                quota.0.hand_back_idle();
            }
        });
        let saved: Vec<usize> = (0..10_000).map(|_| quota.unclaimed().len()).collect();
        ends.store(true, Ordering::Relaxed);
        saved
    });
    assert_eq!(saved.iter().min(), Some(&PROJECTS), "a save in such a moment would lack projects");
}

// rule: 8.1
#[tokio::test]
async fn without_the_store_a_node_admits_its_share_and_asks_only_three_times() {
    for behaviour in [Behaviour::Hangs, Behaviour::Fails] {
        let store = FaultyStore::new(3);
        let quota = over(&store, OnStoreDown::Share, SHORT);
        quota.heartbeat().await;
        store.set_behaviour(behaviour);
        assert_eq!(outcomes(&quota, limits(60, 1_000), 100).await, (20, 0, 80), "never a 429 for our own fault");
        assert_eq!(store.calls(), 3);
        assert_eq!(quota.mode(), Mode::Share);
    }
}
