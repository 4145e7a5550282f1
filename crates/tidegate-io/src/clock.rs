//! Clock reads. Timers use the monotonic clock, dates the wall clock; nothing mixes them (FAULTS 47).

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;

thread_local! {
    /// What [`step_ns`] has read in this step; 0: nothing yet.
    static STEP: Cell<u64> = const { Cell::new(0) };
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[inline]
pub fn monotonic_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The same, read now and for what this thread does in the same step: see [`recent_ns`].
#[inline]
pub fn step_ns() -> u64 {
    let now = monotonic_ns();
    STEP.set(now);
    now
}

/// What [`step_ns`] has read last in the step of this thread: no older than the step, which spares a reading where one event
/// begins what the one before has ended. A step is one run of a connection or of a task.
#[inline]
pub fn recent_ns() -> u64 {
    match STEP.get() {
        0 => step_ns(),
        now => now,
    }
}

/// This thread begins a step: nothing has been read in it.
#[inline]
pub fn begin_step() {
    STEP.set(0);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_good_for_its_step_alone() {
        let first = recent_ns();
        while monotonic_ns() == first {}
        assert_eq!(recent_ns(), first);
        let second = step_ns();
        assert!(second > first && recent_ns() == second);
        while monotonic_ns() == second {}
        begin_step();
        assert!(recent_ns() > second);
    }
}
