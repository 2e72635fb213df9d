//! The model: what may have become of a delivery, given what was asked for and what was done to the system. It reads the
//! ledger for what really happened, and the record only for what the system says of it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use domain::delivery::{DeadReason, RejectedReason, State};
use domain::id::DeliveryKey;
use domain::outcome::Class;
use domain::payload::PayloadRef;
use domain::record::{ABANDONED, Record};
use domain::time::Millis;

use crate::ledger::{Arrival, Promise};
use crate::settings::TIMING;
use crate::watch::Check;
use crate::world::World;

/// Clocks differ by so much at most, in milliseconds.
const SKEW_MS: i64 = 10_000;

/// What receivers saw of the duplicates, by cause.
#[derive(Clone, Debug, Default)]
pub struct Duplicates {
    /// Explained: the sender could not know that the request had been accepted.
    pub ambiguous: BTreeMap<&'static str, u64>,
    /// Not explained.
    pub other: u64,
}

impl World {
    /// Nothing that is not final may be without something that moves it on.
    pub fn check_moved(&self) {
        let mut alive: HashSet<String> = HashSet::new();
        for message in [&self.intake, &self.intake_dlq, &self.retry, &self.retry_dlq].iter().flat_map(|q| q.all()) {
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(&message.body) {
                let part = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
                alive.insert(format!("{}#{}", part("id"), part("endpoint")));
            }
        }
        for record in self.table.all().iter().filter(|record| !record.state.is_final()) {
            let listed = record.lane().is_some();
            let moves = match record.state {
                State::InFlight => {
                    alive.contains(&record.key.to_string()) || (listed && record.payload_kept_until.is_some())
                }
                State::Waiting(_) | State::Held(_) => listed,
                State::Delivered | State::DeadLettered(_) | State::Cancelled | State::Rejected(_) => true,
            };
            if !moves {
                self.watch.broken(Check::Unmoved, &record.key, format!("nothing moves it: {}", record.state));
            }
            let kept =
                record.payload.as_ref().is_some_and(|p| self.payloads.kept_until(&record.key, &p.hash).is_some());
            if record.payload_kept_until.is_some() && !kept {
                self.watch.broken(Check::PayloadMissing, &record.key, "its payload is not there");
            }
        }
    }

    /// Judges everything, when the run is over.
    pub fn judge(&self) -> Duplicates {
        self.check_moved();
        let promises = self.ledger.promises();
        let records: BTreeMap<DeliveryKey, Record> = self.table.all().into_iter().map(|r| (r.key.clone(), r)).collect();
        for key in records.keys().filter(|key| !promises.contains_key(key)) {
            self.watch.broken(Check::TwoRecords, key, "nobody asked for this record");
        }
        let conflicts: BTreeSet<(Option<String>, Option<String>)> = self
            .table
            .rejected()
            .into_iter()
            .filter(|r| r.reason == RejectedReason::IdConflict)
            .map(|r| (r.event, r.endpoint))
            .collect();
        let rejected: BTreeSet<String> = self.table.rejected().into_iter().map(|r| r.sha256).collect();
        for sha256 in self.ledger.refused() {
            if !rejected.contains(&sha256) || self.payloads.raw(&sha256).is_none() {
                self.watch.broken(Check::Lost, &sha256, "a message that is not accepted was not kept");
            }
        }
        for (plan, decisions) in self.ledger.decisions().into_iter().filter(|(_, decisions)| decisions.len() > 1) {
            self.watch.broken(Check::DecidedTwice, &plan, format!("confirmed: {decisions:?}"));
        }
        let mut duplicates = Duplicates::default();
        for (key, promise) in &promises {
            let arrivals = self.ledger.arrivals(key);
            match records.get(key) {
                None => self.watch.broken(Check::Lost, key, "its message is gone, and there is no record"),
                Some(record) => {
                    self.end(key, promise, record, &arrivals);
                    self.bytes(promise, record, &arrivals);
                    self.abandoned(record);
                    let conflicting = promise.payloads.len() > 1 && record.payload.is_some();
                    let noted = conflicts.contains(&(Some(key.event.to_string()), Some(key.endpoint.to_string())));
                    if conflicting && !noted {
                        self.watch.broken(Check::Lost, key, "a conflicting message left no trace");
                    }
                }
            }
            self.requests(key, promise, &arrivals);
            self.duplicates(key, &arrivals, &mut duplicates);
        }
        duplicates
    }

    /// The final state has to be true.
    fn end(&self, key: &DeliveryKey, promise: &Promise, record: &Record, arrivals: &[Arrival]) {
        let accepted = arrivals.iter().any(|a| a.accepted);
        let last = record.attempts().next_back();
        let last_class = last.map(|a| a.class);
        let abandoned = record.attempts().filter(|a| a.detail.as_deref() == Some(ABANDONED)).count();
        let (check, why) = match record.state {
            State::InFlight | State::Waiting(_) | State::Held(_) => {
                (Check::Stuck, format!("it is still {} (attempt {})", record.state, record.attempt))
            }
            State::Delivered if !accepted => {
                (Check::Lost, "recorded as delivered, and no receiver accepted it".to_owned())
            }
            State::Cancelled if promise.cancels == 0 => (Check::Lost, "nobody cancelled it".to_owned()),
            State::DeadLettered(reason) => {
                let true_reason = match reason {
                    DeadReason::Exhausted => {
                        last_class.is_some_and(|c| matches!(c, Class::Throttled | Class::Transient | Class::Unknown))
                    }
                    DeadReason::Permanent => last_class == Some(Class::Permanent),
                    DeadReason::Gone => last_class == Some(Class::Gone),
                    DeadReason::Blocked => last_class == Some(Class::Blocked),
                    DeadReason::Expired => promise.deliver_by.is_some(),
                    DeadReason::Crashed => abandoned > 0,
                    DeadReason::PayloadLost => false,
                };
                if true_reason {
                    return;
                }
                (Check::Lost, format!("dead-lettered as {}, which is not true", reason.name()))
            }
            State::Rejected(_) => (Check::Lost, "a delivery is recorded as rejected".to_owned()),
            State::Delivered | State::Cancelled => return,
        };
        self.watch.broken(check, key, why);
    }

    /// The bytes are those of one message, in every request and on record.
    fn bytes(&self, promise: &Promise, record: &Record, arrivals: &[Arrival]) {
        let Some(PayloadRef { hash, .. }) = &record.payload else { return };
        let Some((_, body)) = promise.payloads.iter().find(|(sent, _)| sent == hash) else {
            return self.watch.broken(Check::Changed, &record.key, "the record names a payload that nobody sent");
        };
        if arrivals.iter().any(|a| a.body != *body) {
            self.watch.broken(Check::Changed, &record.key, "a receiver got other bytes");
        }
    }

    /// Every abandoned attempt needs an explanation.
    fn abandoned(&self, record: &Record) {
        for attempt in record.attempts().filter(|a| a.detail.as_deref() == Some(ABANDONED)) {
            let until = attempt.started.plus(attempt.duration_ms + SKEW_MS);
            let hit = self.ledger.was_hit(&record.key, attempt.started.plus(-SKEW_MS), until);
            if !hit && !self.ledger.claimer_was_killed(&record.key, attempt.number) {
                let why =
                    format!("attempt {} is recorded as abandoned, and nothing had happened to it", attempt.number);
                self.watch.broken(Check::NeedlesslyAbandoned, &record.key, why);
            }
        }
    }

    /// Requests come in their time, one per attempt.
    fn requests(&self, key: &DeliveryKey, promise: &Promise, arrivals: &[Arrival]) {
        let mut numbers = BTreeSet::new();
        for arrival in arrivals {
            if !numbers.insert(arrival.attempt) {
                self.watch.broken(Check::OverBudget, key, format!("two requests of attempt {}", arrival.attempt));
            }
            if promise.deliver_at.is_some_and(|at| arrival.at < at.plus(-SKEW_MS)) {
                self.watch.broken(Check::Untimely, key, "a request before its time");
            }
            if promise.deliver_by.is_some_and(|by| arrival.at > by.plus(SKEW_MS + TIMING.function_ms)) {
                self.watch.broken(Check::Untimely, key, "a request after its deadline");
            }
        }
    }

    /// What a receiver got again after it had accepted it.
    fn duplicates(&self, key: &DeliveryKey, arrivals: &[Arrival], duplicates: &mut Duplicates) {
        let mut accepted: Option<&Arrival> = None;
        for arrival in arrivals {
            if let Some(first) = accepted {
                match self.cause(key, first, arrival.at) {
                    Some(cause) => *duplicates.ambiguous.entry(cause).or_default() += 1,
                    None => {
                        duplicates.other += 1;
                        let why = format!(
                            "attempt {} was accepted and recorded, and attempt {} was made",
                            first.attempt, arrival.attempt
                        );
                        self.watch.broken(Check::DuplicatesOther, key, why);
                    }
                }
            }
            if arrival.accepted {
                accepted = Some(arrival);
            }
        }
    }

    /// Why the system could not know that a request had been accepted.
    fn cause(&self, key: &DeliveryKey, first: &Arrival, again: Millis) -> Option<&'static str> {
        match first.told {
            Some(false) => Some("no_answer"),
            None => Some("killed_after_send"),
            Some(true) if self.ledger.claimer_was_killed(key, first.attempt) => Some("killed_before_record"),
            Some(true) if self.ledger.was_hit(key, first.at, again) => Some("record_failed"),
            Some(true) => None,
        }
    }
}
