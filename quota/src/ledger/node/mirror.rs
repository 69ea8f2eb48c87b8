//! The node's mirror of the store's record of a bucket's current windows, and the arithmetic of spending from it.

use std::time::Duration;

use contract::plan::Limits;
use contract::time::UnixMillis;
use contract::window::Window;

use super::degraded::{ShareLeft, UnnamedWindows};
use super::{Claim, Executed, millis};
use crate::allowance::{Allowance, Allowances};
use crate::ledger::bucket::CLOCK_STEP_BACK_MINUTES_MAX;
use crate::ledger::{day_of, ends_at, left};

/// The store reads whole milliseconds: its clock may be this much later than it says.
const CLOCK_GRAIN: Duration = Duration::from_millis(1);

/// The figures of one minute and its day.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mirror {
    pub(super) minute: i64,
    /// The minute of the last reply; [`i64::MIN`] before the first.
    pub(super) named: i64,
    pub(super) minute_spent: u32,
    pub(super) day_spent: u32,
    /// Units granted and unspent.
    held: u32,
    /// Units granted to waiting requests that are about to be served.
    due: u32,
    /// Units charged by all nodes at the last reply (including `held` and `due`), plus those spent without the
    /// store since.
    pub(super) minute_charged: u64,
    pub(super) day_charged: u64,
    /// The store's record of this node at the last reply.
    own_minute: u32,
    own_day: u32,
    /// Units charged to earlier generations of this node for good; the current generation does not claim them again.
    past_minute: u32,
    past_day: u32,
    /// Until when `held` may be spent.
    spendable_until: Duration,
    /// Until when a refusal holds.
    pub(super) minute_until: Duration,
    refused: Option<Window>,
    /// The lowest Remaining shown in each window: it must not rise.
    shown_minute: u32,
    shown_day: u32,
    /// The store's clock, and the latest time at which the store read it.
    clock: UnixMillis,
    clock_at: Duration,
    /// Set while the node entered the windows by itself: no reply has named them.
    pub(super) unnamed: Option<UnnamedWindows>,
    pub(super) share: ShareLeft,
}

impl Mirror {
    /// Windows without charges, by a clock that shows `clock`.
    pub(super) fn blank(clock: UnixMillis, now: Duration) -> Self {
        let minute = Window::Minute.index(clock);
        let until = now + millis(ends_at(minute, Window::Minute).since(clock));
        Self {
            minute,
            named: i64::MIN,
            minute_spent: 0,
            day_spent: 0,
            held: 0,
            due: 0,
            minute_charged: 0,
            day_charged: 0,
            own_minute: 0,
            own_day: 0,
            past_minute: 0,
            past_day: 0,
            spendable_until: until,
            minute_until: until,
            refused: None,
            shown_minute: u32::MAX,
            shown_day: u32::MAX,
            clock,
            clock_at: now,
            unnamed: None,
            share: ShareLeft::default(),
        }
    }

    /// The store's clock now; never ahead of it.
    pub(super) fn clock(&self, now: Duration) -> UnixMillis {
        let since = now.saturating_sub(self.clock_at).as_millis();
        self.clock.plus(i64::try_from(since).unwrap_or(i64::MAX))
    }

    /// Whether a store that has lost all data needs these windows: they are not over, or so recent that a clock that
    /// stepped back could name them again.
    pub(super) fn matters(&self, now: Duration) -> bool {
        let earliest = Window::Minute.index(self.clock(now)) - CLOCK_STEP_BACK_MINUTES_MAX;
        day_of(self.minute) >= day_of(earliest)
    }

    /// Moves to another minute: units held for the old one expire, units spent today stay.
    pub(super) fn enter(&mut self, minute: i64) {
        if minute == self.minute {
            return;
        }
        if day_of(minute) != day_of(self.minute) {
            if let Some(unnamed) = &mut self.unnamed {
                *unnamed = UnnamedWindows { yesterday: self.day_spent, midnight: self.minute_until, ..*unnamed };
            }
            self.day_spent = 0;
            self.day_charged = 0;
            self.own_day = 0;
            self.past_day = 0;
            self.shown_day = u32::MAX;
            self.share.day = None;
        }
        self.minute = minute;
        self.share.minute = None;
        self.minute_spent = 0;
        self.held = 0;
        self.due = 0;
        self.minute_charged = 0;
        self.own_minute = 0;
        self.past_minute = 0;
        self.refused = None;
        self.shown_minute = u32::MAX;
    }

    /// A statement with these figures was abandoned: if it was executed, the store's record holds no more than that.
    pub(super) fn may_be_charged_less(&mut self, minute_units: u32, day_units: u32) {
        self.own_minute = self.own_minute.min(minute_units);
        self.own_day = self.own_day.min(day_units);
    }

    /// The store's charges for this generation stay; the next generation begins at zero.
    pub(super) fn begin_anew(&mut self) {
        self.past_minute = self.past_minute.saturating_add(std::mem::take(&mut self.own_minute));
        self.past_day = self.past_day.saturating_add(std::mem::take(&mut self.own_day));
    }

    /// Forgets the charges of earlier generations.
    pub(super) fn claim_everything(&mut self) {
        (self.past_minute, self.past_day) = (0, 0);
    }

    /// Applies a reply of which `granted` units count, `need` of them for waiting requests. Returns whether
    /// figures were moved to the windows that it names, so that the store must receive a statement.
    pub(super) fn receive(
        &mut self,
        executed: &Executed,
        granted: u32,
        need: u32,
        asked_at: Duration,
        now: Duration,
    ) -> bool {
        self.keep_rest();
        let moved = self.apply_windows(executed, now);
        self.enter(executed.minute);
        self.named = executed.minute;
        self.due = granted.min(need);
        self.held = self.held.saturating_add(granted - self.due);
        self.minute_charged = executed.minute_charged;
        self.day_charged = executed.day_charged;
        self.own_minute = executed.own_minute;
        self.own_day = executed.own_day;
        self.minute_until = asked_at + millis(executed.millis_left(Window::Minute));
        self.spendable_until = self.minute_until.saturating_sub(CLOCK_GRAIN);
        self.clock = executed.now;
        self.clock_at = now;
        self.share = ShareLeft::default();
        moved
    }

    /// Remembers until the minute ends that a window is used up. If both are, the day decides.
    pub(super) fn refuse_if_spent(&mut self, limits: Option<Limits>, executed: &Executed) {
        self.refused = match limits {
            Some(limits) if executed.learning_until.is_none() => [Window::Day, Window::Minute]
                .into_iter()
                .find(|window| left(limits.of(*window), self.charged(*window)) == 0),
            _ => None,
        };
    }

    pub(super) fn charged(&self, window: Window) -> u64 {
        match window {
            Window::Minute => self.minute_charged,
            Window::Day => self.day_charged,
        }
    }

    pub(super) fn refusal(&self, now: Duration) -> Option<Window> {
        self.refused.filter(|_| now < self.minute_until)
    }

    pub(super) fn spend_due(&mut self) -> bool {
        let spent = self.due > 0;
        if spent {
            self.due -= 1;
            self.count();
        }
        spent
    }

    pub(super) fn spend_held(&mut self, now: Duration) -> bool {
        let spent = self.held > 0 && now < self.spendable_until;
        if spent {
            self.held -= 1;
            self.count();
        }
        spent
    }

    /// Spends a unit without a grant; the next statement claims it.
    pub(super) fn spend_unstated(&mut self) {
        self.minute_charged = self.minute_charged.saturating_add(1);
        self.day_charged = self.day_charged.saturating_add(1);
        self.count();
    }

    fn count(&mut self) {
        self.minute_spent = self.minute_spent.saturating_add(1);
        self.day_spent = self.day_spent.saturating_add(1);
    }

    pub(super) fn keep_rest(&mut self) {
        self.held = self.held.saturating_add(std::mem::take(&mut self.due));
    }

    pub(super) fn drop_held(&mut self) {
        self.held = 0;
    }

    pub(super) fn expire(&mut self, now: Duration) {
        if now >= self.spendable_until {
            self.held = 0;
        }
    }

    /// Takes back one unit of `minute`. If the node has left that minute, only the day gets it back.
    pub(super) fn refund(&mut self, now: Duration, minute: i64) {
        if minute == self.minute && self.minute_spent > 0 {
            self.minute_spent -= 1;
            self.day_spent = self.day_spent.saturating_sub(1);
            if now < self.spendable_until {
                self.held += 1;
            }
        } else if minute < self.minute && day_of(minute) == day_of(self.minute) {
            self.day_spent = self.day_spent.saturating_sub(1);
        }
    }

    /// Sets the end of the current minute on the monotonic clock.
    pub(super) fn keep_until(&mut self, until: Duration) {
        self.minute_until = until;
        self.spendable_until = until;
    }

    pub(super) fn forget_limits(&mut self) {
        self.refused = None;
        self.held = 0;
        self.share = ShareLeft::default();
        self.shown_minute = u32::MAX;
        self.shown_day = u32::MAX;
    }

    /// Renumbers the current minute, with everything spent in it and its day.
    pub(super) fn move_to(&mut self, minute: i64) {
        if minute != self.minute {
            self.shown_minute = u32::MAX;
        }
        if day_of(minute) != day_of(self.minute) {
            self.shown_day = u32::MAX;
        }
        self.minute = minute;
    }

    /// The node's claim. Windows from this machine's clock are not named to the store.
    pub(super) fn claim(&self) -> Claim {
        if self.goes_by_own_clock() {
            return Claim::NOTHING;
        }
        let held = self.held.saturating_add(self.due);
        // Charges of earlier generations cover spent units and held units.
        let minute_units = self.minute_spent.saturating_add(held).saturating_sub(self.past_minute);
        let day_units = self.day_spent.saturating_add(held).saturating_sub(self.past_day);
        let held = held.min(minute_units).min(day_units);
        Claim {
            minute: self.minute,
            named: self.named,
            minute_spent: minute_units - held,
            day_spent: day_units - held,
            held,
        }
    }

    /// Spent units of the minute and of the day that are not in the store's record.
    pub(super) fn unclaimed(&self) -> (u32, u32) {
        let beyond = |spent: u32, past, own| spent.saturating_sub(past).saturating_sub(own);
        (
            beyond(self.minute_spent, self.past_minute, self.own_minute),
            beyond(self.day_spent, self.past_day, self.own_day),
        )
    }

    pub(super) fn owes(&self) -> bool {
        self.own_day != self.day_spent.saturating_sub(self.past_day)
            || self.own_minute != self.minute_spent.saturating_sub(self.past_minute)
    }

    pub(super) fn runs_low(&self, now: Duration, at_most: u32) -> bool {
        self.refused.is_none() && self.held > 0 && self.held <= at_most.max(1) && now < self.spendable_until
    }

    /// The allowances to show for a decision: Remaining never rises within a window.
    pub(super) fn show(&mut self, limits: Limits, now: Duration) -> Allowances {
        let allowances = self.allowances(limits, now);
        if allowances.minute.resets_at == Window::Minute.ends_at(self.minute) {
            self.shown_minute = allowances.minute.remaining;
        }
        if let Some(day) = allowances.day
            && day.resets_at == Window::Day.ends_at(day_of(self.minute))
        {
            self.shown_day = day.remaining;
        }
        allowances
    }

    /// The allowances at `now`, in the windows that are current then.
    pub(super) fn allowances(&self, limits: Limits, now: Duration) -> Allowances {
        let as_of = self.clock(now);
        let mut at = *self;
        if now >= self.minute_until {
            at.enter(Window::Minute.index(as_of).max(self.minute));
        }
        let spare = at.held.saturating_add(at.due);
        let allowance = |window: Window, shown: u32| {
            let limit = limits.of(window);
            let remaining = left(limit, at.charged(window)).saturating_add(spare).min(limit).min(shown);
            Allowance { limit, remaining, resets_at: ends_at(at.minute, window).to_seconds() }
        };
        Allowances {
            minute: allowance(Window::Minute, at.shown_minute),
            day: Some(allowance(Window::Day, at.shown_day)),
            as_of,
        }
    }
}
