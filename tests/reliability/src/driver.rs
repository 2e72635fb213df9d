//! What AWS does: hands batches to workers and deletes what they settled, relays the stream, starts the schedules, ends
//! invocations that take too long. One step is one of these, or one step of one task.

use std::cell::RefCell;
use std::rc::Rc;

use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use domain::ports::{Clock, Received};
use domain::time::{Millis, SECOND_MS};
use domain::wakeup::Waiting;
use redrive_approve::handler::Invocation;
use serde_json::{Value, json};
use testkit::executor::{End, TaskId};
use testkit::hostile::{Call, Fate, Fates};
use testkit::queue::MemoryQueue;

use crate::settings::{INTAKE_ARN, OTHER_FUNCTIONS_MS, RETRY_ARN, TIMING};
use crate::world::{Event, Running, World};

/// A batch as `deliver` gets it.
fn batch(messages: &[Received], arn: &str) -> SqsEvent {
    let mut event = SqsEvent::default();
    event.records = messages
        .iter()
        .map(|m| {
            let mut record = SqsMessage::default();
            record.message_id = Some(m.message_id.clone());
            record.receipt_handle = Some(m.receipt.clone());
            record.body = Some(m.body.clone());
            record.event_source_arn = Some(arn.to_owned());
            let attributes = [
                ("ApproximateReceiveCount", m.receives.to_string()),
                ("SentTimestamp", m.sent_at.0.to_string()),
                ("SenderId", m.sender.clone().unwrap_or_default()),
            ];
            record.attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            record
        })
        .collect();
    event
}

impl World {
    /// Puts a message on the intake queue, maybe late.
    pub fn produce(&self, body: &str) {
        self.intake.send_after(body, self.lateness());
    }

    fn lateness(&self) -> i64 {
        if self.chance.per_million(self.weather.late_message) {
            self.ledger.count("late_message");
            self.chance.between(1, 60_000)
        } else {
            0
        }
    }

    /// One step; false when nothing happens until that time, which has come then.
    pub fn step(&mut self, until: Millis) -> bool {
        self.relay();
        self.dispatch();
        let ready = self.executor.ready();
        if ready > 0 {
            let chosen = if self.weather.reorder { self.chance.below(ready as u64) } else { 0 };
            self.executor.go(usize::try_from(chosen).unwrap_or(0));
            self.collect();
            return true;
        }
        let next = [
            self.executor.next_timer(),
            self.calendar.peek().map(|entry| Millis(entry.0.0)),
            self.relaying.first_key_value().map(|((at, _), _)| *at),
            self.intake.next_visible().filter(|_| !self.free[0].is_empty()),
            self.retry.next_visible().filter(|_| !self.free[1].is_empty()),
        ];
        match next.into_iter().flatten().min() {
            Some(at) if at <= until => {
                self.executor.advance_to(at);
                self.collect();
                self.happen();
                true
            }
            Some(_) | None => {
                self.executor.advance_to(until);
                false
            }
        }
    }

    /// Runs until that time.
    pub fn run_until(&mut self, until: Millis) {
        while self.step(until) {}
    }

    /// Lets so many seconds pass.
    pub fn pass_seconds(&mut self, seconds: i64) {
        self.run_until(self.executor.now().plus(seconds * SECOND_MS));
    }

    /// Everything that can happen now, and nothing that takes time.
    pub fn settle(&mut self) {
        self.run_until(self.executor.now());
    }

    fn relay(&mut self) {
        for record in self.table.take_stream() {
            let late = self.chance.per_million(self.weather.late_change);
            let delay = if late { self.chance.between(10_000, 900_000) } else { 0 };
            if late {
                self.ledger.count("late_change");
            }
            if self.chance.per_million(self.weather.dropped_change) {
                self.ledger.count("dropped_change");
                continue;
            }
            if self.chance.per_million(self.weather.doubled_change) {
                self.ledger.count("doubled_change");
                let again = self.executor.now().plus(self.chance.between(0, 600_000));
                self.later(again, record.clone());
            }
            self.later(self.executor.now().plus(delay), record);
        }
        while let Some(first) = self.relaying.first_entry().filter(|entry| entry.key().0 <= self.executor.now()) {
            let record = first.remove();
            let call = Call { name: "relay", about: &record.key, writes: true };
            let copies = match self.decider.of(&call) {
                Fate::Pass => 1,
                Fate::FailBefore | Fate::HangBefore | Fate::DieBefore => 0,
                Fate::FailAfter | Fate::HangAfter | Fate::DieAfter | Fate::Repeat => 2,
            };
            let skew = self.chance.between(-self.weather.skew_ms, self.weather.skew_ms);
            let Some(waiting) = Waiting::of(&record) else { continue };
            let Some(delay) = waiting.delay(self.executor.now().plus(skew)) else { continue };
            let body = serde_json::to_string(&waiting.wake_up).expect("a wake-up is JSON");
            for _ in 0..copies {
                self.retry.send_after(&body, i64::from(delay.seconds()) * SECOND_MS + self.lateness());
            }
        }
    }

    fn later(&mut self, at: Millis, record: domain::record::Record) {
        self.numbers.set(self.numbers.get() + 1);
        self.relaying.insert((at, self.numbers.get()), record);
    }

    fn dispatch(&mut self) {
        for retry in [false, true] {
            let queue = if retry { self.retry.clone() } else { self.intake.clone() };
            let slot = usize::from(retry);
            while !self.free[slot].is_empty() && queue.next_visible().is_some_and(|at| at <= self.executor.now()) {
                let messages = self.take(&queue);
                if messages.is_empty() {
                    continue;
                }
                let Some(worker) = self.free[slot].pop() else { break };
                self.start(worker, retry, messages);
            }
        }
    }

    fn take(&self, queue: &MemoryQueue) -> Vec<Received> {
        let weather = &self.weather;
        if !weather.reorder {
            return queue.take();
        }
        let limit = usize::try_from(self.chance.below(10)).unwrap_or(0) + 1;
        let messages = queue.take_in_order(limit, |numbers| {
            // Enough of a shuffle for one batch.
            for i in 0..numbers.len().min(2 * limit) {
                let other = i + usize::try_from(self.chance.below((numbers.len() - i) as u64)).unwrap_or(0);
                numbers.swap(i, other);
            }
        });
        for message in messages.iter().filter(|_| self.chance.per_million(weather.duplicate)) {
            self.ledger.count("duplicate_message");
            queue.show_at(&message.message_id, self.executor.now().plus(self.chance.between(0, 20_000)));
        }
        messages
    }

    /// Starts an invocation of `deliver`.
    pub(crate) fn start(&mut self, worker: usize, retry: bool, messages: Vec<Received>) -> TaskId {
        self.start_for(worker, retry, messages, TIMING.function_ms)
    }

    /// Starts one that may take so many milliseconds.
    pub(crate) fn start_for(&mut self, worker: usize, retry: bool, messages: Vec<Received>, ms: i64) -> TaskId {
        let (handler, clock) = (Rc::clone(&self.deliver[worker].handler), self.deliver[worker].clock.clone());
        if self.chance.per_million(self.weather.clock_jump) {
            self.ledger.count("clock_jump");
            clock.set_skew(self.chance.between(-self.weather.skew_ms, self.weather.skew_ms));
        }
        let event = batch(&messages, if retry { RETRY_ARN } else { INTAKE_ARN });
        let answer = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&answer);
        let deadline = clock.now().plus(ms);
        let task = self.executor.spawn(async move {
            let answered = handler.handle(event, deadline).await;
            *slot.borrow_mut() = answered.ok();
        });
        self.running.insert(task, Running::Batch { worker, retry, messages, answer });
        self.limit(task, ms);
        task
    }

    fn limit(&self, task: TaskId, ms: i64) {
        let now = self.executor.now();
        self.executor.kill_at(task, now.plus(ms));
        if self.chance.per_million(self.weather.kill) {
            self.executor.kill_at(task, now.plus(self.chance.between(0, ms)));
        }
    }

    /// Starts a run of the sweep.
    pub fn start_sweep(&mut self, worker: usize, run: &'static str) -> TaskId {
        let sweep = &self.sweep[worker];
        let (handler, deadline) = (Rc::clone(&sweep.handler), sweep.clock.now().plus(OTHER_FUNCTIONS_MS));
        let task = self.executor.spawn(async move {
            // Its evidence says what failed; the next run goes on.
            let _ = handler.handle(&json!({ "run": run }), deadline, "run").await;
        });
        self.running.insert(task, Running::Sweep);
        self.limit(task, OTHER_FUNCTIONS_MS);
        task
    }

    /// Calls the operator's function.
    pub fn start_operator(&mut self, action: Value) -> TaskId {
        let handler = Rc::clone(&self.operator.handler);
        let deadline = self.executor.now().plus(OTHER_FUNCTIONS_MS);
        let answer = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&answer);
        let task = self.executor.spawn(async move {
            let answered = handler.handle(action, &Invocation { deadline, function_arn: "arn:f" }).await;
            *slot.borrow_mut() = answered.ok();
        });
        self.running.insert(task, Running::Operator { answer });
        self.limit(task, OTHER_FUNCTIONS_MS);
        task
    }

    /// Looks after the tasks that ended.
    pub(crate) fn collect(&mut self) {
        for (task, end) in self.executor.ended() {
            if end == End::Killed {
                self.ledger.killed(task);
            }
            match self.running.remove(&task) {
                Some(Running::Batch { worker, retry, messages, answer }) => {
                    self.free[usize::from(retry)].push(worker);
                    if let Some(answer) = answer.take() {
                        self.acknowledge(retry, &messages, &answer);
                    }
                }
                Some(Running::Operator { answer }) => {
                    let answer = answer.take();
                    let decided = answer.as_ref().map(|answer| &answer["plan"]);
                    if let Some(decided) = decided
                        && let (Some(plan), Some(id)) =
                            (decided["plan_id"].as_str(), decided["approval"]["redrive_id"].as_str())
                    {
                        self.ledger.decided(plan, id);
                    }
                    self.answers.extend(answer);
                }
                Some(Running::Sweep) | None => {}
            }
        }
    }

    fn acknowledge(&self, retry: bool, messages: &[Received], answer: &platform::lambda::BatchAnswer) {
        let queue = if retry { &self.retry } else { &self.intake };
        for message in messages {
            if answer.failures.iter().any(|failure| failure.id == message.message_id) {
                continue;
            }
            let call = Call { name: "ack", about: &message.message_id, writes: true };
            let lost = match self.decider.of(&call) {
                Fate::Pass | Fate::FailAfter | Fate::HangAfter | Fate::DieAfter | Fate::Repeat => false,
                Fate::FailBefore | Fate::HangBefore | Fate::DieBefore => true,
            };
            if lost || self.chance.per_million(self.weather.lost_ack) {
                self.ledger.count("lost_ack");
            } else {
                queue.remove(&message.message_id);
            }
        }
    }

    fn happen(&mut self) {
        while self.calendar.peek().is_some_and(|entry| entry.0.0 <= self.executor.now().0) {
            let Some(entry) = self.calendar.pop() else { return };
            match entry.0.2 {
                Event::Arm => {
                    self.sweep_by_schedule("arm");
                    self.at(self.executor.now().plus(60_000), Event::Arm);
                }
                Event::Reconcile => {
                    self.sweep_by_schedule("reconcile");
                    self.at(self.executor.now().plus(300_000), Event::Reconcile);
                }
                Event::Operate(action) => {
                    self.start_operator(serde_json::from_str(&action).expect("an action is JSON"));
                }
                Event::Workload(what) => self.due.push_back(what),
            }
        }
    }

    fn sweep_by_schedule(&mut self, run: &'static str) {
        if self.chance.per_million(self.weather.missed_sweep) {
            self.ledger.count("missed_sweep");
            return;
        }
        self.start_sweep(0, run);
        if self.chance.per_million(self.weather.doubled_sweep) {
            self.ledger.count("doubled_sweep");
            self.start_sweep(1, run);
        }
    }
}
