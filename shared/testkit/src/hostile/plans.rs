//! The plans and the states of endpoints behind a gate.

use domain::endpoint_state::EndpointState;
use domain::id::StateKey;
use domain::plan::{Frozen, Plan};
use domain::ports::{EndpointStates, Plans, StoreError};
use domain::time::Millis;

use super::Hostile;

impl<D: Plans> Plans for Hostile<D> {
    async fn propose(&self, plan: &Plan, list: &[Frozen]) -> Result<(), StoreError> {
        self.write("propose", &plan.id, || self.inner.propose(plan, list)).await
    }

    async fn plan(&self, id: &str) -> Result<Option<Plan>, StoreError> {
        self.read("plan", &id, || self.inner.plan(id)).await
    }

    async fn chunk(&self, id: &str, chunk: usize) -> Result<Vec<Frozen>, StoreError> {
        self.read("chunk", &id, || self.inner.chunk(id, chunk)).await
    }

    async fn save_plan(&self, old: &Plan, new: &Plan) -> Result<bool, StoreError> {
        self.write("save_plan", &old.id, || self.inner.save_plan(old, new)).await
    }

    async fn bind_redrive_id(&self, redrive_id: &str, plan_id: &str, now: Millis) -> Result<String, StoreError> {
        self.write("bind_redrive_id", &plan_id, || self.inner.bind_redrive_id(redrive_id, plan_id, now)).await
    }

    async fn ramping(&self) -> Result<Vec<String>, StoreError> {
        self.read("ramping", &"", || self.inner.ramping()).await
    }
}

impl<D: EndpointStates> EndpointStates for Hostile<D> {
    async fn endpoint_state(&self, key: &StateKey, fresh: bool) -> Result<EndpointState, StoreError> {
        self.read("endpoint_state", key, || self.inner.endpoint_state(key, fresh)).await
    }

    async fn save_endpoint_state(&self, old: &EndpointState, new: &EndpointState) -> Result<bool, StoreError> {
        self.write("save_endpoint_state", &old.key, || self.inner.save_endpoint_state(old, new)).await
    }

    async fn resumed_endpoints(&self) -> Result<Vec<StateKey>, StoreError> {
        self.read("resumed_endpoints", &"", || self.inner.resumed_endpoints()).await
    }
}
