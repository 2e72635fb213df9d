//! `arm`, each minute: brings the waits that were too long for SQS into its reach. Per shard it reads only the dues
//! between its cursor and the horizon, touches them, and moves the cursor to the highest due fully handled.

use domain::id::SHARDS;
use domain::ports::{Clock, DeadQueue, Deliveries, Lane, Payloads, Plans, Range, Row, StoreError, Stored, Swapped};
use domain::record::Record;
use domain::sweep::{ARM_HORIZON_MS, needs_arming};
use domain::time::Millis;
use domain::transition;

use crate::handler::{Depth, Run, Sweep};

/// Rows per page.
const PAGE: usize = 100;

impl<D: Deliveries + Plans, P: Payloads, I: DeadQueue, R: DeadQueue, Q: Depth, C: Clock> Sweep<D, P, I, R, Q, C> {
    /// One arm run over all shards.
    pub async fn arm(&self, run: &mut Run) {
        for shard in 0..SHARDS {
            if self.clock.now() >= run.until {
                run.evidence.pages_left += u64::from(SHARDS - shard);
                return;
            }
            if let Err(error) = self.arm_shard(run, shard).await {
                run.evidence.errors.push(format!("arm, shard {shard}: {error}"));
            }
        }
    }

    async fn arm_shard(&self, run: &mut Run, shard: u8) -> Result<(), StoreError> {
        let horizon = self.clock.now().plus(ARM_HORIZON_MS);
        // Without a cursor yet, everything up to the horizon is looked at.
        let from = self.deliveries.arm_cursor(shard).await?.map_or(Millis(0), |cursor| cursor.plus(1));
        let lane = Lane::Work("waiting", shard);
        let mut after: Option<Row> = None;
        let mut cursor = horizon;
        loop {
            let range = Range { lane: &lane, from, to: horizon, after: after.as_ref(), limit: PAGE };
            let page = if from <= horizon { self.deliveries.rows(range).await? } else { break };
            run.evidence.examined += page.rows.len() as u64;
            for record in self.records(&page.rows).await? {
                if needs_arming(&record) {
                    self.touch(run, &record, false).await?;
                    run.evidence.armed += 1;
                }
            }
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
            self.deliveries.set_arm_cursor(shard, cursor).await?;
        }
        let evidence = &mut run.evidence;
        evidence.cursor_min = Some(evidence.cursor_min.map_or(cursor.0, |c| c.min(cursor.0)));
        evidence.cursor_max = Some(evidence.cursor_max.map_or(cursor.0, |c| c.max(cursor.0)));
        Ok(())
    }

    /// The deliveries behind some rows, as they are now.
    pub(crate) async fn records(&self, rows: &[Row]) -> Result<Vec<Record>, StoreError> {
        let keys: Vec<_> = rows.iter().map(|row| row.at.clone()).collect();
        let stored = self.deliveries.get_many(&keys).await?;
        Ok(stored
            .into_iter()
            .filter_map(|s| match s {
                Stored::Delivery(record) => Some(*record),
                Stored::Rejected(_) => None,
            })
            .collect())
    }

    /// Marks a waiting record, so that the stream carries it.
    pub(crate) async fn touch(&self, run: &mut Run, record: &Record, again: bool) -> Result<(), StoreError> {
        if !run.act {
            return Ok(());
        }
        match self.deliveries.swap(record, &transition::touch(record, again, self.clock.now())).await? {
            Swapped::Done => {}
            Swapped::Lost(_) => run.evidence.skipped_moved += 1,
        }
        Ok(())
    }
}
