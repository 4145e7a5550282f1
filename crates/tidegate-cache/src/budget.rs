//! The memory that a store may have: bytes are reserved before they are allocated, and given back when what they were for is
//! dropped.
//!
//! Never more than the limit is reserved; after a lower limit was set, nothing is until enough has come back.
//!
//! Content of more than a block has a [`Share`] of it alone. Clients that read it slowly keep it from coming back, and whatever they
//! keep, the rest is there for what is small.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Parts that the limit is divided into for shares.
const PARTS: u64 = 16;
/// Those that large content which is kept may have.
const LARGE_PARTS: u64 = 10;
/// Those that it may have together with what is passed on.
const PASSING_PARTS: u64 = 11;
/// What is small and held by clients, beyond these parts they get copies of their own.
const HELD_PARTS: u64 = 1;

/// What bytes are for, and so how many of all they may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Heads, keys, index, and content of a block at most: all that there is.
    Small,
    /// Larger content.
    Large,
    /// Windows of what is passed on, beside what is large.
    Passing,
}

/// What there is not enough of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Short {
    /// The memory.
    Memory,
    /// What of it is for content that is not small.
    Share,
}

/// Bytes that there are, and that are reserved.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: AtomicU64,
    reserved: AtomicU64,
    /// Of these, what is not small.
    large: AtomicU64,
    /// Of these, content that clients are reading: what is small, and what is not.
    held_small: AtomicU64,
    held_large: AtomicU64,
}

/// Bytes that somebody has reserved.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
    is_small: bool,
}

impl Share {
    /// How many bytes of so many.
    fn of(self, limit: u64) -> u64 {
        match self {
            Share::Small => limit,
            Share::Large => limit / PARTS * LARGE_PARTS,
            Share::Passing => limit / PARTS * PASSING_PARTS,
        }
    }
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget {
            limit: AtomicU64::new(limit),
            reserved: AtomicU64::new(0),
            large: AtomicU64::new(0),
            held_small: AtomicU64::new(0),
            held_large: AtomicU64::new(0),
        })
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Relaxed)
    }

    /// Bytes at most for a share.
    pub(crate) fn most(&self, share: Share) -> u64 {
        share.of(self.limit())
    }

    /// What is to go first, after the limit has been lowered.
    pub(crate) fn excess(&self) -> Option<Short> {
        if self.reserved() > self.limit() {
            return Some(Short::Memory);
        }
        (self.large.load(Relaxed) > self.most(Share::Passing)).then_some(Short::Share)
    }

    /// Reserves bytes for what is small; `None` where so many are not left.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        self.reserve_of(Share::Small, bytes).ok()
    }

    /// Reserves bytes of a share.
    pub(crate) fn reserve_of(self: &Arc<Self>, share: Share, bytes: u64) -> Result<Reservation, Short> {
        let is_small = share == Share::Small;
        if !is_small {
            take(&self.large, bytes, self.most(share)).ok_or(Short::Share)?;
        }
        if take(&self.reserved, bytes, self.limit()).is_none() {
            if !is_small {
                self.large.fetch_sub(bytes, Relaxed);
            }
            return Err(Short::Memory);
        }
        Ok(Reservation { budget: self.clone(), bytes, is_small })
    }

    /// Bytes of content that clients are reading.
    pub(crate) fn held(&self) -> u64 {
        self.held_small.load(Relaxed) + self.held_large.load(Relaxed)
    }

    /// Whether clients hold as much of what is small as they may.
    pub(crate) fn is_small_held(&self) -> bool {
        self.held_small.load(Relaxed) >= self.limit() / PARTS * HELD_PARTS
    }

    /// Whether that is so, and what is large and not kept has no room for so many bytes either.
    pub(crate) fn is_all_held(&self, bytes: u64) -> bool {
        let large = self.large.load(Relaxed).saturating_add(bytes);
        self.is_small_held() && large > self.most(Share::Passing)
    }

    /// Clients hold so much more.
    pub(crate) fn hold(&self, is_small: bool, bytes: u64) {
        self.held_of(is_small).fetch_add(bytes, Relaxed);
    }

    /// Clients hold so much less.
    pub(crate) fn release(&self, is_small: bool, bytes: u64) {
        self.held_of(is_small).fetch_sub(bytes, Relaxed);
    }

    fn held_of(&self, is_small: bool) -> &AtomicU64 {
        if is_small { &self.held_small } else { &self.held_large }
    }
}

/// Adds bytes where they are `most` at most then.
fn take(bytes: &AtomicU64, more: u64, most: u64) -> Option<u64> {
    let sum = |bytes: u64| bytes.checked_add(more).filter(|sum| *sum <= most);
    bytes.fetch_update(Relaxed, Relaxed, sum).ok()
}

impl Reservation {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is for what is small.
    pub(crate) fn is_small(&self) -> bool {
        self.is_small
    }

    /// Of what it is.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Counts it as one of another share from now on. `false`: it has no room.
    pub(crate) fn move_to(&mut self, share: Share) -> bool {
        let is_small = share == Share::Small;
        if is_small == self.is_small {
            return true;
        }
        if is_small {
            self.budget.large.fetch_sub(self.bytes, Relaxed);
        } else if take(&self.budget.large, self.bytes, self.budget.most(share)).is_none() {
            return false;
        }
        self.is_small = is_small;
        true
    }

    /// Takes another one in.
    pub(crate) fn join(&mut self, mut other: Reservation) {
        debug_assert!(Arc::ptr_eq(&self.budget, &other.budget), "invariant: of one store");
        debug_assert_eq!(self.is_small, other.is_small, "invariant: of one share");
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Makes one of its own of so many of the bytes, at most of all.
    pub(crate) fn split(&mut self, bytes: u64) -> Reservation {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Reservation { budget: self.budget.clone(), bytes, is_small: self.is_small }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_small {
            self.budget.large.fetch_sub(self.bytes, Relaxed);
        }
        self.budget.reserved.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_more_than_there_is() {
        let budget = Budget::new(100);
        let mut all = budget.reserve(60).unwrap();
        assert!(budget.reserve(41).is_none());
        assert!(budget.reserve(u64::MAX).is_none());
        all.join(budget.reserve(40).unwrap());
        let part = all.split(30);
        assert_eq!((all.bytes(), part.bytes(), budget.reserved()), (70, 30, 100));
        drop(all);
        assert_eq!(budget.reserved(), 30);
        budget.set_limit(20);
        assert!(budget.reserve(0).is_none());
        drop(part);
        assert_eq!((budget.reserved(), budget.limit()), (0, 20));
    }

    #[test]
    fn what_is_small_has_what_a_share_leaves() {
        let budget = Budget::new(160);
        let large = budget.reserve_of(Share::Large, 100).unwrap();
        assert_eq!(budget.reserve_of(Share::Large, 1).err(), Some(Short::Share));
        let passing = budget.reserve_of(Share::Passing, 10).unwrap();
        assert_eq!(budget.reserve_of(Share::Passing, 1).err(), Some(Short::Share));
        let small = budget.reserve(50).unwrap();
        drop(large);
        // Beside what is small, of what is left.
        let large = budget.reserve_of(Share::Large, 90).unwrap();
        let more = budget.reserve(10).unwrap();
        drop(passing);
        drop(more);
        assert_eq!(budget.reserve_of(Share::Large, 11).err(), Some(Short::Share));
        assert_eq!(budget.reserve(21).map(|_| ()), None);
        drop((large, small));
        let mut small = budget.reserve(101).unwrap();
        assert!(!small.move_to(Share::Large) && small.is_small());
        assert!(small.move_to(Share::Passing) && !small.is_small());
        assert_eq!(budget.reserve_of(Share::Passing, 10).err(), Some(Short::Share));
        budget.set_limit(110);
        assert_eq!(budget.excess(), Some(Short::Share));
        budget.set_limit(100);
        assert_eq!(budget.excess(), Some(Short::Memory));
        drop(small);
        assert_eq!((budget.reserved(), budget.excess()), (0, None));
    }
}
