//! Every call of every story fails before it takes effect, after it, twice, hangs, or is where the process dies.
#![allow(clippy::print_stdout, reason = "the number of points is the result")]

use reliability::crash::try_all;
use reliability::stories::STORIES;

#[test]
fn nothing_is_lost_stuck_or_sent_needlessly_wherever_a_call_fails() {
    let summary = try_all(STORIES, 100, None);
    println!("{} crash points and {} pairs in {} stories", summary.points, summary.pairs, summary.by_story.len());
    println!("{:?}", summary.by_story);
    println!("explained duplicates: {:?}", summary.ambiguous);
    for line in summary.broken.iter().take(60) {
        println!("{line}");
    }
    assert_eq!(summary.broken.len(), 0, "broken promises");
}
