//! All orders of two on one delivery, a sample of three.
#![allow(clippy::print_stdout, reason = "the number of orders is the result")]

use reliability::broken::Bug;
use reliability::interleave::{Effort, try_all};
use reliability::races::{RACES, Race};

#[test]
fn nothing_is_lost_stuck_or_sent_needlessly_in_whatever_order() {
    let summary = try_all(RACES, Effort { most: 1_000, sample: 300 }, None);
    println!("{} orders of {} races", summary.schedules, summary.by_race.len());
    println!("{:?}", summary.by_race);
    println!("explained duplicates: {:?}", summary.ambiguous);
    for line in summary.broken.iter().take(60) {
        println!("{line}");
    }
    assert_eq!(summary.broken.len(), 0, "broken promises");
}

#[test]
fn orders_find_stores_that_do_not_look_at_what_they_replace() {
    for (bug, race) in [
        (Bug::SwapWithoutCondition, "takeover_by_two_messages"),
        (Bug::ClaimTwice, "a_wake_up_twice"),
        (Bug::PlanWithoutCondition, "two_approvals"),
    ] {
        let race: Vec<Race> = RACES.iter().filter(|r| r.name == race).copied().collect();
        let found = try_all(&race, Effort { most: 1_000, sample: 100 }, Some(bug));
        assert_ne!(found.broken.len(), 0, "{bug:?}");
    }
}
