//! Brings content into the store. Owned by the task that fetches, which is not that of any client.
//!
//! While there is room, content comes in as fast as the origin sends it, so that an application is free again soon. Where there is
//! none, and none can be made, the content is passed on: it leaves the index, and blocks that all readers have behind them are
//! used again, so that each reader gets all of it, and the slowest sets the pace. Where there are disks, one of them is such a reader,
//! and has the content in the end.

use crate::content::{BLOCK_COST, Block, Content};
use crate::entry::Entry;
use crate::store::Store;
use crate::tier::Spool;
use std::sync::Arc;
use std::task::{Context, Poll};
use thiserror::Error;

/// The content of one response on its way in. Dropped before it is complete: broken off.
pub struct Fill {
    store: Arc<Store>,
    entry: Arc<Entry>,
    content: Arc<Content>,
    /// On its way to a disk, since the memory has no room for it.
    spool: Option<Arc<Spool>>,
    is_ended: bool,
}

/// Why a content takes no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Full {
    /// The origin sends more than it has announced.
    #[error("the content is longer than was announced")]
    Length,
    /// It does not fit into the store, and nobody reads it any more: the fetch can be given up.
    #[error("the content does not fit into the store, and nobody reads it")]
    Unread,
}

impl Fill {
    pub(crate) fn new(store: Arc<Store>, entry: Arc<Entry>, content: Arc<Content>) -> Fill {
        store.counters.begin_fill();
        let mut fill = Fill { store, entry, content, spool: None, is_ended: false };
        // Nothing has to go for what would not fit in the end.
        if fill.content.announced().is_some_and(|len| len > fill.store.memory_limit()) {
            fill.pass_on(true);
        }
        fill
    }

    /// Waits for room. At once while the content is stored; once it is only passed on, until its readers have read on: the
    /// slowest one counts, since each of them gets all of it. Afterwards [`Fill::append`] takes at least a byte, or fails.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.content.is_passing() { self.content.poll_room(cx) } else { Poll::Ready(()) }
    }

    /// Appends as much of `bytes` as there is room for, and says how much: 0 where [`Fill::poll_room`] has to be waited for.
    /// Where the store has no room left and none can be made, the content leaves the index and is from then on passed on to
    /// the readers that it has.
    ///
    /// # Errors
    /// It takes no more, and the rest of the response does not matter to anybody.
    pub fn append(&mut self, bytes: &[u8]) -> Result<usize, Full> {
        let sum = self.content.filled().saturating_add(bytes.len() as u64);
        if self.content.announced().is_some_and(|len| sum > len) {
            return Err(Full::Length);
        }
        if sum > self.store.object_limit() {
            self.pass_on(false);
        }
        let mut taken = 0;
        while taken < bytes.len() {
            let count = self.content.put(&bytes[taken..]);
            taken += count;
            if count == 0 && !self.make_room() {
                break;
            }
        }
        if taken > 0 {
            self.content.wake_readers();
        } else if !bytes.is_empty() && self.content.is_passing() && self.content.readers() == 0 {
            return Err(Full::Unread);
        }
        Ok(taken)
    }

    /// Another block, or one that is used again.
    fn make_room(&mut self) -> bool {
        if self.content.is_passing() && self.content.recycle() {
            return true;
        }
        if self.content.is_passing() && (self.content.readers() == 0 || !self.content.is_below_window()) {
            return false;
        }
        let capacity = self.content.next_block();
        if let Some(reservation) = self.store.reserve(capacity as u64 + BLOCK_COST) {
            self.content.add(Block::new(self.content.filled(), capacity, reservation));
            self.store.resize(&self.entry);
            return true;
        }
        self.pass_on(true);
        self.content.recycle()
    }

    /// `is_storable`: a disk may have it.
    fn pass_on(&mut self, is_storable: bool) {
        if !is_storable && let Some(spool) = self.spool.take() {
            spool.give_up();
        }
        if !self.content.is_passing() {
            self.spool = if is_storable { Spool::begin(&self.store, &self.entry) } else { None };
            self.content.pass_on();
            self.store.unlink(&self.entry);
            self.store.counters.pass_on();
        }
    }

    /// That was all. A content that is shorter than announced is broken off. One that did not fit is complete for its readers,
    /// and nobody gets it later. Answers whether it is stored now.
    pub fn complete(mut self) -> bool {
        let is_short = self.content.announced().is_some_and(|len| len != self.content.filled());
        if is_short {
            return false;
        }
        self.is_ended = true;
        let store = &self.store;
        let is_gone = self.entry.is_gone();
        self.content.complete(|bytes| if is_gone { None } else { store.reserve(bytes) });
        self.store.counters.end_fill(true);
        let stored = self.store.completed(&self.entry);
        if let Some(entry) = &stored {
            self.store.write_behind(entry);
        }
        stored.is_some()
    }

    /// The rest will not come: readers see an error, and the entry goes. The same as dropping it.
    pub fn break_off(self) {
        drop(self);
    }

    /// How many are reading, disks apart.
    pub fn readers(&self) -> usize {
        let is_spooled = self.spool.as_ref().is_some_and(|spool| !spool.is_given_up());
        self.content.readers().saturating_sub(usize::from(is_spooled))
    }

    /// It has waited long for room: where it is a disk that is behind, that is not waited for any more.
    pub fn give_up_slow_disk(&mut self) {
        if let Some(spool) = self.spool.take_if(|spool| spool.written() < self.content.filled()) {
            spool.give_up();
        }
    }

    /// Bytes that are in.
    pub fn filled(&self) -> u64 {
        self.content.filled()
    }

    /// Whether it is kept. `false`: it did not fit, or was purged or replaced meanwhile, and is for its readers alone.
    pub fn is_kept(&self) -> bool {
        !self.entry.is_gone()
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if !self.is_ended {
            // In this order: who stores it under a new head finds it broken, or is found.
            self.content.break_off();
            self.store.unlink(&self.entry);
            self.store.counters.end_fill(false);
        }
    }
}
