//! The crash points and the interleavings at full size: `points crash` or `points orders`. The last line is one JSON object.
#![allow(clippy::print_stdout, reason = "a command line prints")]

use std::process::ExitCode;

use reliability::crash;
use reliability::interleave::{self, Effort};
use reliability::races::RACES;
use reliability::stories::STORIES;
use serde_json::json;

/// Pairs of crash points per story.
const PAIRS: u64 = 2_000;
/// Orders per race.
const EFFORT: Effort = Effort { most: 50_000, sample: 5_000 };

fn main() -> ExitCode {
    let (broken, report) = match std::env::args().nth(1).as_deref() {
        Some("crash") => {
            let summary = crash::try_all(STORIES, PAIRS, None);
            let report = json!({
                "crash_points": summary.points, "pairs": summary.pairs, "stories": summary.by_story,
                "duplicates_ambiguous_by_cause": summary.ambiguous, "broken": summary.broken.len(),
            });
            (summary.broken, report)
        }
        Some("orders") => {
            let summary = interleave::try_all(RACES, EFFORT, None);
            let report = json!({
                "orders": summary.schedules,
                "races": summary.by_race.iter().map(|(name, (n, all))| ((*name).to_owned(), json!({"orders": n, "all": all}))).collect::<serde_json::Map<_, _>>(),
                "duplicates_ambiguous_by_cause": summary.ambiguous, "broken": summary.broken.len(),
            });
            (summary.broken, report)
        }
        _ => {
            println!("usage: points crash | points orders");
            return ExitCode::FAILURE;
        }
    };
    for line in broken.iter().take(100) {
        println!("{line}");
    }
    println!("{report}");
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
