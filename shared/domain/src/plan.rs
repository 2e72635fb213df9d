//! A redrive plan: an immutable selection of dead letters, frozen when it is proposed, released when it is approved.

use serde::{Deserialize, Serialize};

use crate::delivery::State;
use crate::id::{DeliveryKey, sha256_hex};
use crate::ports::ItemKey;
use crate::record::{Entry, Record};
use crate::time::{Millis, SECOND_MS};

/// The most deliveries that one plan may hold.
pub const MAX_DELIVERIES: usize = 10_000;
/// A proposal expires after so many milliseconds.
pub const PROPOSAL_MS: i64 = 24 * 3_600 * SECOND_MS;
/// Frozen deliveries per stored piece of the list.
pub const CHUNK: usize = 250;

/// Where a plan stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanState {
    /// Waiting for a decision.
    Proposed,
    /// Releasing.
    Ramping,
    /// Every delivery was released and tried once, or skipped.
    Completed,
    /// Nobody approved it in time.
    Expired,
}

impl PlanState {
    /// The name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Ramping => "ramping",
            Self::Completed => "completed",
            Self::Expired => "expired",
        }
    }
}

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// A principal, or the name that a caller gave.
    pub name: String,
    /// True when AWS vouches for it.
    pub verified: bool,
}

/// A decision to release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The caller's idempotency key of this decision.
    pub redrive_id: String,
    /// Why.
    pub reason: String,
    /// Who.
    pub by: Who,
    /// When, in milliseconds since the epoch.
    pub at: i64,
}

/// A plan, without its list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Its id.
    pub id: String,
    /// Hash over the frozen list.
    pub digest: String,
    /// Where it stands.
    pub state: PlanState,
    /// How many deliveries.
    pub count: u32,
    /// Releases per second.
    pub rate_per_second: u32,
    /// What was asked for, as it was asked.
    pub filter: serde_json::Value,
    /// The proposer's note.
    pub note: String,
    /// Who proposed it.
    pub proposed_by: Who,
    /// When, in milliseconds since the epoch.
    pub created_at: i64,
    /// When the proposal ends, in milliseconds since the epoch.
    pub expires_at: i64,
    /// The decision.
    pub approval: Option<Approval>,
    /// Deliveries handled so far, in the order of the list.
    pub next: u32,
    /// Grows with every write.
    pub rev: u64,
}

/// One frozen delivery: what the decision was taken about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    /// Event id.
    pub id: String,
    /// Endpoint key.
    pub endpoint: String,
    /// Its last attempt then.
    pub attempt: u32,
    /// Its generation then.
    pub generation: u32,
}

impl Frozen {
    /// Freezes a record.
    pub fn of(record: &Record) -> Self {
        Self {
            id: record.key.event.to_string(),
            endpoint: record.key.endpoint.to_string(),
            attempt: record.attempt,
            generation: record.generation,
        }
    }

    /// The key of the delivery.
    pub fn key(&self) -> Result<DeliveryKey, String> {
        DeliveryKey::parse(&self.id, &self.endpoint)
    }

    /// Where the delivery is stored.
    pub fn at(&self) -> ItemKey {
        ItemKey::delivery(&self.id, &self.endpoint)
    }

    /// True while the delivery is as it was when the plan was proposed.
    pub fn still_describes(&self, record: &Record) -> bool {
        matches!(record.state, State::DeadLettered(_) | State::Held(_))
            && record.attempt == self.attempt
            && record.generation == self.generation
    }
}

/// The digest that an approval must name: it changes when any delivery of the list does.
pub fn digest(list: &[Frozen]) -> String {
    let mut text = String::new();
    for frozen in list {
        text.push_str(&format!("{}#{}#{}#{}\n", frozen.id, frozen.endpoint, frozen.attempt, frozen.generation));
    }
    sha256_hex(text.as_bytes())
}

impl Plan {
    /// The time slot of delivery number `index`: the releases are spread by the rate, from the approval on.
    pub fn slot(&self, index: usize, now: Millis) -> Millis {
        let start = self.approval.as_ref().map_or(now, |a| Millis(a.at));
        let offset =
            i64::try_from(index).unwrap_or(i64::MAX).saturating_mul(SECOND_MS) / i64::from(self.rate_per_second.max(1));
        start.plus(offset).max(now)
    }

    /// True when this plan made a generation of the record.
    pub fn released(&self, record: &Record) -> bool {
        record.plan.as_deref() == Some(&self.id)
            || record.history.iter().any(|entry| matches!(entry, Entry::Released { plan, .. } if *plan == self.id))
    }
}

/// How far a plan got. Counted from the records themselves, so the figures are true at every moment and add up:
/// `released + skipped + remaining = count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Brought back by this plan.
    pub released: u32,
    /// Of those, delivered.
    pub delivered: u32,
    /// Of those, dead-lettered again.
    pub failed: u32,
    /// Had moved on, or their payload was gone, when their turn came.
    pub skipped: u32,
    /// Not handled yet.
    pub remaining: u32,
    /// Released and not tried yet.
    #[serde(skip)]
    pub untried: u32,
}

impl Progress {
    /// Counts delivery number `index` of the list, with its record as it is now.
    pub fn count(&mut self, plan: &Plan, index: usize, frozen: &Frozen, record: Option<&Record>) {
        // Held again before its first attempt counts as skipped: nothing came of its release.
        let held_again = |r: &Record| matches!(r.state, State::Held(_)) && r.attempt == frozen.attempt;
        let Some(record) = record.filter(|r| plan.released(r) && !held_again(r)) else {
            if index < plan.next as usize {
                self.skipped += 1;
            } else {
                self.remaining += 1;
            }
            return;
        };
        self.released += 1;
        let over = record.generation > frozen.generation + 1;
        match record.state {
            State::Delivered if !over => self.delivered += 1,
            State::DeadLettered(_) => self.failed += 1,
            State::Waiting(_) | State::InFlight | State::Held(_) | State::Delivered if over => self.failed += 1,
            State::Waiting(_) if record.attempt == frozen.attempt => self.untried += 1,
            State::InFlight
            | State::Waiting(_)
            | State::Held(_)
            | State::Delivered
            | State::Cancelled
            | State::Rejected(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_changes_with_any_part_of_the_list() {
        let one = Frozen { id: "e".into(), endpoint: "p".into(), attempt: 8, generation: 0 };
        let base = digest(std::slice::from_ref(&one));
        for other in [
            vec![],
            vec![Frozen { attempt: 9, ..one.clone() }],
            vec![Frozen { generation: 1, ..one.clone() }],
            vec![Frozen { endpoint: "q".into(), ..one.clone() }],
            vec![one.clone(), one.clone()],
        ] {
            assert_ne!(digest(&other), base);
        }
        assert_eq!(digest(std::slice::from_ref(&one)), base);
    }
}
