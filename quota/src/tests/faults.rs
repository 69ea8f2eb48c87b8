//! The store hangs, fails, loses data and recovers. Time is real here, but no test depends on its speed: a store that
//! hangs never answers, and a gate opens when the test opens it.

use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::*;
use crate::ledger::bucket::{Bucket, BucketView, StoreState};
use crate::ledger::{Incarnation, Reply, Statement};
use crate::settings::OnStoreDown;
use crate::store::{Fleet, HeartbeatReply, StoreOutage};

mod bans;
mod shares;

/// How the store treats a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Works,
    Hangs,
    Fails,
}

/// A store with changing behaviour, for one bucket.
struct FaultyStore {
    clock: Arc<RealClock>,
    bucket: Mutex<Option<Bucket>>,
    behaviour: Mutex<Behaviour>,
    /// Every statement passes here before its execution.
    gate: Semaphore,
    calls: AtomicU64,
    incarnation: AtomicU64,
    nodes: NonZeroU32,
    /// Milliseconds by which its clock is ahead of the nodes' clocks.
    ahead: i64,
}

impl FaultyStore {
    fn new(nodes: u32) -> Arc<Self> {
        Arc::new(Self {
            clock: RealClock::from(UnixMillis(START)),
            bucket: Mutex::new(None),
            behaviour: Mutex::new(Behaviour::Works),
            gate: Semaphore::new(1_000_000),
            calls: AtomicU64::new(0),
            incarnation: AtomicU64::new(1),
            nodes: NonZeroU32::new(nodes).unwrap(),
            ahead: 0,
        })
    }

    fn now(&self) -> UnixMillis {
        self.clock.now().plus(self.ahead)
    }

    fn with_clock_ahead_by(millis: i64) -> Arc<Self> {
        let store = Arc::into_inner(Self::new(1)).unwrap();
        Arc::new(Self { ahead: millis, ..store })
    }

    fn set_behaviour(&self, behaviour: Behaviour) {
        *self.behaviour.lock() = behaviour;
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    async fn behave(&self) -> Result<(), StoreOutage> {
        let behaviour = *self.behaviour.lock();
        match behaviour {
            Behaviour::Works => Ok(()),
            Behaviour::Hangs => std::future::pending().await,
            Behaviour::Fails => Err(StoreOutage::Unreachable("connection refused".to_owned())),
        }
    }

    fn record(&self) -> BucketView {
        self.bucket.lock().as_ref().unwrap().view(self.now())
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn execute(&self, _bucket: &ProjectUid, statement: Statement) -> Result<Reply, StoreOutage> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.behave().await?;
        self.gate.acquire().await.unwrap().forget();
        let incarnation = Incarnation(self.incarnation.load(Ordering::SeqCst));
        let around = StoreState { now: self.now(), incarnation, learning_until: UnixMillis(i64::MIN) };
        Ok(self.bucket.lock().get_or_insert_with(|| Bucket::new(&around)).apply(&statement, &around))
    }

    async fn heartbeat(&self, _count: bool) -> Result<HeartbeatReply, StoreOutage> {
        self.behave().await?;
        let incarnation = Incarnation(self.incarnation.load(Ordering::SeqCst));
        let fleet = Some(Fleet { nodes: self.nodes, index: 0 });
        Ok(HeartbeatReply { incarnation, now: self.now(), fleet, full: None })
    }

    async fn view(&self, _bucket: &ProjectUid) -> Result<Option<BucketView>, StoreOutage> {
        self.behave().await?;
        Ok(self.bucket.lock().as_ref().map(|bucket| bucket.view(self.now())))
    }
}

fn over(store: &Arc<FaultyStore>, on_store_down: OnStoreDown, call_budget: Duration) -> Quota {
    let settings = QuotaSettings { on_store_down, call_budget, ..QuotaSettings::new(1) };
    Quota::new(store.clone(), settings, store.clock.clone())
}

/// A budget that a hanging store exceeds and a working one does not.
const SHORT: Duration = Duration::from_millis(20);
/// A budget that no call exceeds.
const LONG: Duration = Duration::from_mins(1);

/// Longer than anything here takes; reached only on failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// Checks after every yield until `look` returns a value.
async fn comes<T>(look: impl Fn() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it never came")
}

async fn outcomes(quota: &Quota, limits: Limits, requests: u32) -> (u32, u32, u32) {
    let (mut admitted, mut refused, mut unavailable) = (0, 0, 0);
    for _ in 0..requests {
        match quota.charge(&project(), limits, &key(1)).await {
            Ok(_) => admitted += 1,
            Err(ChargeError::Unavailable { .. }) => unavailable += 1,
            Err(_) => refused += 1,
        }
    }
    (admitted, refused, unavailable)
}

// rule: 8.1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_fast_clock_does_not_change_other_nodes_minutes() {
    let store = FaultyStore::with_clock_ahead_by(-600_000);
    let quota = over(&store, OnStoreDown::Share, SHORT);
    quota.heartbeat().await;
    store.set_behaviour(Behaviour::Fails);
    assert_eq!(outcomes(&quota, limits(60, 1_000), 10).await, (10, 0, 0), "the first it does with this bucket");
    store.set_behaviour(Behaviour::Works);
    quota.heartbeat().await;
    let allowances = quota.charge(&project(), limits(60, 1_000), &key(1)).await.unwrap();
    assert_eq!(allowances.minute.resets_at, Window::Minute.ends_at(Window::Minute.index(store.now())));
    quota.hand_back_all().await;
    assert_eq!((store.record().minute, store.record().minute_charged), (Window::Minute.index(store.now()), 11));
}

// rule: 8.1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_the_wall_clock_in_an_outage_moves_no_minute() {
    for step in [180_000, 8_000, -180_000, -7_200_000] {
        let store = FaultyStore::new(1);
        let node = RealClock::from(UnixMillis(START));
        let settings = QuotaSettings { call_budget: SHORT, ..QuotaSettings::new(1) };
        let quota = Quota::new(store.clone(), settings, node.clone());
        quota.heartbeat().await;
        store.set_behaviour(Behaviour::Fails);
        node.step(step);
        assert_eq!(outcomes(&quota, limits(60, 1_000), 10).await, (10, 0, 0), "first met in the outage; {step} ms");
        let allowances = quota.allowances(&project(), limits(60, 1_000));
        let minute = Window::Minute.index(store.now());
        assert_eq!(allowances.minute.resets_at, Window::Minute.ends_at(minute), "{step} ms");
        store.set_behaviour(Behaviour::Works);
        quota.heartbeat().await;
        let allowances = quota.charge(&project(), limits(60, 1_000), &key(1)).await.unwrap();
        assert_eq!(allowances.minute.resets_at, Window::Minute.ends_at(Window::Minute.index(store.now())), "{step} ms");
        quota.hand_back_all().await;
        let record = store.record();
        assert_eq!((record.minute, record.minute_charged, record.day_charged), (minute, 11, 11), "{step} ms");
    }
}

#[tokio::test]
async fn the_operator_may_choose_to_deny_or_to_allow() {
    for (choice, expected, mode) in
        [(OnStoreDown::Deny, (0, 0, 100), Mode::Deny), (OnStoreDown::Allow, (100, 0, 0), Mode::Allow)]
    {
        let store = FaultyStore::new(3);
        store.set_behaviour(Behaviour::Fails);
        let quota = over(&store, choice, SHORT);
        assert_eq!(outcomes(&quota, limits(60, 1_000), 100).await, expected);
        assert_eq!(quota.mode(), mode);
    }
}

// rule: 8.1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_spent_without_the_store_are_charged_once_it_is_back() {
    let store = FaultyStore::new(1);
    let quota = over(&store, OnStoreDown::Share, SHORT);
    quota.heartbeat().await;
    let limits = limits(60, 1_000);
    assert_eq!(outcomes(&quota, limits, 10).await, (10, 0, 0));
    store.set_behaviour(Behaviour::Fails);
    assert_eq!(outcomes(&quota, limits, 25).await, (25, 0, 0));
    store.set_behaviour(Behaviour::Works);
    quota.heartbeat().await;
    assert_eq!(quota.mode(), Mode::Exact);
    // The store learns for a quarter of a second, then works as before.
    assert_eq!(outcomes(&quota, limits, 100).await, (25, 75, 0));
    quota.hand_back_all().await;
    assert_eq!((store.record().minute_charged, store.record().day_charged), (60, 60));
}

#[tokio::test]
async fn without_the_store_a_limit_known_to_be_reached_is_refused() {
    let store = FaultyStore::new(3);
    let quota = over(&store, OnStoreDown::Share, SHORT);
    assert_eq!(outcomes(&quota, limits(5, 1_000), 6).await, (5, 1, 0));
    store.set_behaviour(Behaviour::Fails);
    assert_eq!(outcomes(&quota, limits(5, 1_000), 10).await, (0, 10, 0));
}

// rule: 8.1
#[tokio::test]
async fn an_emptied_store_gets_the_spent_units_again_before_it_grants() {
    let store = FaultyStore::new(1);
    let quota = over(&store, OnStoreDown::Deny, LONG);
    quota.heartbeat().await;
    let limits = limits(60, 1_000);
    assert_eq!(outcomes(&quota, limits, 36).await, (36, 0, 0));
    *store.bucket.lock() = None;
    store.incarnation.fetch_add(1, Ordering::SeqCst);
    quota.heartbeat().await;
    assert_eq!(outcomes(&quota, limits, 100).await, (24, 76, 0));
    assert_eq!(store.record().day_charged, 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_for_the_same_bucket_share_one_call() {
    let store = FaultyStore::new(1);
    let quota = over(&store, OnStoreDown::Deny, LONG);
    let limits = limits(700, 100_000);
    store.gate.forget_permits(usize::MAX);
    let all: Vec<_> = (0..1_000)
        .map(|_| {
            let quota = quota.clone();
            tokio::spawn(async move { quota.charge(&project(), limits, &key(1)).await })
        })
        .collect();
    // The first call waits at the gate until all others wait behind it.
    let waits = |cached: &Arc<CachedBucket>| cached.lock().waiting.len() == 1_000;
    let cached = comes(|| quota.0.cache.find(&project()).filter(waits)).await;
    store.gate.add_permits(1_000);
    let (mut admitted, mut refused) = (0, 0);
    for one in all {
        match one.await.unwrap() {
            Ok(_) => admitted += 1,
            Err(ChargeError::Exceeded { .. }) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!((admitted, refused), (700, 300));
    assert_eq!(store.calls(), 2, "one for the first, one for all later requests");
    let calls = store.calls();
    outcomes(&quota, limits, 10_000).await;
    assert_eq!(store.calls(), calls, "a refused request costs nothing");
    drop(cached);
}

#[tokio::test]
async fn a_client_that_disconnects_while_it_waits_is_not_charged() {
    let store = FaultyStore::new(1);
    let quota = over(&store, OnStoreDown::Deny, LONG);
    let limits = limits(60, 1_000);
    store.gate.forget_permits(usize::MAX);
    let waiting = tokio::spawn({
        let quota = quota.clone();
        async move { quota.charge(&project(), limits, &key(1)).await }
    });
    comes(|| (store.calls() > 0).then_some(())).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    store.gate.add_permits(10);
    assert_eq!(outcomes(&quota, limits, 1).await, (1, 0, 0));
    quota.hand_back_all().await;
    assert_eq!(store.record().day_charged, 1);
}

#[tokio::test]
async fn the_number_of_waiting_requests_is_bounded() {
    let store = FaultyStore::new(1);
    let settings = QuotaSettings { waiting_max: 2, call_budget: LONG, ..QuotaSettings::new(1) };
    let quota = Quota::new(store.clone(), settings, store.clock.clone());
    store.gate.forget_permits(usize::MAX);
    let limits = limits(60, 1_000);
    let start = || {
        let quota = quota.clone();
        tokio::spawn(async move { quota.charge(&project(), limits, &key(1)).await })
    };
    let (first, second) = (start(), start());
    comes(|| quota.0.cache.find(&project()).filter(|cached| cached.lock().waiting.len() == 2)).await;
    let turned_away = quota.charge(&project(), limits, &key(1)).await;
    assert!(matches!(turned_away, Err(ChargeError::Unavailable { .. })));
    store.gate.add_permits(10);
    assert!(first.await.unwrap().is_ok() && second.await.unwrap().is_ok());
}
