//! The servers, a connection to each, and a task that replaces them.
//!
//! After a problem with a connection (it broke, the server became read-only, slots moved), everything is discovered
//! again: the master, the slots, the server's run id. Until that succeeds calls fail at once. One task does this, with
//! a pause that grows to a tenth of a second, so that all nodes find a returning server at almost the same time without
//! flooding it. If servers of a Cluster are missing, the others serve their buckets.

mod connect;
mod receivers;
mod slots;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use chassis::shutdown::Shutdown;
use chassis::supervise::Supervisor;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};

use self::receivers::Receivers;
use super::settings::{RedisAddress, RedisMode, RedisSettings};
use crate::ledger::Incarnation;
use crate::store::StoreOutage;

/// Pause before the second attempt to connect; it doubles after each attempt.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause. Nodes find a returning server within this time of each other, plus a heartbeat: less than the
/// time in which new data only learns (statement.lua).
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// How often missing servers of a Cluster are tried, at most.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// How often the task checks whether the store still exists.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Most servers of a Cluster; more are a configuration error.
pub(super) const SERVERS_MAX: usize = 256;

/// A script and the server's name for it.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) text: Arc<str>,
    pub(super) digest: String,
}

/// A connection to one master.
pub(super) struct Link {
    address: RedisAddress,
    connection: MultiplexedConnection,
    /// Changes whenever the server starts.
    pub(super) run_id: String,
    /// Keeps [`Link::local_key`]s on this server; empty for a single server, and for one without slots.
    tag: String,
    pub(super) memory_key: String,
    pub(super) statement: Script,
    pub(super) heartbeat: Script,
    /// The topology that it belongs to; `None` for a server that receives its first slot.
    round: Option<u64>,
    /// Calls in a row without an answer.
    pub(super) timeouts: AtomicU32,
    /// Opens connections of another kind to the same server.
    pub(super) client: redis::Client,
}

impl Link {
    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// A key that is stored on this server.
    pub(super) fn local_key(&self, name: &str) -> String {
        local_key(name, &self.tag)
    }

    /// The incarnation of the data in a slot that is being moved to this server. The server may own no slot for a key
    /// that remembers more than its run.
    pub(super) fn run_incarnation(&self) -> u64 {
        // 48 bits: a number that scripts represent exactly.
        self.run_id.get(..12).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
    }
}

fn local_key(name: &str, tag: &str) -> String {
    if tag.is_empty() { name.to_owned() } else { format!("{name}:{{{tag}}}") }
}

/// All masters at one moment.
struct Topology {
    round: u64,
    /// `None`: a master that cannot be reached.
    links: Vec<Option<Arc<Link>>>,
    /// For a Cluster: the last slot of each range, and its server.
    slots: Option<BTreeMap<u16, usize>>,
}

impl Topology {
    fn is_whole(&self) -> bool {
        self.links.iter().all(Option::is_some)
    }
}

/// The connections to all servers.
pub(super) struct Servers {
    settings: RedisSettings,
    topology: ArcSwapOption<Topology>,
    /// The last known incarnation of each server's data; only servers of the current topology.
    incarnations: Mutex<BTreeMap<RedisAddress, u64>>,
    /// Servers that own no slots yet. A new topology keeps those that it does not contain.
    receivers: Receivers,
    /// Restarts of servers while they received their first slot.
    receiver_restarts: AtomicU64,
    doubted: Notify,
    /// The number of the last topology.
    rounds: AtomicU64,
    /// The current round, or why there is none.
    state: watch::Sender<Result<u64, StoreOutage>>,
}

impl Servers {
    /// Connects in the background until dropped.
    pub(super) fn start(settings: RedisSettings, tasks: &Supervisor) -> Arc<Self> {
        let none = StoreOutage::Unreachable("not connected yet".to_owned());
        let servers = Arc::new(Self {
            settings,
            topology: ArcSwapOption::empty(),
            incarnations: Mutex::default(),
            receivers: Receivers::default(),
            receiver_restarts: AtomicU64::new(0),
            doubted: Notify::new(),
            rounds: AtomicU64::new(0),
            state: watch::Sender::new(Err(none)),
        });
        tasks.spawn("quota_connections", &Shutdown::new(), Arc::downgrade(&servers), |servers, _| {
            keep_connected(servers)
        });
        servers
    }

    /// The server of a key.
    pub(super) fn of(&self, key: &str) -> Result<Arc<Link>, StoreOutage> {
        let topology = self.topology.load();
        let topology = topology.as_ref().ok_or_else(|| self.reason())?;
        let Some(slots) = &topology.slots else {
            return topology.links.first().cloned().flatten().ok_or_else(|| self.reason());
        };
        let shard = slots.range(slots::slot_of(key)..).next().and_then(|(_, shard)| topology.links.get(*shard));
        shard.cloned().flatten().ok_or(StoreOutage::Part)
    }

    /// The server at this address, `host:port`, to which `from` redirected a call about a key that is being moved. One
    /// without slots of its own is connected now.
    pub(super) async fn at(&self, address: &str, from: &Link) -> Result<Arc<Link>, StoreOutage> {
        let address = from.address.redirected(address).filter(|_| self.are_several()).ok_or(StoreOutage::Part)?;
        let topology = self.topology.load_full().ok_or(StoreOutage::Part)?;
        if let Some(link) = topology.links.iter().flatten().find(|link| link.address == address) {
            return Ok(link.clone());
        }
        self.receivers.note_redirection(&address);
        self.receiver(&address).await.ok_or(StoreOutage::Part)
    }

    /// A server without slots; connected now, unless it is already. Notices that it was started again.
    async fn receiver(&self, address: &RedisAddress) -> Option<Arc<Link>> {
        let dial = self.receivers.dial(&self.settings, address)?;
        let link = tokio::time::timeout(self.settings.call_budget / 2, dial).await.ok().flatten()?;
        if self.receivers.has_restarted(&link) {
            self.receiver_restarts.fetch_add(1, Ordering::Relaxed);
        }
        Some(link)
    }

    /// The heartbeat of servers that receive their first slot. A restart breaks the connection. The next one then has
    /// another run id, which changes the incarnation, so that all nodes repeat their statements. The caller does not
    /// wait: a server that cannot be reached must not delay the heartbeat of others.
    pub(super) fn check_receivers(self: &Arc<Self>) {
        self.receivers.start_checks(|address| {
            let servers = Arc::clone(self);
            tokio::spawn(async move {
                let Some(link) = servers.receiver(&address).await else { return };
                let answer = redis::cmd("PING").query_async::<redis::Value>(&mut link.connection()).await;
                // Without a code it is no answer of the server.
                if answer.is_err_and(|error| error.code().is_none()) {
                    servers.doubt(&link);
                }
            })
        });
    }

    /// The time for calls to another server than the one that answers first: shorter than the caller's budget, because
    /// its failure is no outage of the whole store.
    pub(super) fn part_budget(&self) -> Duration {
        self.settings.call_budget * 19 / 20
    }

    /// All reachable servers.
    pub(super) fn all(&self) -> Result<Vec<Arc<Link>>, StoreOutage> {
        let topology = self.topology.load();
        let topology = topology.as_ref().ok_or_else(|| self.reason())?;
        Ok(topology.links.iter().flatten().cloned().collect())
    }

    /// Whether there are several servers: a problem of one then does not affect the whole store.
    pub(super) fn are_several(&self) -> bool {
        self.settings.mode == RedisMode::Cluster
    }

    /// Records the incarnation of a server's data; returns the combined one.
    pub(super) fn record_incarnation(&self, link: &Link, incarnation: u64) -> Incarnation {
        let mut incarnations = self.incarnations.lock();
        if let Some(known) = incarnations.get_mut(&link.address) {
            *known = incarnation;
        }
        self.combined(&incarnations)
    }

    /// The combined incarnation of all servers.
    pub(super) fn incarnation(&self) -> Incarnation {
        self.combined(&self.incarnations.lock())
    }

    /// Changes whenever one incarnation does. For a single server it is that server's.
    fn combined(&self, incarnations: &BTreeMap<RedisAddress, u64>) -> Incarnation {
        let members = incarnations.values().fold(0, |sum: u64, one| sum.rotate_left(7).wrapping_add(*one));
        Incarnation(members.wrapping_add(self.receiver_restarts.load(Ordering::Relaxed)))
    }

    /// Reports a problem with this connection: everything is discovered again. Calls fail until that is done. A server
    /// that only receives slots is connected again alone.
    pub(super) fn doubt(&self, link: &Link) {
        let Some(round) = link.round else { return self.receivers.doubt(link) };
        if self.topology.load().as_ref().is_some_and(|topology| topology.round == round) {
            self.topology.store(None);
            self.doubted.notify_one();
        }
    }

    /// Waits until all connections are up.
    pub(super) async fn connected(&self, within: Duration) -> Result<(), StoreOutage> {
        let mut state = self.state.subscribe();
        let waited = tokio::time::timeout(within, state.wait_for(Result::is_ok)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(self.reason()),
        }
    }

    fn reason(&self) -> StoreOutage {
        match &*self.state.borrow() {
            Err(outage) => outage.clone(),
            Ok(_) => StoreOutage::Unreachable("reconnecting".to_owned()),
        }
    }

    /// Drops servers that left the topology. A server that cannot be reached may still belong to it.
    fn keep_incarnations_of(&self, links: &[Option<Arc<Link>>]) {
        let addresses: Vec<&RedisAddress> = links.iter().flatten().map(|link| &link.address).collect();
        let mut incarnations = self.incarnations.lock();
        if addresses.len() == links.len() {
            incarnations.retain(|address, _| addresses.contains(&address));
        }
        for address in addresses {
            incarnations.entry(address.clone()).or_insert(0);
        }
    }

    async fn connect(&self, round: u64) {
        let mut pause = PAUSE_MIN;
        loop {
            match connect::all(&self.settings, round).await {
                Ok((links, slots)) => {
                    self.keep_incarnations_of(&links);
                    self.receivers.drop_members(&links);
                    self.topology.store(Some(Arc::new(Topology { round, links, slots })));
                    self.state.send_modify(|state| *state = Ok(round));
                    return;
                }
                Err(outage) => {
                    let is_new = self.state.borrow().as_ref().err() != Some(&outage);
                    if is_new {
                        tracing::warn!(
                            reason = %outage, what_to_do = outage.remedy(),
                            "cannot use the quota store (Redis); retrying"
                        );
                    }
                    self.state.send_modify(|state| *state = Err(outage));
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Connects to all servers again after each problem, until they are dropped.
async fn keep_connected(servers: Weak<Servers>) {
    while let Some(servers) = servers.upgrade() {
        let is_whole = servers.topology.load().as_ref().map(|topology| topology.is_whole());
        if is_whole != Some(true) {
            let round = servers.rounds.fetch_add(1, Ordering::Relaxed) + 1;
            servers.connect(round).await;
        }
        let is_whole = servers.topology.load().as_ref().is_some_and(|topology| topology.is_whole());
        // Wakes up now and then without a problem, so that the task ends with the store.
        let wait = if is_whole { LOOK_EVERY } else { RETRY_EVERY };
        let _ = tokio::time::timeout(wait, servers.doubted.notified()).await;
    }
}
