//! The checks find stores with bugs; otherwise they would prove nothing about stores without.
#![allow(clippy::print_stdout, reason = "what found which bug is the result")]

use std::collections::BTreeSet;

use reliability::broken::Bug;
use reliability::round::Round;

#[test]
fn the_simulation_finds_bugs_within_ten_rounds_of_500_deliveries() {
    let mut missed = Vec::new();
    // Two people rarely approve in the same moment here; the orders of `two_approvals` find that one.
    for bug in Bug::ALL.into_iter().filter(|bug| *bug != Bug::PlanWithoutCondition) {
        let found = (1..=10).find_map(|seed| {
            let round = Round { seed, deliveries: 500, workers: 4, without: BTreeSet::new(), bug: Some(bug) };
            let checks: BTreeSet<&str> = round.run(None).violations.iter().map(|v| v.check.name()).collect();
            (!checks.is_empty()).then_some((seed, checks))
        });
        match found {
            Some((rounds, checks)) => println!("{bug:?}: round {rounds}, {checks:?}"),
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, [], "bugs that nothing found");
}
