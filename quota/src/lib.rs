//! Quotas: charging a request to its project's minute and day, both or neither.
//!
//! [`Quota`] is what the pipeline calls. Most requests are decided by memory: a lease this node holds, or a refusal it
//! remembers. The others wait for one call to the [`store`], which all that wait for the same bucket share. The
//! protocol is in [`ledger`], what the headers say in [`standing`], who is banned in [`ban`], and what an address
//! without a key may try in [`anonymous`].
//!
//! When the store is gone: a call is given up after its budget (50 ms), three failures open the breaker and nobody waits
//! any more; then [`settings::OnStoreDown`] decides. What was let through meanwhile is claimed once the store is back,
//! so the day stays right. Never a 429 or a 500 for our own fault.
//!
//! Writing the answer, and persisting the embedded store, are left to others.

pub mod standing;
pub mod clock;
pub mod ledger;
pub mod ban;
pub mod anonymous;
mod breaker;
pub mod store;
pub mod settings;
mod cells;
mod news;
mod liveness;
mod charge;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use contract::key::KeyId;
use contract::plan::Limits;
use contract::project::ProjectUid;
use contract::time::{UnixMillis, UnixSeconds};
use contract::window::Window;
use parking_lot::Mutex;

use ban::{Ban, BanTable, News};
use breaker::Breaker;
use cells::Cells;
use chassis::clock::Clock;
use clock::ForeignClock;
use ledger::bucket::BucketView;
use ledger::{Life, NodeId};
use settings::{Mode, OnStoreDown, QuotaSettings};
use standing::Standing;
use store::{Fleet, Store, StoreOutage};

/// How often a node shows itself to the store, notices that the store's memory is a new one, and hands back what
/// idle buckets hold.
pub const HEARTBEAT: Duration = Duration::from_millis(100);

/// Why a request is not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeError {
    /// The minute or the day is spent: 429 `rate_limit_exceeded` or `daily_quota_exceeded`.
    Exceeded {
        /// Where the caller stands; show it with [`standing::Outcome::Refused`].
        standing: Standing,
        /// The window that refused.
        window: Window,
    },
    /// The key is banned: 429 `api_key_banned`.
    Banned {
        /// First second at which the key is welcome again.
        until: UnixSeconds,
        /// Where the caller stands; show it with [`standing::Outcome::Banned`].
        standing: Standing,
    },
    /// The request could not be counted: 503 `quota_unavailable`.
    Unavailable {
        /// The value of `Retry-After`.
        retry_after_seconds: u32,
        /// Where the caller stands as far as this node knows; every API response shows it.
        standing: Standing,
    },
}

/// The quotas of all projects on this node. Cheap to clone.
#[derive(Clone)]
pub struct Quota(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    settings: QuotaSettings,
    clock: Arc<dyn Clock>,
    cells: Cells,
    bans: BanTable,
    breaker: Mutex<Breaker>,
    /// The breaker's state, for the hot path: the last call failed; so many did that nobody asks any more.
    store_fails: AtomicBool,
    store_is_gone: AtomicBool,
    /// The store's clock: bans end by one clock everywhere. Never heard where the store has no clock of its own.
    store_clock: ForeignClock,
    /// The nodes that share the limits, as the store last said.
    fleet: Mutex<Fleet>,
    /// When the nodes are to be counted next, in milliseconds of the monotonic clock.
    count_at: AtomicU64,
    /// Bans and lifts that the other nodes have not been told yet, by key.
    untold: Mutex<HashMap<KeyId, News>>,
    /// Somebody is telling them.
    telling: AtomicBool,
    /// The life of the store's memory, once it was heard of.
    incarnation: AtomicU64,
    store_was_heard: AtomicBool,
}

impl Quota {
    /// Quotas over `store`. [`Quota::run`] has to run beside it.
    pub fn new(store: Arc<dyn Store>, settings: QuotaSettings, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner {
            cells: Cells::new(identity(&settings), settings.buckets_max),
            bans: BanTable::new(settings.ban),
            breaker: Mutex::default(),
            store_fails: AtomicBool::new(false),
            store_is_gone: AtomicBool::new(false),
            store_clock: ForeignClock::default(),
            fleet: Mutex::new(settings.fleet),
            count_at: AtomicU64::new(0),
            untold: Mutex::default(),
            telling: AtomicBool::new(false),
            incarnation: AtomicU64::new(0),
            store_was_heard: AtomicBool::new(false),
            store,
            settings,
            clock,
        }))
    }

    /// Takes back the unit of a request that never reached an upstream through our own fault. `standing` is what
    /// [`Quota::charge`] answered for it.
    pub fn refund(&self, project: &ProjectUid, standing: &Standing) {
        if let Some(cell) = self.0.cells.find(project) {
            cell.lock().bucket.refund(self.0.clock.monotonic(), standing);
            self.0.cells.watch(&cell);
        }
    }

    /// Hands back at once what this node holds for a project, because another node would refuse for want of it. For
    /// stores that pass such calls between nodes.
    pub fn recall(&self, project: &ProjectUid) {
        if let Some(cell) = self.0.cells.find(project).filter(|cell| cell.lock().bucket.owes()) {
            self.0.state_in_background(&cell, ledger::node::Purpose::HandBack);
        }
    }

    /// The books of a project: both windows, and every node's part. `None` when nothing was charged yet.
    pub async fn usage(&self, project: &ProjectUid) -> Result<Option<BucketView>, StoreOutage> {
        let budget = self.0.settings.call_budget;
        tokio::time::timeout(budget, self.0.store.view(project)).await.unwrap_or(Err(StoreOutage::TimedOut))
    }

    /// Where a project stands on this node, without charging anything.
    pub fn standing(&self, project: &ProjectUid, limits: Limits) -> Standing {
        let (now, wall) = (self.0.clock.monotonic(), self.0.clock.now());
        match self.0.cells.find(project) {
            Some(cell) => cell.lock().bucket.peek(now, wall),
            None => ledger::node::untouched(limits, now, wall),
        }
    }

    /// The bans in force, the one that ends last first.
    pub fn bans(&self) -> Vec<Ban> {
        self.0.bans.list(self.0.shared_now())
    }

    /// Bans a key until a moment, on all nodes. `None` when the table is full of banned keys.
    pub fn ban(&self, key: &KeyId, until: UnixSeconds) -> Option<Ban> {
        let ban = self.0.bans.add(key, self.0.shared_now(), until)?;
        self.0.tell(News::Banned(ban.clone()));
        Some(ban)
    }

    /// Lifts a ban, on all nodes. `false` when the key was not banned.
    pub fn lift(&self, key: &KeyId) -> bool {
        let Some(ban) = self.0.bans.lift(key, self.0.shared_now()) else { return false };
        self.0.tell(News::Lifted { key: ban.key, began: ban.since, until: ban.until });
        true
    }

    /// The nodes that share the limits, to be remembered for a start without the store.
    pub fn fleet(&self) -> Fleet {
        *self.0.fleet.lock()
    }

    /// The store's time by now; `None` while it was never heard, and for a store without a clock of its own.
    pub fn store_now(&self) -> Option<UnixMillis> {
        self.0.store_now()
    }

    /// The place that this node counts for: that of the settings, or another one after a process with a copy of its data
    /// directory took it.
    pub fn place(&self) -> u64 {
        self.0.cells.me().place
    }

    /// How requests are being counted right now.
    pub fn mode(&self) -> Mode {
        let gone = self.0.store_is_gone.load(Ordering::Relaxed);
        match self.0.settings.on_store_down {
            _ if !gone && self.0.fleet.lock().nodes.get() <= 1 => Mode::Exact,
            _ if !gone => Mode::Lease,
            OnStoreDown::Share => Mode::Share,
            OnStoreDown::Deny => Mode::Deny,
            OnStoreDown::Allow => Mode::Allow,
        }
    }
}

/// Who speaks for buckets of a node that has just begun.
fn identity(settings: &QuotaSettings) -> NodeId {
    // Half of the random number tells processes of one place apart.
    let process = u32::try_from(settings.process & u64::from(u32::MAX)).unwrap_or(0);
    NodeId { place: settings.place, life: Life { start: settings.start, stay: 0, process } }
}

#[cfg(test)]
mod tests;
