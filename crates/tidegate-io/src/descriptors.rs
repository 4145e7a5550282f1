//! Whether this process has run out of descriptors lately, for those who hold some that they could do without; and some that
//! are kept back for the messages of the master, which must get through in a crowd as well.

use crate::clock::monotonic_ns;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// For so long after the last time nobody keeps what he need not.
const LATELY: Duration = Duration::from_secs(10);
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// When that was, monotonic nanoseconds; 0: never.
static LAST: AtomicU64 = AtomicU64::new(0);

/// When something that is open has lacked one, monotonic nanoseconds; 0: never.
static LACKED: AtomicU64 = AtomicU64::new(0);
/// The reserve is to be filled first, before anybody else has one.
static IS_RESERVE_SHORT: AtomicBool = AtomicBool::new(false);
/// Some of the reserve was let go of for a message that is not obeyed yet.
static IS_RESERVE_LENT: AtomicBool = AtomicBool::new(false);

/// Whether a call has failed for want of a descriptor.
pub fn is_exhaustion(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| [ENFILE, EMFILE].contains(&code))
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

/// Whether those that are free now belong to the reserve, or to a message that it was let go of for: nobody new is let in, and what
/// requests open has to wait.
pub fn are_reserved() -> bool {
    IS_RESERVE_SHORT.load(Relaxed) || IS_RESERVE_LENT.load(Relaxed) && are_short()
}

/// Asked before a request opens something that it may keep for long.
///
/// # Errors
/// `EMFILE`, as if there were none: those that are free are reserved.
pub fn for_a_request() -> io::Result<()> {
    if are_reserved() { Err(io::Error::from_raw_os_error(EMFILE)) } else { Ok(()) }
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

/// Descriptors that are kept back for orders: enough for as many as the largest has brought, twice. As many as one needs are let go
/// of to receive it, and taken again when all that have come are obeyed. Nobody waits for them here: an order for which there are too
/// few is received without its descriptors.
#[derive(Debug, Default)]
pub struct Reserve {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    kept: Vec<OwnedFd>,
    /// The most that came with a message.
    most: usize,
    /// Messages that have come, or are coming, and are not obeyed.
    leases: usize,
    /// Nobody gives anything up for it any more.
    is_modest: bool,
}

/// What has come of an attempt to fill the reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// It has (nearly) as many as it should.
    Full,
    /// A message still has some of them: that is waited for.
    Lent,
    /// There are too few. Until it is full, nobody else has one that comes free.
    Short,
}

/// A message that came with descriptors is not obeyed yet: until it is, what the reserve has let go of is left to it.
#[derive(Debug)]
#[must_use = "the reserve is filled again when this has been dropped"]
pub struct Lease(Arc<Reserve>);

impl Drop for Lease {
    fn drop(&mut self) {
        let mut kept = self.0.lock();
        kept.leases -= 1;
        if kept.leases == 0 {
            kept.fill(); // before anybody else has what the message has left over
            IS_RESERVE_LENT.store(false, Relaxed);
        }
    }
}

impl Kept {
    /// Takes as many as it should have and can get, and says so to those who open something.
    fn fill(&mut self) -> Filled {
        let share = limit().map_or(usize::MAX, |limit| usize::try_from(limit / SHARE).unwrap_or(usize::MAX));
        let wanted = (self.most * MESSAGES + BESIDE).min(share);
        while self.kept.len() < wanted
            && let Ok(one) = eventfd(0, EventfdFlags::CLOEXEC)
        {
            self.kept.push(one);
        }
        // What is open for a moment only, elsewhere, is nothing to close connections for.
        let has_enough = self.is_modest || self.kept.len() + BESIDE / 2 >= wanted;
        IS_RESERVE_SHORT.store(!has_enough, Relaxed);
        if has_enough { Filled::Full } else { Filled::Short }
    }
}

impl Reserve {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for a message with so many, and for what obeying it needs.
    pub fn let_go(self: &Arc<Self>, count: usize) -> Lease {
        let mut kept = self.lock();
        kept.leases += 1;
        kept.most = kept.most.max(count);
        IS_RESERVE_LENT.store(true, Relaxed); // before there is anything to take
        let left = kept.kept.len().saturating_sub(count + BESIDE);
        kept.kept.truncate(left);
        Lease(self.clone())
    }

    /// From now on it takes what is free alone: a process that only finishes what it has serves as long as it can.
    pub fn be_modest(&self) {
        self.lock().is_modest = true;
        IS_RESERVE_SHORT.store(false, Relaxed);
    }

    /// Takes them again, unless a message still needs them.
    pub fn fill(&self) -> Filled {
        let mut kept = self.lock();
        if kept.leases > 0 { Filled::Lent } else { kept.fill() }
    }
}

/// What to do about it, as the end of a sentence.
pub fn advice() -> String {
    let limit = limit().map_or("no more".to_owned(), |limit| limit.to_string());
    let free =
        if are_reserved() { "the rest is kept for what the master sends" } else { "all of them are in use" };
    format!(
        "process {} may hold {limit} descriptors, and {free}; raise the limit (`ulimit -Hn`, or LimitNOFILE= of \
         the service), or lower `limits connections`",
        std::process::id()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passing;
    use std::os::fd::AsFd;

    /// Two messages of a reload: what the first does not need is there for the second, and what was let go of in a shortage is for
    /// nobody else. One test, since all of a process go by it.
    #[test]
    fn the_reserve_lets_go_of_what_orders_need() {
        let reserve = Arc::new(Reserve::default());
        let held = || reserve.lock().kept.len();
        drop(reserve.let_go(5));
        assert_eq!((reserve.fill(), held()), (Filled::Full, 2 * 5 + BESIDE));
        let first = reserve.let_go(2);
        assert_eq!((reserve.fill(), held()), (Filled::Lent, 2 * 5 - 2));
        let second = reserve.let_go(5);
        assert_eq!(held(), 0);
        drop(first);
        assert_eq!((reserve.fill(), held()), (Filled::Lent, 0));
        assert!(for_a_request().is_ok(), "there is no shortage");

        have_run_out();
        assert!(for_a_request().is_err_and(|error| is_exhaustion(&error)));
        let (here, there) = passing::pair().unwrap();
        let given = || {
            passing::send_if_there_is_room(here.as_fd(), b"answer", &[here.as_fd()]).unwrap();
            let frame = passing::receive_with(there.as_fd(), (6, 1), Some(&reserve)).unwrap().unwrap();
            (frame.bytes, frame.descriptors.len(), frame.lost)
        };
        assert_eq!(given(), (b"answer".to_vec(), 0, Some(1)));
        drop(second);
        assert_eq!(held(), 2 * 5 + BESIDE, "nobody else can have what the message has left over");
        assert_eq!((reserve.fill(), held()), (Filled::Full, 2 * 5 + BESIDE));
        assert!(for_a_request().is_ok());
        assert_eq!(given(), (b"answer".to_vec(), 1, None));
        assert_eq!(held(), 2 * 5 + BESIDE, "answers do without it");

        // Who only finishes what it has claims none.
        IS_RESERVE_SHORT.store(true, Relaxed);
        assert!(for_a_request().is_err());
        reserve.be_modest();
        assert!(for_a_request().is_ok());
        assert_eq!(reserve.fill(), Filled::Full);
        assert!(for_a_request().is_ok());
    }
}
