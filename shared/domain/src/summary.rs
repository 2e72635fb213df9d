//! What a plan would release, as it was found when it was proposed: what whoever decides about it has to see. It is kept
//! with the plan and written again with every step of it, so it is bounded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// So many endpoints are kept, the largest.
pub const ENDPOINTS: usize = 25;

/// A breakdown of the frozen list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Deliveries of each endpoint, of the largest ones.
    pub by_endpoint: BTreeMap<String, u32>,
    /// How many endpoints there are in all.
    pub endpoints: u32,
    /// Deliveries of each state key, of the largest ones: whose state tells whether they would be held again.
    pub by_state_key: BTreeMap<String, u32>,
    /// How many state keys there are in all.
    pub state_keys: u32,
    /// By the reason of the state that they were in.
    pub by_reason: BTreeMap<String, u32>,
    /// By what their last attempt counted as.
    pub by_class: BTreeMap<String, u32>,
    /// Since when the oldest was in that state, in milliseconds since the epoch.
    pub oldest: Option<i64>,
    /// What to think of before it is approved; without the states of the endpoints, which change.
    pub warnings: Vec<String>,
}

/// The largest so many of these counts.
pub fn largest<K: ToString>(counts: &BTreeMap<K, u32>, most: usize) -> BTreeMap<String, u32> {
    let mut all: Vec<(String, u32)> = counts.iter().map(|(name, count)| (name.to_string(), *count)).collect();
    all.sort_by(|(a, m), (b, n)| n.cmp(m).then_with(|| a.cmp(b)));
    all.truncate(most);
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept_and_their_number_is_bounded() {
        let counts: BTreeMap<&str, u32> = [("a", 1), ("b", 5), ("c", 5), ("d", 9)].into();
        assert_eq!(largest(&counts, 2), [("b".to_owned(), 5), ("d".to_owned(), 9)].into());
        assert_eq!(largest(&counts, 9).len(), 4);
    }
}
