//! Repeatable randomness: splitmix64.

/// A stream of numbers determined by its seed.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next number.
    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` up to and including `high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.number() % (high.saturating_sub(low) + 1)
    }

    /// True in `permille` of a thousand cases.
    pub(super) fn chance(&mut self, permille: u64) -> bool {
        self.number() % 1_000 < permille
    }

    /// One of the choices.
    pub(super) fn pick<T: Copy + Default>(&mut self, choices: &[T]) -> T {
        let index = usize::try_from(self.number() % (choices.len().max(1) as u64)).unwrap_or(0);
        choices.get(index).copied().unwrap_or_default()
    }
}
