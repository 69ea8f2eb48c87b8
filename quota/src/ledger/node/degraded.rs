//! Degraded mode: decisions without the store.
//!
//! While the store cannot be reached, a node admits its share of the limits. If every node knows the same number of
//! nodes, the shares of a minute wholly inside the outage add up to the limit. In the minute in which the outage
//! begins, a node shares only the units that it last knew to be left. Other nodes may have been granted units since, so
//! that minute admits at most twice the limit. The next statement claims everything that was spent, so the day is right
//! once the store is back.
//!
//! If a node enters a minute by itself, its claims say so, and the store's record does not follow. If the store has not
//! reached that minute, the node moves what it spent to the minute that the store names. A node that has never received
//! the store's clock counts by this machine's clock and claims nothing by it: it first asks for the current minute.

use std::num::NonZeroU32;
use std::time::Duration;

use contract::time::UnixMillis;
use contract::window::Window;

use super::NodeBucket;
use super::mirror::Mirror;
use crate::allowance::Allowances;
use crate::ledger::{Executed, day_of, ends_at, left};

/// The units that a node admits without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DegradedPolicy {
    /// Admit this node's share of the limits.
    Share(Share),
    /// Admit everything, and count it.
    Everything,
}

/// One node's share of a limit: an equal part, and one unit of the remainder if its turn is early enough. The nodes
/// take turns from window to window, and in each window their shares add up to the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    nodes: NonZeroU32,
    index: u32,
}

impl Share {
    /// The share of the node with `index` nodes before it, out of `nodes`.
    pub fn new(nodes: NonZeroU32, index: u32) -> Self {
        Self { nodes, index: index % nodes }
    }

    /// The share of these units in the window of this number.
    pub(super) fn of(self, units: u32, window: i64) -> u32 {
        let nodes = i64::from(self.nodes.get());
        let turn = (window.rem_euclid(nodes) + i64::from(self.index)) % nodes;
        units / self.nodes + u32::from(turn < i64::from(units % self.nodes))
    }
}

/// The clock of degraded decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DegradedClock {
    /// The store's clock, as this node last received it.
    Received(UnixMillis),
    /// This machine's clock: the store was never reached.
    Own(UnixMillis),
}

/// The result of trying to spend a unit without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DegradedStep {
    /// A unit was spent; it will be claimed when the store is back.
    Admit(Allowances),
    /// The limit is known to be reached.
    Refuse(Allowances, Window),
    /// The node's share of this window is spent; the limit may not be. It has a new share in the next window.
    Spent(Window),
}

/// State of a node in windows that no reply has named.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnnamedWindows {
    /// Units spent before midnight, if the node entered a day by itself.
    pub(super) yesterday: u32,
    /// When it entered that day.
    pub(super) midnight: Duration,
    /// Units spent in the last minute that a reply named.
    pub(super) spent_before: u32,
    /// The windows are those of this machine's clock: the store was never reached.
    pub(super) by_own_clock: bool,
}

/// How far the clocks of well-kept machines may differ.
const CLOCKS_APART: Duration = Duration::from_secs(1);

/// The remaining units of this node's shares; `None` before the first request of the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShareLeft {
    pub(super) minute: Option<u32>,
    pub(super) day: Option<u32>,
}

impl NodeBucket {
    /// Tries to spend a unit without the store, after [`NodeBucket::spend`] returned `Ask`. `clock` is used for a
    /// bucket that no reply has described.
    pub fn spend_degraded(&mut self, now: Duration, clock: DegradedClock, how: DegradedPolicy) -> DegradedStep {
        let limits = self.limits;
        let mirror = self.mirror.get_or_insert_with(|| match clock {
            DegradedClock::Received(clock) => Mirror::unnamed(clock, now, false),
            DegradedClock::Own(clock) => Mirror::unnamed(clock, now, true),
        });
        let clock = mirror.clock(now);
        let minute = Window::Minute.index(clock);
        if minute > mirror.minute {
            mirror.enter_unnamed(minute, now, clock);
        }
        if let DegradedPolicy::Share(of_all) = how {
            let reached = [Window::Day, Window::Minute];
            if let Some(window) =
                reached.into_iter().find(|window| left(limits.of(*window), mirror.charged(*window)) == 0)
            {
                return DegradedStep::Refuse(mirror.show(limits, now), window);
            }
            let of = |window: Window, number| of_all.of(left(limits.of(window), mirror.charged(window)), number);
            let (minute, day) = (of(Window::Minute, mirror.minute), of(Window::Day, day_of(mirror.minute)));
            let (minute, day) = (mirror.share.minute.get_or_insert(minute), mirror.share.day.get_or_insert(day));
            if *day == 0 || *minute == 0 {
                return DegradedStep::Spent(if *day == 0 { Window::Day } else { Window::Minute });
            }
            *minute -= 1;
            *day -= 1;
        }
        mirror.spend_unstated();
        DegradedStep::Admit(mirror.show(limits, now))
    }
}

impl Mirror {
    /// Windows without charges that no reply has named.
    pub(super) fn unnamed(clock: UnixMillis, now: Duration, by_own_clock: bool) -> Self {
        let mut mirror = Self::blank(clock, now);
        mirror.unnamed = Some(UnnamedWindows { by_own_clock, ..UnnamedWindows::default() });
        mirror
    }

    /// Whether the windows come from this machine's clock.
    pub(super) fn goes_by_own_clock(&self) -> bool {
        self.unnamed.is_some_and(|unnamed| unnamed.by_own_clock)
    }

    /// Moves what was spent in windows that this node entered by itself to those that the store names, unless the store
    /// knows them. Units of a minute or day that had ended by then are dropped; if that is uncertain, they are kept.
    /// Returns whether anything was moved.
    pub(super) fn apply_windows(&mut self, executed: &Executed, now: Duration) -> bool {
        let Some(unnamed) = self.unnamed.take() else { return false };
        if !unnamed.by_own_clock && self.minute <= executed.minute {
            return false;
        }
        let began = |window: Window| {
            let passed = window.seconds() * 1_000 - executed.millis_left(window);
            now.saturating_sub(super::millis(passed))
        };
        if self.minute_until <= began(Window::Minute) {
            self.minute_spent = 0;
        }
        if self.minute_until <= began(Window::Day) {
            self.day_spent = 0;
        }
        if executed.minute == self.named {
            self.minute_spent = self.minute_spent.saturating_add(unnamed.spent_before);
        }
        if unnamed.midnight > began(Window::Day) + CLOCKS_APART {
            self.day_spent = self.day_spent.saturating_add(unnamed.yesterday);
        }
        self.move_to(executed.minute);
        true
    }

    /// Begins a minute that no reply has named.
    fn enter_unnamed(&mut self, minute: i64, now: Duration, clock: UnixMillis) {
        if self.unnamed.is_none() {
            self.unnamed = Some(UnnamedWindows { spent_before: self.minute_spent, ..UnnamedWindows::default() });
        }
        self.enter(minute);
        let ends = super::millis(ends_at(minute, Window::Minute).since(clock));
        self.keep_until(now + ends);
    }
}
