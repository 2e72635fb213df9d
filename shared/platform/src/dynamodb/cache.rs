//! What was read a moment ago. Small on purpose: a sandbox may live for hours and meet any number of endpoints.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;

use domain::time::Millis;

/// Above so many entries, what is too old to be used is dropped, and everything if that is not enough.
const MAX_ENTRIES: usize = 1_024;

/// A cache with one life time for all entries.
#[derive(Clone, Debug)]
pub(super) struct Cache<K, V> {
    entries: RefCell<HashMap<K, (Millis, V)>>,
    kept_ms: i64,
}

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    /// What was read is used for so many milliseconds.
    pub(super) fn new(kept_ms: i64) -> Self {
        Self { entries: RefCell::default(), kept_ms }
    }

    /// What was read within that time.
    pub(super) fn get(&self, key: &K, now: Millis) -> Option<V> {
        self.entries.borrow().get(key).filter(|(at, _)| now.since(*at) < self.kept_ms).map(|(_, value)| value.clone())
    }

    pub(super) fn put(&self, key: K, value: V, now: Millis) {
        let mut entries = self.entries.borrow_mut();
        if entries.len() >= MAX_ENTRIES {
            entries.retain(|_, (at, _)| now.since(*at) < self.kept_ms);
        }
        if entries.len() >= MAX_ENTRIES {
            entries.clear();
        }
        entries.insert(key, (now, value));
    }

    pub(super) fn forget(&self, key: &K) {
        self.entries.borrow_mut().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_used_for_its_time() {
        let cache = Cache::new(10_000);
        cache.put("a", 1, Millis(0));
        assert_eq!((cache.get(&"a", Millis(9_999)), cache.get(&"a", Millis(10_000))), (Some(1), None));
        cache.forget(&"a");
        assert_eq!(cache.get(&"a", Millis(1)), None);
    }

    #[test]
    fn it_never_grows_past_its_bound() {
        let cache = Cache::new(10_000);
        for i in 0..10 * MAX_ENTRIES {
            cache.put(i, i, Millis(0));
            assert!(cache.entries.borrow().len() <= MAX_ENTRIES);
        }
        let last = 10 * MAX_ENTRIES - 1;
        assert_eq!(cache.get(&last, Millis(1)), Some(last));
    }
}
