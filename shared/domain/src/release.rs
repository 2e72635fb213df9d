//! Releasing an approved plan: the same story for the approval itself, for `status`, and for the sweep. Every release is
//! a conditional write that names the frozen attempt and generation, so it happens once, however many run this at once.

use std::collections::HashMap;

use futures_util::future::join_all;

use crate::plan::{CHUNK, Frozen, Plan, PlanState, Progress};
use crate::ports::{Clock, Deliveries, ItemKey, Payloads, Plans, StoreError, Stored, Swapped};
use crate::record::Record;
use crate::settings::Retention;
use crate::time::Millis;
use crate::transition;

/// So many releases run at once.
const CONCURRENT: usize = 25;

/// The ports and settings that a release needs.
pub struct Release<'a, D, P, C> {
    /// Deliveries and plans.
    pub store: &'a D,
    /// To keep payloads longer.
    pub payloads: &'a P,
    /// Time.
    pub clock: &'a C,
    /// How long things are kept.
    pub retention: Retention,
}

impl<D: Deliveries + Plans, P: Payloads, C: Clock> Release<'_, D, P, C> {
    /// Goes on with a plan until it is done or the time is up, and returns it with its progress.
    pub async fn advance(&self, id: &str, until: Millis) -> Result<Option<(Plan, Progress)>, StoreError> {
        while let Some(plan) = self.store.plan(id).await? {
            let now = self.clock.now();
            let expired = plan.state == PlanState::Proposed && Millis(plan.expires_at) <= now;
            if expired {
                self.store.save_plan(&plan, &changed(&plan, |p| p.state = PlanState::Expired)).await?;
                continue;
            }
            let behind = plan.state == PlanState::Ramping && plan.next < plan.count;
            if !behind || now >= until {
                return self.settle(plan).await.map(Some);
            }
            let first = plan.next as usize;
            let chunk = self.store.chunk(id, first / CHUNK).await?;
            let batch: Vec<(usize, &Frozen)> = chunk
                .iter()
                .enumerate()
                .skip(first % CHUNK)
                .take(CONCURRENT)
                .map(|(i, f)| (first / CHUNK * CHUNK + i, f))
                .collect();
            if batch.is_empty() {
                return Err(StoreError::Corrupt(format!("plan {id} has no delivery number {first}")));
            }
            for released in join_all(batch.iter().map(|(index, frozen)| self.release(&plan, *index, frozen))).await {
                released?;
            }
            let next = changed(&plan, |p| p.next += u32::try_from(batch.len()).unwrap_or(0));
            // Lost: somebody else advances the same plan. Read it again and go on from there.
            self.store.save_plan(&plan, &next).await?;
        }
        Ok(None)
    }

    /// Releases one delivery, unless it moved on or its payload is gone.
    async fn release(&self, plan: &Plan, index: usize, frozen: &Frozen) -> Result<(), StoreError> {
        let key = frozen.key().map_err(StoreError::Corrupt)?;
        let Some(record) = self.store.get(&key).await? else { return Ok(()) };
        if !frozen.still_describes(&record) {
            return Ok(());
        }
        let now = self.clock.now();
        let due = plan.slot(index, now);
        let kept_until = transition::keep_until(Some(due), record.deliver_by, now, self.retention);
        let kept = match &record.payload {
            Some(payload) => self.payloads.extend(&record.key, &payload.hash, kept_until).await?,
            None => false,
        };
        if !kept {
            return Ok(());
        }
        let next = transition::release(&record, &plan.id, due, kept_until, self.retention, now)?;
        match self.store.swap(&record, &next).await? {
            Swapped::Done | Swapped::Lost(_) => Ok(()),
        }
    }

    /// Counts from the records, and completes the plan when there is nothing left to wait for.
    async fn settle(&self, plan: Plan) -> Result<(Plan, Progress), StoreError> {
        let mut progress = Progress::default();
        for chunk in 0..(plan.count as usize).div_ceil(CHUNK) {
            let list = self.store.chunk(&plan.id, chunk).await?;
            let keys: Vec<ItemKey> = list.iter().map(|f| ItemKey::delivery(&f.id, &f.endpoint)).collect();
            let records: HashMap<ItemKey, Record> = self
                .store
                .get_many(&keys)
                .await?
                .into_iter()
                .filter_map(|stored| match stored {
                    Stored::Delivery(record) => Some((ItemKey::of(&record.key), *record)),
                    Stored::Rejected(_) | Stored::Unreadable(..) => None,
                })
                .collect();
            for (i, (frozen, key)) in list.iter().zip(&keys).enumerate() {
                progress.count(&plan, chunk * CHUNK + i, frozen, records.get(key));
            }
        }
        let done = plan.state == PlanState::Ramping && progress.remaining == 0 && progress.untried == 0;
        if done {
            let completed = changed(&plan, |p| p.state = PlanState::Completed);
            if self.store.save_plan(&plan, &completed).await? {
                return Ok((completed, progress));
            }
        }
        Ok((plan, progress))
    }
}

fn changed(plan: &Plan, change: impl FnOnce(&mut Plan)) -> Plan {
    let mut next = plan.clone();
    change(&mut next);
    next.rev += 1;
    next
}
