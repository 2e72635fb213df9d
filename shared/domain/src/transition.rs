//! Every change a record can undergo, one named constructor each. They compute the next record and touch nothing else;
//! the store writes the difference, under the condition that state, attempt and revision are still what we believed.

use crate::decide::Decision;
use crate::delivery::{DeadReason, HeldReason};
use crate::delivery::{Event, Illegal, State, WaitingReason, apply};
use crate::id::{DeliveryKey, StateKey};
use crate::message::{CancelRequest, Message};
use crate::outcome::{Class, Phase};
use crate::payload::PayloadRef;
use crate::record::{ABANDONED, AttemptEntry, EXCERPT_BYTES, Entry, Lease, Record};
use crate::settings::Retention;
use crate::time::{Millis, SECOND_MS};

/// So many abandoned attempts in a row end a delivery as `crashed`.
pub const CRASHES_IN_A_ROW: usize = 3;

/// A message that has arrived: what a first record is made of.
#[derive(Clone, Debug)]
pub struct Arrival<'a> {
    /// The message.
    pub message: &'a Message,
    /// When it was put on the queue.
    pub accepted_at: Millis,
    /// Who put it there.
    pub sender: Option<&'a str>,
    /// Attempts that the endpoint's policy allows.
    pub budget: u32,
}

/// A record that has just come to be in a state, and about which nothing else is known yet.
fn blank(key: &DeliveryKey, state_key: &StateKey, state: State, now: Millis) -> Record {
    Record {
        key: key.clone(),
        state_key: state_key.clone(),
        state,
        since: now,
        rev: 1,
        attempt: 0,
        generation: 0,
        budget_from: 0,
        budget: 0,
        lease: None,
        due: None,
        armed_at: None,
        rearms: 0,
        cancel_requested: false,
        accepted_late: false,
        plan: None,
        released_from: None,
        booked: false,
        payload: None,
        payload_kept_until: None,
        correlation_id: None,
        accepted_at: now,
        sender: None,
        deliver_by: None,
        completed_at: None,
        expires_at: None,
        history: Vec::new(),
        history_dropped: 0,
        excerpt: None,
        cancelled_because: None,
    }
}

impl Arrival<'_> {
    fn record(&self, event: Event, now: Millis) -> Result<Record, Illegal> {
        let message = self.message;
        Ok(Record {
            budget: self.budget,
            payload: Some(PayloadRef::from(&message.payload)),
            correlation_id: message.correlation_id.clone(),
            accepted_at: self.accepted_at,
            sender: self.sender.map(ToOwned::to_owned),
            deliver_by: message.deliver_by,
            ..blank(&message.key, &message.state_key, apply(None, event)?, now)
        })
    }

    /// The first attempt starts with the record.
    pub fn claimed(&self, lease: Lease, now: Millis) -> Result<Record, Illegal> {
        Ok(Record { attempt: 1, lease: Some(lease), ..self.record(Event::Claim, now)? })
    }

    /// No attempt yet: due at a time. The payload is kept already.
    pub fn waiting(
        &self,
        reason: WaitingReason,
        due: Millis,
        kept_until: Millis,
        now: Millis,
    ) -> Result<Record, Illegal> {
        Ok(Record { due: Some(due), payload_kept_until: Some(kept_until), ..self.record(Event::Wait(reason), now)? })
    }

    /// No attempt yet: kept back. The payload is kept already.
    pub fn held(&self, reason: HeldReason, kept_until: Millis, now: Millis) -> Result<Record, Illegal> {
        let mut record = Record { payload_kept_until: Some(kept_until), ..self.record(Event::Hold(reason), now)? };
        record.due = held_due(&record);
        Ok(record)
    }

    /// Too late before the first attempt. The payload is kept already.
    pub fn expired(&self, kept_until: Millis, retention: Retention, now: Millis) -> Result<Record, Illegal> {
        let mut record = Record { payload_kept_until: Some(kept_until), ..self.record(Event::Expire, now)? };
        enter(&mut record, retention, now);
        Ok(record)
    }
}

/// Until when a payload must be kept at least: past everything that may still need it, by its retention.
pub fn keep_until(due: Option<Millis>, deliver_by: Option<Millis>, now: Millis, retention: Retention) -> Millis {
    now.max(due.unwrap_or(now)).max(deliver_by.unwrap_or(now)).plus(retention.payload_ms)
}

/// A held record comes up in the due index at its deadline, or when its payload needs extending.
fn held_due(record: &Record) -> Option<Millis> {
    let extension = record.payload_kept_until.map(|until| until.plus(-crate::sweep::EXTEND_BEFORE_MS));
    record.deliver_by.into_iter().chain(extension).min()
}

/// Sets what follows from entering a state: places in the indexes and, for final states, the clean-up time.
fn enter(record: &mut Record, retention: Retention, now: Millis) {
    (record.completed_at, record.expires_at) = (None, None);
    match record.state {
        State::InFlight | State::Waiting(_) => {}
        State::Held(_) => record.due = held_due(record),
        State::DeadLettered(_) | State::Rejected(_) => record.due = Some(now),
        State::Delivered | State::Cancelled => record.due = None,
    }
    if record.state.is_final() {
        record.completed_at = Some(now);
        // Whole seconds: that is what the table can store.
        record.expires_at = Some(Millis(now.plus(retention.record_ms).seconds_up() * SECOND_MS));
    }
}

fn moved(record: &Record, event: Event, retention: Retention, now: Millis) -> Result<Record, Illegal> {
    let mut next = record.clone();
    next.state = apply(Some(record.state), event)?;
    next.since = now;
    next.rev += 1;
    next.lease = None;
    next.armed_at = None;
    next.rearms = 0;
    next.cancel_requested = false;
    next.accepted_late = false;
    enter(&mut next, retention, now);
    Ok(next)
}

/// A wake-up starts the next attempt of a waiting delivery. Leaves its place in the index alone, so that the sweep sees
/// an expired lease and the claim costs no index write. The store makes this change without reading first.
pub fn claim(record: &Record, lease: Lease, now: Millis) -> Result<Record, Illegal> {
    let mut next = record.clone();
    next.state = apply(Some(record.state), Event::Claim)?;
    next.since = now;
    next.rev += 1;
    next.attempt += 1;
    next.lease = Some(lease);
    next.released_from = None;
    next.booked = false;
    Ok(next)
}

/// What an attempt found out.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What its outcome counts as.
    pub class: Class,
    /// How far it got.
    pub phase: Phase,
    /// Status of the answer.
    pub status: Option<u16>,
    /// Cause of a failure without an answer.
    pub detail: Option<String>,
    /// Until when the endpoint asked us to wait.
    pub hint: Option<Millis>,
    /// Start of the answer, printable.
    pub excerpt: Option<String>,
    /// Attempts that the endpoint's policy allows now.
    pub budget: u32,
}

/// The holder of an attempt records what came of it. `kept_until` is the retention of the payload, which is kept
/// already unless the delivery is over.
pub fn finish(
    record: &Record,
    finished: &Finished,
    decision: Decision,
    kept_until: Option<Millis>,
    retention: Retention,
    now: Millis,
) -> Result<Record, Illegal> {
    let event = match decision {
        Decision::Deliver => Event::FinishAccepted,
        Decision::Retry { .. } => Event::FinishRetry,
        Decision::Dead(reason) => Event::FinishDead(reason),
        Decision::Cancel => Event::FinishCancelled,
    };
    let mut next = moved(record, event, retention, now)?;
    if let Decision::Retry { due } = decision {
        next.due = Some(due);
    }
    next.budget = finished.budget;
    next.payload_kept_until = kept_until.or(record.payload_kept_until);
    if finished.class != Class::Accepted {
        next.excerpt = finished.excerpt.clone().map(|mut text| {
            text.truncate(text.floor_char_boundary(EXCERPT_BYTES));
            text
        });
    }
    if let Some(lease) = &record.lease {
        next.remember(Entry::Attempt(Box::new(AttemptEntry {
            number: record.attempt,
            started: record.since,
            phase: finished.phase,
            class: finished.class,
            status: finished.status,
            duration_ms: now.since(record.since),
            hint: finished.hint,
            decision: next.state,
            detail: finished.detail.clone(),
            claim_id: lease.claim_id.clone(),
        })));
    }
    Ok(next)
}

/// Who takes over an attempt whose lease ran out.
#[derive(Clone, Debug)]
pub enum Heir {
    /// A message that can start the next attempt at once.
    Message(Lease),
    /// The sweep, or a message that may not start one: it waits, due now. The payload is kept at least until then.
    Queue(Millis),
}

/// What a takeover leads to, before it is written: `None` means that another attempt follows.
pub fn end_after_abandon(record: &Record, now: Millis) -> Option<Event> {
    if record.accepted_late {
        Some(Event::TakeOverAccepted)
    } else if record.cancel_requested {
        Some(Event::TakeOverCancelled)
    } else if record.used() >= record.budget || record.abandoned_in_a_row() + 1 >= CRASHES_IN_A_ROW {
        Some(Event::TakeOverDead(DeadReason::Crashed))
    } else if record.deliver_by.is_some_and(|by| by <= now) {
        Some(Event::TakeOverDead(DeadReason::Expired))
    } else {
        None
    }
}

/// Records the attempt in flight as abandoned and goes on: the endpoint may have it, so its class is `unknown`.
pub fn take_over(
    record: &Record,
    heir: Heir,
    kept_until: Option<Millis>,
    retention: Retention,
    now: Millis,
) -> Result<Record, Illegal> {
    let end = end_after_abandon(record, now);
    let event = end.unwrap_or(match heir {
        Heir::Message(_) => Event::TakeOverClaim,
        Heir::Queue(_) => Event::TakeOverWait,
    });
    let mut next = abandon(record, event, retention, now)?;
    next.payload_kept_until = kept_until.or(record.payload_kept_until);
    if end.is_none() {
        match heir {
            Heir::Message(lease) => {
                next.attempt += 1;
                next.lease = Some(lease);
            }
            Heir::Queue(due) => next.due = Some(due),
        }
    }
    Ok(next)
}

/// The message of an abandoned attempt is not accepted any more: without its payload there is nothing to send.
pub fn give_up(record: &Record, retention: Retention, now: Millis) -> Result<Record, Illegal> {
    let end = end_after_abandon(record, now).unwrap_or(Event::TakeOverDead(DeadReason::PayloadLost));
    abandon(record, end, retention, now)
}

/// Ends the attempt in flight as abandoned.
fn abandon(record: &Record, event: Event, retention: Retention, now: Millis) -> Result<Record, Illegal> {
    let mut next = moved(record, event, retention, now)?;
    if let Some(lease) = &record.lease {
        next.remember(Entry::Attempt(Box::new(AttemptEntry {
            number: record.attempt,
            started: record.since,
            phase: Phase::Claimed,
            class: Class::Unknown,
            status: None,
            duration_ms: now.since(record.since),
            hint: None,
            decision: next.state,
            detail: Some(ABANDONED.to_owned()),
            claim_id: lease.claim_id.clone(),
        })));
    }
    Ok(next)
}

/// A fenced attempt learnt that the endpoint had accepted it: a pending retry is void, a later attempt in flight will
/// end as delivered whatever it brings.
pub fn late_accept(record: &Record, retention: Retention, now: Millis) -> Result<Record, Illegal> {
    if record.state == State::InFlight {
        apply(Some(record.state), Event::LateAccept)?;
        return Ok(Record { accepted_late: true, rev: record.rev + 1, ..record.clone() });
    }
    moved(record, Event::LateAccept, retention, now)
}

/// `deliver_by` passed before an attempt could start.
pub fn expire(record: &Record, retention: Retention, now: Millis) -> Result<Record, Illegal> {
    moved(record, Event::Expire, retention, now)
}

/// The kept payload is gone.
pub fn lose_payload(record: &Record, retention: Retention, now: Millis) -> Result<Record, Illegal> {
    moved(record, Event::LosePayload, retention, now)
}

/// A gate says "not now, and nobody knows when".
pub fn hold(record: &Record, reason: HeldReason, retention: Retention, now: Millis) -> Result<Record, Illegal> {
    moved(record, Event::Hold(reason), retention, now)
}

/// Cancels, or asks the attempt in flight to.
pub fn cancel(record: &Record, because: &str, retention: Retention, now: Millis) -> Result<Record, Illegal> {
    let next = if record.state == State::InFlight {
        apply(Some(record.state), Event::Cancel)?;
        Record { cancel_requested: true, rev: record.rev + 1, ..record.clone() }
    } else {
        moved(record, Event::Cancel, retention, now)?
    };
    Ok(Record { cancelled_because: Some(because.to_owned()), ..next })
}

/// A cancel that comes before its message: a record that suppresses it.
pub fn tombstone(
    request: &CancelRequest,
    because: &str,
    sender: Option<&str>,
    retention: Retention,
    now: Millis,
) -> Result<Record, Illegal> {
    let mut record = Record {
        sender: sender.map(ToOwned::to_owned),
        cancelled_because: Some(because.to_owned()),
        ..blank(&request.key, &request.state_key, apply(None, Event::Cancel)?, now)
    };
    enter(&mut record, retention, now);
    Ok(record)
}

/// Marks a waiting record, so that the stream carries it and the relay sends a wake-up; nothing else changes.
/// `again` counts it as a repair. The sweep and an early wake-up use it.
pub fn touch(record: &Record, again: bool, now: Millis) -> Record {
    Record { armed_at: Some(now), rearms: record.rearms + u32::from(again), rev: record.rev + 1, ..record.clone() }
}

/// Keeps the payload of a record that is not final longer.
pub fn extend(record: &Record, kept_until: Millis) -> Record {
    let mut next = Record { payload_kept_until: Some(kept_until), rev: record.rev + 1, ..record.clone() };
    if matches!(next.state, State::Held(_)) {
        next.due = held_due(&next);
    }
    next
}

/// An approved plan releases a delivery, due at its slot: a dead letter with a new generation and budget, a held one as it
/// is.
pub fn release(
    record: &Record,
    plan: &str,
    due: Millis,
    kept_until: Millis,
    retention: Retention,
    now: Millis,
) -> Result<Record, Illegal> {
    let held = matches!(record.state, State::Held(_));
    let mut next = moved(record, if held { Event::Release } else { Event::Redrive }, retention, now)?;
    next.due = Some(due);
    if !held {
        next.generation += 1;
        next.budget_from = record.attempt;
    }
    next.plan = Some(plan.to_owned());
    next.released_from = Some(record.state);
    next.booked = false;
    next.payload_kept_until = Some(kept_until);
    next.remember(Entry::Released { at: now, plan: plan.to_owned(), generation: next.generation });
    Ok(next)
}

/// Its plan goes too fast at this moment: due at a slot that is booked for it. No attempt is used.
pub fn defer(record: &Record, slot: Millis, retention: Retention, now: Millis) -> Result<Record, Illegal> {
    let mut next = moved(record, Event::Wait(WaitingReason::Deferred), retention, now)?;
    next.due = Some(slot);
    next.booked = true;
    Ok(next)
}

/// Its plan was aborted before its first attempt: back to where it came from, as old as it was. `None` when it did not come
/// from a plan, or has been tried since.
pub fn recall(record: &Record, retention: Retention, now: Millis) -> Result<Option<Record>, Illegal> {
    let (Some(from), Some(plan)) = (record.released_from, &record.plan) else { return Ok(None) };
    let mut next = moved(record, Event::Recall(from), retention, now)?;
    let last = record.attempts().next_back().map(|a| a.started.plus(a.duration_ms));
    if let (State::DeadLettered(_), Some(ended)) = (from, last) {
        (next.since, next.due) = (ended, Some(ended));
    }
    next.remember(Entry::Recalled { at: now, plan: plan.clone() });
    (next.plan, next.released_from, next.booked) = (None, None, false);
    Ok(Some(next))
}

/// The endpoint of a held delivery takes deliveries again: due at its slot. Not a decision about this delivery, so neither
/// generation nor budget change.
pub fn resume(
    record: &Record,
    due: Millis,
    kept_until: Millis,
    retention: Retention,
    now: Millis,
) -> Result<Record, Illegal> {
    let mut next = moved(record, Event::Release, retention, now)?;
    next.due = Some(due);
    next.payload_kept_until = Some(kept_until);
    Ok(next)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::message::{Intake, Limits, parse};
    use crate::record::ClaimId;

    pub(crate) const RETENTION: Retention = Retention { record_ms: 1_000_000, payload_ms: 2_000_000 };

    fn message() -> Message {
        let limits = Limits { max_body_bytes: 100, allow_inline_urls: false };
        match parse(r#"{"id":"e1","endpoint":"p1","body":"{}"}"#, &limits) {
            Ok(Intake::Webhook(m)) => *m,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn lease(message_id: &str) -> Lease {
        Lease { until: Millis(60_000), claim_id: ClaimId::new(message_id, 7) }
    }

    /// A record whose attempt `attempt` is in flight, claimed by message `m` at time 0.
    pub(crate) fn in_flight(attempt: u32) -> Record {
        let message = message();
        let arrival = Arrival { message: &message, accepted_at: Millis(0), sender: None, budget: 3 };
        Record { attempt, ..arrival.claimed(lease("m"), Millis(0)).unwrap() }
    }

    pub(crate) fn failed() -> Finished {
        Finished {
            class: Class::Transient,
            phase: Phase::Head,
            status: Some(500),
            detail: None,
            hint: None,
            excerpt: Some("x".repeat(300)),
            budget: 3,
        }
    }

    #[test]
    fn a_first_attempt_has_no_place_in_any_index() {
        let record = in_flight(1);
        assert_eq!((record.lane(), record.endpoint_lane(), record.payload_kept_until), (None, None, None));
        let done = finish(
            &record,
            &Finished { class: Class::Accepted, ..failed() },
            Decision::Deliver,
            None,
            RETENTION,
            Millis(9),
        )
        .unwrap();
        assert_eq!((done.lane(), done.due, done.excerpt.as_deref()), (None, None, None));
        assert_eq!(done.expires_at, Some(Millis(1_001_000)));
    }

    #[test]
    fn a_claim_keeps_the_place_and_a_finish_moves_it() {
        let waiting = finish(
            &in_flight(1),
            &failed(),
            Decision::Retry { due: Millis(500) },
            Some(Millis(7)),
            RETENTION,
            Millis(9),
        )
        .unwrap();
        assert_eq!(waiting.excerpt.as_ref().map(String::len), Some(EXCERPT_BYTES));
        let claimed = claim(&waiting, lease("w"), Millis(500)).unwrap();
        assert_eq!((claimed.lane(), claimed.due, claimed.attempt), (waiting.lane(), waiting.due, 2));
        let dead =
            finish(&claimed, &failed(), Decision::Dead(DeadReason::Exhausted), None, RETENTION, Millis(600)).unwrap();
        assert!(
            dead.lane().unwrap().starts_with("dead#") && dead.endpoint_lane().unwrap().starts_with("dead_lettered#p1#")
        );
        assert_eq!((dead.due, dead.payload_kept_until, dead.history.len()), (Some(Millis(600)), Some(Millis(7)), 2));
    }

    #[test]
    fn a_takeover_counts_the_attempt_and_three_in_a_row_end_it() {
        let second = take_over(&in_flight(1), Heir::Message(lease("m")), None, RETENTION, Millis(61_000)).unwrap();
        assert_eq!((second.state, second.attempt), (State::InFlight, 2));
        assert_eq!(second.attempts().last().unwrap().class, Class::Unknown);
        let waiting =
            take_over(&second, Heir::Queue(Millis(70_000)), Some(Millis(1)), RETENTION, Millis(70_000)).unwrap();
        assert_eq!((waiting.state, waiting.due), (State::Waiting(WaitingReason::Recovered), Some(Millis(70_000))));
        let third = Record { budget: 100, ..claim(&waiting, lease("w"), Millis(70_000)).unwrap() };
        let over = take_over(&third, Heir::Queue(Millis(0)), None, RETENTION, Millis(200_000)).unwrap();
        assert_eq!(over.state, State::DeadLettered(DeadReason::Crashed));
    }

    #[test]
    fn a_redrive_forgives_the_crashes_before_it() {
        let mut dead = in_flight(1);
        for _ in 0..2 {
            dead = take_over(&dead, Heir::Message(lease("m")), None, RETENTION, Millis(61_000)).unwrap();
        }
        dead = take_over(
            &Record { budget: 9, ..dead },
            Heir::Queue(Millis(0)),
            Some(Millis(1)),
            RETENTION,
            Millis(61_000),
        )
        .unwrap();
        assert_eq!(dead.state, State::DeadLettered(DeadReason::Crashed));
        let back = release(&dead, "plan-1", Millis(0), Millis(1), RETENTION, Millis(70_000)).unwrap();
        let claimed = claim(&back, lease("w"), Millis(70_000)).unwrap();
        let again = take_over(&claimed, Heir::Queue(Millis(0)), None, RETENTION, Millis(200_000)).unwrap();
        assert_eq!(again.state, State::Waiting(WaitingReason::Recovered));
    }

    #[test]
    fn a_takeover_honours_what_happened_meanwhile() {
        let end = |change: &dyn Fn(&mut Record)| {
            let mut record = in_flight(1);
            change(&mut record);
            take_over(&record, Heir::Message(lease("m")), None, RETENTION, Millis(61_000)).unwrap().state
        };
        assert_eq!(end(&|r| r.cancel_requested = true), State::Cancelled);
        assert_eq!(end(&|r| (r.cancel_requested, r.accepted_late) = (true, true)), State::Delivered);
        assert_eq!(end(&|r| r.deliver_by = Some(Millis(61_000))), State::DeadLettered(DeadReason::Expired));
        assert_eq!(end(&|r| r.budget = 1), State::DeadLettered(DeadReason::Crashed));
    }

    #[test]
    fn a_redrive_starts_a_generation_with_a_new_budget() {
        let dead = finish(
            &in_flight(3),
            &failed(),
            Decision::Dead(DeadReason::Exhausted),
            Some(Millis(1)),
            RETENTION,
            Millis(9),
        )
        .unwrap();
        let back = release(&dead, "plan-1", Millis(20), Millis(99), RETENTION, Millis(10)).unwrap();
        assert_eq!((back.generation, back.used(), back.attempt), (1, 0, 3));
        assert_eq!((back.expires_at, back.completed_at, back.endpoint_lane()), (None, None, None));
        assert_eq!(back.released_from, Some(State::DeadLettered(DeadReason::Exhausted)));
        let claimed = claim(&back, lease("w"), Millis(20)).unwrap();
        assert_eq!((claimed.released_from, claimed.plan.as_deref()), (None, Some("plan-1")));
    }

    #[test]
    fn a_recall_goes_back_to_where_the_plan_took_it_from() {
        let mut record = in_flight(1);
        record.payload_kept_until = Some(Millis(9));
        let dead =
            finish(&record, &failed(), Decision::Dead(DeadReason::Exhausted), Some(Millis(9)), RETENTION, Millis(5));
        let dead = dead.unwrap();
        let held = hold(
            &Record { state: State::Waiting(WaitingReason::Retry), ..dead.clone() },
            HeldReason::Paused,
            RETENTION,
            Millis(5),
        );
        for from in [dead, held.unwrap()] {
            let released = release(&from, "plan", Millis(50), Millis(99), RETENTION, Millis(10)).unwrap();
            let deferred = defer(&released, Millis(60), RETENTION, Millis(20)).unwrap();
            assert_eq!((deferred.due, deferred.booked, deferred.attempt), (Some(Millis(60)), true, from.attempt));
            for waiting in [released.clone(), deferred] {
                let back = recall(&waiting, RETENTION, Millis(30)).unwrap().expect("it came from a plan");
                assert_eq!(
                    (back.state, back.plan.as_deref(), back.booked, back.attempt),
                    (from.state, None, false, from.attempt)
                );
                assert_eq!(back.expires_at.is_some(), from.state.is_final());
            }
            let tried = claim(&released, lease("m"), Millis(50)).unwrap();
            assert_eq!((recall(&tried, RETENTION, Millis(60)), tried.booked), (Ok(None), false), "too late");
        }
    }

    #[test]
    fn every_change_moves_the_revision_on_by_one() {
        let at = |state| Record { state, rev: 5, due: Some(Millis(1)), ..in_flight(1) };
        let (flight, waiting) = (at(State::InFlight), at(State::Waiting(WaitingReason::Retry)));
        let (held, dead) = (at(State::Held(HeldReason::Paused)), at(State::DeadLettered(DeadReason::Permanent)));
        let now = Millis(70_000);
        for (what, next) in [
            ("claim", claim(&waiting, lease("w"), now)),
            ("finish", finish(&flight, &failed(), Decision::Deliver, None, RETENTION, now)),
            ("takeover", take_over(&flight, Heir::Queue(now), None, RETENTION, now)),
            ("late acceptance in flight", late_accept(&flight, RETENTION, now)),
            ("late acceptance", late_accept(&dead, RETENTION, now)),
            ("cancel in flight", cancel(&flight, "", RETENTION, now)),
            ("cancel", cancel(&held, "", RETENTION, now)),
            ("release", release(&dead, "plan", now, now, RETENTION, now)),
            ("resume", resume(&held, now, now, RETENTION, now)),
            ("touch", Ok(touch(&waiting, true, now))),
            ("extension", Ok(extend(&held, now))),
        ] {
            assert_eq!(next.map(|next| next.rev), Ok(6), "{what}");
        }
    }

    #[test]
    fn a_held_delivery_comes_up_at_its_deadline_or_when_its_payload_needs_extending() {
        let days = |n| Millis(n * crate::time::DAY_MS);
        let mut waiting = Record { state: State::Waiting(WaitingReason::Retry), due: Some(days(1)), ..in_flight(1) };
        waiting.payload_kept_until = Some(days(30));
        let held = hold(&waiting, HeldReason::Paused, RETENTION, Millis(0)).unwrap();
        assert_eq!((held.due, extend(&held, days(60)).due), (Some(days(25)), Some(days(55))));
        assert_eq!(extend(&waiting, days(60)).due, waiting.due, "only what is held comes up for that");
        waiting.deliver_by = Some(days(3));
        let held = hold(&waiting, HeldReason::Paused, RETENTION, Millis(0)).unwrap();
        assert_eq!((held.due, extend(&held, days(60)).due), (Some(days(3)), Some(days(3))));
    }

    #[test]
    fn a_history_keeps_its_beginning_and_its_end() {
        let mut record = in_flight(1);
        for generation in 0..50 {
            record.remember(Entry::Released { at: Millis(0), plan: String::new(), generation });
        }
        let kept: Vec<u32> = record
            .history
            .iter()
            .map(|e| match e {
                Entry::Released { generation, .. } => *generation,
                Entry::Attempt(_) | Entry::Recalled { .. } => panic!("no such entry here"),
            })
            .collect();
        assert_eq!((kept.len(), kept[0], kept[1], kept[2], kept[21]), (22, 0, 1, 30, 49));
        assert_eq!(record.history_dropped, 28);
    }
}
