//! Units that a node spent without the store and that no statement has claimed yet, for the next process over the same
//! data directory.

use std::time::Duration;

use contract::plan::Limits;
use contract::time::UnixMillis;
use serde::{Deserialize, Serialize};

use super::NodeBucket;
use super::mirror::Mirror;
use crate::ledger::{NodeId, day_of};

/// One bucket's units, and the rest of the node's shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unclaimed {
    /// The limits of the shares.
    pub limits: Limits,
    /// The minute of the figures; its day is the day of the others.
    pub minute: i64,
    /// Units of the minute, and of its day, that the store has not received.
    pub minute_units: u32,
    /// Of the day.
    pub day_units: u32,
    /// Units charged by all nodes, as far as the node knew.
    pub minute_charged: u64,
    /// Of the day.
    pub day_charged: u64,
    /// The rest of the node's share of the minute; `None` if it decided nothing alone in it.
    pub minute_share: Option<u32>,
    /// Of the day.
    pub day_share: Option<u32>,
}

impl NodeBucket {
    /// What the next process has to know and to claim; `None` if the store knows everything.
    pub fn unclaimed(&self) -> Option<Unclaimed> {
        let mirror = self.mirror.as_ref()?;
        let (minute_units, day_units) = mirror.unclaimed();
        (minute_units > 0 || day_units > 0).then_some(Unclaimed {
            limits: self.limits,
            minute: mirror.minute,
            minute_units,
            day_units,
            minute_charged: mirror.minute_charged,
            day_charged: mirror.day_charged,
            minute_share: mirror.share.minute,
            day_share: mirror.share.day,
        })
    }

    /// A bucket that claims the units of the last process. `None` if their day is over by `clock`, this machine's.
    pub fn restored(me: NodeId, before: &Unclaimed, clock: UnixMillis, now: Duration) -> Option<Self> {
        let mut mirror = Mirror::unnamed(clock, now, true);
        if day_of(before.minute) != day_of(mirror.minute) {
            return None;
        }
        (mirror.day_spent, mirror.day_charged) = (before.day_units, before.day_charged);
        mirror.share.day = before.day_share;
        if before.minute == mirror.minute {
            (mirror.minute_spent, mirror.minute_charged) = (before.minute_units, before.minute_charged);
            mirror.share.minute = before.minute_share;
        }
        Some(Self { mirror: Some(mirror), ..Self::new(me, before.limits) })
    }
}
