//! Invalid confirmations: their processes count as having applied nothing until they report again, and withdrawals wait
//! for them.

use std::collections::HashSet;
use std::time::Duration;

use contract::feed::{NodeReport, Position};

use super::{Node, Nodes, gateway_of};

/// A gateway that is refused because of its history retries every two seconds. After this silence it follows again or
/// is gone.
const REFUSED_FOR: Duration = Duration::from_mins(1);

impl Nodes {
    /// Records that a process was refused because it has applied changes that the database lacks.
    pub(crate) fn refused_history(&self, node: &str) {
        let gateway = gateway_of(node).unwrap_or(node).to_owned();
        self.elsewhere.lock().insert(gateway, self.clock.monotonic());
    }

    /// The gateways that have applied changes that the database lacks, by name.
    pub(crate) fn of_another_history(&self) -> Vec<String> {
        let now = self.clock.monotonic();
        let mut elsewhere = self.elsewhere.lock();
        elsewhere.retain(|_, at| now.saturating_sub(*at) <= REFUSED_FOR);
        let mut names: Vec<String> = elsewhere.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// Discards the confirmations of a process with an impossible report.
    pub(crate) fn invalidate(&self, node: &str) {
        self.invalidate_where(|known| known.report.node == node);
    }

    /// Discards all confirmations, because the database went back to an earlier state.
    pub(crate) fn invalidate_all(&self) {
        self.invalidate_where(|_| true);
    }

    /// Discards confirmations at positions that the database lacks. Returns the names of the live processes that
    /// reported one of them.
    pub(crate) fn invalidate_at(&self, missing: &HashSet<Position>) -> Vec<String> {
        let mut record = self.record.lock();
        if record.iter().any(|process| is_at(&process.report, missing)) {
            let mut changed = record.to_vec();
            for process in &mut changed {
                without(&mut process.report, missing);
            }
            *record = changed.into();
        }
        drop(record);
        self.invalidate_where(|known| is_at(&known.report, missing))
    }

    /// The positions that processes have reported.
    pub(crate) fn positions(&self) -> HashSet<Position> {
        let mut positions: HashSet<Position> =
            self.by_name.lock().values().filter_map(|node| node.report.position()).collect();
        positions.extend(self.record.lock().iter().filter_map(|process| process.report.position()));
        positions
    }

    fn invalidate_where(&self, is_invalid: impl Fn(&Node) -> bool) -> Vec<String> {
        let mut names = Vec::new();
        for node in self.by_name.lock().values_mut().filter(|node| is_invalid(node)) {
            node.report = std::mem::take(&mut node.report).of_nothing();
            node.recorded_at = None;
            names.push(node.report.node.clone());
        }
        names
    }
}

fn is_at(report: &NodeReport, positions: &HashSet<Position>) -> bool {
    report.position().is_some_and(|position| positions.contains(&position))
}

/// Sets a report to "applied nothing" if its position is one of these.
pub(crate) fn without(report: &mut NodeReport, missing: &HashSet<Position>) {
    if is_at(report, missing) {
        *report = std::mem::take(report).of_nothing();
    }
}
