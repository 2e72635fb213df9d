//! The shape of a stream batch. What could not be sent is reported by its sequence number; the stream repeats from the
//! first of them, and a second wake-up does no harm.

use domain::ports::Clock;
use platform::lambda::{BatchAnswer, StreamEvent};
use platform::sqs::WakeUps;

use crate::schedule_retry::{Relay, relay};

/// Handles a batch.
pub async fn handle(event: &StreamEvent, wake_ups: &WakeUps, clock: &impl Clock) -> BatchAnswer {
    let sequence = |index: usize| event.records[index].change.sequence_number.clone();
    let mut to_send = Vec::new();
    let mut places = Vec::new();
    for (i, record) in event.records.iter().enumerate() {
        match relay(record, clock) {
            Relay::Send(waiting, delay) => {
                to_send.push((waiting, delay));
                places.push(i);
            }
            Relay::LeaveToArm(record) => {
                tracing::info!(delivery.id = %record.key.event, endpoint.key = %record.key.endpoint, delivery.due = record.due.map(|d| d.to_string()), "long wait left to the sweep");
            }
            Relay::Ignore => {}
            Relay::Unreadable(detail) => {
                tracing::error!(stream.sequence = sequence(i), detail, "a change cannot be relayed")
            }
        }
    }
    let not_sent = wake_ups.send(&to_send).await;
    for (i, (waiting, delay)) in to_send.iter().enumerate() {
        let wake_up = &waiting.wake_up;
        match not_sent.iter().find(|n| n.index == i) {
            None => tracing::info!(
                delivery.id = wake_up.id,
                endpoint.key = wake_up.endpoint,
                attempt.number = wake_up.attempt,
                retry.due_at = %domain::time::Millis(wake_up.due),
                retry.delay_seconds = delay.seconds(),
                "wake-up sent"
            ),
            // SQS refuses the entry itself: repeating would block the stream behind it. The sweep re-arms the record.
            Some(n) if n.refused => {
                tracing::error!(
                    delivery.id = wake_up.id,
                    endpoint.key = wake_up.endpoint,
                    detail = n.detail,
                    "wake-up refused"
                );
            }
            Some(n) => {
                tracing::warn!(
                    delivery.id = wake_up.id,
                    endpoint.key = wake_up.endpoint,
                    detail = n.detail,
                    "wake-up not sent, will be repeated"
                );
            }
        }
    }
    let failed = not_sent.iter().filter(|n| !n.refused).map(|n| sequence(places[n.index]));
    BatchAnswer::new(event.records.iter().map(|r| r.change.sequence_number.as_str()), failed.collect::<Vec<_>>())
}
