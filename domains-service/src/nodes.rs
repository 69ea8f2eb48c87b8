//! The gateways that follow us, and how far each has come.
//!
//! In memory: after a restart gateways report again within a second. A report to another replica of this service is
//! heard through the database (`peers`). A node that is silent for five seconds is not
//! live: it serves what it has, and nobody waits for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock;
use contract::feed::{NodeReport, Revision};
use parking_lot::Mutex;
use tokio::sync::watch;

/// A node silent for longer than this is not live.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Nodes remembered; beyond that, the longest silent one is forgotten. Names are unique per process start, so old
/// ones pile up.
const NODES_MAX: usize = 1_024;

/// Of them processes of one gateway on record: those that are started in numbers share a credential. What one says too many
/// of takes the place of its own, not of others.
const NODES_OF_ONE_MAX: usize = 128;

/// What we know of one node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) report: NodeReport,
    /// When it reported last, by the monotonic clock.
    pub(crate) seen: Duration,
}

/// How a wait for the nodes ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    /// Live nodes when the wait ended.
    pub(crate) live: usize,
    /// Those that have not applied the revision, by name.
    pub(crate) lagging: Vec<String>,
}

/// All nodes.
pub(crate) struct Nodes {
    clock: Arc<dyn Clock>,
    by_name: Mutex<HashMap<String, Node>>,
    changed: watch::Sender<()>,
}

impl Nodes {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, by_name: Mutex::default(), changed: watch::channel(()).0 }
    }

    /// Notes a report.
    pub(crate) fn report(&self, report: NodeReport) {
        let seen = self.clock.monotonic();
        {
            let mut nodes = self.by_name.lock();
            if !nodes.contains_key(&report.node)
                && let Some(oldest) = in_the_way(&nodes, &report.node)
            {
                nodes.remove(&oldest);
            }
            nodes.insert(report.node.clone(), Node { report, seen });
        }
        self.changed.send_replace(());
    }

    /// Every node, by name, and whether it is live.
    pub(crate) fn all(&self) -> Vec<(Node, bool)> {
        let now = self.clock.monotonic();
        let mut nodes: Vec<_> = self.by_name.lock().values().map(|node| (node.clone(), is_live(node, now))).collect();
        nodes.sort_by(|(left, _), (right, _)| left.report.node.cmp(&right.report.node));
        nodes
    }

    /// How far the live nodes are behind `revision`.
    pub(crate) fn behind(&self, revision: Revision) -> Acknowledged {
        let live: Vec<Node> = self.all().into_iter().filter_map(|(node, live)| live.then_some(node)).collect();
        let lagging = live.iter().filter(|node| node.report.applied < revision);
        Acknowledged { live: live.len(), lagging: lagging.map(|node| node.report.node.clone()).collect() }
    }

    /// Waits until every live node has applied `revision`, at most `time`.
    pub(crate) async fn acknowledged(&self, revision: Revision, time: Duration) -> Acknowledged {
        let mut changed = self.changed.subscribe();
        let waiting = async {
            loop {
                let state = self.behind(revision);
                if state.lagging.is_empty() {
                    return state;
                }
                // The sender lives as long as we do.
                if changed.changed().await.is_err() {
                    return state;
                }
            }
        };
        match tokio::time::timeout(time, waiting).await {
            Ok(state) => state,
            Err(_) => self.behind(revision),
        }
    }
}

/// Who has to go so that there is room for one more.
fn in_the_way(nodes: &HashMap<String, Node>, newcomer: &str) -> Option<String> {
    let gateway = gateway_of(newcomer);
    let siblings = nodes.iter().filter(|(name, _)| gateway.is_some() && gateway_of(name) == gateway);
    let oldest = if siblings.clone().count() >= NODES_OF_ONE_MAX {
        siblings.min_by_key(|(_, node)| node.seen)
    } else {
        nodes.iter().filter(|_| nodes.len() >= NODES_MAX).min_by_key(|(_, node)| node.seen)
    };
    oldest.map(|(name, _)| name.clone())
}

/// The gateway on record that a node is a process of.
fn gateway_of(node: &str) -> Option<&str> {
    node.split_once('/').map(|(gateway, _)| gateway)
}

fn is_live(node: &Node, now: Duration) -> bool {
    now.saturating_sub(node.seen) <= SILENCE_MAX
}

#[cfg(test)]
mod tests {
    use chassis::clock::ManualClock;
    use contract::time::UnixMillis;

    use super::*;

    fn report(node: &str, applied: u64) -> NodeReport {
        NodeReport { node: node.to_owned(), applied: Revision(applied), version: "1".to_owned() }
    }

    #[test]
    fn silent_nodes_are_not_waited_for() {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        let nodes = Nodes::new(clock.clone());
        nodes.report(report("a", 5));
        nodes.report(report("b", 3));
        let state = nodes.behind(Revision(5));
        assert_eq!((state.live, state.lagging), (2, vec!["b".to_owned()]));
        clock.advance(SILENCE_MAX + Duration::from_millis(1));
        nodes.report(report("a", 5));
        assert_eq!(nodes.behind(Revision(5)), Acknowledged { live: 1, lagging: Vec::new() });
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_the_last_acknowledgement_or_its_time() {
        let nodes = Arc::new(Nodes::new(Arc::new(ManualClock::at(UnixMillis(0)))));
        nodes.report(report("a", 1));
        let waiting = tokio::spawn({
            let nodes = nodes.clone();
            async move { nodes.acknowledged(Revision(2), Duration::from_secs(1)).await }
        });
        tokio::task::yield_now().await;
        nodes.report(report("a", 2));
        assert_eq!(waiting.await.unwrap(), Acknowledged { live: 1, lagging: Vec::new() });
        let late = nodes.acknowledged(Revision(3), Duration::from_secs(1)).await;
        assert_eq!(late.lagging, ["a"]);
    }

    #[test]
    fn a_gateway_that_says_too_much_pushes_out_itself_alone() {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        let nodes = Nodes::new(clock.clone());
        nodes.report(report("honest/gw-1", 5));
        for index in 0..NODES_MAX * 2 {
            clock.advance(Duration::from_micros(1));
            nodes.report(report(&format!("thief/{index}"), 0));
        }
        assert_eq!(nodes.all().len(), NODES_OF_ONE_MAX + 1);
        assert!(nodes.all().iter().any(|(node, live)| *live && node.report.node == "honest/gw-1"));
    }

    #[test]
    fn the_list_is_bounded() {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        let nodes = Nodes::new(clock.clone());
        for index in 0..NODES_MAX + 10 {
            clock.advance(Duration::from_millis(1));
            nodes.report(report(&format!("node-{index}"), 1));
        }
        let names: Vec<String> = nodes.all().into_iter().map(|(node, _)| node.report.node).collect();
        assert_eq!(names.len(), NODES_MAX);
        assert!(!names.contains(&"node-0".to_owned()));
    }
}
