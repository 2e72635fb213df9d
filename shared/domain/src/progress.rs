//! How far a plan got. Counted from the records themselves, so the figures are true at every moment and add up:
//! `released + skipped + remaining = count`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::delivery::State;
use crate::outcome::Class;
use crate::plan::{Frozen, Plan, PlanState, Stop, Who};
use crate::record::{Entry, Record};
use crate::time::{Millis, SECOND_MS};

/// A canary of which nothing is known after so many milliseconds stops its endpoint.
const VERDICT_MS: i64 = 30 * 60 * SECOND_MS;

/// How far a plan got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Brought back by this plan.
    pub released: u32,
    /// Of those, delivered.
    pub delivered: u32,
    /// Of those, dead-lettered again.
    pub failed: u32,
    /// Had moved on, had no payload, or belonged to a stopped endpoint, when their turn came.
    pub skipped: u32,
    /// Not handled yet; in an aborted plan: untouched.
    pub remaining: u32,
    /// Released and not tried yet.
    #[serde(skip)]
    pub untried: u32,
    /// Per endpoint.
    #[serde(skip)]
    pub tallies: BTreeMap<String, Tally>,
}

/// What became of the first attempts after the release, for one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tried, and accepted.
    pub accepted: u32,
    /// Tried, and not accepted.
    pub refused: u32,
    /// Released, and not tried yet.
    pub untried: u32,
    /// Not released.
    pub ahead: u32,
}

/// What became of a delivery after this plan released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// This plan did not release it, or took it back.
    NotReleased,
    /// Its first attempt has not ended.
    Untried,
    /// Its first attempt ended so.
    Tried { accepted: bool },
}

fn fate(plan: &Plan, frozen: &Frozen, record: &Record) -> Fate {
    let mut entries = record.history.iter();
    let released = entries.by_ref().any(|entry| matches!(entry, Entry::Released { plan: by, .. } if *by == plan.id));
    if !released {
        // The entry can have been dropped from the middle of a long history: then there were attempts after it.
        let dropped = record.plan.as_deref() == Some(&plan.id) && record.attempt > frozen.attempt;
        return if dropped { Fate::Tried { accepted: false } } else { Fate::NotReleased };
    }
    match entries.next() {
        Some(Entry::Attempt(attempt)) => Fate::Tried { accepted: attempt.class == Class::Accepted },
        Some(Entry::Recalled { .. } | Entry::Released { .. }) => Fate::NotReleased,
        None => match record.state {
            // Held again, cancelled or expired before its first attempt: nothing came of its release.
            State::Held(_) | State::Cancelled | State::DeadLettered(_) | State::Rejected(_) => Fate::NotReleased,
            State::Waiting(_) | State::InFlight => Fate::Untried,
            // A late acceptance of an earlier attempt.
            State::Delivered => Fate::Tried { accepted: true },
        },
    }
}

impl Progress {
    /// Counts delivery number `index` of the list, with its record as it is now.
    pub fn count(&mut self, plan: &Plan, index: usize, frozen: &Frozen, record: Option<&Record>) {
        let tally = self.tallies.entry(frozen.endpoint.clone()).or_default();
        let fate = record.map_or(Fate::NotReleased, |record| fate(plan, frozen, record));
        match fate {
            Fate::NotReleased if index < plan.next as usize => {
                let recalled = plan.state == PlanState::Aborted && record.is_some_and(|r| was_recalled(plan, r));
                if recalled {
                    self.remaining += 1
                } else {
                    self.skipped += 1
                }
                return;
            }
            Fate::NotReleased => {
                tally.ahead += 1;
                self.remaining += 1;
                return;
            }
            Fate::Untried => {
                tally.untried += 1;
                self.untried += 1;
            }
            Fate::Tried { accepted: true } => tally.accepted += 1,
            Fate::Tried { accepted: false } => tally.refused += 1,
        }
        self.released += 1;
        let Some(record) = record else { return };
        let over = record.generation > frozen.generation + 1;
        match record.state {
            State::Delivered if !over => self.delivered += 1,
            State::DeadLettered(_) => self.failed += 1,
            State::Waiting(_) | State::InFlight | State::Held(_) | State::Delivered if over => self.failed += 1,
            State::InFlight
            | State::Waiting(_)
            | State::Held(_)
            | State::Delivered
            | State::Cancelled
            | State::Rejected(_) => {}
        }
    }

    /// What the plan does next, from what became of its deliveries: `None` when it only has to wait.
    pub fn judge(&self, plan: &Plan, now: Millis) -> Option<Plan> {
        if !plan.state.is_running() {
            return None;
        }
        let mut stopped = plan.stopped.clone();
        let waited_ms = plan.canaries_out_at.map_or(0, |at| now.since(Millis(at)));
        let mut open = false;
        for (endpoint, tally) in &self.tallies {
            if stopped.contains_key(endpoint) {
                continue;
            }
            if tally.is_failing(plan.abort_failure_ratio, plan.canary) {
                stopped.insert(endpoint.clone(), Stop::Failed);
            } else if plan.state == PlanState::Canary && tally.untried > 0 {
                if waited_ms >= VERDICT_MS {
                    stopped.insert(endpoint.clone(), Stop::NoVerdict);
                } else {
                    open = true;
                }
            }
        }
        // Nothing is left that a stop could spare.
        if plan.next >= plan.count && self.untried == 0 {
            return Some(plan.changed(|p| (p.state, p.stopped) = (PlanState::Completed, stopped)));
        }
        let all_out = plan.next >= plan.canaries;
        let none_left = !self.tallies.is_empty() && self.tallies.keys().all(|endpoint| stopped.contains_key(endpoint));
        if all_out && none_left {
            let reason = "too many first attempts failed, or nothing was heard of them, at every endpoint of the plan";
            return Some(Plan { stopped, ..plan.aborted(Who::itself(), reason, now) });
        }
        if plan.state == PlanState::Canary && all_out && plan.canaries_out_at.is_none() {
            // The last of them has its slot later, when there are many.
            let out_at = plan.slot((plan.canaries as usize).saturating_sub(1), now);
            return Some(plan.changed(|p| (p.canaries_out_at, p.stopped) = (Some(out_at.0), stopped)));
        }
        if plan.state == PlanState::Canary && all_out && !open {
            return Some(plan.changed(|p| {
                (p.state, p.ramp_from, p.stopped) = (PlanState::Ramping, Some(now.0), stopped);
            }));
        }
        (stopped != plan.stopped).then(|| plan.changed(|p| p.stopped = stopped))
    }
}

fn was_recalled(plan: &Plan, record: &Record) -> bool {
    record.history.iter().any(|entry| matches!(entry, Entry::Recalled { plan: by, .. } if *by == plan.id))
}

impl Tally {
    const fn tried(&self) -> u32 {
        self.accepted + self.refused
    }

    /// More failures than the ratio allows, even if everything that is still open in the canary were accepted.
    fn is_failing(&self, ratio: f64, canary: u32) -> bool {
        let sample = (self.tried() + self.untried).min(canary).max(self.tried());
        self.refused > 0 && f64::from(self.refused) > ratio * f64::from(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;

    fn progress(tallies: &[(&str, u32, u32, u32)]) -> Progress {
        let tally = |(endpoint, accepted, refused, untried): &(&str, u32, u32, u32)| {
            let tally = Tally { accepted: *accepted, refused: *refused, untried: *untried, ahead: 5 };
            ((*endpoint).to_owned(), tally)
        };
        let untried = tallies.iter().map(|t| t.3).sum();
        Progress { tallies: tallies.iter().map(tally).collect(), untried, ..Progress::default() }
    }

    fn out(minutes: i64) -> (Plan, Millis) {
        let plan = plan().changed(|p| (p.next, p.canaries_out_at) = (10, Some(0)));
        (plan, Millis(minutes * 60_000))
    }

    #[test]
    fn a_canary_waits_for_every_endpoint_and_then_the_ramp_begins() {
        let (plan, now) = out(1);
        assert_eq!(progress(&[("a", 10, 0, 0), ("b", 9, 0, 1)]).judge(&plan, now), None);
        let next = progress(&[("a", 10, 0, 0), ("b", 9, 1, 0)]).judge(&plan, now).unwrap();
        assert_eq!((next.state, next.ramp_from, next.stopped.len()), (PlanState::Ramping, Some(now.0), 0));
    }

    #[test]
    fn an_endpoint_that_fails_its_canary_is_stopped_and_the_others_go_on() {
        let (plan, now) = out(1);
        let next = progress(&[("a", 7, 3, 0), ("b", 10, 0, 0)]).judge(&plan, now).unwrap();
        assert_eq!(
            (next.state, next.stopped.get("a"), next.stopped.get("b")),
            (PlanState::Ramping, Some(&Stop::Failed), None)
        );
        let early = progress(&[("a", 0, 3, 7), ("b", 10, 0, 0)]).judge(&plan, now).unwrap();
        assert_eq!(early.stopped.get("a"), Some(&Stop::Failed), "three of ten are too many, whatever the rest brings");
    }

    #[test]
    fn when_every_endpoint_failed_the_plan_is_aborted_by_itself() {
        let (plan, now) = out(1);
        for tallies in [vec![("a", 0, 3, 0)], vec![("a", 0, 10, 0), ("b", 1, 2, 0)]] {
            let next = progress(&tallies).judge(&plan, now).unwrap();
            assert_eq!(next.state, PlanState::Aborted, "{tallies:?}");
            assert_eq!(next.abort.unwrap().by, Who::itself());
        }
    }

    #[test]
    fn without_a_verdict_in_time_an_endpoint_is_skipped_and_the_plan_goes_on_without_it() {
        let (plan, soon) = out(29);
        let open = progress(&[("a", 10, 0, 0), ("b", 5, 0, 5)]);
        assert_eq!(open.judge(&plan, soon), None);
        let next = open.judge(&plan, Millis(30 * 60_000)).unwrap();
        assert_eq!((next.state, next.stopped.get("b")), (PlanState::Ramping, Some(&Stop::NoVerdict)));
        let alone = progress(&[("b", 0, 0, 5)]).judge(&plan, Millis(30 * 60_000)).unwrap();
        assert_eq!(alone.state, PlanState::Aborted, "no endpoint is left");
    }

    #[test]
    fn a_ramp_stops_an_endpoint_that_begins_to_fail_and_ends_when_all_was_tried() {
        let (plan, now) = out(1);
        let ramping = plan.changed(|p| (p.state, p.ramp_from, p.next) = (PlanState::Ramping, Some(0), 500));
        assert_eq!(progress(&[("a", 400, 50, 50), ("b", 10, 0, 0)]).judge(&ramping, now), None);
        let next = progress(&[("a", 300, 100, 100), ("b", 10, 0, 0)]).judge(&ramping, now).unwrap();
        assert_eq!((next.state, next.stopped.get("a")), (PlanState::Ramping, Some(&Stop::Failed)));
        let all = ramping.changed(|p| p.next = p.count);
        assert_eq!(progress(&[("a", 990, 9, 1)]).judge(&all, now), None);
        assert_eq!(progress(&[("a", 990, 10, 0)]).judge(&all, now).unwrap().state, PlanState::Completed);
    }
}
