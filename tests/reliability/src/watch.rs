//! Looks at every write of a record as it happens, and knows the rules that hold between what was there and what is there
//! now. A broken rule is a violation, with the name of its check.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use domain::delivery::State;
use domain::record::Record;
use domain::time::{Millis, SECOND_MS};
use testkit::executor::Executor;

use crate::ledger::Ledger;

/// The checks. Each is one way to break the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// A message was accepted, and its webhook is neither delivered nor ended for a reason that is true.
    Lost,
    /// A record is not final, and nothing moves it any more.
    Stuck,
    /// More attempts than the budget allows, or more than one request for an attempt.
    OverBudget,
    /// A receiver got other bytes or another id than were sent first, or the record names others.
    Changed,
    /// A receiver got again what it had accepted, and no fault explains it.
    DuplicatesOther,
    /// A request was made before its time, after its deadline, or while its endpoint was paused.
    Untimely,
    /// A record that nobody asked for.
    TwoRecords,
    /// A write that cannot have known what it replaced.
    UnconditionalWrite,
    /// A record that is not final, and is in no message, index or hold that leads on.
    Unmoved,
    /// A record that is not final may be cleaned up, or a final one may not.
    Expiring,
    /// A record will need its payload, and it is not kept.
    PayloadMissing,
    /// An attempt is recorded as abandoned, and nothing had happened to it.
    NeedlesslyAbandoned,
    /// Two decisions about one plan were both confirmed.
    DecidedTwice,
}

impl Check {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Stuck => "stuck",
            Self::OverBudget => "over_budget",
            Self::Changed => "changed",
            Self::DuplicatesOther => "duplicates_other",
            Self::Untimely => "untimely",
            Self::TwoRecords => "two_records",
            Self::UnconditionalWrite => "unconditional_write",
            Self::Unmoved => "unmoved",
            Self::Expiring => "expiring",
            Self::PayloadMissing => "payload_missing",
            Self::NeedlesslyAbandoned => "needlessly_abandoned",
            Self::DecidedTwice => "decided_twice",
        }
    }
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which check found it.
    pub check: Check,
    /// Which delivery.
    pub key: String,
    /// What is wrong.
    pub why: String,
}

/// Buckets of lateness, in seconds: a claim late by less than this.
const LATE_SECONDS: [i64; 8] = [1, 3, 10, 60, 300, 900, 3_600, i64::MAX];

/// What was seen so far. Clones share it.
#[derive(Clone)]
pub struct Watch {
    seen: Rc<Seen>,
}

struct Seen {
    executor: Executor,
    ledger: Ledger,
    budget: Cell<u32>,
    open: Cell<i64>,
    records: Cell<u64>,
    late: RefCell<BTreeMap<i64, u64>>,
    violations: RefCell<Vec<Violation>>,
}

impl Watch {
    /// Sees nothing yet. No endpoint allows more than `budget` attempts per generation.
    pub fn new(executor: Executor, ledger: Ledger, budget: u32) -> Self {
        Self {
            seen: Rc::new(Seen {
                executor,
                ledger,
                budget: Cell::new(budget),
                open: Cell::new(0),
                records: Cell::new(0),
                late: RefCell::default(),
                violations: RefCell::default(),
            }),
        }
    }

    /// A promise is broken.
    pub fn broken(&self, check: Check, key: &dyn std::fmt::Display, why: impl Into<String>) {
        let violation = Violation { check, key: key.to_string(), why: why.into() };
        let line = || format!("BROKEN {}: {}", check.name(), violation.why);
        self.seen.ledger.tell(&violation.key, self.seen.executor.now(), line);
        self.seen.violations.borrow_mut().push(violation);
    }

    /// The time.
    pub fn now(&self) -> Millis {
        self.seen.executor.now()
    }

    /// What was broken so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.seen.violations.borrow().clone()
    }

    /// Records that are not final.
    pub fn open(&self) -> i64 {
        self.seen.open.get()
    }

    /// How late retries were claimed: so many less than so many seconds late.
    pub fn late(&self) -> BTreeMap<i64, u64> {
        self.seen.late.borrow().clone()
    }

    /// A write.
    pub fn write(&self, old: Option<&Record>, new: &Record) {
        let now = self.seen.executor.now();
        self.seen.ledger.tell(&new.key.to_string(), now, || {
            let from = old.map_or("(none)".to_owned(), |r| format!("{} rev {}", r.state, r.rev));
            let due = new.due.map_or(String::new(), |due| format!(", due {due}"));
            format!(
                "table: {from} -> {} rev {}, attempt {}, generation {}{due}",
                new.state, new.rev, new.attempt, new.generation
            )
        });
        let open = |record: &Record| i64::from(!record.state.is_final());
        self.seen.open.set(self.seen.open.get() + open(new) - old.map_or(0, open));
        if old.is_none() {
            self.seen.records.set(self.seen.records.get() + 1);
        }
        let claimed = matches!(new.state, State::InFlight) && old.is_none_or(|old| old.attempt != new.attempt);
        if claimed {
            self.seen.ledger.claimed(&new.key, new.attempt, self.seen.executor.running());
            self.claim(old, new, now);
        }
        if let Err((check, why)) = self.rules(old, new) {
            self.broken(check, &new.key, why);
        }
    }

    fn claim(&self, old: Option<&Record>, new: &Record, now: Millis) {
        let due = old.filter(|old| matches!(old.state, State::Waiting(_))).and_then(|old| old.due);
        if let Some(due) = due {
            let late = now.since(due) / SECOND_MS;
            let bucket = LATE_SECONDS.iter().copied().find(|bound| late < *bound).unwrap_or(i64::MAX);
            *self.seen.late.borrow_mut().entry(bucket).or_default() += 1;
            if new.since < due {
                self.broken(Check::Untimely, &new.key, format!("claimed {} ms before it is due", due.since(new.since)));
            }
        }
        if new.deliver_by.is_some_and(|by| new.since > by) {
            self.broken(Check::Untimely, &new.key, "claimed after its deadline");
        }
    }

    fn rules(&self, old: Option<&Record>, new: &Record) -> Result<(), (Check, String)> {
        let rule = |holds: bool, check: Check, why: &str| if holds { Ok(()) } else { Err((check, why.to_owned())) };
        rule(
            new.state.is_final() == new.expires_at.is_some(),
            Check::Expiring,
            "the clean-up time does not fit the state",
        )?;
        rule(
            !matches!(new.state, State::Waiting(_)) || new.due.is_some(),
            Check::Unmoved,
            "it waits without a due time",
        )?;
        rule((new.state == State::InFlight) == new.lease.is_some(), Check::Unmoved, "a lease does not fit the state")?;
        rule(new.used() <= self.seen.budget.get(), Check::OverBudget, "more attempts than the budget allows")?;
        let needs_payload = matches!(new.state, State::Waiting(_) | State::Held(_));
        rule(
            !needs_payload || new.payload_kept_until.is_some(),
            Check::PayloadMissing,
            "it will need its payload, and none is kept",
        )?;
        let Some(old) = old else { return Ok(()) };
        let unconditional = |holds, why| rule(holds, Check::UnconditionalWrite, why);
        unconditional(new.rev == old.rev + 1, "the revision does not follow")?;
        unconditional(new.attempt >= old.attempt && new.attempt <= old.attempt + 1, "the attempt does not follow")?;
        unconditional(
            new.attempt == old.attempt || new.state == State::InFlight,
            "an attempt was counted without being claimed",
        )?;
        unconditional(may_follow(old.state, new.state), "that state cannot follow")?;
        unconditional(
            new.generation == old.generation || (new.generation == old.generation + 1 && new.plan.is_some()),
            "a generation began without a plan",
        )?;
        rule(old.payload == new.payload, Check::Changed, "the record names another payload")?;
        rule(old.key == new.key, Check::Changed, "the record has another key")
    }
}

/// Which state may be written over which: the table of the design, apart from the code that implements it.
fn may_follow(old: State, new: State) -> bool {
    match old {
        State::InFlight => !matches!(new, State::Held(_) | State::Rejected(_)),
        State::Waiting(_) => !matches!(new, State::Rejected(_)),
        State::Held(_) => !matches!(new, State::InFlight | State::Rejected(_)),
        State::DeadLettered(_) => matches!(new, State::Waiting(_) | State::Delivered),
        State::Delivered => matches!(new, State::Waiting(_)),
        State::Cancelled | State::Rejected(_) => false,
    }
}
