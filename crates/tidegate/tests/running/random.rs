//! Choices that look random and are the same in every run.

/// Where they come from.
pub struct Random(pub fastrand::Rng);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.0.u64(..count) == 0
    }

    pub fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.usize(..of.len())]
    }
}
