//! Clock reads of the generator, and the timer that wakes it for the next intended start.
//!
//! `Poller::wait` counts whole milliseconds, too coarse for arrivals; a `timerfd` in the same `epoll` instance
//! wakes to the microsecond and costs one system call for each new deadline (`timerfd_create(2)`).

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub use tidegate_io::clock::monotonic_ns;

/// Processor time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32)
}

/// How late a request may be given up, and what else is waited for: at most two of these.
const TICK_MILLIS: u64 = 2;
/// The same, nanoseconds.
pub(crate) const TICK: u64 = TICK_MILLIS * 1_000_000;
/// Deadlines of a worker's connections.
pub(crate) type Wheel = tidegate_io::Wheel<TICK_MILLIS>;

/// Nanoseconds of a duration; what does not fit is for ever.
pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// From this many arrivals a second on, a worker takes them in turns. To set a timer and to be woken by it costs as
/// much as several requests, above all on a virtual machine, which is left for both.
const BUSY: f64 = 10_000.0;

/// The least time between two wakings of a busy worker, for a worker that is just busy and at most: a tenth and a
/// quarter of the lateness that is allowed.
const REST: (Duration, Duration) = (Duration::from_micros(100), Duration::from_micros(250));

/// Between those it grows with the rate: nanoseconds for each arrival a second.
const REST_OF_RATE: f64 = 2.0;

/// A timer that makes its descriptor readable at an absolute time.
pub(crate) struct Alarm {
    fd: OwnedFd,
    set_for: u64,
    /// Nanoseconds that lie between two expiries at least.
    rest: u64,
    /// When it expired last, or was to.
    expired: u64,
}

impl Alarm {
    /// For arrivals at `rate` a second.
    ///
    /// # Errors
    /// The system gives no timer.
    pub fn new(rate: f64) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let rest = if rate > BUSY { ((rate * REST_OF_RATE) as u64).clamp(ns(REST.0), ns(REST.1)) } else { 0 };
        Ok(Alarm { fd, set_for: u64::MAX, rest, expired: 0 })
    }

    /// Wakes at `at`, monotonic nanoseconds, or earlier, where it is set already: waking for nothing is cheaper
    /// than setting it anew. A time that has passed wakes at once. Every expiry is a new edge for `epoll`, so
    /// that nobody needs to read the descriptor.
    ///
    /// # Errors
    /// The system does not set the timer.
    pub fn set(&mut self, at: u64, now: u64) -> io::Result<()> {
        if let Some(at) = self.time_to_set(at, now) {
            let value = Timespec {
                tv_sec: i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: (at % 1_000_000_000).max(1) as _,
            };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
            timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &once)?;
        }
        Ok(())
    }

    /// When the timer is to expire; `None` where it is set well.
    fn time_to_set(&mut self, at: u64, now: u64) -> Option<u64> {
        if self.set_for <= now {
            self.expired = self.set_for;
        }
        let at = at.max(self.expired.saturating_add(self.rest));
        if now < self.set_for && self.set_for <= at {
            return None;
        }
        self.set_for = at;
        Some(at)
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_worker_is_woken_in_turns() {
        let table = [
            // Arrivals a second; the next start and the time, each in µs; what the timer is set for.
            (1_000.0, [(50, 10, Some(50)), (50, 20, None), (60, 55, Some(60)), (61, 60, Some(61))]),
            (50_000.0, [(150, 10, Some(150)), (170, 20, None), (170, 160, Some(250)), (900, 251, Some(900))]),
        ];
        for (rate, steps) in table {
            let mut alarm = Alarm::new(rate).unwrap();
            for (at, now, expected) in steps {
                let set = alarm.time_to_set(at * 1_000, now * 1_000);
                assert_eq!(set, expected.map(|at: u64| at * 1_000), "{rate}/s, {at} µs at {now} µs");
            }
        }
    }

    #[test]
    fn an_earlier_start_is_not_missed() {
        let mut alarm = Alarm::new(1.0).unwrap();
        assert_eq!(alarm.time_to_set(9_000, 10), Some(9_000));
        assert_eq!(alarm.time_to_set(5_000, 20), Some(5_000));
    }
}
