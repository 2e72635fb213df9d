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

/// A plan after it was pushed on.
#[derive(Clone, Debug)]
pub struct Advanced {
    /// As it is now.
    pub plan: Plan,
    /// Counted from the records.
    pub progress: Progress,
    /// Deliveries released by this very call.
    pub released: u32,
}

impl<D: Deliveries + Plans, P: Payloads, C: Clock> Release<'_, D, P, C> {
    /// Goes on with a plan until it is done or the time is up.
    pub async fn advance(&self, id: &str, until: Millis) -> Result<Option<Advanced>, StoreError> {
        let mut total = 0;
        while let Some(plan) = self.store.plan(id).await? {
            let now = self.clock.now();
            let expired = plan.state == PlanState::Proposed && Millis(plan.expires_at) <= now;
            if expired {
                self.store.save_plan(&plan, &changed(&plan, |p| p.state = PlanState::Expired)).await?;
                continue;
            }
            let behind = plan.state == PlanState::Ramping && plan.next < plan.count;
            if !behind || now >= until {
                let (plan, progress) = self.settle(plan).await?;
                return Ok(Some(Advanced { plan, progress, released: total }));
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
                total += u32::from(released?);
            }
            let next = changed(&plan, |p| p.next += u32::try_from(batch.len()).unwrap_or(0));
            // Lost: somebody else advances the same plan. Read it again and go on from there.
            self.store.save_plan(&plan, &next).await?;
        }
        Ok(None)
    }

    /// How many deliveries would be released now.
    pub async fn pending(&self, id: &str, until: Millis) -> Result<u32, StoreError> {
        let Some(plan) = self.store.plan(id).await?.filter(|plan| plan.state == PlanState::Ramping) else {
            return Ok(0);
        };
        let mut pending = 0;
        let first = plan.next as usize;
        for chunk in first / CHUNK..(plan.count as usize).div_ceil(CHUNK) {
            if self.clock.now() >= until {
                break;
            }
            let list = self.store.chunk(id, chunk).await?;
            let left: Vec<&Frozen> = list.iter().skip(first.saturating_sub(chunk * CHUNK)).collect();
            let records = self.records(left.iter().copied()).await?;
            let ready = |f: &&&Frozen| records.get(&f.at()).is_some_and(|record| f.still_describes(record));
            pending += u32::try_from(left.iter().filter(ready).count()).unwrap_or(u32::MAX);
        }
        Ok(pending)
    }

    async fn records<'f>(
        &self,
        list: impl Iterator<Item = &'f Frozen>,
    ) -> Result<HashMap<ItemKey, Record>, StoreError> {
        let keys: Vec<ItemKey> = list.map(Frozen::at).collect();
        let stored = self.store.get_many(&keys).await?;
        let records = stored.into_iter().filter_map(|stored| match stored {
            Stored::Delivery(record) => Some((ItemKey::of(&record.key), *record)),
            Stored::Rejected(_) | Stored::Unreadable(..) => None,
        });
        Ok(records.collect())
    }

    /// Releases one delivery, unless it moved on or its payload is gone.
    async fn release(&self, plan: &Plan, index: usize, frozen: &Frozen) -> Result<bool, StoreError> {
        let key = frozen.key().map_err(StoreError::Corrupt)?;
        let Some(record) = self.store.get(&key).await? else { return Ok(false) };
        if !frozen.still_describes(&record) {
            return Ok(false);
        }
        let now = self.clock.now();
        let due = plan.slot(index, now);
        let kept_until = transition::keep_until(Some(due), record.deliver_by, now, self.retention);
        let kept = match &record.payload {
            Some(payload) => self.payloads.extend(&record.key, &payload.hash, kept_until).await?,
            None => false,
        };
        if !kept {
            return Ok(false);
        }
        let next = transition::release(&record, &plan.id, due, kept_until, self.retention, now)?;
        Ok(matches!(self.store.swap(&record, &next).await?, Swapped::Done))
    }

    /// Counts from the records, and completes the plan when there is nothing left to wait for.
    async fn settle(&self, plan: Plan) -> Result<(Plan, Progress), StoreError> {
        let mut progress = Progress::default();
        for chunk in 0..(plan.count as usize).div_ceil(CHUNK) {
            let list = self.store.chunk(&plan.id, chunk).await?;
            let records = self.records(list.iter()).await?;
            for (i, frozen) in list.iter().enumerate() {
                progress.count(&plan, chunk * CHUNK + i, frozen, records.get(&frozen.at()));
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
