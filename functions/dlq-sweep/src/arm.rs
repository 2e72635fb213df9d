//! `arm`, each minute: brings the waits that were too long for SQS into its reach. Per shard it reads only the dues
//! between its cursor and the horizon, touches them, and moves the cursor to the highest due fully handled.

use domain::id::SHARDS;
use domain::ports::{
    Clock, Cursor, DeadQueue, Deliveries, EndpointStates, Lane, Payloads, Plans, Range, Row, StoreError, Stored,
    Swapped,
};
use domain::record::Record;
use domain::sweep::{ARM_HORIZON_MS, needs_arming};
use domain::time::Millis;
use domain::transition;
use futures_util::future::try_join_all;

use crate::handler::{Depth, Run, Sweep};
use crate::walk::PAGE;

/// So many records are written at once.
const CONCURRENT: usize = 25;

impl<D: Deliveries + Plans + EndpointStates, P: Payloads, I: DeadQueue, R: DeadQueue, Q: Depth, C: Clock>
    Sweep<D, P, I, R, Q, C>
{
    /// One arm run over all shards.
    pub async fn arm(&self, run: &mut Run) {
        for shard in self.shards() {
            if self.clock.now() >= run.until {
                run.evidence.pages_left += 1;
                continue;
            }
            if let Err(error) = self.arm_shard(run, shard).await {
                run.evidence.errors.push(format!("arm, shard {shard}: {error}"));
            }
        }
        if let Err(error) = self.plans(run, run.until).await {
            run.evidence.errors.push(format!("plans: {error}"));
        }
    }

    async fn arm_shard(&self, run: &mut Run, shard: u8) -> Result<(), StoreError> {
        let horizon = self.clock.now().plus(ARM_HORIZON_MS);
        // Without a cursor yet, everything up to the horizon is looked at.
        let from = self.deliveries.cursor(Cursor::Arm(shard)).await?.map_or(Millis(0), |cursor| cursor.plus(1));
        let lane = Lane::Work("waiting", shard);
        let mut after: Option<Row> = None;
        let mut cursor = horizon;
        loop {
            let range = Range { lane: &lane, from, to: horizon, after: after.as_ref(), limit: PAGE };
            let page = if from <= horizon { self.deliveries.rows(range).await? } else { break };
            run.evidence.examined += page.rows.len() as u64;
            let records = self.records(run, &page.rows).await?;
            let long: Vec<Record> = records.into_iter().filter(needs_arming).collect();
            run.evidence.armed += self.touch(run, &long, false).await?;
            after = page.rows.last().cloned().or(after);
            if !page.more {
                break;
            }
            if self.clock.now() >= run.until {
                // Rows with the same due as the last one may follow it.
                cursor = after.as_ref().map_or(from, |row| row.sort).plus(-1);
                run.evidence.pages_left += 1;
                break;
            }
        }
        if run.act && cursor >= from {
            self.deliveries.set_cursor(Cursor::Arm(shard), cursor).await?;
        }
        let evidence = &mut run.evidence;
        evidence.cursor_min = Some(evidence.cursor_min.map_or(cursor.0, |c| c.min(cursor.0)));
        evidence.cursor_max = Some(evidence.cursor_max.map_or(cursor.0, |c| c.max(cursor.0)));
        Ok(())
    }

    /// All shards, beginning with another one each minute, so that none starves when the time is short.
    pub(crate) fn shards(&self) -> impl Iterator<Item = u8> + use<D, P, I, R, Q, C> {
        let first = u8::try_from((self.clock.now().0 / 60_000).rem_euclid(i64::from(SHARDS))).unwrap_or(0);
        (0..SHARDS).map(move |i| (first + i) % SHARDS)
    }

    /// The deliveries behind some rows, as they are now.
    pub(crate) async fn records(&self, run: &mut Run, rows: &[Row]) -> Result<Vec<Record>, StoreError> {
        let keys: Vec<_> = rows.iter().map(|row| row.at.clone()).collect();
        let stored = self.deliveries.get_many(&keys).await?;
        let mut records = Vec::with_capacity(stored.len());
        for item in stored {
            match item {
                Stored::Delivery(record) => records.push(*record),
                Stored::Rejected(_) => {}
                Stored::Unreadable(at, why) => {
                    run.evidence.unreadable += 1;
                    tracing::error!(item.pk = at.pk, item.sk = at.sk, why, "an item cannot be read");
                }
            }
        }
        Ok(records)
    }

    /// Marks waiting records, so that the stream carries them; returns how many were marked, or would be.
    pub(crate) async fn touch(&self, run: &mut Run, records: &[Record], again: bool) -> Result<u64, StoreError> {
        if !run.act {
            return Ok(records.len() as u64);
        }
        let now = self.clock.now();
        let mut done = 0;
        for some in records.chunks(CONCURRENT) {
            let touched: Vec<Record> = some.iter().map(|record| transition::touch(record, again, now)).collect();
            let swaps = some.iter().zip(&touched).map(|(old, new)| self.deliveries.swap(old, new));
            for swapped in try_join_all(swaps).await? {
                match swapped {
                    Swapped::Done => done += 1,
                    Swapped::Lost(_) => run.evidence.skipped_moved += 1,
                }
            }
        }
        Ok(done)
    }
}
