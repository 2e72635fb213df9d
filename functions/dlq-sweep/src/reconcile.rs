//! `reconcile`, each five minutes: repairs overdue waits and expired attempts, goes on with approved plans, keeps payloads
//! of records that are not over, ends holds whose deadline passed, drains the transport DLQs. Each step has its share of
//! the time, a failed step does not stop the others, and every write is conditional: two runs at once do no harm.

use domain::delivery::State;
use domain::id::SHARDS;
use domain::plan::PlanState;
use domain::ports::{
    Clock, Cursor, DeadQueue, Deliveries, EndpointStates, Lane, Payloads, Plans, Range, Row, StoreError, Swapped,
};
use domain::record::Record;
use domain::release::Release;
use domain::resume::Resume;
use domain::sweep::{BUSY_QUEUE, EXTEND_BEFORE_MS, Repair, is_overdue, judge_overdue};
use domain::time::{Millis, SECOND_MS};
use domain::transition::{self, Heir};

use crate::handler::{Depth, Run, Sweep};

/// Plans of a state that are looked at in one run.
const PLANS: usize = 100;
/// Rows counted per lane and shard.
const COUNTED: usize = 1_000;

/// The end of a step's share of the time: `tenths` of what is left.
fn share(now: Millis, until: Millis, tenths: i64) -> Millis {
    now.plus((until.since(now).max(0) / 10).saturating_mul(tenths))
}

impl<D: Deliveries + Plans + EndpointStates, P: Payloads, I: DeadQueue, R: DeadQueue, Q: Depth, C: Clock>
    Sweep<D, P, I, R, Q, C>
{
    /// One reconcile run.
    pub async fn reconcile(&self, run: &mut Run) {
        // What is re-armed comes on top of what waits on the queue: together no more than a minute's work.
        match self.queues.retry.visible().await {
            Ok(visible) => {
                run.evidence.retry_queue_visible = visible;
                run.rearms_left = BUSY_QUEUE.saturating_sub(visible);
            }
            Err(error) => {
                run.evidence.errors.push(format!("depth of the retry queue: {error}"));
                run.rearms_left = BUSY_QUEUE;
            }
        }
        let until = share(self.clock.now(), run.until, 4);
        for shard in self.shards() {
            if let Err(error) = self.overdue(run, shard, until).await {
                run.evidence.errors.push(format!("overdue, shard {shard}: {error}"));
            }
        }
        let until = share(self.clock.now(), run.until, 3);
        if let Err(error) = self.plans(run, until).await {
            run.evidence.errors.push(format!("plans: {error}"));
        }
        let until = share(self.clock.now(), run.until, 3);
        if let Err(error) = self.resumed(run, until).await {
            run.evidence.errors.push(format!("resumed endpoints: {error}"));
        }
        let until = share(self.clock.now(), run.until, 3);
        for shard in self.shards() {
            if let Err(error) = self.held(run, shard, until).await {
                run.evidence.errors.push(format!("held, shard {shard}: {error}"));
            }
        }
        if let Err(error) = self.count(run).await {
            run.evidence.errors.push(format!("backlog: {error}"));
        }
        // Last, so that nothing in it can stop the rest.
        self.drain(run).await;
    }

    /// Waits whose wake-up got lost, and attempts whose lease ran out.
    async fn overdue(&self, run: &mut Run, shard: u8, until: Millis) -> Result<(), StoreError> {
        let now = self.clock.now();
        let patience = self.settings.patience;
        let to = now.plus(-patience.grace_ms);
        let mut walk = self.walk(Lane::Work("waiting", shard), Cursor::Overdue(shard), to, until).await?;
        while let Some(rows) = self.page(run, &mut walk).await? {
            let rows: Vec<Row> = rows
                .into_iter()
                .filter(|row| is_overdue(row.sort, row.armed_at, row.rearms, patience.grace_ms, now))
                .collect();
            let records = self.records(run, &rows).await?;
            run.evidence.skipped_moved += (rows.len() - records.len()) as u64;
            let mut lost = Vec::new();
            for record in records {
                match judge_overdue(&record, patience, now) {
                    Repair::Rearm if run.rearms_left == 0 => run.evidence.skipped_queued += 1,
                    Repair::Rearm => {
                        run.rearms_left -= 1;
                        let late = record.due.map_or(0, |due| now.since(due)) / SECOND_MS;
                        run.evidence.oldest_overdue_seconds = run.evidence.oldest_overdue_seconds.max(late);
                        lost.push(record);
                    }
                    Repair::TakeOver => {
                        self.take_over(run, &record, None).await?;
                    }
                    Repair::Owned => run.evidence.skipped_owned += 1,
                    Repair::Leave => run.evidence.skipped_moved += 1,
                }
            }
            run.evidence.rearmed += self.touch(run, &lost, true).await?;
        }
        Ok(())
    }

    /// Records the attempt in flight as abandoned; the delivery waits, due now, or is over. The payload is kept. False when
    /// the record changed meanwhile, so that nothing was done.
    pub(crate) async fn take_over(
        &self,
        run: &mut Run,
        record: &Record,
        kept_until: Option<Millis>,
    ) -> Result<bool, StoreError> {
        if !run.act {
            run.evidence.taken_over += 1;
            return Ok(true);
        }
        let now = self.clock.now();
        let next = transition::take_over(record, Heir::Queue(now), kept_until, self.settings.retention, now)?;
        match self.deliveries.swap(record, &next).await? {
            Swapped::Done => {
                run.evidence.taken_over += 1;
                tracing::info!(delivery.id = %record.key.event, endpoint.key = %record.key.endpoint, attempt.number = record.attempt, delivery.state = %next.state, "abandoned attempt taken over");
            }
            Swapped::Lost(_) => {
                run.evidence.skipped_moved += 1;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Approved plans go on; each minute, because they release only a little ahead.
    pub(crate) async fn plans(&self, run: &mut Run, until: Millis) -> Result<(), StoreError> {
        let release = Release {
            store: &self.deliveries,
            payloads: &self.payloads,
            clock: &self.clock,
            retention: self.settings.retention,
        };
        let mut running = self.deliveries.plans_in(PlanState::Canary, PLANS).await?;
        running.extend(self.deliveries.plans_in(PlanState::Ramping, PLANS).await?);
        for id in running {
            if self.clock.now() >= until {
                run.evidence.pages_left += 1;
                return Ok(());
            }
            let released = if run.act {
                // What it released is counted afterwards, which takes time as well.
                release
                    .advance(&id, share(self.clock.now(), until, 7))
                    .await
                    .map(|advanced| advanced.map_or(0, |a| a.released))
            } else {
                release.pending(&id, until).await
            };
            // One plan in trouble must not stop the others.
            match released {
                Ok(released) => run.evidence.released += u64::from(released),
                Err(error) => run.evidence.errors.push(format!("plan {id}: {error}")),
            }
        }
        Ok(())
    }

    /// What was held for endpoints that take deliveries again.
    async fn resumed(&self, run: &mut Run, until: Millis) -> Result<(), StoreError> {
        let resume = Resume {
            store: &self.deliveries,
            payloads: &self.payloads,
            clock: &self.clock,
            retention: self.settings.retention,
        };
        for key in self.deliveries.resumed_endpoints().await? {
            if self.clock.now() >= until {
                run.evidence.pages_left += 1;
                return Ok(());
            }
            // One endpoint in trouble must not stop the others.
            let released = if run.act { resume.advance(&key, until).await } else { resume.pending(&key, until).await };
            match released {
                Ok(released) => run.evidence.released += u64::from(released),
                Err(error) => run.evidence.errors.push(format!("endpoint {key}: {error}")),
            }
        }
        Ok(())
    }

    /// Held deliveries that need something: their deadline passed, or their payload would go.
    async fn held(&self, run: &mut Run, shard: u8, until: Millis) -> Result<(), StoreError> {
        let now = self.clock.now();
        let retention = self.settings.retention;
        let mut walk = self.walk(Lane::Work("held", shard), Cursor::Held(shard), now, until).await?;
        while let Some(rows) = self.page(run, &mut walk).await? {
            for record in self.records(run, &rows).await?.into_iter().filter(|r| matches!(r.state, State::Held(_))) {
                let expired = record.deliver_by.is_some_and(|by| by <= now);
                let next = if expired {
                    run.evidence.expired += 1;
                    transition::expire(&record, retention, now)?
                } else {
                    run.evidence.extended += 1;
                    let kept_until =
                        transition::keep_until(None, record.deliver_by, now, retention).plus(EXTEND_BEFORE_MS);
                    match &record.payload {
                        Some(payload)
                            if run.act && self.payloads.extend(&record.key, &payload.hash, kept_until).await? =>
                        {
                            transition::extend(&record, kept_until)
                        }
                        _ if !run.act => continue,
                        _ => transition::lose_payload(&record, retention, now)?,
                    }
                };
                if run.act && self.deliveries.swap(&record, &next).await? != Swapped::Done {
                    run.evidence.skipped_moved += 1;
                }
            }
        }
        Ok(())
    }

    /// Looks at the beginning of each lane: the sizes of large piles are not worth reading them.
    async fn count(&self, run: &mut Run) -> Result<(), StoreError> {
        let now = self.clock.now();
        for shard in 0..SHARDS {
            for name in ["waiting", "held", "dead", "rejected"] {
                let lane = Lane::Work(name, shard);
                let page = self
                    .deliveries
                    .rows(Range { lane: &lane, from: Millis(0), to: Millis(i64::MAX), after: None, limit: COUNTED })
                    .await?;
                let backlog = &mut run.evidence.backlog;
                let pile = match name {
                    "waiting" => &mut backlog.waiting,
                    "held" => &mut backlog.held,
                    "dead" => &mut backlog.dead_lettered,
                    _ => &mut backlog.rejected,
                };
                pile.count += page.rows.len() as u64;
                let oldest = page.rows.first().map_or(0, |row| now.since(row.sort) / SECOND_MS);
                pile.oldest_seconds = pile.oldest_seconds.max(oldest);
                run.evidence.backlog_capped |= page.more;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_so_many_tenths_of_what_is_left() {
        assert_eq!(share(Millis(100), Millis(1_100), 4), Millis(500));
        assert_eq!(share(Millis(100), Millis(50), 4), Millis(100), "nothing is left");
    }
}
