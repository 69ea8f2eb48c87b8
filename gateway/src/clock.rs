//! The fleet's time: checks times in requests on a machine that may have a wrong clock.
//!
//! Limits in responses and identities for upstreams have dates. The quota store and the control plane send their time
//! with every sign of life. With both, the median of their clocks and ours is right unless two of the three are wrong.
//! With only one, the wrong clock of the two is unknown and this machine's counts; `status`, a metric and an alert show
//! the difference. Their times are kept relative to the monotonic clock, so a step of this machine's clock is outvoted
//! even while neither is reached. The embedded quota store has no clock and no vote. Deadlines use the monotonic clock
//! only.

use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock;
use contract::time::UnixMillis;

use quota::Quota;
use quota::clock::ForeignClock;

/// The fleet's time, from this machine's clock, the quota store's and the control plane's.
pub(crate) struct FleetClock {
    machine: Arc<dyn Clock>,
    quota: Quota,
    control: ForeignClock,
}

/// Milliseconds that each clock is ahead of the fleet's time; `None` if it was never received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClocksOff {
    /// This machine's.
    pub machine: i64,
    /// The quota store's.
    pub store: Option<i64>,
    /// The control plane's.
    pub control: Option<i64>,
}

impl ClocksOff {
    /// Each clock by its name in metrics; 0 for one that was never received.
    pub(crate) fn by_name(self) -> [(&'static str, i64); 3] {
        [
            ("machine", self.machine),
            ("quota_store", self.store.unwrap_or(0)),
            ("control_plane", self.control.unwrap_or(0)),
        ]
    }
}

impl FleetClock {
    /// Follows this machine's clock until the others are received.
    pub(crate) fn new(machine: Arc<dyn Clock>, quota: Quota) -> Self {
        Self { machine, quota, control: ForeignClock::default() }
    }

    /// Records the control plane's time.
    pub(crate) fn received_from_control(&self, now: UnixMillis) {
        self.control.receive(now, self.machine.monotonic());
    }

    /// The difference of each clock from the fleet's time.
    pub(crate) fn off(&self) -> ClocksOff {
        let machine = self.machine.now();
        let control = self.control.now(self.machine.monotonic());
        compare(machine, self.quota.store_now(), control)
    }
}

impl Clock for FleetClock {
    fn now(&self) -> UnixMillis {
        let machine = self.machine.now();
        match (self.quota.store_now(), self.control.now(self.machine.monotonic())) {
            (Some(store), Some(control)) => middle(machine, store, control),
            _ => machine,
        }
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }
}

fn compare(machine: UnixMillis, store: Option<UnixMillis>, control: Option<UnixMillis>) -> ClocksOff {
    let fleet = store.zip(control).map_or(machine, |(store, control)| middle(machine, store, control));
    ClocksOff {
        machine: machine.since(fleet),
        store: store.map(|store| store.since(fleet)),
        control: control.map(|control| control.since(fleet)),
    }
}

/// The median of three.
fn middle(one: UnixMillis, two: UnixMillis, three: UnixMillis) -> UnixMillis {
    one.min(two).max(one.max(two).min(three))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use async_trait::async_trait;
    use contract::project::ProjectUid;

    use super::*;
    use quota::ledger::bucket::BucketView;
    use quota::ledger::{Incarnation, Reply, Statement};
    use quota::settings::QuotaSettings;
    use quota::store::memory::MemoryStore;
    use quota::store::{HeartbeatReply, Store, StoreOutage};

    const NOW: i64 = 1_700_000_000_000;

    /// A machine with a wall clock that the test steps.
    #[derive(Default)]
    struct Machine {
        passed: AtomicI64,
        stepped: AtomicI64,
    }

    impl Machine {
        fn pass(&self, time: Duration) {
            self.passed.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
        }

        fn step(&self, millis: i64) {
            self.stepped.fetch_add(millis, Ordering::SeqCst);
        }

        fn right_time(&self) -> UnixMillis {
            UnixMillis(NOW + self.passed.load(Ordering::SeqCst))
        }
    }

    impl Clock for Machine {
        fn now(&self) -> UnixMillis {
            self.right_time().plus(self.stepped.load(Ordering::SeqCst))
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(u64::try_from(self.passed.load(Ordering::SeqCst)).unwrap())
        }
    }

    /// A store on a machine with a right clock.
    struct Elsewhere(Arc<Machine>);

    #[async_trait]
    impl Store for Elsewhere {
        async fn execute(&self, _bucket: &ProjectUid, _statement: Statement) -> Result<Reply, StoreOutage> {
            Err(StoreOutage::Full)
        }

        async fn heartbeat(&self, _count: bool) -> Result<HeartbeatReply, StoreOutage> {
            Ok(HeartbeatReply {
                incarnation: Incarnation::default(),
                now: self.0.right_time(),
                fleet: None,
                full: None,
            })
        }

        async fn view(&self, _bucket: &ProjectUid) -> Result<Option<BucketView>, StoreOutage> {
            Ok(None)
        }
    }

    fn over(machine: &Arc<Machine>, store: Arc<dyn Store>) -> (Quota, FleetClock) {
        let quota = Quota::new(store, QuotaSettings::new(1), machine.clone());
        (quota.clone(), FleetClock::new(machine.clone(), quota))
    }

    #[test]
    fn the_median_clock_is_right() {
        let at = |ahead: i64| UnixMillis(NOW + ahead);
        for (store, control, fleet) in [
            (0, 0, 0),
            (5, 7, 5),
            (-5, -7, -5),
            (90_000, 90_010, 90_000),
            (90_000, 3, 3),
            (-90_000, 3, 0),
            (-90_000, -3, -3),
        ] {
            for (one, two) in [(store, control), (control, store)] {
                let off = compare(at(0), Some(at(one)), Some(at(two)));
                let expected = ClocksOff { machine: -fleet, store: Some(one - fleet), control: Some(two - fleet) };
                assert_eq!(off, expected, "{one} {two}");
            }
        }
    }

    #[test]
    fn with_one_other_clock_this_machines_clock_counts_and_the_difference_is_reported() {
        let at = |ahead: i64| Some(UnixMillis(NOW + ahead));
        let (control, store) =
            (compare(UnixMillis(NOW), None, at(90_000)), compare(UnixMillis(NOW), at(-90_000), None));
        assert_eq!(control, ClocksOff { machine: 0, store: None, control: Some(90_000) });
        assert_eq!(store, ClocksOff { machine: 0, store: Some(-90_000), control: None });
        assert_eq!(compare(UnixMillis(NOW), None, None), ClocksOff { machine: 0, store: None, control: None });
    }

    #[tokio::test]
    async fn the_clock_of_the_embedded_store_is_not_compared() {
        let machine = Arc::new(Machine::default());
        let (quota, clock) = over(&machine, Arc::new(MemoryStore::new(machine.clone(), 1)));
        machine.step(-90_000);
        quota.heartbeat().await;
        clock.received_from_control(machine.right_time());
        assert_eq!(clock.off(), ClocksOff { machine: 0, store: None, control: Some(90_000) });
    }

    #[tokio::test]
    async fn a_step_of_this_machines_clock_is_outvoted_by_the_last_readings_of_the_others() {
        let machine = Arc::new(Machine::default());
        let (quota, clock) = over(&machine, Arc::new(Elsewhere(machine.clone())));
        quota.heartbeat().await;
        clock.received_from_control(machine.right_time());
        machine.pass(Duration::from_hours(1));
        for step in [180_000, -7_200_000, 90_000] {
            machine.step(step);
            assert_eq!(clock.now(), machine.right_time(), "stepped by {step} ms");
        }
        assert_eq!(clock.off().machine, 180_000 - 7_200_000 + 90_000);
    }

    #[tokio::test]
    async fn a_corrected_clock_counts_as_right_at_once_without_other_clocks() {
        let machine = Arc::new(Machine::default());
        let (quota, clock) = over(&machine, Arc::new(Elsewhere(machine.clone())));
        machine.step(-90_000);
        quota.heartbeat().await;
        clock.received_from_control(machine.right_time());
        assert_eq!((clock.now(), clock.off().machine), (machine.right_time(), -90_000));
        machine.pass(Duration::from_mins(10));
        machine.step(90_000);
        assert_eq!((clock.now(), clock.off().machine), (machine.right_time(), 0));
    }
}
