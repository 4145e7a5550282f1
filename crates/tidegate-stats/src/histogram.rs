//! A log-linear histogram of durations: sixteen buckets to each power of two of nanoseconds.
//!
//! The worker records on the hot path: two shifts and three additions, no search, no allocation. Below
//! 16 ns the buckets are exact; above, a bucket is a sixteenth of its power of two wide, so that what is told
//! of a recorded value is at most 6.25 % above it and never below it. The layout is that of HdrHistogram with
//! one and a half significant digits, without its bounds: all of `u64` fits.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::cell::Counter;
use crate::table::{Metric, Reading, View};

/// Buckets: 16 exact ones, then 16 for each power of two from 2^4 to 2^63.
const BUCKETS: usize = 16 + 60 * 16;

/// `sum` is kept in units of 2^10 ns and a remainder: nanoseconds alone would wrap within weeks when ten
/// thousand slow downloads run at once.
const SUM_SHIFT: u32 = 10;

/// Durations, counted by size. One writer.
#[derive(Debug)]
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    sum_units: Counter,
    sum_remainder: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: [const { Counter::new() }; BUCKETS],
            sum_units: Counter::new(),
            sum_remainder: Counter::new(),
        }
    }
}

impl Histogram {
    /// Counts one duration. What is longer than 584 years is counted as that.
    #[inline]
    pub fn record(&self, duration: Duration) {
        self.record_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts one duration given in nanoseconds.
    #[inline]
    pub fn record_nanos(&self, nanos: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(nanos)) {
            bucket.add(1);
        }
        let remainder = self.sum_remainder.value() + (nanos & ((1 << SUM_SHIFT) - 1));
        self.sum_units.add((nanos >> SUM_SHIFT) + (remainder >> SUM_SHIFT));
        self.sum_remainder.store(remainder & ((1 << SUM_SHIFT) - 1));
    }
}

impl Metric for Histogram {
    type Reading = Distribution;

    fn read(&self) -> Distribution {
        let buckets: Box<[u64]> = self.buckets.iter().map(Counter::value).collect();
        let sum = (u128::from(self.sum_units.value()) << SUM_SHIFT) + u128::from(self.sum_remainder.value());
        Distribution { buckets, sum }
    }
}

/// A histogram as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Sparse", into = "Sparse")]
pub struct Distribution {
    buckets: Box<[u64]>,
    sum: u128,
}

/// How a distribution travels: most buckets are empty, and 128 bits are more than JSON has.
#[derive(Serialize, Deserialize)]
struct Sparse {
    /// Index and count of the buckets that hold something.
    buckets: Vec<(usize, u64)>,
    /// Upper and lower half.
    sum: (u64, u64),
}

impl From<Distribution> for Sparse {
    fn from(from: Distribution) -> Sparse {
        let buckets = from.buckets.iter().copied().enumerate().filter(|(_, count)| *count != 0).collect();
        Sparse { buckets, sum: ((from.sum >> 64) as u64, from.sum as u64) }
    }
}

impl From<Sparse> for Distribution {
    fn from(from: Sparse) -> Distribution {
        let mut distribution = Distribution::default();
        for (index, count) in from.buckets {
            if let Some(bucket) = distribution.buckets.get_mut(index) {
                *bucket = count;
            }
        }
        distribution.sum = (u128::from(from.sum.0) << 64) | u128::from(from.sum.1);
        distribution
    }
}

impl Default for Distribution {
    fn default() -> Self {
        Distribution { buckets: vec![0; BUCKETS].into_boxed_slice(), sum: 0 }
    }
}

impl Distribution {
    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum: u64, count| sum.wrapping_add(*count))
    }

    /// All durations together, nanoseconds; exact.
    pub fn sum_nanos(&self) -> u128 {
        self.sum
    }

    /// The mean; zero when nothing was recorded.
    pub fn mean(&self) -> Duration {
        match self.sum.checked_div(u128::from(self.count())) {
            Some(mean) => Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)),
            None => Duration::ZERO,
        }
    }

    /// The duration that a share of `quantile` (0 to 1) of the recorded ones did not exceed: the upper end of
    /// its bucket, so up to 6.25 % more than the true value and never less. Zero when nothing was recorded.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let count = self.count();
        let rank = ((count as f64 * quantile.clamp(0.0, 1.0)).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0u64;
        for (nanos, bucket) in self.buckets() {
            seen = seen.wrapping_add(bucket);
            if seen >= rank {
                return Duration::from_nanos(nanos);
            }
        }
        Duration::ZERO
    }

    /// How many durations were at most `nanos` long. A bucket that `nanos` cuts through is left out.
    pub fn count_up_to(&self, nanos: u64) -> u64 {
        self.buckets().take_while(|(upper, _)| *upper <= nanos).map(|(_, count)| count).sum()
    }

    /// The buckets that hold something, shortest first: the longest duration of the bucket in nanoseconds,
    /// and how many it holds.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets.iter().enumerate().filter(|(_, count)| **count != 0).map(|(i, n)| (upper_end(i), *n))
    }
}

impl Reading for Distribution {
    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.wrapping_add(*theirs);
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }

    fn view(&self) -> View<'_> {
        View::Distribution(self)
    }
}

/// The bucket of a value. The four bits below the highest one choose the place within its power of two.
#[inline]
fn bucket_of(nanos: u64) -> usize {
    if nanos < 16 {
        return nanos as usize;
    }
    let exponent = 63 - nanos.leading_zeros();
    (((exponent - 3) << 4) as usize) + ((nanos >> (exponent - 4)) & 15) as usize
}

/// The largest value that falls into a bucket.
fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 16 {
        return bucket;
    }
    let shift = (bucket >> 4) - 1;
    let lower = (16 + (bucket & 15)) << shift;
    lower + ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_touch_without_gap_or_overlap() {
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(upper_end(bucket)), bucket);
            if bucket + 1 < BUCKETS {
                assert_eq!(bucket_of(upper_end(bucket) + 1), bucket + 1);
            }
        }
        assert_eq!(upper_end(BUCKETS - 1), u64::MAX);
    }

    #[test]
    fn an_empty_one_answers_zero() {
        let empty = Distribution::default();
        assert_eq!((empty.count(), empty.quantile(0.5), empty.mean()), (0, Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn quantiles_of_a_known_series() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|i| histogram.record(Duration::from_micros(i)));
        let read = histogram.read();
        assert_eq!(read.count(), 1000);
        assert_eq!(read.sum_nanos(), 500_500_000);
        for (quantile, micros) in [(0.0, 1), (0.5, 500), (0.9, 900), (0.99, 990), (1.0, 1000)] {
            let told = read.quantile(quantile);
            let (low, high) = (Duration::from_micros(micros), Duration::from_nanos(micros * 1063));
            assert!(told >= low && told <= high, "{quantile}: {told:?} for {micros} us");
        }
    }

    proptest! {
        #[test]
        fn error_stays_below_a_sixteenth(nanos: u64) {
            let told = upper_end(bucket_of(nanos));
            prop_assert!(told >= nanos);
            prop_assert!(u128::from(told - nanos) * 16 <= u128::from(nanos));
        }

        #[test]
        fn merging_is_recording_together(
            left in proptest::collection::vec(any::<u64>(), 0..40),
            right in proptest::collection::vec(any::<u64>(), 0..40),
        ) {
            let (one, two, both) = (Histogram::default(), Histogram::default(), Histogram::default());
            left.iter().for_each(|n| { one.record_nanos(*n); both.record_nanos(*n) });
            right.iter().for_each(|n| { two.record_nanos(*n); both.record_nanos(*n) });
            let mut sum = one.read();
            sum.merge(&two.read());
            prop_assert_eq!(&sum, &both.read());
            prop_assert_eq!(sum.sum_nanos(), left.iter().chain(&right).map(|n| u128::from(*n)).sum::<u128>());
        }
    }
}
