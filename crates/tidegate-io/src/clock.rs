//! Clock reads. Timers use the monotonic clock, dates the wall clock; nothing mixes them (FAULTS 47).

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[inline]
pub fn monotonic_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds of processor time that the calling thread has used (`CLOCK_THREAD_CPUTIME_ID`); a system call.
pub fn thread_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Wall-clock seconds since 1970, from the kernel's last tick: good for a `Date` field, and the cheapest.
#[inline]
pub fn wall_seconds() -> i64 {
    clock_gettime(ClockId::RealtimeCoarse).tv_sec
}

/// Wall-clock time with nanoseconds, for log lines.
pub fn wall() -> (i64, u32) {
    let t = clock_gettime(ClockId::RealtimeCoarse);
    (t.tv_sec, t.tv_nsec as u32)
}
