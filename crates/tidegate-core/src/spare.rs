//! The descriptor that is kept for when there is no other: given up for a moment, it makes room to accept a connection and tell it
//! that the server is full.
//!
//! The workers of a process have one between them. While descriptors are short nobody accepts without it: what one gives up to turn
//! somebody away would be taken by a connection that another lets in, and then nobody could be told any more.

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};

static SPARE: Mutex<Option<OwnedFd>> = Mutex::new(None);
/// There is none: nobody has taken it yet, or it was given up and could not be had again.
static IS_LOST: AtomicBool = AtomicBool::new(true);

/// The right to accept while descriptors are short.
pub(crate) struct Spare(MutexGuard<'static, Option<OwnedFd>>);

impl Spare {
    /// `None`: another worker has it, for a moment.
    pub fn try_hold() -> Option<Spare> {
        let held = match SPARE.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let mut spare = Spare(held);
        spare.regain();
        Some(spare)
    }

    /// Whether it is there, so that somebody can be told.
    pub fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Makes room for one connection.
    pub fn give_up(&mut self) {
        *self.0 = None;
    }

    /// Takes it again, if there is one. Whether it is there.
    pub fn regain(&mut self) -> bool {
        if self.0.is_none() {
            *self.0 = eventfd(0, EventfdFlags::CLOEXEC).ok();
            IS_LOST.store(self.0.is_none(), Relaxed);
        }
        self.is_there()
    }
}

/// One may be had: it is the spare one, where that is missing.
#[inline]
pub(crate) fn keep() {
    if IS_LOST.load(Relaxed) {
        drop(Spare::try_hold());
    }
}
