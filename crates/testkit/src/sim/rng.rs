//! The one source of chance in a simulated world.

/// A seeded generator of numbers (splitmix64): small, and the same on every machine for ever.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, which is not zero.
    pub(crate) const fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns a number from `least` to `greatest`.
    pub(crate) const fn between(&mut self, least: u64, greatest: u64) -> u64 {
        least + self.below(greatest - least + 1)
    }

    /// Returns true this many times in a thousand.
    pub(crate) const fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// Returns one index of a list with this many entries, `None` for an empty one.
    pub(crate) fn pick(&mut self, count: usize) -> Option<usize> {
        let count = u64::try_from(count).ok().filter(|count| *count > 0)?;
        usize::try_from(self.below(count)).ok()
    }
}
