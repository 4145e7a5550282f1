//! Random numbers that a seed repeats: arrival gaps, the order of requests, the bootstrap. SplitMix64
//! (Steele, Lea and Flood, 2014): eight bytes of state, and good enough for anything but secrets.

/// A generator. Equal seeds give equal sequences.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// For this seed and stream: streams of one seed do not repeat each other.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Random(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next();
        random
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In (0, 1], so that its logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// In 0..`bound`, which is not 0. The bias is below 2^-32 for every bound used here.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Fisher and Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_a_stream_differs() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(draw(7, 0), draw(7, 0));
        assert_ne!(draw(7, 0), draw(7, 1));
        assert_ne!(draw(7, 0), draw(8, 0));
    }

    #[test]
    fn units_spread_and_shuffles_keep_all() {
        let mut random = Random::new(1, 1);
        let mean = (0..10_000).map(|_| random.unit()).sum::<f64>() / 10_000.0;
        assert!((0.49..0.51).contains(&mean), "{mean}");
        let mut items: Vec<u32> = (0..100).collect();
        random.shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
