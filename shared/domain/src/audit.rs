//! Who decided what, and why: an append-only chain in which every entry holds the hash of the one before it, so that a
//! changed, missing or inserted entry shows.

use serde::{Deserialize, Serialize};

use crate::id::sha256_hex;
use crate::plan::Who;
use crate::time::Millis;

/// What was decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When, in milliseconds since the epoch.
    pub at: i64,
    /// Who.
    pub by: Who,
    /// `propose`, `approve`, `abort`, `cancel` or `endpoint`.
    pub action: String,
    /// What it is about: a plan, a delivery, an endpoint.
    pub subject: String,
    /// Why.
    pub reason: String,
    /// What it touched: digest, count, redrive id and the like.
    pub details: serde_json::Value,
}

/// A decision in its place in the chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Counts from 1.
    pub seq: u64,
    /// The hash of the entry before it; empty for the first.
    pub previous: String,
    /// What was decided.
    #[serde(flatten)]
    pub decision: Decision,
    /// Hash over all of this.
    pub hash: String,
}

/// The end of the chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Of the last entry; 0 when there is none.
    pub seq: u64,
    /// Of the last entry.
    pub hash: String,
}

impl Decision {
    /// Puts it behind the last entry.
    pub fn after(self, head: &Head) -> Entry {
        let mut entry = Entry { seq: head.seq + 1, previous: head.hash.clone(), decision: self, hash: String::new() };
        entry.hash = entry.computed_hash();
        entry
    }
}

impl Entry {
    /// The end of a chain that ends with this entry.
    pub fn head(&self) -> Head {
        Head { seq: self.seq, hash: self.hash.clone() }
    }

    /// Position in the order of time, unique: what the table sorts by.
    pub fn key(&self) -> String {
        format!("{:020}#{:012}", self.decision.at, self.seq)
    }

    fn computed_hash(&self) -> String {
        // Every part is preceded by its length, so that no two entries run together. Maps are written in the order of
        // their keys.
        let decision = serde_json::to_string(&self.decision).expect("a decision is plain data");
        let text = format!("{}:{}:{}:{decision}", self.seq, self.previous.len(), self.previous);
        sha256_hex(text.as_bytes())
    }
}

/// The first thing that is wrong with a chain, read from its beginning (or from behind `from`) to its end.
pub fn verify<'a>(from: &Head, entries: impl IntoIterator<Item = &'a Entry>, head: &Head) -> Result<u64, String> {
    let mut last = from.clone();
    for entry in entries {
        if entry.seq != last.seq + 1 {
            return Err(format!(
                "entry {} follows entry {}: something is missing or was inserted",
                entry.seq, last.seq
            ));
        }
        if entry.previous != last.hash {
            return Err(format!("entry {} does not continue entry {}", entry.seq, last.seq));
        }
        if entry.hash != entry.computed_hash() {
            return Err(format!("entry {} is not what was written", entry.seq));
        }
        last = entry.head();
    }
    if last == *head {
        Ok(last.seq)
    } else {
        Err(format!("the chain ends at entry {}, its head says {}", last.seq, head.seq))
    }
}

/// A decision of an operator.
pub fn decision(
    at: Millis,
    by: &Who,
    action: &str,
    subject: impl Into<String>,
    reason: &str,
    details: serde_json::Value,
) -> Decision {
    Decision {
        at: at.0,
        by: by.clone(),
        action: action.to_owned(),
        subject: subject.into(),
        reason: reason.to_owned(),
        details,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(count: u64) -> Vec<Entry> {
        let mut head = Head::default();
        (0..count)
            .map(|i| {
                let at = Millis(i64::try_from(i).unwrap());
                let details = serde_json::json!({"b": i, "a": [1.5, null]});
                let entry = decision(at, &Who::itself(), "approve", "plan", "because", details).after(&head);
                head = entry.head();
                // As it comes back from the table.
                serde_json::from_str(&serde_json::to_string(&entry).unwrap()).unwrap()
            })
            .collect()
    }

    #[test]
    fn an_untouched_chain_holds_and_every_change_of_it_shows() {
        let entries = chain(5);
        let head = entries[4].head();
        let verdict = |entries: &[Entry]| verify(&Head::default(), entries, &head);
        assert_eq!(verdict(&entries), Ok(5));
        assert_eq!(verify(&entries[1].head(), &entries[2..], &head), Ok(5), "from the middle too");
        let changed = |change: &dyn Fn(&mut Vec<Entry>)| {
            let mut entries = entries.clone();
            change(&mut entries);
            verdict(&entries)
        };
        assert!(changed(&|e| e[2].decision.reason = "other".into()).unwrap_err().contains("entry 3 is not what"));
        assert!(changed(&|e| e[2].decision.by.verified = false).is_err());
        assert!(changed(&|e| drop(e.remove(2))).unwrap_err().contains("missing"));
        assert!(changed(&|e| drop(e.pop())).unwrap_err().contains("head says 5"));
        assert!(changed(&|e| e.swap(1, 2)).is_err());
        assert!(
            changed(&|e| {
                e[2].decision.subject = "x".into();
                e[2].hash = e[2].computed_hash();
            })
            .unwrap_err()
            .contains("entry 4 does not continue")
        );
        assert_eq!(verify(&Head::default(), [], &Head::default()), Ok(0));
    }
}
