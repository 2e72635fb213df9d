//! A walk over the due rows of one shard, page by page. One that is cut off remembers where, and the next run goes on
//! there, so that rows which cannot be helped now never hide those behind them.

use domain::ports::{
    Clock, Cursor, DeadQueue, Deliveries, EndpointStates, Lane, Payloads, Plans, Range, Row, StoreError,
};
use domain::time::Millis;

use crate::handler::{Depth, Run, Sweep};

/// Rows per page.
pub(crate) const PAGE: usize = 100;
/// Pages per shard and run.
const PAGES: usize = 50;

/// Where a walk stands.
pub(crate) struct Walk {
    lane: Lane,
    cursor: Cursor,
    from: Millis,
    to: Millis,
    until: Millis,
    after: Option<Row>,
    pages: usize,
    over: bool,
}

impl<D: Deliveries + Plans + EndpointStates, P: Payloads, I: DeadQueue, R: DeadQueue, Q: Depth, C: Clock>
    Sweep<D, P, I, R, Q, C>
{
    /// Begins where the last walk was cut off: rows of `lane` that are due up to `to`, while the time is before `until`.
    pub(crate) async fn walk(&self, lane: Lane, cursor: Cursor, to: Millis, until: Millis) -> Result<Walk, StoreError> {
        let from = self.deliveries.cursor(cursor).await?.filter(|from| *from <= to).unwrap_or(Millis(0));
        Ok(Walk { lane, cursor, from, to, until, after: None, pages: 0, over: false })
    }

    /// The next page; `None` at the end of the lane, of the time, or of this run's pages. A page may be empty.
    pub(crate) async fn page(&self, run: &mut Run, walk: &mut Walk) -> Result<Option<Vec<Row>>, StoreError> {
        if walk.over {
            return self.end(run, walk, Millis(0)).await;
        }
        if walk.pages == PAGES || self.clock.now() >= walk.until {
            run.evidence.pages_left += 1;
            let reached = walk.after.as_ref().map_or(walk.from, |row| row.sort);
            return self.end(run, walk, reached).await;
        }
        let after = walk.after.as_ref();
        let range = Range { lane: &walk.lane, from: walk.from, to: walk.to, after, limit: PAGE };
        let page = self.deliveries.rows(range).await?;
        run.evidence.examined += page.rows.len() as u64;
        walk.pages += 1;
        // An empty page is not the end; only the absence of more is.
        walk.over = !page.more;
        walk.after = page.rows.last().cloned().or(walk.after.take());
        Ok(Some(page.rows))
    }

    async fn end(&self, run: &Run, walk: &Walk, reached: Millis) -> Result<Option<Vec<Row>>, StoreError> {
        if run.act && reached != walk.from {
            self.deliveries.set_cursor(walk.cursor, reached).await?;
        }
        Ok(None)
    }
}
