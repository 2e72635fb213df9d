//! What a round of the simulation is made of, drawn from its seed: endpoints and their manners, what producers and operators
//! do and when, and how bad the weather is.

use domain::time::{Millis, SECOND_MS};
use serde_json::json;

use crate::chance::Chance;
use crate::fates::Rates;
use crate::receiver::Manner;
use crate::settings::{INTAKE_MAX_RECEIVES, START};
use crate::story::Webhook;
use crate::weather::Weather;
use crate::world::World;

/// Producers and operators are active so long, in milliseconds.
pub const ACTIVE_MS: i64 = 3 * 3_600 * SECOND_MS;

/// The endpoints of a round. Those that begin with `s` have a short policy.
pub const ENDPOINTS: [(&str, Manner); 12] = [
    ("h0", Manner::Healthy),
    ("h1", Manner::Healthy),
    ("h2", Manner::Healthy),
    ("f0", Manner::Flaky(15)),
    ("f1", Manner::Flaky(60)),
    ("s0", Manner::Flaky(70)),
    ("t0", Manner::Throttling(1_200)),
    ("s1", Manner::Dead),
    ("w0", Manner::Slow(20)),
    ("g0", Manner::Gone),
    ("r0", Manner::Refusing),
    ("b0", Manner::Blocked),
];

/// What can be left out of a round to see whether it matters.
pub const PARTS: [&str; 27] = [
    "dead_letters",
    "fail_before",
    "fail_after",
    "repeat",
    "hang_before",
    "hang_after",
    "die_before",
    "die_after",
    "slow",
    "reorder",
    "duplicate_message",
    "late_message",
    "lost_ack",
    "dropped_change",
    "doubled_change",
    "late_change",
    "kill",
    "doubled_sweep",
    "missed_sweep",
    "clock",
    "outage",
    "index_lag",
    "cancels",
    "conflicts",
    "times",
    "operators",
    "manners",
];

/// What happens at a time.
#[derive(Clone, Debug)]
pub enum Action {
    /// A producer sends the message of that delivery, with one of its payloads.
    Send(u32, u32),
    /// A producer cancels.
    Cancel(u32),
    /// An operator calls.
    Operate(String),
    /// An operator cancels.
    OperatorCancel(u32),
    /// An endpoint is removed.
    Remove(&'static str),
    /// An endpoint is there again.
    Register(&'static str),
    /// A message was received too often and is in the transport DLQ.
    DeadLetter(u32),
    /// The tables fail so many of a hundred calls.
    Down(u8),
}

/// A webhook of a round.
#[derive(Clone, Debug)]
pub struct Made {
    /// Event id.
    pub id: String,
    /// Endpoint.
    pub endpoint: &'static str,
    /// Not before.
    pub deliver_at: Option<Millis>,
    /// Not after.
    pub deliver_by: Option<Millis>,
}

/// A round, drawn.
pub struct Scenario {
    /// Its webhooks.
    pub made: Vec<Made>,
    /// What happens when.
    pub actions: Vec<(Millis, Action)>,
}

impl Made {
    /// As a message.
    pub fn webhook(&self, variant: u32) -> Webhook<'_> {
        Webhook {
            id: &self.id,
            endpoint: self.endpoint,
            variant,
            deliver_at: self.deliver_at,
            deliver_by: self.deliver_by,
        }
    }
}

/// How often calls fail, and how the platform behaves. Some rounds are calm, some are rough.
pub fn weather(chance: &Chance, has: &dyn Fn(&str) -> bool) -> (Rates, Weather) {
    let rough = *chance.pick(&[0, 1, 3, 10, 30]);
    let rate = |part: &str, rate: u32| if has(part) { rate * rough } else { 0 };
    let rates = Rates {
        faults: [
            rate("fail_before", 2_000),
            rate("fail_after", 2_000),
            rate("repeat", 2_000),
            rate("hang_before", 60),
            rate("hang_after", 60),
            rate("die_before", 150),
            rate("die_after", 150),
        ],
        slow: if has("slow") { 150_000 } else { 0 },
        very_slow: rate("slow", 300),
    };
    let weather = Weather {
        reorder: has("reorder"),
        duplicate: rate("duplicate_message", 3_000),
        late_message: rate("late_message", 5_000),
        lost_ack: rate("lost_ack", 3_000),
        dropped_change: rate("dropped_change", 2_000),
        doubled_change: rate("doubled_change", 3_000),
        late_change: rate("late_change", 2_000),
        kill: rate("kill", 2_000),
        doubled_sweep: if has("doubled_sweep") { 100_000 } else { 0 },
        missed_sweep: rate("missed_sweep", 10_000),
        clock_jump: if has("clock") { 20_000 } else { 0 },
        skew_ms: if has("clock") { 3_000 } else { 0 },
    };
    (rates, weather)
}

/// Draws a round of so many deliveries.
pub fn draw(chance: &Chance, deliveries: u32, has: &dyn Fn(&str) -> bool) -> Scenario {
    let mut made = Vec::new();
    let mut actions = Vec::new();
    let mut at = START;
    for delivery in 0..deliveries {
        // Half of them come in bursts.
        at = if chance.below(2) == 0 {
            START.plus(chance.between(0, ACTIVE_MS))
        } else {
            // Nothing that is drawn later would be sent.
            at.plus(chance.between(0, 200)).min(START.plus(ACTIVE_MS - 1))
        };
        let endpoint = ENDPOINTS[usize::try_from(chance.below(12)).unwrap_or(0)].0;
        let times = has("times");
        let deliver_at = (times && chance.below(10) == 0).then(|| at.plus(chance.between(-5_000, ACTIVE_MS)));
        let from = deliver_at.map_or(at, |later| later.max(at));
        let earliest = if deliver_at.is_some() { 1 } else { -1_000 };
        let deliver_by = (times && chance.below(10) == 0).then(|| from.plus(chance.between(earliest, 3_600_000)));
        made.push(Made { id: format!("e{delivery}"), endpoint, deliver_at, deliver_by });
        let dead = has("dead_letters") && chance.below(50) == 0;
        actions.push((at, if dead { Action::DeadLetter(delivery) } else { Action::Send(delivery, 0) }));
        if has("duplicate_message") && chance.below(10) == 0 {
            for _ in 0..=chance.below(3) {
                let spread = *chance.pick(&[0, 1_000, 90_000, 600_000, ACTIVE_MS]);
                actions.push((at.plus(chance.between(0, spread)), Action::Send(delivery, 0)));
            }
        }
        if has("conflicts") && chance.below(50) == 0 {
            actions.push((at.plus(chance.between(0, 600_000)), Action::Send(delivery, 1)));
        }
        if has("cancels") && chance.below(40) == 0 {
            let when = at.plus(chance.between(-10_000, 900_000)).max(START);
            let cancel = if chance.below(3) == 0 { Action::OperatorCancel(delivery) } else { Action::Cancel(delivery) };
            actions.push((when, cancel));
        }
    }
    if has("operators") {
        operators(chance, &mut actions);
    }
    if has("outage") && chance.below(3) == 0 {
        let down = START.plus(chance.between(0, ACTIVE_MS / 2));
        let minutes = *chance.pick(&[1, 10, 40, 110]);
        actions.push((down, Action::Down(*chance.pick(&[100, 100, 50, 20]))));
        actions.push((down.plus(minutes * 60_000), Action::Down(0)));
    }
    Scenario { made, actions }
}

/// Pauses and resumes, removals, redrives.
fn operators(chance: &Chance, actions: &mut Vec<(Millis, Action)>) {
    for _ in 0..40 {
        let at = START.plus(chance.between(0, ACTIVE_MS));
        let endpoint = ENDPOINTS[usize::try_from(chance.below(12)).unwrap_or(0)].0;
        let set = |to: &str| {
            Action::Operate(json!({"action": "endpoint", "endpoint": endpoint, "set": to, "reason": "so"}).to_string())
        };
        let back = at.plus(chance.between(1_000, 1_500_000));
        match chance.below(8) {
            0 | 1 => {
                actions.push((at, set("paused")));
                actions.push((back, set("active")));
            }
            2 => {
                actions.push((at, set("disabled")));
                actions.push((back, set("active")));
            }
            3 => {
                actions.push((at, Action::Remove(endpoint)));
                actions.push((back, Action::Register(endpoint)));
                actions.push((back, set("active")));
            }
            4 => {
                actions.push((at, set("active")));
                actions.push((at.plus(chance.between(0, 2_000)), set("paused")));
                actions.push((at.plus(chance.between(0, 4_000)), set("active")));
            }
            5 => {
                let filter = json!({"state": "held"});
                actions.push((at, Action::Operate(json!({"action": "propose", "filter": filter}).to_string())));
            }
            _ => {
                let filter = if chance.below(2) == 0 { json!({}) } else { json!({"endpoint": endpoint}) };
                let propose = json!({"action": "propose", "filter": filter, "rate_per_second": 50});
                actions.push((at, Action::Operate(propose.to_string())));
            }
        }
    }
}

impl World {
    /// Does what a scenario says.
    pub fn act(&mut self, scenario: &Scenario, action: &Action) {
        match action {
            Action::Send(delivery, variant) => self.send(&scenario.made[*delivery as usize].webhook(*variant)),
            Action::Cancel(delivery) => {
                let made = &scenario.made[*delivery as usize];
                self.cancel(&made.id, made.endpoint);
            }
            Action::OperatorCancel(delivery) => {
                let made = &scenario.made[*delivery as usize];
                self.may_be_cancelled(&made.id, made.endpoint);
                self.start_operator(
                    json!({"action": "cancel", "id": made.id, "endpoint": made.endpoint, "reason": "no"}),
                );
            }
            Action::Operate(action) => {
                self.start_operator(serde_json::from_str(action).expect("an action is JSON"));
            }
            Action::Remove(endpoint) => {
                self.ledger.count("endpoint_removed");
                self.remove(endpoint);
            }
            Action::Register(endpoint) => self.register(endpoint),
            Action::DeadLetter(delivery) => {
                let body = self.promise(&scenario.made[*delivery as usize].webhook(0));
                self.ledger.count("dead_lettered_message");
                self.intake_dlq.send_received(&body, INTAKE_MAX_RECEIVES);
            }
            Action::Down(percent) => {
                if *percent > 0 {
                    self.ledger.count(if *percent == 100 { "outage" } else { "brownout" });
                }
                self.decider.set_down(*percent);
            }
        }
    }
}
