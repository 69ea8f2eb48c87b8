//! What an operator may choose about quotas. The defaults are the safe ones.

use std::str::FromStr;
use std::time::Duration;

use super::ban::BanRules;
use super::store::Fleet;

/// What becomes of requests while the quota store cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreDown {
    /// Each node lets its share of the limits through.
    #[default]
    Share,
    /// 503 `quota_unavailable`.
    Deny,
    /// Everything is let through, and counted.
    Allow,
}

/// A word that is no choice of [`OnStoreDown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use one of: share, deny, allow")]
pub struct UnknownOnStoreDown;

impl OnStoreDown {
    /// The word in configuration, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }
}

impl FromStr for OnStoreDown {
    type Err = UnknownOnStoreDown;

    fn from_str(text: &str) -> Result<Self, UnknownOnStoreDown> {
        match text {
            "share" => Ok(Self::Share),
            "deny" => Ok(Self::Deny),
            "allow" => Ok(Self::Allow),
            _ => Err(UnknownOnStoreDown),
        }
    }
}

/// How requests are being counted right now, for the metric and the log field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The store answers and this node is the only one: counts and headers are exact.
    Exact,
    /// The store answers several nodes: no limit is ever exceeded; Remaining may be ahead by what other nodes were
    /// granted since this one last asked.
    Lease,
    /// The store is gone: this node lets its share through.
    Share,
    /// The store is gone: requests are answered 503.
    Deny,
    /// The store is gone: requests are let through.
    Allow,
}

impl Mode {
    /// Every mode, for metrics that start at zero.
    pub const ALL: &'static [Self] = &[Self::Exact, Self::Lease, Self::Share, Self::Deny, Self::Allow];

    /// The word in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Lease => "lease",
            Self::Share => "share",
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
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
