//! What is complete in memory, or a part that its origin has left off, is written to a disk behind everybody's back.
//!
//! What is larger than an eighth of the memory leaves it then.
//!
//! Bounded are the entries that wait, which stay in memory until they are written, and their bytes. Beyond, and where a disk
//! fails or has no room, an object is not written, and nobody hears of it.

use super::Tier;
use crate::content::BLOCK;
use crate::disk::layout::PIECE;
use crate::disk::{DiskEntry, DiskError, NewObject};
use crate::encoding::{Encoded, variant_of};
use crate::entry::Entry;
use crate::purge::Standing;
use crate::store::Store;
use crate::stored_file::StoredFile;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tidegate_io::blocking;
use tidegate_io::locking::lock;

/// Entries that wait at most.
const MOST_WAITING: usize = 1024;
/// Bytes of content that wait at most: so many, or a quarter of the memory.
const MOST_BYTES: u64 = 64 << 20;

/// What waits to be written.
#[derive(Default)]
pub(super) struct Waiting {
    state: Mutex<State>,
    /// It has become less.
    less: Condvar,
}

#[derive(Default)]
struct State {
    entries: usize,
    bytes: u64,
}

/// A place among those that wait, given back when it is dropped.
pub(super) struct Place {
    waiting: Arc<Waiting>,
    bytes: u64,
}

impl Waiting {
    /// `None`: too many wait.
    pub(super) fn take(self: &Arc<Self>, bytes: u64, most: u64) -> Option<Place> {
        let mut state = lock(&self.state);
        let has_room = state.entries < MOST_WAITING && state.bytes.saturating_add(bytes) <= most;
        // Alone, each may wait: else what is large would never be written.
        if !has_room && state.entries > 0 {
            return None;
        }
        state.entries += 1;
        state.bytes += bytes;
        Some(Place { waiting: self.clone(), bytes })
    }

    /// Waits until nothing waits, at most so long.
    pub(super) fn wait(&self, patience: Duration) {
        let state = lock(&self.state);
        let is_left = |state: &mut State| state.entries > 0;
        drop(self.less.wait_timeout_while(state, patience, is_left).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = lock(&self.waiting.state);
        state.entries -= 1;
        state.bytes -= self.bytes;
        drop(state);
        self.waiting.less.notify_all();
    }
}

impl Store {
    /// An entry is complete: it takes the place of what the disks have for the same requests, and is written if nothing is against it.
    pub(crate) fn write_behind(self: &Arc<Self>, entry: &Arc<Entry>) {
        let Some(tier) = self.tier.get() else { return };
        let hash = tier.hash(entry.key());
        tier.disks.withdraw(hash, Some(variant_of(&entry.head().varying)));
        self.start_writing(tier, entry, hash);
    }

    fn start_writing(self: &Arc<Self>, tier: &Tier, entry: &Arc<Entry>, hash: u128) {
        let most = MOST_BYTES.min(self.memory_limit() / 4);
        let place = tier.waiting.take(entry.content().filled(), most);
        let (Some(place), Some(disk)) = (place, tier.disks.place(hash)) else { return };
        let (store, entry) = (self.clone(), entry.clone());
        let _ = blocking::start(tier.disks.queue_key(disk), move || {
            store.write(disk, hash, &entry);
            drop(entry);
            drop(place);
        });
    }

    /// An entry is a part: it is written as far as it goes, unless the disks have all of it, be it older. It stays in memory as well.
    pub(crate) fn write_part_behind(self: &Arc<Self>, entry: &Arc<Entry>) {
        let Some(tier) = self.tier.get() else { return };
        let (hash, variant) = (tier.hash(entry.key()), variant_of(&entry.head().varying));
        let is_whole = |object: &DiskEntry| object.variant == variant && object.is_whole;
        if entry.content().filled() < PIECE || tier.newest(hash).iter().any(is_whole) {
            return;
        }
        self.start_writing(tier, entry, hash);
    }

    /// An entry has another head than the disks have it with. As long as its content comes in, or is a part in memory, what they have
    /// for the same requests may be an older one, which would be sent under this head: nothing is done then.
    pub(crate) fn refresh_on_disk(self: &Arc<Self>, entry: &Arc<Entry>) {
        let Some(tier) = self.tier.get() else { return };
        let content = entry.content();
        let place = content.file().map(StoredFile::place);
        if place.is_none() && (!content.is_complete() || content.is_passing()) {
            return;
        }
        let hash = tier.hash(entry.key());
        let variant = variant_of(&entry.head().varying);
        let objects = tier.newest(hash);
        let Some(object) = objects.into_iter().find(|object| object.variant == variant) else {
            if place.is_none() {
                self.write_behind(entry);
            }
            return;
        };
        if place.is_some_and(|place| place != Some((object.disk, object.id))) {
            return;
        }
        let Some(place) = tier.waiting.take(0, u64::MAX) else {
            return tier.disks.withdraw(hash, Some(variant));
        };
        let (store, entry) = (self.clone(), entry.clone());
        let started = blocking::start(tier.disks.queue_key(object.disk), move || {
            let Some(tier) = store.tier.get() else { return };
            let encoded = Encoded::of(entry.head());
            let head = (encoded.as_head(entry.head()), entry.born(), entry.stored());
            let is_written = tier.disks.rewrite_head(&object, entry.key(), head).is_ok();
            if !is_written || !is_stored(&entry) {
                tier.disks.remove(&object);
            }
            drop(entry);
            drop(place);
        });
        if started.is_err() {
            tier.disks.withdraw(hash, Some(variant));
        }
    }

    fn write(&self, disk: u16, hash: u128, entry: &Arc<Entry>) {
        let Some(tier) = self.tier.get() else { return };
        if !is_stored(entry) {
            return;
        }
        match tier.write(disk, hash, entry) {
            // The disk has it, and the memory is for many.
            Ok(_) if entry.content().filled() > self.memory_limit() / 8 => self.unlink(entry),
            // What memory keeps open cannot go. The next has room.
            Err(DiskError::NoRoom) => self.close_files(tier),
            _ => {}
        }
    }
}

/// Whether it is still what it was when it was to be written: an entry that waits is not evicted, only replaced, removed or
/// purged, softly too: on the disk it would be fresh again.
fn is_stored(entry: &Entry) -> bool {
    entry.check() == Standing::Current && !entry.is_gone()
}

impl Tier {
    fn write(&self, disk: u16, hash: u128, entry: &Entry) -> Result<DiskEntry, DiskError> {
        let (head, content) = (entry.head(), entry.content());
        let is_whole = content.is_complete();
        let encoded = Encoded::of(head);
        let new = NewObject {
            hash,
            key: entry.key(),
            head: encoded.as_head(head),
            variant: variant_of(&head.varying),
            mark: entry.born(),
            length: content.len(),
            now: entry.stored(),
        };
        let mut fill = self.disks.create(disk, &new)?;
        let mut buffer = vec![0; BLOCK];
        let mut position = 0;
        loop {
            match content.read_at(position, &mut buffer) {
                0 => return self.finish((disk, hash), (fill, is_whole), || is_stored(entry)),
                count => {
                    fill.write(&buffer[..count])?;
                    position += count as u64;
                }
            }
        }
    }
}
