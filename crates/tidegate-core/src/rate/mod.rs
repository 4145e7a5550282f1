//! Rates: how often something may happen for a key that clients choose, a client's address for one.
//!
//! [`Rate`] is the arithmetic, by the generic cell rate algorithm (virtual scheduling, ITU-T I.371 annex A): of a key,
//! only the time is kept at which it would have caught up. [`Buckets`] holds those times for very many keys in memory of
//! fixed size, which all workers of all processes share.

mod ban_gate;
mod bans;
mod buckets;
mod counts;
mod gate;
mod holds;
mod nodes;
mod pace;
mod queue;
mod shared_bans;
mod store;
mod total;

pub use ban_gate::BanGate;
pub use bans::{Bans, Client};
pub use buckets::Buckets;
pub use counts::{Counts, Place};
pub use gate::LimitGate;
pub(crate) use holds::{ConnectionHolds, Held, Holds};
pub use nodes::{News, NodeState, Nodes, Report, StoreHealth, TakeReports};
pub use pace::BandwidthGate;
pub(crate) use pace::Pace;
pub use queue::{LimitQueue, QueueFigures};
pub use shared_bans::BanEvent;
pub use store::{Identity, Kind, RateStore, Table, TablePlace, attach};
pub use total::Total;

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;
use tidegate_config::settings::RequestRate;

/// How often something may happen: steadily, and at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds between two that come steadily.
    interval: u64,
    /// Nanoseconds that one may be ahead: those of a burst.
    ahead: u64,
}

/// What a rate says of one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// It may happen.
    Within {
        /// How many more may happen at once.
        remaining: u64,
        /// Until as many may happen at once as ever.
        reset: Duration,
    },
    /// It may not.
    Beyond {
        /// Until it may.
        retry_after: Duration,
    },
}

impl Rate {
    /// The longest that a key is remembered after its last one: what is slower is taken for this slow.
    pub const LONGEST: Duration = RequestRate::LONGEST;

    /// `count` in each `period`, of which `burst` may come at once.
    pub fn new(count: NonZeroU64, period: Duration, burst: NonZeroU64) -> Rate {
        let longest = nanoseconds(Self::LONGEST);
        let interval = (nanoseconds(period) / count).clamp(1, longest);
        Rate { interval, ahead: interval.saturating_mul(burst.get()).min(longest).max(interval) }
    }

    /// The part of one of so many.
    fn part(self, of: NonZeroU32) -> Rate {
        let longest = nanoseconds(Self::LONGEST);
        let interval = self.interval.saturating_mul(of.get().into()).min(longest);
        // The same time is worth fewer of them.
        Rate { interval, ahead: self.ahead.max(interval) }
    }

    /// Nanoseconds that so many take of the time of a key.
    fn time(self, count: u64) -> u64 {
        self.interval.saturating_mul(count)
    }

    /// Nanoseconds of a key's time that one takes.
    pub fn interval(self) -> u64 {
        self.interval
    }

    /// Judges one more at `now`, of a key that will have caught up at `due` (nanoseconds of one clock; in the past when it
    /// has). Says when it will have caught up after it; `due` stays where it may not happen.
    #[inline]
    fn judge(self, due: u64, now: u64) -> (Option<u64>, Ruling) {
        let next = due.max(now).saturating_add(self.interval);
        let debt = next - now;
        match self.ahead.checked_sub(debt) {
            Some(left) => {
                let ruling =
                    Ruling::Within { remaining: left / self.interval, reset: Duration::from_nanos(debt) };
                (Some(next), ruling)
            }
            None => (None, Ruling::Beyond { retry_after: Duration::from_nanos(debt - self.ahead) }),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Fresh memory of so many words, as `N` processes have it, each with a mapping of its own.
#[cfg(test)]
fn memory_of<const N: usize>(length: usize) -> [tidegate_io::shared::SharedWords; N] {
    use std::os::fd::AsFd;
    use tidegate_io::shared::SharedMemory;
    let (_, descriptor) = SharedMemory::new("test", length).unwrap();
    [(); N].map(|()| SharedMemory::attach(descriptor.as_fd()).unwrap().words(0..length).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(count: u64, period: Duration, burst: u64) -> Rate {
        Rate::new(NonZeroU64::new(count).unwrap(), period, NonZeroU64::new(burst).unwrap())
    }

    #[test]
    fn a_burst_and_then_one_by_one() {
        let rate = rate(10, Duration::from_secs(1), 3);
        let mut due = 0;
        let mut ask = |at: u64| {
            let (next, ruling) = rate.judge(due, at * 1_000_000);
            due = next.unwrap_or(due);
            ruling
        };
        let within = |remaining, reset| Ruling::Within { remaining, reset: Duration::from_millis(reset) };
        let beyond = |after| Ruling::Beyond { retry_after: Duration::from_millis(after) };
        for (at, expected) in [
            (1000, within(2, 100)),
            (1000, within(1, 200)),
            (1000, within(0, 300)),
            (1000, beyond(100)),
            (1099, beyond(1)),
            (1100, within(0, 300)),
            (1100, beyond(100)),
            (1300, within(1, 200)),
            (9000, within(2, 100)),
        ] {
            assert_eq!(ask(at), expected, "at {at} ms");
        }
    }

    #[test]
    fn a_part_of_a_rate() {
        let part = rate(10, Duration::from_secs(1), 20).part(NonZeroU32::new(4).unwrap());
        assert_eq!(part, rate(5, Duration::from_secs(2), 5));
        let least = rate(1, Duration::from_secs(1), 1).part(NonZeroU32::new(4).unwrap());
        assert_eq!(least, rate(1, Duration::from_secs(4), 1));
    }

    #[test]
    fn bounds_of_what_can_be_written() {
        let slowest = rate(1, Duration::MAX, u64::MAX);
        let longest = nanoseconds(Rate::LONGEST);
        let within = Ruling::Within { remaining: 0, reset: Rate::LONGEST };
        assert_eq!(slowest.judge(0, 7), (Some(7 + longest), within));
        // At the end of time itself nothing wraps round: a time that cannot be told is as late as can be.
        let end = Duration::from_nanos(1);
        let within = Ruling::Within { remaining: 0, reset: end };
        assert_eq!(slowest.judge(0, u64::MAX - 1), (Some(u64::MAX), within));
        let fastest = rate(u64::MAX, Duration::from_nanos(1), 1);
        assert!(matches!(fastest.judge(0, 5), (Some(6), Ruling::Within { remaining: 0, .. })));
    }

    proptest! {
        /// Beside the definition: in no window may more happen than the burst and what the window earns, and whoever
        /// asks no faster than the rate is never refused.
        #[test]
        fn no_window_holds_more_than_it_earns(
            count in 1u64..50, period in 1u64..5_000, burst in 1u64..20, gaps in prop::collection::vec(0u64..2_000, 1..200)
        ) {
            let rate = rate(count, Duration::from_millis(period), burst);
            let (mut due, mut now) = (0, 1_000_000_000);
            let mut taken = Vec::new();
            for gap in gaps {
                now += gap * 100_000;
                if let (Some(next), _) = rate.judge(due, now) {
                    due = next;
                    taken.push(now);
                }
            }
            for (first, from) in taken.iter().enumerate() {
                for (last, to) in taken.iter().enumerate().skip(first) {
                    let earned = burst + (to - from) / rate.interval;
                    prop_assert!((last - first) as u64 <= earned, "{} in {} ns", last - first + 1, to - from);
                }
            }
            let (mut due, mut now) = (0, 1_000_000_000);
            for _ in 0..100 {
                let (next, ruling) = rate.judge(due, now);
                prop_assert!(next.is_some(), "{ruling:?}");
                due = next.unwrap_or(due);
                now += rate.interval;
            }
        }

        #[test]
        fn whoever_waits_as_told_is_let_in(count in 1u64..1000, period in 1u64..5_000, burst in 1u64..20, due in 0u64..u64::MAX / 4, now in 0u64..u64::MAX / 4) {
            let rate = rate(count, Duration::from_millis(period), burst);
            if let (None, Ruling::Beyond { retry_after }) = rate.judge(due, now) {
                let later = now + nanoseconds(retry_after);
                prop_assert!(rate.judge(due, later).0.is_some());
                prop_assert!(rate.judge(due, later - 1).0.is_none());
            }
        }
    }
}
