//! The plans, the decisions, and the states of endpoints, in the deliveries table.

use domain::audit::{Decision, Entry, Head};
use domain::endpoint_state::EndpointState;
use domain::id::StateKey;
use domain::plan::{CHUNK, Frozen, Plan, PlanState};
use domain::ports::{Audit, Clock, EndpointStates, Plans, StoreError};
use domain::time::Millis;

use super::MemoryDeliveries;

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

    async fn newest(&self, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let mut entries = self.state.borrow().audit.clone();
        entries.sort_by_key(Entry::key);
        let older = entries.len().saturating_sub(limit);
        Ok(entries.split_off(older))
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

/// A state that was read is used for so long, in milliseconds.
const CACHED_MS: i64 = 10_000;

impl MemoryDeliveries {
    /// Since when an endpoint is held back, for whoever reads its state: a call that was slow to save it says an earlier time.
    pub fn held_back_since(&self, key: &StateKey) -> Option<Millis> {
        let state = self.state.borrow();
        let held = state.endpoints.get(key).filter(|state| state.status.holds().is_some())?;
        Some(state.endpoints_before.get(key).map_or(held.since, |(_, saved_at)| held.since.max(*saved_at)))
    }
}

impl EndpointStates for MemoryDeliveries {
    async fn endpoint_state(&self, key: &StateKey, fresh: bool) -> Result<EndpointState, StoreError> {
        let state = self.state.borrow();
        if let Some((clock, _)) = state.lag.as_ref().filter(|_| !fresh)
            && let Some((before, changed_at)) = state.endpoints_before.get(key)
            && clock.now().since(*changed_at) < CACHED_MS
        {
            return Ok(before.clone());
        }
        Ok(state.endpoints.get(key).cloned().unwrap_or_else(|| EndpointState::untouched(key)))
    }

    async fn save_endpoint_state(&self, old: &EndpointState, new: &EndpointState) -> Result<bool, StoreError> {
        let there = self.endpoint_state(&old.key, true).await?;
        if there.rev != old.rev {
            return Ok(there == *new);
        }
        let mut state = self.state.borrow_mut();
        let now = state.lag.as_ref().map_or(Millis(0), |(clock, _)| clock.now());
        state.endpoints_before.insert(new.key.clone(), (there, now));
        state.endpoints.insert(new.key.clone(), new.clone());
        Ok(true)
    }

    async fn resumed_endpoints(&self) -> Result<Vec<StateKey>, StoreError> {
        let state = self.state.borrow();
        Ok(state.endpoints.values().filter(|e| e.released.is_some()).map(|e| e.key.clone()).collect())
    }
}
