//! The last use of each key, to the minute.
//!
//! A key that is used a thousand times a minute is recorded once. A bounded map holds the keys of this minute and those
//! not reported yet; beyond `KEYS_MAX` keys in a minute, further ones are not recorded.

use std::collections::HashMap;

use contract::key::KeyId;
use contract::time::UnixMillis;
use contract::usage::KeyUse;
use contract::window::Window;
use parking_lot::Mutex;

/// Keys recorded at once.
const KEYS_MAX: usize = 100_000;

/// Parts of the map, so that requests with different keys do not wait for one lock.
const PARTS: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Used {
    minute: i64,
    /// Not reported yet.
    is_news: bool,
}

/// The used keys.
pub(crate) struct KeyUses {
    parts: Vec<Mutex<HashMap<KeyId, Used>>>,
}

impl Default for KeyUses {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| Mutex::default()).collect() }
    }
}

impl KeyUses {
    /// Records a request with this key.
    pub(crate) fn record(&self, key: &KeyId, now: UnixMillis) {
        let minute = Window::Minute.index(now);
        let Some(part) = self.part(key) else { return };
        let mut used = part.lock();
        match used.get_mut(key) {
            Some(known) if known.minute < minute => *known = Used { minute, is_news: true },
            Some(_) => {}
            None => insert(&mut used, key.clone(), minute),
        }
    }

    /// Takes up to `max` unreported uses and marks them as reported; [`KeyUses::give_back`] reverts that. Reported keys
    /// of earlier minutes are dropped.
    pub(super) fn take(&self, max: usize, now: UnixMillis) -> Vec<KeyUse> {
        let this_minute = Window::Minute.index(now);
        let mut taken = Vec::new();
        for part in &self.parts {
            part.lock().retain(|key, used| {
                if used.is_news && taken.len() < max {
                    taken.push(KeyUse { key: key.clone(), minute: used.minute });
                    used.is_news = false;
                }
                used.is_news || used.minute >= this_minute
            });
        }
        taken
    }

    /// Returns uses that could not be reported.
    pub(super) fn give_back(&self, taken: Vec<KeyUse>) {
        for KeyUse { key, minute } in taken {
            let Some(part) = self.part(&key) else { continue };
            let mut used = part.lock();
            match used.get_mut(&key) {
                // Used again meanwhile or not: the control plane does not know it.
                Some(known) => known.is_news = true,
                None => insert(&mut used, key, minute),
            }
        }
    }

    fn part(&self, key: &KeyId) -> Option<&Mutex<HashMap<KeyId, Used>>> {
        // Ids are random to their last letter.
        self.parts.get(key.as_str().bytes().last().map_or(0, usize::from) % PARTS)
    }
}

fn insert(used: &mut HashMap<KeyId, Used>, key: KeyId, minute: i64) {
    if used.len() < KEYS_MAX / PARTS {
        used.insert(key, Used { minute, is_news: true });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last second of a minute.
    const NOW: UnixMillis = UnixMillis(1_781_567_999_000);
    const MINUTE: i64 = 29_692_799;

    fn key(number: u32) -> KeyId {
        let mut random = [0; 10];
        random[..4].copy_from_slice(&number.to_be_bytes());
        KeyId::from_random(random)
    }

    #[test]
    fn the_use_of_a_key_is_reported_once_a_minute() {
        let uses = KeyUses::default();
        for _ in 0..1_000 {
            uses.record(&key(1), NOW);
        }
        assert_eq!(uses.take(10, NOW), [KeyUse { key: key(1), minute: MINUTE }]);
        uses.record(&key(1), NOW);
        assert_eq!(uses.take(10, NOW), []);
        uses.record(&key(1), NOW.plus(1_000));
        assert_eq!(uses.take(10, NOW.plus(1_000)), [KeyUse { key: key(1), minute: MINUTE + 1 }]);
    }

    #[test]
    fn unreported_uses_are_reported_again_with_the_latest_minute() {
        let uses = KeyUses::default();
        uses.record(&key(1), NOW);
        uses.record(&key(2), NOW);
        let taken = uses.take(10, NOW);
        uses.record(&key(1), NOW.plus(1_000));
        uses.give_back(taken);
        let mut again = uses.take(10, NOW.plus(1_000));
        again.sort_by_key(|used| used.minute);
        assert_eq!(again, [KeyUse { key: key(2), minute: MINUTE }, KeyUse { key: key(1), minute: MINUTE + 1 }]);
    }

    #[test]
    fn a_report_is_bounded_and_reported_uses_are_forgotten_with_their_minute() {
        let uses = KeyUses::default();
        (0..7).for_each(|number| uses.record(&key(number), NOW));
        assert_eq!((uses.take(5, NOW).len(), uses.take(5, NOW).len(), uses.take(5, NOW).len()), (5, 2, 0));
        let held = |uses: &KeyUses| uses.parts.iter().map(|part| part.lock().len()).sum::<usize>();
        assert_eq!(held(&uses), 7, "so that each is reported once");
        uses.take(5, NOW.plus(1_000));
        assert_eq!(held(&uses), 0);
    }

    #[test]
    fn the_number_of_recorded_keys_is_bounded() {
        let uses = KeyUses::default();
        let bound = u32::try_from(KEYS_MAX).unwrap();
        (0..bound * 2).for_each(|number| uses.record(&key(number), NOW));
        assert!(uses.take(usize::MAX, NOW).len() <= KEYS_MAX);
    }
}
