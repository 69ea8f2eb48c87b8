//! The clock, as an argument.
//!
//! Wall time dates things (windows, certificates, logs); monotonic time measures things (deadlines, leases, durations).
//! Only this module reads the operating system's clock, so tests control time with a [`ManualClock`].

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contract::time::{UnixMillis, UnixSeconds};

/// The source of time.
pub trait Clock: Send + Sync {
    /// Wall time.
    fn now(&self) -> UnixMillis;

    /// Time since an arbitrary start; never goes back or jumps.
    fn monotonic(&self) -> Duration;

    /// Wall time in whole seconds.
    fn now_seconds(&self) -> UnixSeconds {
        self.now().to_seconds()
    }
}

/// The operating system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the operating system")]
    fn now(&self) -> UnixMillis {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        UnixMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    wall_millis: AtomicI64,
    monotonic_millis: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: UnixMillis) -> Self {
        Self { wall_millis: AtomicI64::new(now.0), monotonic_millis: AtomicU64::new(0) }
    }

    /// Moves both times forward.
    pub fn advance(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.monotonic_millis.fetch_add(millis, Ordering::SeqCst);
        self.wall_millis.fetch_add(i64::try_from(millis).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Sets wall time alone, as a step of NTP or an operator does.
    pub fn jump_to(&self, now: UnixMillis) {
        self.wall_millis.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.wall_millis.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic_millis.load(Ordering::SeqCst))
    }
}
