//! Running an approved plan: the same story for the approval itself, for `status`, and for the sweep. Every release is a
//! conditional write that names the frozen attempt and generation, so it happens once, however many run this at once; every
//! step of the plan is a write that names its revision, so a run that dies is continued.

use std::collections::{BTreeSet, HashMap};

use futures_util::future::join_all;

use crate::audit::{Decision, decision};
use crate::plan::{CHUNK, Frozen, Plan, PlanState, Who};
use crate::ports::{Clock, Deliveries, ItemKey, Payloads, Plans, StoreError, Stored, Swapped};
use crate::progress::Progress;
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
    /// Goes on with a plan until it has to wait, it is over, or the time is up.
    pub async fn advance(&self, id: &str, until: Millis) -> Result<Option<Advanced>, StoreError> {
        let mut total = 0;
        let mut unfit = BTreeSet::new();
        while let Some(plan) = self.store.plan(id, true).await? {
            let now = self.clock.now();
            if plan.state == PlanState::Proposed && Millis(plan.expires_at) <= now {
                self.store.save_plan(&plan, &plan.changed(|p| p.state = PlanState::Expired), None).await?;
                continue;
            }
            if plan.next < plan.may_handle(now) && now < until {
                total += self.release_some(&plan, now).await?;
                continue;
            }
            let progress = self.progress(&plan, now).await?;
            let substitutes = progress.substitutes(&plan, &unfit);
            if !substitutes.is_empty() {
                if now >= until {
                    // No verdict yet: that they are missing says something about our time, not about their endpoints.
                    return Ok(Some(Advanced { plan, progress, released: total }));
                }
                total += self.substitute(&plan, &substitutes, &mut unfit, now).await?;
                continue;
            }
            match progress.judge(&plan, now) {
                // Lost: somebody else advances the same plan. Read it again and go on from there.
                Some(next) => {
                    self.store.save_plan(&plan, &next, by_itself(&plan, &next)).await?;
                }
                None => return Ok(Some(Advanced { plan, progress, released: total })),
            }
        }
        Ok(None)
    }

    /// Releases the next deliveries of the list whose turn it is.
    async fn release_some(&self, plan: &Plan, now: Millis) -> Result<u32, StoreError> {
        let first = plan.next as usize;
        let room = (plan.may_handle(now) - plan.next) as usize;
        let chunk = self.store.chunk(&plan.id, first / CHUNK).await?;
        let batch: Vec<(usize, &Frozen)> = chunk
            .iter()
            .enumerate()
            .skip(first % CHUNK)
            .take(CONCURRENT.min(room))
            .map(|(i, frozen)| (first / CHUNK * CHUNK + i, frozen))
            .collect();
        if batch.is_empty() {
            return Err(StoreError::Corrupt(format!("plan {} has no delivery number {first}", plan.id)));
        }
        let mut released = 0;
        let wanted = batch.iter().filter(|(_, frozen)| !plan.stopped.contains_key(&frozen.group));
        let releases = wanted.map(|(index, frozen)| self.release(plan, plan.slot(*index, now), frozen));
        for done in join_all(releases).await {
            released += u32::from(done?);
        }
        let next = plan.changed(|p| p.next += u32::try_from(batch.len()).unwrap_or(0));
        self.store.save_plan(plan, &next, None).await?;
        Ok(released)
    }

    /// Releases others in the place of skipped canaries. The ramp finds them released when it comes to them.
    async fn substitute(
        &self,
        plan: &Plan,
        substitutes: &[(usize, Frozen)],
        unfit: &mut BTreeSet<usize>,
        now: Millis,
    ) -> Result<u32, StoreError> {
        let mut released = 0;
        for (nth, (index, frozen)) in substitutes.iter().enumerate() {
            if self.release(plan, plan.spread(nth, now), frozen).await? {
                released += 1;
            } else {
                unfit.insert(*index);
            }
        }
        Ok(released)
    }

    /// How many deliveries would be released now.
    pub async fn pending(&self, id: &str, until: Millis) -> Result<u32, StoreError> {
        let Some(plan) = self.store.plan(id, true).await?.filter(|plan| plan.state.is_running()) else { return Ok(0) };
        let (first, end) = (plan.next as usize, plan.may_handle(self.clock.now()) as usize);
        let mut pending = 0;
        for chunk in first / CHUNK..end.div_ceil(CHUNK) {
            if self.clock.now() >= until {
                break;
            }
            let list = self.store.chunk(id, chunk).await?;
            let due: Vec<&Frozen> = list
                .iter()
                .enumerate()
                .filter(|(i, frozen)| {
                    (first..end).contains(&(chunk * CHUNK + i)) && !plan.stopped.contains_key(&frozen.group)
                })
                .map(|(_, frozen)| frozen)
                .collect();
            let records = self.records(due.iter().copied()).await?;
            let ready = |f: &&&Frozen| records.get(&f.at()).is_some_and(|record| f.still_describes(record));
            pending += u32::try_from(due.iter().filter(ready).count()).unwrap_or(u32::MAX);
        }
        Ok(pending)
    }

    async fn records<'f>(
        &self,
        list: impl Iterator<Item = &'f Frozen>,
    ) -> Result<HashMap<ItemKey, Record>, StoreError> {
        let keys: Vec<ItemKey> = list.map(Frozen::at).collect();
        let stored = self.store.get_many(&keys).await?;
        let records =
            stored.into_iter().filter_map(Stored::into_delivery).map(|record| (ItemKey::of(&record.key), record));
        Ok(records.collect())
    }

    /// Releases one delivery, unless it moved on or its payload is gone.
    async fn release(&self, plan: &Plan, slot: Millis, frozen: &Frozen) -> Result<bool, StoreError> {
        let key = frozen.key().map_err(StoreError::Corrupt)?;
        let record = match self.store.get(&key).await {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(false),
            // One that cannot be read must not keep the others waiting for ever; `list` counts it.
            Err(StoreError::Corrupt(_)) => return Ok(false),
            Err(error @ StoreError::Unavailable(_)) => return Err(error),
        };
        if !frozen.still_describes(&record) {
            return Ok(false);
        }
        let now = self.clock.now();
        let due = slot.max(now);
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

    /// Counts from the records.
    pub async fn progress(&self, plan: &Plan, now: Millis) -> Result<Progress, StoreError> {
        let mut progress = Progress::default();
        for chunk in 0..(plan.count as usize).div_ceil(CHUNK) {
            let list = self.store.chunk(&plan.id, chunk).await?;
            let records = self.records(list.iter()).await?;
            for (i, frozen) in list.iter().enumerate() {
                progress.count(plan, chunk * CHUNK + i, frozen, records.get(&frozen.at()), now);
            }
        }
        Ok(progress)
    }
}

/// The decision that a plan takes about itself.
fn by_itself(old: &Plan, new: &Plan) -> Option<Decision> {
    let abort = new.abort.as_ref().filter(|_| old.abort.is_none())?;
    let details = serde_json::json!({ "digest": new.digest, "stopped_endpoints": new.stopped.len() });
    Some(decision(Millis(abort.at), &Who::itself(), "abort", &new.id, &abort.reason, details))
}
