//! The story of a resumed endpoint: what was held for it goes out again, slowly at first. Told by the operator's function
//! at once and by the sweep until nothing is left; both at the same time do no harm, and a death half way is continued.

use crate::delivery::{HeldReason, State};
use crate::endpoint_state::EndpointState;
use crate::id::{ENDPOINT_SHARDS, StateKey};
use crate::ports::{
    Clock, Deliveries, EndpointStates, ItemKey, Lane, Payloads, Range, Row, StoreError, Stored, Swapped,
};
use crate::record::Record;
use crate::settings::Retention;
use crate::time::Millis;
use crate::transition;

/// Deliveries per page.
const PAGE: usize = 100;

/// What the story needs.
pub struct Resume<'a, D, P, C> {
    /// Deliveries and endpoint states.
    pub store: &'a D,
    /// To keep payloads longer.
    pub payloads: &'a P,
    /// Time.
    pub clock: &'a C,
    /// How long things are kept.
    pub retention: Retention,
}

impl<D: Deliveries + EndpointStates, P: Payloads, C: Clock> Resume<'_, D, P, C> {
    /// Goes on until nothing is held any more, the endpoint is held back again, or the time is over. Returns how many
    /// deliveries were released.
    pub async fn advance(&self, key: &StateKey, until: Millis) -> Result<u32, StoreError> {
        let mut state = self.store.endpoint_state(key, true).await?;
        let mut total = 0;
        for shard in 0..ENDPOINT_SHARDS {
            let lane = Lane::Endpoint("held", key.clone(), shard);
            let mut after: Option<Row> = None;
            loop {
                if state.released.is_none() || self.clock.now() >= until {
                    return Ok(total);
                }
                let range =
                    Range { lane: &lane, from: Millis(0), to: Millis(i64::MAX), after: after.as_ref(), limit: PAGE };
                let page = self.store.rows(range).await?;
                let released = self.page(&state, &page.rows).await?;
                total += released;
                if released > 0 {
                    let next = state.released_more(released);
                    // Lost: somebody else goes on too, or the endpoint is held back again.
                    state = if self.store.save_endpoint_state(&state, &next).await? {
                        next
                    } else {
                        self.store.endpoint_state(key, true).await?
                    };
                }
                after = page.rows.last().cloned().or(after);
                if !page.more {
                    break;
                }
            }
        }
        if let Some(settled) = state.settled(self.clock.now()).filter(|_| total == 0) {
            self.store.save_endpoint_state(&state, &settled).await?;
        }
        Ok(total)
    }

    /// How many deliveries would be released now.
    pub async fn pending(&self, key: &StateKey, until: Millis) -> Result<u32, StoreError> {
        let mut pending = 0;
        let state = self.store.endpoint_state(key, true).await?;
        if state.released.is_none() {
            return Ok(0);
        }
        for shard in 0..ENDPOINT_SHARDS {
            let lane = Lane::Endpoint("held", key.clone(), shard);
            let mut after: Option<Row> = None;
            while self.clock.now() < until {
                let range =
                    Range { lane: &lane, from: Millis(0), to: Millis(i64::MAX), after: after.as_ref(), limit: PAGE };
                let page = self.store.rows(range).await?;
                let records = self.records(&state, &page.rows).await?;
                pending += u32::try_from(records.len()).unwrap_or(u32::MAX);
                after = page.rows.last().cloned().or(after);
                if !page.more {
                    break;
                }
            }
        }
        Ok(pending)
    }

    /// The deliveries behind some rows that wait for their endpoint, and are this resume's business.
    async fn records(&self, state: &EndpointState, rows: &[Row]) -> Result<Vec<Record>, StoreError> {
        let keys: Vec<ItemKey> = rows.iter().map(|row| row.at.clone()).collect();
        let stored = self.store.get_many(&keys).await?;
        let waits_for_it = |record: &Record| match record.state {
            State::Held(
                HeldReason::Paused | HeldReason::Disabled | HeldReason::Removed | HeldReason::Misconfigured,
            ) => true,
            State::Held(HeldReason::Breaker)
            | State::InFlight
            | State::Waiting(_)
            | State::Delivered
            | State::DeadLettered(_)
            | State::Cancelled
            | State::Rejected(_) => false,
        };
        // One whose deadline has passed is ended by the sweep, as if nobody had set the endpoint active.
        let now = self.clock.now();
        let in_time = |record: &Record| record.deliver_by.is_none_or(|by| by > now);
        let records = stored.into_iter().filter_map(|stored| match stored {
            Stored::Delivery(record) => {
                Some(*record).filter(|r| waits_for_it(r) && in_time(r) && state.covers(r.since))
            }
            Stored::Rejected(_) | Stored::Unreadable(..) => None,
        });
        Ok(records.collect())
    }

    async fn page(&self, state: &EndpointState, rows: &[Row]) -> Result<u32, StoreError> {
        let mut released = 0;
        for record in self.records(state, rows).await? {
            let now = self.clock.now();
            let due = state.slot(state.released.unwrap_or(0).saturating_add(released), now);
            released += u32::from(self.release(&record, due, now).await?);
        }
        Ok(released)
    }

    /// Releases one delivery, unless it moved on meanwhile.
    async fn release(&self, record: &Record, due: Millis, now: Millis) -> Result<bool, StoreError> {
        let kept_until = transition::keep_until(Some(due), record.deliver_by, now, self.retention);
        let kept = match &record.payload {
            Some(payload) => self.payloads.extend(&record.key, &payload.hash, kept_until).await?,
            None => false,
        };
        let next = if kept {
            transition::resume(record, due, kept_until, self.retention, now)?
        } else {
            transition::lose_payload(record, self.retention, now)?
        };
        Ok(matches!(self.store.swap(record, &next).await?, Swapped::Done))
    }
}
