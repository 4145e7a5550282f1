//! What a worker's memory is used for, told by those who use it.
//!
//! A connection weighs what it owns after each of its turns ([`crate::admission::Admission::account`]): its
//! buffers, its streams, and what bodies ([`crate::BodyStream::held`]) and answers under way ([`Weight`]) say that
//! they hold. Whoever may do without more memory asks first ([`take`]): reading ahead, compressing, collecting.
//! So what a client makes grow stays within `limits memory` also in the moment before anybody is reset for it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tidegate_stats::Worker as Stats;

/// Of the memory there is, the last part is for what cannot be done without, such as heads of requests.
const RESERVE: u64 = 8;

#[derive(Default)]
struct Room {
    stats: RefCell<Option<Arc<Stats>>>,
    limit: Cell<u64>,
    is_pressed: Cell<bool>,
    /// Taken in the present turn of a connection, which has not been weighed since.
    taken: Cell<u64>,
    /// Of the answer that is being made.
    account: Cell<Option<Rc<Cell<usize>>>>,
}

thread_local! {
    static ROOM: Room = Room::default();
}

/// Whether this worker has room for so many bytes more. Where it has, the caller is expected to use them, and to
/// say so when it is weighed. On a thread that is no worker there is always room.
pub fn take(bytes: usize) -> bool {
    ROOM.with(|room| {
        let Some(stats) = &*room.stats.borrow() else { return true };
        let taken = room.taken.get().saturating_add(bytes as u64);
        let limit = room.limit.get();
        let is_there = stats.buffer.current().saturating_add(taken) <= limit - limit / RESERVE;
        if is_there {
            room.taken.set(taken);
        }
        is_there
    })
}

/// This thread is a worker, with so much memory for what connections own.
pub(crate) fn adopt(stats: &Arc<Stats>, limit: u64) {
    ROOM.with(|room| {
        room.stats.replace(Some(stats.clone()));
        room.limit.set(limit);
    });
}

/// The kernel finds memory short, or no longer.
pub(crate) fn press(is_pressed: bool) {
    ROOM.with(|room| room.is_pressed.set(is_pressed));
}

/// Whether connections own more than they may, or the kernel finds memory short: what would have to wait is not begun.
pub(crate) fn is_short() -> bool {
    ROOM.with(|room| {
        let stats = room.stats.borrow();
        room.is_pressed.get() || stats.as_ref().is_some_and(|stats| stats.buffer.current() > room.limit.get())
    })
}

/// What was taken has been weighed.
#[inline]
pub(crate) fn settle() {
    ROOM.with(|room| room.taken.set(0));
}

/// What an answer that is being made holds, for whoever weighs it.
#[derive(Default)]
pub(crate) struct Holdings(Option<Rc<Cell<usize>>>);

impl Holdings {
    /// Bytes.
    pub(crate) fn held(&self) -> usize {
        self.0.as_ref().map_or(0, |held| held.get())
    }

    /// Runs what makes the answer; a [`Weight`] that is set meanwhile is on this account.
    pub(crate) fn charge<R>(&mut self, run: impl FnOnce() -> R) -> R {
        let outer = ROOM.with(|room| room.account.replace(self.0.take()));
        let result = run();
        self.0 = ROOM.with(|room| room.account.replace(outer));
        result
    }
}

/// Bytes that a part of an answer under way holds. They are on the account of the answer in which they were first
/// set, and given back when this is dropped.
#[derive(Default)]
pub struct Weight {
    account: Option<Rc<Cell<usize>>>,
    bytes: usize,
}

impl Weight {
    /// It holds so much now.
    pub fn set(&mut self, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        let account = self.account.get_or_insert_with(|| {
            ROOM.with(|room| {
                let account = room.account.take().unwrap_or_default();
                room.account.set(Some(account.clone()));
                account
            })
        });
        account.set(account.get().saturating_sub(self.bytes).saturating_add(bytes));
        self.bytes = bytes;
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_the_limit_leaves() {
        let stats = Arc::new(Stats::default());
        assert!(take(usize::MAX), "nobody has said that this is a worker");
        adopt(&stats, 800);
        assert!(take(600) && !take(101) && take(100) && !take(1));
        settle();
        stats.buffer.add(650);
        assert!(!take(51) && take(50));
        stats.buffer.sub(650);
        settle();
        assert!(take(700));
    }

    #[test]
    fn weights_are_on_the_account_that_they_were_set_in() {
        let (mut one, mut other) = (Holdings::default(), Holdings::default());
        let (mut first, mut second) = (Weight::default(), Weight::default());
        one.charge(|| first.set(10));
        other.charge(|| {
            second.set(5);
            first.set(30);
        });
        assert_eq!((one.held(), other.held()), (30, 5));
        one.charge(|| second.set(7));
        drop(first);
        assert_eq!((one.held(), other.held()), (0, 7));
        drop(second);
        assert_eq!((one.held(), other.held()), (0, 0));
    }
}
