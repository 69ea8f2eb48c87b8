//! The gateways that follow us, and how far each has come.
//!
//! In memory: after a restart gateways report again within a second. A report to another replica of this service is
//! heard through the database (`peers`). A node that is silent for five seconds is not live: it serves what it has, and
//! only a removal waits for it.
//!
//! A removal is over when nobody serves the name. So it waits for every gateway on record as well, although it is silent,
//! until it acknowledges, its credential is revoked, or nothing was heard of it for [`FORGOTTEN_AFTER`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock;
use contract::feed::{NodeReport, Revision};
use parking_lot::Mutex;
use tokio::sync::watch;

/// A node silent for longer than this is not live.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(5);

/// A gateway on record of which nothing was heard for so long is not waited for any more, in milliseconds.
pub(crate) const FORGOTTEN_AFTER: i64 = 24 * 3_600 * 1_000;

/// After our start the gateways on record have so long to come back before anything that must reach all of them goes on
/// without them.
const RETURN_TIME: Duration = Duration::from_secs(10);

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
    /// The gateways on record that were heard lately, and since when each has been expected.
    expected: Mutex<HashMap<String, Duration>>,
    changed: watch::Sender<()>,
}

impl Nodes {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, by_name: Mutex::default(), expected: Mutex::default(), changed: watch::channel(()).0 }
    }

    /// These gateways are on record and were heard lately, by us or by those before us.
    pub(crate) fn expect(&self, gateways: &[String]) {
        let now = self.clock.monotonic();
        {
            let mut expected = self.expected.lock();
            expected.retain(|gateway, _| gateways.contains(gateway));
            for gateway in gateways {
                expected.entry(gateway.clone()).or_insert(now);
            }
        }
        self.changed.send_replace(());
    }

    /// The gateways on record no process of which is live, and how far each had come when it was heard last.
    fn silent(&self) -> Vec<(String, Revision, Duration)> {
        let now = self.clock.monotonic();
        let nodes = self.by_name.lock();
        let mut silent = Vec::new();
        for (gateway, since) in &*self.expected.lock() {
            let of_it = || nodes.values().filter(|node| gateway_of(&node.report.node) == Some(gateway.as_str()));
            if !of_it().any(|node| is_live(node, now)) {
                let applied = of_it().map(|node| node.report.applied).max().unwrap_or_default();
                silent.push((gateway.clone(), applied, now.saturating_sub(*since)));
            }
        }
        silent
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
        let mut lagging: Vec<String> = lagging.map(|node| node.report.node.clone()).collect();
        // Those that were there before our start are on their way back.
        let missing = self
            .silent()
            .into_iter()
            .filter(|(_, applied, since)| *applied == Revision::default() && *since <= RETURN_TIME);
        lagging.extend(missing.map(|(gateway, ..)| gateway));
        lagging.sort();
        Acknowledged { live: live.len(), lagging }
    }

    /// As [`Nodes::behind`], with the gateways on record that are silent.
    pub(crate) fn behind_of_all(&self, revision: Revision) -> Acknowledged {
        let Acknowledged { mut live, mut lagging } = self.behind(revision);
        for (gateway, applied, _) in self.silent() {
            live += 1;
            if applied < revision && !lagging.contains(&gateway) {
                lagging.push(gateway);
            }
        }
        lagging.sort();
        Acknowledged { live, lagging }
    }

    /// Waits until every live node has applied `revision`, at most `time`.
    pub(crate) async fn acknowledged(&self, revision: Revision, time: Duration) -> Acknowledged {
        self.wait(time, || self.behind(revision)).await
    }

    /// Waits until every live node and every gateway on record has applied `revision`, at most `time`.
    pub(crate) async fn acknowledged_by_all(&self, revision: Revision, time: Duration) -> Acknowledged {
        self.wait(time, || self.behind_of_all(revision)).await
    }

    async fn wait(&self, time: Duration, state: impl Fn() -> Acknowledged) -> Acknowledged {
        let mut changed = self.changed.subscribe();
        let waiting = async {
            loop {
                let state = state();
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
            Err(_) => state(),
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

    #[test]
    fn a_removal_waits_for_gateways_on_record_that_are_silent() {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        let nodes = Nodes::new(clock.clone());
        let lagging = |nodes: &Nodes| (nodes.behind(Revision(5)).lagging, nodes.behind_of_all(Revision(5)).lagging);
        let one = || vec!["gw-1".to_owned()];
        // After our start: it was there before, and may come back any moment.
        nodes.expect(&one());
        assert_eq!(lagging(&nodes), (one(), one()));
        clock.advance(RETURN_TIME + Duration::from_millis(1));
        assert_eq!(lagging(&nodes), (Vec::new(), one()), "everything but a removal goes on without it");
        // It comes, has not applied the revision, and falls silent again.
        nodes.report(report("gw-1/a", 4));
        assert_eq!(lagging(&nodes).1, ["gw-1/a"]);
        clock.advance(SILENCE_MAX + Duration::from_millis(1));
        assert_eq!(lagging(&nodes), (Vec::new(), one()));
        // Another process of it has taken its place.
        nodes.report(report("gw-1/b", 5));
        assert_eq!(lagging(&nodes), (Vec::new(), Vec::new()));
        // Silent, but it had applied the revision; and then revoked before it has applied another.
        clock.advance(SILENCE_MAX + Duration::from_millis(1));
        assert_eq!(nodes.behind_of_all(Revision(5)), Acknowledged { live: 1, lagging: Vec::new() });
        assert_eq!(nodes.behind_of_all(Revision(6)).lagging, one());
        nodes.expect(&[]);
        assert_eq!(nodes.behind_of_all(Revision(6)), Acknowledged { live: 0, lagging: Vec::new() });
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
