//! Whether this process has run out of descriptors lately, for those who hold some that they could do without.

use crate::clock::monotonic_ns;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// For so long after the last time nobody keeps what he need not.
const LATELY: Duration = Duration::from_secs(10);
/// `ENFILE`, `EMFILE`
const EXHAUSTED: [i32; 2] = [23, 24];

/// When that was, monotonic nanoseconds; 0: never.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Whether a call has failed for want of a descriptor.
pub fn is_exhaustion(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| EXHAUSTED.contains(&code))
}

/// There was none left.
pub fn have_run_out() {
    LAST.store(monotonic_ns().max(1), Relaxed);
}

/// When there was none left for the last time, in whatever unit; 0: never.
pub fn last_run_out() -> u64 {
    LAST.load(Relaxed)
}

/// Whether there was none left a moment ago.
pub fn are_short() -> bool {
    let last = last_run_out();
    last > 0 && monotonic_ns().saturating_sub(last) < LATELY.as_nanos() as u64
}
