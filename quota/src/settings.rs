//! Settings of quotas. The defaults are safe.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::project::ProjectUid;

use super::ban::BanRules;
use super::ledger::node::Unclaimed;
use super::store::Fleet;

contract::words! {
    /// What happens to requests while the quota store cannot be reached.
    #[derive(Default)]
    pub enum OnStoreDown {
        /// Each node admits its share of the limits.
        #[default]
        Share = "share",
        /// 503 `quota_unavailable`.
        Deny = "deny",
        /// Everything is admitted and counted.
        Allow = "allow",
    }
}

contract::words! {
    /// How requests are counted now, for the metric and the log field.
    pub enum Mode {
        /// The store answers and this is the only node: counts and headers are exact.
        Exact = "exact",
        /// The store answers several nodes: no limit is ever exceeded. Remaining may be too high by the units that
        /// other nodes were granted since this node last asked.
        Lease = "lease",
        /// The store is unavailable: this node admits its share.
        Share = "share",
        /// The store is unavailable: requests are answered 503.
        Deny = "deny",
        /// The store is unavailable: requests are admitted.
        Allow = "allow",
    }
}

/// The settings of [`super::Quota`].
#[derive(Clone, Debug)]
pub struct QuotaSettings {
    /// The identity of the data directory, and so of this node's component in each bucket.
    pub place: u64,
    /// How many gateways were started with that directory, including this one.
    pub start: u32,
    /// A random number, new in every process.
    pub process: u64,
    /// What to do while the store is unavailable.
    pub on_store_down: OnStoreDown,
    /// How long one call to the store may take; 50 ms by default.
    pub call_budget: Duration,
    /// The fleet that shares the limits during an outage, until the store has reported the number of nodes. `None`:
    /// unknown; until the control plane has announced it, the node denies in an outage.
    pub fleet: Option<Fleet>,
    /// Units that the last process over the data directory spent without the store and did not claim.
    pub unclaimed: BTreeMap<ProjectUid, Unclaimed>,
    /// Buckets kept in memory; 100 000 by default, about 440 bytes each.
    pub buckets_max: usize,
    /// Requests of one bucket that may wait for one reply of the store; 10 000 by default. More are answered 503.
    pub waiting_max: usize,
    /// The rules for bans.
    pub ban: BanRules,
}

impl QuotaSettings {
    /// The defaults, for a process with this random number and a place of its own.
    pub fn new(process: u64) -> Self {
        Self {
            place: process,
            start: 1,
            process,
            on_store_down: OnStoreDown::default(),
            call_budget: Duration::from_millis(50),
            fleet: Some(Fleet::SINGLE),
            unclaimed: BTreeMap::new(),
            buckets_max: 100_000,
            waiting_max: 10_000,
            ban: BanRules::default(),
        }
    }
}
