//! One round of the simulation: drawn from a seed, run with everything that can go wrong, calmed, run to its end, judged.
//! The same round always runs the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::json;

use crate::broken::Bug;
use crate::chance::Chance;
use crate::fates::Mode;
use crate::judge::Duplicates;
use crate::scenario::{self, ACTIVE_MS, ENDPOINTS};
use crate::settings::START;
use crate::watch::Violation;
use crate::world::{Event, World};

/// A round.
#[derive(Clone, Debug)]
pub struct Round {
    /// What it is drawn from.
    pub seed: u64,
    /// How many deliveries.
    pub deliveries: u32,
    /// Workers per queue.
    pub workers: usize,
    /// What is left out.
    pub without: BTreeSet<&'static str>,
    /// What is broken in the store.
    pub bug: Option<Bug>,
}

/// What a round came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was broken.
    pub violations: Vec<Violation>,
    /// Duplicates that receivers saw.
    pub duplicates: Duplicates,
    /// What was done to the system.
    pub faults: BTreeMap<&'static str, u64>,
    /// Calls of ports.
    pub calls: u64,
    /// How late retries were claimed.
    pub late: BTreeMap<i64, u64>,
    /// Records by their final state.
    pub states: BTreeMap<String, u64>,
    /// The most writes of one record.
    pub most_writes: u64,
    /// Requests that reached receivers.
    pub requests: u64,
    /// The story of the traced delivery.
    pub trace: Vec<String>,
}

impl Round {
    /// Runs it; tells the story of one delivery if asked.
    pub fn run(&self, traced: Option<&str>) -> Outcome {
        let chance = Chance::new(self.seed);
        let has = |part: &str| !self.without.contains(part);
        let (rates, weather) = scenario::weather(&chance, &has);
        let mut world = World::new(chance.bits(), self.workers, Mode::Storm(rates), self.bug);
        if let Some(key) = traced {
            world.ledger.trace(key);
        }
        world.weather = weather;
        for (endpoint, manner) in ENDPOINTS {
            world.register(endpoint);
            if has("manners") {
                world.receiver.behave(endpoint, manner);
            }
        }
        let lag = Chance::new(chance.bits());
        let lags = has("index_lag");
        world.table.let_indexes_lag(
            world.clock.clone(),
            Rc::new(move || match lag.below(1_000) {
                _ if !lags => 0,
                0 => lag.between(1_000, 60_000),
                1..100 => lag.between(0, 500),
                _ => 0,
            }),
        );
        let scenario = scenario::draw(&chance, self.deliveries, &has);
        for (number, (at, _)) in scenario.actions.iter().enumerate() {
            world.at(*at, Event::Workload(u32::try_from(number).unwrap_or(0)));
        }
        world.schedule();
        let end = START.plus(ACTIVE_MS);
        while world.step(end) {
            while let Some(number) = world.due.pop_front() {
                world.act(&scenario, &scenario.actions[number as usize].1);
            }
            world.decide_plans();
        }
        world.check_moved();
        world.recover(&ENDPOINTS.map(|(endpoint, _)| endpoint));
        let duplicates = world.judge();
        let (mut states, mut most_writes) = (BTreeMap::new(), 0);
        for record in world.table.all() {
            most_writes = most_writes.max(record.rev);
            *states.entry(record.state.to_string()).or_default() += 1;
        }
        Outcome {
            violations: world.watch.violations(),
            duplicates,
            faults: world.ledger.counts(),
            calls: world.decider.calls(),
            late: world.watch.late(),
            states,
            most_writes,
            requests: world.ledger.requests(),
            trace: world.ledger.story(),
        }
    }
}

impl World {
    /// Operators approve what was proposed, some of it twice, and look at it later.
    fn decide_plans(&mut self) {
        while let Some(answer) = self.answers.pop_front() {
            let (Some(plan), Some(digest)) = (answer["plan_id"].as_str(), answer["digest"].as_str()) else { continue };
            self.ledger.count("plan_approved");
            let approvals = 1 + self.chance.below(3);
            for number in 0..approvals {
                let redrive = format!("{plan} {}", number / 2);
                let approve = json!({"action": "approve", "plan_id": plan, "digest": digest, "redrive_id": redrive, "reason": "fixed"});
                let at = self.executor.now().plus(self.chance.between(0, 5_000));
                self.at(at, Event::Operate(approve.to_string()));
            }
            let at = self.executor.now().plus(self.chance.between(0, 600_000));
            self.at(at, Event::Operate(json!({"action": "status", "plan_id": plan}).to_string()));
        }
    }
}
