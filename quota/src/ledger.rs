//! The ledger: how many nodes spend one quota without ever spending a unit twice or losing one for good.
//!
//! A *bucket* is one project's quota. The store keeps one record per bucket; every gateway node owns a *component* of
//! it: what this node has spent or holds in the current minute and day. A node speaks in **absolute statements**
//! ("in minute M I have spent 12 and hold 3") under a growing sequence number; the store replaces what it has for the
//! node by what the node says, and then grants. Refund, retry, lost reply, duplicate, late execution, a store that was
//! emptied or failed over are all that one rule: the owner's latest word replaces the older one.
//!
//! Why it is exact: the store's charge of a window is the sum of the components, a unit is spent only after it was
//! granted, a grant is made only while both windows have room, and a statement never understates what was spent. So
//! in every window `admitted <= charged <= limit`.
//!
//! Everything in this folder is a pure state machine: times, sequence numbers and identities are arguments. The
//! in-process store and the simulation run [`bucket::Bucket`] itself; a store in another process mirrors
//! [`bucket::Bucket::apply`] line by line. Sending, waiting and giving up are left to the crate.
//!
//! A minute names its day (`minute / 1440`), so one number names both windows.

pub mod bucket;
pub mod node;
pub mod rate;

use contract::plan::Limits;
use contract::time::UnixMillis;
use contract::window::Window;
use serde::{Deserialize, Serialize};

/// Minutes of a UTC day.
const MINUTES_PER_DAY: i64 = 1_440;

/// How long a store that may have lost state only listens before it grants again, in milliseconds. Longer than a
/// node needs to notice ([`crate::HEARTBEAT`]) plus the budget of the call that re-asserts.
pub const LEARNING_MILLIS: i64 = 250;

/// Who speaks: a place, which owns one component of a bucket, and the life of the place that speaks now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId {
    /// The identity of the gateway's data directory.
    pub place: u64,
    /// Statements of one life replace each other. A new life knows nothing of what its predecessor spent: that stays
    /// charged, and the new life's figures come on top.
    pub life: Life,
}

/// One stay of a bucket in the memory of one process. Later lives of a place are greater; a place has one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Life {
    /// How often gateways were started over the place, this one included.
    pub start: u32,
    /// Grows whenever the process forgets a bucket, or has to begin anew.
    pub stay: u32,
    /// Random per process: two processes with the same `start` use copies of one data directory.
    pub process: u32,
}

impl Life {
    /// Whether statements of this life come too late: another process speaks for the place by now.
    pub(crate) const fn is_displaced_by(self, present: Self) -> bool {
        self.process != present.process && self.start <= present.start
    }
}

/// One life of a store's memory: changes whenever writes may have been lost (restart, failover, flush).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

/// What a node says it has used, as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The minute of the figures; its day is the day of `day_spent`. [`i64::MIN`] while the node knows of no minute.
    pub minute: i64,
    /// The latest minute that a settlement has named to the node; [`i64::MIN`] before the first. `minute` is another one
    /// when the node went on by itself since: such a minute is the node's opinion, and the store's books do not follow it.
    pub named: i64,
    /// Units spent in that minute.
    pub minute_spent: u32,
    /// Units spent in the day of that minute, those of the minute included.
    pub day_spent: u32,
    /// Units granted and kept, charged to both windows.
    pub held: u32,
}

impl Claim {
    /// Nothing, in no window.
    pub const NOTHING: Self = Self { minute: i64::MIN, named: i64::MIN, minute_spent: 0, day_spent: 0, held: 0 };

    /// What the claim charges to its minute.
    pub const fn minute_units(&self) -> u32 {
        self.minute_spent.saturating_add(self.held)
    }

    /// What the claim charges to its day.
    pub const fn day_units(&self) -> u32 {
        self.day_spent.saturating_add(self.held)
    }
}

/// One call of a node to the store about one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// Who speaks.
    pub node: NodeId,
    /// Grows with every statement of the node; a statement not newer than the last one executed changes nothing.
    pub seq: u64,
    /// The newest statement of this node about this bucket whose settlement the node has read; 0 for none. A store
    /// that remembers less has lost writes.
    pub heard: u64,
    /// What the node has used.
    pub claim: Claim,
    /// Units for requests that are waiting: granted as long as there are any.
    pub need: u32,
    /// Units wanted in advance: granted while there is plenty.
    pub spare: u32,
    /// The limits in force as the node knows them.
    pub limits: Limits,
}

/// The store's answer to a [`Statement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// A newer statement of the same node was executed before: nothing was changed, nothing granted.
    Stale,
    /// Another process speaks for this place: two gateways use copies of one data directory. Nothing was changed. The node
    /// takes another place and begins a new life there.
    Displaced,
    /// The component of this place was given to others after a long silence; what it had charged stays charged. Nothing was
    /// changed. The node begins a new life.
    Evicted,
    /// As many places as a bucket has room for have all spoken in the last minutes, and this is another one. Nothing was
    /// changed, nothing granted.
    Crowded,
    /// The statement is in the books.
    Settled(Settlement),
}

/// The books after a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// Units granted, charged to both windows.
    pub granted: u32,
    /// The store's clock when it decided.
    pub now: UnixMillis,
    /// The current minute; never older than one the store has named before.
    pub minute: i64,
    /// Charged to the minute by all nodes, the grant included.
    pub minute_charged: u64,
    /// Charged to the day of the minute by all nodes, the grant included.
    pub day_charged: u64,
    /// The part of `minute_charged` that is this node's.
    pub own_minute: u32,
    /// The part of `day_charged` that is this node's.
    pub own_day: u32,
    /// Nodes that have spoken in this minute, this one included.
    pub nodes: u32,
    /// Units of the minute that other nodes held when they last spoke: what a recall could bring back at most.
    pub held_elsewhere: u32,
    /// Set while the store may have forgotten charges and only listens: nothing is granted before this moment of its
    /// clock.
    pub learning_until: Option<UnixMillis>,
    /// The life of the store's memory the books belong to.
    pub incarnation: Incarnation,
}

impl Settlement {
    /// Milliseconds until the window ends, by the store's clock.
    pub fn millis_left(&self, window: Window) -> i64 {
        ends_at(self.minute, window).since(self.now)
    }
}

/// The day a minute belongs to.
pub const fn day_of(minute: i64) -> i64 {
    minute.div_euclid(MINUTES_PER_DAY)
}

/// First millisecond after the window that contains `minute`.
pub(crate) fn ends_at(minute: i64, window: Window) -> UnixMillis {
    match window {
        Window::Minute => Window::Minute.ends_at(minute),
        Window::Day => Window::Day.ends_at(day_of(minute)),
    }
    .to_millis()
}

/// What is left of a limit.
pub(crate) fn left(limit: u32, charged: u64) -> u32 {
    u32::try_from(u64::from(limit).saturating_sub(charged)).unwrap_or(0)
}
