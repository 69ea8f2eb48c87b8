//! Invalid confirmations: their processes count as having applied nothing until they report again, and withdrawals wait
//! for them.

use std::collections::HashSet;
use std::time::Duration;

use contract::feed::{NodeReport, Position};

use super::{Node, Nodes, gateway_of};

/// A gateway that is refused because of its history asks again every two seconds. One that is silent for this long has found
/// its way, or is gone.
const REFUSED_FOR: Duration = Duration::from_mins(1);

impl Nodes {
    /// A process was refused because it has applied changes that the database does not have.
    pub(crate) fn refused_history(&self, node: &str) {
        let gateway = gateway_of(node).unwrap_or(node).to_owned();
        self.elsewhere.lock().insert(gateway, self.clock.monotonic());
    }

    /// The gateways that have applied changes that the database does not have, by name.
    pub(crate) fn of_another_history(&self) -> Vec<String> {
        let now = self.clock.monotonic();
        let mut elsewhere = self.elsewhere.lock();
        elsewhere.retain(|_, at| now.saturating_sub(*at) <= REFUSED_FOR);
        let mut names: Vec<String> = elsewhere.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// What a process says of itself cannot be.
    pub(crate) fn disbelieve(&self, node: &str) {
        self.doubt(|known| known.report.node == node);
    }

    /// The database went back to an earlier state.
    pub(crate) fn disbelieve_all(&self) {
        self.doubt(|_| true);
    }

    /// The database does not have these positions. Returns the names of the processes that were heard and say that they are
    /// there.
    pub(crate) fn disbelieve_at(&self, missing: &HashSet<Position>) -> Vec<String> {
        let mut record = self.record.lock();
        if record.iter().any(|process| is_at(&process.report, missing)) {
            let mut changed = record.to_vec();
            for process in &mut changed {
                without(&mut process.report, missing);
            }
            *record = changed.into();
        }
        drop(record);
        self.doubt(|known| is_at(&known.report, missing))
    }

    /// The positions at which processes say that they are.
    pub(crate) fn positions(&self) -> HashSet<Position> {
        let mut positions: HashSet<Position> =
            self.by_name.lock().values().filter_map(|node| node.report.position()).collect();
        positions.extend(self.record.lock().iter().filter_map(|process| process.report.position()));
        positions
    }

    fn doubt(&self, is_doubted: impl Fn(&Node) -> bool) -> Vec<String> {
        let mut names = Vec::new();
        for node in self.by_name.lock().values_mut().filter(|node| is_doubted(node)) {
            node.report = std::mem::take(&mut node.report).of_nothing();
            node.noted = None;
            names.push(node.report.node.clone());
        }
        names
    }
}

fn is_at(report: &NodeReport, positions: &HashSet<Position>) -> bool {
    report.position().is_some_and(|position| positions.contains(&position))
}

/// A process that says it is at one of these positions has applied nothing.
pub(crate) fn without(report: &mut NodeReport, missing: &HashSet<Position>) {
    if is_at(report, missing) {
        *report = std::mem::take(report).of_nothing();
    }
}
