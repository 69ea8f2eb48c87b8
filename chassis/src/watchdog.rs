//! A thread that detects a stuck asynchronous runtime.
//!
//! A blocking future, or a deadlock, stops a runtime silently: the process lives, its ports accept, and no request is
//! answered. Each watched runtime runs a [`Heartbeat`]; the watchdog's thread checks all of them, warns if one is late,
//! and calls for the end of the process if one is dead. A supervisor restarts the process.
//!
//! A process that was stopped as a whole (SIGSTOP, a paused machine) is not stuck: the watchdog was late too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::clock::Clock;

/// Timing of heartbeats.
#[derive(Clone, Copy, Debug)]
pub struct WatchdogLimits {
    /// Interval of heartbeats and checks.
    pub every: Duration,
    /// Silence that causes a warning.
    pub late: Duration,
    /// Silence that ends the process.
    pub dead: Duration,
}

impl Default for WatchdogLimits {
    fn default() -> Self {
        Self { every: Duration::from_millis(250), late: Duration::from_secs(1), dead: Duration::from_secs(10) }
    }
}

/// A runtime that was silent for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The runtime's name.
    pub runtime: &'static str,
    /// How long no task ran.
    pub silent: Duration,
}

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Watchdog {
    watched: Arc<Mutex<Vec<Watched>>>,
    longest_millis: Arc<AtomicU64>,
    every: Duration,
    clock: ClockHandle,
    _end: SyncSender<()>,
}

#[derive(Clone)]
struct ClockHandle(Arc<dyn Clock>);

impl std::fmt::Debug for ClockHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl ClockHandle {
    fn millis(&self) -> u64 {
        u64::try_from(self.0.monotonic().as_millis()).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
struct Watched {
    runtime: &'static str,
    /// Dropped with its runtime, which is not a stall.
    last: Weak<AtomicU64>,
    warned: bool,
}

/// The heartbeat that a watched runtime must run.
#[derive(Debug)]
pub struct Heartbeat {
    last: Arc<AtomicU64>,
    every: Duration,
    clock: ClockHandle,
}

impl Watchdog {
    /// Starts the thread. `dead` is called on that thread for a runtime that is silent for longer than the limit; it
    /// should end the process.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        clock: Arc<dyn Clock>,
        limits: WatchdogLimits,
        mut dead: impl FnMut(&Stall) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (end, ended) = sync_channel(1);
        let watched: Arc<Mutex<Vec<Watched>>> = Arc::default();
        let longest_millis: Arc<AtomicU64> = Arc::default();
        let clock = ClockHandle(clock);
        let (table, longest, time) = (Arc::clone(&watched), Arc::clone(&longest_millis), clock.clone());
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            let mut checked_at = time.millis();
            // Silence counts from here: before it the whole process was stopped.
            let mut awake_since = 0;
            while ended.recv_timeout(limits.every) == Err(RecvTimeoutError::Timeout) {
                let now = time.millis();
                if now.saturating_sub(checked_at) > millis(limits.every.saturating_add(limits.late)) {
                    awake_since = now;
                }
                checked_at = now;
                check(&table, &longest, limits, (now, awake_since), &mut dead);
            }
        })?;
        Ok(Self { watched, longest_millis, every: limits.every, clock, _end: end })
    }

    /// Watches another runtime. Spawn [`Heartbeat::beat`] on it.
    pub fn watch(&self, runtime: &'static str) -> Heartbeat {
        let last = Arc::new(AtomicU64::new(self.clock.millis()));
        let entry = Watched { runtime, last: Arc::downgrade(&last), warned: false };
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        Heartbeat { last, every: self.every, clock: self.clock.clone() }
    }

    /// The longest silence of any watched runtime at the last check.
    pub fn longest_silence(&self) -> Duration {
        Duration::from_millis(self.longest_millis.load(Ordering::Relaxed))
    }
}

impl Heartbeat {
    /// Beats until the runtime ends.
    pub async fn beat(self) {
        loop {
            self.last.store(self.clock.millis(), Ordering::Relaxed);
            tokio::time::sleep(self.every).await;
        }
    }
}

fn check(
    table: &Mutex<Vec<Watched>>,
    longest: &AtomicU64,
    limits: WatchdogLimits,
    (now, awake_since): (u64, u64),
    dead: &mut impl FnMut(&Stall),
) {
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    let mut most = 0;
    table.retain_mut(|one| {
        let Some(last) = one.last.upgrade() else { return false };
        let silent = now.saturating_sub(last.load(Ordering::Relaxed).max(awake_since));
        most = most.max(silent);
        let stall = Stall { runtime: one.runtime, silent: Duration::from_millis(silent) };
        if silent > millis(limits.dead) {
            dead(&stall);
        } else if silent > millis(limits.late) && !one.warned {
            tracing::warn!(
                runtime = one.runtime,
                silent_ms = silent,
                "a runtime does not respond; requests on it wait. Report it if it repeats"
            );
            one.warned = true;
        } else if silent <= millis(limits.late) {
            one.warned = false;
        }
        true
    });
    longest.store(most, Ordering::Relaxed);
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{ManualClock, SystemClock};
    use contract::time::UnixMillis;

    const LIMITS: WatchdogLimits = WatchdogLimits {
        every: Duration::from_millis(5),
        late: Duration::from_millis(20),
        dead: Duration::from_millis(100),
    };

    /// The stalls found if the last heartbeat was at `last`, the check is at `now`, and the process is awake since
    /// `awake_since`.
    fn found(last: u64, now: u64, awake_since: u64) -> (Vec<Stall>, u64) {
        let beat = Arc::new(AtomicU64::new(last));
        let table = Mutex::new(vec![Watched { runtime: "edge", last: Arc::downgrade(&beat), warned: false }]);
        let (longest, mut stalls) = (AtomicU64::new(0), Vec::new());
        check(&table, &longest, LIMITS, (now, awake_since), &mut |stall| stalls.push(stall.clone()));
        (stalls, longest.into_inner())
    }

    #[test]
    fn only_a_long_stall_ends_the_process() {
        assert_eq!(found(1_000, 1_000, 0), (vec![], 0));
        assert_eq!(found(1_000, 1_100, 0), (vec![], 100));
        let stall = Stall { runtime: "edge", silent: Duration::from_millis(101) };
        assert_eq!(found(1_000, 1_101, 0), (vec![stall], 101));
    }

    #[test]
    fn a_process_that_was_stopped_as_a_whole_is_forgiven() {
        assert_eq!(found(1_000, 61_000, 61_000), (vec![], 0));
        assert_eq!(found(1_000, 61_050, 61_000), (vec![], 50));
        assert_eq!(found(1_000, 61_200, 61_000).0.len(), 1, "but it has to wake up");
    }

    #[test]
    fn an_ended_runtime_is_no_longer_watched() {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        let watchdog = Watchdog::start(clock.clone(), LIMITS, |stall| panic!("{stall:?}")).unwrap();
        drop(watchdog.watch("gone"));
        clock.advance(Duration::from_mins(1));
        let mut stalls = 0;
        check(&watchdog.watched, &AtomicU64::new(0), LIMITS, (60_000, 0), &mut |_| stalls += 1);
        assert_eq!(stalls, 0);
        assert!(watchdog.watched.lock().unwrap().is_empty());
    }

    // promise: faults.22
    #[test]
    fn a_blocked_runtime_is_found_by_the_thread_and_a_running_one_is_not() {
        let (sender, receiver) = sync_channel(1);
        let watchdog = Watchdog::start(Arc::new(SystemClock::new()), LIMITS, move |stall| {
            let _ = sender.try_send(stall.clone());
        })
        .unwrap();
        let (free, blocked) = sync_channel::<()>(1);
        let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let (stuck, well) = (runtime(), runtime());
        let _running = well.spawn(watchdog.watch("well").beat());
        let _beating = stuck.spawn(watchdog.watch("stuck").beat());
        let blocking = stuck.spawn(async move { blocked.recv() });
        let stall: Stall = receiver.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(stall.runtime, "stuck");
        assert!(watchdog.longest_silence() > LIMITS.late);
        free.send(()).unwrap();
        well.block_on(blocking).unwrap().unwrap();
    }
}
