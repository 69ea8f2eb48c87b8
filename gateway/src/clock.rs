//! The time by which requests are judged, on a machine whose own clock may be wrong.
//!
//! What callers are told of their limits, and what upstreams are told of callers, is dated. The quota store and the
//! control plane say with every sign of life what time it is there; where both are heard, the one in the middle of
//! theirs and ours is right unless two of the three are wrong. Where only one is heard nobody knows who is wrong, and
//! this machine's clock counts. Deadlines are measured by the monotonic clock and need none of this.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chassis::clock::Clock;
use contract::time::UnixMillis;

use crate::quota::Quota;

/// What stands in place of the control plane's clock before it was heard.
const NEVER_HEARD: i64 = i64::MIN;

/// See the module.
pub struct FleetClock {
    machine: Arc<dyn Clock>,
    quota: Quota,
    /// The control plane's clock less this machine's, in milliseconds.
    control_ahead: AtomicI64,
}

impl FleetClock {
    /// This machine's clock, until the others are heard.
    pub fn new(machine: Arc<dyn Clock>, quota: Quota) -> Self {
        Self { machine, quota, control_ahead: AtomicI64::new(NEVER_HEARD) }
    }

    /// The control plane says what time it is there.
    pub fn heard_control(&self, now: UnixMillis) {
        self.control_ahead.store(now.since(self.machine.now()), Ordering::Relaxed);
    }

    /// By how many milliseconds this machine's clock is behind; negative when it is ahead. 0 while nobody knows.
    pub fn behind(&self) -> i64 {
        let control = Some(self.control_ahead.load(Ordering::Relaxed)).filter(|ahead| *ahead != NEVER_HEARD);
        self.quota.store_ahead().zip(control).map_or(0, |(store, control)| middle(store, control))
    }
}

impl Clock for FleetClock {
    fn now(&self) -> UnixMillis {
        self.machine.now().plus(self.behind())
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }
}

/// The middle one of 0 and two others.
fn middle(one: i64, other: i64) -> i64 {
    one.min(other).max(one.max(other).min(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_in_the_middle_is_right() {
        for (one, other, right) in [
            (0, 0, 0),
            (5, 7, 5),
            (-5, -7, -5),
            (90_000, 90_010, 90_000),
            (90_000, 3, 3),
            (-90_000, 3, 0),
            (-90_000, -3, -3),
        ] {
            assert_eq!((middle(one, other), middle(other, one)), (right, right), "{one} {other}");
        }
    }
}
