//! Several nodes over one store.

use std::sync::atomic::{AtomicU32, AtomicU64};

use async_trait::async_trait;

use super::*;
use crate::ledger::bucket::BucketView;
use crate::ledger::{Reply, Statement};
use crate::store::{self, HeartbeatReply, StoreOutage};

/// The embedded store, shared, with counted calls.
struct Shared {
    store: MemoryStore,
    calls: AtomicU64,
}

#[async_trait]
impl Store for Shared {
    async fn execute(&self, bucket: &ProjectUid, statement: Statement) -> Result<Reply, StoreOutage> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.store.execute(bucket, statement).await
    }

    async fn heartbeat(&self, count: bool) -> Result<HeartbeatReply, StoreOutage> {
        let fleet = Some(store::Fleet { nodes: NonZeroU32::new(3).unwrap(), index: 0 });
        Ok(HeartbeatReply { fleet, ..self.store.heartbeat(count).await? })
    }

    async fn view(&self, bucket: &ProjectUid) -> Result<Option<BucketView>, StoreOutage> {
        self.store.view(bucket).await
    }
}

/// Nodes at the beginning of a minute. Time passes, because a node that recalls units from other nodes waits for them.
struct Fleet {
    nodes: Vec<Quota>,
    store: Arc<Shared>,
}

impl Fleet {
    fn new() -> Self {
        let clock = RealClock::from(UnixMillis(START + 40_000));
        let store = Arc::new(Shared { store: MemoryStore::new(clock.clone(), BUCKETS_MAX), calls: AtomicU64::new(0) });
        let node = |process| Quota::new(store.clone(), QuotaSettings::new(process), clock.clone());
        Self { nodes: (1..=3).map(node).collect(), store }
    }

    /// `requests` requests, 512 at a time, at the nodes in turn; returns how many were admitted.
    async fn burst(&self, limits: Limits, requests: u32) -> u32 {
        let (next, admitted) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let workers: Vec<_> = (0..512)
            .map(|_| {
                let (nodes, next, admitted) = (self.nodes.clone(), next.clone(), admitted.clone());
                tokio::spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        if number >= requests {
                            return;
                        }
                        let node = &nodes[usize::try_from(number).unwrap() % nodes.len()];
                        if node.charge(&project(), limits, &key(1)).await.is_ok() {
                            admitted.fetch_add(1, Ordering::SeqCst);
                        }
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.await.unwrap();
        }
        admitted.load(Ordering::SeqCst)
    }

    fn calls(&self) -> u64 {
        self.store.calls.load(Ordering::SeqCst)
    }
}

// rule: 8.1
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_nodes_admit_exactly_the_limit_with_few_store_calls() {
    for per_minute in [60, 300, 1_000, 20_000] {
        let fleet = Fleet::new();
        let limits = limits(per_minute, 1_000_000);
        assert_eq!(fleet.burst(limits, 3 * per_minute).await, per_minute);
        let record = fleet.store.view(&project()).await.unwrap().unwrap();
        assert_eq!((record.minute_charged, record.day_charged), (per_minute.into(), per_minute.into()));
        let (calls, requests) = (fleet.calls(), u64::from(3 * per_minute));
        assert!(per_minute < 1_000 || calls * 100 <= requests * 8, "{calls} calls for {requests} requests");
        fleet.burst(limits, 10_000).await;
        assert_eq!(fleet.calls(), calls, "a refused request costs nothing");
    }
}

/// Admitted requests of 1,000 in a steady minute below the limit, and the statements they took, with three nodes in
/// turn.
async fn steady_thousand() -> (u32, u64) {
    let clock = TestClock::new();
    let store = Arc::new(Shared { store: MemoryStore::new(clock.clone(), BUCKETS_MAX), calls: AtomicU64::new(0) });
    let nodes: Vec<Quota> =
        (1..=3).map(|process| Quota::new(store.clone(), QuotaSettings::new(process), clock.clone())).collect();
    let (mut admitted, mut before) = (0, 0);
    // The first 100 requests teach the nodes the rate.
    for (number, node) in (0..1_100).zip(nodes.iter().cycle()) {
        if number == 100 {
            (admitted, before) = (0, store.calls.load(Ordering::SeqCst));
        }
        admitted += u32::from(node.charge(&project(), limits(2_000, 1_000_000), &key(1)).await.is_ok());
        clock.pass(Duration::from_millis(60));
        // Statements in the background complete.
        for node in &nodes {
            node.heartbeat().await;
            tokio::task::yield_now().await;
        }
    }
    (admitted, store.calls.load(Ordering::SeqCst) - before)
}

// docs/operator/capacity.md promises 0.08 calls per request.
#[tokio::test]
async fn a_thousand_steady_requests_over_three_nodes_need_at_most_eighty_statements() {
    let (admitted, calls) = steady_thousand().await;
    assert_eq!(admitted, 1_000);
    assert!(calls <= 80, "{calls} statements for {admitted} requests");
}

#[tokio::test]
async fn other_gateways_of_the_control_plane_do_not_share_an_embedded_store() {
    let clock = TestClock::new();
    let store = Arc::new(MemoryStore::new(clock.clone(), BUCKETS_MAX));
    let quota = Quota::new(store, QuotaSettings::new(1), clock);
    quota.announce_fleet(store::Fleet { nodes: NonZeroU32::new(3).unwrap(), index: 1 });
    assert_eq!((quota.mode(), quota.fleet()), (Mode::Exact, Some(store::Fleet::SINGLE)));
}

// rule: 8.1
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_nodes_admit_exactly_the_daily_limit() {
    let fleet = Fleet::new();
    assert_eq!(fleet.burst(limits(1_000, 400), 3_000).await, 400);
    assert_eq!(fleet.store.view(&project()).await.unwrap().unwrap().minute_charged, 400);
}

// rule: 8.1
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn gateways_over_copies_of_one_data_directory_count_right_and_get_their_own_identities() {
    let mut fleet = Fleet::new();
    let clock = RealClock::from(UnixMillis(START + 40_000));
    let copy = |process: u64, start| {
        let settings = QuotaSettings { place: 1, start, ..QuotaSettings::new((process << 33) | process) };
        Quota::new(fleet.store.clone(), settings, clock.clone())
    };
    fleet.nodes = vec![copy(1, 5), copy(2, 6), copy(3, 6)];
    let limits = limits(300, 1_000_000);
    assert_eq!(fleet.burst(limits, 1_000).await, 300);
    for node in &fleet.nodes {
        node.hand_back_all().await;
    }
    let record = fleet.store.view(&project()).await.unwrap().unwrap();
    assert_eq!((record.minute_charged, record.day_charged), (300, 300));
    let places: BTreeSet<u64> = fleet.nodes.iter().map(Quota::place).collect();
    assert_eq!(places.len(), 3, "{places:?}");
}
