//! A gateway's place among those that share the limits: they need it while the quota store is away.

use std::num::NonZeroU32;

use contract::feed::AmongGateways;

use super::{LATELY_MILLIS, Nodes, RETURN_TIME, is_live};

impl Nodes {
    /// The place of a live process among all that share the limits: the live ones, and for a moment after our start
    /// those that may come back.
    pub(crate) fn among(&self, node: &str) -> AmongGateways {
        let (mono, now) = (self.clock.monotonic(), self.clock.now());
        let returning = mono.saturating_sub(self.started) <= RETURN_TIME;
        let record = self.record.lock().clone();
        let nodes = self.by_name.lock();
        let live = nodes.values().filter(|known| is_live(known, mono) && !known.report.goodbye);
        let may_return = record.iter().filter(|process| {
            returning && !nodes.contains_key(&process.report.node) && now.since(process.last_seen) <= LATELY_MILLIS
        });
        let names = live.map(|known| &known.report).chain(may_return.map(|process| &process.report));
        // It is counted once, whether it has reported or not.
        let (mut others, mut before) = (0, 0);
        for name in names.map(|report| report.node.as_str()).filter(|name| *name != node) {
            others += 1;
            before += u32::from(name < node);
        }
        AmongGateways { gateways: NonZeroU32::MIN.saturating_add(others), before }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::time::Duration;

    use chassis::clock::ManualClock;
    use contract::feed::NodeReport;
    use contract::time::UnixMillis;

    use super::super::{Process, SILENCE_MAX};
    use super::*;

    fn report(node: &str, goodbye: bool) -> NodeReport {
        NodeReport { node: node.to_owned(), goodbye, ..NodeReport::default() }
    }

    /// The number of gateways, and how many come before this one.
    fn among(nodes: &Nodes, node: &str) -> (u32, u32) {
        let AmongGateways { gateways, before } = nodes.among(node);
        (gateways.get(), before)
    }

    #[test]
    fn live_processes_are_counted_in_the_order_of_their_names() {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        let nodes = Nodes::new(clock.clone());
        assert_eq!(among(&nodes, "b"), (1, 0), "it has not reported yet");
        for node in ["a", "b", "c"] {
            nodes.report(report(node, false));
        }
        assert_eq!(["a", "b", "c", "d"].map(|node| among(&nodes, node)), [(3, 0), (3, 1), (3, 2), (4, 3)]);
        nodes.report(report("a", true));
        assert_eq!(among(&nodes, "c"), (2, 1), "one has said goodbye");
        clock.advance(SILENCE_MAX + Duration::from_millis(1));
        assert_eq!(among(&nodes, "c"), (1, 0), "all are silent");
    }

    #[test]
    fn after_a_start_processes_on_record_are_expected_back() {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        let nodes = Nodes::new(clock.clone());
        let row = |node| Process { report: report(node, false), first_seen: UnixMillis(0), last_seen: UnixMillis(0) };
        nodes.load_record(vec![row("a"), row("b")], &HashSet::new());
        nodes.report(report("b", false));
        assert_eq!(among(&nodes, "b"), (2, 1));
        clock.advance(RETURN_TIME + Duration::from_millis(1));
        assert_eq!(among(&nodes, "b"), (1, 0), "one has not come back");
    }
}
