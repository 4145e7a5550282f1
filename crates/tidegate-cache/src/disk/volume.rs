//! One slot of one disk that is in use: its index, its journal, its bytes, and what has gone wrong with it.
//!
//! Called by `Disk` and by the fills and objects that belong to it, which keep it alive. The index has a lock that is never held over
//! a system call, the journal has one that is: only threads that may wait take that.
//!
//! Room is made before bytes are written: victims are unlinked, then their bytes are given to whoever asked. Nobody is
//! told of a disk's errors: the object is not stored, or is not there, and the disk is out until a try succeeds.

use super::folder::{self, Slot, size_of};
use super::index::{Index, Leaving, Stored};
use super::journal::{self, Journal, Record};
use super::layout::BootId;
use super::purges;
use super::scan::Scan;
use super::{Context, DiskEntry, DiskError, Id, Trouble};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tidegate_io::locking::lock;

/// Objects that are evicted at a time to get below the limit again, and places that a snapshot copies under the lock.
pub(super) const STEP: u32 = 1024;
/// Of the file system, so much stays free for others, whichever is less.
const FREE_PART: u64 = 50;
const FREE_BYTES: u64 = 512 << 20;
/// Bytes of the journal that wait at most.
const PENDING: usize = 64 << 10;
/// Blocks of files and folders that are always there.
const FIXED_BLOCKS: u64 = 29;
/// Folders whose bytes are asked for in a tick, after a start.
const WEIGHED: u16 = 256;

/// What a volume can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Health {
    /// Reads and writes.
    Well,
    /// Reads; it takes nothing more for now.
    Full,
    /// Nothing.
    Out,
}

/// What has happened on a disk since it was claimed.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) stored: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) broken: AtomicU64,
    pub(super) faults: AtomicU64,
    pub(super) no_room: AtomicU64,
}

pub(super) struct Volume {
    pub(super) disk: u16,
    pub(super) slot: Slot,
    pub(super) boot: Option<BootId>,
    /// Of the folder, in the settings.
    slots: u16,
    /// Bytes that the other slots took when they were last asked about, and what they were told of this one.
    others: AtomicU64,
    noted: AtomicU64,
    /// The unit in which the file system gives out space, bytes.
    block: u64,
    pub(super) index: Mutex<Index>,
    journal: Mutex<Journal>,
    /// Held shared from an object's record in the journal to its place in the index, so that no snapshot is taken in between.
    publishing: RwLock<()>,
    /// Held by who makes a snapshot.
    saving: Mutex<()>,
    /// Held by who writes the header of an object that others may read.
    pub(super) rewriting: Mutex<()>,
    pub(super) scan: Mutex<Option<Scan>>,
    pub(super) is_scanned: AtomicBool,
    /// Whether the file system knows files without a name; found out by the first.
    knows_unnamed: AtomicBool,
    health: AtomicU8,
    /// Its disk does not answer: see `stall`.
    pub(super) is_stalled: Arc<AtomicBool>,
    trouble: Mutex<Option<Trouble>>,
    /// It has failed: what was written behind may be lost, whichever boot has written it.
    pub(super) is_doubted: AtomicBool,
    /// Bytes of each folder of objects.
    folders: Mutex<Box<[u32]>>,
    folder_bytes: AtomicU64,
    /// The first folder whose bytes are a guess.
    weighed: AtomicU16,
    /// Deleted from the index, and not yet from the disk.
    owed: Mutex<Vec<Leaving>>,
    /// Bytes of the notes of purges, twice: while they are written, there are two of them.
    purge_bytes: AtomicU64,
    /// What was purged could not be written: there are no notes.
    is_spoilt: AtomicBool,
    pub(super) counts: Counts,
}

impl Volume {
    /// Takes a slot and reads what an earlier process has left there.
    pub(super) fn claim(
        disk: u16,
        folder: &OwnedFd,
        slots: u16,
        limit: u64,
        context: &Context,
    ) -> Result<Volume, Trouble> {
        let boot = context.boot;
        let slot = Slot::claim(folder, slots, context.seed)?;
        let noted = purges::admit(&slot, &context.admit)?;
        let stat = rustix::fs::fstatvfs(folder)
            .map_err(|error| Trouble::system("cannot be asked for its size", error))?;
        let mut found = journal::read(slot.folder(), boot);
        found.is_whole |= slot.is_new;
        let mut index = Index::new(limit);
        index.expect(found.stored.len());
        found.stored.iter().for_each(|stored| index.restore(stored, found.is_whole));
        let scan = (!found.is_whole).then(Scan::new);
        if scan.is_some() {
            index.is_to_be_scanned(&found.removed);
        }
        let journal = Journal::begin(slot.folder(), boot, &found);
        let journal = journal.map_err(|error| Trouble::system("cannot be written", error))?;
        let volume = Volume {
            disk,
            slot,
            boot,
            slots,
            others: AtomicU64::new(0),
            noted: AtomicU64::new(u64::MAX),
            block: stat.f_frsize.clamp(512, 1 << 20),
            index: Mutex::new(index),
            journal: Mutex::new(journal),
            publishing: RwLock::new(()),
            saving: Mutex::new(()),
            rewriting: Mutex::new(()),
            is_scanned: AtomicBool::new(scan.is_none()),
            scan: Mutex::new(scan),
            knows_unnamed: AtomicBool::new(true),
            health: AtomicU8::new(Health::Well as u8),
            is_stalled: Arc::default(),
            trouble: Mutex::new(None),
            is_doubted: AtomicBool::new(false),
            folders: Mutex::new(vec![0; folder::FOLDERS as usize].into_boxed_slice()),
            folder_bytes: AtomicU64::new(0),
            weighed: AtomicU16::new(0),
            owed: Mutex::new(Vec::new()),
            purge_bytes: AtomicU64::new(2 * noted),
            is_spoilt: AtomicBool::new(false),
            counts: Counts::default(),
        };
        volume.guess_folders();
        volume.settle(&lock(&volume.journal), 0);
        volume.compare_with_others();
        volume.set_share(limit);
        Ok(volume)
    }

    /// Whether it reads and writes.
    pub(super) fn health(&self) -> Health {
        match self.health.load(Relaxed) {
            _ if self.is_stalled.load(Relaxed) => Health::Out,
            0 => Health::Well,
            1 => Health::Full,
            _ => Health::Out,
        }
    }

    /// Whether what this boot has written need not be compared with its checksums.
    pub(super) fn trusts(&self, boot: BootId) -> bool {
        self.boot == Some(boot) && !self.is_doubted.load(Relaxed)
    }

    /// Why it is not well.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        lock(&self.trouble).clone()
    }

    /// Bytes of a file of so many, as the file system counts.
    pub(super) fn blocks(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.block)
    }

    /// Takes note of an error of the disk, and says what becomes of the object.
    pub(super) fn fault(&self, error: Errno) -> DiskError {
        let (health, trouble) = match error {
            // Of this process, and not of the disk.
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR => {
                return DiskError::System(error.into());
            }
            Errno::NOSPC | Errno::DQUOT => (Health::Full, Trouble::system("is full", error)),
            Errno::FBIG => (Health::Full, Trouble::system("takes no file of that size", error)),
            Errno::ROFS => (Health::Full, Trouble::system("cannot be written any more", error)),
            Errno::NOENT if self.slot.has_vanished() => (Health::Out, Trouble::system("has vanished", error)),
            error => (Health::Out, Trouble::system("fails", error)),
        };
        self.counts.faults.fetch_add(1, Relaxed);
        if self.health.fetch_max(health as u8, Relaxed) < health as u8 {
            *lock(&self.trouble) = Some(trouble);
            if health == Health::Out {
                self.is_doubted.store(true, Relaxed);
                lock(&self.index).distrust();
            }
        }
        DiskError::Out
    }

    /// Tries a disk that is not well. `true`: it is again.
    pub(super) fn try_again(&self) -> bool {
        if let Err(error) = self.slot.try_writing() {
            self.fault(error);
            return false;
        }
        let owed = std::mem::take(&mut *lock(&self.owed));
        self.health.store(Health::Well as u8, Relaxed);
        *lock(&self.trouble) = None;
        self.delete(owed);
        self.health() == Health::Well
    }

    /// Speaks for bytes, and makes room where there is none.
    ///
    /// # Errors
    /// [`DiskError::NoRoom`]: nothing is left that may go.
    pub(super) fn reserve(&self, bytes: u64) -> Result<(), DiskError> {
        let bytes = self.blocks(bytes);
        loop {
            let mut victims = Vec::new();
            {
                let mut index = lock(&self.index);
                if index.reserve(bytes) {
                    return Ok(());
                }
                let usage = index.usage();
                let mut wanted = (usage.sum() + bytes).saturating_sub(index.limit());
                // What cannot be had costs nothing that is there.
                if wanted > usage.objects {
                    wanted = 0;
                }
                while wanted > 0 && victims.len() < STEP as usize {
                    let Some(victim) = index.evict() else { break };
                    wanted = wanted.saturating_sub(victim.size);
                    victims.push(victim);
                }
            }
            if victims.is_empty() {
                self.counts.no_room.fetch_add(1, Relaxed);
                return Err(DiskError::NoRoom);
            }
            self.counts.evicted.fetch_add(victims.len() as u64, Relaxed);
            self.delete(victims);
            if self.health() != Health::Well {
                return Err(DiskError::Out);
            }
        }
    }

    /// Unlinks what was taken out of the index and gives its bytes back. What the disk keeps is owed.
    pub(super) fn delete(&self, victims: Vec<Leaving>) {
        let mut deleted = Vec::with_capacity(victims.len());
        let mut owed = Vec::new();
        for victim in victims {
            let is_out = self.health() == Health::Out;
            let unlinked = if is_out { Err(Errno::IO) } else { self.slot.unlink(victim.id) };
            match unlinked {
                Ok(()) => deleted.push(victim),
                Err(error) => {
                    owed.push(victim);
                    if !is_out {
                        self.fault(error);
                    }
                }
            }
        }
        lock(&self.owed).append(&mut owed);
        let mut index = lock(&self.index);
        deleted.iter().for_each(|victim| index.has_left(*victim));
        drop(index);
        let mut journal = lock(&self.journal);
        deleted.iter().for_each(|victim| journal.note(&Record::Removed(victim.id)));
    }

    /// Takes an object out and deletes it; whether it was there.
    pub(super) fn remove(&self, id: Id) -> bool {
        let leaving = lock(&self.index).remove(id);
        let is_there = leaving.is_some();
        self.delete(leaving.into_iter().collect());
        self.flush_if_much();
        is_there
    }

    /// Removes all objects of a key, those that a scan has not found yet included.
    pub(super) fn forget(&self, hash: u128) -> u64 {
        let _ = self.probe(hash);
        let leaving = self.take_out(hash);
        let count = leaving.len() as u64;
        self.delete(leaving);
        self.flush_if_much();
        count
    }

    /// Takes all objects of a key out of the index. Touches no disk.
    pub(super) fn take_out(&self, hash: u128) -> Vec<Leaving> {
        let mut index = lock(&self.index);
        index.withdraw(hash, None);
        let mut named = Vec::new();
        index.visit(self.disk, hash, |entry| named.push(entry.id));
        named.into_iter().filter_map(|id| index.remove(id)).collect()
    }

    /// Takes objects of a key out of the index; their files go with the next tick. What a scan has still to find goes when it does.
    pub(super) fn withdraw(&self, hash: u128, variant: Option<u32>) {
        let mut leaving: Vec<Leaving> = {
            let mut index = lock(&self.index);
            index.withdraw(hash, variant);
            let mut named = Vec::new();
            index.visit(self.disk, hash, |entry| {
                if variant.is_none_or(|variant| variant == entry.variant) {
                    named.push(entry.id);
                }
            });
            named.into_iter().filter_map(|id| index.remove(id)).collect()
        };
        if !leaving.is_empty() {
            lock(&self.owed).append(&mut leaving);
        }
    }

    /// What the index has of an object is to be this.
    pub(super) fn restamp(&self, id: Id, mark: u64, stored_at: u32) {
        let stored = {
            let mut index = lock(&self.index);
            index.restamp(id, mark, stored_at);
            index.stored(id)
        };
        if let Some(stored) = stored {
            self.note(&stored);
        }
    }

    /// Writes what was purged, or takes away what was written before.
    pub(super) fn note_purges(&self, notes: &[u8]) -> Result<(), DiskError> {
        let noted = match self.health() {
            Health::Out => Err(DiskError::Out),
            Health::Well | Health::Full => self.write_purges(notes),
        };
        // Tried until it succeeds, but no more than that: the next process finds none.
        let is_spoilt = noted.is_err() && (self.is_spoilt.load(Relaxed) || purges::spoil(&self.slot).is_ok());
        self.is_spoilt.store(is_spoilt, Relaxed);
        noted
    }

    fn write_purges(&self, notes: &[u8]) -> Result<(), DiskError> {
        let bytes = 2 * notes.len() as u64;
        // Also where nothing can go to make room: a purge holds in any case.
        let reserved = self.reserve(bytes).map_or(0, |()| bytes);
        let written = purges::write(&self.slot, notes);
        self.purge_bytes.store(bytes, Relaxed);
        self.settle(&lock(&self.journal), reserved);
        written.map_err(|error| self.fault(error))
    }

    /// Removes everything, found or not.
    pub(super) fn clear(&self) {
        while !self.scan_step(STEP).unwrap_or(true) {}
        let (mut from, mut removed) = (Some(0), 0);
        while let Some(place) = from {
            from = self.sweep(place, STEP, &mut removed, &mut |_| true);
        }
    }

    /// An object whose bytes are not what they were when it was stored.
    pub(super) fn remove_broken(&self, id: Id) {
        if self.remove(id) {
            self.counts.broken.fetch_add(1, Relaxed);
        }
    }

    /// What an object is now, for the journal.
    pub(super) fn note(&self, stored: &Stored) {
        lock(&self.journal).note(&Record::Stored(*stored));
    }

    fn flush_if_much(&self) {
        if lock(&self.journal).pending() > PENDING {
            let _ = self.write_journal(&[]);
        }
    }

    /// Writes records, and before them what waits.
    pub(super) fn write_journal(&self, records: &[Record]) -> Result<(), DiskError> {
        // Before the lock: making room notes what it removes. What merely waits is written also where there is none.
        let waiting = lock(&self.journal).pending();
        let mut bytes = (waiting + (records.len() + 2) * journal::RECORD) as u64;
        if let Err(error) = self.reserve(bytes) {
            if !records.is_empty() {
                return Err(error);
            }
            bytes = 0;
        }
        let mut journal = lock(&self.journal);
        records.iter().for_each(|record| journal.note(record));
        let written = journal.flush();
        self.settle(&journal, bytes);
        drop(journal);
        written.map_err(|error| self.fault(error))
    }

    /// Bytes that journal, snapshot and folders take, the sixteen upper folders and what marks the folder as ours included.
    fn overhead(&self, journal: u64) -> u64 {
        self.blocks(journal)
            + self.blocks(self.purge_bytes.load(Relaxed))
            + FIXED_BLOCKS * self.block
            + self.folder_bytes.load(Relaxed)
    }

    /// Bytes that were reserved for journal, snapshot or folders are theirs now, as many as they take.
    fn settle(&self, journal: &Journal, reserved: u64) {
        let overhead = self.overhead(journal.bytes());
        let mut index = lock(&self.index);
        index.release(self.blocks(reserved));
        index.set_overhead(overhead);
    }

    /// Folders that are there take a block at least. What they take really, `tick` finds out by and by, since each has to
    /// be asked for.
    fn guess_folders(&self) {
        let block = self.block as u32;
        let there = self.slot.folders();
        let mut folders = lock(&self.folders);
        there.into_iter().for_each(|number| folders[usize::from(number)] = block);
        self.folder_bytes.store(folders.iter().map(|size| u64::from(*size)).sum(), Relaxed);
    }

    fn weigh_folders(&self) {
        let first = self.weighed.load(Relaxed);
        let end = (first + WEIGHED).min(folder::FOLDERS);
        (first..end).for_each(|number| self.weigh_folder(u128::from(number) << 116));
        self.weighed.store(end, Relaxed);
    }

    /// A name was made in the folder of this hash, which may have become larger.
    pub(super) fn weigh_folder(&self, hash: u128) {
        let size = u32::try_from(self.slot.folder_size(hash)).unwrap_or(u32::MAX);
        let before = {
            let mut folders = lock(&self.folders);
            std::mem::replace(&mut folders[usize::from(folder::folder_number(hash))], size)
        };
        if size == before {
            return;
        }
        // It has grown already: where nothing can go, that is how it is.
        let grown = u64::from(size.saturating_sub(before));
        let reserved = self.reserve(grown).map_or(0, |()| grown);
        self.folder_bytes.fetch_add(u64::from(size), Relaxed);
        self.folder_bytes.fetch_sub(u64::from(before), Relaxed);
        self.settle(&lock(&self.journal), reserved);
    }

    /// A file to write an object into.
    pub(super) fn create(&self, id: Id) -> Result<folder::Unnamed, DiskError> {
        let unnamed =
            self.slot.create(id, self.knows_unnamed.load(Relaxed)).map_err(|error| self.fault(error))?;
        if unnamed.is_temporary() {
            self.knows_unnamed.store(false, Relaxed);
        }
        Ok(unnamed)
    }

    /// Gives a file its name and its place in the index. `reserved` is given back. `is_read`: somebody has it open, who is its holder
    /// afterwards.
    pub(super) fn publish(
        &self,
        file: &folder::Unnamed,
        stored: &Stored,
        reserved: u64,
        is_read: bool,
    ) -> Result<(), DiskError> {
        let publishing = self.publishing.read().unwrap_or_else(PoisonError::into_inner);
        // Where the first is not written it still waits to be: it is taken back all the same.
        let named = self
            .write_journal(&[Record::Stored(*stored)])
            .and_then(|()| self.slot.name(file, stored.id).map_err(|error| self.fault(error)));
        if let Err(error) = named {
            lock(&self.journal).note(&Record::Removed(stored.id));
            return Err(error);
        }
        let older = {
            let mut index = lock(&self.index);
            let mut older = Vec::new();
            index.visit(self.disk, stored.id.hash, |entry| {
                if entry.variant == stored.variant && entry.id != stored.id {
                    older.push(entry.id);
                }
            });
            index.withdraw(stored.id.hash, Some(stored.variant));
            index.insert(stored, reserved);
            if is_read {
                let _ = index.begin_use(stored.id, false);
            }
            older.into_iter().filter_map(|id| index.remove(id)).collect()
        };
        drop(publishing);
        self.delete(older);
        self.counts.stored.fetch_add(1, Relaxed);
        self.weigh_folder(stored.id.hash);
        Ok(())
    }

    /// What a file takes of the disk: what its bytes need, and what the file system adds to that. It is not believed more than a
    /// little, since some tell of space that they take back when the file is closed.
    pub(super) fn size_on_disk(&self, file: &OwnedFd, needed: u64) -> u64 {
        let told = size_of(file).map_or(needed, |(_, blocks)| blocks);
        told.clamp(needed, needed + needed / 64 + 2 * self.block)
    }

    /// Once a second: writes the journal, compares with what the file system has left, makes a snapshot where it pays.
    pub(super) fn tick(&self, limit: u64) {
        let owed = std::mem::take(&mut *lock(&self.owed));
        self.delete(owed);
        self.compare_with_others();
        self.keep_free(limit);
        self.weigh_folders();
        let (is_long, has_pending) = {
            let objects = lock(&self.index).len();
            let journal = lock(&self.journal);
            (journal.is_long(objects), journal.pending() > 0)
        };
        if has_pending {
            let _ = self.write_journal(&[]);
        }
        if is_long && self.is_scanned.load(Relaxed) {
            let _ = self.save();
        }
    }

    /// The limit is that of the settings, or less where others have filled the file system.
    pub(super) fn keep_free(&self, limit: u64) {
        let limit = match rustix::fs::fstatvfs(self.slot.folder()) {
            Ok(stat) => {
                let total = stat.f_blocks.saturating_mul(stat.f_frsize);
                let free = stat.f_bavail.saturating_mul(stat.f_frsize);
                let used = lock(&self.index).usage().sum();
                limit.min((used + free).saturating_sub(FREE_BYTES.min(total / FREE_PART)))
            }
            Err(error) => {
                self.fault(error);
                return;
            }
        };
        self.set_share(limit);
        self.shrink();
    }

    /// Has a folder that was deleted or replaced be out, also while nothing is written: whoever opens its files finds none.
    pub(super) fn examine_place(&self, folder: &Path) {
        if !self.slot.lies_at(folder) {
            self.slot.is_elsewhere.store(true, Relaxed);
            self.fault(Errno::NOENT);
        }
    }

    /// The limit is this share of the size, or what other slots leave of the whole: after a change of `processes` some have more than
    /// their share until they have shrunk.
    pub(super) fn set_share(&self, share: u64) {
        let size = share.saturating_mul(u64::from(self.slots.max(1)));
        let left = size.saturating_sub(self.others.load(Relaxed));
        lock(&self.index).set_limit(share.min(left));
    }

    /// Notes what this slot takes and reads what the others do. It may be a second old: so long two that grow at once do not know of
    /// each other.
    fn compare_with_others(&self) {
        let used = lock(&self.index).usage().sum();
        if self.noted.load(Relaxed) != used && self.slot.note_used(used).is_ok() {
            self.noted.store(used, Relaxed);
        }
        if let Ok(others) = self.slot.used_by_others() {
            self.others.store(others, Relaxed);
        }
    }

    /// Evicts, at most [`STEP`] objects, until the limit holds.
    pub(super) fn shrink(&self) {
        let mut victims = Vec::new();
        {
            let mut index = lock(&self.index);
            let mut excess = index.usage().sum().saturating_sub(index.limit());
            while excess > 0 && victims.len() < STEP as usize {
                let Some(victim) = index.evict() else { break };
                excess = excess.saturating_sub(victim.size);
                victims.push(victim);
            }
        }
        self.counts.evicted.fetch_add(victims.len() as u64, Relaxed);
        self.delete(victims);
    }

    /// Makes a snapshot of the index, after which the journal is short.
    pub(super) fn save(&self) -> Result<(), DiskError> {
        let _saving = lock(&self.saving);
        let bytes = journal::snapshot_length(lock(&self.index).len() + STEP as usize);
        self.reserve(bytes)?;
        let saved = self.write_snapshot();
        self.settle(&lock(&self.journal), bytes);
        saved.map_err(|error| self.fault(error))
    }

    fn write_snapshot(&self) -> rustix::io::Result<()> {
        let is_partial = !self.is_scanned.load(Relaxed);
        let mut snapshot = lock(&self.journal).turn(self.slot.folder(), is_partial)?;
        // What the journals before know is in the index once those who wrote it are through.
        self.wait_for_publishers();
        let mut place = 0;
        loop {
            {
                let index = lock(&self.index);
                if place >= index.places() {
                    break;
                }
                let places = place..(place + STEP).min(index.places());
                places.filter_map(|place| index.stored_at(place)).for_each(|stored| snapshot.add(&stored));
            }
            place += STEP;
            snapshot.flush()?;
        }
        let bytes = snapshot.finish(self.slot.folder())?;
        lock(&self.journal).has_snapshot(self.slot.folder(), bytes);
        Ok(())
    }

    /// Goes through some places of the index and removes what `predicate` names; `None`: that was the last.
    pub(super) fn sweep(
        &self,
        from: u32,
        most: u32,
        removed: &mut u64,
        predicate: &mut dyn FnMut(&DiskEntry) -> bool,
    ) -> Option<u32> {
        let (victims, end) = {
            let mut index = lock(&self.index);
            let end = from.saturating_add(most.max(1)).min(index.places());
            let named: Vec<Id> = (from..end)
                .filter_map(|place| index.at(self.disk, place))
                .filter(|entry| predicate(entry))
                .map(|entry| entry.id)
                .collect();
            let victims: Vec<Leaving> = named.into_iter().filter_map(|id| index.remove(id)).collect();
            (victims, (end < index.places()).then_some(end))
        };
        *removed += victims.len() as u64;
        self.delete(victims);
        self.flush_if_much();
        end
    }

    /// Waits for objects that have their name and not yet their place in the index.
    pub(super) fn wait_for_publishers(&self) {
        drop(self.publishing.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// An object that a scan or a probe has come across: taken into the index if it is one.
    pub(super) fn adopt(&self, id: Id) -> Result<(), DiskError> {
        let stored = match self.examine(id) {
            Ok(stored) => stored,
            Err(DiskError::Broken(_)) => {
                self.counts.broken.fetch_add(1, Relaxed);
                return self.slot.unlink(id).map_err(|error| self.fault(error));
            }
            Err(DiskError::Gone) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut index = lock(&self.index);
        if index.has_seen(id) {
            return Ok(());
        }
        if index.was_withdrawn(id.hash, stored.variant) {
            drop(index);
            return self.slot.unlink(id).map_err(|error| self.fault(error));
        }
        index.restore(&stored, true);
        drop(index);
        self.note(&stored);
        Ok(())
    }

    fn examine(&self, id: Id) -> Result<Stored, DiskError> {
        let read = super::object::read_file(self, id)?;
        let header = read.header();
        Ok(Stored {
            id,
            mark: header.mark,
            variant: header.variant,
            stored_at: header.stored_at,
            size: size_of(&read.file).map_or(0, |(_, blocks)| blocks),
            uses: 0,
            is_main: false,
            is_whole: header.is_whole,
            is_trusted: self.trusts(header.boot),
        })
    }
}

/// Keeps a volume's index informed that a file is open.
pub(super) struct Holder {
    pub(super) volume: Arc<Volume>,
    pub(super) id: Id,
}

impl Drop for Holder {
    fn drop(&mut self) {
        lock(&self.volume.index).end_use(self.id);
    }
}
