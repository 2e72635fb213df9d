//! What goes wrong around the functions while they work: processes are killed and frozen, event sources and the reconcile
//! rule are switched off and on. Each works until it is told to stop, and leaves nothing frozen or switched off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::chance::Chance;
use crate::processes::{self, FunctionProcess, Signal};
use crate::stack::Stack;
use crate::switches::Switches;

/// How long the emulator waits for an answer of deliver meanwhile, in seconds: longer than the longest freeze.
pub const PATIENCE: i32 = 40;

/// What was done.
#[derive(Debug, Default)]
pub struct Done {
    pub kills: AtomicUsize,
    pub pauses: AtomicUsize,
    /// Those of the pauses that were longer than a lease.
    pub long_pauses: AtomicUsize,
    pub switched: AtomicUsize,
}

impl Done {
    pub fn as_json(&self) -> Value {
        let count = |of: &AtomicUsize| json!(of.load(Ordering::Relaxed));
        json!({
            "kills": count(&self.kills), "pauses": count(&self.pauses), "long_pauses": count(&self.long_pauses),
            "mappings_switched": count(&self.switched),
        })
    }
}

/// Runs everything until `stop` is set.
pub async fn run(stack: &Stack, switches: &Switches, seed: u64, stop: &Arc<AtomicBool>, done: &Arc<Done>) {
    let emulator = stack.emulator();
    let deliver = stack.function("deliver");
    tokio::join!(
        kill(emulator, Chance::of(seed, "kills"), stop, done),
        freeze(emulator, deliver, Chance::of(seed, "pauses"), stop, done),
        switch(stack, switches, Chance::of(seed, "switches"), stop, done),
        rule(stack, switches, stop),
    );
}

fn stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

async fn pause(chance: &mut Chance, from_ms: u64, to_ms: u64) {
    tokio::time::sleep(Duration::from_millis(chance.between(from_ms, to_ms))).await;
}

/// Kills a process of a function, one after the other.
async fn kill(emulator: u32, mut chance: Chance, stop: &AtomicBool, done: &Done) {
    while !stopped(stop) {
        pause(&mut chance, 100, 1_000).await;
        if chance.pick(&processes::all(emulator)).is_some_and(|process| process.send(Signal::Kill)) {
            done.kills.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Freezes a process of a function: for moments, and deliver now and then for longer than its lease of 12 s, or than the
/// visibility timeout of 20 s. The relay is frozen for moments only: the emulator calls it in the thread that polls the
/// queues, so everything would stand still.
async fn freeze(emulator: u32, deliver: String, mut chance: Chance, stop: &Arc<AtomicBool>, done: &Arc<Done>) {
    let mut frozen = Vec::new();
    while !stopped(stop) {
        pause(&mut chance, 300, 2_500).await;
        let all = processes::all(emulator);
        let Some(process) = chance.pick(&all).cloned() else { continue };
        let ms = match chance.below(12) {
            0 | 1 if process.function == deliver => chance.between(12_500, 16_000),
            2 if process.function == deliver => chance.between(20_500, 23_000),
            _ => chance.between(100, 1_500),
        };
        if process.send(Signal::Freeze) {
            done.pauses.fetch_add(1, Ordering::Relaxed);
            done.long_pauses.fetch_add(usize::from(ms > 12_000), Ordering::Relaxed);
            frozen.push(tokio::spawn(thaw(process, ms, Arc::clone(stop))));
        }
    }
    for one in frozen {
        one.await.expect("thawed");
    }
}

async fn thaw(process: FunctionProcess, ms: u64, stop: Arc<AtomicBool>) {
    for _ in 0..ms / 50 {
        if stopped(&stop) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // It may have been killed meanwhile.
    process.send(Signal::Thaw);
}

/// Switches an event source off for some seconds.
async fn switch(stack: &Stack, switches: &Switches, mut chance: Chance, stop: &AtomicBool, done: &Done) {
    while !stopped(stop) {
        pause(&mut chance, 2_000, 6_000).await;
        let mapping = chance.pick(&switches.mappings).expect("there are three");
        switches.mapping(stack, mapping, false).await;
        pause(&mut chance, 500, 4_000).await;
        switches.mapping(stack, mapping, true).await;
        done.switched.fetch_add(1, Ordering::Relaxed);
    }
}

/// The reconcile rule is off all the while, as an operator may leave it for a day.
async fn rule(stack: &Stack, switches: &Switches, stop: &AtomicBool) {
    switches.rule(stack, false).await;
    while !stopped(stop) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    switches.rule(stack, true).await;
}
