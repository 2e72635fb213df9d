//! A whole Redeliver in memory and in virtual time: the real stories on the fakes of the testkit, tied together the way
//! the template ties the functions together.

use deliver::config::Settings;
use deliver::deliver::Deliver;
use deliver::handler::Handler;
use dlq_sweep::evidence::Evidence;
use dlq_sweep::handler::{Depth, Queues, Sweep};
use domain::endpoint::Defaults;
use domain::endpoint::{EndpointConfig, Found};
use domain::id::{DeliveryKey, EndpointKey};
use domain::outcome::AnswerRules;
use domain::ports::{Clock, DeadQueue, Deliveries, Received, StoreError};
use domain::record::Record;
use domain::retry::{RetryPolicy, Waits};
use domain::settings::Timing;
use domain::sweep::Patience;
use domain::time::Millis;
use domain::wakeup::Waiting;
use redrive_approve::handler::{Invocation, Operator};
use serde_json::{Value, json};
use testkit::clock::VirtualClock;
use testkit::memory::{MemoryDeliveries, MemoryEndpoints, MemoryPayloads};
use testkit::queue::MemoryQueue;
use testkit::samples::{LIMITS, RETENTION};
use testkit::sender::ScriptedSender;

pub type Table = MemoryDeliveries;

/// The depth of a memory queue.
#[derive(Clone)]
pub struct QueueDepth(pub MemoryQueue);

impl Depth for QueueDepth {
    async fn visible(&self) -> Result<u64, StoreError> {
        self.0.visible().await
    }
}

pub struct World {
    pub clock: VirtualClock,
    pub table: Table,
    pub payloads: MemoryPayloads,
    pub endpoints: MemoryEndpoints,
    pub sender: ScriptedSender,
    pub intake: MemoryQueue,
    pub retry: MemoryQueue,
    pub intake_dlq: MemoryQueue,
    pub retry_dlq: MemoryQueue,
    pub handler: Handler<Table, MemoryPayloads, MemoryEndpoints, ScriptedSender, VirtualClock>,
    pub sweep: Sweep<Table, MemoryPayloads, MemoryQueue, MemoryQueue, QueueDepth, VirtualClock>,
    pub operator: Operator<Table, MemoryPayloads, VirtualClock>,
    /// While true, the stream is not relayed.
    pub relay_stalled: bool,
    /// Wake-ups of this endpoint get lost on their way to the queue.
    pub loses_wake_ups_of: Option<&'static str>,
}

pub const RETRY_ARN: &str = "arn:aws:sqs:eu-west-1:000000000000:retry";
pub const INTAKE_ARN: &str = "arn:aws:sqs:eu-west-1:000000000000:intake";
/// 2026-12-01T00:00:00Z.
pub const START: Millis = Millis(1_796_083_200_000);
pub const TIMING: Timing = Timing { request_ms: 10_000, function_ms: 45_000, lease_ms: 60_000, visibility_ms: 270_000 };

pub fn policy() -> RetryPolicy {
    let waits = Waits::parse("30,120,600,1800,7200,21600,43200").unwrap();
    RetryPolicy { attempts: 8, waits, jitter_percent: 15, hint_cap_seconds: 21_600, window_seconds: None }
}

pub fn config() -> EndpointConfig {
    EndpointConfig {
        url: "https://hooks.example.test/p".to_owned(),
        timeout_ms: TIMING.request_ms,
        policy: policy(),
        headers: Vec::new(),
        rules: AnswerRules::default(),
        secrets: Vec::new(),
    }
}

impl World {
    /// A world in which endpoint `p` is registered.
    pub fn new() -> Self {
        let clock = VirtualClock::new(START, 7);
        let (table, payloads, endpoints, sender) =
            (Table::default(), MemoryPayloads::default(), MemoryEndpoints::default(), ScriptedSender::default());
        let queue = || MemoryQueue::new(clock.clone(), TIMING.visibility_ms);
        let (intake, retry, intake_dlq, retry_dlq) = (queue(), queue(), queue(), queue());
        endpoints.set(&EndpointKey::registered("p").unwrap(), Found::Config(Box::new(config())));
        let handler = Handler {
            retry_queue_arn: RETRY_ARN.to_owned(),
            deliver: Deliver {
                deliveries: table.clone(),
                payloads: payloads.clone(),
                endpoints: endpoints.clone(),
                sender: sender.clone(),
                clock: clock.clone(),
                settings: Settings {
                    limits: LIMITS,
                    defaults: Defaults { policy: policy(), timeout_ms: TIMING.request_ms },
                    timing: TIMING,
                    retention: RETENTION,
                },
            },
        };
        let sweep = Sweep {
            deliveries: table.clone(),
            payloads: payloads.clone(),
            queues: Queues {
                intake_dlq: intake_dlq.clone(),
                retry_dlq: retry_dlq.clone(),
                retry: QueueDepth(retry.clone()),
            },
            clock: clock.clone(),
            settings: dlq_sweep::config::Settings {
                patience: Patience { grace_ms: 60_000, lease_ms: TIMING.lease_ms, visibility_ms: TIMING.visibility_ms },
                retention: RETENTION,
                max_attempts: 8,
                limits: LIMITS,
            },
        };
        let operator = Operator {
            store: table.clone(),
            payloads: payloads.clone(),
            clock: clock.clone(),
            retention: RETENTION,
            alias: "live".to_owned(),
            two_people: false,
        };
        Self {
            clock,
            table,
            payloads,
            endpoints,
            sender,
            intake,
            retry,
            intake_dlq,
            retry_dlq,
            handler,
            sweep,
            operator,
            relay_stalled: false,
            loses_wake_ups_of: None,
        }
    }

    /// Relays the stream, as `schedule-retry` does.
    pub fn relay(&self) {
        if self.relay_stalled {
            return;
        }
        for record in self.table.take_stream() {
            let waiting = Waiting::of(&record).expect("the stream carries waiting records");
            if self.loses_wake_ups_of == Some(waiting.wake_up.endpoint.as_str()) {
                continue;
            }
            if let Some(delay) = waiting.delay(self.clock.now()) {
                self.retry.send(&serde_json::to_string(&waiting.wake_up).unwrap(), delay.seconds());
            }
        }
    }

    /// Gives one batch of a queue to `deliver`, and acknowledges what it settled.
    pub async fn deliver_from(&self, queue: &MemoryQueue, arn: &str) -> usize {
        let batch = queue.take();
        if batch.is_empty() {
            return 0;
        }
        let answer = self.handler.handle(event(&batch, arn), self.clock.now().plus(TIMING.function_ms)).await.unwrap();
        for message in &batch {
            if !answer.failures.iter().any(|f| f.id == message.message_id) {
                queue.remove(&message.message_id);
            }
        }
        self.relay();
        batch.len()
    }

    /// Everything that can happen now.
    pub async fn settle_now(&self) {
        self.relay();
        while self.deliver_from(&self.intake, INTAKE_ARN).await + self.deliver_from(&self.retry, RETRY_ARN).await > 0 {}
    }

    /// Lets time pass until `until`, with an arm run each minute and a reconcile run each five.
    pub async fn run_until(&self, until: Millis) {
        loop {
            self.settle_now().await;
            let minute = Millis((self.clock.now().0 / 60_000 + 1) * 60_000);
            let next =
                [Some(minute), self.intake.next_visible(), self.retry.next_visible()].into_iter().flatten().min();
            let next = next.unwrap_or(minute).max(self.clock.now().plus(1));
            if next > until {
                self.clock.sleep_until(until).await;
                self.settle_now().await;
                return;
            }
            self.clock.sleep_until(next).await;
            if next == minute {
                self.sweep_run("arm").await;
                if minute.0 % 300_000 == 0 {
                    self.sweep_run("reconcile").await;
                }
                self.relay();
            }
        }
    }

    pub async fn run_for_seconds(&self, seconds: i64) {
        self.run_until(self.clock.now().plus(seconds * 1_000)).await;
    }

    pub async fn sweep_run(&self, run: &str) -> Evidence {
        let deadline = self.clock.now().plus(60_000);
        let evidence = self.sweep.handle(&json!({"run": run}), deadline, "test").await.unwrap();
        assert!(evidence.errors.is_empty(), "{evidence:?}");
        evidence
    }

    pub async fn act(&self, action: Value) -> Value {
        self.act_within(action, 60_000).await
    }

    /// A call with an event of any shape, of the function under any name.
    pub async fn act_on(&self, event: Value, function_arn: &str) -> Value {
        let invocation = Invocation { deadline: self.clock.now().plus(60_000), function_arn };
        self.operator.handle(event, &invocation).await.unwrap()
    }

    /// Registers one more endpoint, under its own host.
    pub fn register(&self, endpoint: &str) {
        let url = format!("https://{endpoint}.example.test/");
        let config = EndpointConfig { url, ..config() };
        self.endpoints.set(&EndpointKey::registered(endpoint).unwrap(), Found::Config(Box::new(config)));
    }

    /// Sends a webhook for any endpoint.
    pub fn send_to(&self, id: &str, endpoint: &str) -> String {
        self.intake.send(&json!({"id": id, "endpoint": endpoint, "json": {"id": id}}).to_string(), 0)
    }

    /// An operator's call that has so many milliseconds.
    pub async fn act_within(&self, action: Value, ms: i64) -> Value {
        let invocation = Invocation { deadline: self.clock.now().plus(ms), function_arn: "arn:f" };
        self.operator.handle(action, &invocation).await.unwrap()
    }

    pub async fn record(&self, id: &str) -> Record {
        self.table
            .get(&DeliveryKey::parse(id, "p").unwrap())
            .await
            .unwrap()
            .unwrap_or_else(|| panic!("no record of {id}"))
    }

    /// Sends a webhook for endpoint `p`.
    pub fn send(&self, id: &str) -> String {
        self.intake.send(&json!({"id": id, "endpoint": "p", "json": {"id": id}}).to_string(), 0)
    }
}

pub fn event(batch: &[Received], arn: &str) -> aws_lambda_events::event::sqs::SqsEvent {
    let records: Vec<Value> = batch
        .iter()
        .map(|m| {
            json!({
                "messageId": m.message_id, "receiptHandle": m.receipt, "body": m.body, "eventSourceARN": arn,
                "attributes": {
                    "ApproximateReceiveCount": m.receives.to_string(), "SentTimestamp": m.sent_at.0.to_string(), "SenderId": "producer",
                },
            })
        })
        .collect();
    serde_json::from_value(json!({ "Records": records })).unwrap()
}
