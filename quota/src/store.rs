//! The interface of a quota store.
//!
//! A store executes [`Bucket::apply`](super::ledger::bucket::Bucket::apply), or a script that mirrors it, atomically
//! per bucket, by its own clock. It keeps no state about callers and requires no order of calls: the statements carry
//! all of that. If a store is unavailable its calls fail with [`StoreOutage`]; [`super::Quota`] then decides about
//! requests.

pub mod memory;
pub mod redis;

use std::num::NonZeroU32;

use async_trait::async_trait;
use contract::project::ProjectUid;
use contract::time::UnixMillis;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::ban::Notification;
use super::ledger::bucket::BucketView;
use super::ledger::node::Share;
use super::ledger::{Incarnation, Reply, Statement};

/// Why a store did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreOutage {
    /// No answer within the budget.
    #[error("the quota store did not answer in time")]
    TimedOut,
    /// No connection, or the connection broke.
    #[error("cannot reach the quota store: {0}")]
    Unreachable(String),
    /// An unusable answer: read-only, out of memory, wrong password, an unexpected reply.
    #[error("the quota store returned an error: {0}")]
    Refused(String),
    /// The server with this bucket cannot be reached; others can.
    #[error("cannot reach the server of the quota store that counts this project")]
    Part,
    /// The bucket is being moved to this server, `host:port`.
    #[error("the quota store is moving the counts of this project to {0}")]
    Moving(String),
    /// The store has no room for another bucket. It works; this bucket is not counted.
    #[error("the quota store has no room for another bucket")]
    Full,
}

/// A stored ban or lift.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredNotification {
    /// Its text.
    pub notification: Notification,
    /// The text that is stored. Another version may have written it in other words.
    pub text: String,
}

/// Where a reading of the stored bans and lifts continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanCursor {
    /// Identifies the server, and its data since its start. Positions mean nothing to another one.
    pub server: String,
    /// The position there.
    pub position: u64,
}

impl StoreOutage {
    /// Whether the failure concerns the whole store, not one bucket.
    pub const fn is_of_the_store(&self) -> bool {
        !matches!(self, Self::Full | Self::Part | Self::Moving(_))
    }

    /// The memory of the whole store is full, as its heartbeat says.
    pub(crate) fn full_memory() -> Self {
        Self::Refused("OOM: its memory is full".to_owned())
    }

    /// The operator's next step.
    pub fn remedy(&self) -> &'static str {
        let Self::Refused(reason) = self else {
            return "start the quota store, or repair the network to it";
        };
        match reason.split(':').next().unwrap_or_default() {
            "OOM" => "raise maxmemory of Redis, or give the quota store a Redis of its own",
            "READONLY" => "make it the primary, or change quota.redis to the address of the primary",
            "MISCONF" | "NOREPLICAS" => "free space on its disk, or connect its replicas; its log says which",
            "NOAUTH" | "NOPERM" | "WRONGPASS" => "correct the user, its rights and the password under quota.redis",
            _ => "see the log of the quota store",
        }
    }
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// The current incarnation of the store's data.
    pub incarnation: Incarnation,
    /// The store's clock.
    pub now: UnixMillis,
    /// The fleet, if it was counted.
    pub fleet: Option<Fleet>,
    /// Whether the store has memory left; `None` if the heartbeat did not find out.
    pub full: Option<bool>,
}

/// The gateway nodes that share a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// Nodes that sent a heartbeat recently, including this one.
    pub nodes: NonZeroU32,
    /// How many of them come before this one, in an order that is the same on all nodes.
    #[serde(rename = "turn")]
    pub index: u32,
}

impl Fleet {
    /// A single node.
    pub const SINGLE: Self = Self { nodes: NonZeroU32::MIN, index: 0 };

    /// This node's share of a project's limits. Which nodes receive the indivisible remainder differs from project to
    /// project.
    pub fn share_of(self, project: &ProjectUid) -> Share {
        let first = project.as_str().bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        Share::new(self.nodes, self.index.wrapping_add(first % self.nodes))
    }
}

/// An item of the notification stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A notification of another node.
    Notification(Notification),
    /// The connection is up: all later notifications arrive; earlier ones may have been missed.
    Connected,
}

/// A quota store.
#[async_trait]
pub trait Store: Send + Sync {
    /// Executes one statement about one bucket. It is sent once: a retry would be a new statement.
    async fn execute(&self, bucket: &ProjectUid, statement: Statement) -> Result<Reply, StoreOutage>;

    /// Checks that the store is available and has not lost data. Cheap: called every [`super::HEARTBEAT`]. With
    /// `count`, it also registers this node and counts all nodes.
    async fn heartbeat(&self, count: bool) -> Result<HeartbeatReply, StoreOutage>;

    /// Whether the store has a clock other than this machine's, which then decides the current minute.
    fn has_own_clock(&self) -> bool {
        true
    }

    /// The record of one bucket for display; `None` if nothing was ever charged.
    async fn view(&self, bucket: &ProjectUid) -> Result<Option<BucketView>, StoreOutage>;

    /// Notifies the other nodes, and stores the notification for later nodes as long as it matters. A store with one
    /// node does nothing.
    async fn notify(&self, _notification: &Notification) -> Result<(), StoreOutage> {
        Ok(())
    }

    /// A part of the stored bans and lifts, and the cursor of the next part; `None` before the first part and after the
    /// last. If another server has them by now, the reading begins anew there. A notification may come twice, and one
    /// that is stored meanwhile not at all.
    async fn stored_notifications(
        &self,
        _after: Option<ScanCursor>,
    ) -> Result<(Vec<StoredNotification>, Option<ScanCursor>), StoreOutage> {
        Ok((Vec::new(), None))
    }

    /// Removes these stored bans and lifts. A newer one of the same key stays.
    async fn forget_notifications(&self, _over: &[StoredNotification]) -> Result<(), StoreOutage> {
        Ok(())
    }

    /// Notifications of the other nodes, for one receiver; `None` if there are no other nodes. The receiver must keep
    /// up: what exceeds the queue is dropped, and [`Received::Connected`] follows.
    fn notifications(&self) -> Option<mpsc::Receiver<Received>> {
        None
    }
}
