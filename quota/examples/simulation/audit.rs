//! Checks the promises against what really happened.
//!
//! - In a calm, lossy or forgetful world, no window ever admits more than its limit.
//! - In an outage, the nodes' shares of a minute wholly inside it stay within the limit; a minute partly inside it
//!   stays within twice the limit.
//! - Early refusals are bounded: when a minute refuses a request, everything except the leases of other nodes was used.
//! - On one node, Remaining never rises within a window, unless the node entered the window before the store did.
//! - In the end, the day's charge equals the number of admitted requests.

use std::collections::BTreeMap;

use contract::plan::Limits;
use contract::window::Window;
use quota::allowance::{Allowance, Allowances};
use quota::ledger::day_of;
use quota::ledger::node::LEASE_FRACTION;

use super::Summary;
use super::scenario::{Kind, Scenario};

/// Counts of one window.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    admitted: u64,
    refused: bool,
    /// Some requests were admitted by a clock other than the store's.
    by_own_clock: bool,
}

/// Everything that the final check needs.
pub(super) struct Audit {
    kind: Kind,
    nodes: u64,
    limits: Limits,
    /// Remaining may rise: the limits changed, or a clock stepped back so far that windows reopened.
    may_rise: bool,
    limits_changed: bool,
    minutes: BTreeMap<i64, Tally>,
    days: BTreeMap<i64, Tally>,
    /// Lowest Remaining seen per process, window and reset.
    lowest: BTreeMap<(u64, Window, i64), u32>,
    /// Minutes by the store's clock that lie wholly inside a stall.
    inside: Vec<i64>,
    pub(super) summary: Summary,
}

impl Audit {
    /// An empty record.
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            kind: scenario.kind,
            nodes: scenario.nodes as u64,
            limits: scenario.limits,
            may_rise: scenario.kind == Kind::Chaos && scenario.forgets(),
            limits_changed: false,
            minutes: BTreeMap::new(),
            days: BTreeMap::new(),
            lowest: BTreeMap::new(),
            inside: Vec::new(),
            summary: Summary { worlds: 1, ..Summary::default() },
        }
    }

    /// The limits changed.
    pub(super) fn limits_changed(&mut self) {
        self.limits_changed = true;
        self.may_rise = true;
    }

    /// Records that the store stalled between two times of its clock, in milliseconds.
    pub(super) fn stalled(&mut self, from: i64, until: i64) {
        let first = (from + 59_999).div_euclid(60_000);
        self.inside.extend(first..until.div_euclid(60_000));
    }

    /// A node returned to an earlier minute: the requests that it showed in the later one count in the earlier one.
    pub(super) fn went_back(&mut self, process: u64) {
        self.lowest.retain(|(of, _, _), _| *of != process);
    }

    /// Records an admitted request in a minute of the store's clock, or in the minute that the node showed.
    pub(super) fn admitted(
        &mut self,
        process: u64,
        allowances: &Allowances,
        degraded: bool,
        own_clock: Option<i64>,
    ) -> Result<(), String> {
        let minute = own_clock.unwrap_or_else(|| minute_of(allowances));
        let tally = self.minutes.entry(minute).or_default();
        tally.admitted += 1;
        tally.by_own_clock |= own_clock.is_some();
        self.days.entry(day_of(minute)).or_default().admitted += 1;
        self.summary.admitted += 1;
        self.summary.degraded += u64::from(degraded);
        self.shown(process, allowances)
    }

    /// Records a refused request.
    pub(super) fn refused(&mut self, process: u64, allowances: &Allowances, window: Window) -> Result<(), String> {
        let minute = minute_of(allowances);
        match window {
            Window::Minute => self.minutes.entry(minute).or_default().refused = true,
            Window::Day => self.days.entry(day_of(minute)).or_default().refused = true,
        }
        self.summary.refused += 1;
        let remaining = allowances.of(window).remaining;
        // A spent share leaves its remainder to others; the ledger never refuses while something is left.
        if remaining > 0 && self.kind == Kind::Calm {
            return Err(format!("refused with {remaining} left: {allowances:?}"));
        }
        self.shown(process, allowances)
    }

    /// Records a request answered with 503.
    pub(super) fn unavailable(&mut self) -> Result<(), String> {
        self.summary.unavailable += 1;
        if self.kind == Kind::Calm { Err("unavailable in a calm world".to_owned()) } else { Ok(()) }
    }

    fn shown(&mut self, process: u64, allowances: &Allowances) -> Result<(), String> {
        let windows = [Some((Window::Minute, allowances.minute)), allowances.day.map(|day| (Window::Day, day))];
        for (window, Allowance { limit, remaining, resets_at }) in windows.into_iter().flatten() {
            if resets_at.to_millis() <= allowances.as_of && self.kind == Kind::Calm {
                return Err(format!("allowances of a window that was over: {allowances:?}"));
            }
            let lowest = self.lowest.entry((process, window, resets_at.0)).or_insert(limit);
            if remaining > limit || (remaining > *lowest && !self.may_rise) {
                return Err(format!("remaining rose from {lowest} to {remaining} of the {window} on one node"));
            }
            *lowest = remaining;
        }
        Ok(())
    }

    /// Checks every window.
    pub(super) fn judge(&self) -> Result<(), String> {
        if self.limits_changed {
            return Ok(());
        }
        for (window, tallies) in [(Window::Minute, &self.minutes), (Window::Day, &self.days)] {
            let limit = u64::from(self.limits.of(window));
            for (index, tally) in tallies {
                let inside = window == Window::Minute && self.inside.contains(index);
                let most = match self.kind {
                    Kind::Calm | Kind::Lossy | Kind::Forgetful => limit,
                    Kind::Outage if inside && !tally.by_own_clock => limit,
                    // A minute of a wrong clock overlaps two minutes of the store.
                    Kind::Outage if inside || !tally.by_own_clock => 2 * limit,
                    Kind::Outage => 3 * limit,
                    Kind::Chaos => 12 * limit,
                };
                if tally.admitted > most {
                    return Err(format!("{window} {index}: {} admitted, at most {most} allowed", tally.admitted));
                }
                let stranded = u64::from((self.limits.of(Window::Minute) / LEASE_FRACTION).max(1));
                let least = limit.saturating_sub(stranded * (self.nodes - 1));
                if self.kind == Kind::Calm && tally.refused && tally.admitted < least {
                    return Err(format!("{window} {index}: refused after {} of at least {least}", tally.admitted));
                }
            }
        }
        Ok(())
    }

    /// Requests admitted in a day.
    pub(super) fn admitted_in_day(&self, day: i64) -> u64 {
        self.days.get(&day).map_or(0, |tally| tally.admitted)
    }
}

/// The minute that allowances describe.
pub(super) fn minute_of(allowances: &Allowances) -> i64 {
    allowances.minute.resets_at.0.div_euclid(60) - 1
}
