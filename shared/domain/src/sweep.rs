//! The rules of the reconciler: which records it may touch, and when. It repairs and reports; it never sends.

use crate::delivery::State;
use crate::record::Record;
use crate::time::{DAY_MS, Millis, SECOND_MS};
use crate::wakeup::MAX_DELAY_SECONDS;

/// An arm run brings in the waits that are due within so many milliseconds: 120 s less than SQS can wait, for index
/// lag, clock skew and a missed run.
pub const ARM_HORIZON_MS: i64 = 780 * SECOND_MS;
/// Repairs of one record back off up to so many milliseconds.
const MAX_REARM_MS: i64 = 3_600 * SECOND_MS;
/// A payload is extended when it would be cleaned up within so many milliseconds.
pub const EXTEND_BEFORE_MS: i64 = 5 * DAY_MS;
/// More visible messages than this on the retry queue are more than a minute's work: nothing is re-armed meanwhile.
pub const BUSY_QUEUE: u64 = 2_000;

/// Clocks differ: a wait that is so many milliseconds below the relay's limit may have been left alone by it.
const SKEW_MS: i64 = 10 * SECOND_MS;

/// True for a wait that the relay may have left alone so far: SQS could not wait that long when it began, nor when it was
/// last touched.
pub fn needs_arming(record: &Record) -> bool {
    if !matches!(record.state, State::Waiting(_)) {
        return false;
    }
    let relayed = record.armed_at.map_or(record.since, |at| at.max(record.since));
    record.due.is_some_and(|due| due.since(relayed) > MAX_DELAY_SECONDS * SECOND_MS - SKEW_MS)
}

/// True when a waiting record should have been claimed long ago: past its due time and its last repair by the grace,
/// which doubles with every repair.
pub fn is_overdue(due: Millis, armed_at: Option<Millis>, rearms: u32, grace_ms: i64, now: Millis) -> bool {
    let grace = grace_ms.saturating_mul(1i64 << rearms.min(30)).min(MAX_REARM_MS.max(grace_ms));
    now > due.max(armed_at.unwrap_or(due)).plus(grace)
}

/// What the sweep may do about a record whose place in the index is overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Touch it: its wake-up got lost.
    Rearm,
    /// Its lease ran out and its own message did not come back: take over.
    TakeOver,
    /// Somebody works on it, or will.
    Owned,
    /// Nothing to do: it moved on, or was repaired a short while ago.
    Leave,
}

/// When the sweep may take over an attempt: its message has had the time to come back by itself.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Grace in milliseconds.
    pub grace_ms: i64,
    /// Length of a lease in milliseconds.
    pub lease_ms: i64,
    /// Visibility timeout of the queues in milliseconds.
    pub visibility_ms: i64,
}

impl Patience {
    /// True when the lease of a record ran out and its own message would have returned by now.
    fn has_run_out(&self, lease_until: Millis, now: Millis) -> bool {
        let received_by = lease_until.plus(-self.lease_ms);
        now > received_by.plus(self.visibility_ms).plus(self.grace_ms) && now > lease_until.plus(self.grace_ms)
    }
}

/// Judges a record that stands in a waiting lane with a due time in the past.
pub fn judge_overdue(record: &Record, patience: Patience, now: Millis) -> Repair {
    match record.state {
        State::Waiting(_) => match record.due {
            Some(due) if is_overdue(due, record.armed_at, record.rearms, patience.grace_ms, now) => Repair::Rearm,
            Some(_) | None => Repair::Leave,
        },
        State::InFlight => match &record.lease {
            Some(lease) if patience.has_run_out(lease.until, now) && record.payload_kept_until.is_some() => {
                Repair::TakeOver
            }
            Some(_) | None => Repair::Owned,
        },
        State::Held(_) | State::Delivered | State::DeadLettered(_) | State::Cancelled | State::Rejected(_) => {
            Repair::Leave
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::WaitingReason;
    use crate::transition::tests::in_flight;

    const PATIENCE: Patience = Patience { grace_ms: 10_000, lease_ms: 60_000, visibility_ms: 270_000 };

    #[test]
    fn repairs_of_one_record_back_off() {
        let overdue_after = |rearms| {
            (0..10_000)
                .map(|s| s * 1000)
                .find(|ms| is_overdue(Millis(0), None, rearms, 10_000, Millis(*ms + 1)))
                .unwrap()
                / 1000
        };
        assert_eq!([0, 1, 2, 3, 20, u32::MAX].map(overdue_after), [10, 20, 40, 80, 3600, 3600]);
        assert!(!is_overdue(Millis(0), Some(Millis(100_000)), 0, 10_000, Millis(110_000)));
    }

    #[test]
    fn a_lease_is_taken_over_after_its_message_could_have_returned() {
        let mut record = in_flight(2);
        record.due = Some(Millis(0));
        let at = |record: &Record, ms| judge_overdue(record, PATIENCE, Millis(ms));
        assert_eq!(at(&record, 10_000_000), Repair::Owned);
        record.payload_kept_until = Some(Millis(1));
        assert_eq!(at(&record, 280_000), Repair::Owned);
        assert_eq!(at(&record, 280_001), Repair::TakeOver);
        record.state = State::Delivered;
        assert_eq!(at(&record, 10_000_000), Repair::Leave);
    }

    #[test]
    fn a_lease_is_respected_even_if_it_is_longer_than_a_message_is_hidden() {
        let mut record = in_flight(2);
        (record.due, record.payload_kept_until) = (Some(Millis(0)), Some(Millis(1)));
        let patience = Patience { visibility_ms: 30_000, ..PATIENCE };
        assert_eq!(judge_overdue(&record, patience, Millis(70_000)), Repair::Owned);
        assert_eq!(judge_overdue(&record, patience, Millis(70_001)), Repair::TakeOver);
    }

    #[test]
    fn a_wait_is_repaired_when_its_grace_is_over() {
        let mut record = in_flight(1);
        (record.state, record.due) = (State::Waiting(WaitingReason::Retry), Some(Millis(5_000)));
        assert_eq!(judge_overdue(&record, PATIENCE, Millis(15_000)), Repair::Leave);
        assert_eq!(judge_overdue(&record, PATIENCE, Millis(15_001)), Repair::Rearm);
    }

    #[test]
    fn only_long_waits_are_armed() {
        let mut record = in_flight(1);
        record.state = State::Waiting(WaitingReason::Scheduled);
        record.due = Some(Millis(890_000));
        assert!(!needs_arming(&record));
        record.due = Some(Millis(890_001));
        assert!(needs_arming(&record));
        record.armed_at = Some(Millis(1));
        assert!(!needs_arming(&record));
        record.due = Some(Millis(2_000_000));
        assert!(needs_arming(&record), "a touch that came too early for the relay does not count");
    }
}
