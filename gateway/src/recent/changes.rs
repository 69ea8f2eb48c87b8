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
pub(crate) const CHANGES_MAX: usize = 512;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RecentChange {
    /// When.
    pub at: UnixMillis,
    /// The kind: `start`, `quota`, `control`, `change`, `replica`, `settings`, `certificate`, `drain`, `ban`.
    pub what: &'static str,
    /// A description.
    pub words: String,
}

/// The changes of one gateway.
pub(crate) struct RecentChanges {
    list: Mutex<VecDeque<RecentChange>>,
    clock: Arc<dyn Clock>,
}

impl RecentChanges {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { list: Mutex::default(), clock }
    }

    /// Records a change now.
    pub(crate) fn record(&self, what: &'static str, words: impl Into<String>) {
        self.record_at(self.clock.now(), what, words);
    }

    /// Records a change at a given time.
    pub(crate) fn record_at(&self, at: UnixMillis, what: &'static str, words: impl Into<String>) {
        let mut list = self.list.lock();
        if list.len() >= CHANGES_MAX {
            list.pop_front();
        }
        list.push_back(RecentChange { at, what, words: words.into() });
    }

    /// The newest `limit` changes, newest first.
    pub(crate) fn newest(&self, limit: usize) -> Vec<RecentChange> {
        self.list.lock().iter().rev().take(limit).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use chassis::clock::ManualClock;

    use super::*;

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let changes = RecentChanges::new(Arc::new(ManualClock::at(UnixMillis(5))));
        for round in 0..=CHANGES_MAX {
            changes.record("start", format!("{round}"));
        }
        let newest = changes.newest(usize::MAX);
        assert_eq!(newest.len(), CHANGES_MAX);
        assert_eq!((newest[0].words.as_str(), newest[0].at), ("512", UnixMillis(5)));
        assert_eq!(newest.last().map(|change| change.words.as_str()), Some("1"));
        assert_eq!(changes.newest(2).len(), 2);
    }
}
