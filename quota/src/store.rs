//! Where buckets are kept: the interface of a quota store.
//!
//! A store executes [`Bucket::apply`](super::ledger::bucket::Bucket::apply), or a script that mirrors it, atomically
//! per bucket, by its own clock. It needs no memory of who asked before and no order of calls: the statements bring
//! all of that along. When a store is gone its calls fail with [`StoreOutage`]; what then becomes of requests is decided
//! by [`super::Quota`].

pub mod memory;
pub mod redis;

use std::num::NonZeroU32;

use async_trait::async_trait;
use contract::key::KeyId;
use contract::project::ProjectUid;
use contract::time::UnixMillis;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::ban::News;
use super::ledger::bucket::BucketView;
use super::ledger::node::Share;
use super::ledger::{Incarnation, Reply, Statement};

/// Why a store gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreOutage {
    /// No answer within the budget.
    #[error("the quota store did not answer in time")]
    TimedOut,
    /// No connection, or the connection broke.
    #[error("the quota store cannot be reached: {0}")]
    Unreachable(String),
    /// It answered, but not with an answer: read-only, out of memory, wrong password, a foreign reply.
    #[error("the quota store refuses to work: {0}")]
    Refused(String),
    /// The part of the store that has this bucket cannot be reached; others can.
    #[error("the server that counts this project cannot be reached")]
    Part,
    /// It has no room for another bucket. The store works; this bucket is not counted.
    #[error("the quota store has no room for another bucket")]
    Full,
}

impl StoreOutage {
    /// Whether the failure says something about the store as a whole, not about one bucket.
    pub const fn is_of_the_store(&self) -> bool {
        !matches!(self, Self::Full | Self::Part)
    }
}

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// The present life of the store's memory.
    pub incarnation: Incarnation,
    /// The store's clock.
    pub now: UnixMillis,
    /// The fleet, where it was asked for.
    pub fleet: Option<Fleet>,
}

/// The gateway nodes that share a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// Nodes that showed themselves lately, this one included.
    pub nodes: NonZeroU32,
    /// How many of them come before this one, in an order that all agree on.
    pub turn: u32,
}

impl Fleet {
    /// One node by itself.
    pub const ALONE: Self = Self { nodes: NonZeroU32::MIN, turn: 0 };

    /// This node's share of a project's limits. Which nodes get the units that cannot be divided differs from project
    /// to project.
    pub fn share_of(self, project: &ProjectUid) -> Share {
        let first = project.as_str().bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        Share::new(self.nodes, self.turn.wrapping_add(first % self.nodes))
    }
}

/// What a node hears from the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// One of them said something.
    News(News),
    /// From now on everything is heard; what was said before may have been missed.
    Connected,
}

/// A quota store.
#[async_trait]
pub trait Store: Send + Sync {
    /// Executes one statement about one bucket. Sent once: a retry would be a new statement.
    async fn settle(&self, bucket: &ProjectUid, statement: Statement) -> Result<Reply, StoreOutage>;

    /// Asks whether the store is alive and still the same. Cheap: it is called every [`super::HEARTBEAT`]. With `count`
    /// it also shows this node to the others and counts them.
    async fn pulse(&self, count: bool) -> Result<Pulse, StoreOutage>;

    /// Whether the store tells the time by a clock that is not this machine's, and so has a vote on what time it is.
    fn has_own_clock(&self) -> bool {
        true
    }

    /// The books of one bucket, for people; `None` when nothing was ever charged.
    async fn view(&self, bucket: &ProjectUid) -> Result<Option<BucketView>, StoreOutage>;

    /// Tells the other nodes, and those that come later as long as it matters. A store of one node has nobody to tell.
    async fn tell(&self, _news: &News) -> Result<(), StoreOutage> {
        Ok(())
    }

    /// What a node that heard nothing until now has to know: bans, and bans that were lifted.
    async fn past(&self) -> Result<Vec<News>, StoreOutage> {
        Ok(Vec::new())
    }

    /// Forgets what was said of these keys.
    async fn forget(&self, _keys: &[KeyId]) -> Result<(), StoreOutage> {
        Ok(())
    }

    /// What the other nodes say, for one listener; `None` where there are none. The listener has to read: what does
    /// not fit the queue is dropped, and [`Heard::Connected`] follows.
    fn news(&self) -> Option<mpsc::Receiver<Heard>> {
        None
    }
}
