//! Makes a failing round smaller as long as it fails: fewer deliveries, fewer workers, fewer faults. A smaller round is a
//! different run, so some seeds are tried for each.

use crate::round::Round;
use crate::scenario::PARTS;
use crate::watch::{Check, Violation};

/// Seeds tried for each smaller round.
const SEEDS: u64 = 6;
/// Deliveries run in all while shrinking: the patience of the person who waits.
const PATIENCE: u64 = 400_000;

/// The smallest failing round that was found, and what it breaks.
pub fn shrink(round: &Round, check: Check) -> (Round, Violation) {
    let mut best = round.clone();
    let mut violation = fails(&best, check).expect("the round fails");
    let (mut smaller, mut left) = (true, PATIENCE);
    while smaller {
        smaller = false;
        for candidate in candidates(&best) {
            let seeds = (0..SEEDS).map(|i| Round { seed: candidate.seed.wrapping_add(i), ..candidate.clone() });
            for round in seeds {
                left = left.saturating_sub(u64::from(round.deliveries) + 200);
                if left == 0 {
                    return (best, violation);
                }
                if let Some(found) = fails(&round, check) {
                    (best, violation) = (round, found);
                    smaller = true;
                    break;
                }
            }
        }
    }
    (best, violation)
}

fn candidates(round: &Round) -> Vec<Round> {
    let mut candidates = Vec::new();
    for divisor in [8, 2] {
        if round.deliveries / divisor > 0 && divisor > 1 {
            candidates.push(Round { deliveries: round.deliveries / divisor, ..round.clone() });
        }
    }
    if round.workers > 1 {
        candidates.push(Round { workers: 1, ..round.clone() });
    }
    for part in PARTS.iter().filter(|part| !round.without.contains(*part)) {
        let mut without = round.without.clone();
        without.insert(part);
        candidates.push(Round { without, ..round.clone() });
    }
    candidates
}

fn fails(round: &Round, check: Check) -> Option<Violation> {
    round.run(None).violations.into_iter().find(|violation| violation.check == check)
}
