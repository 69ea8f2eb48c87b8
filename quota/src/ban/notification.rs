//! Notifications between nodes: bans, strikes, and units that other nodes need.

use contract::ban::Ban;
use contract::key::KeyId;
use contract::project::ProjectUid;
use contract::time::{UnixMillis, UnixSeconds};
use serde::{Deserialize, Serialize};

/// A notification that nodes send each other through the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notification {
    /// A node would refuse a request of this project while others hold unused units.
    Recall(ProjectUid),
    /// A key was banned.
    Banned(Ban),
    /// A ban was lifted.
    Lifted {
        /// The key.
        key: KeyId,
        /// When the lifted ban had begun; a later ban stays.
        began: UnixSeconds,
        /// When it would have ended; after that the notification is obsolete. Earlier versions do not send it.
        #[serde(default)]
        until: UnixSeconds,
    },
    /// Strikes of these keys at one node.
    Struck(Vec<Strikes>),
}

/// Strikes of one key that one node has counted since its last notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strikes {
    /// The key.
    pub key: KeyId,
    /// How many.
    pub count: u32,
    /// The time of the last one, by the store's clock.
    pub at: UnixMillis,
    /// The limit of the key's minute.
    pub limit: u32,
}
