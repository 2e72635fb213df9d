//! Plays the lines of an example in a world of its own, and says what came of them in the words of the page.

use deliver::deliver::Deliver;
use deliver::handler::Handler;
use domain::id::{DeliveryKey, sha256_hex};
use domain::message::{Intake, parse};
use domain::outcome::{Answer, Outcome, Phase};
use domain::ports::{Clock, Deliveries, Sender};
use domain::record::Record;
use domain::request::Request;
use domain::time::Millis;
use serde_json::{Value, json};
use testkit::queue::MemoryQueue;
use testkit::samples::LIMITS;

use super::page;
use crate::world::{RETRY_ARN, START, TIMING, World, event};

/// The message of the tables.
pub const MESSAGE: &str = r#"{"id":"order_1","endpoint":"ep_a","json":1}"#;

pub struct Player {
    pub world: World,
    /// The delivery that was named last.
    key: Option<DeliveryKey>,
    /// The answer to the last proposal.
    proposed: Value,
}

impl Player {
    /// A world with the endpoints of the page.
    pub fn new() -> Self {
        let world = World::new();
        world.register("ep_a");
        world.register("ep_b");
        Self { world, key: None, proposed: Value::Null }
    }

    /// Plays a whole example; each line must come out as the page says.
    pub async fn play(&mut self, example: &str) {
        for mut line in page::lines(example) {
            let expected = line.pop().expect("a line has columns");
            let came = self.line(&line).await;
            if expected.starts_with('{') {
                let part: Value = serde_json::from_str(&expected).unwrap_or_else(|e| panic!("{expected}: {e}"));
                let whole: Value = serde_json::from_str(&came).unwrap_or_else(|e| panic!("{line:?}: {came}: {e}"));
                assert!(holds(&whole, &part), "{example}: {line:?}\nexpected {part}\nin {whole}");
            } else {
                assert_eq!(came, page::outcome(&expected), "{example}: {line:?}");
            }
        }
    }

    /// A time to wait for, what the endpoint answers next, a message or an action; each may be missing.
    async fn line(&mut self, columns: &[String]) -> String {
        let mut came = None;
        let (sent, others): (Vec<_>, Vec<_>) = columns.iter().partition(|column| column.starts_with('{'));
        for other in others {
            match time_of_day(other) {
                Some(time) => {
                    assert!(time >= self.world.clock.now(), "{other} has passed");
                    self.world.run_until(time).await;
                }
                None => self.world.sender.then([answer(other)]),
            }
        }
        for text in sent {
            came = Some(match serde_json::from_str::<Value>(text) {
                Ok(action) if action.get("action").is_some() => self.act(action).await.to_string(),
                Ok(_) | Err(_) => self.send(text).await,
            });
        }
        match came {
            Some(came) => came,
            None => self.state().await,
        }
    }

    /// From here on it is about the delivery of that message.
    pub fn name(&mut self, raw: &str) {
        if let Ok(intake) = parse(raw, &LIMITS) {
            self.key = Some(match intake {
                Intake::Webhook(message) => message.key,
                Intake::Cancel(request) => request.key,
            });
        }
    }

    /// Sends a message, lets everything happen that can happen at once, and says what came of it.
    pub async fn send(&mut self, raw: &str) -> String {
        self.name(raw);
        let world = &self.world;
        let seen = || {
            let rejected: u32 = world.table.rejected().iter().map(|rejected| rejected.seen).sum();
            (rejected, world.table.writes() + world.sender.seen().len() as u64)
        };
        let before = seen();
        world.intake.send(raw, 0);
        world.settle_now().await;
        assert!(world.intake.is_empty(), "{raw} is acknowledged");
        let after = seen();
        if after.0 > before.0 {
            let sha = sha256_hex(raw.as_bytes());
            assert_eq!(world.payloads.raw(&sha).as_deref(), Some(raw), "a rejected message is kept whole");
            let rejected = world.table.rejected().into_iter().find(|rejected| rejected.sha256 == sha);
            format!("rejected ({})", rejected.expect("it is on record").reason)
        } else if after.1 == before.1 {
            "suppressed".to_owned()
        } else {
            self.state().await
        }
    }

    /// An operator's action; a plan that it leaves open is the one that was proposed last.
    pub async fn act(&mut self, mut action: Value) -> Value {
        for name in ["plan_id", "digest"] {
            if action.get(name) == Some(&json!("…")) {
                action[name] = self.proposed[name].clone();
            }
        }
        let proposes = action["action"] == "propose";
        let answer = self.world.act(action).await;
        if proposes {
            self.proposed = answer.clone();
        }
        answer
    }

    /// Sets `ep_a` to paused, active or disabled.
    pub async fn set(&self, status: &str) {
        let set = json!({"action": "endpoint", "endpoint": "ep_a", "set": status, "reason": "test"});
        assert_eq!(self.world.act(set).await["ok"], true);
    }

    /// The record of the delivery that was named last.
    pub async fn record(&self) -> Record {
        let key = self.key.as_ref().expect("a delivery was named");
        self.world.table.get(key).await.unwrap().unwrap_or_else(|| panic!("there is no record of {key}"))
    }

    /// The state of the delivery that was named last.
    pub async fn state(&self) -> String {
        self.record().await.state.to_string()
    }

    /// Gives one batch of a queue to a `deliver` that sends through `sender`; what it settles is acknowledged.
    pub async fn deliver(&self, queue: &MemoryQueue, arn: &str, sender: impl Sender) {
        let world = &self.world;
        let handler = Handler {
            retry_queue_arn: RETRY_ARN.to_owned(),
            deliver: Deliver {
                deliveries: world.table.clone(),
                payloads: world.payloads.clone(),
                endpoints: world.endpoints.clone(),
                sender,
                clock: world.clock.clone(),
                settings: world.handler.deliver.settings.clone(),
            },
        };
        let batch = queue.take();
        assert!(!batch.is_empty());
        let deadline = world.clock.now().plus(TIMING.function_ms);
        assert!(handler.handle(event(&batch, arn), deadline).await.unwrap().failures.is_empty());
        for message in batch {
            queue.remove(&message.message_id);
        }
        world.relay();
    }
}

/// An endpoint that answers when something has happened meanwhile.
pub struct Meanwhile<'a> {
    pub world: &'a World,
    pub message: &'a str,
    pub answer: Outcome,
}

impl Sender for Meanwhile<'_> {
    async fn post(&self, _: &Request<'_>) -> Outcome {
        self.world.intake.send(self.message, 0);
        self.world.settle_now().await;
        self.answer.clone()
    }
}

/// An endpoint that never answers: who drops the future is a process that dies over it.
pub struct Never;

impl Sender for Never {
    async fn post(&self, _: &Request<'_>) -> Outcome {
        std::future::pending().await
    }
}

/// What the endpoint answers: `timeout`, or a status and headers, with semicolons between them.
pub fn answer(text: &str) -> Outcome {
    if text == "timeout" {
        return Outcome::Failed { phase: Phase::Sent, detail: "timeout".to_owned() };
    }
    let mut parts = text.split("; ");
    let status = parts.next().and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no answer: {text}"));
    let mut answer = Answer { status, ..Answer::default() };
    for header in parts {
        let (name, value) = header.split_once(": ").unwrap_or_else(|| panic!("no header: {header}"));
        let field = match name {
            "Retry-After" => &mut answer.retry_after,
            "Date" => &mut answer.date,
            "Age" => &mut answer.age,
            other => panic!("no header that matters: {other}"),
        };
        *field = Some(value.as_bytes().to_vec());
    }
    Outcome::Answered(answer)
}

/// `12:00:35` on the day on which every world begins.
fn time_of_day(text: &str) -> Option<Millis> {
    let day = START.to_string();
    let time = (text.len() == 8).then(|| format!("{}T{text}Z", day.split('T').next().unwrap_or_default()))?;
    Millis::parse_rfc3339(&time)
}

/// True when the part stands in the whole: an object may have more members, a list may not.
fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(name, part)| whole.get(name).is_some_and(|whole| holds(whole, part)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| holds(whole, part))
        }
        (whole, part) => whole == part,
    }
}
