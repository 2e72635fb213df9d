//! The plans and the states of endpoints, in the deliveries table.

use domain::endpoint_state::EndpointState;
use domain::id::StateKey;
use domain::plan::{CHUNK, Frozen, Plan, PlanState};
use domain::ports::{Clock, EndpointStates, Plans, StoreError};
use domain::time::Millis;

use super::MemoryDeliveries;

impl Plans for MemoryDeliveries {
    async fn propose(&self, plan: &Plan, list: &[Frozen]) -> Result<(), StoreError> {
        let mut state = self.state.borrow_mut();
        for (i, chunk) in list.chunks(CHUNK).enumerate() {
            state.chunks.insert((plan.id.clone(), i), chunk.to_vec());
        }
        state.plans.insert(plan.id.clone(), plan.clone());
        Ok(())
    }

    async fn plan(&self, id: &str) -> Result<Option<Plan>, StoreError> {
        Ok(self.state.borrow().plans.get(id).cloned())
    }

    async fn chunk(&self, id: &str, chunk: usize) -> Result<Vec<Frozen>, StoreError> {
        let chunks = self.state.borrow();
        let list = chunks.chunks.get(&(id.to_owned(), chunk)).cloned();
        list.ok_or_else(|| StoreError::Corrupt(format!("piece {chunk} of plan {id} is missing")))
    }

    async fn save_plan(&self, old: &Plan, new: &Plan) -> Result<bool, StoreError> {
        let mut state = self.state.borrow_mut();
        match state.plans.get_mut(&old.id) {
            Some(there) if there.rev == old.rev => {
                *there = new.clone();
                Ok(true)
            }
            Some(there) => Ok(there == new),
            None => Ok(false),
        }
    }

    async fn bind_redrive_id(&self, redrive_id: &str, plan_id: &str, _now: Millis) -> Result<String, StoreError> {
        let mut state = self.state.borrow_mut();
        Ok(state.redrives.entry(redrive_id.to_owned()).or_insert_with(|| plan_id.to_owned()).clone())
    }

    async fn ramping(&self) -> Result<Vec<String>, StoreError> {
        let state = self.state.borrow();
        Ok(state.plans.values().filter(|p| p.state == PlanState::Ramping).map(|p| p.id.clone()).collect())
    }
}

/// A state that was read is used for so long, in milliseconds.
const CACHED_MS: i64 = 10_000;

impl MemoryDeliveries {
    /// Since when an endpoint is held back.
    pub fn held_back_since(&self, key: &StateKey) -> Option<Millis> {
        self.state.borrow().endpoints.get(key).filter(|state| state.status.holds().is_some()).map(|state| state.since)
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
