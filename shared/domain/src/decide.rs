//! What happens after an attempt: all policy, in one place.

use crate::delivery::DeadReason;
use crate::outcome::Class;
use crate::record::Record;
use crate::retry::RetryPolicy;
use crate::time::{Millis, SECOND_MS};

/// The complete answer to "and now?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is done.
    Deliver,
    /// Try again at that time.
    Retry {
        /// When the next attempt is due.
        due: Millis,
    },
    /// Give up, for that reason.
    Dead(DeadReason),
    /// A cancel came while the attempt was in flight.
    Cancel,
}

/// Decides from the record as it stands (attempt in flight), the class of the outcome, and the endpoint's policy.
/// `now` is the time of the decision, `hint` what the endpoint asked for, `random` in `[0, 1)` the share of jitter.
pub fn decide(
    record: &Record,
    class: Class,
    policy: &RetryPolicy,
    now: Millis,
    hint: Option<Millis>,
    random: f64,
) -> Decision {
    if class == Class::Accepted || record.accepted_late {
        return Decision::Deliver;
    }
    if record.cancel_requested {
        return Decision::Cancel;
    }
    match class {
        Class::Permanent => Decision::Dead(DeadReason::Permanent),
        Class::Gone => Decision::Dead(DeadReason::Gone),
        Class::Blocked => Decision::Dead(DeadReason::Blocked),
        Class::Accepted | Class::Throttled | Class::Transient | Class::Unknown => {
            if record.used() >= policy.attempts {
                return Decision::Dead(DeadReason::Exhausted);
            }
            let due = policy.due(record.used(), now, hint, random);
            let window_ms = policy.window_seconds.map(|seconds| i64::from(seconds) * SECOND_MS);
            if window_ms.is_some_and(|window| due.since(record.generation_began()) > window) {
                return Decision::Dead(DeadReason::Exhausted);
            }
            if record.deliver_by.is_some_and(|by| due > by) {
                return Decision::Dead(DeadReason::Expired);
            }
            Decision::Retry { due }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::Waits;
    use crate::transition::tests::{RETENTION, failed, in_flight, lease};
    use crate::transition::{claim, finish};

    fn policy() -> RetryPolicy {
        RetryPolicy {
            attempts: 3,
            waits: Waits::List(vec![1, 2]),
            jitter_percent: 0,
            hint_cap_seconds: 60,
            window_seconds: None,
        }
    }

    fn decided(record: &Record, class: Class, hint: Option<Millis>) -> Decision {
        decide(record, class, &policy(), Millis(1_000), hint, 0.0)
    }

    #[test]
    fn every_class_has_its_decision() {
        let record = in_flight(1);
        for class in Class::ALL {
            let expected = match class {
                Class::Accepted => Decision::Deliver,
                Class::Permanent => Decision::Dead(DeadReason::Permanent),
                Class::Gone => Decision::Dead(DeadReason::Gone),
                Class::Blocked => Decision::Dead(DeadReason::Blocked),
                Class::Throttled | Class::Transient | Class::Unknown => Decision::Retry { due: Millis(2_000) },
            };
            assert_eq!(decided(&record, *class, None), expected, "{class}");
        }
    }

    #[test]
    fn the_budget_counts_attempts_of_this_generation() {
        let mut record = in_flight(3);
        assert_eq!(decided(&record, Class::Transient, None), Decision::Dead(DeadReason::Exhausted));
        record.budget_from = 1;
        assert_eq!(decided(&record, Class::Transient, None), Decision::Retry { due: Millis(3_000) });
    }

    #[test]
    fn a_hint_delays_within_the_deadline_only() {
        let mut record = in_flight(1);
        assert_eq!(decided(&record, Class::Throttled, Some(Millis(9_000))), Decision::Retry { due: Millis(9_000) });
        assert_eq!(decided(&record, Class::Throttled, Some(Millis(1))), Decision::Retry { due: Millis(2_000) });
        record.deliver_by = Some(Millis(2_000));
        assert_eq!(decided(&record, Class::Throttled, None), Decision::Retry { due: Millis(2_000) });
        assert_eq!(decided(&record, Class::Throttled, Some(Millis(2_001))), Decision::Dead(DeadReason::Expired));
    }

    #[test]
    fn a_window_ends_a_generation_before_its_attempts_do() {
        let within = |window| RetryPolicy { window_seconds: Some(window), ..policy() };
        // The attempt began at 0; the next one would be due at 2 s.
        let record = in_flight(1);
        let verdict = |policy| decide(&record, Class::Transient, &policy, Millis(1_000), None, 0.0);
        assert_eq!(verdict(within(2)), Decision::Retry { due: Millis(2_000) });
        assert_eq!(verdict(within(1)), Decision::Dead(DeadReason::Exhausted));
    }

    #[test]
    fn a_window_begins_with_the_first_attempt_of_its_generation() {
        let mut record = in_flight(1);
        for start in [100_000, 200_000] {
            let retry = Decision::Retry { due: Millis(start) };
            let waiting = finish(&record, &failed(), retry, None, RETENTION, Millis(start - 1)).unwrap();
            record = claim(&waiting, lease("w"), Millis(start)).unwrap();
        }
        // Attempt 1 was that of an earlier generation; this one began at 100 s, and the next attempt would be due at 203 s.
        record.budget_from = 1;
        let verdict = |window| {
            let policy = RetryPolicy { window_seconds: Some(window), ..policy() };
            decide(&record, Class::Transient, &policy, Millis(201_000), None, 0.0)
        };
        assert_eq!(verdict(103), Decision::Retry { due: Millis(203_000) });
        assert_eq!(verdict(102), Decision::Dead(DeadReason::Exhausted));
    }

    #[test]
    fn a_cancel_in_flight_wins_over_everything_but_an_acceptance() {
        let mut record = in_flight(1);
        record.cancel_requested = true;
        assert_eq!(decided(&record, Class::Transient, None), Decision::Cancel);
        assert_eq!(decided(&record, Class::Permanent, None), Decision::Cancel);
        assert_eq!(decided(&record, Class::Accepted, None), Decision::Deliver);
        record.accepted_late = true;
        assert_eq!(decided(&record, Class::Permanent, None), Decision::Deliver);
    }
}
