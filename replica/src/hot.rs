//! A bounded cache over the local file that never keeps an old value.
//!
//! The danger: a reader loads the old value, a change commits and drops the entry, and then the reader stores the old
//! value. Therefore every drop increases a counter after the commit; a reader that sees the counter changed drops its
//! value again. Absence is not cached: clients can ask for any name, and unknown names must not displace existing
//! ones.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moka::sync::Cache;

pub(super) struct Hot<K, V> {
    cache: Cache<K, Arc<V>>,
    forgotten: AtomicU64,
}

impl<K, V> Hot<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn new(entries_max: u64) -> Self {
        Self { cache: Cache::new(entries_max), forgotten: AtomicU64::new(0) }
    }

    pub(super) fn get(&self, key: &K, load: impl FnOnce() -> Option<V>) -> Option<Arc<V>> {
        if let Some(found) = self.cache.get(key) {
            return Some(found);
        }
        let before = self.forgotten.load(Ordering::SeqCst);
        let loaded = Arc::new(load()?);
        self.cache.insert(key.clone(), loaded.clone());
        if self.forgotten.load(Ordering::SeqCst) != before {
            self.cache.invalidate(key);
        }
        Some(loaded)
    }

    pub(super) fn forget(&self, key: &K) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.cache.invalidate(key);
    }

    pub(super) fn forget_all(&self) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.cache.invalidate_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_overtaken_by_a_change_does_not_keep_the_old_value() {
        let hot: Hot<u8, &str> = Hot::new(10);
        // The change commits and drops the entry while the reader is loading.
        let seen = hot.get(&1, || {
            hot.forget(&1);
            Some("old")
        });
        assert_eq!(seen.as_deref(), Some(&"old"));
        assert_eq!(hot.get(&1, || Some("new")).as_deref(), Some(&"new"));
    }

    #[test]
    fn an_absent_entry_is_read_again() {
        let hot: Hot<u8, &str> = Hot::new(10);
        assert!(hot.get(&1, || None).is_none());
        assert_eq!(hot.get(&1, || Some("now")).as_deref(), Some(&"now"));
    }
}
