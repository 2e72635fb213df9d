//! What a simulation came to, as one JSON object, and the story of a delivery that was let down.
#![allow(clippy::print_stdout, reason = "a report is printed")]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::round::{Outcome, Round};
use crate::watch::{Check, Violation};

/// The sum of all rounds.
#[derive(Debug)]
pub struct Report {
    seed: u64,
    rounds: u64,
    deliveries: u64,
    broken: BTreeMap<Check, u64>,
    ambiguous: BTreeMap<&'static str, u64>,
    faults: BTreeMap<&'static str, u64>,
    late: BTreeMap<i64, u64>,
    states: BTreeMap<String, u64>,
    calls: u64,
    requests: u64,
    most_writes: u64,
}

/// All checks, in the order in which they are reported.
const CHECKS: [Check; 13] = [
    Check::Lost,
    Check::Stuck,
    Check::OverBudget,
    Check::Changed,
    Check::DuplicatesOther,
    Check::Untimely,
    Check::TwoRecords,
    Check::UnconditionalWrite,
    Check::Unmoved,
    Check::Expiring,
    Check::PayloadMissing,
    Check::NeedlesslyAbandoned,
    Check::DecidedTwice,
];

impl Report {
    /// Nothing yet.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            rounds: 0,
            deliveries: 0,
            broken: BTreeMap::new(),
            ambiguous: BTreeMap::new(),
            faults: BTreeMap::new(),
            late: BTreeMap::new(),
            states: BTreeMap::new(),
            calls: 0,
            requests: 0,
            most_writes: 0,
        }
    }

    /// Adds a round.
    pub fn add(&mut self, deliveries: u64, outcome: &Outcome) {
        self.rounds += 1;
        self.deliveries += deliveries;
        self.calls += outcome.calls;
        self.requests += outcome.requests;
        self.most_writes = self.most_writes.max(outcome.most_writes);
        for violation in &outcome.violations {
            *self.broken.entry(violation.check).or_default() += 1;
        }
        let pairs = outcome.duplicates.ambiguous.iter();
        pairs.for_each(|(cause, n)| *self.ambiguous.entry(cause).or_default() += n);
        outcome.faults.iter().for_each(|(fault, n)| *self.faults.entry(fault).or_default() += n);
        outcome.late.iter().for_each(|(bound, n)| *self.late.entry(*bound).or_default() += n);
        outcome.states.iter().for_each(|(state, n)| *self.states.entry(state.clone()).or_default() += n);
    }

    /// Rounds so far.
    pub const fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Deliveries so far.
    pub const fn deliveries(&self) -> u64 {
        self.deliveries
    }

    /// As one JSON object.
    pub fn json(&self, seconds: f64) -> Value {
        let mut report = json!({
            "deliveries": self.deliveries,
            "seed": self.seed,
            "rounds": self.rounds,
            "port_calls": self.calls,
            "requests": self.requests,
            "most_writes_of_one_record": self.most_writes,
            "duplicates_ambiguous": self.ambiguous.values().sum::<u64>(),
            "duplicates_ambiguous_by_cause": self.ambiguous,
            "faults_injected": self.faults,
            "final_states": self.states,
            "wall_seconds": seconds.round(),
        });
        let mut bounds = serde_json::Map::new();
        for check in CHECKS {
            let count = self.broken.get(&check).copied().unwrap_or(0);
            report[check.name()] = json!(count);
            if matches!(check, Check::Lost | Check::Stuck | Check::DuplicatesOther) {
                bounds.insert(check.name().to_owned(), json!(at_most_per_million(count, self.deliveries)));
            }
        }
        let ambiguous = self.ambiguous.values().sum();
        bounds.insert("duplicates_ambiguous".to_owned(), json!(at_most_per_million(ambiguous, self.deliveries)));
        report["per_million_at_most_95"] = Value::Object(bounds);
        report["claims_late_by_less_than_seconds"] = self
            .late
            .iter()
            .map(|(bound, n)| (if *bound == i64::MAX { "more".to_owned() } else { bound.to_string() }, json!(n)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        report
    }
}

/// The rate per million that is not exceeded with 95 % confidence, after `count` in `of` (Byar's approximation of the exact
/// Poisson limit).
pub fn at_most_per_million(count: u64, of: u64) -> f64 {
    let n = count as f64 + 1.0;
    let limit = n * (1.0 - 1.0 / (9.0 * n) + 1.645 / (3.0 * n.sqrt())).powi(3);
    (limit * 1e8 / of.max(1) as f64).round() / 100.0
}

/// Prints how to run a round again, and the story of the delivery that it let down.
pub fn tell(round: &Round, violation: &Violation) {
    let without: Vec<&str> = round.without.iter().copied().collect();
    println!("BROKEN {}: {}: {}", violation.check.name(), violation.key, violation.why);
    println!(
        "again: cargo run -p reliability --bin sim -- round {} {} {} {}",
        round.deliveries,
        round.seed,
        round.workers,
        without.join(",")
    );
    for line in round.run(Some(&violation.key)).trace {
        println!("  {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_the_rule_of_three_for_none_and_close_to_the_rate_for_many() {
        assert!((2.9..3.1).contains(&at_most_per_million(0, 1_000_000)));
        assert!((9.0..9.3).contains(&at_most_per_million(4, 1_000_000)), "{}", at_most_per_million(4, 1_000_000));
        assert!((10_160.0..10_180.0).contains(&at_most_per_million(10_000, 1_000_000)));
    }
}
