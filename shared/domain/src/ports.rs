//! The outside, as the stories see it. Every implementation passes the same conformance suite.
//!
//! A lost race is a value, never an error. `Err` means that our own store failed, or that it holds something that we
//! cannot read; what happened at an endpoint is never an `Err`.

use std::fmt;

use crate::audit::{Decision, Entry, Head};
use crate::delivery::Illegal;
use crate::endpoint::Found;
use crate::endpoint_state::EndpointState;
use crate::id::{DeliveryKey, EndpointKey, EventId, StateKey};
use crate::kept_answer::KeptAnswer;
use crate::outcome::Outcome;
use crate::payload::Payload;
use crate::plan::{Frozen, Plan, PlanState};
use crate::record::{Lease, Record};
use crate::reject::Rejected;
use crate::request::Request;
use crate::signature::Secret;
use crate::time::Millis;

/// Our own trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The call failed or timed out; it may have taken effect. Trying again later may work.
    Unavailable(String),
    /// What is stored cannot be read.
    Corrupt(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(what) => write!(f, "the store is not available: {what}"),
            Self::Corrupt(what) => write!(f, "the store holds something unreadable: {what}"),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<Illegal> for StoreError {
    /// A change that the state does not allow: the record is not what our code believes.
    fn from(illegal: Illegal) -> Self {
        Self::Corrupt(illegal.to_string())
    }
}

/// The answer to creating a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Created {
    /// It is new.
    New,
    /// There is one already.
    Exists(Box<Record>),
}

/// The answer to the claim of a waiting delivery.
#[derive(Clone, Debug, PartialEq)]
pub enum Claimed {
    /// The attempt is ours; this is the record now.
    Started(Box<Record>),
    /// It is not as expected; this is what is there.
    Refused(Option<Box<Record>>),
}

/// The answer to a conditional change.
#[derive(Clone, Debug, PartialEq)]
pub enum Swapped {
    /// The new record is in place (also when our own repeated write found it there).
    Done,
    /// The record had changed; this is what is there.
    Lost(Option<Box<Record>>),
}

/// A partition of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lane {
    /// `work` index: `waiting`, `held`, `dead` or `rejected`, and a shard below [`crate::id::SHARDS`].
    Work(&'static str, u8),
    /// `by_endpoint` index: `held` or `dead_lettered`, a state key, and a shard below [`crate::id::ENDPOINT_SHARDS`].
    Endpoint(&'static str, StateKey, u8),
}

/// One row of an index: a pointer, possibly behind the table's truth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where the item is.
    pub at: ItemKey,
    /// The lane's sort value: `due`, or `since` for an endpoint's lane.
    pub sort: Millis,
    /// When the sweep last touched it.
    pub armed_at: Option<Millis>,
    /// How often the sweep repaired it.
    pub rearms: u32,
}

/// Primary key of an item of the deliveries table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ItemKey {
    /// Partition key.
    pub pk: String,
    /// Sort key.
    pub sk: String,
}

impl ItemKey {
    /// Where a delivery is stored.
    pub fn of(key: &DeliveryKey) -> Self {
        Self::delivery(key.event.as_str(), key.endpoint.as_str())
    }

    /// The same, from the parts of its key as text.
    pub fn delivery(event: &str, endpoint: &str) -> Self {
        Self { pk: format!("E#{event}"), sk: format!("D#{endpoint}") }
    }
}

/// A range of an index.
#[derive(Clone, Debug)]
pub struct Range<'a> {
    /// Which partition.
    pub lane: &'a Lane,
    /// Sort values from here, inclusive.
    pub from: Millis,
    /// Sort values up to here, inclusive.
    pub to: Millis,
    /// Start after this row.
    pub after: Option<&'a Row>,
    /// At most so many rows.
    pub limit: usize,
}

/// A page of an index. Its end is the end of the range only when `more` is false, whatever the number of rows.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Rows in order of their sort value.
    pub rows: Vec<Row>,
    /// There may be more after the last row.
    pub more: bool,
}

/// Where the sweep goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cursor {
    /// The highest due of a shard that `arm` has handled.
    Arm(u8),
    /// The due at which the last look at the overdue waits of a shard was cut off; 0: it came to the end.
    Overdue(u8),
    /// The same for held deliveries that need something.
    Held(u8),
    /// When the transport DLQs were last drained.
    Drain,
}

impl Cursor {
    /// Of two runs at once the one that got further wins.
    pub const fn only_forward(self) -> bool {
        match self {
            Self::Arm(_) | Self::Drain => true,
            Self::Overdue(_) | Self::Held(_) => false,
        }
    }

    /// Where it is stored.
    pub fn at(self) -> ItemKey {
        let (shard, sk) = match self {
            Self::Arm(shard) => (shard, "ARM"),
            Self::Overdue(shard) => (shard, "OVERDUE"),
            Self::Held(shard) => (shard, "HELD"),
            Self::Drain => (0, "DRAIN"),
        };
        ItemKey { pk: format!("CURSOR#{shard:02}"), sk: sk.to_owned() }
    }
}

/// What an item of the deliveries table is.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    /// A delivery.
    Delivery(Box<Record>),
    /// A message that was not accepted.
    Rejected(Box<Rejected>),
    /// Something that this version cannot read. It must not stop what is done about the others.
    Unreadable(ItemKey, String),
}

impl Stored {
    /// The delivery, if it is one.
    pub fn into_delivery(self) -> Option<Record> {
        match self {
            Self::Delivery(record) => Some(*record),
            Self::Rejected(_) | Self::Unreadable(..) => None,
        }
    }
}

/// The deliveries table.
pub trait Deliveries {
    /// Reads a record consistently.
    async fn get(&self, key: &DeliveryKey) -> Result<Option<Record>, StoreError>;
    /// All deliveries of an event.
    async fn of_event(&self, event: &EventId) -> Result<Vec<Record>, StoreError>;
    /// Reads items consistently, in any order; missing ones are left out.
    async fn get_many(&self, keys: &[ItemKey]) -> Result<Vec<Stored>, StoreError>;
    /// Writes a record that must not exist yet.
    async fn create(&self, record: &Record) -> Result<Created, StoreError>;
    /// Starts the attempt after number `attempt` of a waiting record that is due and not too late, without reading it
    /// first: the change of [`crate::transition::claim`].
    async fn claim(&self, key: &DeliveryKey, attempt: u32, lease: &Lease, now: Millis) -> Result<Claimed, StoreError>;
    /// Replaces `old` by `new` if state, attempt and revision are still those of `old`.
    async fn swap(&self, old: &Record, new: &Record) -> Result<Swapped, StoreError>;
    /// Reads a range of an index.
    async fn rows(&self, range: Range<'_>) -> Result<Page, StoreError>;
    /// Writes a rejected message, or counts it up when it is there. Returns how often it has been seen.
    async fn reject(&self, rejected: &Rejected) -> Result<u32, StoreError>;
    /// Keeps the answer of a failed attempt until then, unless that of a later one is kept already.
    async fn keep_answer(&self, key: &DeliveryKey, answer: &KeptAnswer, until: Millis) -> Result<(), StoreError>;
    /// The answer that is kept.
    async fn kept_answer(&self, key: &DeliveryKey) -> Result<Option<KeptAnswer>, StoreError>;
    /// Reads a cursor of the sweep.
    async fn cursor(&self, cursor: Cursor) -> Result<Option<Millis>, StoreError>;
    /// Moves a cursor of the sweep. One that only goes forward stays where it is when it is further already.
    async fn set_cursor(&self, cursor: Cursor, to: Millis) -> Result<(), StoreError>;
}

/// The plans, in the deliveries table, and the decisions about them.
pub trait Plans {
    /// Stores a new plan and its list, together with the decision.
    async fn propose(&self, plan: &Plan, list: &[Frozen], decision: Decision) -> Result<(), StoreError>;
    /// Reads a plan consistently, or takes one that was read within the last seconds if `fresh` is not asked for.
    async fn plan(&self, id: &str, fresh: bool) -> Result<Option<Plan>, StoreError>;
    /// Reads a piece of its list: deliveries `chunk * CHUNK` and following.
    async fn chunk(&self, id: &str, chunk: usize) -> Result<Vec<Frozen>, StoreError>;
    /// Replaces `old` by `new` if its revision is still that of `old`; true when `new` is in place. A decision is written
    /// with it or not at all.
    async fn save_plan(&self, old: &Plan, new: &Plan, decision: Option<Decision>) -> Result<bool, StoreError>;
    /// Binds a redrive id to a plan, once; returns the plan it is bound to.
    async fn bind_redrive_id(&self, redrive_id: &str, plan_id: &str, now: Millis) -> Result<String, StoreError>;
    /// Ids of the plans in a state, the newest first; at most `limit`.
    async fn plans_in(&self, state: PlanState, limit: usize) -> Result<Vec<String>, StoreError>;
    /// Takes the next free slot of a plan that goes at `rate` per second: never before now, never the same twice.
    async fn book(&self, id: &str, rate: u32, now: Millis) -> Result<Millis, StoreError>;
}

/// The chain of decisions, in the deliveries table.
pub trait Audit {
    /// Writes a decision behind the last one.
    async fn record(&self, decision: Decision) -> Result<(), StoreError>;
    /// The end of the chain.
    async fn head(&self) -> Result<Head, StoreError>;
    /// Entries in order: those after the key `after`, at most `limit`, and whether there are more.
    async fn entries(&self, after: &str, limit: usize) -> Result<(Vec<Entry>, bool), StoreError>;
    /// The last entries, in order, at most `limit`.
    async fn newest(&self, limit: usize) -> Result<Vec<Entry>, StoreError>;
}

/// The payloads table.
pub trait Payloads {
    /// Keeps a payload at least until then. The same content again changes nothing but the time, and never shortens it: a
    /// duplicate with other times must not take the payload from its original.
    async fn keep(&self, key: &DeliveryKey, payload: &Payload, until: Millis) -> Result<(), StoreError>;
    /// Reads the payloads kept for a delivery, consistently: one, unless a conflicting message left another.
    async fn load(&self, key: &DeliveryKey) -> Result<Vec<Payload>, StoreError>;
    /// Keeps a payload longer; false when there is none.
    async fn extend(&self, key: &DeliveryKey, hash: &str, until: Millis) -> Result<bool, StoreError>;
    /// Keeps the raw text of a rejected message, whole.
    async fn keep_raw(&self, sha256: &str, raw: &str, until: Millis) -> Result<(), StoreError>;
}

/// The registry of endpoints, as the sender sees it.
pub trait Endpoints {
    /// Looks one up; `fresh` bypasses the cache.
    async fn find(&self, endpoint: &EndpointKey, fresh: bool) -> Result<Found, StoreError>;
    /// The active root keys from which the signatures of inline URLs are made, the newest first; never empty: the first one
    /// is made when it is first asked for.
    async fn inline_keys(&self) -> Result<Vec<Secret>, StoreError>;
}

/// The operational states of endpoints, in the deliveries table.
pub trait EndpointStates {
    /// Reads a state consistently, or takes one that was read within the last seconds if `fresh` is not asked for.
    async fn endpoint_state(&self, key: &StateKey, fresh: bool) -> Result<EndpointState, StoreError>;
    /// Replaces `old` by `new` if its revision is still that of `old`; true when `new` is in place.
    async fn save_endpoint_state(&self, old: &EndpointState, new: &EndpointState) -> Result<bool, StoreError>;
    /// The endpoints whose held deliveries are being released.
    async fn resumed_endpoints(&self) -> Result<Vec<StateKey>, StoreError>;
}

/// The HTTP client.
pub trait Sender {
    /// One request, once. Judges the address it dials.
    async fn post(&self, request: &Request<'_>) -> Outcome;
}

/// Time and chance.
pub trait Clock {
    /// Now.
    fn now(&self) -> Millis;
    /// A number in `[0, 1)`.
    fn random(&self) -> f64;
    /// 32 random bits.
    fn nonce(&self) -> u32;
    /// Waits until then.
    async fn sleep_until(&self, until: Millis);
}

/// A message taken from a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// SQS message id.
    pub message_id: String,
    /// Needed to delete it.
    pub receipt: String,
    /// Its body.
    pub body: String,
    /// How often it has been received.
    pub receives: u32,
    /// When it was sent.
    pub sent_at: Millis,
    /// Who sent it.
    pub sender: Option<String>,
}

/// A transport DLQ.
pub trait DeadQueue {
    /// Takes up to ten messages.
    async fn receive(&self) -> Result<Vec<Received>, StoreError>;
    /// Deletes a message.
    async fn delete(&self, message: &Received) -> Result<(), StoreError>;
    /// About how many messages lie on it, ready to be received; looking takes none away.
    async fn visible(&self) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_trouble_says_what_it_is() {
        let told = [StoreError::Unavailable("timeout".into()), StoreError::Corrupt("a lease".into())];
        assert_eq!(
            told.map(|error| error.to_string()),
            ["the store is not available: timeout", "the store holds something unreadable: a lease"]
        );
    }
}
