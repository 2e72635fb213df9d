//! The simulation in small: some fixed rounds, and one that nobody has seen before.
#![allow(clippy::print_stdout, reason = "the seed has to be known when a round fails")]

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use reliability::report::tell;
use reliability::round::Round;

fn holds(seed: u64) {
    let round = Round { seed, deliveries: 2_000, workers: 4, without: BTreeSet::new(), bug: None };
    let outcome = round.run(None);
    if let Some(violation) = outcome.violations.first() {
        tell(&round, violation);
        panic!("{} broken promises", outcome.violations.len());
    }
    assert_eq!(outcome.states.values().sum::<u64>(), 2_000, "every delivery has its record");
}

#[test]
fn nothing_is_lost_stuck_or_sent_needlessly_in_fixed_rounds() {
    for seed in 1..=12 {
        holds(seed);
    }
}

#[test]
fn what_is_drawn_at_the_end_of_a_round_is_sent() {
    holds(129_502_844_947_332);
}

#[test]
fn nothing_is_lost_stuck_or_sent_needlessly_in_a_new_round() {
    let seed = RandomState::new().hash_one(0) >> 16;
    println!("seed {seed}");
    holds(seed);
}

#[test]
fn a_round_runs_the_same_way_again() {
    for seed in 7..12 {
        let round = Round { seed, deliveries: 300, workers: 3, without: BTreeSet::new(), bug: None };
        let [one, two] = [(); 2].map(|()| round.run(Some("e1#h0")));
        assert_eq!((one.calls, one.trace, one.faults), (two.calls, two.trace, two.faults));
    }
}
