//! What changed, and when: "since when is it so, and what was done before?"
//!
//! Starts, changes of the way requests are counted, the control plane lost and found, what it published, settings read
//! anew, draining. A list of bounded length, the oldest forgotten first.

use std::collections::VecDeque;
use std::sync::Arc;

use chassis::clock::Clock;
use contract::time::UnixMillis;
use parking_lot::Mutex;
use serde::Serialize;

/// Moments that are remembered.
pub(crate) const MOMENTS_MAX: usize = 512;

/// One thing that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Moment {
    /// When.
    pub at: UnixMillis,
    /// What kind of thing: `start`, `quota`, `control`, `change`, `replica`, `settings`, `certificate`, `drain`, `ban`.
    pub what: &'static str,
    /// In words.
    pub words: String,
}

/// The moments of one gateway.
pub(crate) struct Moments {
    list: Mutex<VecDeque<Moment>>,
    clock: Arc<dyn Clock>,
}

impl Moments {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { list: Mutex::default(), clock }
    }

    /// Something changed now.
    pub(crate) fn now(&self, what: &'static str, words: impl Into<String>) {
        self.at(self.clock.now(), what, words);
    }

    /// Something changed then.
    pub(crate) fn at(&self, at: UnixMillis, what: &'static str, words: impl Into<String>) {
        let mut list = self.list.lock();
        if list.len() >= MOMENTS_MAX {
            list.pop_front();
        }
        list.push_back(Moment { at, what, words: words.into() });
    }

    /// The newest `limit` moments, newest first.
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
