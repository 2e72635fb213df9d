//! A whole Redeliver in memory and in virtual time, the platform around it included: queues that hand out batches, a stream
//! that is relayed, schedules, function timeouts. The stories are the real ones of the function crates; what is played here
//! is only what AWS does.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::rc::Rc;

use domain::id::{EndpointKey, StateKey};
use domain::ports::Received;
use domain::record::Record;
use domain::time::Millis;
use platform::lambda::BatchAnswer;
use serde_json::Value;
use testkit::clock::VirtualClock;
use testkit::executor::{Executor, TaskId};
use testkit::hostile::Gate;
use testkit::memory::{MemoryDeliveries, MemoryEndpoints, MemoryPayloads};
use testkit::queue::MemoryQueue;

use crate::broken::Bug;
use crate::chance::Chance;
use crate::fates::{Decider, Mode};
use crate::ledger::Ledger;
use crate::receiver::Receiver;
use crate::settings::{DLQ_VISIBILITY_MS, INTAKE_MAX_RECEIVES, RETRY_MAX_RECEIVES, START, TIMING};
use crate::watch::{Check, Watch};
use crate::weather::Weather;
use crate::workers::{self, DeliverWorker, OperatorWorker, SweepWorker};

/// A pause bites at the next claim: after the longest invocation, the age of a cached state, and what clocks differ.
const PAUSE_BITES_MS: i64 = TIMING.function_ms + 10_000 + 10_000;

/// Something that happens at its time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The schedule starts an arm run.
    Arm,
    /// The schedule starts a reconcile run.
    Reconcile,
    /// Somebody calls the operator's function with this.
    Operate(String),
    /// Something that the workload wants to do.
    Workload(u32),
}

/// What a running task does.
pub(crate) enum Running {
    Batch { worker: usize, retry: bool, messages: Vec<Received>, answer: Rc<RefCell<Option<BatchAnswer>>> },
    Sweep,
    Operator { answer: Rc<RefCell<Option<Value>>> },
}

/// The world.
pub struct World {
    /// Its time.
    pub clock: VirtualClock,
    /// Who runs the tasks.
    pub executor: Executor,
    /// What really happens.
    pub ledger: Ledger,
    /// What is seen of the table.
    pub watch: Watch,
    /// What happens to calls.
    pub decider: Decider,
    /// The deliveries table.
    pub table: MemoryDeliveries,
    /// The payloads table.
    pub payloads: MemoryPayloads,
    /// The registry.
    pub endpoints: MemoryEndpoints,
    /// The receivers.
    pub receiver: Receiver,
    /// The intake queue.
    pub intake: MemoryQueue,
    /// The retry queue.
    pub retry: MemoryQueue,
    /// Transport DLQ of the intake queue.
    pub intake_dlq: MemoryQueue,
    /// Transport DLQ of the retry queue.
    pub retry_dlq: MemoryQueue,
    /// What the platform does by chance.
    pub weather: Weather,
    /// Its chance.
    pub chance: Chance,
    /// Answers of the operator's function, in the order in which they came.
    pub answers: VecDeque<Value>,
    pub(crate) deliver: Vec<DeliverWorker>,
    pub(crate) sweep: Vec<SweepWorker>,
    pub(crate) operator: OperatorWorker,
    /// Deliver workers that are free, apart for each queue.
    pub(crate) free: [Vec<usize>; 2],
    pub(crate) running: BTreeMap<TaskId, Running>,
    pub(crate) calendar: BinaryHeap<Reverse<(i64, u64, Event)>>,
    /// Changes of the stream, by the time at which they are relayed.
    pub(crate) relaying: BTreeMap<(Millis, u64), Record>,
    pub(crate) numbers: Cell<u64>,
    /// What the workload wants to do now.
    pub due: VecDeque<u32>,
    /// Schedules run.
    pub scheduled: bool,
    /// Endpoints that were removed once: what was held for them waits for an operator's word.
    pub(crate) removed: RefCell<BTreeSet<String>>,
}

impl World {
    /// A world with so many workers for each queue. `bug` breaks its store.
    pub fn new(seed: u64, workers: usize, mode: Mode, bug: Option<Bug>) -> Self {
        let clock = VirtualClock::new(START, seed);
        let executor = Executor::new(clock.clone());
        let chance = Chance::new(seed ^ 0x5eed);
        let ledger = Ledger::default();
        let watch = Watch::new(executor.clone(), ledger.clone(), crate::settings::MOST_ATTEMPTS);
        let decider = Decider::new(executor.clone(), ledger.clone(), Chance::new(seed ^ 0xfa7e), mode);
        let gate = Gate { executor: executor.clone(), fates: Rc::new(decider.clone()) };
        let table = MemoryDeliveries::default();
        let eyes = watch.clone();
        table.watch(Rc::new(move |old, new| eyes.write(old, new)));
        let queue = || MemoryQueue::new(clock.clone(), TIMING.visibility_ms);
        let dead_queue = || MemoryQueue::new(clock.clone(), DLQ_VISIBILITY_MS);
        let (intake_dlq, retry_dlq) = (dead_queue(), dead_queue());
        let intake = queue().with_dead_letters(INTAKE_MAX_RECEIVES, &intake_dlq);
        let retry = queue().with_dead_letters(RETRY_MAX_RECEIVES, &retry_dlq);
        let receiver = Receiver::new(gate.clone(), ledger.clone(), Chance::new(seed ^ 0x7ece));
        let (states, eyes) = (table.clone(), watch.clone());
        receiver.watch(Rc::new(move |key| {
            if let Some(since) = states.held_back_since(&StateKey::registered(&key.endpoint))
                && eyes.now().since(since) > PAUSE_BITES_MS
            {
                eyes.broken(Check::Untimely, key, "a request to an endpoint that is held back");
            }
        }));
        let ports = workers::Ports {
            gate,
            bug,
            table: table.clone(),
            payloads: MemoryPayloads::default(),
            endpoints: MemoryEndpoints::default(),
            receiver: receiver.clone(),
            intake_dlq: intake_dlq.clone(),
            retry_dlq: retry_dlq.clone(),
            retry: retry.clone(),
        };
        let deliver = (0..2 * workers).map(|_| ports.deliver()).collect();
        Self {
            clock,
            executor,
            ledger,
            watch,
            decider,
            table,
            payloads: ports.payloads.clone(),
            endpoints: ports.endpoints.clone(),
            receiver,
            intake,
            retry,
            intake_dlq,
            retry_dlq,
            weather: Weather::default(),
            chance,
            answers: VecDeque::new(),
            deliver,
            sweep: (0..2).map(|_| ports.sweep()).collect(),
            operator: ports.operator(),
            free: [(0..workers).collect(), (workers..2 * workers).collect()],
            running: BTreeMap::new(),
            calendar: BinaryHeap::new(),
            relaying: BTreeMap::new(),
            numbers: Cell::new(0),
            due: VecDeque::new(),
            scheduled: false,
            removed: RefCell::default(),
        }
    }

    /// Registers an endpoint.
    pub fn register(&self, id: &str) {
        let key = EndpointKey::registered(id).expect("a good id");
        self.endpoints.set(&key, crate::settings::found(id));
    }

    /// Removes an endpoint.
    pub fn remove(&self, id: &str) {
        self.removed.borrow_mut().insert(id.to_owned());
        let key = EndpointKey::registered(id).expect("a good id");
        self.endpoints.set(&key, domain::endpoint::Found::Removed);
    }

    /// Puts something into the calendar.
    pub fn at(&mut self, at: Millis, event: Event) {
        self.numbers.set(self.numbers.get() + 1);
        self.calendar.push(Reverse((at.0, self.numbers.get(), event)));
    }

    /// Starts the schedules.
    pub fn schedule(&mut self) {
        self.scheduled = true;
        let minute = |n: i64| Millis((self.executor.now().0 / 60_000 + n) * 60_000);
        let (arm, reconcile) = (minute(1), minute(5));
        self.at(arm, Event::Arm);
        self.at(reconcile, Event::Reconcile);
    }

    /// Nothing is left to do: every record is final, and all queues and the stream are empty.
    pub fn is_quiet(&self) -> bool {
        self.watch.open() == 0
            && self.running.is_empty()
            && self.relaying.is_empty()
            && [&self.intake, &self.retry, &self.intake_dlq, &self.retry_dlq].iter().all(|queue| queue.is_empty())
    }
}
