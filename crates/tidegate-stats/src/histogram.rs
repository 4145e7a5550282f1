//! Histograms of durations: what a worker writes, and what is read of it.
//!
//! The worker records on the hot path: a multiplication, a table, a comparison and three additions; no search, no
//! allocation. The buckets are those of `exponential.rs`: what is told of a recorded duration is at most 4.43 % above it
//! and never below it, between a microsecond and three days. A [`Distribution`] may also come from the coarser
//! histograms of routes, which fill every second bucket (at most 9.05 % above).

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::cell::Counter;
use crate::exponential::{BUCKETS, LAST, PER_OCTAVE, bucket_of, end_in_seconds, end_of, ticks};
use crate::table::{Metric, Reading, View};

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

/// A duration and its bucket, found once for all histograms that it goes into.
#[derive(Debug, Clone, Copy)]
pub struct Elapsed {
    pub(crate) nanos: u64,
    pub(crate) ticks: u64,
    pub(crate) bucket: usize,
}

impl Elapsed {
    /// Of so many nanoseconds.
    #[inline]
    pub fn nanos(nanos: u64) -> Elapsed {
        let ticks = ticks(nanos);
        Elapsed { nanos, ticks, bucket: bucket_of(ticks) }
    }

    /// As nanoseconds.
    pub fn as_nanos(&self) -> u64 {
        self.nanos
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
        self.record_elapsed(Elapsed::nanos(nanos));
    }

    /// Counts one duration whose bucket is known.
    #[inline]
    pub fn record_elapsed(&self, Elapsed { nanos, bucket, .. }: Elapsed) {
        if let Some(bucket) = self.buckets.get(bucket) {
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
        let counts = self.buckets.iter().map(Counter::value);
        let sum = (u128::from(self.sum_units.value()) << SUM_SHIFT) + u128::from(self.sum_remainder.value());
        Distribution::of((0..).zip(counts), sum)
    }
}

/// A histogram as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Sent", into = "Sent")]
pub struct Distribution {
    /// The buckets that hold something, in order, and how much.
    buckets: Vec<(u16, u64)>,
    /// Nanoseconds.
    sum: u128,
}

/// How a distribution travels: 128 bits are more than JSON has.
#[derive(Serialize, Deserialize)]
struct Sent {
    #[serde(default)]
    exponential: Vec<(u16, u64)>,
    /// As versions before had them: sixteen to each power of two of nanoseconds.
    #[serde(default, skip_serializing)]
    buckets: Vec<(u64, u64)>,
    /// Upper and lower half.
    sum: (u64, u64),
}

impl From<Distribution> for Sent {
    fn from(from: Distribution) -> Sent {
        let sum = ((from.sum >> 64) as u64, from.sum as u64);
        Sent { exponential: from.buckets, buckets: Vec::new(), sum }
    }
}

impl From<Sent> for Distribution {
    fn from(from: Sent) -> Distribution {
        let sum = (u128::from(from.sum.0) << 64) | u128::from(from.sum.1);
        // Nobody relies on the order of what comes from elsewhere.
        let mut distribution = Distribution { buckets: Vec::new(), sum };
        let former = from.buckets.into_iter().map(|(bucket, count)| (former(bucket) as u16, count));
        for (bucket, count) in from.exponential.into_iter().chain(former) {
            distribution.merge(&Distribution::of([(bucket, count)], 0));
        }
        distribution
    }
}

/// The bucket that has the end of one of a version before: a server that is upgraded goes on with what it has counted.
fn former(bucket: u64) -> usize {
    let end = match bucket >> 4 {
        0 => bucket,
        octave @ 1..=59 => ((17 + (bucket & 15)) << (octave - 1)) - 1,
        _ => u64::MAX,
    };
    bucket_of(ticks(end))
}

impl Distribution {
    /// Of these buckets, in order.
    pub(crate) fn of(buckets: impl IntoIterator<Item = (u16, u64)>, sum: u128) -> Distribution {
        let holds = |(bucket, count): &(u16, u64)| *count != 0 && usize::from(*bucket) <= LAST;
        Distribution { buckets: buckets.into_iter().filter(holds).collect(), sum }
    }

    /// What was recorded after `before` was read of the same histogram. What it has less of counts as nothing.
    pub fn since(&self, before: &Distribution) -> Distribution {
        let mut known = before.buckets.iter().peekable();
        let more = self.buckets.iter().map(|(bucket, count)| {
            while known.next_if(|(other, _)| other < bucket).is_some() {}
            let before = known.next_if(|(other, _)| other == bucket).map_or(0, |(_, before)| *before);
            (*bucket, count.saturating_sub(before))
        });
        Distribution::of(more, self.sum.saturating_sub(before.sum))
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum: u64, (_, count)| sum.wrapping_add(*count))
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

    /// The duration that a share of `quantile` (0 to 1) of the recorded ones did not exceed: the upper end of its bucket,
    /// so a little more than the true value and never less. Zero when nothing was recorded.
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

    /// How many durations were at most 2^`power` seconds long; exact. `power` is -20 to 18.
    pub fn count_up_to(&self, power: i32) -> u64 {
        let end = (power + 20) * PER_OCTAVE as i32;
        let up_to = self.buckets.iter().take_while(|(bucket, _)| i32::from(*bucket) <= end);
        up_to.map(|(_, count)| count).sum()
    }

    /// The bound of [`Distribution::count_up_to`], seconds.
    pub(crate) fn bound(power: i32) -> f64 {
        end_in_seconds((power + 20).max(0) as usize * PER_OCTAVE)
    }

    /// The same buckets by their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.buckets.iter().map(|(bucket, count)| (usize::from(*bucket), *count))
    }

    /// The buckets that hold something, shortest first: the longest duration of the bucket in nanoseconds,
    /// and how many it holds.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets.iter().map(|(bucket, count)| (end_of(usize::from(*bucket)), *count))
    }
}

impl Reading for Distribution {
    fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.buckets {
            match self.buckets.binary_search_by_key(bucket, |(mine, _)| *mine) {
                Ok(at) => self.buckets[at].1 = self.buckets[at].1.wrapping_add(*count),
                Err(at) => self.buckets.insert(at, (*bucket, *count)),
            }
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }

    fn view(&self) -> View<'_> {
        View::Distribution(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_one_answers_zero() {
        let empty = Distribution::default();
        assert_eq!((empty.count(), empty.quantile(0.5), empty.mean()), (0, Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn what_was_recorded_between_two_readings() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_secs(1));
        let earlier = histogram.read();
        histogram.record(Duration::from_secs(1));
        histogram.record(Duration::from_millis(1));
        let since = histogram.read().since(&earlier);
        assert_eq!((since.count(), since.sum_nanos()), (2, 1_001_000_000));
        assert_eq!(
            (histogram.read().since(&Distribution::default()).count(), earlier.since(&since).count()),
            (3, 0)
        );
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
            let (low, high) = (Duration::from_micros(micros), Duration::from_nanos(micros * 1045));
            assert!(told >= low && told <= high, "{quantile}: {told:?} for {micros} us");
        }
    }

    #[test]
    fn powers_of_two_are_told_exactly() {
        let histogram = Histogram::default();
        for nanos in [1, 62_500_000, 62_500_001, 1_000_000_000, 1_000_000_001] {
            histogram.record_nanos(nanos);
        }
        let read = histogram.read();
        assert_eq!([-20, -5, -4, -3, 0, 1].map(|power| read.count_up_to(power)), [1, 1, 2, 3, 4, 5]);
        assert_eq!(Distribution::bound(-4), 0.0625);
    }

    #[test]
    fn what_comes_from_elsewhere_may_be_anything() {
        for (sent, count) in [
            (r#"{"sum":[0,5]}"#, 0),
            (r#"{"exponential":[[3,1],[1,2],[3,4],[65535,9]],"sum":[0,5]}"#, 7),
            (r#"{"buckets":[[3,1],[320,5],[18446744073709551615,1]],"sum":[0,5]}"#, 7),
        ] {
            let read: Distribution = serde_json::from_str(sent).unwrap();
            assert_eq!(read.count(), count, "{sent}");
            let again: Distribution = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
            assert_eq!(again, read);
        }
    }

    /// A second was in bucket 430 of a version before, which ended at 1.006 s.
    #[test]
    fn a_second_of_a_version_before() {
        let read: Distribution = serde_json::from_str(r#"{"buckets":[[430,2]],"sum":[0,5]}"#).unwrap();
        let told = read.quantile(0.5);
        assert!(told > Duration::from_secs(1) && told < Duration::from_millis(1060), "{told:?}");
    }

    proptest! {
        #[test]
        fn what_came_since_is_what_was_recorded_since(
            before in proptest::collection::vec(any::<u64>(), 0..40),
            after in proptest::collection::vec(any::<u64>(), 0..40),
        ) {
            let (all, later) = (Histogram::default(), Histogram::default());
            before.iter().for_each(|nanos| all.record_nanos(*nanos));
            let then = all.read();
            after.iter().for_each(|nanos| { all.record_nanos(*nanos); later.record_nanos(*nanos) });
            prop_assert_eq!(all.read().since(&then), later.read());
            prop_assert!(then.since(&all.read()).is_empty(), "what went back is not recorded");
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
