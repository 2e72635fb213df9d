//! Interleavings: two tasks meet on one delivery, and every order of their calls is tried; of three or more, a sample. A
//! call that cannot matter to the delivery is no place where the order could differ.

use std::collections::BTreeMap;

use testkit::executor::TaskId;

use crate::broken::Bug;
use crate::chance::Chance;
use crate::crash::ENDPOINTS;
use crate::fates::Mode;
use crate::races::Race;
use crate::world::World;

/// How many orders are tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Of one race at most, in order.
    pub most: u64,
    /// By chance, where those were not all.
    pub sample: u64,
}

/// What all orders of some races came to.
#[derive(Debug, Default)]
pub struct Summary {
    /// Orders tried.
    pub schedules: u64,
    /// By race, and whether those were all.
    pub by_race: BTreeMap<&'static str, (u64, bool)>,
    /// Explained duplicates.
    pub ambiguous: BTreeMap<&'static str, u64>,
    /// One line for each broken promise, with its order.
    pub broken: Vec<String>,
}

/// Picks in order: first what is prescribed, then always the first, noting how many there were.
struct Path {
    prescribed: Vec<usize>,
    taken: Vec<(usize, usize)>,
}

impl Path {
    fn pick(&mut self, of: usize) -> usize {
        let pick = self.prescribed.get(self.taken.len()).copied().unwrap_or(0).min(of - 1);
        self.taken.push((pick, of));
        pick
    }

    /// The next path in order, if there is one.
    fn next(mut self) -> Option<Self> {
        while let Some((pick, of)) = self.taken.pop() {
            if pick + 1 < of {
                let mut prescribed: Vec<usize> = self.taken.iter().map(|(pick, _)| *pick).collect();
                prescribed.push(pick + 1);
                return Some(Self { prescribed, taken: Vec::new() });
            }
        }
        None
    }
}

/// Tries the orders of some races.
pub fn try_all(races: &[Race], effort: Effort, bug: Option<Bug>) -> Summary {
    let mut summary = Summary::default();
    for race in races {
        let mut path = Some(Path { prescribed: Vec::new(), taken: Vec::new() });
        let mut count = 0;
        while !race.sampled && count < effort.most {
            let Some(mut this) = path.take() else { break };
            run(race, bug, &mut summary, &mut |of| this.pick(of));
            count += 1;
            path = this.next();
        }
        let all = !race.sampled && path.is_none();
        if !all {
            let chance = Chance::new(1);
            for _ in 0..effort.sample {
                run(race, bug, &mut summary, &mut |of| usize::try_from(chance.below(of as u64)).unwrap_or(0));
                count += 1;
            }
        }
        summary.schedules += count;
        summary.by_race.insert(race.name, (count, all));
    }
    summary
}

fn run(race: &Race, bug: Option<Bug>, summary: &mut Summary, pick: &mut dyn FnMut(usize) -> usize) {
    let mut world = World::new(1, 3, Mode::Calm, bug);
    for endpoint in ENDPOINTS {
        world.register(endpoint);
    }
    let contenders = (race.set_up)(&mut world);
    let words = race.about.iter().map(|word| (*word).to_owned()).chain(["e#p".to_owned()]).collect();
    world.decider.set(Mode::About(words));
    let tasks: Vec<TaskId> = contenders.into_iter().map(|start| start(&mut world)).collect();
    let mut order = String::new();
    while tasks.iter().any(|task| world.running.contains_key(task)) {
        match world.executor.ready() {
            0 => match world.executor.next_timer() {
                Some(at) => world.executor.advance_to(at),
                None => break,
            },
            1 => world.executor.go(0),
            ready => {
                let picked = pick(ready);
                let task = world.executor.task_of(picked);
                order.push(tasks.iter().position(|t| *t == task).map_or('-', |i| char::from(b'a' + i as u8)));
                world.executor.go(picked);
            }
        }
        world.collect();
    }
    world.recover(&ENDPOINTS);
    for (cause, count) in world.judge().ambiguous {
        *summary.ambiguous.entry(cause).or_default() += count;
    }
    for violation in world.watch.violations() {
        summary.broken.push(format!(
            "{}, order {order}: {} {}: {}",
            race.name,
            violation.check.name(),
            violation.key,
            violation.why
        ));
    }
}
