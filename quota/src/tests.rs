//! Tests of [`Quota`] with the embedded store.

mod faults;
mod fleet;
mod redis;
mod store;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use contract::key::KeyId;
use contract::plan::{Limits, Plan};
use contract::project::ProjectUid;
use contract::time::{UnixMillis, UnixSeconds};
use contract::window::Window;

use super::bucket_cache::CachedBucket;
use super::settings::{Mode, QuotaSettings};
use super::store::Store;
use super::store::memory::{BUCKETS_MAX, MemoryStore};
use super::{ChargeError, Quota};
use chassis::clock::Clock;

/// 2023-11-14T22:13:20Z, 20 seconds into its minute.
const START: i64 = 1_700_000_000_000;

/// A wall clock and a monotonic clock that the test moves.
pub(super) struct TestClock {
    millis: AtomicI64,
}

impl TestClock {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { millis: AtomicI64::new(START) })
    }

    pub(super) fn pass(&self, time: Duration) {
        self.millis.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }

    pub(super) fn pass_until(&self, moment: UnixSeconds) {
        self.millis.fetch_max(moment.0 * 1_000, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.millis.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.millis.load(Ordering::SeqCst) - START).unwrap())
    }
}

/// A wall clock and a monotonic clock that run in real time from a chosen start.
pub(super) struct RealClock {
    began: Instant,
    wall: UnixMillis,
    /// Milliseconds by which the wall clock has stepped.
    stepped: AtomicI64,
    /// Milliseconds that have passed in addition to the real ones.
    skipped: AtomicI64,
}

impl RealClock {
    pub(super) fn from(wall: UnixMillis) -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), wall, stepped: AtomicI64::new(0), skipped: AtomicI64::new(0) })
    }

    /// This many milliseconds pass at once, on both clocks.
    pub(super) fn skip(&self, millis: i64) {
        self.skipped.fetch_add(millis, Ordering::SeqCst);
    }

    /// The wall clock jumps; the monotonic clock does not.
    pub(super) fn step(&self, millis: i64) {
        self.stepped.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for RealClock {
    fn now(&self) -> UnixMillis {
        let passed = i64::try_from(self.monotonic().as_millis()).unwrap();
        self.wall.plus(passed + self.stepped.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        let skipped = u64::try_from(self.skipped.load(Ordering::SeqCst)).unwrap();
        self.began.elapsed() + Duration::from_millis(skipped)
    }
}

fn embedded() -> (Quota, Arc<TestClock>, Arc<MemoryStore>) {
    let clock = TestClock::new();
    let store = Arc::new(MemoryStore::new(clock.clone(), BUCKETS_MAX));
    (Quota::new(store.clone(), QuotaSettings::new(1), clock.clone()), clock, store)
}

fn project() -> ProjectUid {
    "demo".parse().unwrap()
}

fn key(number: u8) -> KeyId {
    KeyId::from_random([number; 10])
}

fn limits(per_minute: u32, per_day: u32) -> Limits {
    Limits::new(per_minute, per_day).unwrap()
}

// rule: 8.1, 8.8
#[tokio::test]
async fn remaining_falls_by_exactly_one_per_request_and_then_the_minute_refuses() {
    let (quota, _clock, _store) = embedded();
    let free = Plan::Free.stated_limits();
    for left in (0..60).rev() {
        let allowances = quota.charge(&project(), free, &key(1)).await.unwrap();
        assert_eq!((allowances.minute.remaining, allowances.day.unwrap().remaining), (left, 940 + left));
        assert_eq!(allowances.minute.resets_at, UnixSeconds(1_700_000_040));
    }
    let refused = quota.charge(&project(), free, &key(1)).await.unwrap_err();
    let ChargeError::Exceeded { allowances, window: Window::Minute } = refused else { unreachable!("{refused:?}") };
    assert_eq!(allowances.minute.remaining, 0);
    assert_eq!(quota.mode(), Mode::Exact);
}

// rule: 8.1, 8.9
#[tokio::test]
async fn the_next_minute_starts_full_and_the_day_continues() {
    let (quota, clock, _store) = embedded();
    let limits = limits(2, 5);
    let mut admitted = 0;
    for _minute in 0..3 {
        for _ in 0..4 {
            admitted += u32::from(quota.charge(&project(), limits, &key(1)).await.is_ok());
        }
        let reset = quota.allowances(&project(), limits).minute.resets_at;
        clock.pass_until(UnixSeconds(reset.0 - 1));
        clock.pass(Duration::from_millis(999));
        assert!(quota.charge(&project(), limits, &key(1)).await.is_err(), "the last millisecond of the minute");
        clock.pass_until(reset);
    }
    assert_eq!(admitted, 5);
    let refused = quota.charge(&project(), limits, &key(1)).await.unwrap_err();
    let ChargeError::Exceeded { allowances, window: Window::Day } = refused else { unreachable!("{refused:?}") };
    clock.pass_until(allowances.day.unwrap().resets_at);
    let next = quota.charge(&project(), limits, &key(1)).await.unwrap();
    assert_eq!((next.minute.remaining, next.day.unwrap().remaining), (1, 4));
}

// rule: 8.1
#[tokio::test]
async fn ten_thousand_requests_in_a_minute_of_sixty_cost_the_day_sixty() {
    let (quota, _clock, _store) = embedded();
    let mut admitted = 0;
    for _ in 0..10_000 {
        admitted += u64::from(quota.charge(&project(), Plan::Free.stated_limits(), &key(1)).await.is_ok());
    }
    let record = quota.usage(&project()).await.unwrap().unwrap();
    assert_eq!((admitted, record.minute_charged, record.day_charged), (60, 60, 60));
}

// rule: 8.1
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_thousand_at_once_for_one_unit_exactly_one_succeeds() {
    for _repeat in 0..20 {
        let (quota, _clock, _store) = embedded();
        let limits = limits(10, 1_000);
        for _ in 0..9 {
            quota.charge(&project(), limits, &key(1)).await.unwrap();
        }
        let all: Vec<_> = (0..1_000)
            .map(|_| {
                let quota = quota.clone();
                tokio::spawn(async move { quota.charge(&project(), limits, &key(1)).await.is_ok() })
            })
            .collect();
        let mut admitted = 0;
        for one in all {
            admitted += u32::from(one.await.unwrap());
        }
        assert_eq!(admitted, 1);
    }
}

// rule: 8.8
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_see_every_remaining_exactly_once() {
    let (quota, _clock, store) = embedded();
    let limits = limits(500, 100_000);
    let all: Vec<_> = (0..800)
        .map(|_| {
            let quota = quota.clone();
            tokio::spawn(async move { quota.charge(&project(), limits, &key(1)).await.ok() })
        })
        .collect();
    let mut seen = BTreeSet::new();
    for one in all {
        if let Some(allowances) = one.await.unwrap() {
            assert!(seen.insert(allowances.minute.remaining));
        }
    }
    assert_eq!(seen, (0..500).collect());
    assert_eq!(store.view(&project()).await.unwrap().unwrap().day_charged, 500);
}

// rule: 8.4
#[tokio::test]
async fn a_plan_change_takes_effect_at_once_and_keeps_counts() {
    let (quota, _clock, _store) = embedded();
    while quota.charge(&project(), Plan::Free.stated_limits(), &key(1)).await.is_ok() {}
    let upgraded = quota.charge(&project(), Plan::Pro.stated_limits(), &key(1)).await.unwrap();
    assert_eq!((upgraded.minute.limit, upgraded.minute.remaining), (300, 239));
    let downgraded = quota.charge(&project(), Plan::Free.stated_limits(), &key(1)).await.unwrap_err();
    let ChargeError::Exceeded { allowances, .. } = downgraded else { unreachable!("{downgraded:?}") };
    assert_eq!((allowances.minute.limit, allowances.minute.remaining), (60, 0));
}

#[tokio::test]
async fn a_refund_admits_another_request_but_never_raises_remaining() {
    let (quota, _clock, _store) = embedded();
    let limits = limits(2, 100);
    quota.charge(&project(), limits, &key(1)).await.unwrap();
    let last = quota.charge(&project(), limits, &key(1)).await.unwrap();
    assert_eq!(last.minute.remaining, 0);
    quota.refund(&project(), &last);
    assert_eq!(quota.charge(&project(), limits, &key(1)).await.unwrap().minute.remaining, 0);
    assert!(quota.charge(&project(), limits, &key(1)).await.is_err());
}

#[tokio::test]
async fn units_held_are_handed_back_when_idle_and_at_shutdown() {
    let (quota, clock, store) = embedded();
    let limits = limits(1_000, 100_000);
    for _ in 0..100 {
        quota.charge(&project(), limits, &key(1)).await.unwrap();
        clock.pass(Duration::from_millis(10));
    }
    let charged = |store: Arc<MemoryStore>| async move { store.view(&project()).await.unwrap().unwrap().day_charged };
    assert!(charged(store.clone()).await > 100, "a busy bucket holds a lease");
    clock.pass(Duration::from_secs(3));
    quota.heartbeat().await;
    tokio::task::yield_now().await;
    assert_eq!(charged(store.clone()).await, 100);
    for _ in 0..100 {
        quota.charge(&project(), limits, &key(1)).await.unwrap();
        clock.pass(Duration::from_millis(1));
    }
    assert!(charged(store.clone()).await > 200);
    quota.hand_back_all().await;
    assert_eq!(charged(store).await, 200);
}

// rule: 8.3
#[tokio::test]
async fn a_key_that_ignores_429_is_banned_for_a_while_and_other_keys_are_served() {
    let (quota, clock, _store) = embedded();
    let free = Plan::Free.stated_limits();
    while quota.charge(&project(), free, &key(1)).await.is_ok() {}
    let mut until = None;
    for _ in 0..60 {
        clock.pass(Duration::from_millis(50));
        if let Err(ChargeError::Banned { until: end, .. }) = quota.charge(&project(), free, &key(1)).await {
            until = Some(end);
        }
    }
    let until = until.unwrap();
    assert_eq!(quota.bans().len(), 1);
    assert!(matches!(quota.charge(&project(), free, &key(2)).await, Err(ChargeError::Exceeded { .. })));
    clock.pass_until(UnixSeconds(until.0 - 1));
    assert!(matches!(quota.charge(&project(), free, &key(1)).await, Err(ChargeError::Banned { .. })));
    assert!(quota.charge(&project(), free, &key(2)).await.is_ok(), "another key of the project, a minute later");
    clock.pass_until(until);
    assert!(quota.charge(&project(), free, &key(1)).await.is_ok());
}

#[tokio::test]
async fn manual_bans_last_until_lifted() {
    let (quota, _clock, _store) = embedded();
    let free = Plan::Free.stated_limits();
    let until = UnixSeconds(START / 1_000 + 500);
    quota.ban(&key(1), until).unwrap();
    let refused = quota.charge(&project(), free, &key(1)).await.unwrap_err();
    assert!(matches!(refused, ChargeError::Banned { until: end, .. } if end == until));
    assert_eq!(quota.usage(&project()).await.unwrap(), None, "a banned request costs nothing");
    assert!(quota.lift(&key(1)));
    assert!(!quota.lift(&key(1)));
    assert!(quota.charge(&project(), free, &key(1)).await.is_ok());
}

#[tokio::test]
async fn a_restart_that_imports_the_charges_hands_out_no_fresh_day() {
    let (quota, clock, store) = embedded();
    let limits = limits(100, 10);
    for _ in 0..7 {
        quota.charge(&project(), limits, &key(1)).await.unwrap();
    }
    quota.hand_back_all().await;
    let snapshot = serde_json::to_string(&store.export()).unwrap();

    let store = Arc::new(MemoryStore::new(clock.clone(), BUCKETS_MAX));
    assert_eq!(store.import(serde_json::from_str(&snapshot).unwrap()), 1);
    let quota = Quota::new(store, QuotaSettings::new(2), clock);
    let mut admitted = 0;
    for _ in 0..20 {
        admitted += u32::from(quota.charge(&project(), limits, &key(1)).await.is_ok());
    }
    assert_eq!(admitted, 3);
}

#[tokio::test]
async fn a_full_map_drops_idle_buckets_and_keeps_their_charges_in_the_store() {
    let clock = TestClock::new();
    let store = Arc::new(MemoryStore::new(clock.clone(), BUCKETS_MAX));
    let settings = QuotaSettings { buckets_max: 64, ..QuotaSettings::new(1) };
    let quota = Quota::new(store, settings, clock.clone());
    let limits = limits(100, 3);
    let name = |number: u32| format!("p{number}").parse::<ProjectUid>().unwrap();
    for _round in 0..3 {
        for number in 0..500 {
            quota.charge(&name(number), limits, &key(1)).await.unwrap();
            clock.pass(Duration::from_secs(2));
        }
    }
    for number in 0..500 {
        assert!(quota.charge(&name(number), limits, &key(1)).await.is_err(), "{number}");
        clock.pass(Duration::from_secs(2));
    }
}

#[tokio::test]
async fn units_that_another_node_needs_are_returned_at_once() {
    let (quota, clock, store) = embedded();
    let limits = limits(1_000, 100_000);
    for _ in 0..100 {
        quota.charge(&project(), limits, &key(1)).await.unwrap();
        clock.pass(Duration::from_millis(1));
    }
    assert!(store.view(&project()).await.unwrap().unwrap().day_charged > 100);
    quota.recall(&project());
    tokio::task::yield_now().await;
    assert_eq!(store.view(&project()).await.unwrap().unwrap().day_charged, 100);
}

#[test]
fn a_hundred_thousand_buckets_fit_into_forty_four_megabytes() {
    assert!(CachedBucket::size() <= 440, "{} bytes per bucket", CachedBucket::size());
}
