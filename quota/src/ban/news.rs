//! What nodes tell each other: bans, refusals that count, and units that others need.

use contract::ban::Ban;
use contract::key::KeyId;
use contract::project::ProjectUid;
use contract::time::{UnixMillis, UnixSeconds};
use serde::{Deserialize, Serialize};

/// What nodes tell each other through the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// A node would refuse a request of this project while others hold units that they do not use.
    Recall(ProjectUid),
    /// A key was banned.
    Banned(Ban),
    /// A ban was lifted.
    Lifted {
        /// The key.
        key: KeyId,
        /// When the ban had begun that was lifted: a later one stays.
        began: UnixSeconds,
        /// When it would have ended: from then on nobody needs to know. Earlier versions do not say.
        #[serde(default)]
        until: UnixSeconds,
    },
    /// Requests of these keys were refused at one node, and count against them at all.
    Struck(Vec<Strikes>),
}

/// Refusals of one key that one node has counted since it last said so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strikes {
    /// The key.
    pub key: KeyId,
    /// How many.
    pub count: u32,
    /// The moment of the last, by the store's clock.
    pub at: UnixMillis,
    /// The limit of the key's minute.
    pub limit: u32,
}
