//! Draining the transport DLQs: messages that our own functions could not process become records. Record first, delete
//! after; a message whose delivery is being worked on stays where it is.

use domain::cancel;
use domain::claim::{Knock, Verdict, judge};
use domain::delivery::{RejectedReason, State, WaitingReason};
use domain::id::DeliveryKey;
use domain::message::{self, Intake, Message, Refusal};
use domain::ports::{
    Clock, Created, Cursor, DeadQueue, Deliveries, EndpointStates, Payloads, Plans, Received, StoreError, Swapped,
};
use domain::record::Record;
use domain::reject;
use domain::transition::{self, Arrival};
use domain::wakeup::{self, WakeUp};

use crate::handler::{Depth, Run, Sweep};

/// A message received from a transport DLQ more often than this is rejected without being parsed: it may be what the sweep
/// dies of. An hour of runs, because a table that fails now and then makes good messages come back too.
const MAX_RECEIVES: u32 = 12;
/// Receives that a message has behind it when SQS moves it: one more than `maxReceiveCount`, since SQS counts on across
/// queues. A test holds them against the template.
const INTAKE_RECEIVES: u32 = domain::settings::INTAKE_MAX_RECEIVES + 1;
const RETRY_RECEIVES: u32 = domain::settings::RETRY_MAX_RECEIVES + 1;
/// Receives per queue and run.
const MAX_RECEIVE_CALLS: usize = 500;

/// What became of a message.
enum Drained {
    /// A record has all that matters.
    Recorded,
    /// Rejected, and kept whole.
    Rejected,
    /// Its delivery is being worked on.
    Left,
}

impl<D: Deliveries + Plans + EndpointStates, P: Payloads, I: DeadQueue, R: DeadQueue, Q: Depth, C: Clock>
    Sweep<D, P, I, R, Q, C>
{
    /// Drains both queues. Observing, it only counts what lies there: looking at a message would hide it.
    pub(crate) async fn drain(&self, run: &mut Run) {
        for depth in [self.queues.intake_dlq.visible().await, self.queues.retry_dlq.visible().await] {
            match depth {
                Ok(visible) => run.evidence.dlq_visible += visible,
                Err(error) => run.evidence.errors.push(format!("depth of a transport DLQ: {error}")),
            }
        }
        if !run.act {
            return;
        }
        // Receiving counts, and counts end in a rejection: while the table takes no writes, nothing is received.
        if let Err(error) = self.deliveries.set_cursor(Cursor::Drain, self.clock.now()).await {
            run.evidence.errors.push(format!("drain: {error}"));
            return;
        }
        self.drain_queue(run, &self.queues.intake_dlq, "intake").await;
        self.drain_queue(run, &self.queues.retry_dlq, "retry").await;
    }

    async fn drain_queue(&self, run: &mut Run, queue: &impl DeadQueue, name: &str) {
        for _ in 0..MAX_RECEIVE_CALLS {
            if self.clock.now() >= run.until {
                run.evidence.pages_left += 1;
                return;
            }
            let messages = match queue.receive().await {
                Ok(messages) if messages.is_empty() => return,
                Ok(messages) => messages,
                Err(error) => {
                    run.evidence.errors.push(format!("{name} DLQ: {error}"));
                    return;
                }
            };
            let mut unavailable = false;
            // Each has its own try, whatever became of the others: it has been received, and receiving counts.
            for message in messages {
                let drained = match name {
                    "intake" => self.drain_intake(run, &message).await,
                    _ => self.drain_wake_up(run, &message).await,
                };
                let settled = match drained {
                    Ok(Drained::Left) => {
                        run.evidence.left_in_dlq += 1;
                        continue;
                    }
                    Ok(Drained::Recorded) => {
                        run.evidence.drained += 1;
                        queue.delete(&message).await
                    }
                    Ok(Drained::Rejected) => {
                        run.evidence.rejected += 1;
                        queue.delete(&message).await
                    }
                    Err(error) => Err(error),
                };
                if let Err(error) = settled {
                    run.evidence.errors.push(format!("{name} DLQ, message {}: {error}", message.message_id));
                    unavailable |= matches!(error, StoreError::Unavailable(_));
                }
            }
            if unavailable {
                return;
            }
        }
        run.evidence.pages_left += 1;
    }

    async fn drain_intake(&self, run: &mut Run, received: &Received) -> Result<Drained, StoreError> {
        if received.receives > INTAKE_RECEIVES + MAX_RECEIVES {
            return self.reject(received, poisoned(received)).await;
        }
        match message::parse(&received.body, &self.settings.limits) {
            Err(refusal) => self.reject(received, refusal).await,
            Ok(Intake::Cancel(request)) => {
                let sender = received.sender.as_deref();
                cancel::by_producer(&self.deliveries, &request, sender, self.settings.retention, self.clock.now())
                    .await?;
                Ok(Drained::Recorded)
            }
            Ok(Intake::Webhook(message)) => self.recover(run, received, &message).await,
        }
    }

    /// A webhook that was never recorded becomes a waiting delivery, due now or when its producer wants it.
    async fn recover(&self, run: &mut Run, received: &Received, message: &Message) -> Result<Drained, StoreError> {
        let now = self.clock.now();
        let retention = self.settings.retention;
        let due = message.deliver_at.map_or(now, |at| at.max(now));
        let kept_until = transition::keep_until(Some(due), message.deliver_by, now, retention);
        let arrival = Arrival {
            message,
            accepted_at: received.sent_at,
            sender: received.sender.as_deref(),
            budget: self.settings.max_attempts,
        };
        let record = match message.deliver_by {
            Some(by) if by <= now => arrival.expired(kept_until, retention, now),
            _ => arrival.waiting(WaitingReason::Recovered, due, kept_until, now),
        };
        let record = record?;
        self.payloads.keep(&message.key, &message.payload, kept_until).await?;
        let there = match self.deliveries.create(&record).await? {
            Created::New => return Ok(Drained::Recorded),
            Created::Exists(there) => *there,
        };
        let hash = message.payload.hash();
        match judge(&there, Knock::Message { payload_hash: &hash }, &received.message_id, now) {
            Verdict::Conflict => self.reject(received, Refusal::id_conflict(&there.key)).await,
            Verdict::Busy => Ok(Drained::Left),
            // The attempt in flight may be this very message's: it stays as a safety net until the attempt ends.
            Verdict::Duplicate if there.state == State::InFlight => Ok(Drained::Left),
            Verdict::TakeOver => {
                let done = self.take_over(run, &there, Some(kept_until)).await?;
                Ok(if done { Drained::Recorded } else { Drained::Left })
            }
            Verdict::Duplicate | Verdict::Claim | Verdict::WaitUntil(_) | Verdict::TooEarly | Verdict::Expired => {
                Ok(Drained::Recorded)
            }
        }
    }

    async fn drain_wake_up(&self, run: &mut Run, received: &Received) -> Result<Drained, StoreError> {
        if received.receives > RETRY_RECEIVES + MAX_RECEIVES {
            return self.reject(received, poisoned(received)).await;
        }
        let (key, wake_up) = match wakeup::parse(&received.body) {
            Ok(parsed) => parsed,
            Err(refusal) => return self.reject(received, refusal).await,
        };
        match self.deliveries.get(&key).await? {
            None => Ok(Drained::Recorded),
            Some(record) => self.settle_wake_up(run, received, &key, &wake_up, record).await,
        }
    }

    async fn settle_wake_up(
        &self,
        run: &mut Run,
        received: &Received,
        key: &DeliveryKey,
        wake_up: &WakeUp,
        record: Record,
    ) -> Result<Drained, StoreError> {
        let now = self.clock.now();
        let knock = Knock::WakeUp { attempt: wake_up.attempt, due: domain::time::Millis(wake_up.due) };
        match judge(&record, knock, &received.message_id, now) {
            Verdict::Busy => Ok(Drained::Left),
            Verdict::TakeOver if record.payload_kept_until.is_some() => {
                let done = self.take_over(run, &record, None).await?;
                Ok(if done { Drained::Recorded } else { Drained::Left })
            }
            Verdict::TakeOver => Ok(Drained::Left),
            Verdict::Claim | Verdict::WaitUntil(_) | Verdict::TooEarly | Verdict::Expired => {
                tracing::info!(delivery.id = %key.event, endpoint.key = %key.endpoint, "wake-up found in the transport DLQ");
                match self.deliveries.swap(&record, &transition::touch(&record, true, now)).await? {
                    Swapped::Done | Swapped::Lost(_) => Ok(Drained::Recorded),
                }
            }
            Verdict::Duplicate | Verdict::Conflict => Ok(Drained::Recorded),
        }
    }

    async fn reject(&self, received: &Received, refusal: Refusal) -> Result<Drained, StoreError> {
        let (now, retention) = (self.clock.now(), self.settings.retention);
        let sender = received.sender.as_deref();
        let rejected =
            reject::reject(&self.deliveries, &self.payloads, &received.body, refusal, sender, retention, now).await?;
        tracing::warn!(
            reject.reason = rejected.reason.name(),
            reject.sha256 = rejected.sha256,
            "transport DLQ message rejected"
        );
        Ok(Drained::Rejected)
    }
}

fn poisoned(received: &Received) -> Refusal {
    let detail =
        format!("received {} times without being settled; look at it, and send its content again", received.receives);
    Refusal::new(RejectedReason::Unreadable, detail)
}
