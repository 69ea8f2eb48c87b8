//! The number of nodes that share the limits, kept for an outage of the store.

use std::time::Duration;

use super::store::Fleet;

/// A node that knows the fleet only from the control plane uses the number once it has not grown for this long:
/// nodes that start together would otherwise count themselves as the only one.
const STEADY_AFTER: Duration = Duration::from_secs(3);

/// The nodes that share the limits, by the store's count and by the control plane's.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownFleet {
    /// By the store's last count, or by that of the last process over the data directory.
    counted: Option<Fleet>,
    /// The largest number that the control plane has announced since the store's last count, and when it was first
    /// announced.
    announced: Option<(Fleet, Duration)>,
}

impl KnownFleet {
    pub(super) fn new(counted: Option<Fleet>) -> Self {
        Self { counted, announced: None }
    }

    /// Takes the store's count.
    pub(super) fn count(&mut self, fleet: Fleet) {
        *self = Self::new(Some(fleet));
    }

    /// Takes the control plane's count. A smaller one than before is ignored until the store counts again: a node that
    /// the control plane has lost may still admit its share.
    pub(super) fn announce(&mut self, fleet: Fleet, now: Duration) {
        self.announced = match self.announced {
            Some((known, since)) if fleet.nodes < known.nodes => Some((known, since)),
            Some((known, since)) if fleet.nodes == known.nodes => Some((fleet, since)),
            _ => Some((fleet, now)),
        };
    }

    /// The fleet that shares the limits without the store: the larger one. `None` while it is unknown.
    pub(super) fn known(&self, now: Duration) -> Option<Fleet> {
        match (self.counted, self.announced) {
            (Some(counted), Some((announced, _))) if announced.nodes > counted.nodes => Some(announced),
            (Some(counted), _) => Some(counted),
            (None, Some((announced, since))) if now.saturating_sub(since) >= STEADY_AFTER => Some(announced),
            (None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn fleet(nodes: u32, index: u32) -> Fleet {
        Fleet { nodes: NonZeroU32::new(nodes).unwrap(), index }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_control_planes_number_is_used_once_it_is_steady() {
        let mut known = KnownFleet::new(None);
        assert_eq!(known.known(seconds(9)), None);
        known.announce(fleet(1, 0), seconds(10));
        known.announce(fleet(3, 2), seconds(12));
        assert_eq!(known.known(seconds(14)), None, "others have just joined");
        known.announce(fleet(2, 1), seconds(14));
        known.announce(fleet(3, 1), seconds(14));
        assert_eq!(known.known(seconds(15)), Some(fleet(3, 1)), "the order may change, the number only grows");
        known.announce(fleet(1, 0), seconds(20));
        assert_eq!(known.known(seconds(20)), Some(fleet(3, 1)), "lost nodes may still admit their shares");
    }

    #[test]
    fn the_stores_count_is_used_unless_more_nodes_follow_the_control_plane() {
        let mut known = KnownFleet::new(Some(fleet(3, 0)));
        known.announce(fleet(2, 1), seconds(1));
        assert_eq!(known.known(seconds(9)), Some(fleet(3, 0)));
        known.announce(fleet(4, 2), seconds(9));
        assert_eq!(known.known(seconds(9)), Some(fleet(4, 2)), "a node was added in the outage");
        known.count(fleet(2, 1));
        assert_eq!(known.known(seconds(9)), Some(fleet(2, 1)), "the store is back");
    }
}
