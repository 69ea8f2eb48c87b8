//! The ledger: many nodes spend one quota without spending a unit twice or losing one permanently.
//!
//! A *bucket* is one project's quota. The store keeps one record per bucket. Every gateway node owns a *component* of
//! it: the units that it has spent or holds in the current minute and day. A node sends **absolute statements** ("in
//! minute M I have spent 12 and hold 3") with increasing sequence numbers. The store replaces the node's component with
//! the statement, and then grants. Refunds, retries, lost replies, duplicates, late execution, and a store that lost
//! data or failed over all follow this one rule: the owner's latest statement replaces the older one.
//!
//! Why it is exact: the store's charge of a window is the sum of the components, a unit is spent only after it was
//! granted, a grant is made only while both windows have room, and a statement never understates the spent units. So in
//! every window `admitted <= charged <= limit`.
//!
//! Everything in this folder is a pure state machine: times, sequence numbers and identities are arguments. The
//! in-process store and the simulation run [`bucket::Bucket`] itself; a store in another process mirrors
//! [`bucket::Bucket::apply`] line by line. The crate root sends statements, waits and abandons them.
//!
//! A minute determines its day (`minute / 1440`), so one number names both windows.

pub mod bucket;
pub mod node;
pub mod rate;

use contract::plan::Limits;
use contract::time::UnixMillis;
use contract::window::Window;
use serde::{Deserialize, Serialize};

/// Minutes of a UTC day.
const MINUTES_PER_DAY: i64 = 1_440;

/// How long a store that may have lost data learns (receives statements without granting), in milliseconds. Longer than
/// a node needs to notice the loss ([`crate::HEARTBEAT`]) plus the budget of the call that repeats its statement.
pub const LEARNING_MILLIS: i64 = 250;

/// The sender of a statement: a place, which owns one component of a bucket, and the current generation of the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId {
    /// The identity of the gateway's data directory.
    pub place: u64,
    /// Statements of one generation replace each other. A new generation does not know what its predecessor spent: that
    /// stays charged, and the new generation's figures are added.
    pub generation: Generation,
}

/// One stay of a bucket in the memory of one process. Later generations of a place compare greater; a place has one at
/// a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Generation {
    /// How many gateways were started with the place's data directory, including this one.
    pub start: u32,
    /// Increases when the process drops a bucket from memory, or has to start a new component.
    pub stay: u32,
    /// Random per process: two processes with the same `start` use copies of one data directory.
    pub process: u32,
}

impl Generation {
    /// Whether another process uses the place by now, so that statements of this generation are refused.
    pub(crate) const fn is_displaced_by(self, present: Self) -> bool {
        self.process != present.process && self.start <= present.start
    }
}

/// One incarnation of a store's data: changes when writes may have been lost (restart, failover, flush).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

/// The units that a node reports as used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The minute of the figures; its day is the day of `day_spent`. [`i64::MIN`] while the node knows no minute.
    pub minute: i64,
    /// The latest minute that a reply named to the node; [`i64::MIN`] before the first. `minute` differs if the
    /// node has moved on by its own clock since; the store's record does not follow such a minute.
    pub named: i64,
    /// Units spent in that minute.
    pub minute_spent: u32,
    /// Units spent in the day of that minute, including the minute.
    pub day_spent: u32,
    /// Units granted and not spent, charged to both windows.
    pub held: u32,
}

impl Claim {
    /// No units, in no window.
    pub const NOTHING: Self = Self { minute: i64::MIN, named: i64::MIN, minute_spent: 0, day_spent: 0, held: 0 };

    /// The units charged to its minute.
    pub const fn minute_units(&self) -> u32 {
        self.minute_spent.saturating_add(self.held)
    }

    /// The units charged to its day.
    pub const fn day_units(&self) -> u32 {
        self.day_spent.saturating_add(self.held)
    }
}

/// One call of a node to the store about one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// The sender.
    pub node: NodeId,
    /// Increases with every statement of the node; a statement that is not newer than the last executed one changes
    /// nothing.
    pub seq: u64,
    /// The newest statement of this node about this bucket whose reply the node has read; 0 for none. A store with
    /// an older record has lost writes.
    pub acked: u64,
    /// The units that the node has used.
    pub claim: Claim,
    /// Units for waiting requests: granted as long as any are left.
    pub need: u32,
    /// Units requested in advance: granted while many are left.
    pub spare: u32,
    /// The limits that the node applies.
    pub limits: Limits,
}

/// The store's answer to a [`Statement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// A newer statement of the same node was executed before: nothing was changed or granted.
    Stale,
    /// Another process uses this place: two gateways use copies of one data directory. Nothing was changed. The node
    /// takes another place and begins a new generation there.
    Displaced,
    /// The component of this place was removed after a long silence, to make room; its charges stay. Nothing was
    /// changed. The node begins a new generation.
    Evicted,
    /// The bucket has no room for another place: all of its places sent statements in the last minutes. Nothing was
    /// changed or granted.
    Crowded,
    /// The statement was executed.
    Executed(Executed),
}

/// The store's record after a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    /// Units granted, charged to both windows.
    pub granted: u32,
    /// The store's clock when it decided.
    pub now: UnixMillis,
    /// The current minute; never older than a minute that the store named before.
    pub minute: i64,
    /// Units charged to the minute by all nodes, including the grant.
    pub minute_charged: u64,
    /// Units charged to the day of the minute by all nodes, including the grant.
    pub day_charged: u64,
    /// This node's part of `minute_charged`.
    pub own_minute: u32,
    /// This node's part of `day_charged`.
    pub own_day: u32,
    /// Nodes that have sent statements in this minute, including this one.
    pub nodes: u32,
    /// Units of the minute that other nodes held at their last statements: the most that a recall could return.
    pub held_elsewhere: u32,
    /// Set while the store may have lost charges and only learns: it grants nothing before this time of its clock.
    pub learning_until: Option<UnixMillis>,
    /// The incarnation of the store's data.
    pub incarnation: Incarnation,
}

impl Executed {
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

/// The remaining units of a limit.
pub(crate) fn left(limit: u32, charged: u64) -> u32 {
    u32::try_from(u64::from(limit).saturating_sub(charged)).unwrap_or(0)
}
