//! The story of one message: gates → claim → send → classify → decide → finish.
//!
//! Nothing here is undone on the way: whatever is written is right even if the process dies on the next line. Only what
//! could not be settled is handed back to the queue.

use domain::cancel;
use domain::claim::{EARLY_MS, Knock, Verdict, judge};
use domain::decide::Decision;
use domain::delivery::{DeadReason, HeldReason, Illegal, RejectedReason, State, WaitingReason};
use domain::endpoint::{EndpointConfig, Found};
use domain::id::{DeliveryKey, EndpointKey};
use domain::message::{CancelRequest, Message, Refusal};
use domain::outcome::{Class, Outcome, Phase, StatusOverrides};
use domain::payload::Payload;
use domain::ports::{Claimed, Clock, Created, Deliveries, Endpoints, Payloads, Received, Sender, StoreError, Swapped};
use domain::record::{ClaimId, Lease, Record};
use domain::reject;
use domain::request;
use domain::settings::FINISH_MARGIN_MS;
use domain::time::Millis;
use domain::transition::{self, Arrival, Heir};
use domain::wakeup::WakeUp;

use crate::config::Settings;

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

/// Where a delivery may go.
enum Target {
    Send(Box<EndpointConfig>),
    Hold(HeldReason),
    Unknown,
}

pub(crate) fn illegal(e: Illegal) -> StoreError {
    StoreError::Corrupt(e.to_string())
}

impl<D: Deliveries, P: Payloads, E: Endpoints, S: Sender, C: Clock> Deliver<D, P, E, S, C> {
    /// Handles one message.
    pub async fn handle(&self, job: &Job<'_>) -> Result<Settled, StoreError> {
        match &job.task {
            Task::Webhook(message) => self.webhook(job, message).await,
            Task::WakeUp(key, wake_up) => self.wake_up(job, key, wake_up).await,
            Task::Cancel(request) => self.cancel(job, request).await,
            Task::Refused(refusal) => self.refused(job, refusal).await,
        }
    }

    /// A message that is not accepted. If an earlier deployment accepted it and died over it, that attempt ends here:
    /// nothing else would ever end it.
    async fn refused(&self, job: &Job<'_>, refusal: &Refusal) -> Result<Settled, StoreError> {
        if let Some(key) = &refusal.key
            && let Some(record) = self.deliveries.get(key).await?
            && record.state == State::InFlight
            && let Some(lease) = record.lease.as_ref().filter(|l| l.claim_id.message_id() == job.received.message_id)
        {
            let now = self.clock.now();
            if lease.until > now {
                return Ok(Settled::Return);
            }
            let next = transition::give_up(&record, self.settings.retention, now).map_err(illegal)?;
            if self.write(&record, next).await? == Settled::Return {
                return Ok(Settled::Return);
            }
        }
        self.reject(job, refusal.clone()).await
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
                Some(arrival.expired(kept_until, self.settings.retention, now).map_err(illegal)?)
            }
            (Target::Hold(reason), _) => Some(arrival.held(*reason, kept_until, now).map_err(illegal)?),
            (Target::Send(_) | Target::Unknown, Some(at)) => {
                Some(arrival.waiting(WaitingReason::Scheduled, at, kept_until, now).map_err(illegal)?)
            }
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
        let record = arrival.claimed(self.lease(job), self.clock.now()).map_err(illegal)?;
        match self.deliveries.create(&record).await? {
            Created::New => self.attempt(job, record, &message.payload, endpoint).await,
            Created::Exists(there) => self.meet(job, *there, Some(&message.payload), &target).await,
        }
    }

    /// A wake-up: the payload was kept, the record is claimed without reading it first.
    async fn wake_up(&self, job: &Job<'_>, key: &DeliveryKey, wake_up: &WakeUp) -> Result<Settled, StoreError> {
        let due = Millis(wake_up.due);
        let kept = self.payloads.load(key).await?;
        let target = self.target(&key.endpoint, kept.iter().find_map(|p| p.url.as_deref()), true).await?;
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
        if due > now && due.since(now) <= EARLY_MS {
            self.clock.sleep_until(due).await;
        }
        if !self.time_left(job, endpoint) {
            return Ok(Settled::Return);
        }
        let mut refused = None;
        for _ in 0..CLAIMS {
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
        let payload = kept.iter().find(|p| record.payload.as_ref().is_some_and(|r| r.hash == p.hash()));
        self.meet(job, record, payload, &target).await
    }

    /// A record is there already: what it means for this message, and what is to be done about it.
    async fn meet(
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
            Verdict::Conflict => {
                let detail = "this id and endpoint came before with another payload: use a new id for a new event";
                self.reject(job, Refusal::new(RejectedReason::IdConflict, detail).of(&record.key)).await
            }
            Verdict::Busy => Ok(Settled::Return),
            Verdict::TakeOver => self.take_over(job, record, payload, target).await,
            Verdict::TooEarly => self.write(&record, transition::touch(&record, false, now)).await,
            Verdict::Expired => {
                self.write(&record, transition::expire(&record, retention, now).map_err(illegal)?).await
            }
            Verdict::Claim | Verdict::WaitUntil(_) => match target {
                Target::Hold(reason) => {
                    self.write(&record, transition::hold(&record, *reason, retention, now).map_err(illegal)?).await
                }
                Target::Unknown => {
                    self.write(
                        &record,
                        transition::hold(&record, HeldReason::Removed, retention, now).map_err(illegal)?,
                    )
                    .await
                }
                Target::Send(_) if payload.is_none() => {
                    tracing::error!(delivery.id = %record.key.event, endpoint.key = %record.key.endpoint, "the kept payload is gone");
                    self.write(&record, transition::lose_payload(&record, retention, now).map_err(illegal)?).await
                }
                // It became claimable while we looked, or within two seconds; the message comes back for it.
                Target::Send(_) => Ok(Settled::Return),
            },
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
        let mut record = record;
        if let Target::Send(endpoint) = target {
            record.budget = endpoint.policy.attempts;
        }
        let now = self.clock.now();
        let retention = self.settings.retention;
        let over = transition::end_after_abandon(&record, now).is_some();
        if let (false, Some(payload), Target::Send(endpoint)) = (over, payload, target) {
            if !self.time_left(job, endpoint) {
                return Ok(Settled::Return);
            }
            let next = transition::take_over(&record, Heir::Message(self.lease(job)), None, retention, now)
                .map_err(illegal)?;
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
        let next = transition::take_over(&record, Heir::Queue(now), kept_until, retention, now).map_err(illegal)?;
        self.write(&record, next).await
    }

    /// The attempt of a claimed wake-up, with the payload that the record names.
    async fn attempt_kept(
        &self,
        job: &Job<'_>,
        record: Record,
        kept: &[Payload],
        endpoint: &EndpointConfig,
    ) -> Result<Settled, StoreError> {
        let hash = record.payload.as_ref().map(|p| p.hash.as_str());
        match kept.iter().find(|p| Some(p.hash().as_str()) == hash) {
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
                self.write(&record, next.map_err(illegal)?).await
            }
        }
    }

    /// One attempt: exactly one HTTP request, then its outcome on record.
    async fn attempt(
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

    async fn cancel(&self, job: &Job<'_>, request: &CancelRequest) -> Result<Settled, StoreError> {
        let sender = job.received.sender.as_deref();
        let because = format!("producer {}: {}", sender.unwrap_or("unknown"), request.reason);
        let done =
            cancel::cancel(&self.deliveries, request, &because, sender, self.settings.retention, self.clock.now())
                .await?;
        tracing::info!(delivery.id = %request.key.event, endpoint.key = %request.key.endpoint, cancel.result = ?done, "cancel");
        Ok(Settled::Done)
    }

    async fn reject(&self, job: &Job<'_>, refusal: Refusal) -> Result<Settled, StoreError> {
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
    async fn write(&self, record: &Record, next: Record) -> Result<Settled, StoreError> {
        match self.deliveries.swap(record, &next).await? {
            Swapped::Done => {
                log_parked(&next);
                Ok(Settled::Done)
            }
            Swapped::Lost(_) => Ok(Settled::Return),
        }
    }

    async fn target(&self, endpoint: &EndpointKey, url: Option<&str>, fresh: bool) -> Result<Target, StoreError> {
        if endpoint.is_inline() {
            let config = |url: &str| EndpointConfig {
                url: url.to_owned(),
                timeout_ms: self.settings.defaults.timeout_ms,
                policy: self.settings.defaults.policy.clone(),
                headers: Vec::new(),
                overrides: StatusOverrides::default(),
                secrets: Vec::new(),
            };
            // Without its payload the URL is not known; the caller sees that the payload is gone.
            return Ok(Target::Send(Box::new(config(url.unwrap_or_default()))));
        }
        let mut found = self.endpoints.find(endpoint, fresh).await?;
        if !fresh && !matches!(found, Found::Config(_)) {
            // A verdict to hold or reject is never taken from the cache.
            found = self.endpoints.find(endpoint, true).await?;
        }
        Ok(match found {
            Found::Config(config) => Target::Send(config),
            Found::Removed => Target::Hold(HeldReason::Removed),
            Found::Misconfigured(why) => {
                tracing::error!(endpoint.key = %endpoint, why, "an endpoint's configuration cannot be used");
                Target::Hold(HeldReason::Misconfigured)
            }
            Found::Unknown => Target::Unknown,
        })
    }

    /// True when the longest request and the recording of its outcome fit into what is left of the invocation.
    fn time_left(&self, job: &Job<'_>, endpoint: &EndpointConfig) -> bool {
        job.deadline.since(self.clock.now()) > endpoint.timeout_ms + FINISH_MARGIN_MS
    }

    fn lease(&self, job: &Job<'_>) -> Lease {
        Lease {
            until: self.clock.now().plus(self.settings.timing.lease_ms),
            claim_id: ClaimId::new(&job.received.message_id, self.clock.nonce()),
        }
    }
}

fn log_parked(record: &Record) {
    tracing::info!(
        delivery.id = %record.key.event,
        endpoint.key = %record.key.endpoint,
        delivery.state = record.state.name(),
        delivery.reason = record.state.reason(),
        delivery.due = record.due.filter(|_| matches!(record.state, State::Waiting(_))).map(|d| d.to_string()),
        "delivery moved without an attempt"
    );
}
