//! Wake-ups: SQS pointer messages that say "look at this delivery now". Never the truth, never a payload.

use serde::{Deserialize, Serialize};

use crate::delivery::{RejectedReason, State};
use crate::id::DeliveryKey;
use crate::message::Refusal;
use crate::record::Record;
use crate::time::{Millis, SECOND_MS};

/// The longest delay that SQS accepts, in seconds.
pub const MAX_DELAY_SECONDS: i64 = 900;

/// An SQS delay: 0 to 900 seconds, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay(u16);

impl Delay {
    /// The delay until `due`, rounded up to the second; `None` when that is longer than SQS can wait.
    pub fn until(due: Millis, now: Millis) -> Option<Self> {
        let ms = due.since(now).max(0);
        let seconds = ms / SECOND_MS + i64::from(ms % SECOND_MS > 0);
        if seconds > MAX_DELAY_SECONDS { None } else { u16::try_from(seconds).ok().map(Self) }
    }

    /// In seconds.
    pub const fn seconds(self) -> u16 {
        self.0
    }
}

/// The body of a wake-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeUp {
    /// Event id.
    pub id: String,
    /// Endpoint key.
    pub endpoint: String,
    /// The attempt it is for.
    pub attempt: u32,
    /// When that attempt is due, in milliseconds since the epoch.
    pub due: i64,
    /// The last attempt was abandoned: run it apart from its neighbours.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abandoned: bool,
    /// The plan that released it, until its first claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The due is a slot of that plan's rate, booked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub booked: bool,
}

/// The part of a waiting record that its wake-up is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The wake-up's body.
    pub wake_up: WakeUp,
    /// The SQS message group: whose health the delivery shares, so that one endpoint in trouble cannot crowd out others.
    pub group: String,
}

impl Waiting {
    /// The wake-up of a record, if it waits.
    pub fn of(record: &Record) -> Option<Self> {
        let (State::Waiting(_), Some(due)) = (record.state, record.due) else { return None };
        Some(Self {
            wake_up: WakeUp {
                id: record.key.event.to_string(),
                endpoint: record.key.endpoint.to_string(),
                attempt: record.attempt.saturating_add(1),
                due: due.0,
                abandoned: record.abandoned_in_a_row() > 0,
                plan: record.released_from.and(record.plan.clone()),
                booked: record.booked,
            },
            group: record.state_key.to_string(),
        })
    }

    /// The delay of its wake-up; `None` when that is longer than SQS can wait. Never early, but for a booked slot: its
    /// wake-up comes up to a second before it and waits, so that a plan's rate is even within a second, too.
    pub fn delay(&self, now: Millis) -> Option<Delay> {
        let early_ms = if self.wake_up.booked { SECOND_MS } else { 0 };
        Delay::until(Millis(self.wake_up.due).plus(-early_ms), now)
    }
}

/// Reads the body of a retry queue message.
pub fn parse(raw: &str) -> Result<(DeliveryKey, WakeUp), Refusal> {
    let wrong = |detail: String| {
        Refusal::new(
            RejectedReason::Unreadable,
            format!("this is no wake-up: {detail}; only schedule-retry writes to the retry queue"),
        )
    };
    let wake_up: WakeUp = serde_json::from_str(raw).map_err(|e| wrong(e.to_string()))?;
    let key = DeliveryKey::parse(&wake_up.id, &wake_up.endpoint).map_err(wrong)?;
    Ok((key, wake_up))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Decision;
    use crate::transition::tests::{RETENTION, failed, in_flight};
    use crate::transition::{Heir, finish, take_over};
    use proptest::prelude::*;

    #[test]
    fn a_wake_up_holds_a_pointer_and_nothing_else() {
        let raw = r#"{"id":"e","endpoint":"p","attempt":2,"due":1000}"#;
        let (key, wake_up) = parse(raw).unwrap();
        assert_eq!((key.to_string().as_str(), serde_json::to_string(&wake_up).unwrap().as_str()), ("e#p", raw));
        for bad in [
            "",
            "{}",
            r#"{"id":"a.b","endpoint":"p","attempt":2,"due":1}"#,
            r#"{"id":"e","endpoint":"p","attempt":-1,"due":1}"#,
        ] {
            assert_eq!(parse(bad).unwrap_err().reason, RejectedReason::Unreadable, "{bad}");
        }
    }

    #[test]
    fn the_wake_up_of_a_booked_slot_comes_up_to_a_second_before_it_and_no_other_is_early() {
        let waiting = |booked| Waiting {
            wake_up: WakeUp {
                id: "e".into(),
                endpoint: "p".into(),
                attempt: 1,
                due: 10_300,
                abandoned: false,
                plan: None,
                booked,
            },
            group: String::new(),
        };
        let comes_at = |booked, now| now + i64::from(waiting(booked).delay(Millis(now)).unwrap().seconds()) * 1_000;
        for now in [0, 299, 300, 301, 999] {
            assert!((9_300..=10_300).contains(&comes_at(true, now)), "{now}");
            assert!((10_300..11_300).contains(&comes_at(false, now)), "{now}");
        }
    }

    #[test]
    fn the_longest_delay_is_900_seconds() {
        let delay = |ms| Delay::until(Millis(ms), Millis(0)).map(Delay::seconds);
        assert_eq!([delay(899_001), delay(900_000), delay(900_001)], [Some(900), Some(900), None]);
    }

    #[test]
    fn a_wake_up_warns_of_an_attempt_that_was_abandoned() {
        let retry = Decision::Retry { due: Millis(500) };
        let failed = finish(&in_flight(1), &failed(), retry, None, RETENTION, Millis(9)).unwrap();
        let abandoned = take_over(&in_flight(1), Heir::Queue(Millis(500)), None, RETENTION, Millis(70_000)).unwrap();
        assert_eq!([failed, abandoned].map(|r| Waiting::of(&r).unwrap().wake_up.abandoned), [false, true]);
    }

    proptest! {
        #[test]
        fn a_delay_is_between_0_and_900_never_early_and_less_than_a_second_late(
            now in any::<i64>(), wait in prop_oneof![-2_000i64..902_000, any::<i64>()],
        ) {
            let due = now.saturating_add(wait);
            match Delay::until(Millis(due), Millis(now)) {
                None => prop_assert!(due.saturating_sub(now) > 900_000),
                Some(delay) => {
                    prop_assert!(delay.seconds() <= 900);
                    let late = i64::from(delay.seconds()) * 1000 - due.saturating_sub(now).max(0);
                    prop_assert!((0..1000).contains(&late));
                }
            }
        }
    }
}
