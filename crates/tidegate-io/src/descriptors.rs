//! Whether this process has run out of descriptors lately, for those who hold some that they could do without; and some that
//! are kept back for the messages of the master, which must get through in a crowd as well.

use crate::clock::monotonic_ns;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// For so long after the last time nobody keeps what he need not.
const LATELY: Duration = Duration::from_secs(10);
/// `ENFILE`, `EMFILE`
const EXHAUSTED: [i32; 2] = [23, 24];

/// When that was, monotonic nanoseconds; 0: never.
static LAST: AtomicU64 = AtomicU64::new(0);

/// When something that is open has lacked one, monotonic nanoseconds; 0: never.
static LACKED: AtomicU64 = AtomicU64::new(0);
/// Nobody new is let in: a reserve is to be filled first.
static ARE_RESERVED: AtomicBool = AtomicBool::new(false);

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

/// Something that is open has lacked one: a request on it, or what the server itself has to do. Idle connections go first.
pub fn are_lacking() {
    have_run_out();
    LACKED.store(last_run_out(), Relaxed);
}

/// When that was for the last time, in whatever unit; 0: never.
pub fn last_lacking() -> u64 {
    LACKED.load(Relaxed)
}

/// Whether those that come free are not for new connections now.
pub fn are_reserved() -> bool {
    ARE_RESERVED.load(Relaxed)
}

/// How many this process may hold; `None`: there is no limit.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// What obeying a message needs beside those that come with it: folders that are opened, pollers.
const BESIDE: usize = 8;
/// The reserve takes no larger share of all.
const SHARE: u64 = 4;

/// Descriptors that are kept back for messages: as many as the largest has needed. Let go of to receive one, and taken again
/// when it has been obeyed.
#[derive(Debug, Default)]
pub struct Reserve(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    kept: Vec<OwnedFd>,
    /// So many came since it was filled.
    came: usize,
    /// The most that ever came between.
    most: usize,
}

impl Reserve {
    /// Makes room for a message with so many.
    pub fn let_go(&self, count: usize) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.came += count;
        ARE_RESERVED.store(are_short(), Relaxed);
        kept.kept.clear();
    }

    /// Takes them again. Whether it has nearly all of them; until then nobody new is let in.
    pub fn fill(&self) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.most = kept.most.max(std::mem::take(&mut kept.came));
        let share = limit().map_or(usize::MAX, |limit| usize::try_from(limit / SHARE).unwrap_or(usize::MAX));
        let wanted = (kept.most + BESIDE).min(share);
        while kept.kept.len() < wanted
            && let Ok(one) = eventfd(0, EventfdFlags::CLOEXEC)
        {
            kept.kept.push(one);
        }
        // What is open for a moment only, elsewhere, is nothing to close connections for.
        let has_enough = kept.kept.len() + BESIDE / 2 >= wanted;
        ARE_RESERVED.store(!has_enough, Relaxed);
        has_enough
    }
}

/// What to do about it, as the end of a sentence.
pub fn advice() -> String {
    let limit = limit().map_or("no more".to_owned(), |limit| limit.to_string());
    format!(
        "process {} may hold {limit} descriptors, and all of them are in use; raise the limit (`ulimit -Hn`, or LimitNOFILE= of \
         the service), or lower `limits connections`",
        std::process::id()
    )
}
