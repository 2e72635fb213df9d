//! The words that stories are written in: what producers and operators do, what is killed, and how the world recovers.

use domain::id::{DeliveryKey, StateKey, sha256_hex};
use domain::message::{Intake, parse};
use domain::time::{DAY_MS, Millis};
use serde_json::{Value, json};
use testkit::executor::TaskId;
use testkit::samples::LIMITS;

use crate::fates::Mode;
use crate::weather::Weather;
use crate::world::World;

/// Once nothing is broken any more, operators look so often, a day apart, unless all is quiet before.
const LOOKS: usize = 3;

/// A webhook.
#[derive(Clone, Debug)]
pub struct Webhook<'a> {
    /// Event id.
    pub id: &'a str,
    /// Endpoint id.
    pub endpoint: &'a str,
    /// Which of several payloads.
    pub variant: u32,
    /// Not before.
    pub deliver_at: Option<Millis>,
    /// Not after.
    pub deliver_by: Option<Millis>,
}

impl<'a> Webhook<'a> {
    /// A webhook without times.
    pub const fn new(id: &'a str, endpoint: &'a str) -> Self {
        Self { id, endpoint, variant: 0, deliver_at: None, deliver_by: None }
    }

    /// Its message.
    pub fn body(&self) -> String {
        let mut body =
            json!({"id": self.id, "endpoint": self.endpoint, "body": format!("{} {}", self.id, self.variant)});
        for (name, time) in [("deliver_at", self.deliver_at), ("deliver_by", self.deliver_by)] {
            if let Some(time) = time {
                body[name] = json!(time.to_string());
            }
        }
        body.to_string()
    }
}

impl World {
    /// Notes what a webhook promises, and returns its message.
    pub fn promise(&self, webhook: &Webhook<'_>) -> String {
        let body = webhook.body();
        let Ok(Intake::Webhook(message)) = parse(&body, &LIMITS) else { panic!("a good message: {body}") };
        self.ledger.promise(&message.key, |promise| {
            promise.messages += 1;
            promise.deliver_at = promise.deliver_at.max(message.deliver_at);
            promise.deliver_by = promise.deliver_by.max(message.deliver_by);
            let hash = message.payload.hash();
            if !promise.payloads.iter().any(|(known, _)| *known == hash) {
                promise.payloads.push((hash, message.payload.body.clone()));
            }
        });
        body
    }

    /// A producer sends a webhook.
    pub fn send(&self, webhook: &Webhook<'_>) {
        let body = self.promise(webhook);
        self.produce(&body);
    }

    /// A producer sends something that is not accepted.
    pub fn send_refused(&self, body: &str) {
        self.ledger.refuse(sha256_hex(body.as_bytes()));
        self.produce(body);
    }

    /// A producer cancels.
    pub fn cancel(&self, id: &str, endpoint: &str) {
        self.may_be_cancelled(id, endpoint);
        self.produce(&json!({"cancel": {"id": id, "endpoint": endpoint}, "reason": "no"}).to_string());
    }

    /// Somebody asks for a cancel.
    pub fn may_be_cancelled(&self, id: &str, endpoint: &str) {
        let key = DeliveryKey::parse(id, endpoint).expect("a good key");
        self.ledger.promise(&key, |promise| promise.cancels += 1);
    }

    /// Runs until a task has ended.
    pub fn finish(&mut self, task: TaskId) {
        let limit = self.executor.now().plus(DAY_MS);
        while self.running.contains_key(&task) && self.step(limit) {}
    }

    /// Runs until so many requests have reached receivers, or nothing more happens now.
    pub fn until_requests(&mut self, key: &str, count: usize) {
        let key = DeliveryKey::parse(key, "p").expect("a good key");
        let now = self.executor.now();
        while self.ledger.arrivals(&key).len() < count && self.step(now) {}
    }

    /// Runs one task to its end, and nobody else.
    pub fn only(&mut self, task: TaskId) {
        while self.running.contains_key(&task) {
            let ready = self.executor.ready();
            match (0..ready).find(|index| self.executor.task_of(*index) == task) {
                Some(index) => self.executor.go(index),
                None => match self.executor.next_timer() {
                    Some(at) => self.executor.advance_to(at),
                    None => return,
                },
            }
            self.collect();
        }
    }

    /// A proposal about one event, while everybody else stands still.
    pub fn propose_only(&mut self, id: &str) -> Value {
        let task = self.start_operator(json!({"action": "propose", "filter": {"ids": [id]}}));
        self.only(task);
        self.answers.pop_front().unwrap_or_default()
    }

    /// Kills whatever runs.
    pub fn kill_all(&mut self) {
        let tasks: Vec<TaskId> = self.running.keys().copied().collect();
        for task in tasks {
            self.executor.kill(task);
        }
        self.collect();
    }

    /// One run of the sweep, to its end.
    pub fn sweep(&mut self, run: &'static str) {
        let task = self.start_sweep(0, run);
        self.finish(task);
    }

    /// An operator's call; repeated once when no answer comes, as a person would.
    pub fn operate(&mut self, action: &Value) -> Value {
        for _ in 0..2 {
            self.answers.clear();
            let task = self.start_operator(action.clone());
            self.finish(task);
            if let Some(answer) = self.answers.pop_front() {
                return answer;
            }
        }
        Value::Null
    }

    /// An operator sets an endpoint's state.
    pub fn set_endpoint(&mut self, endpoint: &str, state: &str) {
        self.operate(&json!({"action": "endpoint", "endpoint": endpoint, "set": state, "reason": "because"}));
    }

    /// An operator approves a proposal.
    pub fn approve(&mut self, proposed: &Value, redrive_id: &str) -> Value {
        self.operate(&json!({"action": "approve", "plan_id": proposed["plan_id"], "digest": proposed["digest"], "redrive_id": redrive_id, "reason": "fixed"}))
    }

    /// Nothing is broken any more, receivers accept, schedules run, and operators let all endpoints go on. Runs until
    /// nothing is left to do, or long enough.
    pub fn recover(&mut self, endpoints: &[&str]) {
        self.decider.set(Mode::Calm);
        self.decider.set_down(0);
        self.weather = Weather::default();
        self.receiver.calm.set(true);
        for worker in &self.deliver {
            worker.clock.set_skew(0);
        }
        if !self.scheduled {
            self.schedule();
        }
        for endpoint in endpoints {
            self.register(endpoint);
            if self.removed.borrow().contains(*endpoint) {
                self.set_endpoint(endpoint, "active");
            }
        }
        // A late answer may disable an endpoint again: operators look more than once. One that is active they leave alone.
        for _ in 0..LOOKS {
            for endpoint in endpoints {
                if self.table.held_back_since(&StateKey::stored(endpoint)).is_some() {
                    self.set_endpoint(endpoint, "active");
                }
            }
            let limit = self.executor.now().plus(DAY_MS);
            while !self.is_quiet() && self.step(limit) {}
        }
    }
}
