//! The tables in memory. Indexes are exact and immediate here; the real ones may lag.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use domain::audit::{Decision, Entry, Head};
use domain::endpoint::Found;
use domain::endpoint_state::EndpointState;
use domain::id::{DeliveryKey, EndpointKey, EventId, StateKey};
use domain::kept_answer::KeptAnswer;
use domain::payload::Payload;
use domain::plan::{CHUNK, Frozen, Plan, PlanState};
use domain::ports::{
    Audit, Claimed, Created, Cursor, Deliveries, EndpointStates, Endpoints, ItemKey, Lane, Page, Payloads, Plans,
    Range, Row, StoreError, Stored, Swapped,
};
use domain::record::{Lease, Record};
use domain::reject::Rejected;
use domain::signature::{Scheme, Secret};
use domain::time::Millis;
use domain::transition;
use domain::wakeup::Waiting;

/// The deliveries table.
#[derive(Clone, Debug, Default)]
pub struct MemoryDeliveries {
    state: Rc<RefCell<State>>,
}

#[derive(Debug, Default)]
struct State {
    records: BTreeMap<(String, String), Record>,
    rejected: BTreeMap<String, Rejected>,
    cursors: HashMap<Cursor, Millis>,
    plans: HashMap<String, Plan>,
    chunks: HashMap<(String, usize), Vec<Frozen>>,
    redrives: HashMap<String, String>,
    meters: HashMap<String, i64>,
    audit: Vec<Entry>,
    endpoints: HashMap<StateKey, EndpointState>,
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
        self.records.insert(at(&record.key), record.clone());
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
        Ok(self.state.borrow().records.values().filter(|r| r.key.event == *event).cloned().collect())
    }

    async fn get_many(&self, keys: &[ItemKey]) -> Result<Vec<Stored>, StoreError> {
        let state = self.state.borrow();
        let mut distinct: Vec<&ItemKey> = Vec::new();
        for key in keys {
            if !distinct.contains(&key) {
                distinct.push(key);
            }
        }
        Ok(distinct
            .into_iter()
            .filter_map(|key| match key.pk.strip_prefix("R#") {
                Some(sha) => state.rejected.get(sha).map(|r| Stored::Rejected(Box::new(r.clone()))),
                None => {
                    state.records.get(&(key.pk.clone(), key.sk.clone())).map(|r| Stored::Delivery(Box::new(r.clone())))
                }
            })
            .collect())
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
        let mut rows = self.matching(&range);
        if let Some(after) = range.after {
            let last = (after.sort, after.at.pk.clone(), after.at.sk.clone());
            rows.retain(|r| (r.sort, r.at.pk.clone(), r.at.sk.clone()) > last);
        }
        let more = rows.len() > range.limit;
        rows.truncate(range.limit);
        Ok(Page { rows, more })
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
        Ok(entry.seen)
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

impl MemoryDeliveries {
    fn matching(&self, range: &Range<'_>) -> Vec<Row> {
        let state = self.state.borrow();
        let mut rows: Vec<Row> = match range.lane {
            Lane::Work(name, shard) => {
                let lane = format!("{name}#{shard:02}");
                let deliveries =
                    state.records.values().filter(|r| r.lane().as_deref() == Some(&lane)).filter_map(|r| {
                        Some(Row { at: ItemKey::of(&r.key), sort: r.due?, armed_at: r.armed_at, rearms: r.rearms })
                    });
                let rejected = state.rejected.values().filter(|r| r.lane() == lane).map(|r| Row {
                    at: ItemKey { pk: format!("R#{}", r.sha256), sk: "R".to_owned() },
                    sort: r.since,
                    armed_at: None,
                    rearms: 0,
                });
                deliveries.chain(rejected).collect()
            }
            Lane::Endpoint(name, state_key, shard) => {
                let lane = format!("{name}#{state_key}#{shard}");
                let here = state.records.values().filter(|r| r.endpoint_lane().as_deref() == Some(&lane));
                here.map(|r| Row { at: ItemKey::of(&r.key), sort: r.since, armed_at: None, rearms: 0 }).collect()
            }
        };
        rows.retain(|r| r.sort >= range.from && r.sort <= range.to);
        rows.sort_by(|a, b| (a.sort, &a.at.pk, &a.at.sk).cmp(&(b.sort, &b.at.pk, &b.at.sk)));
        rows
    }
}

impl MemoryDeliveries {
    /// Writes a decision behind the last one.
    fn decide(&self, decision: Decision) {
        let mut state = self.state.borrow_mut();
        let head = state.audit.last().map(Entry::head).unwrap_or_default();
        let entry = decision.after(&head);
        state.audit.push(entry);
    }
}

impl Audit for MemoryDeliveries {
    async fn record(&self, decision: Decision) -> Result<(), StoreError> {
        self.decide(decision);
        Ok(())
    }

    async fn head(&self) -> Result<Head, StoreError> {
        Ok(self.state.borrow().audit.last().map(Entry::head).unwrap_or_default())
    }

    async fn entries(&self, after: &str, limit: usize) -> Result<(Vec<Entry>, bool), StoreError> {
        let state = self.state.borrow();
        let mut entries: Vec<Entry> = state.audit.iter().filter(|e| e.key().as_str() > after).cloned().collect();
        entries.sort_by_key(Entry::key);
        let more = entries.len() > limit;
        entries.truncate(limit);
        Ok((entries, more))
    }
}

impl Plans for MemoryDeliveries {
    async fn propose(&self, plan: &Plan, list: &[Frozen], decision: Decision) -> Result<(), StoreError> {
        let mut state = self.state.borrow_mut();
        for (i, chunk) in list.chunks(CHUNK).enumerate() {
            state.chunks.insert((plan.id.clone(), i), chunk.to_vec());
        }
        state.plans.insert(plan.id.clone(), plan.clone());
        drop(state);
        self.decide(decision);
        Ok(())
    }

    async fn plan(&self, id: &str, _fresh: bool) -> Result<Option<Plan>, StoreError> {
        Ok(self.state.borrow().plans.get(id).cloned())
    }

    async fn chunk(&self, id: &str, chunk: usize) -> Result<Vec<Frozen>, StoreError> {
        let chunks = self.state.borrow();
        let list = chunks.chunks.get(&(id.to_owned(), chunk)).cloned();
        list.ok_or_else(|| StoreError::Corrupt(format!("piece {chunk} of plan {id} is missing")))
    }

    async fn save_plan(&self, old: &Plan, new: &Plan, decision: Option<Decision>) -> Result<bool, StoreError> {
        {
            let mut state = self.state.borrow_mut();
            match state.plans.get_mut(&old.id) {
                Some(there) if there.rev == old.rev => *there = new.clone(),
                Some(there) => return Ok(there == new),
                None => return Ok(false),
            }
        }
        if let Some(decision) = decision {
            self.decide(decision);
        }
        Ok(true)
    }

    async fn bind_redrive_id(&self, redrive_id: &str, plan_id: &str, _now: Millis) -> Result<String, StoreError> {
        let mut state = self.state.borrow_mut();
        Ok(state.redrives.entry(redrive_id.to_owned()).or_insert_with(|| plan_id.to_owned()).clone())
    }

    async fn plans_in(&self, wanted: PlanState, limit: usize) -> Result<Vec<String>, StoreError> {
        let state = self.state.borrow();
        let mut plans: Vec<&Plan> = state.plans.values().filter(|p| p.state == wanted).collect();
        plans.sort_by_key(|p| (std::cmp::Reverse(p.created_at), p.id.clone()));
        Ok(plans.into_iter().take(limit).map(|p| p.id.clone()).collect())
    }

    async fn book(&self, id: &str, rate: u32, now: Millis) -> Result<Millis, StoreError> {
        let mut state = self.state.borrow_mut();
        let (step, now_us) = (1_000_000 / i64::from(rate.max(1)), now.0.saturating_mul(1_000));
        let next = state.meters.entry(id.to_owned()).or_insert(now_us);
        let slot = (*next).max(now_us);
        *next = slot + step;
        Ok(Millis(slot.div_euclid(1_000)))
    }
}

impl EndpointStates for MemoryDeliveries {
    async fn endpoint_state(&self, key: &StateKey, _fresh: bool) -> Result<EndpointState, StoreError> {
        let state = self.state.borrow();
        Ok(state.endpoints.get(key).cloned().unwrap_or_else(|| EndpointState::untouched(key)))
    }

    async fn save_endpoint_state(&self, old: &EndpointState, new: &EndpointState) -> Result<bool, StoreError> {
        let there = self.endpoint_state(&old.key, true).await?;
        if there.rev != old.rev {
            return Ok(there == *new);
        }
        self.state.borrow_mut().endpoints.insert(new.key.clone(), new.clone());
        Ok(true)
    }

    async fn resumed_endpoints(&self) -> Result<Vec<StateKey>, StoreError> {
        let state = self.state.borrow();
        Ok(state.endpoints.values().filter(|e| e.released.is_some()).map(|e| e.key.clone()).collect())
    }
}

/// Payloads and their end, by delivery and hash.
type Kept = BTreeMap<(String, String), (Payload, Millis)>;

/// The payloads table.
#[derive(Clone, Debug, Default)]
pub struct MemoryPayloads {
    kept: Rc<RefCell<Kept>>,
    raw: Rc<RefCell<BTreeMap<String, String>>>,
}

impl MemoryPayloads {
    /// How many payloads are kept.
    pub fn len(&self) -> usize {
        self.kept.borrow().len()
    }

    /// True when none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Until when a payload is kept.
    pub fn kept_until(&self, key: &DeliveryKey, hash: &str) -> Option<Millis> {
        self.kept.borrow().get(&(key.to_string(), hash.to_owned())).map(|(_, until)| *until)
    }

    /// Loses all payloads.
    pub fn clear(&self) {
        self.kept.borrow_mut().clear();
    }

    /// The raw text of a rejected message.
    pub fn raw(&self, sha256: &str) -> Option<String> {
        self.raw.borrow().get(sha256).cloned()
    }
}

impl Payloads for MemoryPayloads {
    async fn keep(&self, key: &DeliveryKey, payload: &Payload, until: Millis) -> Result<(), StoreError> {
        let mut kept = self.kept.borrow_mut();
        let there = kept.entry((key.to_string(), payload.hash())).or_insert_with(|| (payload.clone(), until));
        there.1 = there.1.max(until);
        Ok(())
    }

    async fn load(&self, key: &DeliveryKey) -> Result<Vec<Payload>, StoreError> {
        let name = key.to_string();
        Ok(self.kept.borrow().iter().filter(|((k, _), _)| *k == name).map(|(_, (p, _))| p.clone()).collect())
    }

    async fn extend(&self, key: &DeliveryKey, hash: &str, until: Millis) -> Result<bool, StoreError> {
        let mut kept = self.kept.borrow_mut();
        let there = kept.get_mut(&(key.to_string(), hash.to_owned()));
        Ok(there.map(|(_, end)| *end = until).is_some())
    }

    async fn keep_raw(&self, sha256: &str, raw: &str, _until: Millis) -> Result<(), StoreError> {
        self.raw.borrow_mut().insert(sha256.to_owned(), raw.to_owned());
        Ok(())
    }
}

/// The registry of endpoints.
#[derive(Clone, Debug, Default)]
pub struct MemoryEndpoints {
    found: Rc<RefCell<HashMap<EndpointKey, Found>>>,
}

impl MemoryEndpoints {
    /// Registers, changes or removes an endpoint.
    pub fn set(&self, endpoint: &EndpointKey, found: Found) {
        self.found.borrow_mut().insert(endpoint.clone(), found);
    }
}

impl Endpoints for MemoryEndpoints {
    async fn find(&self, endpoint: &EndpointKey, _fresh: bool) -> Result<Found, StoreError> {
        Ok(self.found.borrow().get(endpoint).cloned().unwrap_or(Found::Unknown))
    }

    async fn inline_keys(&self) -> Result<Vec<Secret>, StoreError> {
        Ok(vec![Secret::new(Scheme::V1, &[7; 32].into())])
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
        conformance::endpoint_lists(&table, "t").now_or_never().expect("nothing waits");
        conformance::decisions(&table, "t").now_or_never().expect("nothing waits");
        conformance::endpoint_states(&table, "t").now_or_never().expect("nothing waits");
        conformance::kept_answers(&table, "t").now_or_never().expect("nothing waits");
        conformance::payloads(&MemoryPayloads::default(), "t").now_or_never().expect("nothing waits");
    }
}
