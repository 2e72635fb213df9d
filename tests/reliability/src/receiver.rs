//! The receivers: endpoints with manners, or with a script. They note everything that reaches them.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use domain::id::DeliveryKey;
use domain::outcome::{Answer, Outcome, Phase};
use domain::ports::Sender;
use domain::request::Request;
use testkit::hostile::{Call, Fate, Gate};

use crate::chance::Chance;
use crate::ledger::{Arrival, Ledger};

/// What a receiver does with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Answers with a status.
    Status(u16),
    /// Answers 429 and asks for so many seconds.
    Throttle(u32),
    /// Accepts it, and the answer does not come.
    Silent,
    /// Reads it, does nothing with it, and the answer does not come.
    Swallow,
    /// Is not there.
    Refused,
    /// The guard does not let it out.
    Blocked,
}

/// How an endpoint behaves over many requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Accepts.
    Healthy,
    /// Fails so many of a hundred, in different ways.
    Flaky(u8),
    /// Throttles half of them, and asks for so many seconds at most.
    Throttling(u32),
    /// Fails always.
    Dead,
    /// Accepts, but so many of a hundred only after the sender has stopped waiting.
    Slow(u8),
    /// Says that it is gone, now and then.
    Gone,
    /// Refuses some for good.
    Refusing,
    /// The guard does not let it out, now and then.
    Blocked,
}

/// Called with the key of each request that arrives.
pub type Forbidden = Rc<dyn Fn(&DeliveryKey)>;

/// All receivers. Clones share them.
#[derive(Clone)]
pub struct Receiver {
    gate: Gate,
    ledger: Ledger,
    chance: Chance,
    script: Rc<RefCell<VecDeque<Reply>>>,
    manners: Rc<RefCell<HashMap<String, Manner>>>,
    forbidden: Rc<RefCell<Option<Forbidden>>>,
    /// Everybody accepts from now on.
    pub calm: Rc<Cell<bool>>,
}

impl Receiver {
    /// Receivers that accept everything.
    pub fn new(gate: Gate, ledger: Ledger, chance: Chance) -> Self {
        Self {
            gate,
            ledger,
            chance,
            script: Rc::default(),
            manners: Rc::default(),
            forbidden: Rc::default(),
            calm: Rc::default(),
        }
    }

    /// Shows every request to somebody who knows whether it may be.
    pub fn watch(&self, forbidden: Forbidden) {
        *self.forbidden.borrow_mut() = Some(forbidden);
    }

    /// Will do these, in order, whoever is asked.
    pub fn then(&self, replies: impl IntoIterator<Item = Reply>) {
        self.script.borrow_mut().extend(replies);
    }

    /// Gives an endpoint its manner.
    pub fn behave(&self, endpoint: &str, manner: Manner) {
        self.manners.borrow_mut().insert(endpoint.to_owned(), manner);
    }

    fn reply(&self, endpoint: &str) -> Reply {
        if let Some(reply) = self.script.borrow_mut().pop_front() {
            return reply;
        }
        if self.calm.get() {
            return Reply::Status(200);
        }
        let hundred = self.chance.below(100);
        match self.manners.borrow().get(endpoint) {
            None | Some(Manner::Healthy) => Reply::Status(200),
            Some(Manner::Flaky(percent)) if hundred < u64::from(*percent) => *self.chance.pick(&[
                Reply::Status(500),
                Reply::Status(503),
                Reply::Status(408),
                Reply::Silent,
                Reply::Swallow,
                Reply::Refused,
            ]),
            Some(Manner::Throttling(most)) if hundred < 50 => {
                Reply::Throttle(u32::try_from(self.chance.below(u64::from(*most))).unwrap_or(1) + 1)
            }
            Some(Manner::Dead) => Reply::Status(502),
            Some(Manner::Slow(percent)) if hundred < u64::from(*percent) => Reply::Silent,
            Some(Manner::Gone) if hundred < 2 => Reply::Status(410),
            Some(Manner::Refusing) if hundred < 20 => Reply::Status(422),
            Some(Manner::Blocked) if hundred < 20 => Reply::Blocked,
            Some(
                Manner::Flaky(_)
                | Manner::Throttling(_)
                | Manner::Slow(_)
                | Manner::Gone
                | Manner::Refusing
                | Manner::Blocked,
            ) => Reply::Status(200),
        }
    }

    async fn until_timeout(&self, request: &Request<'_>, spent: i64) -> Outcome {
        self.gate.executor.after((request.timeout_ms - spent).max(1)).await;
        Outcome::Failed { phase: Phase::Sent, detail: "timeout".to_owned() }
    }
}

fn header<'a>(request: &'a Request<'_>, name: &str) -> &'a str {
    request.headers.iter().find(|(n, _)| n == name).map_or("", |(_, v)| v.as_str())
}

impl Sender for Receiver {
    async fn post(&self, request: &Request<'_>) -> Outcome {
        let endpoint = request.url.path().trim_start_matches('/').to_owned();
        let key = DeliveryKey::parse(header(request, "webhook-id"), &endpoint).expect("the request names a delivery");
        let call = Call { name: "post", about: &key, writes: true };
        let (before, after) = self.gate.fates.delays(&call).unwrap_or_default();
        self.gate.executor.after(before).await;
        let refused = || Outcome::Failed { phase: Phase::Connect, detail: "refused".to_owned() };
        if request.timeout_ms <= before {
            return Outcome::Failed { phase: Phase::Connect, detail: "timeout".to_owned() };
        }
        let fate = self.gate.fates.of(&call);
        let mut reply = self.reply(&endpoint);
        match fate {
            Fate::Pass | Fate::Repeat | Fate::DieAfter => {}
            Fate::FailBefore => reply = Reply::Refused,
            Fate::FailAfter | Fate::HangAfter => reply = Reply::Silent,
            Fate::HangBefore => reply = Reply::Swallow,
            Fate::DieBefore => self.gate.executor.die().await,
        }
        let accepted = match reply {
            Reply::Status(status) => (200..300).contains(&status),
            Reply::Silent => true,
            Reply::Throttle(_) | Reply::Swallow => false,
            Reply::Refused => return refused(),
            Reply::Blocked => return Outcome::Blocked { detail: "the address is not a public one".to_owned() },
        };
        let attempt = header(request, "redeliver-attempt").parse().unwrap_or(0);
        let at = self.gate.executor.now();
        let arrival = Arrival { attempt, at, body: request.body.to_vec(), accepted, told: None };
        let number = self.ledger.arrived(&key, arrival);
        if let Some(forbidden) = &*self.forbidden.borrow() {
            forbidden(&key);
        }
        if fate == Fate::DieAfter {
            self.gate.executor.die().await;
        }
        let outcome = if before + after >= request.timeout_ms {
            self.until_timeout(request, before).await
        } else {
            self.gate.executor.after(after).await;
            match reply {
                Reply::Silent | Reply::Swallow => self.until_timeout(request, before + after).await,
                Reply::Throttle(seconds) => Outcome::Answered(Answer {
                    status: 429,
                    retry_after: Some(seconds.to_string().into_bytes()),
                    ..Answer::default()
                }),
                Reply::Status(status) => Outcome::Answered(Answer { status, ..Answer::default() }),
                Reply::Refused | Reply::Blocked => refused(),
            }
        };
        let told = matches!(&outcome, Outcome::Answered(answer) if (200..300).contains(&answer.status));
        self.ledger.told(&key, number, told);
        outcome
    }
}
