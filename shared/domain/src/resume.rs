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

    async fn page(&self, state: &EndpointState, rows: &[Row]) -> Result<u32, StoreError> {
        let keys: Vec<ItemKey> = rows.iter().map(|row| row.at.clone()).collect();
        let mut released = 0;
        for stored in self.store.get_many(&keys).await? {
            let Stored::Delivery(record) = stored else { continue };
            let now = self.clock.now();
            let due = state.slot(state.released.unwrap_or(0).saturating_add(released), now);
            released += u32::from(self.release(&record, due, now).await?);
        }
        Ok(released)
    }

    /// Releases one delivery, unless it moved on meanwhile or waits for something else.
    async fn release(&self, record: &Record, due: Millis, now: Millis) -> Result<bool, StoreError> {
        match record.state {
            State::Held(HeldReason::Breaker) => return Ok(false),
            State::Held(
                HeldReason::Paused | HeldReason::Disabled | HeldReason::Removed | HeldReason::Misconfigured,
            ) => {}
            State::InFlight
            | State::Waiting(_)
            | State::Delivered
            | State::DeadLettered(_)
            | State::Cancelled
            | State::Rejected(_) => return Ok(false),
        }
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
