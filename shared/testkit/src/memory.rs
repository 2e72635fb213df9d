//! The tables in memory. Indexes are exact and immediate, unless the table is told to let them lag like the real ones;
//! batch reads answer in an order of their own, as the real ones do.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;

use domain::audit::Entry;
use domain::endpoint_state::EndpointState;
use domain::id::{DeliveryKey, EventId, StateKey};
use domain::kept_answer::KeptAnswer;
use domain::plan::{Frozen, Plan};
use domain::ports::{Claimed, Clock, Created, Cursor, Deliveries, ItemKey, Page, Range, StoreError, Stored, Swapped};
use domain::record::{Lease, Record};
use domain::reject::Rejected;
use domain::time::Millis;
use domain::transition;
use domain::wakeup::Waiting;

use crate::clock::VirtualClock;

mod index;
mod payloads;
mod plans;

use index::Index;
pub use payloads::{MemoryEndpoints, MemoryPayloads};

/// Sees every write of a record: what was there, and what is there now.
pub type Watcher = Rc<dyn Fn(Option<&Record>, &Record)>;
/// How many milliseconds a change takes to show in the indexes.
pub type Lag = Rc<dyn Fn() -> i64>;

/// The deliveries table.
#[derive(Clone, Default)]
pub struct MemoryDeliveries {
    state: Rc<RefCell<State>>,
}

impl fmt::Debug for MemoryDeliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryDeliveries({} records)", self.state.borrow().records.len())
    }
}

#[derive(Default)]
struct State {
    index: Index,
    watcher: Option<Watcher>,
    lag: Option<(VirtualClock, Lag)>,
    records: BTreeMap<(String, String), Record>,
    rejected: BTreeMap<String, Rejected>,
    cursors: HashMap<Cursor, Millis>,
    plans: BTreeMap<String, Plan>,
    chunks: HashMap<(String, usize), Vec<Frozen>>,
    redrives: HashMap<String, String>,
    meters: HashMap<String, i64>,
    audit: Vec<Entry>,
    endpoints: BTreeMap<StateKey, EndpointState>,
    /// What they were before, and when they changed: a cache may still say so.
    endpoints_before: HashMap<StateKey, (EndpointState, Millis)>,
    answers: HashMap<DeliveryKey, KeptAnswer>,
    stream: Vec<Record>,
    writes: u64,
}

fn at(key: &DeliveryKey) -> (String, String) {
    let ItemKey { pk, sk } = ItemKey::of(key);
    (pk, sk)
}

impl State {
    fn put(&mut self, record: &Record) {
        self.writes += 1;
        if Waiting::of(record).is_some() {
            self.stream.push(record.clone());
        }
        let now = self.lag.as_ref().map_or(Millis(0), |(clock, lag)| clock.now().plus(lag()));
        self.index.record(record, now);
        let old = self.records.insert(at(&record.key), record.clone());
        if let Some(watcher) = &self.watcher {
            watcher(old.as_ref(), record);
        }
    }
}

impl MemoryDeliveries {
    /// The waiting records that the stream has carried since the last call.
    pub fn take_stream(&self) -> Vec<Record> {
        std::mem::take(&mut self.state.borrow_mut().stream)
    }

    /// How many writes of records took effect.
    pub fn writes(&self) -> u64 {
        self.state.borrow().writes
    }

    /// Shows every write of a record to `watcher`.
    pub fn watch(&self, watcher: Watcher) {
        self.state.borrow_mut().watcher = Some(watcher);
    }

    /// From now on, changes take as long as `lag` says to show in the indexes, and a read that need not be fresh is as old as
    /// a cache may be.
    pub fn let_indexes_lag(&self, clock: VirtualClock, lag: Lag) {
        self.state.borrow_mut().lag = Some((clock, lag));
    }

    /// Looks at a record without copying it.
    pub fn look<T>(&self, key: &DeliveryKey, see: impl FnOnce(&Record) -> T) -> Option<T> {
        self.state.borrow().records.get(&at(key)).map(see)
    }

    /// The rejected messages.
    pub fn rejected(&self) -> Vec<Rejected> {
        self.state.borrow().rejected.values().cloned().collect()
    }

    /// All records.
    pub fn all(&self) -> Vec<Record> {
        self.state.borrow().records.values().cloned().collect()
    }
}

impl Deliveries for MemoryDeliveries {
    async fn get(&self, key: &DeliveryKey) -> Result<Option<Record>, StoreError> {
        Ok(self.state.borrow().records.get(&at(key)).cloned())
    }

    async fn of_event(&self, event: &EventId) -> Result<Vec<Record>, StoreError> {
        let pk = format!("E#{event}");
        let state = self.state.borrow();
        let of_event = state.records.range((pk.clone(), String::new())..).take_while(|((there, _), _)| *there == pk);
        Ok(of_event.map(|(_, record)| record.clone()).collect())
    }

    async fn get_many(&self, keys: &[ItemKey]) -> Result<Vec<Stored>, StoreError> {
        let state = self.state.borrow();
        let mut distinct: Vec<(&str, &str)> = keys.iter().map(|key| (key.sk.as_str(), key.pk.as_str())).collect();
        distinct.sort_unstable();
        distinct.dedup();
        // Backwards: in no order that a caller may have asked for.
        let found = distinct.into_iter().rev().filter_map(|(sk, pk)| match pk.strip_prefix("R#") {
            Some(sha) => state.rejected.get(sha).map(|r| Stored::Rejected(Box::new(r.clone()))),
            None => {
                let there = state.records.get(&(pk.to_owned(), sk.to_owned()));
                there.map(|r| Stored::Delivery(Box::new(r.clone())))
            }
        });
        Ok(found.collect())
    }

    async fn create(&self, record: &Record) -> Result<Created, StoreError> {
        let mut state = self.state.borrow_mut();
        match state.records.get(&at(&record.key)) {
            Some(there) if there == record || record.lease.as_ref().is_some_and(|l| there.is_held_by(&l.claim_id)) => {
                Ok(Created::New)
            }
            Some(there) => Ok(Created::Exists(Box::new(there.clone()))),
            None => {
                state.put(record);
                Ok(Created::New)
            }
        }
    }

    async fn claim(&self, key: &DeliveryKey, attempt: u32, lease: &Lease, now: Millis) -> Result<Claimed, StoreError> {
        let mut state = self.state.borrow_mut();
        let Some(there) = state.records.get(&at(key)).cloned() else { return Ok(Claimed::Refused(None)) };
        if there.is_held_by(&lease.claim_id) {
            return Ok(Claimed::Started(Box::new(there)));
        }
        let due = matches!(there.state, domain::delivery::State::Waiting(_))
            && there.attempt == attempt
            && there.due.is_some_and(|due| due <= now)
            && there.deliver_by.is_none_or(|by| by > now);
        match transition::claim(&there, lease.clone(), now) {
            Ok(next) if due => {
                state.put(&next);
                Ok(Claimed::Started(Box::new(next)))
            }
            Ok(_) | Err(_) => Ok(Claimed::Refused(Some(Box::new(there)))),
        }
    }

    async fn swap(&self, old: &Record, new: &Record) -> Result<Swapped, StoreError> {
        let mut state = self.state.borrow_mut();
        let there = state.records.get(&at(&old.key)).cloned();
        match there {
            Some(there) if there == *new => Ok(Swapped::Done),
            Some(there)
                if there.state.name() == old.state.name() && there.attempt == old.attempt && there.rev == old.rev =>
            {
                state.put(new);
                Ok(Swapped::Done)
            }
            other => Ok(Swapped::Lost(other.map(Box::new))),
        }
    }

    async fn rows(&self, range: Range<'_>) -> Result<Page, StoreError> {
        let mut state = self.state.borrow_mut();
        let now = state.lag.as_ref().map_or(Millis(0), |(clock, _)| clock.now());
        state.index.settle(now);
        Ok(state.index.page(&range))
    }

    async fn reject(&self, rejected: &Rejected) -> Result<u32, StoreError> {
        let mut state = self.state.borrow_mut();
        let entry = state
            .rejected
            .entry(rejected.sha256.clone())
            .and_modify(|there| {
                there.seen += 1;
                there.reason = rejected.reason;
                there.detail.clone_from(&rejected.detail);
                there.expires_at = rejected.expires_at;
            })
            .or_insert_with(|| rejected.clone());
        let (seen, listed) = (entry.seen, entry.clone());
        state.index.rejected(&listed);
        Ok(seen)
    }

    async fn keep_answer(&self, key: &DeliveryKey, answer: &KeptAnswer, _until: Millis) -> Result<(), StoreError> {
        let mut state = self.state.borrow_mut();
        let there = state.answers.entry(key.clone()).or_insert_with(|| answer.clone());
        if there.attempt <= answer.attempt {
            *there = answer.clone();
        }
        Ok(())
    }

    async fn kept_answer(&self, key: &DeliveryKey) -> Result<Option<KeptAnswer>, StoreError> {
        Ok(self.state.borrow().answers.get(key).cloned())
    }

    async fn cursor(&self, cursor: Cursor) -> Result<Option<Millis>, StoreError> {
        Ok(self.state.borrow().cursors.get(&cursor).copied())
    }

    async fn set_cursor(&self, cursor: Cursor, to: Millis) -> Result<(), StoreError> {
        let mut state = self.state.borrow_mut();
        let there = state.cursors.entry(cursor).or_insert(to);
        *there = if cursor.only_forward() { to.max(*there) } else { to };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;
    use futures_util::FutureExt;

    #[test]
    fn the_memory_tables_conform() {
        let table = MemoryDeliveries::default();
        conformance::deliveries(&table, "t").now_or_never().expect("nothing waits");
        conformance::decisions(&table, "t").now_or_never().expect("nothing waits");
        conformance::endpoint_lists(&table, "t").now_or_never().expect("nothing waits");
        conformance::endpoint_states(&table, "t").now_or_never().expect("nothing waits");
        conformance::kept_answers(&table, "t").now_or_never().expect("nothing waits");
        conformance::payloads(&MemoryPayloads::default(), "t").now_or_never().expect("nothing waits");
    }
}
