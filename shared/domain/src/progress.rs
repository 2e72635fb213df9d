//! How far a plan got. Counted from the records themselves, so the figures are true at every moment and add up:
//! `released + skipped + remaining = count`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::delivery::State;
use crate::outcome::Class;
use crate::plan::{Frozen, Plan, PlanState, Stop, Who};
use crate::record::{AttemptEntry, Entry, Record};
use crate::time::{Millis, SECOND_MS};

/// A canary of which nothing is known after so many milliseconds stops its endpoint.
const VERDICT_MS: i64 = 30 * 60 * SECOND_MS;

/// How far a plan got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Brought back by this plan: `delivered + failed + retrying + cancelled + untried`.
    pub released: u32,
    /// Of those, delivered.
    pub delivered: u32,
    /// Of those, dead-lettered again.
    pub failed: u32,
    /// Of those, tried without success, and on their way by their own retries.
    pub retrying: u32,
    /// Of those, cancelled after they had been tried.
    pub cancelled: u32,
    /// Of those, not tried yet.
    pub untried: u32,
    /// Had moved on, had no payload, were held again, or belonged to a stopped endpoint, when their turn came.
    pub skipped: u32,
    /// Not handled yet; in an aborted plan: untouched.
    pub remaining: u32,
    /// Per state key.
    #[serde(skip)]
    pub tallies: BTreeMap<String, Tally>,
}

/// What became of the first attempts after the release, for one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tried, and accepted.
    pub accepted: u32,
    /// Tried, and not accepted.
    pub refused: u32,
    /// Released, and not tried yet.
    pub untried: u32,
    /// Skipped when their turn had come.
    pub skipped: u32,
    /// Of those, held again: the endpoint takes nothing.
    pub held: u32,
    /// Not handled yet.
    pub ahead: u32,
    /// The first of those that could take the place of a skipped canary, while there is one: number in the list, and what
    /// was frozen.
    pub spare: Vec<(usize, Frozen)>,
}

/// What became of a delivery after this plan released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// This plan did not release it, or took it back.
    NotReleased,
    /// Released, and held before its first attempt.
    HeldAgain,
    /// Its first attempt has not ended.
    Untried,
    /// Its first attempt ended so, and it ended so since.
    Tried { accepted: bool, end: End },
}

/// What became of it after its first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Delivered,
    Failed,
    Retrying,
    Cancelled,
}

fn fate(plan: &Plan, frozen: &Frozen, record: &Record) -> Fate {
    let by_this = |entry: &Entry| matches!(entry, Entry::Released { plan: by, .. } if *by == plan.id);
    let Some(released) = record.history.iter().rposition(by_this) else {
        // The entry can have been dropped from the middle of a long history: then there were attempts after it.
        let dropped = record.plan.as_deref() == Some(&plan.id) && record.attempt > frozen.attempt;
        return if dropped { Fate::Tried { accepted: false, end: end(record) } } else { Fate::NotReleased };
    };
    // What happened until somebody else released it again is what this plan is about.
    let later = &record.history[released + 1..];
    let ended = later.iter().position(|entry| matches!(entry, Entry::Released { .. } | Entry::Recalled { .. }));
    let attempts = later[..ended.unwrap_or(later.len())].iter().filter_map(|entry| match entry {
        Entry::Attempt(attempt) => Some(attempt),
        Entry::Released { .. } | Entry::Recalled { .. } => None,
    });
    let accepted = |attempt: &AttemptEntry| attempt.class == Class::Accepted;
    let (mut first, mut last) = (None, None);
    for attempt in attempts {
        first = first.or(Some(attempt));
        last = Some(attempt);
    }
    if let (Some(first), Some(last)) = (first, last) {
        // Of a long history the first attempt may be gone: it failed, or there would not be another.
        let accepted_first = first.number == frozen.attempt.saturating_add(1) && accepted(first);
        let end = match ended {
            None => end(record),
            Some(_) if accepted(last) => End::Delivered,
            Some(_) => End::Failed,
        };
        return Fate::Tried { accepted: accepted_first, end };
    }
    if ended.is_some() {
        return Fate::NotReleased;
    }
    match record.state {
        State::Held(_) => Fate::HeldAgain,
        // Cancelled or expired before its first attempt: nothing came of its release.
        State::Cancelled | State::DeadLettered(_) | State::Rejected(_) => Fate::NotReleased,
        State::Waiting(_) | State::InFlight => Fate::Untried,
        // A late acceptance of an earlier attempt.
        State::Delivered => Fate::Tried { accepted: true, end: End::Delivered },
    }
}

fn end(record: &Record) -> End {
    match record.state {
        State::Delivered => End::Delivered,
        State::DeadLettered(_) | State::Rejected(_) => End::Failed,
        State::Cancelled => End::Cancelled,
        State::Waiting(_) | State::InFlight | State::Held(_) => End::Retrying,
    }
}

impl Progress {
    /// Counts delivery number `index` of the list, with its record as it is now.
    pub fn count(&mut self, plan: &Plan, index: usize, frozen: &Frozen, record: Option<&Record>, now: Millis) {
        let tally = self.tallies.entry(frozen.group.clone()).or_default();
        let fate = record.map_or(Fate::NotReleased, |record| fate(plan, frozen, record));
        match fate {
            Fate::NotReleased | Fate::HeldAgain if index < plan.next as usize => {
                let recalled = plan.state == PlanState::Aborted && record.is_some_and(|r| was_recalled(plan, r));
                if recalled {
                    self.remaining += 1;
                } else {
                    self.skipped += 1;
                    tally.skipped += 1;
                    tally.held += u32::from(fate == Fate::HeldAgain);
                }
            }
            Fate::NotReleased | Fate::HeldAgain => {
                self.remaining += 1;
                tally.ahead += 1;
                tally.held += u32::from(fate == Fate::HeldAgain);
                let fit = record.is_some_and(|r| frozen.still_describes(r) && r.payload_kept_until > Some(now));
                if fit && plan.state == PlanState::Canary && tally.spare.len() < 2 * plan.canary as usize {
                    tally.spare.push((index, frozen.clone()));
                }
            }
            Fate::Untried => {
                self.released += 1;
                self.untried += 1;
                tally.untried += 1;
            }
            Fate::Tried { accepted, end } => {
                self.released += 1;
                *(if accepted { &mut tally.accepted } else { &mut tally.refused }) += 1;
                *match end {
                    End::Delivered => &mut self.delivered,
                    End::Failed => &mut self.failed,
                    End::Retrying => &mut self.retrying,
                    End::Cancelled => &mut self.cancelled,
                } += 1;
            }
        }
    }

    /// What takes the place of canaries that were skipped, so that each endpoint is judged by as many as was asked for. None
    /// where a canary was held again: the next one would be, too. `unfit` are numbers that could not be released.
    pub fn substitutes(&self, plan: &Plan, unfit: &BTreeSet<usize>) -> Vec<(usize, Frozen)> {
        if plan.state != PlanState::Canary || plan.canaries_out_at.is_none() {
            return Vec::new();
        }
        let lacking = |tally: &Tally| (tally.wanted(plan.canary) - tally.sample()) as usize;
        let open = self.tallies.iter().filter(|(group, tally)| !plan.stopped.contains_key(*group) && tally.held == 0);
        open.flat_map(|(_, tally)| {
            tally.spare.iter().filter(|(index, _)| !unfit.contains(index)).take(lacking(tally)).cloned()
        })
        .collect()
    }

    /// What the plan does next, from what became of its deliveries: `None` when it only has to wait.
    pub fn judge(&self, plan: &Plan, now: Millis) -> Option<Plan> {
        if !plan.state.is_running() {
            return None;
        }
        let mut stopped = plan.stopped.clone();
        let waited_ms = plan.canaries_out_at.map_or(0, |at| now.since(Millis(at)));
        let failing = |tally: &Tally| tally.is_failing(plan.abort_failure_ratio, plan.canary);
        let mut open = false;
        // A stop spares what lies ahead; where nothing does, there is nothing to decide.
        let to_spare = |tally: &Tally| tally.ahead > 0 || tally.untried > 0 && tally.sample() > plan.canary;
        for (group, tally) in self.tallies.iter().filter(|(_, tally)| to_spare(tally)) {
            if stopped.contains_key(group) {
                continue;
            }
            let judged = tally.untried == 0 && tally.tried() >= tally.wanted(plan.canary);
            if failing(tally) {
                stopped.insert(group.clone(), Stop::Failed);
            } else if plan.state == PlanState::Canary && !judged {
                let hopeless = tally.untried == 0 && plan.canaries_out_at.is_some();
                if hopeless || waited_ms >= VERDICT_MS {
                    stopped.insert(group.clone(), Stop::NoVerdict);
                } else {
                    open = true;
                }
            }
        }
        if plan.next >= plan.count && self.untried == 0 {
            return Some(plan.changed(|p| (p.state, p.stopped) = (PlanState::Completed, stopped)));
        }
        let all_out = plan.next >= plan.canaries;
        let given_up = |(group, tally): (&String, &Tally)| stopped.contains_key(group) || failing(tally);
        if all_out && !self.tallies.is_empty() && self.tallies.iter().all(given_up) {
            let reason = "too many first attempts failed, or nothing was heard of them, at every endpoint of the plan";
            return Some(Plan { stopped, ..plan.aborted(Who::itself(), reason, now) });
        }
        let spared = |(group, tally): (&String, &Tally)| tally.ahead == 0 || stopped.contains_key(group);
        if all_out && plan.next < plan.count && self.tallies.iter().all(spared) {
            // All that is left belongs to stopped endpoints.
            return Some(plan.changed(|p| {
                (p.state, p.ramp_from) = (PlanState::Ramping, p.ramp_from.or(Some(now.0)));
                (p.next, p.stopped) = (p.count, stopped);
            }));
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

    /// Tried, or about to be.
    const fn sample(&self) -> u32 {
        self.tried() + self.untried
    }

    /// By how many first attempts the endpoint has to be judged: a canary, or all that it has.
    fn wanted(&self, canary: u32) -> u32 {
        canary.min(self.sample() + self.ahead).max(self.sample())
    }

    /// More failures than the ratio allows, even if everything that is still open in the canary were accepted.
    fn is_failing(&self, ratio: f64, canary: u32) -> bool {
        let sample = self.sample().min(canary).max(self.tried());
        f64::from(self.refused) > ratio * f64::from(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Decision;
    use crate::delivery::{DeadReason, HeldReason, WaitingReason};
    use crate::plan::tests::plan;
    use crate::transition::tests::{RETENTION, failed, in_flight, lease};
    use crate::transition::{Finished, cancel, claim, finish, hold, recall, release};

    const DEAD: Decision = Decision::Dead(DeadReason::Permanent);
    const RETRY: Decision = Decision::Retry { due: Millis(500) };
    const NOW: Millis = Millis(50);

    /// A dead letter after one attempt, whose payload is kept a moment longer than now.
    fn dead() -> Record {
        let dead = finish(&in_flight(1), &failed(), DEAD, None, RETENTION, Millis(1)).unwrap();
        Record { payload_kept_until: Some(NOW.plus(1)), ..dead }
    }

    fn brought_back(record: &Record, plan: &str) -> Record {
        release(record, plan, Millis(10), Millis(99), RETENTION, Millis(10)).unwrap()
    }

    fn tried(record: &Record, class: Class, decision: Decision) -> Record {
        let claimed = claim(record, lease("w"), Millis(20)).unwrap();
        finish(&claimed, &Finished { class, ..failed() }, decision, None, RETENTION, Millis(30)).unwrap()
    }

    /// What a plan that has handled `next` of its list counts of the first one.
    fn counted(plan: &Plan, now: Option<&Record>) -> (Progress, Tally) {
        let mut progress = Progress::default();
        progress.count(plan, 0, &Frozen::of(&dead()), now, NOW);
        let tally = progress.tallies.values().next().unwrap().clone();
        (Progress { tallies: BTreeMap::new(), ..progress }, tally)
    }

    #[test]
    fn a_delivery_counts_for_what_became_of_it_after_its_release() {
        let plan = plan().changed(|p| p.next = 1);
        let of = |now: &Record| counted(&plan, Some(now));
        let (zero, none) = (Progress::default(), Tally::default());
        let (accepted, refused) = (Tally { accepted: 1, ..none.clone() }, Tally { refused: 1, ..none.clone() });
        let released = Progress { released: 1, ..zero.clone() };
        let skipped = (Progress { skipped: 1, ..zero.clone() }, Tally { skipped: 1, ..none.clone() });
        let delivered = Progress { delivered: 1, ..released.clone() };
        let failed = Progress { failed: 1, ..released.clone() };
        let retrying = Progress { retrying: 1, ..released.clone() };
        let back = brought_back(&dead(), "plan");
        assert_eq!(of(&dead()), skipped, "its turn has passed");
        assert_eq!(counted(&plan, None), skipped, "its record is gone");
        assert_eq!(of(&back), (Progress { untried: 1, ..released.clone() }, Tally { untried: 1, ..none.clone() }));
        let success = tried(&back, Class::Accepted, Decision::Deliver);
        assert_eq!(of(&success), (delivered.clone(), accepted.clone()));
        let again = tried(&back, Class::Transient, RETRY);
        assert_eq!(of(&again), (retrying, refused.clone()));
        assert_eq!(of(&tried(&again, Class::Accepted, Decision::Deliver)), (delivered.clone(), refused.clone()));
        let gave_up = tried(&back, Class::Permanent, DEAD);
        assert_eq!(of(&gave_up), (failed.clone(), refused.clone()));
        let cancelled = Progress { cancelled: 1, ..released };
        assert_eq!(of(&cancel(&again, "", RETENTION, NOW).unwrap()), (cancelled, refused.clone()));
        let held = hold(&back, HeldReason::Paused, RETENTION, NOW).unwrap();
        assert_eq!(of(&held), (skipped.0.clone(), Tally { held: 1, ..skipped.1.clone() }));
        assert_eq!(of(&cancel(&back, "", RETENTION, NOW).unwrap()), skipped, "cancelled before it was tried");
        // What another plan makes of it later is that plan's success or failure.
        let another = tried(&brought_back(&gave_up, "another"), Class::Accepted, Decision::Deliver);
        assert_eq!(of(&another), (failed, refused));
        let another = tried(&brought_back(&success, "another"), Class::Permanent, DEAD);
        assert_eq!(of(&another), (delivered, accepted));
    }

    #[test]
    fn what_an_aborted_plan_took_back_is_untouched_and_what_it_passed_over_stays_skipped() {
        let running = plan().changed(|p| p.next = 1);
        let aborted = running.aborted(Who::itself(), "x", Millis(20));
        let taken_back = |plan| recall(&brought_back(&dead(), plan), RETENTION, Millis(30)).unwrap().unwrap();
        let of = |plan: &Plan, now: &Record| {
            let (progress, _) = counted(plan, Some(now));
            (progress.remaining, progress.skipped)
        };
        assert_eq!(of(&aborted, &taken_back("plan")), (1, 0));
        assert_eq!(of(&aborted, &dead()), (0, 1));
        assert_eq!(of(&aborted, &taken_back("another")), (0, 1));
        assert_eq!(of(&running, &taken_back("plan")), (0, 1));
    }

    #[test]
    fn a_release_that_dropped_out_of_a_long_history_still_counts_when_attempts_followed() {
        let plan = plan().changed(|p| p.next = 1);
        let mut record = brought_back(&dead(), "plan");
        record.history.retain(|entry| matches!(entry, Entry::Attempt(_)));
        record.state = State::Waiting(WaitingReason::Retry);
        let fate = |record: &Record| fate(&plan, &Frozen::of(&dead()), record);
        let tried = Fate::Tried { accepted: false, end: End::Retrying };
        assert_eq!(fate(&record), Fate::NotReleased, "no attempt since");
        record.attempt += 1;
        assert_eq!(fate(&record), tried);
        record.attempt += 1;
        assert_eq!(fate(&record), tried);
        record.plan = Some("another".to_owned());
        assert_eq!(fate(&record), Fate::NotReleased);
        // Of a first attempt that dropped out, a later success is none of it.
        let mut record = self::tried(&brought_back(&dead(), "plan"), Class::Accepted, Decision::Deliver);
        assert_eq!(fate(&record), Fate::Tried { accepted: true, end: End::Delivered });
        let Some(Entry::Attempt(attempt)) = record.history.last_mut() else { panic!("an attempt") };
        attempt.number += 1;
        assert_eq!(fate(&record), Fate::Tried { accepted: false, end: End::Delivered });
    }

    #[test]
    fn what_lies_ahead_is_spare_while_it_could_be_tried() {
        let canary = plan().changed(|p| p.canary = 1);
        let ahead = |plan: &Plan, record: &Record| {
            let (progress, tally) = counted(plan, Some(record));
            assert_eq!((progress.remaining, tally.ahead, progress.skipped), (1, 1, 0));
            (tally.spare.len(), tally.held)
        };
        assert_eq!(ahead(&canary, &dead()), (1, 0));
        let gone = Record { payload_kept_until: Some(NOW), ..dead() };
        assert_eq!(ahead(&canary, &gone), (0, 0), "its payload may be gone");
        assert_eq!(ahead(&canary, &Record { attempt: 2, ..dead() }), (0, 0), "it has moved on");
        let ramping = canary.changed(|p| p.state = PlanState::Ramping);
        assert_eq!(ahead(&ramping, &dead()), (0, 0), "no canary is wanted any more");
        let held = hold(&brought_back(&dead(), "plan"), HeldReason::Paused, RETENTION, NOW).unwrap();
        assert_eq!(ahead(&canary, &held), (0, 1));
        let mut progress = Progress::default();
        (0..5).for_each(|i| progress.count(&canary, i, &Frozen::of(&dead()), Some(&dead()), NOW));
        let spare: Vec<usize> = progress.tallies.values().flat_map(|t| t.spare.iter().map(|(i, _)| *i)).collect();
        assert_eq!(spare, [0, 1], "twice as many as a canary");
    }

    #[test]
    fn others_take_the_place_of_skipped_canaries_where_the_endpoint_takes_any() {
        let (plan, _) = out(1);
        let spare: Vec<(usize, Frozen)> = (20..40).map(|index| (index, Frozen::of(&dead()))).collect();
        let tally = Tally { accepted: 3, refused: 1, untried: 2, skipped: 4, ahead: 50, spare, ..Tally::default() };
        let substitutes = |plan: &Plan, tally: &Tally, unfit: &[usize]| -> Vec<usize> {
            let tallies = [("a".to_owned(), tally.clone())].into();
            let progress = Progress { tallies, ..Progress::default() };
            progress.substitutes(plan, &unfit.iter().copied().collect()).into_iter().map(|(index, _)| index).collect()
        };
        assert_eq!(substitutes(&plan, &tally, &[]), [20, 21, 22, 23], "as many as are missing of ten");
        assert_eq!(substitutes(&plan, &tally, &[20, 22]), [21, 23, 24, 25]);
        assert_eq!(substitutes(&plan, &Tally { ahead: 2, ..tally.clone() }, &[]), [20, 21], "there are no more");
        assert_eq!(substitutes(&plan, &Tally { held: 1, ..tally.clone() }, &[]), [0; 0]);
        for not_now in [
            plan.changed(|p| p.canaries_out_at = None),
            plan.changed(|p| p.state = PlanState::Ramping),
            plan.changed(|p| p.stopped = [("a".to_owned(), Stop::Failed)].into()),
        ] {
            assert_eq!(substitutes(&not_now, &tally, &[]), [0; 0]);
        }
    }

    #[test]
    fn an_endpoint_is_stopped_only_where_something_is_spared() {
        let (plan, now) = out(1);
        let ramping = plan.changed(|p| (p.state, p.ramp_from, p.next) = (PlanState::Ramping, Some(0), 500));
        let stop = |refused, untried, ahead| {
            let tally = |refused, untried, ahead| Tally { refused, untried, ahead, ..Tally::default() };
            let tallies = [("a".to_owned(), tally(refused, untried, ahead)), ("b".to_owned(), tally(0, 0, 50))];
            let next = Progress { tallies: tallies.into(), untried, ..Progress::default() }.judge(&ramping, now);
            next.and_then(|next| next.stopped.get("a").copied())
        };
        assert_eq!(stop(20, 0, 1), Some(Stop::Failed), "one lies ahead");
        assert_eq!(stop(20, 0, 0), None, "all have been tried");
        assert_eq!(stop(10, 1, 0), Some(Stop::Failed), "one more than a canary waits for its first attempt");
        assert_eq!(stop(9, 1, 0), None, "what waits is the canary itself");
        assert_eq!(stop(5, 1, 0), None);
    }

    #[test]
    fn a_plan_is_through_when_only_stopped_endpoints_lie_ahead() {
        let (plan, now) = out(1);
        let stopped = [("b".to_owned(), Stop::Failed)];
        let ramping = plan.changed(|p| (p.state, p.ramp_from, p.next) = (PlanState::Ramping, Some(0), 500));
        let ramping = ramping.changed(|p| p.stopped = stopped.into());
        let judged = |plan: &Plan, ahead, untried| {
            let a = Tally { accepted: 400, ahead, untried, ..Tally::default() };
            let b = Tally { refused: 10, ahead: 50, ..Tally::default() };
            let tallies = [("a".to_owned(), a), ("b".to_owned(), b)].into();
            Progress { tallies, untried, ..Progress::default() }
                .judge(plan, now)
                .map(|p| (p.state, p.ramp_from, p.next))
        };
        assert_eq!(judged(&ramping, 0, 1), Some((PlanState::Ramping, Some(0), ramping.count)));
        assert_eq!(judged(&ramping, 1, 1), None, "another one lies ahead");
        let through = ramping.changed(|p| p.next = p.count);
        assert_eq!(judged(&through, 0, 1), None, "the last one has not been tried");
        let canary = ramping.changed(|p| (p.state, p.ramp_from, p.next) = (PlanState::Canary, None, p.canaries));
        assert_eq!(judged(&canary, 0, 1), Some((PlanState::Ramping, Some(now.0), canary.count)));
        let not_out = Plan { next: canary.canaries - 1, canaries_out_at: None, ..canary };
        assert_eq!(judged(&not_out, 0, 1), None, "a canary is not out");
    }

    #[test]
    fn an_endpoint_with_few_deliveries_is_judged_by_those() {
        let (plan, now) = out(1);
        let verdict = |accepted, refused, ahead| {
            let tally = |accepted, refused, ahead| Tally { accepted, refused, ahead, ..Tally::default() };
            let tallies = [("a".to_owned(), tally(accepted, refused, ahead)), ("b".to_owned(), tally(10, 0, 50))];
            let next = Progress { tallies: tallies.into(), ..Progress::default() }.judge(&plan, now).unwrap();
            next.stopped.get("a").copied()
        };
        assert_eq!(verdict(4, 1, 0), None, "nothing is left to spare");
        assert_eq!(verdict(8, 2, 1), None, "a fifth is the ratio");
        assert_eq!(verdict(7, 3, 1), Some(Stop::Failed));
        assert_eq!(verdict(8, 1, 1), Some(Stop::NoVerdict), "one is missing, and none is on its way");
    }

    fn progress(tallies: &[(&str, u32, u32, u32)]) -> Progress {
        let tally = |(endpoint, accepted, refused, untried): &(&str, u32, u32, u32)| {
            let tally =
                Tally { accepted: *accepted, refused: *refused, untried: *untried, ahead: 50, ..Tally::default() };
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
        let not_all_out = Plan { next: 9, canaries_out_at: None, ..plan.clone() };
        assert_eq!(progress(&[("a", 9, 0, 0)]).judge(&not_all_out, now), None);
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
