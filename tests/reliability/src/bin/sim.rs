//! The simulation, from the command line: `sim DELIVERIES SEED`, or `sim round DELIVERIES SEED WORKERS [without,…]` to run
//! one round again. The last line is one JSON object.
#![allow(clippy::print_stdout, reason = "a command line prints")]
#![allow(clippy::disallowed_methods, reason = "how long a run takes is measured, not decided by")]

use std::process::ExitCode;
use std::time::Instant;

use reliability::chance::Chance;
use reliability::report::{Report, tell};
use reliability::round::Round;
use reliability::scenario::PARTS;
use reliability::shrink::shrink;

/// Deliveries per round, so that memory stays bounded.
const PER_ROUND: u64 = 5_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, or: u64| words.get(i).and_then(|word| word.parse().ok()).unwrap_or(or);
    if words.first().is_some_and(|word| word == "round") {
        let without = words.get(4).map_or("", String::as_str).split(',');
        let without = without.filter_map(|word| PARTS.into_iter().find(|part| *part == word)).collect();
        let round = Round {
            deliveries: u32::try_from(number(1, 1)).unwrap_or(1),
            seed: number(2, 1),
            workers: usize::try_from(number(3, 1)).unwrap_or(1),
            without,
            bug: None,
        };
        let violations = round.run(None).violations;
        if let Some(violation) = violations.first() {
            tell(&round, violation);
        }
        return if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let (deliveries, seed) = (number(0, 1_000_000), number(1, 1));
    let started = Instant::now();
    let mut report = Report::new(seed);
    let chance = Chance::new(seed);
    let mut left = deliveries;
    let mut failed = None;
    while left > 0 {
        let some = left.min(PER_ROUND);
        left -= some;
        let round = Round {
            seed: chance.bits() >> 16,
            deliveries: u32::try_from(some).unwrap_or(1),
            workers: 1 + usize::try_from(chance.below(6)).unwrap_or(0),
            without: Default::default(),
            bug: None,
        };
        let outcome = round.run(None);
        if let Some(violation) = outcome.violations.first().filter(|_| failed.is_none()) {
            failed = Some((round.clone(), violation.clone()));
        }
        report.add(some, &outcome);
        if report.rounds().is_multiple_of(20) {
            println!("{} deliveries, {} s", report.deliveries(), started.elapsed().as_secs());
        }
    }
    if let Some((round, violation)) = &failed {
        tell(round, violation);
        let (small, violation) = shrink(round, violation.check);
        println!("the same in small:");
        tell(&small, &violation);
    }
    println!("{}", report.json(started.elapsed().as_secs_f64()));
    if failed.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
