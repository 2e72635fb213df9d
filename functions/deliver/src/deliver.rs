//! The story of one message: gates → claim → send → classify → decide → finish.
//!
//! Nothing here is undone on the way: whatever is written is right even if the process dies on the next line. Only what
//! could not be settled is handed back to the queue.

use domain::claim::{EARLY_MS, Knock, Verdict, judge};
use domain::decide::Decision;
use domain::delivery::{DeadReason, RejectedReason, WaitingReason};
use domain::endpoint::EndpointConfig;
use domain::id::DeliveryKey;
use domain::message::{CancelRequest, Message, Refusal};
use domain::outcome::{Class, Outcome, Phase};
use domain::payload::Payload;
use domain::ports::{
    Claimed, Clock, Created, Deliveries, EndpointStates, Endpoints, Payloads, Plans, Received, Sender, StoreError,
};
use domain::record::Record;
use domain::request;
use domain::settings::FINISH_MARGIN_MS;
use domain::time::Millis;
use domain::transition::{self, Arrival};
use domain::wakeup::WakeUp;

use crate::config::Settings;
use crate::gates::{Pace, Target};
use crate::meet::log_parked;

/// A wake-up that comes a moment too early tries so often.
const CLAIMS: usize = 3;

/// The function with its ports.
pub struct Deliver<D, P, E, S, C> {
    /// The deliveries table.
    pub deliveries: D,
    /// The payloads table.
    pub payloads: P,
    /// The registry.
    pub endpoints: E,
    /// The HTTP client.
    pub sender: S,
    /// Time and chance.
    pub clock: C,
    /// Settings.
    pub settings: Settings,
}

/// What a message asks for.
#[derive(Clone, Debug)]
pub enum Task {
    /// Deliver a new webhook.
    Webhook(Box<Message>),
    /// Do not deliver it.
    Cancel(CancelRequest),
    /// Look at a delivery.
    WakeUp(DeliveryKey, WakeUp),
    /// It was not understood.
    Refused(Refusal),
}

/// A message and the circumstances in which it is handled.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The message.
    pub received: &'a Received,
    /// What it asks for.
    pub task: Task,
    /// When the invocation ends.
    pub deadline: Millis,
    /// Nothing else runs beside it, so it may risk what an earlier process died of.
    pub alone: bool,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The table has all that matters; acknowledge.
    Done,
    /// Not settled; it has to come back.
    Return,
    /// Its last attempt was abandoned; run it again in this invocation, alone.
    Alone,
}

impl<D: Deliveries + EndpointStates + Plans, P: Payloads, E: Endpoints, S: Sender, C: Clock> Deliver<D, P, E, S, C> {
    /// Handles one message.
    pub async fn handle(&self, job: &Job<'_>) -> Result<Settled, StoreError> {
        match &job.task {
            Task::Webhook(message) => self.webhook(job, message).await,
            Task::WakeUp(key, wake_up) => self.wake_up(job, key, wake_up).await,
            Task::Cancel(request) => self.cancel(job, request).await,
            Task::Refused(refusal) => self.refused(job, refusal).await,
        }
    }

    /// A new webhook: its claim creates the record.
    async fn webhook(&self, job: &Job<'_>, message: &Message) -> Result<Settled, StoreError> {
        let target = match self.target(&message.key.endpoint, message.payload.url.as_deref(), false).await? {
            Target::Unknown => {
                // An earlier attempt may have been made while the endpoint was there.
                if let Some(there) = self.deliveries.get(&message.key).await? {
                    return self.meet(job, there, Some(&message.payload), &Target::Unknown).await;
                }
                let detail =
                    format!("there is no endpoint {}: register it, then send the message again", message.key.endpoint);
                return self.reject(job, Refusal::new(RejectedReason::UnknownEndpoint, detail).of(&message.key)).await;
            }
            target @ (Target::Send(_) | Target::Hold(_)) => target,
        };
        let budget = if let Target::Send(endpoint) = &target {
            endpoint.policy.attempts
        } else {
            self.settings.defaults.policy.attempts
        };
        let arrival =
            Arrival { message, accepted_at: job.received.sent_at, sender: job.received.sender.as_deref(), budget };
        let now = self.clock.now();
        let later = message.deliver_at.filter(|at| at.since(now) > EARLY_MS);
        let kept_until = transition::keep_until(later, message.deliver_by, now, self.settings.retention);
        let parked = match (&target, later) {
            _ if message.deliver_by.is_some_and(|by| by <= now) => {
                Some(arrival.expired(kept_until, self.settings.retention, now)?)
            }
            // Before a hold: whether its endpoint takes it is asked when its time has come, and a resume is not that time.
            (_, Some(at)) => Some(arrival.waiting(WaitingReason::Scheduled, at, kept_until, now)?),
            (Target::Hold(reason), None) => Some(arrival.held(*reason, kept_until, now)?),
            (Target::Send(_) | Target::Unknown, None) => None,
        };
        if let Some(record) = parked {
            self.payloads.keep(&message.key, &message.payload, kept_until).await?;
            return match self.deliveries.create(&record).await? {
                Created::New => {
                    log_parked(&record);
                    Ok(Settled::Done)
                }
                Created::Exists(there) => self.meet(job, *there, Some(&message.payload), &target).await,
            };
        }
        let Target::Send(endpoint) = &target else { return Ok(Settled::Return) };
        if let Some(at) = message.deliver_at {
            self.clock.sleep_until(at).await;
        }
        if !self.time_left(job, endpoint) {
            return Ok(Settled::Return);
        }
        let record = arrival.claimed(self.lease(job), self.clock.now())?;
        match self.deliveries.create(&record).await? {
            Created::New => self.attempt(job, record, &message.payload, endpoint).await,
            Created::Exists(there) => self.meet(job, *there, Some(&message.payload), &target).await,
        }
    }

    /// A wake-up: the payload was kept, the record is claimed without reading it first.
    async fn wake_up(&self, job: &Job<'_>, key: &DeliveryKey, wake_up: &WakeUp) -> Result<Settled, StoreError> {
        let due = Millis(wake_up.due);
        let kept = self.payloads.load(key).await?;
        let url = kept.iter().find_map(|p| p.url.as_deref());
        // Before its endpoint: what goes back must not be held there instead.
        if let Some(settled) = self.take_back(key, wake_up, url).await? {
            return Ok(settled);
        }
        let target = self.target(&key.endpoint, url, true).await?;
        let endpoint = match &target {
            Target::Send(endpoint) if !kept.is_empty() => endpoint,
            // Something is in the way; the record decides what it means.
            Target::Send(_) | Target::Hold(_) | Target::Unknown => {
                return match self.deliveries.get(key).await? {
                    Some(record) => self.meet(job, record, None, &target).await,
                    None => Ok(Settled::Done),
                };
            }
        };
        let now = self.clock.now();
        if due.since(now) <= EARLY_MS {
            self.clock.sleep_until(due).await;
        }
        if let Some(plan) = &wake_up.plan {
            let settled = match self.pace(plan, wake_up).await? {
                Pace::Now => None,
                Pace::At(slot) => {
                    self.clock.sleep_until(slot).await;
                    // An abort may have come meanwhile.
                    self.take_back(key, wake_up, url).await?
                }
                Pace::Later(slot) => self.put_off(key, wake_up, Some(slot)).await?,
            };
            if let Some(settled) = settled {
                return Ok(settled);
            }
        }
        let mut refused = None;
        for _ in 0..CLAIMS {
            // Each time: an earlier claim may have taken long to be refused.
            if !self.time_left(job, endpoint) {
                return Ok(Settled::Return);
            }
            let lease = self.lease(job);
            match self.deliveries.claim(key, wake_up.attempt.saturating_sub(1), &lease, self.clock.now()).await? {
                Claimed::Started(record) => return self.attempt_kept(job, *record, &kept, endpoint).await,
                Claimed::Refused(None) => return Ok(Settled::Done),
                Claimed::Refused(Some(record)) => {
                    let knock = Knock::WakeUp { attempt: wake_up.attempt, due };
                    let verdict = judge(&record, knock, &job.received.message_id, self.clock.now());
                    refused = Some(*record);
                    match verdict {
                        // It became claimable while we looked.
                        Verdict::Claim => {}
                        Verdict::WaitUntil(due) => self.clock.sleep_until(due).await,
                        Verdict::Duplicate
                        | Verdict::Conflict
                        | Verdict::Busy
                        | Verdict::TakeOver
                        | Verdict::TooEarly
                        | Verdict::Expired => break,
                    }
                }
            }
        }
        let Some(record) = refused else { return Ok(Settled::Return) };
        let payload = payload_of(&record, &kept);
        self.meet(job, record, payload, &target).await
    }

    /// The attempt of a claimed wake-up, with the payload that the record names.
    async fn attempt_kept(
        &self,
        job: &Job<'_>,
        record: Record,
        kept: &[Payload],
        endpoint: &EndpointConfig,
    ) -> Result<Settled, StoreError> {
        match payload_of(&record, kept) {
            Some(payload) => self.attempt(job, record, payload, endpoint).await,
            None => {
                tracing::error!(delivery.id = %record.key.event, endpoint.key = %record.key.endpoint, "the kept payload is gone");
                let finished = transition::Finished {
                    class: Class::Blocked,
                    phase: Phase::Claimed,
                    status: None,
                    detail: Some("payload_lost".to_owned()),
                    hint: None,
                    excerpt: None,
                    budget: endpoint.policy.attempts,
                };
                let lost = Decision::Dead(DeadReason::PayloadLost);
                let next =
                    transition::finish(&record, &finished, lost, None, self.settings.retention, self.clock.now());
                self.write(&record, next?).await
            }
        }
    }

    /// One attempt: exactly one HTTP request, then its outcome on record.
    pub(crate) async fn attempt(
        &self,
        job: &Job<'_>,
        record: Record,
        payload: &Payload,
        endpoint: &EndpointConfig,
    ) -> Result<Settled, StoreError> {
        let outcome = match request::build(&record, payload, endpoint, self.clock.now()) {
            Ok(mut request) => {
                // The claim may have taken long; the outcome has to be recorded before the invocation ends.
                let left_ms = job.deadline.since(self.clock.now()) - FINISH_MARGIN_MS;
                request.timeout_ms = request.timeout_ms.min(left_ms.max(0));
                self.sender.post(&request).await
            }
            Err(detail) => Outcome::Blocked { detail },
        };
        self.finish(job, record, payload, endpoint, &outcome).await
    }
}

/// The kept payload that a record names; a conflicting message may have left another beside it.
fn payload_of<'a>(record: &Record, kept: &'a [Payload]) -> Option<&'a Payload> {
    let wanted = record.payload.as_ref()?;
    kept.iter().find(|payload| payload.hash() == wanted.hash)
}
