//! What happens without an attempt: a record that is there already, a message that is not accepted, a cancel.

use domain::cancel;
use domain::claim::{Knock, Verdict, judge};
use domain::delivery::{HeldReason, State};
use domain::id::DeliveryKey;
use domain::message::{CancelRequest, Refusal};
use domain::payload::Payload;
use domain::ports::{Clock, Deliveries, EndpointStates, Endpoints, Payloads, Plans, Sender, StoreError, Swapped};
use domain::record::Record;
use domain::reject;
use domain::time::Millis;
use domain::transition::{self, Heir};
use domain::wakeup::WakeUp;

use crate::deliver::{Deliver, Job, Settled, Task};
use crate::gates::Target;

impl<D: Deliveries + EndpointStates + Plans, P: Payloads, E: Endpoints, S: Sender, C: Clock> Deliver<D, P, E, S, C> {
    /// A record is there already: what it means for this message, and what is to be done about it.
    pub(crate) async fn meet(
        &self,
        job: &Job<'_>,
        record: Record,
        payload: Option<&Payload>,
        target: &Target,
    ) -> Result<Settled, StoreError> {
        let hash;
        let knock = match &job.task {
            Task::WakeUp(_, wake_up) => Knock::WakeUp { attempt: wake_up.attempt, due: Millis(wake_up.due) },
            Task::Webhook(message) => {
                hash = message.payload.hash();
                Knock::Message { payload_hash: &hash }
            }
            Task::Cancel(_) | Task::Refused(_) => return Ok(Settled::Done),
        };
        let now = self.clock.now();
        let retention = self.settings.retention;
        match judge(&record, knock, &job.received.message_id, now) {
            Verdict::Duplicate => {
                tracing::info!(delivery.id = %record.key.event, endpoint.key = %record.key.endpoint, state = record.state.name(), "duplicate suppressed");
                Ok(Settled::Done)
            }
            Verdict::Conflict => self.reject(job, Refusal::id_conflict(&record.key)).await,
            Verdict::Busy => Ok(Settled::Return),
            Verdict::TakeOver => self.take_over(job, record, payload, target).await,
            Verdict::TooEarly => self.write(&record, transition::touch(&record, false, now)).await,
            Verdict::Expired => self.write(&record, transition::expire(&record, retention, now)?).await,
            Verdict::Claim | Verdict::WaitUntil(_) => match target {
                Target::Hold(reason) => self.write(&record, transition::hold(&record, *reason, retention, now)?).await,
                Target::Unknown => {
                    self.write(&record, transition::hold(&record, HeldReason::Removed, retention, now)?).await
                }
                Target::Send(_) if payload.is_none() => {
                    tracing::error!(delivery.id = %record.key.event, endpoint.key = %record.key.endpoint, "the kept payload is gone");
                    self.write(&record, transition::lose_payload(&record, retention, now)?).await
                }
                // It became claimable while we looked, or within two seconds; the message comes back for it.
                Target::Send(_) => Ok(Settled::Return),
            },
        }
    }

    /// Puts a delivery back whose plan was aborted, or has given up its endpoint. `None` when the plan has no say.
    pub(crate) async fn take_back(
        &self,
        key: &DeliveryKey,
        wake_up: &WakeUp,
        url: Option<&str>,
    ) -> Result<Option<Settled>, StoreError> {
        match &wake_up.plan {
            Some(plan) if self.is_taken_back(plan, &key.endpoint, url).await? => self.put_off(key, wake_up, None).await,
            Some(_) | None => Ok(None),
        }
    }

    /// A delivery that its plan released is not tried now: it waits for its slot, or goes back to where it came from. `None`
    /// when it does not wait for that any more, or when the hold that it came from is over: then its plan has no say.
    pub(crate) async fn put_off(
        &self,
        key: &DeliveryKey,
        wake_up: &WakeUp,
        slot: Option<Millis>,
    ) -> Result<Option<Settled>, StoreError> {
        let now = self.clock.now();
        let Some(record) = self.deliveries.get(key).await? else { return Ok(Some(Settled::Done)) };
        let waits = matches!(record.state, State::Waiting(_)) && record.released_from.is_some();
        if !waits || record.attempt.saturating_add(1) != wake_up.attempt {
            return Ok(None);
        }
        if record.plan != wake_up.plan {
            // Another plan released it since: that one has sent its own wake-up, and has its own say.
            return Ok(Some(Settled::Done));
        }
        if record.due > Some(Millis(wake_up.due)) {
            // It was put off meanwhile: a newer wake-up is out. A claim would not see that, once the later time has come.
            return Ok(Some(Settled::Done));
        }
        if slot.is_none() && self.hold_is_over(&record).await? {
            return Ok(None);
        }
        let retention = self.settings.retention;
        let next = match slot {
            Some(slot) => Some(transition::defer(&record, slot, retention, now)?),
            None => transition::recall(&record, retention, now)?,
        };
        match next {
            Some(next) => self.write(&record, next).await.map(Some),
            None => Ok(None),
        }
    }

    /// Whether a delivery was released from a hold by its endpoint, and that takes deliveries again: back there, nothing
    /// would ever end that hold.
    async fn hold_is_over(&self, record: &Record) -> Result<bool, StoreError> {
        match record.released_from {
            Some(State::Held(HeldReason::Paused | HeldReason::Disabled)) => {
                let state = self.deliveries.endpoint_state(&record.state_key, true).await?;
                Ok(state.status.holds().is_none())
            }
            Some(_) | None => Ok(false),
        }
    }

    /// The lease of an earlier attempt ran out: that attempt counts as abandoned, and the next one starts, alone.
    async fn take_over(
        &self,
        job: &Job<'_>,
        record: Record,
        payload: Option<&Payload>,
        target: &Target,
    ) -> Result<Settled, StoreError> {
        if !job.alone {
            return Ok(Settled::Alone);
        }
        if payload.is_none() && record.payload_kept_until.is_none() {
            // Only the message that carries the payload can go on.
            return Ok(Settled::Done);
        }
        // The policy may have changed since the record was written.
        let judged = match target {
            Target::Send(endpoint) => Record { budget: endpoint.policy.attempts, ..record.clone() },
            Target::Hold(_) | Target::Unknown => record.clone(),
        };
        let now = self.clock.now();
        let retention = self.settings.retention;
        let over = transition::end_after_abandon(&judged, now).is_some();
        if let (false, Some(payload), Target::Send(endpoint)) = (over, payload, target) {
            if !self.time_left(job, endpoint) {
                return Ok(Settled::Return);
            }
            let next = transition::take_over(&judged, Heir::Message(self.lease(job)), None, retention, now)?;
            return match self.deliveries.swap(&record, &next).await? {
                Swapped::Done => self.attempt(job, next, payload, endpoint).await,
                Swapped::Lost(_) => Ok(Settled::Return),
            };
        }
        let kept_until = match payload {
            Some(payload) => {
                let until = transition::keep_until(None, record.deliver_by, now, retention);
                self.payloads.keep(&record.key, payload, until).await?;
                Some(until)
            }
            None => None,
        };
        let next = transition::take_over(&judged, Heir::Queue(now), kept_until, retention, now)?;
        self.write(&record, next).await
    }

    /// A message that is not accepted. If an earlier deployment accepted it and died over it, that attempt ends here:
    /// nothing else would ever end it.
    pub(crate) async fn refused(&self, job: &Job<'_>, refusal: &Refusal) -> Result<Settled, StoreError> {
        if let Some(key) = &refusal.key
            && let Some(record) = self.deliveries.get(key).await?
            && record.state == State::InFlight
            && let Some(lease) = record.lease.as_ref().filter(|l| l.claim_id.message_id() == job.received.message_id)
        {
            let now = self.clock.now();
            if lease.until > now {
                return Ok(Settled::Return);
            }
            let next = transition::give_up(&record, self.settings.retention, now)?;
            if self.write(&record, next).await? == Settled::Return {
                return Ok(Settled::Return);
            }
        }
        self.reject(job, refusal.clone()).await
    }

    pub(crate) async fn cancel(&self, job: &Job<'_>, request: &CancelRequest) -> Result<Settled, StoreError> {
        let sender = job.received.sender.as_deref();
        let now = self.clock.now();
        let done = cancel::by_producer(&self.deliveries, request, sender, self.settings.retention, now).await?;
        tracing::info!(delivery.id = %request.key.event, endpoint.key = %request.key.endpoint, cancel.result = ?done, "cancel");
        Ok(Settled::Done)
    }

    pub(crate) async fn reject(&self, job: &Job<'_>, refusal: Refusal) -> Result<Settled, StoreError> {
        let sender = job.received.sender.as_deref();
        let raw = &job.received.body;
        let now = self.clock.now();
        let rejected =
            reject::reject(&self.deliveries, &self.payloads, raw, refusal, sender, self.settings.retention, now)
                .await?;
        tracing::warn!(
            delivery.id = rejected.event,
            endpoint.key = rejected.endpoint,
            reject.reason = rejected.reason.name(),
            reject.detail = rejected.detail,
            reject.sha256 = rejected.sha256,
            reject.seen = rejected.seen,
            "message rejected"
        );
        Ok(Settled::Done)
    }

    /// Writes a change; whoever was faster has settled it, or its message will.
    pub(crate) async fn write(&self, record: &Record, next: Record) -> Result<Settled, StoreError> {
        match self.deliveries.swap(record, &next).await? {
            Swapped::Done => {
                log_parked(&next);
                Ok(Settled::Done)
            }
            Swapped::Lost(_) => Ok(Settled::Return),
        }
    }
}

/// The line of a delivery that moved without an attempt.
pub(crate) fn log_parked(record: &Record) {
    tracing::info!(
        delivery.id = %record.key.event,
        endpoint.key = %record.key.endpoint,
        delivery.state = record.state.name(),
        delivery.reason = record.state.reason(),
        delivery.due = record.due.filter(|_| matches!(record.state, State::Waiting(_))).map(|d| d.to_string()),
        "delivery moved without an attempt"
    );
}
