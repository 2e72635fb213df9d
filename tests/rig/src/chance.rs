//! Chance that can be repeated: the same seed gives the same plan. What real processes make of it differs all the same.

/// A sequence of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A sequence of its own for a purpose, so that one more draw here changes nothing there.
    pub fn of(seed: u64, purpose: &str) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in purpose.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(hash)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }

    /// A number in a range.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True so many times in a thousand.
    pub fn per_mille(&mut self, share: u64) -> bool {
        self.below(1_000) < share
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.below(from.len() as u64) as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_plan_and_each_purpose_its_own() {
        let first = |seed, purpose| Chance::of(seed, purpose).draw();
        assert_eq!(first(1, "load"), first(1, "load"));
        assert_ne!(first(1, "load"), first(1, "kills"));
        assert_ne!(first(1, "load"), first(2, "load"));
    }

    #[test]
    fn shares_come_out_about_as_asked_for() {
        let mut chance = Chance::new(7);
        let hits = (0..10_000).filter(|_| chance.per_mille(100)).count();
        assert!((800..1_200).contains(&hits), "{hits}");
    }
}
