//! A redrive plan: an immutable selection of deliveries, frozen when it is proposed, released when it is approved: a canary
//! of each endpoint first, then the rest at its rate, or not at all.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::delivery::State;
use crate::id::{DeliveryKey, sha256_hex};
use crate::ports::ItemKey;
use crate::record::Record;
use crate::summary::Summary;
use crate::time::{Millis, SECOND_MS};

/// The most deliveries that one plan may hold.
pub const MAX_DELIVERIES: usize = 10_000;
/// The most endpoints of one plan that have more deliveries than their canary: the plan remembers which of them it stopped.
pub const MAX_ENDPOINTS: usize = 1_000;
/// A proposal expires after so many milliseconds.
pub const PROPOSAL_MS: i64 = 24 * 3_600 * SECOND_MS;
/// Frozen deliveries per stored piece of the list.
pub const CHUNK: usize = 250;
/// Releases run so many milliseconds ahead of their slots: what advances a plan comes each minute.
pub const AHEAD_MS: i64 = 90 * SECOND_MS;

/// Where a plan stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanState {
    /// Waiting for a decision.
    Proposed,
    /// Releasing some of each endpoint, and waiting for what becomes of them.
    Canary,
    /// Releasing the rest.
    Ramping,
    /// Every delivery was released and tried once, or skipped.
    Completed,
    /// Stopped by an operator, or by itself.
    Aborted,
    /// Nobody approved it in time.
    Expired,
}

impl PlanState {
    /// Every state, in the order of a plan's life.
    pub const ALL: &'static [Self] =
        &[Self::Proposed, Self::Canary, Self::Ramping, Self::Completed, Self::Aborted, Self::Expired];

    /// The name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Canary => "canary",
            Self::Ramping => "ramping",
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::Expired => "expired",
        }
    }

    /// Approved, and not over.
    pub const fn is_running(self) -> bool {
        match self {
            Self::Canary | Self::Ramping => true,
            Self::Proposed | Self::Completed | Self::Aborted | Self::Expired => false,
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

impl Who {
    /// The system itself.
    pub fn itself() -> Self {
        Self { name: "redeliver".to_owned(), verified: true }
    }
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

/// A decision to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abort {
    /// Why.
    pub reason: String,
    /// Who.
    pub by: Who,
    /// When, in milliseconds since the epoch.
    pub at: i64,
}

/// Why an endpoint gets nothing more from a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// Too many of its first attempts failed.
    Failed,
    /// Nothing was known of its canary in time.
    NoVerdict,
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
    /// Deliveries of each endpoint that are tried first.
    pub canary: u32,
    /// How many of the list, from its beginning, are canaries.
    pub canaries: u32,
    /// An endpoint is stopped when more of its first attempts fail.
    pub abort_failure_ratio: f64,
    /// What was asked for, as it was asked.
    pub filter: serde_json::Value,
    /// What was found; of older plans it is not known.
    #[serde(default)]
    pub summary: Summary,
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
    /// When the last canary was released, in milliseconds since the epoch.
    pub canaries_out_at: Option<i64>,
    /// When the ramp began, in milliseconds since the epoch.
    pub ramp_from: Option<i64>,
    /// Endpoints that get nothing more, by their state key.
    #[serde(default)]
    pub stopped: BTreeMap<String, Stop>,
    /// Why it was stopped.
    pub abort: Option<Abort>,
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
    /// Its state key: with whose canary it is judged. All inline URLs of an origin are one endpoint here.
    pub group: String,
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
            group: record.state_key.to_string(),
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
        matches!(record.state, State::DeadLettered(_) | State::Held(_) | State::Delivered)
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

/// Puts the canaries of a selection, which is sorted by age, first: the first `canary` of each endpoint; the rest keeps its
/// order. Returns how many canaries there are, and how many endpoints have more than that.
pub fn canaries_first(list: Vec<Frozen>, canary: u32) -> (Vec<Frozen>, u32, usize) {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let (mut first, rest): (Vec<Frozen>, Vec<Frozen>) = list.into_iter().partition(|frozen| {
        let count = seen.entry(frozen.group.clone()).or_default();
        *count += 1;
        *count <= canary
    });
    let canaries = u32::try_from(first.len()).unwrap_or(u32::MAX);
    let larger = seen.values().filter(|count| **count > canary).count();
    first.extend(rest);
    (first, canaries, larger)
}

impl Plan {
    /// Where it stands at that time: a proposal ends by itself, whether or not anybody has written that down.
    pub fn state_at(&self, now: Millis) -> PlanState {
        if self.state == PlanState::Proposed && Millis(self.expires_at) <= now {
            PlanState::Expired
        } else {
            self.state
        }
    }

    /// The time slot of delivery number `index`: canaries from the approval on, the rest from the beginning of the ramp, both
    /// spread by the rate. Never before now.
    pub fn slot(&self, index: usize, now: Millis) -> Millis {
        let (start, index) = match self.ramp_from {
            Some(from) => (Millis(from), index.saturating_sub(self.canaries as usize)),
            None => (self.approval.as_ref().map_or(now, |a| Millis(a.at)), index),
        };
        self.spread(index, start).max(now)
    }

    /// Slot number `index` at the rate, counted from `start`.
    pub fn spread(&self, index: usize, start: Millis) -> Millis {
        let offset = i64::try_from(index).unwrap_or(i64::MAX).saturating_mul(SECOND_MS);
        start.plus(offset / i64::from(self.rate_per_second.max(1)))
    }

    /// How many deliveries may have been handled by now: those that have their slot soon, and of the rest none before the
    /// ramp began.
    pub fn may_handle(&self, now: Millis) -> u32 {
        let soon = |from: Millis| {
            let seconds = now.plus(AHEAD_MS).since(from).max(0) / SECOND_MS;
            let slots = seconds.saturating_add(1).saturating_mul(i64::from(self.rate_per_second));
            u32::try_from(slots).unwrap_or(u32::MAX)
        };
        match (self.state, self.ramp_from, &self.approval) {
            (PlanState::Canary, _, Some(approval)) => self.canaries.min(soon(Millis(approval.at))),
            (PlanState::Ramping, Some(from), _) => self.canaries.saturating_add(soon(Millis(from))).min(self.count),
            (PlanState::Canary, ..) => self.canaries,
            (PlanState::Ramping, ..) => self.count,
            (PlanState::Proposed | PlanState::Completed | PlanState::Aborted | PlanState::Expired, ..) => self.next,
        }
    }

    /// True when nothing more of it may be tried at this endpoint: what it released goes back.
    pub fn has_given_up(&self, group: &str) -> bool {
        self.state == PlanState::Aborted || self.stopped.contains_key(group)
    }

    /// The same plan after a decision about it.
    #[must_use]
    pub fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next.rev += 1;
        next
    }

    /// Stopped, for a reason.
    #[must_use]
    pub fn aborted(&self, by: Who, reason: &str, now: Millis) -> Self {
        self.changed(|plan| {
            plan.state = PlanState::Aborted;
            plan.abort = Some(Abort { reason: reason.to_owned(), by, at: now.0 });
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::delivery::DeadReason;
    use crate::transition::tests::in_flight;

    fn frozen(id: &str, endpoint: &str) -> Frozen {
        Frozen { id: id.into(), endpoint: endpoint.into(), group: endpoint.into(), attempt: 8, generation: 0 }
    }

    #[test]
    fn the_digest_changes_with_any_part_of_the_list() {
        let one = frozen("e", "p");
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

    #[test]
    fn the_canaries_of_every_endpoint_come_first_and_nothing_else_moves() {
        let list: Vec<Frozen> = [("1", "a"), ("2", "a"), ("3", "b"), ("4", "a"), ("5", "c"), ("6", "a"), ("7", "b")]
            .map(|(i, e)| frozen(i, e))
            .into();
        let (list, canaries, larger) = canaries_first(list, 2);
        let ids: Vec<&str> = list.iter().map(|f| f.id.as_str()).collect();
        assert_eq!((ids, canaries, larger), (vec!["1", "2", "3", "5", "7", "4", "6"], 5, 1));
    }

    #[test]
    fn a_frozen_delivery_is_described_until_anything_of_it_moves() {
        let dead = Record { state: State::DeadLettered(DeadReason::Permanent), ..in_flight(2) };
        let frozen = Frozen::of(&dead);
        assert!(frozen.still_describes(&dead));
        for moved in [
            Record { state: State::InFlight, ..dead.clone() },
            Record { attempt: 3, ..dead.clone() },
            Record { generation: 1, ..dead.clone() },
        ] {
            assert!(!frozen.still_describes(&moved), "{moved:?}");
        }
    }

    #[test]
    fn a_proposal_is_good_for_a_day_and_two_states_of_a_plan_are_running() {
        assert_eq!(PROPOSAL_MS, 86_400_000);
        let states: Vec<(&str, bool)> = PlanState::ALL.iter().map(|s| (s.name(), s.is_running())).collect();
        assert_eq!(
            states,
            [
                ("proposed", false),
                ("canary", true),
                ("ramping", true),
                ("completed", false),
                ("aborted", false),
                ("expired", false)
            ]
        );
    }

    #[test]
    fn every_change_moves_the_revision_on_by_one() {
        assert_eq!(Plan { rev: 5, ..plan() }.changed(|_| ()).rev, 6);
    }

    #[test]
    fn all_inline_urls_of_an_origin_share_a_canary() {
        let of_origin = |id: &str| Frozen { group: "url:origin".into(), ..frozen(id, &format!("url:{id}")) };
        let (_, canaries, larger) = canaries_first(["1", "2", "3"].map(of_origin).into(), 2);
        assert_eq!((canaries, larger), (2, 1));
    }

    pub(crate) fn plan() -> Plan {
        Plan {
            id: "plan".into(),
            digest: String::new(),
            state: PlanState::Canary,
            count: 1_000,
            rate_per_second: 10,
            canary: 10,
            canaries: 10,
            abort_failure_ratio: 0.2,
            filter: serde_json::Value::Null,
            summary: Summary::default(),
            note: String::new(),
            proposed_by: Who::itself(),
            created_at: 0,
            expires_at: 0,
            approval: Some(Approval { redrive_id: "r".into(), reason: String::new(), by: Who::itself(), at: 0 }),
            canaries_out_at: None,
            ramp_from: None,
            stopped: BTreeMap::new(),
            abort: None,
            next: 0,
            rev: 1,
        }
    }

    #[test]
    fn a_plan_that_was_stored_before_there_was_more_to_say_can_be_read() {
        let mut stored = serde_json::to_value(plan()).unwrap();
        for name in ["summary", "stopped", "abort", "ramp_from", "canaries_out_at"] {
            stored.as_object_mut().unwrap().remove(name).unwrap();
        }
        stored["something"] = serde_json::json!("newer");
        assert_eq!(serde_json::from_value::<Plan>(stored).unwrap(), plan());
    }

    #[test]
    fn a_proposal_is_over_at_its_time_and_a_plan_that_runs_is_not() {
        let proposed = plan().changed(|p| (p.state, p.expires_at) = (PlanState::Proposed, 1_000));
        assert_eq!([999, 1_000].map(|at| proposed.state_at(Millis(at))), [PlanState::Proposed, PlanState::Expired]);
        assert_eq!(plan().state_at(Millis(i64::MAX)), PlanState::Canary);
    }

    #[test]
    fn releases_run_ahead_of_their_slots_by_a_bounded_time() {
        let canary = plan();
        assert_eq!((canary.may_handle(Millis(0)), canary.slot(9, Millis(0))), (10, Millis(900)));
        let wide = canary.changed(|p| (p.canaries, p.count) = (10_000, 10_000));
        assert_eq!((wide.may_handle(Millis(0)), wide.may_handle(Millis(2_000_000))), (910, 10_000), "many endpoints");
        let ramping = canary.changed(|p| (p.state, p.ramp_from, p.count) = (PlanState::Ramping, Some(60_000), 10_000));
        assert_eq!(ramping.slot(10, Millis(0)), Millis(60_000), "the ramp begins with its first");
        for now in [60_000, 70_000, 100_000] {
            let handled = ramping.may_handle(Millis(now)) as usize;
            assert!(handled < 10_000 && ramping.slot(handled, Millis(now)).since(Millis(now)) >= AHEAD_MS, "{now}");
        }
        assert_eq!(ramping.may_handle(Millis(2_000_000)), 10_000);
        assert_eq!(ramping.aborted(Who::itself(), "x", Millis(1)).may_handle(Millis(2_000_000)), 0);
    }
}
