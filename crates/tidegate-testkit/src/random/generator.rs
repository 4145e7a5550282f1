//! The source of all that is random in a run: one seed gives the same settings, files and clients every time.
//!
//! SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). Each part of a run gets
//! a generator of its own by [`Generator::fork`], so that one more draw in one part changes nothing in the others.

use std::time::Duration;

/// A generator of random numbers.
#[derive(Debug, Clone)]
pub(super) struct Generator {
    state: u64,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Generator { state: mix(seed ^ 0x5851_f42d_4c95_7f2d) }
    }

    /// Another generator, for the part that `label` numbers.
    pub(super) fn fork(&self, label: u64) -> Generator {
        Generator { state: mix(self.state ^ mix(label.wrapping_add(0x2545_f491_4f6c_dd1d))) }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number from 0 to `bound` - 1; 0 where `bound` is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.number().checked_rem(bound).unwrap_or(0)
    }

    /// A number of the range, its end included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    /// One of the values, each as often as its weight says.
    pub(super) fn weighted<T: Clone>(&mut self, of: &[(u64, T)]) -> T {
        let mut point = self.below(of.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in of {
            if point < *weight {
                return value.clone();
            }
            point -= weight;
        }
        of[0].1.clone()
    }

    /// A size up to `most`: every order of magnitude is as likely as the others, and bounds are met often.
    pub(super) fn size(&mut self, most: u64) -> u64 {
        let bits = u64::from(64 - most.leading_zeros());
        let upper = 1u64 << self.between(0, bits).min(63);
        let size = match self.below(8) {
            0 => upper,
            1 => upper - 1,
            2 => 0,
            _ => self.below(upper),
        };
        size.min(most)
    }

    pub(super) fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_forks_are_independent() {
        let (mut one, mut same) = (Generator::new(7), Generator::new(7));
        let fork = one.fork(3).number();
        assert_eq!(one.number(), same.number());
        assert_eq!(same.fork(3).number(), one.fork(3).number());
        assert_ne!(fork, one.fork(3).number(), "a fork depends on what was drawn before it");
        assert_ne!(one.fork(1).number(), one.fork(2).number());
    }

    #[test]
    fn sizes_stay_below_their_bound() {
        let mut random = Generator::new(1);
        for most in [0, 1, 100, 1 << 20] {
            assert!((0..1000).all(|_| random.size(most) <= most));
        }
    }
}
