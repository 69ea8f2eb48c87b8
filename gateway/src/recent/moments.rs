//! Recent changes: what changed, and when.
//!
//! Starts, changes of how requests are counted, loss and return of the control plane, published changes, reloaded
//! settings, drains. A bounded list; the oldest entry is dropped first.

use std::collections::VecDeque;
use std::sync::Arc;

use chassis::clock::Clock;
use contract::time::UnixMillis;
use parking_lot::Mutex;
use serde::Serialize;

/// The longest list.
pub(crate) const MOMENTS_MAX: usize = 512;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Moment {
    /// When.
    pub at: UnixMillis,
    /// The kind: `start`, `quota`, `control`, `change`, `replica`, `settings`, `certificate`, `drain`, `ban`.
    pub what: &'static str,
    /// A description.
    pub words: String,
}

/// The changes of one gateway.
pub(crate) struct Moments {
    list: Mutex<VecDeque<Moment>>,
    clock: Arc<dyn Clock>,
}

impl Moments {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { list: Mutex::default(), clock }
    }

    /// Records a change now.
    pub(crate) fn now(&self, what: &'static str, words: impl Into<String>) {
        self.at(self.clock.now(), what, words);
    }

    /// Records a change at a given time.
    pub(crate) fn at(&self, at: UnixMillis, what: &'static str, words: impl Into<String>) {
        let mut list = self.list.lock();
        if list.len() >= MOMENTS_MAX {
            list.pop_front();
        }
        list.push_back(Moment { at, what, words: words.into() });
    }

    /// The newest `limit` changes, newest first.
    pub(crate) fn newest(&self, limit: usize) -> Vec<Moment> {
        self.list.lock().iter().rev().take(limit).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use chassis::clock::ManualClock;

    use super::*;

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let moments = Moments::new(Arc::new(ManualClock::at(UnixMillis(5))));
        for round in 0..=MOMENTS_MAX {
            moments.now("start", format!("{round}"));
        }
        let newest = moments.newest(usize::MAX);
        assert_eq!(newest.len(), MOMENTS_MAX);
        assert_eq!((newest[0].words.as_str(), newest[0].at), ("512", UnixMillis(5)));
        assert_eq!(newest.last().map(|moment| moment.words.as_str()), Some("1"));
        assert_eq!(moments.newest(2).len(), 2);
    }
}
