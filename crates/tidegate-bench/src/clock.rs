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

/// Nanoseconds of a duration; what does not fit is for ever.
pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A timer that makes its descriptor readable at an absolute time.
pub(crate) struct Alarm {
    fd: OwnedFd,
    set_for: u64,
}

impl Alarm {
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Alarm { fd: timerfd_create(TimerfdClockId::Monotonic, flags)?, set_for: u64::MAX })
    }

    /// Wakes at `at`, monotonic nanoseconds; a time that has passed wakes at once. Every expiry is a new
    /// edge for `epoll`, so that nobody needs to read the descriptor.
    pub fn set(&mut self, at: u64) -> io::Result<()> {
        if at == self.set_for {
            return Ok(());
        }
        self.set_for = at;
        let value = Timespec {
            tv_sec: i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (at % 1_000_000_000).max(1) as _,
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
