//! What an operator may choose about quotas. The defaults are the safe ones.

use std::time::Duration;

use super::ban::BanRules;
use super::store::Fleet;

contract::words! {
    /// What becomes of requests while the quota store cannot be asked.
    #[derive(Default)]
    pub enum OnStoreDown {
        /// Each node lets its share of the limits through.
        #[default]
        Share = "share",
        /// 503 `quota_unavailable`.
        Deny = "deny",
        /// Everything is let through, and counted.
        Allow = "allow",
    }
}

contract::words! {
    /// How requests are being counted right now, for the metric and the log field.
    pub enum Mode {
        /// The store answers and this node is the only one: counts and headers are exact.
        Exact = "exact",
        /// The store answers several nodes: no limit is ever exceeded; Remaining may be ahead by what other nodes were
        /// granted since this one last asked.
        Lease = "lease",
        /// The store is gone: this node lets its share through.
        Share = "share",
        /// The store is gone: requests are answered 503.
        Deny = "deny",
        /// The store is gone: requests are let through.
        Allow = "allow",
    }
}

/// The settings of [`super::Quota`].
#[derive(Clone, Debug)]
pub struct QuotaSettings {
    /// The identity of the data directory: whose component of a bucket this node's statements are.
    pub place: u64,
    /// How often gateways were started over that directory, this one included.
    pub start: u32,
    /// A random number, new in every process.
    pub process: u64,
    /// What to do while the store is gone.
    pub on_store_down: OnStoreDown,
    /// How long one call to the store may take; 50 ms by default.
    pub call_budget: Duration,
    /// The fleet that shares the limits while the store is gone and has not said how many nodes there are.
    pub fleet: Fleet,
    /// Buckets this node keeps in memory; 100 000 by default, about 440 bytes each.
    pub buckets_max: usize,
    /// Requests of one bucket that may wait for one answer of the store; 10 000 by default. More are answered 503.
    pub waiting_max: usize,
    /// When a key is banned.
    pub ban: BanRules,
}

impl QuotaSettings {
    /// The defaults, for a process with this random number in a place of its own.
    pub fn new(process: u64) -> Self {
        Self {
            place: process,
            start: 1,
            process,
            on_store_down: OnStoreDown::default(),
            call_budget: Duration::from_millis(50),
            fleet: Fleet::ALONE,
            buckets_max: 100_000,
            waiting_max: 10_000,
            ban: BanRules::default(),
        }
    }
}
