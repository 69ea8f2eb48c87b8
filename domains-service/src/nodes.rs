//! The gateway processes that follow the change stream, and the revision that each has applied.
//!
//! Reports are kept in memory and, once a minute, in the database (`store::processes`), for the next start of this
//! service. A report to another replica arrives through the database (`peers`). A process that is silent for five
//! seconds is not live: it serves its last state, and only withdrawals wait for it.
//!
//! A withdrawal is over when no process can serve the withdrawn entity any more. It waits for every process on record,
//! live or silent, until one of these: the process confirms it or says goodbye; the credential is revoked; the process
//! was silent for [`FORGOTTEN_AFTER`]; or another process has replaced it, which uses the same data directory and was
//! first seen after this one was seen last.

pub(crate) mod invalid;
pub(crate) mod record;
mod among;
mod eviction;
mod live;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use chassis::clock::Clock;
use contract::feed::{NodeReport, Revision};
use contract::time::UnixMillis;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::store::processes::{CLOCKS_DIFFER_MILLIS, FORGOTTEN_AFTER, Process};

/// A process silent for longer than this is not live.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Interval between two writes of a live process to the database.
const RECORD_INTERVAL: Duration = Duration::from_mins(1);

/// Time after our start in which processes on record may come back before a change stops waiting for them.
const RETURN_TIME: Duration = Duration::from_secs(10);

/// Processes that were seen at most this long before our start are expected back. The record is at most a minute old.
const LATELY_MILLIS: i64 = 2 * 60 * 1_000;

/// Maximum of processes in memory. Beyond it an ended process is dropped, else the newest. Names are unique per start
/// of a process, so old ones accumulate.
const NODES_MAX: usize = 1_024;

/// Maximum of processes with one credential; gateways that are started in numbers share one. More are refused.
pub(crate) const NODES_OF_ONE_MAX: usize = 128;

/// One process, from its reports.
#[derive(Clone, Debug)]
struct Node {
    report: NodeReport,
    /// Time of the last report, by the monotonic clock.
    seen: Duration,
    first_seen: UnixMillis,
    last_seen: UnixMillis,
    /// Whether its last report came to this replica.
    here: bool,
    /// Whether a replica has written it to the database. If it has no row any more, its credential was revoked or it
    /// said goodbye to another replica.
    on_record: bool,
    /// Time of this replica's last write to the database, by the monotonic clock; `None`: write at once.
    recorded_at: Option<Duration>,
}

/// A process that may serve.
#[derive(Clone, Debug)]
pub(crate) struct ServingProcess {
    pub(crate) report: NodeReport,
    pub(crate) live: bool,
    pub(crate) first_seen: UnixMillis,
    pub(crate) last_seen: UnixMillis,
    /// Whether it has reported to this replica since its start.
    reported_here: bool,
}

/// A change of the record in the database.
#[derive(Clone, Debug)]
pub(crate) enum RecordChange {
    /// The process reported.
    Write(Process),
    /// The process of this name said goodbye.
    Delete(String),
}

/// The confirmations of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    /// Number of processes considered: the live ones, or all.
    pub(crate) asked: usize,
    /// Names of processes that have not applied the revision.
    pub(crate) lagging: Vec<String>,
}

/// All processes.
pub(crate) struct Nodes {
    clock: Arc<dyn Clock>,
    /// Start of this service, by the monotonic clock and by the wall clock.
    started: Duration,
    started_at: UnixMillis,
    /// For how long before our start no process had been seen, in milliseconds.
    unseen_millis: AtomicI64,
    by_name: Mutex<HashMap<String, Node>>,
    /// The record, as last read.
    record: Mutex<Arc<[Process]>>,
    /// Time of the last refusal of each gateway because of its history, by the monotonic clock.
    elsewhere: Mutex<HashMap<String, Duration>>,
    changed: watch::Sender<()>,
    /// An order has waited for a report in vain, and none came since.
    all_are_silent: AtomicBool,
    /// Wakes the writer of the record: it must change at once.
    due: Notify,
}

impl Nodes {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            started: clock.monotonic(),
            started_at: clock.now(),
            unseen_millis: AtomicI64::new(0),
            clock,
            by_name: Mutex::default(),
            record: Mutex::new(Arc::new([])),
            elsewhere: Mutex::default(),
            changed: watch::channel(()).0,
            all_are_silent: AtomicBool::new(false),
            due: Notify::new(),
        }
    }

    /// Takes the record as the database has it, and drops processes with `revoked` credentials: no withdrawal waits for
    /// them, whichever replica revoked them.
    pub(crate) fn load_record(&self, record: Vec<Process>, revoked: &HashSet<String>) {
        {
            let mut nodes = self.by_name.lock();
            nodes.retain(|name, _| !gateway_of(name).is_some_and(|gateway| revoked.contains(gateway)));
            for process in &record {
                // Its row was written during its goodbye: it is deleted once more.
                if let Some(node) = nodes.get_mut(&process.report.node).filter(|node| node.report.goodbye) {
                    node.on_record = true;
                }
            }
        }
        *self.record.lock() = record.into();
        self.changed.send_replace(());
    }

    /// Whether a process of this name has reported.
    pub(crate) fn knows(&self, node: &str) -> bool {
        self.by_name.lock().contains_key(node)
    }

    /// Whether a process of this name may serve, or its credential may have one more that does. A new process must not
    /// displace one that a withdrawal waits for.
    pub(crate) fn has_room_for(&self, node: &str) -> bool {
        let gateway = gateway_of(node);
        let all = self.all();
        let siblings = all.iter().filter(|known| gateway_of(&known.report.node) == gateway);
        all.iter().any(|known| known.report.node == node) || siblings.count() < NODES_OF_ONE_MAX
    }

    /// Takes a report to this replica. Returns whether the process is on record.
    pub(crate) fn report(&self, report: NodeReport) -> bool {
        self.receive(report, true, false)
    }

    /// Takes a report to another replica, with whether the process is on record.
    pub(crate) fn report_from_replica(&self, report: NodeReport, on_record: bool) {
        self.receive(report, false, on_record);
    }

    fn receive(&self, report: NodeReport, here: bool, on_record: bool) -> bool {
        let (seen, now) = (self.clock.monotonic(), self.clock.now());
        self.all_are_silent.store(false, Ordering::Relaxed);
        let is_on_record = {
            let mut nodes = self.by_name.lock();
            let known = nodes.get(&report.node).cloned();
            if known.as_ref().is_some_and(|known| known.report.goodbye) {
                return false; // the goodbye overtook this report
            }
            let (first_seen, recorded_at) =
                known.as_ref().map_or((now, None), |known| (known.first_seen, known.recorded_at));
            // An unknown process that says goodbye may have a row from before our start.
            let on_record = on_record || known.as_ref().map_or(report.goodbye, |known| known.on_record);
            if known.is_none() {
                eviction::evict(&mut nodes, &report.node, now);
                // If another process with this data directory still lives, its next write shows a later time than this
                // one.
                let place = place_of(&report);
                let siblings = nodes.values_mut().filter(|node| place.is_some() && place_of(&node.report) == place);
                siblings.for_each(|node| node.recorded_at = None);
            }
            if here && (recorded_at.is_none() || report.goodbye) {
                self.due.notify_one();
            }
            let node = Node { report, seen, first_seen, last_seen: now, here, on_record, recorded_at };
            nodes.insert(node.report.node.clone(), node);
            on_record
        };
        self.changed.send_replace(());
        is_on_record
    }

    /// Drops the processes of a revoked credential: no withdrawal waits for them.
    pub(crate) fn revoke(&self, gateway: &str) {
        self.by_name.lock().retain(|name, _| gateway_of(name) != Some(gateway));
        let mut record = self.record.lock();
        *record = record.iter().filter(|process| gateway_of(&process.report.node) != Some(gateway)).cloned().collect();
        drop(record);
        self.changed.send_replace(());
    }

    /// The changes of the record that are due now.
    pub(crate) fn due(&self) -> Vec<RecordChange> {
        let now = self.clock.monotonic();
        let nodes = self.by_name.lock();
        let due = nodes.values().filter(|node| node.here).filter_map(|node| {
            if node.report.goodbye {
                return node.on_record.then(|| RecordChange::Delete(node.report.node.clone()));
            }
            let is_old = node.recorded_at.is_none_or(|recorded_at| now.saturating_sub(recorded_at) >= RECORD_INTERVAL);
            let (first_seen, last_seen) = (node.first_seen, node.last_seen);
            (is_old && is_live(node, now))
                .then(|| RecordChange::Write(Process { report: node.report.clone(), first_seen, last_seen }))
        });
        due.collect()
    }

    /// Marks a change of the record as written.
    pub(crate) fn recorded(&self, due: &RecordChange) {
        let now = self.clock.monotonic();
        let mut nodes = self.by_name.lock();
        match due {
            RecordChange::Write(process) => {
                if let Some(node) = nodes.get_mut(&process.report.node) {
                    (node.on_record, node.recorded_at) = (true, Some(now));
                }
            }
            RecordChange::Delete(name) => {
                if let Some(node) = nodes.get_mut(name) {
                    node.on_record = false;
                }
            }
        }
    }

    /// Before our start a process was seen last at this moment. The control plane may have been away since, so this is
    /// no silence of theirs; neither is a wall clock that was put forward meanwhile.
    pub(crate) fn last_seen_before_start(&self, last: UnixMillis) {
        self.unseen_millis.store(self.started_at.since(last).max(0), Ordering::Relaxed);
    }

    /// Processes that were last seen before this time are forgotten. A wall clock that steps forward moves it by at
    /// most the time since the start.
    pub(crate) fn forgotten_before(&self) -> UnixMillis {
        let past = self.clock.monotonic().saturating_sub(self.started);
        let latest = self.started_at.plus(i64::try_from(past.as_millis()).unwrap_or(i64::MAX));
        self.clock.now().min(latest).plus(-FORGOTTEN_AFTER).plus(-self.unseen_millis.load(Ordering::Relaxed))
    }

    /// Every process that may serve, by name.
    pub(crate) fn all(&self) -> Vec<ServingProcess> {
        let (mono, forgotten_before) = (self.clock.monotonic(), self.forgotten_before());
        let record = self.record.lock().clone();
        let mut on_record: HashMap<&str, &Process> =
            record.iter().map(|process| (process.report.node.as_str(), process)).collect();
        let mut all = Vec::new();
        for node in self.by_name.lock().values() {
            let row = on_record.remove(node.report.node.as_str());
            let live = is_live(node, mono);
            if node.report.goodbye || !(live || row.is_some() || !node.on_record) {
                continue;
            }
            let first_seen = row.map_or(node.first_seen, |row| row.first_seen.min(node.first_seen));
            let last_seen = row.map_or(node.last_seen, |row| row.last_seen.max(node.last_seen));
            all.push(ServingProcess { report: node.report.clone(), live, first_seen, last_seen, reported_here: true });
        }
        all.extend(on_record.into_values().cloned().map(|Process { report, first_seen, last_seen }| ServingProcess {
            report,
            live: false,
            first_seen,
            last_seen,
            reported_here: false,
        }));
        all.retain(|known| known.live || known.last_seen >= forgotten_before);
        let newest = newest_of(all.iter().map(|known| (&known.report, known.first_seen)));
        all.retain(|known| known.live || !is_replaced(&known.report, (known.first_seen, known.last_seen), &newest));
        all.sort_by(|left, right| left.report.node.cmp(&right.report.node));
        all
    }

    /// The processes that reported here and fell silent without a goodbye, by name.
    fn silent(&self) -> BTreeSet<String> {
        let now = self.clock.monotonic();
        let nodes = self.by_name.lock();
        let newest = newest_of(nodes.values().map(|node| (&node.report, node.first_seen)));
        let is_silent = |node: &&Node| {
            let is_replaced = is_replaced(&node.report, (node.first_seen, node.last_seen), &newest);
            !node.report.goodbye && !is_live(node, now) && !is_replaced
        };
        nodes.values().filter(is_silent).map(|node| node.report.node.clone()).collect()
    }

    /// The live processes, and those of them that have not applied `revision`.
    pub(crate) fn status_of_live(&self, revision: Revision) -> Acknowledged {
        let returning = self.clock.monotonic().saturating_sub(self.started) <= RETURN_TIME;
        let now = self.clock.now();
        let is_returning =
            |known: &ServingProcess| returning && !known.reported_here && now.since(known.last_seen) <= LATELY_MILLIS;
        let all = self.all();
        let asked = all.iter().filter(|known| known.live).count();
        Acknowledged { asked, lagging: lagging(&all, revision, |known| known.live || is_returning(known)) }
    }

    /// All processes that may serve, and those of them that have not applied `revision`.
    pub(crate) fn status_of_all(&self, revision: Revision) -> Acknowledged {
        let all = self.all();
        Acknowledged { asked: all.len(), lagging: lagging(&all, revision, |_| true) }
    }

    /// The revision that every process that may serve has applied.
    pub(crate) fn applied_by_all(&self) -> Revision {
        self.all().into_iter().map(|known| known.report.applied).min().unwrap_or(Revision(u64::MAX))
    }

    /// Waits until every live process has applied `revision`, at most `time`.
    pub(crate) async fn acknowledged(&self, revision: Revision, time: Duration) -> Acknowledged {
        self.wait(time, || self.status_of_live(revision)).await
    }

    /// Waits until every process that may serve has applied `revision`, at most `time`.
    pub(crate) async fn acknowledged_by_all(&self, revision: Revision, time: Duration) -> Acknowledged {
        self.wait(time, || self.status_of_all(revision)).await
    }

    async fn wait(&self, time: Duration, state: impl Fn() -> Acknowledged) -> Acknowledged {
        let mut changed = self.changed.subscribe();
        let waiting = async {
            loop {
                let state = state();
                // The sender lives as long as `self`.
                if state.lagging.is_empty() || changed.changed().await.is_err() {
                    return state;
                }
            }
        };
        tokio::time::timeout(time, waiting).await.unwrap_or_else(|_| state())
    }
}

/// The name of the credential that a process uses.
pub(crate) fn gateway_of(node: &str) -> Option<&str> {
    node.split_once('/').map(|(gateway, _)| gateway)
}

/// The data directory of a process, with its gateway.
fn place_of(report: &NodeReport) -> Option<(Option<String>, String)> {
    Some((gateway_of(&report.node).map(str::to_owned), report.place.clone()?))
}

/// For each data directory, when the newest of these processes over it was first seen.
fn newest_of<'n>(
    processes: impl Iterator<Item = (&'n NodeReport, UnixMillis)>,
) -> HashMap<(Option<String>, String), UnixMillis> {
    let mut newest = HashMap::new();
    for (report, first_seen) in processes {
        if let Some(place) = place_of(report) {
            let latest = newest.entry(place).or_insert(first_seen);
            *latest = first_seen.max(*latest);
        }
    }
    newest
}

/// Whether a process was last seen before the newest one over its data directory started. One that was seen after that
/// has a copy of the directory, or drains: it counts.
fn is_replaced(
    report: &NodeReport,
    (first_seen, last_seen): (UnixMillis, UnixMillis),
    newest: &HashMap<(Option<String>, String), UnixMillis>,
) -> bool {
    let newest = place_of(report).and_then(|place| newest.get(&place));
    newest.is_some_and(|newest| *newest > first_seen && last_seen <= newest.plus(CLOCKS_DIFFER_MILLIS))
}

/// The names of considered processes that have not applied the revision.
fn lagging(all: &[ServingProcess], revision: Revision, is_asked: impl Fn(&ServingProcess) -> bool) -> Vec<String> {
    let lagging = all.iter().filter(|known| is_asked(known) && known.report.applied < revision);
    lagging.map(|known| known.report.node.clone()).collect()
}

fn is_live(node: &Node, now: Duration) -> bool {
    now.saturating_sub(node.seen) <= SILENCE_MAX
}

#[cfg(test)]
mod tests;
