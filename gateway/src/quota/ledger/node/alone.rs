//! Deciding without the store.
//!
//! While the store cannot be asked, a node lets through its share of the limits: with the same number of nodes known
//! everywhere, the shares of a minute that lies wholly inside the outage add up to no more than the limit. In the
//! minute in which the outage begins a node shares only what it last knew to be left, which the units other nodes
//! were granted since may exceed: at most twice the limit in that one minute. Everything spent is claimed by the next
//! statement, so the day is right again once the store is back.

use std::num::NonZeroU32;
use std::time::Duration;

use contract::time::UnixMillis;
use contract::window::Window;

use super::NodeBucket;
use super::known::Known;
use crate::quota::ledger::{day_of, ends_at, left};
use crate::quota::standing::Standing;

/// How a node decides without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// Admit this node's share of the limits among so many nodes.
    Share(NonZeroU32),
    /// Admit everything, and count it.
    Everything,
}

/// What became of an attempt to spend a unit without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AloneStep {
    /// A unit was spent; it will be claimed when the store is back.
    Admit(Standing),
    /// The limit is known to be reached.
    Refuse(Standing, Window),
    /// The node's share is spent, but for all it knows the limit is not.
    Spent,
}

/// What is left of this node's share.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShareLeft {
    minute: u32,
    day: u32,
}

impl NodeBucket {
    /// Tries to spend a unit without asking anybody, after [`NodeBucket::spend`] said that the store had to be asked.
    /// The window is that of the store's clock as far as it was ever heard of, else of `wall`, this machine's.
    pub fn spend_alone(&mut self, now: Duration, wall: UnixMillis, how: Alone) -> AloneStep {
        let limits = self.limits;
        let known = self.known.get_or_insert_with(|| Known::blank(wall, now));
        let clock = known.clock(now);
        let minute = Window::Minute.index(clock);
        if minute > known.minute {
            let day_left = known.share.map(|share| share.day);
            let same_day = day_of(minute) == day_of(known.minute);
            known.enter_alone(minute, now, clock);
            if let Alone::Share(nodes) = how {
                let day = match day_left {
                    Some(day) if same_day => day,
                    _ => left(limits.of(Window::Day), known.day_charged) / nodes,
                };
                known.share = Some(ShareLeft { minute: limits.of(Window::Minute) / nodes, day });
            }
        }
        if let Alone::Share(nodes) = how {
            let reached = [Window::Day, Window::Minute];
            if let Some(window) =
                reached.into_iter().find(|window| left(limits.of(*window), known.charged(*window)) == 0)
            {
                return AloneStep::Refuse(known.show(limits, now), window);
            }
            let share = known.share.get_or_insert(ShareLeft {
                minute: left(limits.of(Window::Minute), known.minute_charged) / nodes,
                day: left(limits.of(Window::Day), known.day_charged) / nodes,
            });
            if share.minute == 0 || share.day == 0 {
                return AloneStep::Spent;
            }
            share.minute -= 1;
            share.day -= 1;
        }
        known.spend_unstated();
        AloneStep::Admit(known.show(limits, now))
    }
}

impl Known {
    /// Begins a minute that no store has announced.
    fn enter_alone(&mut self, minute: i64, now: Duration, clock: UnixMillis) {
        self.enter(minute);
        let ends = super::millis(ends_at(minute, Window::Minute).since(clock));
        self.keep_until(now + ends);
    }
}
