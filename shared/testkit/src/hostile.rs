//! Ports that misbehave as networks do: a call fails before or after it took effect, takes effect twice because somebody
//! underneath repeated it, hangs, or its process dies on it. What happens to which call is decided by [`Fates`]; every call
//! is a point at which the executor may let somebody else go first.

use std::future::Future;
use std::rc::Rc;

use domain::ports::StoreError;

use crate::executor::Executor;

mod payloads;
mod plans;
mod table;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// It works.
    Pass,
    /// It fails, and nothing happened.
    FailBefore,
    /// It fails, and it took effect.
    FailAfter,
    /// It took effect, its answer was lost, and the client repeated it underneath its caller.
    Repeat,
    /// It never answers, and nothing happened.
    HangBefore,
    /// It never answers, and it took effect.
    HangAfter,
    /// The process dies before it took effect.
    DieBefore,
    /// The process dies after it took effect.
    DieAfter,
}

impl Fate {
    /// All of them but the harmless one.
    pub const FAULTS: [Self; 7] = [
        Self::FailBefore,
        Self::FailAfter,
        Self::Repeat,
        Self::HangBefore,
        Self::HangAfter,
        Self::DieBefore,
        Self::DieAfter,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::FailBefore => "fail_before",
            Self::FailAfter => "fail_after",
            Self::Repeat => "repeat",
            Self::HangBefore => "hang_before",
            Self::HangAfter => "hang_after",
            Self::DieBefore => "die_before",
            Self::DieAfter => "die_after",
        }
    }
}

/// A call of a port.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Its name.
    pub name: &'static str,
    /// What it is about: the key of a delivery or an item, a shard, a queue; may be empty.
    pub about: &'a dyn std::fmt::Display,
    /// It changes something.
    pub writes: bool,
}

/// Decides what happens to calls.
pub trait Fates {
    /// What happens to this one.
    fn of(&self, call: &Call<'_>) -> Fate;

    /// How long it takes until it takes effect, and from then to its answer, in milliseconds. `None`: it is no point at
    /// which others may go first.
    fn delays(&self, call: &Call<'_>) -> Option<(i64, i64)>;
}

/// Lets calls through, or not.
#[derive(Clone)]
pub struct Gate {
    /// Who runs the tasks.
    pub executor: Executor,
    /// Who decides.
    pub fates: Rc<dyn Fates>,
}

impl Gate {
    /// Makes a call, as far as its fate lets it.
    pub async fn call<T, F>(&self, call: Call<'_>, run: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let delays = self.fates.delays(&call);
        if let Some((before, _)) = delays {
            self.executor.after(before).await;
        }
        let after = delays.map_or(0, |(_, after)| after);
        let answer = match self.fates.of(&call) {
            Fate::Pass => run().await,
            Fate::FailBefore => Err(StoreError::Unavailable(format!("{}: not carried out", call.name))),
            Fate::FailAfter => {
                run().await?;
                Err(StoreError::Unavailable(format!("{}: no answer", call.name)))
            }
            Fate::Repeat => {
                run().await?;
                // Others may go between the two.
                self.executor.after(after).await;
                run().await
            }
            Fate::HangBefore => std::future::pending().await,
            Fate::HangAfter => {
                run().await?;
                std::future::pending().await
            }
            Fate::DieBefore => {
                self.executor.die().await;
                run().await
            }
            Fate::DieAfter => {
                let answer = run().await;
                self.executor.die().await;
                answer
            }
        };
        if after > 0 {
            self.executor.after(after).await;
        }
        answer
    }
}

/// A port behind a gate.
#[derive(Clone)]
pub struct Hostile<T> {
    /// The port.
    pub inner: T,
    /// The gate.
    pub gate: Gate,
}

impl<T> Hostile<T> {
    /// Puts a port behind a gate.
    pub const fn new(inner: T, gate: Gate) -> Self {
        Self { inner, gate }
    }

    pub(crate) async fn read<R, F>(
        &self,
        name: &'static str,
        about: &dyn std::fmt::Display,
        run: impl Fn() -> F,
    ) -> Result<R, StoreError>
    where
        F: Future<Output = Result<R, StoreError>>,
    {
        self.gate.call(Call { name, about, writes: false }, run).await
    }

    pub(crate) async fn write<R, F>(
        &self,
        name: &'static str,
        about: &dyn std::fmt::Display,
        run: impl Fn() -> F,
    ) -> Result<R, StoreError>
    where
        F: Future<Output = Result<R, StoreError>>,
    {
        self.gate.call(Call { name, about, writes: true }, run).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::VirtualClock;
    use crate::conformance;
    use crate::executor::End;
    use crate::memory::{MemoryDeliveries, MemoryPayloads};
    use domain::time::Millis;

    /// Every write is repeated underneath. A rejection counts how often it was written, so it may count too much.
    struct EveryWriteTwice;

    impl Fates for EveryWriteTwice {
        fn of(&self, call: &Call<'_>) -> Fate {
            if call.writes && call.name != "reject" { Fate::Repeat } else { Fate::Pass }
        }

        fn delays(&self, _: &Call<'_>) -> Option<(i64, i64)> {
            Some((1, 1))
        }
    }

    #[test]
    fn wh_o_28_tables_conform_also_when_every_write_is_repeated_underneath() {
        let executor = Executor::new(VirtualClock::new(Millis(0), 1));
        let gate = Gate { executor: executor.clone(), fates: Rc::new(EveryWriteTwice) };
        executor.spawn(async move {
            let table = Hostile::new(MemoryDeliveries::default(), gate.clone());
            conformance::deliveries(&table, "t").await;
            conformance::endpoint_lists(&table, "t").await;
            conformance::endpoint_states(&table, "t").await;
            conformance::kept_answers(&table, "t").await;
            conformance::payloads(&Hostile::new(MemoryPayloads::default(), gate), "t").await;
        });
        executor.run(|_| 0);
        assert_eq!(executor.ended(), [(0, End::Done)]);
    }
}
