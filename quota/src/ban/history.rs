//! One key's history of refusals.

use contract::time::{UnixMillis, UnixSeconds};
use contract::window::Window;

use super::Strikes;
use super::{BanReason, BanRules};

/// Slots of the sliding minute: with [`SLOT_MILLIS`] each, they cover the last 50 to 60 seconds.
const SLOTS: usize = 6;
const SLOT_MILLIS: i64 = 10_000;
/// How long earlier bans make the next one longer.
const MEMORY_SECONDS: i64 = 86_400;

/// A ban, current or over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BanPeriod {
    pub(super) since: UnixSeconds,
    pub(super) until: UnixSeconds,
    pub(super) reason: BanReason,
    pub(super) level: u32,
    pub(super) shadow: bool,
}

/// The history of a key that was refused.
#[derive(Clone, Debug)]
pub(super) struct History {
    /// The window of `refused_at`, its first 429.
    window: (Window, i64),
    refused_at: UnixMillis,
    /// Strikes per slot of ten seconds, and the newest slot.
    strikes: [u32; SLOTS],
    slot: i64,
    /// The current minute, its strikes, and the bad minutes in a row before it.
    minute: i64,
    minute_strikes: u32,
    bad_minutes: u32,
    /// Starts of the latest bans within the memory: one fewer than the levels.
    bans: [Option<UnixSeconds>; 3],
    pub(super) period: Option<BanPeriod>,
}

impl History {
    /// A key without history.
    pub(super) fn new() -> Self {
        Self {
            window: (Window::Minute, i64::MIN),
            refused_at: UnixMillis(0),
            strikes: [0; SLOTS],
            slot: i64::MIN,
            minute: i64::MIN,
            minute_strikes: 0,
            bad_minutes: 0,
            bans: [None; 3],
            period: None,
        }
    }

    /// Records a refusal by `window` of a request that arrived at `arrived`. Returns whether it is a strike.
    pub(super) fn refuse(&mut self, rules: &BanRules, window: Window, arrived: UnixMillis) -> bool {
        let window = (window, window.index(arrived));
        if self.window != window {
            self.window = window;
            self.refused_at = arrived;
            return false;
        }
        let grace = i64::try_from(rules.grace.as_millis()).unwrap_or(i64::MAX);
        arrived.since(self.refused_at) > grace && !self.is_serving(arrived)
    }

    /// Counts strikes, and bans the key if there are too many. Returns whether a ban began.
    pub(super) fn strike(&mut self, rules: &BanRules, strikes: &Strikes, shadow: bool) -> bool {
        self.count(rules, strikes.count, strikes.at);
        let recent = self.strikes.iter().copied().fold(0, u32::saturating_add);
        let too_many = recent >= rules.strikes_min.max(strikes.limit / 2);
        let too_often = self.minute_strikes >= rules.bad_minute && self.bad_minutes + 1 >= rules.bad_minutes;
        if too_many || too_often {
            self.begin_ban_period(rules, strikes.at.to_seconds(), shadow);
        }
        too_many || too_often
    }

    fn count(&mut self, rules: &BanRules, strikes: u32, at: UnixMillis) {
        let slot = at.0.div_euclid(SLOT_MILLIS);
        let forward = usize::try_from(slot.saturating_sub(self.slot).max(0)).unwrap_or(SLOTS).min(SLOTS);
        // Slots move to the front; dropped ones are older than a minute.
        self.strikes.copy_within(forward.., 0);
        self.strikes.iter_mut().rev().take(forward).for_each(|old| *old = 0);
        self.slot = self.slot.max(slot);
        if let Some(newest) = self.strikes.last_mut() {
            *newest = newest.saturating_add(strikes);
        }
        let minute = Window::Minute.index(at);
        if minute != self.minute {
            let bad = self.minute_strikes >= rules.bad_minute;
            let adjacent = self.minute.checked_add(1) == Some(minute);
            self.bad_minutes = if bad && adjacent { self.bad_minutes.saturating_add(1) } else { 0 };
            self.minute = minute;
            self.minute_strikes = 0;
        }
        self.minute_strikes = self.minute_strikes.saturating_add(strikes);
    }

    fn begin_ban_period(&mut self, rules: &BanRules, since: UnixSeconds, shadow: bool) {
        let recent = self.bans_within_memory(since);
        let seconds = rules.seconds.get(recent).or(rules.seconds.last()).copied().unwrap_or(60);
        let level = u32::try_from(recent).unwrap_or(u32::MAX).saturating_add(1);
        let until = since.plus(i64::from(seconds));
        self.impose(BanPeriod { since, until, reason: BanReason::Strikes, level, shadow });
    }

    /// Begins a ban and clears the strikes that led to it.
    pub(super) fn impose(&mut self, period: BanPeriod) {
        self.bans.rotate_left(1);
        if let Some(latest) = self.bans.last_mut() {
            *latest = Some(period.since);
        }
        self.period = Some(period);
        self.strikes = [0; SLOTS];
        self.minute_strikes = 0;
        self.bad_minutes = 0;
    }

    /// Bans that began within the memory, at most one fewer than the levels.
    pub(super) fn bans_within_memory(&self, now: UnixSeconds) -> usize {
        self.bans.iter().flatten().filter(|since| now.0 - since.0 < MEMORY_SECONDS).count()
    }

    /// Whether the key is banned.
    pub(super) fn is_serving(&self, now: UnixMillis) -> bool {
        self.period.is_some_and(|period| now < period.until.to_millis())
    }

    /// Whether the history has no effect any more.
    pub(super) fn is_over(&self, now: UnixMillis) -> bool {
        let recent = now.since(self.refused_at) < 60_000
            || now.since(UnixMillis(self.slot.saturating_mul(SLOT_MILLIS))) < 70_000;
        !self.is_serving(now) && !recent && self.bans_within_memory(now.to_seconds()) == 0
    }
}
