//! Who holds a content in memory, how much of the memory clients hold so, and which share of it a content has.
//!
//! Memory that a client reads from does not come back before it has read it, however slowly. Of what is large there is no more than a
//! share, so nothing else is done about it. Of what is small no more than a part of the memory is held: beyond, a client that begins to
//! read gets a copy, and so does one that stops reading what was fetched for it. Copies are memory of connections, whose own
//! limit ends those that hold the most for the longest.

use super::Content;
use crate::budget::{Budget, Reservation, Share};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, PoisonError};
use tidegate_io::shared_bytes::SharedPiece;

/// What of a stored content a client gets to be sent.
pub enum Sent {
    /// The bytes where they lie.
    Shared(SharedPiece),
    /// A copy of what is small, since clients hold as much of that as they may: it counts as memory of its connection.
    Copied(Vec<u8>),
}

/// Who holds a content, and what that counts for.
#[derive(Default)]
pub(super) struct Holding {
    /// Whose memory it has. Not set: it has none.
    budget: OnceLock<Arc<Budget>>,
    /// Of the share for what is large.
    is_large: AtomicBool,
    /// Who reads it from memory.
    holders: AtomicU32,
    /// Bytes that count as held for that, as small and as large.
    counted: [AtomicU64; 2],
}

impl Holding {
    /// Of a content with this memory.
    pub(super) fn of(reservation: &Reservation) -> Holding {
        let holding = Holding::default();
        holding.has(reservation);
        holding
    }

    /// It has this memory as well.
    pub(super) fn has(&self, reservation: &Reservation) {
        self.budget.get_or_init(|| reservation.budget().clone());
        if !reservation.is_small() {
            self.is_large.store(true, Relaxed);
        }
    }

    /// Where anybody holds it, so many bytes more count.
    pub(super) fn count_more(&self, bytes: u64) {
        let Some(budget) = self.budget.get() else { return };
        if self.holders.load(Relaxed) > 0 {
            let is_small = !self.is_large.load(Relaxed);
            budget.hold(is_small, bytes);
            self.counted[usize::from(!is_small)].fetch_add(bytes, SeqCst);
            // Who held it may have gone while it was counted.
            if self.holders.load(SeqCst) == 0 {
                self.settle(|| 0);
            }
        }
    }

    /// Counts `bytes` where anybody holds it, and else nothing. Others begin and end to hold it meanwhile, and count as well: whoever
    /// counts last has looked again.
    fn settle(&self, bytes: impl Fn() -> u64) {
        loop {
            let is_held = self.holders.load(SeqCst) > 0;
            self.count(if is_held { bytes() } else { 0 });
            if (self.holders.load(SeqCst) > 0) == is_held {
                return;
            }
        }
    }

    fn count(&self, bytes: u64) {
        let Some(budget) = self.budget.get() else { return };
        for (counted, is_small) in self.counted.iter().zip([true, false]) {
            let bytes = if is_small == self.is_large.load(Relaxed) { 0 } else { bytes };
            // In this order: what is given back was counted.
            budget.hold(is_small, bytes);
            budget.release(is_small, counted.swap(bytes, SeqCst));
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.count(0);
    }
}

impl Content {
    /// These bytes of it, where it is complete and in memory, for a client: see [`Sent`].
    pub fn sent(self: &Arc<Self>, start: u64, end: u64) -> Option<Sent> {
        if self.is_scarce() && self.holding.holders.load(Relaxed) == 0 && self.whole.get().is_some() {
            return Some(Sent::Copied(self.copied(start..end)));
        }
        self.shared().map(|all| Sent::Shared(all.part(start, end)))
    }

    /// Whether clients hold as much as they may of what is small, and it is small.
    pub(crate) fn is_scarce(&self) -> bool {
        !self.is_large() && self.holding.budget.get().is_some_and(|budget| budget.is_small_held())
    }

    /// A copy of some of what is complete, small and in memory.
    pub(crate) fn copied(&self, range: Range<u64>) -> Vec<u8> {
        let end = range.end.min(self.filled());
        let mut copy = vec![0; usize::try_from(end.saturating_sub(range.start)).unwrap_or(0)];
        let count = self.read_at(range.start, &mut copy);
        copy.truncate(count);
        copy
    }

    /// Whether it has memory of the share for what has more than a block.
    pub(crate) fn is_large(&self) -> bool {
        self.holding.is_large.load(Relaxed)
    }

    /// The share that its next block is of.
    pub(crate) fn share(&self) -> Share {
        match self.is_passing() {
            true => Share::Passing,
            false if self.is_large() => Share::Large,
            false => Share::Small,
        }
    }

    /// It has turned out to be large: its blocks count as of this share from now on. `false`: that has no room.
    pub(crate) fn move_to(&self, share: Share) -> bool {
        let mut blocks = self.filling.write().unwrap_or_else(PoisonError::into_inner);
        let is_moved = blocks.iter_mut().all(|block| block.reservation.move_to(share));
        if !is_moved {
            for block in blocks.iter_mut() {
                block.reservation.move_to(Share::Small);
            }
            return false;
        }
        drop(blocks);
        self.holding.is_large.store(true, Relaxed);
        self.count_held();
        true
    }

    /// Somebody reads it from memory, which so does not come back.
    pub(crate) fn hold(&self) {
        if self.holding.holders.fetch_add(1, SeqCst) == 0 {
            self.count_held();
        }
    }

    /// One who did so does no more.
    pub(crate) fn release(&self) {
        if self.holding.holders.fetch_sub(1, SeqCst) == 1 {
            self.count_held();
        }
    }

    /// What it has in memory counts as held, where anybody holds it.
    pub(super) fn count_held(&self) {
        self.holding.settle(|| {
            let kept = self.announced.filter(|_| !self.is_passing() && self.file.is_none());
            kept.unwrap_or_else(|| self.reserved())
        });
    }
}
