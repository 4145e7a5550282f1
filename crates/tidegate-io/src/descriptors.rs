//! Whether this process has run out of descriptors lately, for those who hold some that they could do without; and some that
//! are kept back for the messages of the master, which must get through in a crowd as well.

use crate::clock::monotonic_ns;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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

/// Whether so many more can be had, as far as it can be seen.
pub fn has_room(count: u64) -> bool {
    let Some(limit) = limit() else { return true };
    match std::fs::read_dir("/proc/self/fd") {
        Ok(held) => held.count() as u64 + count <= limit,
        Err(error) => !is_exhaustion(&error),
    }
}

/// What obeying a message needs beside those that come with it: folders that are opened, pollers.
const BESIDE: usize = 8;
/// So many messages may be under way at once: a reload is one of lists and one of settings.
const MESSAGES: usize = 2;
/// The reserve takes no larger share of all.
const SHARE: u64 = 4;
/// For so long a message waits for those that the one before has cost: idle connections close for them.
const REFILL: Duration = Duration::from_secs(3);

/// Descriptors that are kept back for messages: enough for as many as the largest has needed, twice. Let go of to receive one,
/// and taken again when all that have come are obeyed.
#[derive(Debug, Default)]
pub struct Reserve {
    kept: Mutex<Kept>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    kept: Vec<OwnedFd>,
    /// The most that came with a message.
    most: usize,
    /// Messages that have come, or are coming, and are not obeyed.
    leases: usize,
    /// It was to be filled, and there were too few.
    is_short: bool,
}

/// A message that came with descriptors is not obeyed yet: until it is, the reserve is left to it.
#[derive(Debug)]
#[must_use = "the reserve is filled again when this has been dropped"]
pub struct Lease(Arc<Reserve>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.lock().leases -= 1;
    }
}

impl Reserve {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for a message with so many. Where one before it has cost some that are about to come free, waits for them.
    pub fn let_go(self: &Arc<Self>, count: usize) -> Lease {
        let filled = self.filled.wait_timeout_while(self.lock(), REFILL, |kept| kept.is_short);
        let (mut kept, _) = filled.unwrap_or_else(PoisonError::into_inner);
        kept.is_short = false;
        kept.leases += 1;
        kept.most = kept.most.max(count);
        ARE_RESERVED.store(are_short(), Relaxed);
        kept.kept.clear();
        Lease(self.clone())
    }

    /// Takes them again. Whether it has nearly all of them, or leaves them to a message; until it has nobody new is let in.
    pub fn fill(&self) -> bool {
        let mut kept = self.lock();
        if kept.leases > 0 {
            return true;
        }
        let share = limit().map_or(usize::MAX, |limit| usize::try_from(limit / SHARE).unwrap_or(usize::MAX));
        let wanted = (kept.most * MESSAGES + BESIDE).min(share);
        while kept.kept.len() < wanted
            && let Ok(one) = eventfd(0, EventfdFlags::CLOEXEC)
        {
            kept.kept.push(one);
        }
        // What is open for a moment only, elsewhere, is nothing to close connections for.
        let has_enough = kept.kept.len() + BESIDE / 2 >= wanted;
        kept.is_short = !has_enough;
        self.filled.notify_all();
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
