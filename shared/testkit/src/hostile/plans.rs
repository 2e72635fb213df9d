//! The plans and the states of endpoints behind a gate.

use domain::audit::{Decision, Entry, Head};
use domain::endpoint_state::EndpointState;
use domain::id::StateKey;
use domain::plan::{Frozen, Plan, PlanState};
use domain::ports::{Audit, EndpointStates, Plans, StoreError};
use domain::time::Millis;

use super::Hostile;

impl<D: Plans> Plans for Hostile<D> {
    async fn propose(&self, plan: &Plan, list: &[Frozen], decision: Decision) -> Result<(), StoreError> {
        self.write("propose", &plan.id, || self.inner.propose(plan, list, decision.clone())).await
    }

    async fn plan(&self, id: &str, fresh: bool) -> Result<Option<Plan>, StoreError> {
        self.read("plan", &id, || self.inner.plan(id, fresh)).await
    }

    async fn chunk(&self, id: &str, chunk: usize) -> Result<Vec<Frozen>, StoreError> {
        self.read("chunk", &id, || self.inner.chunk(id, chunk)).await
    }

    async fn save_plan(&self, old: &Plan, new: &Plan, decision: Option<Decision>) -> Result<bool, StoreError> {
        self.write("save_plan", &old.id, || self.inner.save_plan(old, new, decision.clone())).await
    }

    async fn bind_redrive_id(&self, redrive_id: &str, plan_id: &str, now: Millis) -> Result<String, StoreError> {
        self.write("bind_redrive_id", &plan_id, || self.inner.bind_redrive_id(redrive_id, plan_id, now)).await
    }

    async fn plans_in(&self, state: PlanState, limit: usize) -> Result<Vec<String>, StoreError> {
        self.read("plans_in", &"", || self.inner.plans_in(state, limit)).await
    }

    async fn book(&self, id: &str, rate: u32, now: Millis) -> Result<Millis, StoreError> {
        self.write("book", &id, || self.inner.book(id, rate, now)).await
    }
}

impl<D: Audit> Audit for Hostile<D> {
    async fn record(&self, decision: Decision) -> Result<(), StoreError> {
        self.write("record", &"", || self.inner.record(decision.clone())).await
    }

    async fn head(&self) -> Result<Head, StoreError> {
        self.read("head", &"", || self.inner.head()).await
    }

    async fn entries(&self, after: &str, limit: usize) -> Result<(Vec<Entry>, bool), StoreError> {
        self.read("entries", &"", || self.inner.entries(after, limit)).await
    }

    async fn newest(&self, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.read("newest", &"", || self.inner.newest(limit)).await
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
