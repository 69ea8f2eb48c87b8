//! The histories of all keys that were refused lately, bounded.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::key::KeyId;
use contract::time::{UnixMillis, UnixSeconds};
use contract::window::Window;
use parking_lot::Mutex;

use super::history::{History, Sentence};
use super::{Ban, BanReason, BanRules, BanSwitch};

/// Keys whose refusals are remembered. Beyond it the history with nothing in it goes first; when all matter, further
/// keys are not watched: they are still refused by their quota, only not banned.
pub const OFFENDERS_MAX: usize = 10_000;

/// How wrong this machine's clock may be before bans of other nodes are missed, in seconds.
const CLOCK_ERROR_SECONDS_MAX: i64 = 3_600;

/// Who was refused lately, and who is banned.
pub struct BanTable {
    rules: BanRules,
    histories: Mutex<HashMap<KeyId, History>>,
    /// Keys with a ban, over or not: while there are none the hot path takes no lock.
    sentenced: AtomicUsize,
}

impl BanTable {
    /// A table without a past.
    pub fn new(rules: BanRules) -> Self {
        Self { rules, histories: Mutex::default(), sentenced: AtomicUsize::new(0) }
    }

    /// The end of the key's ban, when it has one that is imposed at `now`. `now` is only asked when it matters.
    pub fn holds(&self, key: &KeyId, now: impl FnOnce() -> UnixMillis) -> Option<UnixSeconds> {
        if self.sentenced.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let sentence = self.histories.lock().get(key)?.sentence?;
        let holds = !sentence.shadow && now() < sentence.until.to_millis();
        holds.then_some(sentence.until)
    }

    /// Notes that a request of the key, arrived at `arrived`, was refused by `window`; `limit` is the minute's. Answers
    /// the ban that began by it, if one did.
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
        let shadow = self.rules.switch == BanSwitch::Shadow;
        let was_sentenced = history.sentence.is_some();
        if !history.refuse(&self.rules, window, limit, arrived, shadow) {
            return None;
        }
        self.sentenced.fetch_add(usize::from(!was_sentenced), Ordering::Relaxed);
        history.sentence.map(|sentence| ban(key, sentence))
    }

    /// Bans a key by hand from `now` until `until`, whatever the switch says. `None` when the table is full of keys
    /// that are banned.
    pub fn add(&self, key: &KeyId, now: UnixMillis, until: UnixSeconds) -> Option<Ban> {
        let mut histories = self.histories.lock();
        if !histories.contains_key(key) {
            self.make_room(&mut histories, now)?;
            histories.insert(key.clone(), History::new());
        }
        let history = histories.get_mut(key)?;
        let since = now.to_seconds();
        let level = u32::try_from(history.bans_within_memory(since)).unwrap_or(u32::MAX).saturating_add(1);
        let sentence = Sentence { since, until, reason: BanReason::Operator, level, shadow: false };
        self.sentenced.fetch_add(usize::from(history.sentence.is_none()), Ordering::Relaxed);
        history.impose(sentence);
        Some(ban(key, sentence))
    }

    /// Lifts a ban and forgets the key's past. Answers the ban; `None` when the key was not banned.
    pub fn lift(&self, key: &KeyId, now: UnixMillis) -> Option<Ban> {
        let mut histories = self.histories.lock();
        let sentence = histories.get(key).filter(|history| history.is_serving(now))?.sentence?;
        if let Some(history) = histories.remove(key) {
            self.forget(&history);
        }
        Some(ban(key, sentence))
    }

    /// Takes over a ban that another node has imposed, unless it is over or known.
    pub fn adopt(&self, ban: &Ban, now: UnixMillis) {
        let by_rule = ban.reason == BanReason::Strikes;
        // Moments of a ban are the store's; this machine's clock may be wrong by a while.
        if now >= ban.until.plus(CLOCK_ERROR_SECONDS_MAX).to_millis()
            || (by_rule && self.rules.switch == BanSwitch::Off)
        {
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
        let known = history.sentence.is_some_and(|mine| mine.since >= ban.since && mine.until >= ban.until);
        if known {
            return;
        }
        let shadow = ban.shadow || (by_rule && self.rules.switch == BanSwitch::Shadow);
        self.sentenced.fetch_add(usize::from(history.sentence.is_none()), Ordering::Relaxed);
        let Ban { since, until, reason, level, .. } = *ban;
        history.impose(Sentence { since, until, reason, level, shadow });
    }

    /// Lifts a ban that began at that moment or before: a later one was imposed by somebody who knew.
    pub fn lift_begun_by(&self, key: &KeyId, began: UnixSeconds, now: UnixMillis) {
        let is_meant = {
            let histories = self.histories.lock();
            histories.get(key).and_then(|history| history.sentence).is_some_and(|sentence| sentence.since <= began)
        };
        if is_meant {
            self.lift(key, now);
        }
    }

    /// The bans in force, the one that ends last first.
    pub fn list(&self, now: UnixMillis) -> Vec<Ban> {
        if self.sentenced.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let histories = self.histories.lock();
        let serving = histories.iter().filter(|(_, history)| history.is_serving(now));
        let mut bans: Vec<_> =
            serving.filter_map(|(key, history)| history.sentence.map(|sentence| ban(key, sentence))).collect();
        bans.sort_by(|a, b| b.until.cmp(&a.until).then_with(|| a.key.cmp(&b.key)));
        bans
    }

    /// Keys remembered at the moment.
    pub fn len(&self) -> usize {
        self.histories.lock().len()
    }

    /// Whether no key was refused lately.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes sure that one more key fits: drops all that is over, else the first key that is not banned.
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
        self.sentenced.fetch_sub(usize::from(history.sentence.is_some()), Ordering::Relaxed);
    }
}

fn ban(key: &KeyId, sentence: Sentence) -> Ban {
    Ban {
        key: key.clone(),
        since: sentence.since,
        until: sentence.until,
        reason: sentence.reason,
        level: sentence.level,
        shadow: sentence.shadow,
    }
}
