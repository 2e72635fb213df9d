//! Cancelling a delivery: a producer's control message, or an operator's action.

use crate::delivery::State;
use crate::message::CancelRequest;
use crate::ports::{Created, Deliveries, StoreError, Swapped};
use crate::settings::Retention;
use crate::time::Millis;
use crate::transition;

/// What a cancel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not be sent (any more).
    Done,
    /// It was not there yet: a tombstone suppresses it when it comes.
    Tombstone,
    /// An attempt is in flight; its outcome decides.
    Requested,
    /// It was over already, in this state.
    TooLate(State),
}

/// A producer's control message.
pub async fn by_producer(
    deliveries: &impl Deliveries,
    request: &CancelRequest,
    sender: Option<&str>,
    retention: Retention,
    now: Millis,
) -> Result<Cancelled, StoreError> {
    let because = format!("producer {}: {}", sender.unwrap_or("unknown"), request.reason);
    cancel(deliveries, request, &because, sender, retention, now).await
}

/// Cancels. `because` is who and why, for the record.
pub async fn cancel(
    deliveries: &impl Deliveries,
    request: &CancelRequest,
    because: &str,
    sender: Option<&str>,
    retention: Retention,
    now: Millis,
) -> Result<Cancelled, StoreError> {
    let mut current = deliveries.get(&request.key).await?;
    loop {
        let Some(record) = current else {
            let tombstone = transition::tombstone(request, because, sender, retention, now)?;
            match deliveries.create(&tombstone).await? {
                Created::New => return Ok(Cancelled::Tombstone),
                Created::Exists(there) => {
                    current = Some(*there);
                    continue;
                }
            }
        };
        let answer = match record.state {
            State::Waiting(_) | State::Held(_) => Cancelled::Done,
            State::InFlight if record.cancel_requested => return Ok(Cancelled::Requested),
            State::InFlight => Cancelled::Requested,
            State::Cancelled => return Ok(Cancelled::Done),
            State::Delivered | State::DeadLettered(_) | State::Rejected(_) => {
                return Ok(Cancelled::TooLate(record.state));
            }
        };
        let next = transition::cancel(&record, because, retention, now)?;
        match deliveries.swap(&record, &next).await? {
            Swapped::Done => return Ok(answer),
            Swapped::Lost(there) => current = there.map(|r| *r),
        }
    }
}
