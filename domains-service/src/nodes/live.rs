//! Whether any gateway is live: without one, nothing answers the challenges of certificate authorities.

use std::sync::atomic::Ordering;

use super::{LATELY_MILLIS, Nodes, RETURN_TIME, SILENCE_MAX, is_live};

impl Nodes {
    /// Whether a gateway is live now.
    pub(crate) fn is_any_live(&self) -> bool {
        let now = self.clock.monotonic();
        self.by_name.lock().values().any(|node| !node.report.goodbye && is_live(node, now))
    }

    /// Whether a gateway is live. For a moment after our start, waits for those that may come back. Silent gateways
    /// have the longest silence once more for their next report: when a suspended machine goes on, all seem silent.
    pub(crate) async fn has_any_live(&self) -> bool {
        let mut changed = self.changed.subscribe();
        let waiting = async {
            // The sender lives as long as `self`.
            while !self.is_any_live() && self.is_any_returning() && changed.changed().await.is_ok() {}
        };
        // At the end of this time none is expected back any more.
        let _ = tokio::time::timeout(RETURN_TIME, waiting).await;
        if !self.is_any_live() && !self.by_name.lock().is_empty() && !self.all_are_silent.load(Ordering::Relaxed) {
            let reporting = async { while !self.is_any_live() && changed.changed().await.is_ok() {} };
            let _ = tokio::time::timeout(SILENCE_MAX, reporting).await;
        }
        let is_any_live = self.is_any_live();
        // The next orders do not wait for the same silence once more.
        self.all_are_silent.store(!is_any_live, Ordering::Relaxed);
        is_any_live
    }

    /// Whether we have just started, and a process on record has not reported yet.
    fn is_any_returning(&self) -> bool {
        let now = self.clock.now();
        let is_start = self.clock.monotonic().saturating_sub(self.started) <= RETURN_TIME;
        is_start && self.all().iter().any(|known| !known.reported_here && now.since(known.last_seen) <= LATELY_MILLIS)
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

    use super::super::Process;
    use super::*;

    fn report(node: &str) -> NodeReport {
        NodeReport { node: node.to_owned(), ..NodeReport::default() }
    }

    fn nodes_with_record() -> (Arc<Nodes>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        let nodes = Arc::new(Nodes::new(clock.clone()));
        let row = Process { report: report("a"), first_seen: UnixMillis(0), last_seen: UnixMillis(0) };
        nodes.load_record(vec![row], &HashSet::new());
        (nodes, clock)
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_start_an_order_waits_for_a_gateway_that_was_live_before() {
        let (nodes, _clock) = nodes_with_record();
        let waiting = tokio::spawn({
            let nodes = nodes.clone();
            async move { nodes.has_any_live().await }
        });
        while nodes.changed.receiver_count() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        nodes.report(report("a"));
        assert!(waiting.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_waits_for_no_gateway_that_is_not_expected() {
        let at_once = async |nodes: &Nodes| {
            let start = tokio::time::Instant::now();
            assert!(!nodes.has_any_live().await);
            start.elapsed() == Duration::ZERO
        };
        assert!(at_once(&Nodes::new(Arc::new(ManualClock::at(UnixMillis(0))))).await, "none is on record");
        let (nodes, clock) = nodes_with_record();
        assert!(!at_once(&nodes).await, "it does not come back");
        clock.advance(RETURN_TIME + Duration::from_millis(1));
        assert!(at_once(&nodes).await, "it had its time");
    }
}
