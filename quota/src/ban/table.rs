//! The histories of all recently refused keys, bounded.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::key::KeyId;
use contract::time::{UnixMillis, UnixSeconds};
use contract::window::Window;
use parking_lot::Mutex;

use super::history::{BanPeriod, History};
use super::{Ban, BanReason, BanRules, BanSwitch};
use super::{Notification, Strikes};

/// Keys with a remembered history. When it is full, a history without effect is dropped first. If all have an effect,
/// further keys are still refused by their quota, but not banned.
pub const OFFENDERS_MAX: usize = 10_000;

/// Keys whose strikes wait to be sent to the other nodes; further ones count only here.
const UNDELIVERED_MAX: usize = 1_000;

/// The largest clock error of this machine at which bans of other nodes still take effect, in seconds.
const CLOCK_ERROR_SECONDS_MAX: i64 = 3_600;

/// A lifted ban, kept so that a node that missed the lift cannot restore it.
#[derive(Clone, Copy)]
struct Lift {
    began: UnixSeconds,
    until: UnixSeconds,
}

/// The recently refused and the banned keys.
pub struct BanTable {
    rules: BanRules,
    histories: Mutex<HashMap<KeyId, History>>,
    /// Lifted bans that would still hold; at most as many as histories.
    lifted: Mutex<HashMap<KeyId, Lift>>,
    /// Strikes not yet sent to the other nodes.
    undelivered: Mutex<HashMap<KeyId, Strikes>>,
    /// Keys with a ban, current or over: while there are none the hot path takes no lock.
    with_ban_period: AtomicUsize,
}

impl BanTable {
    /// An empty table.
    pub fn new(rules: BanRules) -> Self {
        Self {
            rules,
            histories: Mutex::default(),
            lifted: Mutex::default(),
            undelivered: Mutex::default(),
            with_ban_period: AtomicUsize::new(0),
        }
    }

    /// The end of the key's ban, if it is enforced at `now`. Calls `now` only when needed.
    pub fn holds(&self, key: &KeyId, now: impl FnOnce() -> UnixMillis) -> Option<UnixSeconds> {
        if self.with_ban_period.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let period = self.histories.lock().get(key)?.period?;
        let holds = !period.shadow && now() < period.until.to_millis();
        holds.then_some(period.until)
    }

    /// Records that `window` refused a request of the key that arrived at `arrived`; `limit` is the minute's. Returns
    /// the ban that began, if any.
    pub fn refuse(&self, key: &KeyId, window: Window, limit: u32, arrived: UnixMillis) -> Option<Ban> {
        if self.rules.switch == BanSwitch::Off {
            return None;
        }
        let mut histories = self.histories.lock();
        if !histories.contains_key(key) {
            self.make_room(&mut histories, arrived)?;
            histories.insert(key.clone(), History::new());
        }
        let history = histories.get_mut(key)?;
        if !history.refuse(&self.rules, window, arrived) {
            return None;
        }
        let strikes = Strikes { key: key.clone(), count: 1, at: arrived, limit };
        self.record_undelivered(&strikes);
        self.judge(history, &strikes)
    }

    /// Counts strikes of another node. Returns the ban that began, if any.
    pub fn count(&self, strikes: &Strikes) -> Option<Ban> {
        if self.rules.switch == BanSwitch::Off {
            return None;
        }
        let mut histories = self.histories.lock();
        if !histories.contains_key(&strikes.key) {
            self.make_room(&mut histories, strikes.at)?;
            histories.insert(strikes.key.clone(), History::new());
        }
        let history = histories.get_mut(&strikes.key)?;
        if history.is_serving(strikes.at) { None } else { self.judge(history, strikes) }
    }

    fn judge(&self, history: &mut History, strikes: &Strikes) -> Option<Ban> {
        let shadow = self.rules.switch == BanSwitch::Shadow;
        let was_sentenced = history.period.is_some();
        if !history.strike(&self.rules, strikes, shadow) {
            return None;
        }
        self.with_ban_period.fetch_add(usize::from(!was_sentenced), Ordering::Relaxed);
        history.period.map(|period| ban(&strikes.key, period))
    }

    fn record_undelivered(&self, strikes: &Strikes) {
        let mut undelivered = self.undelivered.lock();
        if let Some(known) = undelivered.get_mut(&strikes.key) {
            *known = Strikes { count: known.count.saturating_add(strikes.count), ..strikes.clone() };
        } else if undelivered.len() < UNDELIVERED_MAX {
            undelivered.insert(strikes.key.clone(), strikes.clone());
        }
    }

    /// Takes the strikes of this node since the last call, by key.
    pub fn take_undelivered_strikes(&self) -> Vec<Strikes> {
        std::mem::take(&mut *self.undelivered.lock()).into_values().collect()
    }

    /// Notifications for a store that has lost its data: the bans that hold, and those that were lifted.
    pub fn known(&self, now: UnixMillis) -> HashMap<KeyId, Notification> {
        let lifted = self.lifted.lock();
        let lifted = lifted.iter().filter(|(_, lift)| now < lift.until.to_millis());
        let lifted = lifted.map(|(key, lift)| {
            (key.clone(), Notification::Lifted { key: key.clone(), began: lift.began, until: lift.until })
        });
        let mut known: HashMap<_, _> = lifted.collect();
        known.extend(self.list(now).into_iter().map(|ban| (ban.key.clone(), Notification::Banned(ban))));
        known
    }

    /// Bans a key manually from `now` until `until`, even if bans are off. `None` if the table is full of banned keys.
    pub fn add(&self, key: &KeyId, now: UnixMillis, until: UnixSeconds) -> Option<Ban> {
        let mut histories = self.histories.lock();
        if !histories.contains_key(key) {
            self.make_room(&mut histories, now)?;
            histories.insert(key.clone(), History::new());
        }
        let history = histories.get_mut(key)?;
        let since = now.to_seconds();
        let level = u32::try_from(history.bans_within_memory(since)).unwrap_or(u32::MAX).saturating_add(1);
        let period = BanPeriod { since, until, reason: BanReason::Operator, level, shadow: false };
        self.with_ban_period.fetch_add(usize::from(history.period.is_none()), Ordering::Relaxed);
        history.impose(period);
        Some(ban(key, period))
    }

    /// Lifts a ban and clears the key's history. Returns the ban; `None` if the key was not banned.
    pub fn lift(&self, key: &KeyId, now: UnixMillis) -> Option<Ban> {
        let mut histories = self.histories.lock();
        let period = histories.get(key).filter(|history| history.is_serving(now))?.period?;
        if let Some(history) = histories.remove(key) {
            self.forget(&history);
        }
        drop(histories);
        self.record_lift(key, Lift { began: period.since, until: period.until }, now);
        Some(ban(key, period))
    }

    fn record_lift(&self, key: &KeyId, lift: Lift, now: UnixMillis) {
        let mut lifted = self.lifted.lock();
        if lifted.len() >= OFFENDERS_MAX {
            lifted.retain(|_, lift| now < lift.until.to_millis());
        }
        if lifted.len() < OFFENDERS_MAX && now < lift.until.to_millis() {
            lifted.insert(key.clone(), lift);
        }
    }

    /// The lift of a ban, to be sent to a node that still announces the ban.
    pub fn lift_of(&self, ban: &Ban) -> Option<Notification> {
        let lift = self.lifted.lock().get(&ban.key).copied().filter(|lift| ban.since <= lift.began)?;
        Some(Notification::Lifted { key: ban.key.clone(), began: lift.began, until: lift.until })
    }

    /// Adds a ban of another node, unless it is over, known, or was lifted.
    pub fn merge(&self, ban: &Ban, now: UnixMillis) {
        let by_rule = ban.reason == BanReason::Strikes;
        // Times of a ban are the store's; this machine's clock may be wrong.
        if now >= ban.until.plus(CLOCK_ERROR_SECONDS_MAX).to_millis()
            || (by_rule && self.rules.switch == BanSwitch::Off)
        {
            return;
        }
        if self.lift_of(ban).is_some() {
            return;
        }
        let mut histories = self.histories.lock();
        if !histories.contains_key(&ban.key) {
            if self.make_room(&mut histories, now).is_none() {
                return;
            }
            histories.insert(ban.key.clone(), History::new());
        }
        let Some(history) = histories.get_mut(&ban.key) else { return };
        let known = history.period.is_some_and(|mine| mine.since >= ban.since && mine.until >= ban.until);
        if known {
            return;
        }
        // Two nodes that counted the same strikes ban at almost the same time: that is one ban, the longer one.
        if let Some(mine) = &mut history.period
            && (mine.reason, ban.reason) == (BanReason::Strikes, BanReason::Strikes)
            && (mine.since..mine.until).contains(&ban.since)
        {
            mine.until = mine.until.max(ban.until);
            return;
        }
        let shadow = ban.shadow || (by_rule && self.rules.switch == BanSwitch::Shadow);
        self.with_ban_period.fetch_add(usize::from(history.period.is_none()), Ordering::Relaxed);
        let Ban { since, until, reason, level, .. } = *ban;
        history.impose(BanPeriod { since, until, reason, level, shadow });
    }

    /// Lifts a ban that began at or before `began` and would have ended at `until`. A later ban was imposed knowingly
    /// and stays.
    pub fn lift_begun_by(&self, key: &KeyId, began: UnixSeconds, until: UnixSeconds, now: UnixMillis) {
        self.record_lift(key, Lift { began, until }, now);
        let is_meant = {
            let histories = self.histories.lock();
            histories.get(key).and_then(|history| history.period).is_some_and(|period| period.since <= began)
        };
        if is_meant {
            self.lift(key, now);
        }
    }

    /// The bans in force, ordered by their end, latest first.
    pub fn list(&self, now: UnixMillis) -> Vec<Ban> {
        if self.with_ban_period.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let histories = self.histories.lock();
        let serving = histories.iter().filter(|(_, history)| history.is_serving(now));
        let mut bans: Vec<_> =
            serving.filter_map(|(key, history)| history.period.map(|period| ban(key, period))).collect();
        bans.sort_by(|a, b| b.until.cmp(&a.until).then_with(|| a.key.cmp(&b.key)));
        bans
    }

    /// Keys with a history.
    pub fn len(&self) -> usize {
        self.histories.lock().len()
    }

    /// Whether no key was refused recently.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room for one more key: drops all histories that are over, else one that is not banned.
    fn make_room(&self, histories: &mut HashMap<KeyId, History>, now: UnixMillis) -> Option<()> {
        if histories.len() < OFFENDERS_MAX {
            return Some(());
        }
        let free = histories.iter().find(|(_, history)| !history.is_serving(now)).map(|(key, _)| key.clone())?;
        let over = histories.get(&free).is_some_and(|history| history.is_over(now));
        if over {
            histories.extract_if(|_, history| history.is_over(now)).for_each(|(_, history)| self.forget(&history));
        } else if let Some(history) = histories.remove(&free) {
            self.forget(&history);
        }
        Some(())
    }

    fn forget(&self, history: &History) {
        self.with_ban_period.fetch_sub(usize::from(history.period.is_some()), Ordering::Relaxed);
    }
}

fn ban(key: &KeyId, period: BanPeriod) -> Ban {
    Ban {
        key: key.clone(),
        since: period.since,
        until: period.until,
        reason: period.reason,
        level: period.level,
        shadow: period.shadow,
    }
}
