//! Random numbers that a seed repeats: arrival gaps, the order of requests, the bootstrap.

/// A generator. Equal seeds give equal sequences.
#[derive(Debug, Clone)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    /// For this seed and stream: streams of one seed do not repeat each other.
    pub fn new(seed: u64, stream: u64) -> Self {
        Random(fastrand::Rng::with_seed(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03)))
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// In (0, 1], so that its logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        1.0 - self.0.f64()
    }

    /// In 0..`bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }

    /// Bytes that nothing compresses.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }

    /// Each order is as likely as the others.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        self.0.shuffle(items);
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
