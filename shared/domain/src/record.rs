//! One delivery as it is stored. A record is a value: changes are made by [`crate::transition`], and the store writes
//! the difference under the condition that nobody else was faster.

use crate::delivery::State;
use crate::id::{DeliveryKey, StateKey};
use crate::outcome::{Class, Phase};
use crate::payload::PayloadRef;
use crate::time::Millis;

/// The first entries of a history that are always kept.
pub const HISTORY_FIRST: usize = 2;
/// The last entries of a history that are always kept.
pub const HISTORY_LAST: usize = 20;
/// The longest excerpt of an answer that is kept in a record, in bytes.
pub const EXCERPT_BYTES: usize = 128;

/// A delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Event and endpoint.
    pub key: DeliveryKey,
    /// Whose health it shares.
    pub state_key: StateKey,
    /// Where it stands.
    pub state: State,
    /// When it entered that state.
    pub since: Millis,
    /// Grows by one with every write; together with state and attempt it is what a write believes.
    pub rev: u64,
    /// Number of the last attempt taken; only grows, so it is also the fence.
    pub attempt: u32,
    /// Redrives so far.
    pub generation: u32,
    /// The attempt number at which this generation's budget started.
    pub budget_from: u32,
    /// Attempts allowed in this generation.
    pub budget: u32,
    /// The hold of the attempt in flight.
    pub lease: Option<Lease>,
    /// Position in the due index; see [`Record::lane`].
    pub due: Option<Millis>,
    /// When the sweep last touched it.
    pub armed_at: Option<Millis>,
    /// How often the sweep re-armed it since the last transition.
    pub rearms: u32,
    /// A cancel came while an attempt was in flight.
    pub cancel_requested: bool,
    /// A fenced attempt learnt that it had been accepted while a later one was in flight.
    pub accepted_late: bool,
    /// The plan that made this generation.
    pub plan: Option<String>,
    /// What the plan released it from; present until its first claim.
    pub released_from: Option<State>,
    /// Its due is a slot of its plan's rate, booked for it; until its first claim.
    pub booked: bool,
    /// The payload; absent in the tombstone of a cancel that came first.
    pub payload: Option<PayloadRef>,
    /// Until when the payload is kept at least; absent while it lives only in its message.
    pub payload_kept_until: Option<Millis>,
    /// The producer's own reference.
    pub correlation_id: Option<String>,
    /// When the message was put on the queue.
    pub accepted_at: Millis,
    /// The SQS sender of the message.
    pub sender: Option<String>,
    /// Not after.
    pub deliver_by: Option<Millis>,
    /// When it became final.
    pub completed_at: Option<Millis>,
    /// When the table may clean it up; final states only.
    pub expires_at: Option<Millis>,
    /// What happened, oldest first.
    pub history: Vec<Entry>,
    /// How many entries were dropped from the middle of the history.
    pub history_dropped: u32,
    /// Start of the last failure's answer, printable.
    pub excerpt: Option<String>,
    /// Who cancelled it and why.
    pub cancelled_because: Option<String>,
}

/// The hold of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Until when others respect it.
    pub until: Millis,
    /// The value that proves the hold: SQS message id, a dot, a nonce.
    pub claim_id: ClaimId,
}

/// Proof of one claim: which message made it, and a nonce.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimId(String);

impl ClaimId {
    /// A new claim made by a message.
    pub fn new(message_id: &str, nonce: u32) -> Self {
        Self(format!("{message_id}.{nonce:08x}"))
    }

    /// As stored.
    pub fn stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The SQS message that made the claim.
    pub fn message_id(&self) -> &str {
        self.0.rsplit_once('.').map_or(self.0.as_str(), |(id, _)| id)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One line of a delivery's history.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// An attempt and what became of it.
    Attempt(Box<AttemptEntry>),
    /// An approved plan brought the delivery back.
    Released {
        /// When.
        at: Millis,
        /// Which plan.
        plan: String,
        /// The generation that it started.
        generation: u32,
    },
    /// The plan was aborted before the first attempt: it went back to where it came from.
    Recalled {
        /// When.
        at: Millis,
        /// Which plan.
        plan: String,
    },
}

/// One attempt in the history.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptEntry {
    /// Its number.
    pub number: u32,
    /// When it was claimed.
    pub started: Millis,
    /// How far it got.
    pub phase: Phase,
    /// What its outcome counts as.
    pub class: Class,
    /// The status of the answer.
    pub status: Option<u16>,
    /// How long it took.
    pub duration_ms: i64,
    /// Until when the endpoint asked us to wait.
    pub hint: Option<Millis>,
    /// What was decided: the state it led to, and the reason.
    pub decision: State,
    /// Detail of a failure without an answer (`dns`, `connect`, `timeout`, …), or `abandoned`.
    pub detail: Option<String>,
    /// Its claim.
    pub claim_id: ClaimId,
}

/// `detail` of an attempt whose process died or lost its lease.
pub const ABANDONED: &str = "abandoned";

impl Record {
    /// The partition of the `work` index, where the record has a place in it. A first attempt has none (no due time),
    /// so that a first-try success costs two write units; an attempt of a waiting delivery keeps its place, so that
    /// the sweep sees expired leases.
    pub fn lane(&self) -> Option<String> {
        self.due?;
        let name = match self.state {
            State::InFlight | State::Waiting(_) => "waiting",
            State::Held(_) => "held",
            State::DeadLettered(_) => "dead",
            State::Rejected(_) => "rejected",
            State::Delivered | State::Cancelled => return None,
        };
        Some(format!("{name}#{:02}", self.key.shards().0))
    }

    /// The partition of the `by_endpoint` index, for held and dead-lettered deliveries.
    pub fn endpoint_lane(&self) -> Option<String> {
        match self.state {
            State::Held(_) | State::DeadLettered(_) => {
                Some(format!("{}#{}#{}", self.state.name(), self.state_key, self.key.shards().1))
            }
            State::InFlight | State::Waiting(_) | State::Delivered | State::Cancelled | State::Rejected(_) => None,
        }
    }

    /// Attempts used in this generation.
    pub const fn used(&self) -> u32 {
        self.attempt.saturating_sub(self.budget_from)
    }

    /// When the first attempt of this generation began, as far as the history tells.
    pub fn generation_began(&self) -> Millis {
        self.attempts().find(|a| a.number > self.budget_from).map_or(self.since, |a| a.started)
    }

    /// True while `claim_id` holds the attempt in flight.
    pub fn is_held_by(&self, claim_id: &ClaimId) -> bool {
        self.state == State::InFlight && self.lease.as_ref().is_some_and(|l| l.claim_id == *claim_id)
    }

    /// True when the history shows the end of the attempt that `claim_id` held, written by its holder.
    pub fn was_finished_by(&self, claim_id: &ClaimId) -> bool {
        self.attempts().any(|a| a.claim_id == *claim_id && a.detail.as_deref() != Some(ABANDONED))
    }

    /// The attempts in the history, oldest first.
    pub fn attempts(&self) -> impl DoubleEndedIterator<Item = &AttemptEntry> {
        self.history.iter().filter_map(|entry| match entry {
            Entry::Attempt(attempt) => Some(&**attempt),
            Entry::Released { .. } | Entry::Recalled { .. } => None,
        })
    }

    /// How many of the last attempts in a row were abandoned since its last release.
    pub fn abandoned_in_a_row(&self) -> usize {
        let abandoned = |entry: &&Entry| matches!(entry, Entry::Attempt(a) if a.detail.as_deref() == Some(ABANDONED));
        self.history.iter().rev().take_while(abandoned).count()
    }

    /// True when some attempt may have reached the endpoint without our knowing.
    pub fn may_have_been_received(&self) -> bool {
        self.attempts().any(|a| a.class == Class::Unknown)
    }

    /// Adds to the history, keeping its first and last entries.
    pub fn remember(&mut self, entry: Entry) {
        self.history.push(entry);
        while self.history.len() > HISTORY_FIRST + HISTORY_LAST {
            self.history.remove(HISTORY_FIRST);
            self.history_dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Decision;
    use crate::transition::tests::{RETENTION, failed, in_flight};
    use crate::transition::{Heir, finish, take_over};

    #[test]
    fn an_attempt_was_finished_by_its_holder_or_abandoned_and_then_it_may_have_been_received() {
        let record = in_flight(1);
        let holder = record.lease.clone().unwrap().claim_id;
        let retry = Decision::Retry { due: Millis(500) };
        let finished = finish(&record, &failed(), retry, None, RETENTION, Millis(9)).unwrap();
        assert!(finished.was_finished_by(&holder) && !finished.may_have_been_received());
        assert!(!finished.was_finished_by(&ClaimId::new("another", 7)));
        let abandoned = take_over(&record, Heir::Queue(Millis(500)), None, RETENTION, Millis(70_000)).unwrap();
        assert!(!abandoned.was_finished_by(&holder) && abandoned.may_have_been_received());
    }
}
