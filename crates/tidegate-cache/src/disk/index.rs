//! What a disk holds, in memory: where each object is, which one goes next, and how many bytes of the disk are spoken for.
//!
//! Called by `volume` under one lock that is never held over a system call, so that a look-up waits for no disk. An object takes
//! 96 bytes at most. The index is a claim that files are held to when they are opened, and never more.
//!
//! Bytes are counted from before they are written until the file system has them back: those that a fill has reserved, those of
//! objects, those of files that are being unlinked, those of files that are unlinked and still open, and what journal and folders
//! take. Their sum never exceeds the limit, but for what the file system itself takes more than it said.

use super::{DiskEntry, Id};
use crate::s3fifo::{Place, Queued, Returned, S3Fifo, Uses};
use hashbrown::hash_map::Entry;
use hashbrown::{DefaultHashBuilder, HashMap, HashSet, HashTable};

/// Fills in a row that find only objects that are open, before one is refused.
const EVICTION_TRIES: usize = 16;
/// Withdrawals that are remembered for a scan: about 10 MiB. Beyond, nothing that it finds is taken in.
const MOST_WITHDRAWN: usize = 262_144;

/// An object: what is known of it without its file.
#[derive(Debug)]
pub(super) struct Item {
    hash: [u64; 2],
    mark: u64,
    serial: u32,
    variant: u32,
    stored_at: u32,
    uses: Uses,
    is_whole: bool,
    /// Its pieces need no comparison with their checksums.
    is_trusted: bool,
    is_open: bool,
    /// A scan has found its file, or it was made by this process.
    is_seen: bool,
}

impl Queued for Item {
    fn hash(&self) -> u64 {
        self.hash[0]
    }

    fn uses(&self) -> &Uses {
        &self.uses
    }
}

impl Item {
    fn id(&self) -> Id {
        Id { hash: join(self.hash), serial: self.serial }
    }
}

/// An object as the journal has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stored {
    pub(super) id: Id,
    pub(super) mark: u64,
    pub(super) variant: u32,
    pub(super) stored_at: u32,
    /// Bytes of the file system.
    pub(super) size: u64,
    pub(super) uses: u8,
    pub(super) is_main: bool,
    pub(super) is_whole: bool,
    pub(super) is_trusted: bool,
}

/// A file that somebody has open.
#[derive(Debug, Default)]
struct Opened {
    holders: u32,
    /// One of them fills what is missing.
    is_filled: bool,
    /// Its bytes, once it is unlinked.
    unlinked: Option<u64>,
}

/// An object that was taken out; its bytes count until [`Index::has_left`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaving {
    pub(super) id: Id,
    pub(super) size: u64,
}

/// Bytes by what they are spoken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Usage {
    pub(super) objects: u64,
    pub(super) reserved: u64,
    pub(super) leaving: u64,
    pub(super) lingering: u64,
    pub(super) overhead: u64,
}

impl Usage {
    pub(super) fn sum(&self) -> u64 {
        self.objects + self.reserved + self.leaving + self.lingering + self.overhead
    }
}

pub(super) struct Index {
    queues: S3Fifo<Item>,
    table: HashTable<u32>,
    opened: HashMap<Id, Opened, DefaultHashBuilder>,
    /// Taken out, and not unlinked yet.
    leaving: HashSet<Id, DefaultHashBuilder>,
    /// `None`: it is known what the disk holds.
    unwanted: Option<Unwanted>,
    usage: Usage,
    limit: u64,
}

/// What a scan may find and must not take in.
#[derive(Debug, Default)]
struct Unwanted {
    /// What the journal says was deleted: a power cut may have brought it back.
    removed: HashSet<Id, DefaultHashBuilder>,
    /// Keys that were withdrawn since, all of them or one variant: what the index does not know of these is older.
    withdrawn: HashSet<(u128, Option<u32>), DefaultHashBuilder>,
    is_everything: bool,
}

impl Index {
    pub(super) fn new(limit: u64) -> Index {
        Index {
            queues: S3Fifo::new(limit),
            table: HashTable::new(),
            opened: HashMap::default(),
            leaving: HashSet::default(),
            unwanted: None,
            usage: Usage::default(),
            limit,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    pub(super) fn returned(&self) -> Returned {
        self.queues.returned()
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.queues.set_capacity(limit);
    }

    pub(super) fn usage(&self) -> Usage {
        Usage { objects: self.queues.bytes(), ..self.usage }
    }

    /// Bytes of memory that the index has.
    pub(super) fn memory(&self) -> usize {
        let unwanted = self.unwanted.as_ref();
        let unwanted =
            unwanted.map_or(0, |all| all.removed.allocation_size() + all.withdrawn.allocation_size());
        self.queues.memory()
            + self.table.allocation_size()
            + self.opened.allocation_size()
            + self.leaving.allocation_size()
            + unwanted
    }

    /// It has to be found out what the disk holds, these objects aside.
    pub(super) fn is_to_be_scanned(&mut self, removed: &[Id]) {
        let removed = removed.iter().copied().collect();
        self.unwanted = Some(Unwanted { removed, ..Unwanted::default() });
    }

    /// It is known now.
    pub(super) fn has_been_scanned(&mut self) {
        self.unwanted = None;
    }

    /// What of this key, or this variant of it, a scan has still to find is worth nothing.
    pub(super) fn withdraw(&mut self, hash: u128, variant: Option<u32>) {
        let Some(unwanted) = &mut self.unwanted else { return };
        if unwanted.withdrawn.len() < MOST_WITHDRAWN {
            unwanted.withdrawn.insert((hash, variant));
        } else {
            unwanted.is_everything = true;
        }
    }

    /// Whether an object that the index does not know was withdrawn.
    pub(super) fn was_withdrawn(&self, hash: u128, variant: u32) -> bool {
        self.unwanted.as_ref().is_some_and(|unwanted| {
            unwanted.is_everything
                || unwanted.withdrawn.contains(&(hash, None))
                || unwanted.withdrawn.contains(&(hash, Some(variant)))
        })
    }

    /// Whether the journal says that an object was deleted.
    pub(super) fn was_removed(&self, id: Id) -> bool {
        self.unwanted.as_ref().is_some_and(|unwanted| unwanted.removed.contains(&id))
    }

    /// Calls `visit` with each object of this key.
    pub(super) fn visit(&self, disk: u16, hash: u128, mut visit: impl FnMut(DiskEntry)) {
        for number in self.table.iter_hash(split(hash)[0]) {
            if let Some(entry) = self.at(disk, *number)
                && entry.id.hash == hash
            {
                visit(entry);
            }
        }
    }

    /// The object in a place, for who goes through all of them.
    pub(super) fn at(&self, disk: u16, number: u32) -> Option<DiskEntry> {
        let (item, size, _) = self.queues.get(Place::of(number)?)?;
        Some(DiskEntry {
            disk,
            id: item.id(),
            mark: item.mark,
            variant: item.variant,
            stored_at: item.stored_at,
            size,
            is_whole: item.is_whole,
        })
    }

    /// As [`Index::at`], as the journal wants it.
    pub(super) fn stored_at(&self, number: u32) -> Option<Stored> {
        self.stored_in(Place::of(number)?)
    }

    /// As [`Index::stored_at`], of one object.
    pub(super) fn stored(&self, id: Id) -> Option<Stored> {
        self.stored_in(self.find(id)?)
    }

    fn stored_in(&self, place: Place) -> Option<Stored> {
        let (item, size, is_main) = self.queues.get(place)?;
        Some(Stored {
            id: item.id(),
            mark: item.mark,
            variant: item.variant,
            stored_at: item.stored_at,
            size,
            uses: item.uses.get(),
            is_main,
            is_whole: item.is_whole,
            is_trusted: item.is_trusted,
        })
    }

    /// A number above that of any place.
    pub(super) fn places(&self) -> u32 {
        self.queues.places()
    }

    /// A new object, of bytes that were reserved. One that a scan has found in the meantime is the same one.
    pub(super) fn insert(&mut self, stored: &Stored, reserved: u64) {
        self.release(reserved);
        let _ = self.take(stored.id);
        let place = self.queues.insert(item_of(stored, true), stored.size);
        self.link(stored.id, place);
    }

    /// An object that an earlier process has left.
    pub(super) fn restore(&mut self, stored: &Stored, is_seen: bool) {
        let _ = self.take(stored.id);
        let place = self.queues.restore(item_of(stored, is_seen), stored.size, stored.uses, stored.is_main);
        self.link(stored.id, place);
    }

    fn link(&mut self, id: Id, place: Place) {
        if self.opened.contains_key(&id)
            && let Some(item) = self.queues.get_mut(place)
        {
            item.is_open = true;
        }
        let queues = &self.queues;
        let hasher = |number: &u32| {
            let found = Place::of(*number).and_then(|place| queues.get(place));
            found.map_or(0, |(item, ..)| item.hash[0])
        };
        self.table.insert_unique(split(id.hash)[0], place.number(), hasher);
    }

    /// Makes room in the table for so many more at once.
    pub(super) fn expect(&mut self, more: usize) {
        let queues = &self.queues;
        self.table.reserve(more, |number| {
            let found = Place::of(*number).and_then(|place| queues.get(place));
            found.map_or(0, |(item, ..)| item.hash[0])
        });
    }

    fn find(&self, id: Id) -> Option<Place> {
        let is_it = |number: &u32| {
            let found = Place::of(*number).and_then(|place| self.queues.get(place));
            found.is_some_and(|(item, ..)| item.id() == id)
        };
        self.table.find(split(id.hash)[0], is_it).and_then(|number| Place::of(*number))
    }

    fn find_mut(&mut self, id: Id) -> Option<&mut Item> {
        let place = self.find(id)?;
        self.queues.get_mut(place)
    }

    /// A scan has come across its file; whether the index knows it, or has known it and waits for its file to go.
    pub(super) fn has_seen(&mut self, id: Id) -> bool {
        self.leaving.contains(&id) || self.find_mut(id).map(|item| item.is_seen = true).is_some()
    }

    /// Objects among these places whose file no scan has found.
    pub(super) fn unseen(&self, places: std::ops::Range<u32>) -> Vec<Id> {
        let items = places.filter_map(|number| self.queues.get(Place::of(number)?));
        items.filter(|(item, ..)| !item.is_seen && !item.is_open).map(|(item, ..)| item.id()).collect()
    }

    /// Its pieces were all compared with their checksums.
    pub(super) fn trust(&mut self, id: Id) {
        if let Some(item) = self.find_mut(id) {
            item.is_trusted = true;
        }
    }

    /// The disk has failed: nothing that was written before is trusted until it is compared.
    pub(super) fn distrust(&mut self) {
        for number in 0..self.places() {
            if let Some(item) = Place::of(number).and_then(|place| self.queues.get_mut(place)) {
                item.is_trusted = false;
            }
        }
    }

    /// Its head was replaced.
    pub(super) fn restamp(&mut self, id: Id, mark: u64, stored_at: u32) {
        if let Some(item) = self.find_mut(id) {
            (item.mark, item.stored_at) = (mark, stored_at);
        }
    }

    fn take(&mut self, id: Id) -> Option<u64> {
        let place = self.find(id)?;
        let size = self.queues.get(place).map_or(0, |(_, size, _)| size);
        self.queues.remove(place)?;
        if let Ok(entry) = self.table.find_entry(split(id.hash)[0], |number| *number == place.number()) {
            entry.remove();
        }
        Some(size)
    }

    /// Takes an object out. Its bytes count until its file is unlinked, and closed.
    pub(super) fn remove(&mut self, id: Id) -> Option<Leaving> {
        let size = self.take(id)?;
        Some(self.leave(id, size))
    }

    /// Takes out the object that is to go next. One that somebody has open gives no room, and stays.
    pub(super) fn evict(&mut self) -> Option<Leaving> {
        let (mut victim, before) = (None, self.queues.bytes());
        for _ in 0..EVICTION_TRIES {
            victim = self.queues.evict(|item| !item.is_open);
            if victim.is_some() || self.queues.is_empty() {
                break;
            }
        }
        let item = victim?;
        let size = before - self.queues.bytes();
        // Its place is empty by now, which tells it from others of the key.
        let is_empty = |number: &u32| Place::of(*number).is_none_or(|place| self.queues.get(place).is_none());
        if let Ok(entry) = self.table.find_entry(item.hash[0], is_empty) {
            entry.remove();
        }
        Some(self.leave(item.id(), size))
    }

    fn leave(&mut self, id: Id, size: u64) -> Leaving {
        self.usage.leaving += size;
        self.leaving.insert(id);
        Leaving { id, size }
    }

    /// Its file is unlinked.
    pub(super) fn has_left(&mut self, leaving: Leaving) {
        self.usage.leaving -= leaving.size;
        self.leaving.remove(&leaving.id);
        if let Some(opened) = self.opened.get_mut(&leaving.id) {
            self.usage.lingering += leaving.size;
            *opened.unlinked.get_or_insert(0) += leaving.size;
        }
    }

    /// Somebody opens an object, to use it or to look at it; `None`: there is none. Says whether its pieces are trusted.
    pub(super) fn begin_use(&mut self, id: Id, is_use: bool) -> Option<bool> {
        let item = self.find_mut(id)?;
        item.is_open = true;
        let is_trusted = item.is_trusted;
        if is_use {
            item.uses.touch();
        }
        self.opened.entry(id).or_default().holders += 1;
        Some(is_trusted)
    }

    /// Its file is closed.
    pub(super) fn end_use(&mut self, id: Id) {
        let Entry::Occupied(mut opened) = self.opened.entry(id) else { return };
        opened.get_mut().holders -= 1;
        if opened.get().holders > 0 {
            return;
        }
        self.usage.lingering -= opened.remove().unlinked.unwrap_or(0);
        if let Some(item) = self.find_mut(id) {
            item.is_open = false;
        }
    }

    /// Somebody who has it open begins to fill what is missing; whether nobody else does.
    pub(super) fn begin_filling(&mut self, id: Id) -> bool {
        let Some(opened) = self.opened.get_mut(&id) else { return false };
        !std::mem::replace(&mut opened.is_filled, true)
    }

    /// More of it is there: so many of the reserved bytes are its own now, and with them it has `size` bytes.
    pub(super) fn end_filling(&mut self, id: Id, (size, grown): (u64, u64), reserved: u64, is_whole: bool) {
        self.release(reserved);
        let place = self.find(id);
        let Some(opened) = self.opened.get_mut(&id) else { return };
        opened.is_filled = false;
        if let Some(place) = place {
            self.queues.resize(place, size);
            if let Some(item) = self.queues.get_mut(place) {
                item.is_whole |= is_whole;
            }
        } else {
            // Removed in the meantime: what was written is there until the file is closed.
            self.usage.lingering += grown;
            *opened.unlinked.get_or_insert(0) += grown;
        }
    }

    /// Speaks for bytes, if there are so many; else the caller has to evict.
    pub(super) fn reserve(&mut self, bytes: u64) -> bool {
        let fits = self.usage().sum().checked_add(bytes).is_some_and(|sum| sum <= self.limit);
        if fits {
            self.usage.reserved += bytes;
        }
        fits
    }

    /// Gives reserved bytes back.
    pub(super) fn release(&mut self, bytes: u64) {
        self.usage.reserved -= bytes;
    }

    /// Bytes that the disk's own files take now.
    pub(super) fn set_overhead(&mut self, bytes: u64) {
        self.usage.overhead = bytes;
    }
}

fn item_of(stored: &Stored, is_seen: bool) -> Item {
    Item {
        hash: split(stored.id.hash),
        mark: stored.mark,
        serial: stored.id.serial,
        variant: stored.variant,
        stored_at: stored.stored_at,
        uses: Uses::new(),
        is_whole: stored.is_whole,
        is_trusted: stored.is_trusted,
        is_open: false,
        is_seen,
    }
}

/// Two words, so that an item needs no alignment of 16.
fn split(hash: u128) -> [u64; 2] {
    [hash as u64, (hash >> 64) as u64]
}

fn join(hash: [u64; 2]) -> u128 {
    u128::from(hash[0]) | u128::from(hash[1]) << 64
}
