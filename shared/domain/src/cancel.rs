//! Cancelling a delivery: a producer's control message, or an operator's action.

use crate::delivery::State;
use crate::message::CancelRequest;
use crate::ports::{Created, Deliveries, StoreError, Swapped};
use crate::record::Record;
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

/// What a cancel of this record answers without changing anything: it was cancelled already, or it is too late. `None`: it
/// would change something.
pub const fn foreseen(record: &Record) -> Option<Cancelled> {
    match record.state {
        State::InFlight if record.cancel_requested => Some(Cancelled::Requested),
        State::Cancelled => Some(Cancelled::Done),
        State::Delivered | State::DeadLettered(_) | State::Rejected(_) => Some(Cancelled::TooLate(record.state)),
        State::InFlight | State::Waiting(_) | State::Held(_) => None,
    }
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
        if let Some(answer) = foreseen(&record) {
            return Ok(answer);
        }
        let answer = if record.state == State::InFlight { Cancelled::Requested } else { Cancelled::Done };
        let next = transition::cancel(&record, because, retention, now)?;
        match deliveries.swap(&record, &next).await? {
            Swapped::Done => return Ok(answer),
            Swapped::Lost(there) => current = there.map(|r| *r),
        }
    }
}
