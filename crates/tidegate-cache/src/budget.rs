//! The memory that a store may have: bytes are reserved before they are allocated, and given back when what they were for is
//! dropped.
//!
//! Never more than the limit is reserved; after a lower limit was set, nothing is until enough has come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that there are, and that are reserved.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: AtomicU64,
    reserved: AtomicU64,
}

/// Bytes that somebody has reserved.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget { limit: AtomicU64::new(limit), reserved: AtomicU64::new(0) })
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

    /// Reserves bytes; `None` where so many are not left.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        let take = |reserved: u64| reserved.checked_add(bytes).filter(|sum| *sum <= self.limit());
        self.reserved.fetch_update(Relaxed, Relaxed, take).ok()?;
        Some(Reservation { budget: self.clone(), bytes })
    }
}

impl Reservation {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes another one in.
    pub(crate) fn join(&mut self, mut other: Reservation) {
        debug_assert!(Arc::ptr_eq(&self.budget, &other.budget), "invariant: of one store");
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Makes one of its own of so many of the bytes, at most of all.
    pub(crate) fn split(&mut self, bytes: u64) -> Reservation {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Reservation { budget: self.budget.clone(), bytes }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
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
}
