//! What really happened, from outside: what producers asked for, what was broken on purpose, and who was killed. The model
//! judges the system against this, never against what the system says of itself.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use domain::id::DeliveryKey;
use domain::time::Millis;
use testkit::executor::TaskId;
use testkit::hostile::Fate;

/// What producers and operators asked for about one delivery.
#[derive(Clone, Debug, Default)]
pub struct Promise {
    /// The payloads that were sent under its key: hash and body.
    pub payloads: Vec<(String, Vec<u8>)>,
    /// Messages put on the queue.
    pub messages: u32,
    /// Cancels asked for, by producers or operators.
    pub cancels: u32,
    /// Not before.
    pub deliver_at: Option<Millis>,
    /// Not after.
    pub deliver_by: Option<Millis>,
}

/// What a request to the receiver was, and what came of it.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Number of the attempt, from its header.
    pub attempt: u32,
    /// When it arrived.
    pub at: Millis,
    /// Its body.
    pub body: Vec<u8>,
    /// The receiver accepted it, whatever its sender learnt.
    pub accepted: bool,
    /// What its sender learnt: `Some(true)` for an acceptance, `Some(false)` for anything else, `None` for nothing at all.
    pub told: Option<bool>,
}

/// The record of a run. Clones share it.
#[derive(Clone, Default)]
pub struct Ledger {
    inner: Rc<RefCell<Inner>>,
}

#[derive(Default)]
struct Inner {
    promises: BTreeMap<DeliveryKey, Promise>,
    arrivals: HashMap<DeliveryKey, Vec<Arrival>>,
    /// Faults on calls about a delivery, but no silent repetitions.
    hits: HashMap<String, Vec<Millis>>,
    counts: BTreeMap<&'static str, u64>,
    /// Hashes of messages that must be kept as rejected.
    refused: Vec<String>,
    /// By plan, the decisions that were confirmed.
    decisions: BTreeMap<String, BTreeSet<String>>,
    killed: HashSet<TaskId>,
    /// Which task claimed which attempt.
    claims: HashMap<(DeliveryKey, u32), TaskId>,
    /// Tells the story of one delivery.
    traced: Option<String>,
    trace: Vec<String>,
}

impl Ledger {
    /// Changes what is promised for a delivery.
    pub fn promise(&self, key: &DeliveryKey, change: impl FnOnce(&mut Promise)) {
        change(self.inner.borrow_mut().promises.entry(key.clone()).or_default());
    }

    /// All promises.
    pub fn promises(&self) -> BTreeMap<DeliveryKey, Promise> {
        self.inner.borrow().promises.clone()
    }

    /// A message that is not accepted: it must be kept, whole.
    pub fn refuse(&self, sha256: String) {
        self.inner.borrow_mut().refused.push(sha256);
    }

    /// The hashes of such messages.
    pub fn refused(&self) -> Vec<String> {
        self.inner.borrow().refused.clone()
    }

    /// An operator was told that this decision about a plan is the one that counts.
    pub fn decided(&self, plan: &str, redrive_id: &str) {
        self.inner.borrow_mut().decisions.entry(plan.to_owned()).or_default().insert(redrive_id.to_owned());
    }

    /// By plan, the decisions that were confirmed.
    pub fn decisions(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.inner.borrow().decisions.clone()
    }

    /// A fault was injected.
    pub fn fault(&self, fate: Fate, call: &'static str, about: &dyn std::fmt::Display, at: Millis) {
        self.count(fate.name());
        let about = about.to_string();
        if fate != Fate::Repeat {
            self.inner.borrow_mut().hits.entry(about.clone()).or_default().push(at);
        }
        self.tell(&about, at, || format!("fault: {} on {call}", fate.name()));
    }

    /// A call is made to take seconds: its invocation may end before its answer comes.
    pub fn slow(&self, call: &'static str, about: &dyn std::fmt::Display, at: Millis) {
        self.count("very_slow");
        let about = about.to_string();
        self.inner.borrow_mut().hits.entry(about.clone()).or_default().push(at);
        self.tell(&about, at, || format!("slow: {call}"));
    }

    /// Something else that was done to the system.
    pub fn count(&self, what: &'static str) {
        *self.inner.borrow_mut().counts.entry(what).or_default() += 1;
    }

    /// How often what was done to the system.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.inner.borrow().counts.clone()
    }

    /// True when a call about this delivery was made to fail, hang or die in that time.
    pub fn was_hit(&self, key: &DeliveryKey, from: Millis, to: Millis) -> bool {
        let inner = self.inner.borrow();
        inner.hits.get(&key.to_string()).is_some_and(|hits| hits.iter().any(|at| *at >= from && *at <= to))
    }

    /// A task claimed an attempt.
    pub fn claimed(&self, key: &DeliveryKey, attempt: u32, task: TaskId) {
        self.inner.borrow_mut().claims.insert((key.clone(), attempt), task);
    }

    /// A task was killed.
    pub fn killed(&self, task: TaskId) {
        self.count("killed");
        self.inner.borrow_mut().killed.insert(task);
    }

    /// True when the task that claimed an attempt was killed.
    pub fn claimer_was_killed(&self, key: &DeliveryKey, attempt: u32) -> bool {
        let inner = self.inner.borrow();
        inner.claims.get(&(key.clone(), attempt)).is_some_and(|task| inner.killed.contains(task))
    }

    /// A request arrived; returns its number among those of its delivery.
    pub fn arrived(&self, key: &DeliveryKey, arrival: Arrival) -> usize {
        self.tell(&key.to_string(), arrival.at, || {
            format!(
                "receiver: attempt {} arrived, {}",
                arrival.attempt,
                if arrival.accepted { "accepted" } else { "not accepted" }
            )
        });
        let mut inner = self.inner.borrow_mut();
        let arrivals = inner.arrivals.entry(key.clone()).or_default();
        arrivals.push(arrival);
        arrivals.len() - 1
    }

    /// The sender of a request learnt what came of it.
    pub fn told(&self, key: &DeliveryKey, number: usize, accepted: bool) {
        if let Some(arrival) = self.inner.borrow_mut().arrivals.get_mut(key).and_then(|a| a.get_mut(number)) {
            arrival.told = Some(accepted);
        }
    }

    /// The requests of a delivery, in the order in which they arrived.
    pub fn arrivals(&self, key: &DeliveryKey) -> Vec<Arrival> {
        self.inner.borrow().arrivals.get(key).cloned().unwrap_or_default()
    }

    /// How many requests reached receivers.
    pub fn requests(&self) -> u64 {
        self.inner.borrow().arrivals.values().map(|arrivals| arrivals.len() as u64).sum()
    }

    /// From now on, tells the story of this delivery.
    pub fn trace(&self, key: &str) {
        self.inner.borrow_mut().traced = Some(key.to_owned());
    }

    /// Adds a line to the story, if it is about the traced delivery.
    pub fn tell(&self, about: &str, at: Millis, line: impl FnOnce() -> String) {
        let mut inner = self.inner.borrow_mut();
        if inner.traced.as_deref() == Some(about) {
            let line = format!("{at}  {}", line());
            inner.trace.push(line);
        }
    }

    /// The story.
    pub fn story(&self) -> Vec<String> {
        self.inner.borrow().trace.clone()
    }
}
