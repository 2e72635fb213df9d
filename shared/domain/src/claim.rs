//! Who may start an attempt: what a record that is already there means for a message that knocks.

use crate::delivery::State;
use crate::record::Record;
use crate::time::{Millis, SECOND_MS};

/// A wake-up may come this much early and is waited out.
pub const EARLY_MS: i64 = 2 * SECOND_MS;

/// A message that wants to start an attempt.
#[derive(Clone, Copy, Debug)]
pub enum Knock<'a> {
    /// An intake message with its payload.
    Message {
        /// Identity of the payload it carries.
        payload_hash: &'a str,
    },
    /// A wake-up.
    WakeUp {
        /// The attempt it is for.
        attempt: u32,
        /// When it believes that attempt to be due.
        due: Millis,
    },
}

/// The answer to a knock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Another message, record or attempt covers this; acknowledge.
    Duplicate,
    /// The same id and endpoint with another payload; reject the message, leave the record.
    Conflict,
    /// This very message is being worked on elsewhere; report it as failed, so that it returns.
    Busy,
    /// The lease ran out; take over.
    TakeOver,
    /// It can be claimed now.
    Claim,
    /// Due within two seconds; wait until then and claim.
    WaitUntil(Millis),
    /// Due later; touch the record so that a wake-up with the right delay goes out, and acknowledge.
    TooEarly,
    /// `deliver_by` has passed; dead-letter.
    Expired,
}

/// Judges the knock of an SQS message against the record. The conflict of payloads comes first, in every state; the numbers of a wake-up
/// are compared only with a waiting record.
pub fn judge(record: &Record, knock: Knock<'_>, message_id: &str, now: Millis) -> Verdict {
    if let (Knock::Message { payload_hash }, Some(payload)) = (knock, &record.payload)
        && payload.hash != payload_hash
    {
        return Verdict::Conflict;
    }
    match record.state {
        State::InFlight => match &record.lease {
            Some(lease) if lease.until > now => {
                if lease.claim_id.message_id() == message_id {
                    Verdict::Busy
                } else {
                    Verdict::Duplicate
                }
            }
            Some(_) | None => Verdict::TakeOver,
        },
        State::Waiting(_) => match knock {
            Knock::Message { .. } => Verdict::Duplicate,
            Knock::WakeUp { attempt, due } => {
                let record_due = record.due.unwrap_or(now);
                if attempt != record.attempt.saturating_add(1) || due < record_due {
                    Verdict::Duplicate
                } else if record.deliver_by.is_some_and(|by| by <= now) {
                    Verdict::Expired
                } else if record_due > now.plus(EARLY_MS) {
                    Verdict::TooEarly
                } else if record_due > now {
                    Verdict::WaitUntil(record_due)
                } else {
                    Verdict::Claim
                }
            }
        },
        State::Held(_) | State::Delivered | State::DeadLettered(_) | State::Cancelled | State::Rejected(_) => {
            Verdict::Duplicate
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::{DeadReason, WaitingReason};
    use crate::transition::tests::in_flight;

    fn hash(record: &Record) -> String {
        record.payload.as_ref().unwrap().hash.clone()
    }

    #[test]
    fn a_conflict_is_judged_first_in_every_state() {
        let mut record = in_flight(1);
        for state in [
            State::InFlight,
            State::Delivered,
            State::Cancelled,
            State::Waiting(WaitingReason::Retry),
            State::DeadLettered(DeadReason::Permanent),
        ] {
            record.state = state;
            let knock = Knock::Message { payload_hash: "other" };
            assert_eq!(judge(&record, knock, "m", Millis(0)), Verdict::Conflict, "{state}");
        }
        record.payload = None;
        record.state = State::Cancelled;
        assert_eq!(judge(&record, Knock::Message { payload_hash: "any" }, "m", Millis(0)), Verdict::Duplicate);
    }

    #[test]
    fn a_lease_is_respected_until_it_runs_out() {
        let record = in_flight(1);
        let hash = hash(&record);
        let by = |message: &str, at| judge(&record, Knock::Message { payload_hash: &hash }, message, Millis(at));
        assert_eq!(by("m", 59_999), Verdict::Busy);
        assert_eq!(by("other", 59_999), Verdict::Duplicate);
        assert_eq!(by("m", 60_000), Verdict::TakeOver);
        assert_eq!(by("other", 60_000), Verdict::TakeOver);
        let wake = Knock::WakeUp { attempt: 99, due: Millis(0) };
        assert_eq!(judge(&record, wake, "w", Millis(60_000)), Verdict::TakeOver);
    }

    #[test]
    fn a_wake_up_is_compared_with_a_waiting_record_only() {
        let mut record = in_flight(2);
        record.state = State::Waiting(WaitingReason::Retry);
        record.due = Some(Millis(10_000));
        let wake = |record: &Record, attempt, due, now| {
            judge(record, Knock::WakeUp { attempt, due: Millis(due) }, "w", Millis(now))
        };
        assert_eq!(wake(&record, 3, 10_000, 10_000), Verdict::Claim);
        assert_eq!(wake(&record, 3, 10_000, 8_000), Verdict::WaitUntil(Millis(10_000)));
        assert_eq!(wake(&record, 3, 10_000, 7_999), Verdict::TooEarly);
        assert_eq!(wake(&record, 2, 10_000, 10_000), Verdict::Duplicate);
        assert_eq!(wake(&record, 4, 10_000, 10_000), Verdict::Duplicate);
        assert_eq!(wake(&record, 3, 9_999, 10_000), Verdict::Duplicate);
        record.deliver_by = Some(Millis(10_000));
        assert_eq!(wake(&record, 3, 10_000, 10_000), Verdict::Expired);
        record.state = State::DeadLettered(DeadReason::Permanent);
        assert_eq!(wake(&record, 3, 10_000, 10_000), Verdict::Duplicate);
    }
}
