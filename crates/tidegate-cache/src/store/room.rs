//! Room for what comes: reserved within the limit, made by eviction.
//!
//! An entry that somebody is at work with would give no memory back by going: it stays. Where everything that is left is in
//! use there is no room, and whoever asked does without. That clients read slowly cannot bring about for what is small:
//! larger content has a share of the memory, and where that is used up what is large goes for it, or nothing does.

use super::{Limits, Store, TRIES, Unstorable};
use crate::budget::{Reservation, Share, Short};
use crate::content::{BLOCK, BLOCK_COST, Content};
use crate::entry::Entry;
use crate::s3fifo::{Returned, S3Fifo};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_io::locking::lock;

/// The eviction queues, and the memory that is reserved for them.
pub(super) struct Queues {
    fifo: S3Fifo<Arc<Entry>>,
    reservation: Option<Reservation>,
}

impl Queues {
    pub(super) fn new(capacity: u64) -> Queues {
        Queues { fifo: S3Fifo::new(capacity), reservation: None }
    }

    /// What has come back soon after it was evicted.
    pub(super) fn returned(&self) -> Returned {
        self.fifo.returned()
    }

    /// Queues an entry, for which `growth` is reserved.
    fn insert(&mut self, entry: &Arc<Entry>, bytes: u64, growth: Option<Reservation>) {
        let place = self.fifo.insert(entry.clone(), bytes);
        entry.set_place(Some(place));
        let Some(growth) = growth else { return };
        match &mut self.reservation {
            Some(reservation) => reservation.join(growth),
            none => *none = Some(growth),
        }
        let needed = self.fifo.memory() as u64;
        if let Some(reservation) = &mut self.reservation {
            let spare = reservation.bytes().saturating_sub(needed);
            drop(reservation.split(spare));
        }
    }
}

/// Of the memory, so much in parts of all may be lent for copies of what is stored.
const LENT: u64 = 8;

/// Memory that was lent for a copy. It comes back when this is dropped.
#[derive(Debug)]
pub struct CopyRoom {
    reservation: Reservation,
    lent: Arc<AtomicU64>,
}

impl Drop for CopyRoom {
    fn drop(&mut self) {
        self.lent.fetch_sub(self.reservation.bytes(), Relaxed);
    }
}

impl Store {
    /// Lends memory for a copy of something that is stored, an eighth of all at most. `None`: there is not so much to lend.
    pub fn room_for_copy(&self, bytes: u64) -> Option<CopyRoom> {
        let most = self.budget.limit() / LENT;
        let take = |lent: u64| lent.checked_add(bytes).filter(|sum| *sum <= most);
        self.lent.fetch_update(Relaxed, Relaxed, take).ok()?;
        let Some(reservation) = self.reserve(bytes) else {
            self.lent.fetch_sub(bytes, Relaxed);
            return None;
        };
        Some(CopyRoom { reservation, lent: self.lent.clone() })
    }

    /// Other limits from now on. What is too much is evicted at once, as far as nobody is reading it.
    pub fn set_limits(&self, limits: Limits) {
        self.object.store(limits.object, Relaxed);
        self.budget.set_limit(limits.memory);
        lock(&self.queues).fifo.set_capacity(limits.memory);
        while let Some(short) = self.budget.excess()
            && self.evict(short)
        {}
    }

    /// Bytes of memory that it may have.
    pub(crate) fn memory_limit(&self) -> u64 {
        self.budget.limit()
    }

    /// Bytes that content which is kept may have, if it has so many.
    pub(crate) fn memory_for(&self, len: u64) -> u64 {
        self.budget.most(share_of(Some(len)))
    }

    /// Reserves bytes for what is small; what is least worth goes for them. `None`: nothing is left that would free enough.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<Reservation> {
        self.reserve_of(Share::Small, bytes)
    }

    /// Reserves bytes of a share; what is least worth of all, or of what is large, goes for them. `None`: nothing is left that would free enough.
    pub(crate) fn reserve_of(&self, share: Share, bytes: u64) -> Option<Reservation> {
        if bytes > self.budget.most(share) {
            return None;
        }
        loop {
            let short = match self.budget.reserve_of(share, bytes) {
                Ok(reservation) => return Some(reservation),
                Err(short) => short,
            };
            if !self.evict(short) {
                return self.budget.reserve_of(share, bytes).ok();
            }
        }
    }

    /// Reserves the first block of a content of this length. Where what is large has all of its share, as one of what is passed on.
    pub(crate) fn reserve_first(&self, len: Option<u64>, bytes: u64) -> Option<Reservation> {
        let share = share_of(len);
        let reservation = self.reserve_of(share, bytes);
        reservation
            .or_else(|| if share == Share::Large { self.reserve_of(Share::Passing, bytes) } else { None })
    }

    /// Whether a content whose length is not known would have no room if it turned out to be large, and clients hold what they may of what is small.
    pub(crate) fn is_all_held(&self) -> bool {
        self.budget.is_all_held(BLOCK as u64 + BLOCK_COST)
    }

    /// Has a content that has turned out to be large count as such. `false`: there is no room among those.
    pub(crate) fn enlarge(&self, content: &Content) -> bool {
        loop {
            if content.move_to(Share::Large) {
                return true;
            }
            if !self.evict(Short::Share) {
                return content.move_to(Share::Large);
            }
        }
    }

    /// Has one entry go, of what is large where only that would help; `false` where none may.
    fn evict(&self, short: Short) -> bool {
        let victim = {
            let mut queues = lock(&self.queues);
            let victim = match short {
                Short::Memory => queues.fifo.evict(is_idle),
                Short::Share => queues.fifo.evict_large(is_idle),
            };
            if let Some(victim) = &victim {
                victim.set_place(None);
            }
            victim
        };
        let Some(victim) = victim else { return false };
        self.unlink_where(victim.key(), |other| Arc::ptr_eq(other, &victim));
        victim.give_up();
        self.counters.evict();
        true
    }

    /// Queues a new entry.
    ///
    /// # Errors
    /// There is no room for its place.
    pub(crate) fn enqueue(&self, entry: &Arc<Entry>) -> Result<(), Unstorable> {
        let bytes = entry.bytes();
        let mut room = None;
        for _ in 0..TRIES {
            let mut queues = lock(&self.queues);
            let growth = queues.fifo.growth() as u64;
            if growth <= room.as_ref().map_or(0, Reservation::bytes) {
                queues.insert(entry, bytes, room);
                return Ok(());
            }
            drop(queues);
            drop(room.take());
            room = self.reserve(growth);
            if room.is_none() {
                break;
            }
        }
        Err(Unstorable::NoRoom)
    }

    /// Takes entries out of the queues.
    pub(crate) fn dequeue(&self, entries: &[Arc<Entry>]) {
        if entries.is_empty() {
            return;
        }
        let mut queues = lock(&self.queues);
        for entry in entries {
            if let Some(place) = entry.place() {
                entry.set_place(None);
                queues.fifo.remove(place);
            }
        }
    }

    /// An entry has more or less content than before.
    pub(crate) fn resize(&self, entry: &Arc<Entry>) {
        let bytes = entry.bytes();
        let mut queues = lock(&self.queues);
        if let Some(place) = entry.place() {
            queues.fifo.resize(place, bytes);
        }
    }
}

/// The share of a content of this length; while it is not known it is small.
fn share_of(len: Option<u64>) -> Share {
    if len.is_some_and(|len| len > BLOCK as u64) { Share::Large } else { Share::Small }
}

/// Whether nobody but index and queue has it, and nobody but it its content.
fn is_idle(entry: &Arc<Entry>) -> bool {
    Arc::strong_count(entry) <= 2 && Arc::strong_count(entry.content()) == 1
}
