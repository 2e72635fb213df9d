//! What was read a moment ago. Small on purpose: a sandbox may live for hours and meet any number of endpoints.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;

use domain::time::{Millis, SECOND_MS};

/// What was read is used for so many milliseconds.
const KEPT_MS: i64 = 10 * SECOND_MS;
/// Above so many entries, what is too old to be used is dropped, and everything if that is not enough.
const MAX_ENTRIES: usize = 1_024;

/// A cache with one life time for all entries.
#[derive(Clone, Debug)]
pub(super) struct Cache<K, V>(RefCell<HashMap<K, (Millis, V)>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    /// What was read within the last seconds.
    pub(super) fn get(&self, key: &K, now: Millis) -> Option<V> {
        self.0.borrow().get(key).filter(|(at, _)| now.since(*at) < KEPT_MS).map(|(_, value)| value.clone())
    }

    pub(super) fn put(&self, key: K, value: V, now: Millis) {
        let mut entries = self.0.borrow_mut();
        if entries.len() >= MAX_ENTRIES {
            entries.retain(|_, (at, _)| now.since(*at) < KEPT_MS);
        }
        if entries.len() >= MAX_ENTRIES {
            entries.clear();
        }
        entries.insert(key, (now, value));
    }

    pub(super) fn forget(&self, key: &K) {
        self.0.borrow_mut().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_used_for_ten_seconds() {
        let cache = Cache::default();
        cache.put("a", 1, Millis(0));
        assert_eq!((cache.get(&"a", Millis(9_999)), cache.get(&"a", Millis(10_000))), (Some(1), None));
        cache.forget(&"a");
        assert_eq!(cache.get(&"a", Millis(1)), None);
    }

    #[test]
    fn it_never_grows_past_its_bound() {
        let cache = Cache::default();
        for i in 0..10 * MAX_ENTRIES {
            cache.put(i, i, Millis(0));
            assert!(cache.0.borrow().len() <= MAX_ENTRIES);
        }
        let last = 10 * MAX_ENTRIES - 1;
        assert_eq!(cache.get(&last, Millis(1)), Some(last));
    }
}
