//! The two plain cells: a counter that only rises, and a gauge that knows its peak and its limit.
//!
//! Used by every row of the table in `worker.rs`. One thread writes, any thread reads: so an addition is a
//! relaxed load and a relaxed store, never a locked read-modify-write instruction. Two writers would lose
//! counts (and nothing worse).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::table::{Metric, Reading, View};

/// A count that only rises. One writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at zero.
    pub const fn new() -> Self {
        Counter(AtomicU64::new(0))
    }

    /// Counts `amount` more; wraps after 2^64.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// What has been counted so far.
    #[inline]
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Raises the count to what somebody else has counted, such as the kernel.
    pub fn raise_to(&self, value: u64) {
        self.0.store(value.max(self.value()), Relaxed);
    }

    /// Replaces the value: for a part of a larger cell of this crate, never for a plain count.
    #[inline]
    pub(crate) fn store(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
}

impl Metric for Counter {
    type Reading = u64;

    fn read(&self) -> u64 {
        self.value()
    }
}

impl Reading for u64 {
    fn merge(&mut self, other: &Self) {
        *self = self.wrapping_add(*other);
    }

    fn view(&self) -> View<'_> {
        View::Count(*self)
    }
}

/// A value that rises and falls: current, peak and limit. One writer.
#[derive(Debug, Default)]
pub struct Gauge {
    current: Counter,
    peak: Counter,
    limit: Counter,
}

impl Gauge {
    /// A gauge at zero, without a limit.
    pub const fn new() -> Self {
        Gauge { current: Counter::new(), peak: Counter::new(), limit: Counter::new() }
    }

    /// Sets the current value and raises the peak where it is passed.
    #[inline]
    pub fn set(&self, value: u64) {
        self.current.store(value);
        if value > self.peak.value() {
            self.peak.store(value);
        }
    }

    /// Raises the current value.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.set(self.current.value().saturating_add(amount));
    }

    /// Lowers the current value, to zero at least.
    #[inline]
    pub fn sub(&self, amount: u64) {
        self.current.store(self.current.value().saturating_sub(amount));
    }

    /// The current value.
    #[inline]
    pub fn current(&self) -> u64 {
        self.current.value()
    }

    /// The highest value so far.
    #[inline]
    pub fn peak(&self) -> u64 {
        self.peak.value()
    }

    /// States the bound that the settings put on this worker's share; 0 says that there is none.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit);
    }
}

impl Metric for Gauge {
    type Reading = Level;

    fn read(&self) -> Level {
        Level { current: self.current.value(), peak: self.peak.value(), limit: self.limit.value() }
    }
}

/// A gauge as it was read.
///
/// Merging adds all three values up. The sum of the peaks is an upper bound of the common peak: the workers
/// need not have reached theirs at the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Level {
    /// The value at the time of reading.
    pub current: u64,
    /// The highest value until then.
    pub peak: u64,
    /// The bound, 0 where there is none.
    pub limit: u64,
}

impl Reading for Level {
    fn merge(&mut self, other: &Self) {
        self.current = self.current.saturating_add(other.current);
        self.peak = self.peak.saturating_add(other.peak);
        self.limit = self.limit.saturating_add(other.limit);
    }

    fn retire(&mut self) {
        *self = Level::default();
    }

    fn view(&self) -> View<'_> {
        View::Level(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauge_keeps_its_peak() {
        let gauge = Gauge::new();
        gauge.add(3);
        gauge.sub(2);
        gauge.add(1);
        gauge.set_limit(9);
        assert_eq!(gauge.read(), Level { current: 2, peak: 3, limit: 9 });
        gauge.sub(5);
        assert_eq!((gauge.current(), gauge.peak()), (0, 3));
    }

    #[test]
    fn a_reader_on_another_thread_sees_the_counts() {
        let counter = std::sync::Arc::new(Counter::new());
        let writer = counter.clone();
        std::thread::spawn(move || (0..1000).for_each(|_| writer.add(2))).join().expect("writer");
        assert_eq!(counter.value(), 2000);
    }
}
