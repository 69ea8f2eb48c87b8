//! Quotas: charge a request to its project's minute and day, to both or neither.
//!
//! The pipeline calls [`Quota`]. Memory decides most requests: from a lease that this node holds, or a refusal that it
//! remembers. The others wait for one call to the [`store`], shared by all that wait for the same bucket. [`ledger`]
//! has the protocol, [`allowance`] the figures of the headers, [`ban`] the bans, and [`failed_authentications`] the
//! limits of failed authentications.
//!
//! Without the store: a call is abandoned after its budget (50 ms); three failures open the circuit breaker, and no
//! request waits any more; then [`settings::OnStoreDown`] decides. What was admitted meanwhile is claimed once the
//! store is back, so the day stays right. An outage of ours never causes a 429 or a 500.
//!
//! Callers write the response, and persist the embedded store.

pub mod allowance;
pub mod clock;
pub mod ledger;
pub mod ban;
pub mod failed_authentications;
mod breaker;
pub mod store;
pub mod settings;
mod bucket_cache;
mod notifications;
mod fleet;
mod liveness;
mod charge;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use contract::key::KeyId;
use contract::plan::Limits;
use contract::project::ProjectUid;
use contract::time::{UnixMillis, UnixSeconds};
use contract::window::Window;
use parking_lot::Mutex;

use allowance::Allowances;
use ban::{Ban, BanTable, Notification};
use breaker::Breaker;
use bucket_cache::BucketCache;
use chassis::clock::Clock;
use clock::ForeignClock;
use fleet::KnownFleet;
use ledger::bucket::BucketView;
use ledger::node::{NodeBucket, Unclaimed};
use ledger::{Generation, NodeId};
use settings::{Mode, OnStoreDown, QuotaSettings};
use store::{Fleet, Store, StoreOutage};

/// How often a node sends a heartbeat to the store, detects that the store lost its data, and hands back the units of
/// idle buckets.
pub const HEARTBEAT: Duration = Duration::from_millis(100);

/// Projects that [`Quota::unclaimed`] lists; units of further ones are lost if the process ends in an outage.
pub const UNCLAIMED_MAX: usize = 10_000;

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeError {
    /// The minute or the day is used up: 429 `rate_limit_exceeded` or `daily_quota_exceeded`.
    Exceeded {
        /// The caller's allowances; show them with [`allowance::QuotaOutcome::Refused`].
        allowances: Allowances,
        /// The window that refused.
        window: Window,
    },
    /// The key is banned: 429 `api_key_banned`.
    Banned {
        /// The first second after the ban.
        until: UnixSeconds,
        /// The caller's allowances; show them with [`allowance::QuotaOutcome::Banned`].
        allowances: Allowances,
    },
    /// The request could not be counted: 503 `quota_unavailable`.
    Unavailable {
        /// The value of `Retry-After`.
        retry_after_seconds: u32,
        /// The window whose share of this node is spent; `None` if it was not counted for another reason.
        spent: Option<Window>,
        /// The caller's allowances as far as this node knows; every API response shows them.
        allowances: Allowances,
    },
}

/// The quotas of all projects on this node. Cheap to clone.
#[derive(Clone)]
pub struct Quota(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    settings: QuotaSettings,
    clock: Arc<dyn Clock>,
    cache: BucketCache,
    bans: BanTable,
    breaker: Mutex<Breaker>,
    /// The breaker's state for the hot path: whether the last call failed, and whether the breaker is open.
    store_fails: AtomicBool,
    store_is_gone: AtomicBool,
    /// The store has no memory left.
    store_is_full: AtomicBool,
    /// The last failure of the store, and its time on the monotonic clock.
    outage: Mutex<Option<(StoreOutage, Duration)>>,
    /// The store's clock: bans end by the same clock on every node. Never set for a store without its own clock.
    store_clock: ForeignClock,
    /// The nodes that share the limits.
    fleet: Mutex<KnownFleet>,
    /// When to count the nodes next, in milliseconds of the monotonic clock.
    count_at: AtomicU64,
    /// Bans and lifts not yet delivered to the other nodes, by key.
    undelivered: Mutex<HashMap<KeyId, Notification>>,
    /// A task is delivering them.
    delivering: AtomicBool,
    /// The last delivery failed.
    delivery_failed: AtomicBool,
    /// The incarnation of the store's data, once known.
    incarnation: AtomicU64,
    store_was_reached: AtomicBool,
}

impl Quota {
    /// Quotas that use `store`. Run [`Quota::send_heartbeats`] and [`Quota::listen`] as tasks.
    pub fn new(store: Arc<dyn Store>, settings: QuotaSettings, clock: Arc<dyn Clock>) -> Self {
        let cache = BucketCache::new(identity(&settings), settings.buckets_max);
        let (wall, now) = (clock.now(), clock.monotonic());
        for (project, before) in &settings.unclaimed {
            if let Some(bucket) = NodeBucket::restored(cache.me(), before, wall, now) {
                cache.restore(project, bucket);
            }
        }
        Self(Arc::new(Inner {
            cache,
            bans: BanTable::new(settings.ban),
            breaker: Mutex::default(),
            store_fails: AtomicBool::new(false),
            store_is_gone: AtomicBool::new(false),
            store_is_full: AtomicBool::new(false),
            outage: Mutex::default(),
            store_clock: ForeignClock::default(),
            fleet: Mutex::new(KnownFleet::new(settings.fleet)),
            count_at: AtomicU64::new(0),
            undelivered: Mutex::default(),
            delivering: AtomicBool::new(false),
            delivery_failed: AtomicBool::new(false),
            incarnation: AtomicU64::new(0),
            store_was_reached: AtomicBool::new(false),
            store,
            settings,
            clock,
        }))
    }

    /// Takes back the unit of a request that never reached an upstream through our own fault. `allowances` is the
    /// result of [`Quota::charge`] for it.
    pub fn refund(&self, project: &ProjectUid, allowances: &Allowances) {
        if let Some(cached) = self.0.cache.find(project) {
            cached.lock().bucket.refund(self.0.clock.monotonic(), allowances);
            self.0.cache.watch(&cached);
        }
    }

    /// Hands back at once the units that this node holds for a project, because another node would refuse for lack of
    /// them. For stores that pass such calls between nodes.
    pub fn recall(&self, project: &ProjectUid) {
        if let Some(cached) = self.0.cache.find(project).filter(|cached| cached.lock().bucket.owes()) {
            self.0.state_in_background(&cached, ledger::node::Purpose::HandBack);
        }
    }

    /// The store's record of a project: both windows, and every node's part. `None` if nothing was charged yet.
    pub async fn usage(&self, project: &ProjectUid) -> Result<Option<BucketView>, StoreOutage> {
        let budget = self.0.settings.call_budget;
        tokio::time::timeout(budget, self.0.store.view(project)).await.unwrap_or(Err(StoreOutage::TimedOut))
    }

    /// A project's allowances on this node, without charging.
    pub fn allowances(&self, project: &ProjectUid, limits: Limits) -> Allowances {
        let (now, wall) = (self.0.clock.monotonic(), self.0.clock.now());
        match self.0.cache.find(project) {
            Some(cached) => cached.lock().bucket.peek(now, wall),
            None => ledger::node::untouched(limits, now, wall),
        }
    }

    /// The bans in force, ordered by their end, latest first.
    pub fn bans(&self) -> Vec<Ban> {
        self.0.bans.list(self.0.shared_now())
    }

    /// Bans a key until `until`, on all nodes. `None` if the table is full of banned keys.
    pub fn ban(&self, key: &KeyId, until: UnixSeconds) -> Option<Ban> {
        let ban = self.0.bans.add(key, self.0.shared_now(), until)?;
        self.0.notify(Notification::Banned(ban.clone()));
        Some(ban)
    }

    /// Lifts a ban, on all nodes. `false` if the key was not banned.
    pub fn lift(&self, key: &KeyId) -> bool {
        let Some(ban) = self.0.bans.lift(key, self.0.shared_now()) else { return false };
        self.0.notify(Notification::Lifted { key: ban.key, began: ban.since, until: ban.until });
        true
    }

    /// The nodes that share the limits, to be saved for a start without the store; `None` while unknown.
    pub fn fleet(&self) -> Option<Fleet> {
        self.0.fleet()
    }

    /// Units spent without the store and not claimed yet, by project, to be saved each second and passed to the
    /// next process over the data directory. At most [`UNCLAIMED_MAX`] projects.
    pub fn unclaimed(&self) -> BTreeMap<ProjectUid, Unclaimed> {
        let watched = self.0.cache.watched();
        let all = watched.iter().filter_map(|cached| Some((cached.project.clone(), cached.lock().bucket.unclaimed()?)));
        all.take(UNCLAIMED_MAX).collect()
    }

    /// Takes the control plane's count of the nodes that share the limits, and this node's place among them. Without
    /// the store, a larger count than the store's is used at once. A store in this process is shared with none of them.
    pub fn announce_fleet(&self, fleet: Fleet) {
        if self.0.store.has_own_clock() {
            self.0.fleet.lock().announce(fleet, self.0.clock.monotonic());
        }
    }

    /// The store's current time; `None` while it is unknown, and for a store without its own clock.
    pub fn store_now(&self) -> Option<UnixMillis> {
        self.0.store_now()
    }

    /// This node's place: that of the settings, or another one after a process with a copy of its data directory took
    /// it.
    pub fn place(&self) -> u64 {
        self.0.cache.me().place
    }

    /// Why the store does not work now; `None` if it does.
    pub fn trouble(&self) -> Option<StoreOutage> {
        self.0.trouble()
    }

    /// How requests are counted now.
    pub fn mode(&self) -> Mode {
        let gone = self.0.store_is_gone.load(Ordering::Relaxed);
        match self.0.settings.on_store_down {
            _ if !gone && self.0.is_only_node() => Mode::Exact,
            _ if !gone => Mode::Lease,
            OnStoreDown::Share if self.0.fleet().is_none() => Mode::Deny,
            OnStoreDown::Share => Mode::Share,
            OnStoreDown::Deny => Mode::Deny,
            OnStoreDown::Allow => Mode::Allow,
        }
    }
}

/// This node's identity at its start.
fn identity(settings: &QuotaSettings) -> NodeId {
    // Half of the random number distinguishes processes of one place.
    let process = u32::try_from(settings.process & u64::from(u32::MAX)).unwrap_or(0);
    NodeId { place: settings.place, generation: Generation { start: settings.start, stay: 0, process } }
}

#[cfg(test)]
mod tests;
