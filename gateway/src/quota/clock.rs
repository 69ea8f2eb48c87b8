//! The two clocks quotas need, handed in so that time moves only where somebody moves it.

use std::time::Duration;

use contract::time::UnixMillis;

/// A wall clock and a monotonic clock.
pub trait QuotaClock: Send + Sync {
    /// The time of day of this machine; may be wrong, may step.
    fn wall(&self) -> UnixMillis;

    /// Time since some fixed moment; never steps back, runs at the speed of real time.
    fn monotonic(&self) -> Duration;
}
