//! Crash points: a story is told once to count its calls; then once for each call and each fault, with exactly that call
//! broken. After that nothing is broken any more, time passes, and everything must have ended well.

use std::collections::BTreeMap;

use testkit::hostile::Fate;

use crate::broken::Bug;
use crate::chance::Chance;
use crate::fates::Mode;
use crate::judge::Duplicates;
use crate::stories::Story;
use crate::watch::Violation;
use crate::world::World;

/// The endpoints of the stories.
pub const ENDPOINTS: [&str; 2] = ["p", "s"];

/// What one telling of a story came to.
pub struct Told {
    /// Calls in the story itself, without the recovery.
    pub calls: u64,
    /// What was broken.
    pub violations: Vec<Violation>,
    /// Duplicates.
    pub duplicates: Duplicates,
    /// How the broken delivery fared, when something was broken.
    pub trace: Vec<String>,
}

/// Tells a story.
pub fn tell(story: &Story, mode: Mode, bug: Option<Bug>, traced: Option<&str>) -> Told {
    let mut world = World::new(1, 2, mode, bug);
    if let Some(key) = traced {
        world.ledger.trace(key);
    }
    for endpoint in ENDPOINTS {
        world.register(endpoint);
    }
    (story.tell)(&mut world);
    world.check_moved();
    let calls = world.decider.calls();
    world.recover(&ENDPOINTS);
    let duplicates = world.judge();
    let violations = world.watch.violations();
    Told { calls, violations, duplicates, trace: world.ledger.story() }
}

/// What all crash points of some stories came to.
#[derive(Debug, Default)]
pub struct Summary {
    /// Points tried: a call and a fault.
    pub points: u64,
    /// Pairs of points tried.
    pub pairs: u64,
    /// By story.
    pub by_story: BTreeMap<&'static str, u64>,
    /// Duplicates that are explained, by cause.
    pub ambiguous: BTreeMap<&'static str, u64>,
    /// One line for each broken promise, with its point.
    pub broken: Vec<String>,
}

/// Tries every crash point of some stories, and so many pairs of them per story, drawn by chance.
pub fn try_all(stories: &[Story], pairs: u64, bug: Option<Bug>) -> Summary {
    let mut summary = Summary::default();
    let chance = Chance::new(1);
    for story in stories {
        let calm = tell(story, Mode::Chosen(Vec::new()), bug, None);
        note(&mut summary, story, &[], &calm);
        let singles = (0..calm.calls).flat_map(|number| Fate::FAULTS.map(|fate| vec![(number, fate)]));
        // After the first fault there may be more calls than in the calm story.
        let point = || (chance.below(calm.calls + 20), *chance.pick(&Fate::FAULTS));
        let pairs = (0..pairs).map(|_| vec![point(), point()]);
        for chosen in singles.chain(pairs) {
            let told = tell(story, Mode::Chosen(chosen.clone()), bug, None);
            note(&mut summary, story, &chosen, &told);
        }
    }
    summary
}

fn note(summary: &mut Summary, story: &Story, point: &[(u64, Fate)], told: &Told) {
    *(if point.len() > 1 { &mut summary.pairs } else { &mut summary.points }) += 1;
    *summary.by_story.entry(story.name).or_default() += 1;
    for (cause, count) in &told.duplicates.ambiguous {
        *summary.ambiguous.entry(cause).or_default() += count;
    }
    for violation in &told.violations {
        let Violation { check, key, why } = violation;
        summary.broken.push(format!("{}, {point:?}: {} {key}: {why}", story.name, check.name()));
    }
}
