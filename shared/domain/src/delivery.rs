//! The states of a delivery and the one function that says which change leads where.
//!
//! `apply` is total: every pair of state and event has an answer, and a reviewed snapshot of the whole table is a test.
//! Whether an event *may* happen now (a lease, a due time, a budget) is judged elsewhere; here is only what it does.

use std::fmt;

use crate::name::named;

named! {
    /// Why a delivery waits.
    pub enum WaitingReason {
        /// An attempt failed; the retry policy chose the time.
        Retry => "retry",
        /// The producer asked for a later time.
        Scheduled => "scheduled",
        /// A gate said "later", without using an attempt.
        Deferred => "deferred",
        /// A hold ended.
        Released => "released",
        /// An approved plan brought it back.
        Redriven => "redriven",
        /// Found by the sweep after a crash, or drained from a transport DLQ.
        Recovered => "recovered",
    }
}

named! {
    /// Why a delivery was given up.
    pub enum DeadReason {
        /// The attempt budget is spent.
        Exhausted => "exhausted",
        /// The endpoint refused it for good.
        Permanent => "permanent",
        /// The endpoint says that it is gone.
        Gone => "gone",
        /// The egress guard refused the address, or the request could not be built.
        Blocked => "blocked",
        /// `deliver_by` passed.
        Expired => "expired",
        /// Our own process died in three attempts in a row, or in the last one of the budget.
        Crashed => "crashed",
        /// The kept payload is not there any more.
        PayloadLost => "payload_lost",
    }
}

named! {
    /// Why a delivery is held.
    pub enum HeldReason {
        /// An operator paused the endpoint.
        Paused => "paused",
        /// The endpoint is disabled.
        Disabled => "disabled",
        /// The endpoint's circuit breaker is open.
        Breaker => "breaker",
        /// The endpoint was removed.
        Removed => "removed",
        /// The endpoint's configuration cannot be used.
        Misconfigured => "misconfigured",
    }
}

named! {
    /// Why a message was not accepted.
    pub enum RejectedReason {
        /// Not JSON, or a message that kept coming back from the transport DLQ.
        Unreadable => "unreadable",
        /// JSON, but not a message of the contract.
        Invalid => "invalid",
        /// The body is over the limit.
        TooLarge => "too_large",
        /// No such endpoint.
        UnknownEndpoint => "unknown_endpoint",
        /// The same event id and endpoint with another payload.
        IdConflict => "id_conflict",
    }
}

/// The state of a delivery, with its reason where the state has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// An attempt is claimed and under a lease.
    InFlight,
    /// A later attempt is due at a known time.
    Waiting(WaitingReason),
    /// Kept back until something releases or ends it.
    Held(HeldReason),
    /// Final: the endpoint accepted it.
    Delivered,
    /// Given up; only an approved plan (or a late acceptance) leaves it.
    DeadLettered(DeadReason),
    /// Final: cancelled, or a tombstone of a cancel that came first.
    Cancelled,
    /// Final: the message was not accepted.
    Rejected(RejectedReason),
}

impl State {
    /// The state's name in records, answers and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Waiting(_) => "waiting",
            Self::Held(_) => "held",
            Self::Delivered => "delivered",
            Self::DeadLettered(_) => "dead_lettered",
            Self::Cancelled => "cancelled",
            Self::Rejected(_) => "rejected",
        }
    }

    /// The reason's name, where the state has one.
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Waiting(r) => Some(r.name()),
            Self::Held(r) => Some(r.name()),
            Self::DeadLettered(r) => Some(r.name()),
            Self::Rejected(r) => Some(r.name()),
            Self::InFlight | Self::Delivered | Self::Cancelled => None,
        }
    }

    /// The state of these names, if there is one.
    pub fn from_names(state: &str, reason: Option<&str>) -> Option<Self> {
        match (state, reason) {
            ("in_flight", _) => Some(Self::InFlight),
            ("delivered", _) => Some(Self::Delivered),
            ("cancelled", _) => Some(Self::Cancelled),
            ("waiting", Some(r)) => WaitingReason::from_name(r).map(Self::Waiting),
            ("held", Some(r)) => HeldReason::from_name(r).map(Self::Held),
            ("dead_lettered", Some(r)) => DeadReason::from_name(r).map(Self::DeadLettered),
            ("rejected", Some(r)) => RejectedReason::from_name(r).map(Self::Rejected),
            _ => None,
        }
    }

    /// Nothing but an operator's plan moves it any more, so its record may be cleaned after its retention.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Delivered | Self::DeadLettered(_) | Self::Cancelled | Self::Rejected(_) => true,
            Self::InFlight | Self::Waiting(_) | Self::Held(_) => false,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Some(reason) => write!(f, "{} ({reason})", self.name()),
            None => f.write_str(self.name()),
        }
    }
}

/// Something that happens to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message starts the next attempt.
    Claim,
    /// A new record starts out waiting, or a gate says "later".
    Wait(WaitingReason),
    /// A gate says "not now".
    Hold(HeldReason),
    /// `deliver_by` passed before an attempt could start.
    Expire,
    /// The payload of a waiting or held delivery is gone.
    LosePayload,
    /// An attempt was accepted, or an earlier one has been meanwhile.
    FinishAccepted,
    /// An attempt failed and may be repeated.
    FinishRetry,
    /// An attempt failed for good.
    FinishDead(DeadReason),
    /// An attempt failed and a cancel had been asked for.
    FinishCancelled,
    /// The lease of an attempt ran out; a message or the sweep takes over. The attempt counts as abandoned, then:
    /// it starts the next one.
    TakeOverClaim,
    /// … it waits for the next one.
    TakeOverWait,
    /// … the delivery is over.
    TakeOverDead(DeadReason),
    /// … a cancel had been asked for.
    TakeOverCancelled,
    /// … an earlier attempt had been accepted after all.
    TakeOverAccepted,
    /// A producer or an operator cancels.
    Cancel,
    /// A fenced attempt learns that it was accepted.
    LateAccept,
    /// A hold ends.
    Release,
    /// An approved plan brings it back.
    Redrive,
    /// The plan that released it was aborted before its first attempt: back to where it came from, which is held, or a dead
    /// letter, or delivered.
    Recall(State),
}

/// An event that has no meaning in a state: a bug in the caller, never a fact about an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Illegal {
    /// The state, `None` where no record exists.
    pub state: Option<State>,
    /// What was tried.
    pub event: Event,
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            Some(state) => write!(f, "{:?} is not possible in state {state}", self.event),
            None => write!(f, "{:?} is not possible without a record", self.event),
        }
    }
}

impl std::error::Error for Illegal {}

/// What an event makes of a state; `None` stands for "no record yet".
pub fn apply(state: Option<State>, event: Event) -> Result<State, Illegal> {
    use State::{Cancelled, DeadLettered, Delivered, Held, InFlight, Rejected, Waiting};
    let illegal = Err(Illegal { state, event });
    match event {
        Event::Claim => match state {
            None | Some(Waiting(_)) => Ok(InFlight),
            Some(InFlight | Held(_) | Delivered | DeadLettered(_) | Cancelled | Rejected(_)) => illegal,
        },
        Event::Wait(reason) => match (state, reason) {
            (None, WaitingReason::Scheduled | WaitingReason::Deferred | WaitingReason::Recovered) => {
                Ok(Waiting(reason))
            }
            (Some(Waiting(_)), WaitingReason::Deferred) => Ok(Waiting(reason)),
            (None, WaitingReason::Retry | WaitingReason::Released | WaitingReason::Redriven) => illegal,
            (
                Some(Waiting(_)),
                WaitingReason::Retry
                | WaitingReason::Scheduled
                | WaitingReason::Released
                | WaitingReason::Redriven
                | WaitingReason::Recovered,
            ) => illegal,
            (Some(InFlight | Held(_) | Delivered | DeadLettered(_) | Cancelled | Rejected(_)), _) => illegal,
        },
        Event::Hold(reason) => match state {
            None | Some(Waiting(_) | Held(_)) => Ok(Held(reason)),
            Some(InFlight | Delivered | DeadLettered(_) | Cancelled | Rejected(_)) => illegal,
        },
        Event::Expire => match state {
            None | Some(Waiting(_) | Held(_)) => Ok(DeadLettered(DeadReason::Expired)),
            Some(InFlight | Delivered | DeadLettered(_) | Cancelled | Rejected(_)) => illegal,
        },
        Event::LosePayload => match state {
            Some(Waiting(_) | Held(_)) => Ok(DeadLettered(DeadReason::PayloadLost)),
            None | Some(InFlight | Delivered | DeadLettered(_) | Cancelled | Rejected(_)) => illegal,
        },
        Event::FinishAccepted | Event::TakeOverAccepted => in_flight(state, event, Delivered),
        Event::FinishRetry => in_flight(state, event, Waiting(WaitingReason::Retry)),
        Event::FinishDead(reason) | Event::TakeOverDead(reason) => in_flight(state, event, DeadLettered(reason)),
        Event::FinishCancelled | Event::TakeOverCancelled => in_flight(state, event, Cancelled),
        Event::TakeOverClaim => in_flight(state, event, InFlight),
        Event::TakeOverWait => in_flight(state, event, Waiting(WaitingReason::Recovered)),
        Event::Cancel => match state {
            None | Some(Waiting(_) | Held(_)) => Ok(Cancelled),
            Some(InFlight) => Ok(InFlight),
            Some(Delivered | DeadLettered(_) | Cancelled | Rejected(_)) => illegal,
        },
        Event::LateAccept => match state {
            Some(Waiting(_) | Held(_) | DeadLettered(_)) => Ok(Delivered),
            Some(InFlight) => Ok(InFlight),
            None | Some(Delivered | Cancelled | Rejected(_)) => illegal,
        },
        Event::Release => match state {
            Some(Held(_)) => Ok(Waiting(WaitingReason::Released)),
            None | Some(InFlight | Waiting(_) | Delivered | DeadLettered(_) | Cancelled | Rejected(_)) => illegal,
        },
        Event::Recall(to) => match (state, to) {
            (Some(Waiting(_)), Held(_) | DeadLettered(_) | Delivered) => Ok(to),
            (Some(Waiting(_)), InFlight | Waiting(_) | Cancelled | Rejected(_)) => illegal,
            (None | Some(InFlight | Held(_) | Delivered | DeadLettered(_) | Cancelled | Rejected(_)), _) => illegal,
        },
        Event::Redrive => match state {
            Some(DeadLettered(_) | Delivered) => Ok(Waiting(WaitingReason::Redriven)),
            None | Some(InFlight | Waiting(_) | Held(_) | Cancelled | Rejected(_)) => illegal,
        },
    }
}

/// The end of an attempt, by its own finish or by a takeover, is possible only while one is in flight.
const fn in_flight(state: Option<State>, event: Event, next: State) -> Result<State, Illegal> {
    match state {
        Some(State::InFlight) => Ok(next),
        None
        | Some(
            State::Waiting(_)
            | State::Held(_)
            | State::Delivered
            | State::DeadLettered(_)
            | State::Cancelled
            | State::Rejected(_),
        ) => Err(Illegal { state, event }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One state of each kind: no rule depends on the reason that a state carries.
    fn states() -> Vec<Option<State>> {
        let mut all = vec![None, Some(State::InFlight), Some(State::Delivered), Some(State::Cancelled)];
        all.extend(WaitingReason::ALL.iter().map(|r| Some(State::Waiting(*r))));
        all.extend(HeldReason::ALL.iter().map(|r| Some(State::Held(*r))));
        all.extend(DeadReason::ALL.iter().map(|r| Some(State::DeadLettered(*r))));
        all.extend(RejectedReason::ALL.iter().map(|r| Some(State::Rejected(*r))));
        all
    }

    fn events() -> Vec<Event> {
        use Event::{
            Cancel, Claim, Expire, FinishAccepted, FinishCancelled, FinishDead, FinishRetry, Hold, LateAccept,
            LosePayload, Recall, Redrive, Release, TakeOverAccepted, TakeOverCancelled, TakeOverClaim, TakeOverDead,
            TakeOverWait, Wait,
        };
        let mut all = vec![Claim];
        all.extend(WaitingReason::ALL.iter().map(|r| Wait(*r)));
        all.extend(HeldReason::ALL.iter().map(|r| Hold(*r)));
        all.extend([Expire, LosePayload, FinishAccepted, FinishRetry]);
        all.extend(DeadReason::ALL.iter().map(|r| FinishDead(*r)));
        all.extend([FinishCancelled, TakeOverClaim, TakeOverWait]);
        all.extend(DeadReason::ALL.iter().map(|r| TakeOverDead(*r)));
        all.extend([TakeOverCancelled, TakeOverAccepted, Cancel, LateAccept, Release, Redrive]);
        all.extend(states().into_iter().flatten().map(Recall));
        all
    }

    #[test]
    fn the_whole_table() {
        let mut table = String::new();
        for event in events() {
            table.push_str(&format!("{event:?}\n"));
            for state in states() {
                if let Ok(next) = apply(state, event) {
                    let from = state.map_or("(none)".to_owned(), |s| s.to_string());
                    table.push_str(&format!("    {from} -> {next}\n"));
                }
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn names_lead_back_to_states() {
        for state in states().into_iter().flatten() {
            assert_eq!(State::from_names(state.name(), state.reason()), Some(state));
        }
        assert_eq!(State::from_names("waiting", None), None);
        assert_eq!(State::from_names("gone", Some("retry")), None);
    }

    #[test]
    fn what_is_impossible_names_the_event_and_the_state() {
        let told = |state| apply(state, Event::FinishRetry).unwrap_err().to_string();
        assert_eq!(told(Some(State::Cancelled)), "FinishRetry is not possible in state cancelled");
        assert_eq!(told(None), "FinishRetry is not possible without a record");
    }

    #[test]
    fn a_rejected_or_cancelled_record_never_moves() {
        for event in events() {
            for state in states().into_iter().flatten().filter(|s| matches!(s, State::Rejected(_) | State::Cancelled)) {
                assert!(apply(Some(state), event).is_err(), "{state} {event:?}");
            }
        }
    }
}
