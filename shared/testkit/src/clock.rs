//! Virtual time and repeatable chance.

use std::cell::Cell;
use std::rc::Rc;

use domain::ports::Clock;
use domain::time::Millis;

/// A clock that moves only when it is told to, or when somebody waits on it. Clones share their time.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    now: Rc<Cell<i64>>,
    seed: Rc<Cell<u64>>,
}

impl VirtualClock {
    /// A clock that stands at `now`; `seed` makes its random numbers repeatable.
    pub fn new(now: Millis, seed: u64) -> Self {
        Self { now: Rc::new(Cell::new(now.0)), seed: Rc::new(Cell::new(seed)) }
    }

    /// Moves on by `ms` milliseconds.
    pub fn advance(&self, ms: i64) {
        self.now.set(self.now.get() + ms);
    }

    /// SplitMix64.
    fn draw(&self) -> u64 {
        self.seed.set(self.seed.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut z = self.seed.get();
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Millis {
        Millis(self.now.get())
    }

    fn random(&self) -> f64 {
        f64::from(self.nonce()) / (f64::from(u32::MAX) + 1.0)
    }

    fn nonce(&self) -> u32 {
        u32::try_from(self.draw() >> 32).expect("32 bits are left")
    }

    async fn sleep_until(&self, until: Millis) {
        self.now.set(self.now.get().max(until.0));
    }
}
