//! Who decides what happens to calls: nobody, one call that is chosen, or chance. Whatever is decided is noted in the ledger.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use testkit::executor::Executor;
use testkit::hostile::{Call, Fate, Fates};

use crate::chance::Chance;
use crate::ledger::Ledger;

/// How often something happens to a call, in a million.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// By fault, in the order of [`Fate::FAULTS`].
    pub faults: [u32; 7],
    /// A call takes some milliseconds.
    pub slow: u32,
    /// A call takes some seconds.
    pub very_slow: u32,
}

/// What decides.
#[derive(Clone, Debug)]
pub enum Mode {
    /// All calls work, and each is a point at which others may go first.
    Calm,
    /// The calls of these numbers, counted from 0, have these fates.
    Chosen(Vec<(u64, Fate)>),
    /// Chance.
    Storm(Rates),
    /// All calls work; only those that can matter to one delivery are points: these words are what it is about, or its name.
    About(Vec<String>),
}

/// The decider. Clones share its mode.
#[derive(Clone)]
pub struct Decider {
    inner: Rc<Inner>,
}

struct Inner {
    executor: Executor,
    ledger: Ledger,
    chance: Chance,
    mode: RefCell<Mode>,
    calls: Cell<u64>,
    /// So many of a hundred calls of the tables fail.
    down: Cell<u8>,
    /// The next call of that name takes so many milliseconds.
    slow: Cell<Option<(&'static str, i64)>>,
}

impl Decider {
    /// Decides by `mode`.
    pub fn new(executor: Executor, ledger: Ledger, chance: Chance, mode: Mode) -> Self {
        let mode = RefCell::new(mode);
        Self {
            inner: Rc::new(Inner {
                executor,
                ledger,
                chance,
                mode,
                calls: Cell::new(0),
                down: Cell::new(0),
                slow: Cell::new(None),
            }),
        }
    }

    /// Decides by another mode from now on.
    pub fn set(&self, mode: Mode) {
        *self.inner.mode.borrow_mut() = mode;
    }

    /// From now on the tables fail so many of a hundred calls, beside what happens to them anyway.
    pub fn set_down(&self, percent: u8) {
        self.inner.down.set(percent);
    }

    /// The next call of that name takes so many milliseconds until it takes effect.
    pub fn slow_down(&self, name: &'static str, ms: i64) {
        self.inner.slow.set(Some((name, ms)));
    }

    /// How many calls were made.
    pub fn calls(&self) -> u64 {
        self.inner.calls.get()
    }
}

impl Fates for Decider {
    fn of(&self, call: &Call<'_>) -> Fate {
        let inner = &self.inner;
        let number = inner.calls.get();
        inner.calls.set(number + 1);
        let fate = match &*inner.mode.borrow() {
            Mode::Calm | Mode::About(_) => Fate::Pass,
            Mode::Chosen(chosen) => chosen.iter().find(|(at, _)| *at == number).map_or(Fate::Pass, |(_, fate)| *fate),
            Mode::Storm(_)
                if inner.down.get() > 0
                    && inner.chance.below(100) < u64::from(inner.down.get())
                    && !matches!(call.name, "post" | "ack" | "relay" | "receive" | "delete") =>
            {
                Fate::FailBefore
            }
            Mode::Storm(rates) => {
                let drawn = inner.chance.below(1_000_000);
                let mut bound = 0;
                Fate::FAULTS
                    .iter()
                    .zip(rates.faults)
                    .find_map(|(fate, rate)| {
                        bound += u64::from(rate);
                        (drawn < bound).then_some(*fate)
                    })
                    .unwrap_or(Fate::Pass)
            }
        };
        // A read that is repeated is a read.
        let fate = if fate == Fate::Repeat && !call.writes { Fate::Pass } else { fate };
        if fate != Fate::Pass {
            inner.ledger.fault(fate, call.name, call.about, inner.executor.now());
        }
        fate
    }

    fn delays(&self, call: &Call<'_>) -> Option<(i64, i64)> {
        let inner = &self.inner;
        if let Some((_, ms)) = inner.slow.get().filter(|(name, _)| *name == call.name) {
            inner.slow.set(None);
            return Some((ms, 0));
        }
        match &*inner.mode.borrow() {
            Mode::Calm | Mode::Chosen(_) => Some((0, 0)),
            Mode::About(words) => {
                let about = call.about.to_string();
                words.iter().any(|word| about == *word || call.name == word).then_some((0, 0))
            }
            Mode::Storm(rates) => {
                let delay = || {
                    if inner.chance.per_million(rates.very_slow) {
                        inner.ledger.slow(call.name, call.about, inner.executor.now());
                        inner.chance.between(500, 44_000)
                    } else if inner.chance.per_million(rates.slow) {
                        inner.chance.between(1, 40)
                    } else {
                        0
                    }
                };
                Some((delay(), delay()))
            }
        }
    }
}
