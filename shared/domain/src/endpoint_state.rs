//! Whether an endpoint takes deliveries now: the operational state beside its configuration. It belongs to a state key,
//! so that all inline URLs of one origin share it, and holds no secrets.

use crate::delivery::HeldReason;
use crate::id::StateKey;
use crate::name::named;
use crate::time::{Millis, SECOND_MS};

named! {
    /// The state that an operator sees and sets.
    pub enum Status {
        /// Deliveries go out.
        Active => "active",
        /// An operator holds them back.
        Paused => "paused",
        /// The endpoint said that it is gone, or an operator gave it up.
        Disabled => "disabled",
    }
}

impl Status {
    /// Why deliveries are held in this state, if they are.
    pub const fn holds(self) -> Option<HeldReason> {
        match self {
            Self::Active => None,
            Self::Paused => Some(HeldReason::Paused),
            Self::Disabled => Some(HeldReason::Disabled),
        }
    }
}

/// The state of an endpoint. One that was never written is active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointState {
    /// Whose.
    pub key: StateKey,
    /// What it is.
    pub status: Status,
    /// Since when.
    pub since: Millis,
    /// Who set it, and why.
    pub because: String,
    /// While what was held is being released: how many have been so far.
    pub released: Option<u32>,
    /// Grows with every write.
    pub rev: u64,
}

/// After an endpoint was resumed, a delivery may still come to be held by somebody who looked just before and took as long
/// as a function can run (15 minutes), and an index may lag by minutes: a release is complete only when it finds nothing so
/// many milliseconds later.
const SETTLES_MS: i64 = 1_200 * SECOND_MS;
/// What was held goes out at so many per second in the first minute, and twice as many in each following one …
const FIRST_RATE: i64 = 10;
/// … up to so many.
const LAST_RATE: i64 = 200;

impl EndpointState {
    /// The state of an endpoint that nobody ever touched.
    pub fn untouched(key: &StateKey) -> Self {
        let because = String::new();
        Self { key: key.clone(), status: Status::Active, since: Millis(0), because, released: None, rev: 0 }
    }

    /// Set by somebody, for a reason. Making it active starts the release of what is held.
    #[must_use]
    pub fn set(&self, status: Status, because: &str, now: Millis) -> Self {
        Self {
            key: self.key.clone(),
            status,
            since: now,
            because: because.to_owned(),
            released: (status == Status::Active).then_some(0),
            rev: self.rev + 1,
        }
    }

    /// So many more have been released.
    #[must_use]
    pub fn released_more(&self, count: u32) -> Self {
        Self { released: self.released.map(|n| n.saturating_add(count)), rev: self.rev + 1, ..self.clone() }
    }

    /// Nothing was left to release.
    pub fn settled(&self, now: Millis) -> Option<Self> {
        let over = self.released.is_some() && now.since(self.since) > SETTLES_MS;
        over.then(|| Self { released: None, rev: self.rev + 1, ..self.clone() })
    }

    /// Whether a delivery that is held since then is the business of this resume. One that came to be held later would only be
    /// held again, for the same reason, as long as the release lasts.
    pub fn covers(&self, held_since: Millis) -> bool {
        held_since.since(self.since) <= SETTLES_MS
    }

    /// When the delivery number `index` that is released becomes due: never before now.
    pub fn slot(&self, index: u32, now: Millis) -> Millis {
        let (mut left, mut rate, mut minute) = (i64::from(index), FIRST_RATE, 0);
        while rate < LAST_RATE && left >= rate * 60 {
            left -= rate * 60;
            rate = (rate * 2).min(LAST_RATE);
            minute += 1;
        }
        now.max(self.since.plus(minute * 60 * SECOND_MS + left * SECOND_MS / rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resumed() -> EndpointState {
        let key = StateKey::stored("p");
        EndpointState::untouched(&key).set(Status::Active, "operator oncall: fixed", Millis(0))
    }

    #[test]
    fn only_an_active_endpoint_takes_deliveries() {
        assert_eq!(
            [Status::Active.holds(), Status::Paused.holds(), Status::Disabled.holds()],
            [None, Some(HeldReason::Paused), Some(HeldReason::Disabled)]
        );
    }

    #[test]
    fn every_change_moves_the_revision_on_by_one() {
        let state = EndpointState { rev: 5, ..resumed() };
        let settled = state.settled(Millis(SETTLES_MS + 1)).map(|s| s.rev);
        let [paused, more] = [state.set(Status::Paused, "", Millis(1)), state.released_more(1)].map(|s| s.rev);
        assert_eq!((paused, more, settled), (6, 6, Some(6)));
    }

    #[test]
    fn what_was_held_goes_out_slowly_at_first_and_never_in_the_past() {
        let state = resumed();
        let second = |index| state.slot(index, Millis(0)).0 / SECOND_MS;
        assert_eq!([second(0), second(10), second(599)], [0, 1, 59]);
        assert_eq!([second(600), second(620), second(1_800), second(1_840)], [60, 61, 120, 121]);
        assert_eq!([599, 600, 601].map(|index| state.slot(index, Millis(0)).0), [59_900, 60_000, 60_050]);
        assert_eq!(state.slot(0, Millis(5_000)), Millis(5_000));
        for index in 0..20_000 {
            assert!(state.slot(index, Millis(0)) <= state.slot(index + 1, Millis(0)), "{index}");
        }
        // 600 + 1,200 + 2,400 + 4,800 + 9,600 in five minutes, then 200 per second.
        assert_eq!([second(18_600), second(18_800)], [300, 301]);
    }

    #[test]
    fn a_release_is_over_when_nothing_came_for_twenty_minutes_and_covers_what_was_held_until_then() {
        let state = resumed().released_more(3);
        assert_eq!((state.released, state.settled(Millis(1_200_000))), (Some(3), None));
        assert_eq!((state.covers(Millis(1_200_000)), state.covers(Millis(1_200_001))), (true, false));
        assert_eq!(state.settled(Millis(1_200_001)).map(|s| (s.released, s.status)), Some((None, Status::Active)));
        assert_eq!(state.set(Status::Paused, "", Millis(1)).released, None, "a new pause ends the release");
    }
}
