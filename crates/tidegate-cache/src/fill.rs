//! Brings content into the store. Owned by the task that fetches, which is not that of any client.
//!
//! While there is room, content comes in as fast as the origin sends it, so that an application is free again soon. Where there is
//! none, and none can be made, of all or of the share for what has more than a block, the content is passed on. A disk that gets it as well sets the pace: blocks that it has are used again, and whoever is
//! slower, or comes late, reads them from its file. Without a disk it leaves the index, and blocks that all readers have behind them are
//! used again, so that each reader gets all of it, and the slowest sets the pace.
//!
//! What is dropped before it is complete is broken off, or stays as a part, where it may ([`Fill::keeps_part`]).

use crate::content::{BLOCK, BLOCK_COST, Block, Content};
use crate::entry::Entry;
use crate::figures::Counters;
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
    /// It is counted as one that is not stored.
    is_counted: bool,
    /// What has come of it may be kept without the rest.
    keeps_part: bool,
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
        let mut fill = Fill {
            store,
            entry,
            content,
            spool: None,
            is_counted: false,
            keeps_part: false,
            is_ended: false,
        };
        // Nothing has to go for what would not fit in the end.
        let is_too_large = |len| len > fill.store.memory_for(len);
        if fill.content.announced().is_some_and(is_too_large) {
            fill.pass_on(true);
        }
        fill
    }

    /// Goes on with a part.
    pub(crate) fn behind(
        store: Arc<Store>,
        entry: Arc<Entry>,
        content: Arc<Content>,
        part: &Arc<Entry>,
    ) -> Fill {
        store.counters.begin_fill();
        let spool = if content.is_passing() { Spool::resume(&store, &entry, part) } else { None };
        Fill { store, entry, content, spool, is_counted: false, keeps_part: true, is_ended: false }
    }

    /// Should the rest not come, what is here stays as a part ([`Content::is_part`]), for [`Lead::go_on`](crate::Lead::go_on). Only of a
    /// length that is known.
    pub fn keeps_part(&mut self) {
        self.keeps_part = self.content.announced().is_some();
    }

    /// Waits for room. At once while the content is stored; once it is only passed on, until the disk has written or its readers have read on: the
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
        } else if !bytes.is_empty() && self.content.is_passing() && self.content.close_unread(0) {
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
        let is_small = self.content.filled() < BLOCK as u64 && !self.content.is_large();
        if (is_small || self.is_among_large())
            && let Some(reservation) =
                self.store.reserve_of(self.content.share(), capacity as u64 + BLOCK_COST)
        {
            let make = if self.content.is_passing() { Block::passing } else { Block::new };
            self.content.add(make(self.content.filled(), capacity, reservation));
            self.store.resize(&self.entry);
            return true;
        }
        self.pass_on(true);
        self.content.recycle()
    }

    /// Whether it has room of the share of what is large, or is passed on.
    fn is_among_large(&self) -> bool {
        self.content.is_passing() || self.content.is_large() || self.store.enlarge(&self.content)
    }

    /// `is_storable`: a disk may have it.
    fn pass_on(&mut self, is_storable: bool) {
        if !is_storable {
            self.is_not_stored(Counters::outgrow);
            if let Some(spool) = self.spool.take() {
                spool.give_up();
            }
        }
        if !self.content.is_passing() {
            self.spool = if is_storable { Spool::begin(&self.store, &self.entry) } else { None };
            self.content.pass_on();
            if self.spool.is_none() {
                self.store.unlink(&self.entry);
                self.is_not_stored(Counters::pass_on);
            }
        }
    }

    /// Counts that neither the memory nor a disk gets it, once.
    fn is_not_stored(&mut self, count: fn(&Counters)) {
        if !std::mem::replace(&mut self.is_counted, true) {
            count(&self.store.counters);
        }
    }

    /// That was all. A content that is shorter than announced is broken off. One that did not fit is complete for its readers,
    /// and nobody gets it later but from a disk. Answers whether the memory has it now.
    pub fn complete(mut self) -> bool {
        let is_short = self.content.announced().is_some_and(|len| len != self.content.filled());
        if is_short {
            return false;
        }
        self.is_ended = true;
        let store = &self.store;
        let is_gone = self.entry.is_gone();
        let share = self.content.share();
        self.content.complete(|bytes| if is_gone { None } else { store.reserve_of(share, bytes) });
        self.store.counters.end_fill(true);
        let stored = self.store.completed(&self.entry).filter(|_| !self.content.is_passing());
        if let Some(entry) = &stored {
            self.store.write_behind(entry);
        }
        stored.is_some()
    }

    /// The rest will not come, and nothing of it is worth keeping: readers see an error, and the entry goes.
    pub fn break_off(mut self) {
        self.keeps_part = false;
    }

    /// What is here stays as a part, in memory and, where it is not too little, on a disk. `false`: it cannot.
    fn leave_off(&self) -> bool {
        let (filled, announced) = (self.content.filled(), self.content.announced());
        let is_part = self.keeps_part && filled > 0 && announced.is_some_and(|len| filled < len);
        if !is_part || self.entry.is_gone() || self.store.is_stored_whole(&self.entry) {
            return false;
        }
        if !self.content.is_passing() {
            self.content.leave_off();
            self.store.resize(&self.entry);
            self.store.write_part_behind(&self.entry);
            return true;
        }
        if self.content.is_for_all() {
            // The spool finds it so, and keeps what it has.
            self.content.leave_off();
            self.store.unlink(&self.entry);
            return true;
        }
        false
    }

    /// How many are reading, disks apart.
    pub fn readers(&self) -> usize {
        self.content.readers().saturating_sub(self.disks())
    }

    /// Whether it can be given up, since nobody is reading, disks apart. Then nobody begins to, but of what is here.
    pub fn close_unread(&mut self) -> bool {
        self.content.close_unread(self.disks())
    }

    fn disks(&self) -> usize {
        usize::from(self.spool.as_ref().is_some_and(|spool| !spool.is_given_up()))
    }

    /// It has waited long for room: where it is a disk that is behind, that is not waited for any more.
    pub fn give_up_slow_disk(&mut self) {
        let is_behind = self.content.written() < self.content.filled();
        if let Some(spool) = self.spool.take_if(|_| is_behind) {
            spool.give_up();
            self.is_not_stored(Counters::pass_on);
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
        if self.is_ended {
            return;
        }
        if !self.leave_off() {
            // In this order: who stores it under a new head finds it broken, or is found.
            self.content.break_off();
            self.store.unlink(&self.entry);
        }
        self.store.counters.end_fill(false);
    }
}
