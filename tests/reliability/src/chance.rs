//! Repeatable chance.

use std::cell::Cell;
use std::rc::Rc;

/// A source of numbers that are the same for the same seed (SplitMix64). Clones draw from the same source.
#[derive(Clone, Debug)]
pub struct Chance(Rc<Cell<u64>>);

impl Chance {
    /// A source.
    pub fn new(seed: u64) -> Self {
        Self(Rc::new(Cell::new(seed)))
    }

    /// 64 bits.
    pub fn bits(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut z = self.0.get();
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is at least 1.
    pub fn below(&self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }

    /// A number in a range of milliseconds.
    pub fn between(&self, from: i64, to: i64) -> i64 {
        from + i64::try_from(self.below((to - from).max(0).unsigned_abs() + 1)).unwrap_or(0)
    }

    /// True so many times in a million.
    pub fn per_million(&self, n: u32) -> bool {
        n > 0 && self.below(1_000_000) < u64::from(n)
    }

    /// One of some.
    pub fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap_or(0)]
    }
}
