//! The end of an attempt: classify, decide, keep the payload if it is needed again, record. Payload first, then the
//! record, then (by the caller) the acknowledgement.

use std::pin::pin;

use domain::decide::{Decision, decide};
use domain::endpoint::EndpointConfig;
use domain::endpoint_state::Status;
use domain::hint;
use domain::kept_answer::KeptAnswer;
use domain::outcome::{Class, EXCERPT_MAX, Outcome, Phase, classify};
use domain::payload::Payload;
use domain::plan::PlanState;
use domain::ports::{Clock, Deliveries, EndpointStates, Endpoints, Payloads, Plans, Sender, StoreError, Swapped};
use domain::record::{ClaimId, Entry, Record};
use domain::sweep::EXTEND_BEFORE_MS;
use domain::time::{Millis, SECOND_MS};
use domain::transition::{self, Finished};
use futures_util::future::{Either, select};

use crate::deliver::{Deliver, Job, Settled};

/// Pause between two tries to record an outcome, in milliseconds.
const AGAIN_MS: i64 = 100;

impl<D: Deliveries + EndpointStates + Plans, P: Payloads, E: Endpoints, S: Sender, C: Clock> Deliver<D, P, E, S, C> {
    /// Records the outcome; tries until one second before the invocation ends. If that fails, the message comes back
    /// after the lease, and the attempt is recorded as abandoned.
    pub(crate) async fn finish(
        &self,
        job: &Job<'_>,
        mut record: Record,
        payload: &Payload,
        endpoint: &EndpointConfig,
        outcome: &Outcome,
    ) -> Result<Settled, StoreError> {
        let answered = self.clock.now();
        let finished = examine(outcome, endpoint, answered);
        let random = self.clock.random();
        let Some(claim_id) = record.lease.as_ref().map(|l| l.claim_id.clone()) else {
            return Err(StoreError::Corrupt("an attempt in flight has no lease".to_owned()));
        };
        let last_moment = job.deadline.plus(-SECOND_MS);
        loop {
            let decision = decide(&record, finished.class, &endpoint.policy, answered, finished.hint, random);
            // A call that hangs must not take the other messages of the batch down with it.
            let recorded = {
                let recording = pin!(self.record(&record, payload, &finished, decision, answered));
                match select(recording, pin!(self.clock.sleep_until(last_moment))).await {
                    Either::Left((recorded, _)) => recorded,
                    Either::Right(_) => Err(StoreError::Unavailable("no time is left".to_owned())),
                }
            };
            match recorded {
                Ok(Recorded::Done(next)) => {
                    log_attempt(&record, &next, &finished, endpoint, answered);
                    let aftermath = pin!(self.aftermath(&record, endpoint, outcome, finished.class));
                    // It may not take the time of other messages: the delivery is settled.
                    select(aftermath, pin!(self.clock.sleep_until(last_moment))).await;
                    return Ok(Settled::Done);
                }
                Ok(Recorded::Lost(Some(there))) if there.is_held_by(&claim_id) => record = *there,
                Ok(Recorded::Lost(there)) => {
                    return self.fenced(there.map(|r| *r), &record, &claim_id, &finished).await;
                }
                Err(error) if last_moment.since(self.clock.now()) <= AGAIN_MS => return Err(error),
                Err(error) => {
                    tracing::warn!(delivery.id = %record.key.event, %error, "recording an outcome failed, trying again");
                    self.clock.sleep_until(self.clock.now().plus(AGAIN_MS)).await;
                }
            }
        }
    }

    async fn record(
        &self,
        record: &Record,
        payload: &Payload,
        finished: &Finished,
        decision: Decision,
        now: Millis,
    ) -> Result<Recorded, StoreError> {
        let retention = self.settings.retention;
        let due = match decision {
            Decision::Retry { due } => Some(Some(due)),
            Decision::Dead(_) => Some(None),
            Decision::Deliver | Decision::Cancel => None,
        };
        let mut kept_until = None;
        if let Some(due) = due {
            let until = transition::keep_until(due, record.deliver_by, now, retention);
            // A dead letter is not extended later; a retry may come or the sweep extends it.
            let slack_ms = if due.is_some() { EXTEND_BEFORE_MS } else { 0 };
            if record.payload_kept_until.is_none_or(|kept| until.since(kept) > slack_ms) {
                self.payloads.keep(&record.key, payload, until).await?;
                kept_until = Some(until);
            }
        }
        let next = transition::finish(record, finished, decision, kept_until, retention, now)?;
        Ok(match self.deliveries.swap(record, &next).await? {
            Swapped::Done => Recorded::Done(Box::new(next)),
            Swapped::Lost(there) => Recorded::Lost(there),
        })
    }

    /// What else an outcome means, once it is on record. A failure here changes nothing and is only logged: evidence may be
    /// missing, and an endpoint that is gone says so again.
    async fn aftermath(&self, record: &Record, endpoint: &EndpointConfig, outcome: &Outcome, class: Class) {
        let now = self.clock.now();
        if let Some(answer) = KeptAnswer::of(outcome, class, record.attempt, now) {
            let until = now.plus(self.settings.retention.record_ms);
            if let Err(error) = self.deliveries.keep_answer(&record.key, &answer, until).await {
                tracing::warn!(delivery.id = %record.key.event, %error, "the answer of a failed attempt is not kept");
            }
        }
        if outcome.disables(&endpoint.rules) && !record.key.endpoint.is_inline() && !self.is_canary(record).await {
            match self.disable(record).await {
                Ok(disabled) => {
                    tracing::warn!(endpoint.key = %record.key.endpoint, endpoint.disabled = disabled, "an endpoint says that it is gone");
                }
                Err(error) => {
                    tracing::warn!(endpoint.key = %record.key.endpoint, %error, "an endpoint that is gone could not be disabled");
                }
            }
        }
    }

    /// Whether this was the first attempt of a delivery that a plan tries out: what it brings is for the plan to judge, and
    /// must not stop fresh deliveries.
    async fn is_canary(&self, record: &Record) -> bool {
        let (Some(plan), Some(Entry::Released { .. })) = (&record.plan, record.history.last()) else { return false };
        let plan = self.deliveries.plan(plan, false).await;
        plan.is_ok_and(|plan| plan.is_some_and(|plan| plan.state == PlanState::Canary))
    }

    /// Nothing more goes to this endpoint until an operator says so. False when it is held back already, or when an
    /// operator's word is younger than the attempt.
    async fn disable(&self, record: &Record) -> Result<bool, StoreError> {
        let old = self.deliveries.endpoint_state(&record.state_key, true).await?;
        if old.status != Status::Active || old.since > record.since {
            return Ok(false);
        }
        let because = format!("the endpoint says that it is gone: answer to event {}", record.key.event);
        self.deliveries.save_endpoint_state(&old, &old.set(Status::Disabled, &because, self.clock.now())).await
    }

    /// Somebody else has the delivery. If our end of the attempt is on record, all is well. If not, we were fenced; an
    /// acceptance is still good news, and voids the pending retry.
    async fn fenced(
        &self,
        mut there: Option<Record>,
        ours: &Record,
        claim_id: &ClaimId,
        finished: &Finished,
    ) -> Result<Settled, StoreError> {
        while let Some(record) = there {
            if record.was_finished_by(claim_id) {
                return Ok(Settled::Done);
            }
            let useful = finished.class == Class::Accepted && record.generation == ours.generation;
            let now = self.clock.now();
            let next = match transition::late_accept(&record, self.settings.retention, now) {
                Ok(next) if useful && !record.accepted_late => next,
                Ok(_) | Err(_) => break,
            };
            match self.deliveries.swap(&record, &next).await? {
                Swapped::Done => break,
                Swapped::Lost(now_there) => there = now_there.map(|r| *r),
            }
        }
        tracing::warn!(
            delivery.id = %ours.key.event,
            endpoint.key = %ours.key.endpoint,
            attempt.number = ours.attempt,
            outcome.class = finished.class.name(),
            "the attempt had been taken over before its outcome came"
        );
        Ok(Settled::Done)
    }
}

enum Recorded {
    Done(Box<Record>),
    Lost(Option<Box<Record>>),
}

/// What an outcome says, in the terms of the record.
fn examine(outcome: &Outcome, endpoint: &EndpointConfig, now: Millis) -> Finished {
    let cap_ms = i64::from(endpoint.policy.hint_cap_seconds) * SECOND_MS;
    let hint = match outcome {
        Outcome::Answered(answer) => hint::retry_after(answer, now, cap_ms),
        Outcome::Failed { .. } | Outcome::Blocked { .. } => None,
    };
    let class = classify(outcome, hint, &endpoint.rules);
    let mut finished = Finished {
        class,
        phase: Phase::Claimed,
        status: None,
        detail: None,
        hint,
        excerpt: None,
        budget: endpoint.policy.attempts,
    };
    match outcome {
        Outcome::Answered(answer) => {
            finished.phase = answer.phase();
            finished.status = Some(answer.status);
            finished.detail = match endpoint.rules.directive(answer) {
                Some(directive) => Some(format!("webhook-delivery: {}", directive.name())),
                None => answer.body_broken.then(|| "body_broken".to_owned()),
            };
            finished.excerpt = Some(answer.excerpt.clone());
        }
        Outcome::Failed { phase, detail } => {
            finished.phase = *phase;
            finished.detail = Some(detail.clone());
        }
        Outcome::Blocked { detail } => finished.detail = Some(detail.chars().take(EXCERPT_MAX / 4).collect()),
    }
    finished
}

/// The one wide line of an attempt. An endpoint's failure is neither an error nor a warning of ours.
fn log_attempt(before: &Record, after: &Record, finished: &Finished, endpoint: &EndpointConfig, now: Millis) {
    let host = url::Url::parse(&endpoint.url).ok().and_then(|u| u.host_str().map(ToOwned::to_owned));
    tracing::info!(
        delivery.id = %before.key.event,
        delivery.generation = before.generation,
        delivery.correlation_id = before.correlation_id,
        endpoint.key = %before.key.endpoint,
        endpoint.host = host,
        attempt.number = before.attempt,
        attempt.started = %before.since,
        attempt.duration_ms = now.since(before.since),
        attempt.late_ms = before.due.map(|due| before.since.since(due)),
        outcome.class = finished.class.name(),
        outcome.phase = finished.phase.name(),
        outcome.status = finished.status,
        outcome.detail = finished.detail,
        retry.hint = finished.hint.map(|h| h.to_string()),
        retry.due_at = after.due.filter(|_| matches!(after.state, domain::delivery::State::Waiting(_))).map(|d| d.to_string()),
        delivery.state = after.state.name(),
        delivery.reason = after.state.reason(),
        "attempt"
    );
}
