//! The disks below the memory of a store.
//!
//! What is complete in memory is written behind (`write`); what the memory does not have is looked up in the index of the disks, which
//! touches none, and read in on a thread that may wait (`read`). What the memory has no room for goes to a disk while it comes in
//! (`spool`). What replaces an object takes it out of the index in the same moment, whether or not it is written itself. A part, of which the rest did
//! not come, takes the place of nothing that is whole.
//!
//! Purges look at no object. They are numbered, and each object has the number of the last one before it was asked for; what
//! was purged is written to each disk ([`Store::note_purges`]) before a process that comes later finds anything there.
//! So what was purged, in memory or not, by this process or one before, is compared when it is read in.

mod inspect;
mod read;
mod spool;
mod sweep;
#[cfg(test)]
mod tests;
mod write;

pub use inspect::{DiskListed, Verified};
pub use read::{Awaited, OnDisk};
pub(crate) use spool::Spool;

use crate::content::Content;
use crate::disk::{
    self, DiskEntry, DiskError, DiskFigures, DiskFill, DiskSettings, Disks, Notice, StallNotice,
};
use crate::entry::Entry;
use crate::store::Store;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use sweep::DiskSweep;
use tidegate_io::blocking::{self, QueueKey};
use tidegate_io::locking::lock;
use tidegate_io::paged;
use write::Waiting;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Files of stored content that are kept open; beyond, the first goes, and is opened again when it is asked for.
const MOST_OPEN: usize = 512;
/// Objects of a disk that are finished at the same time at most.
const FINISHING: usize = 16;
/// Files that a scan looks at each time.
const SCANNED_AT_ONCE: u32 = 64;
/// For so long a scan, and a round of the sweeper that somebody waits for, go on each second.
const AT_WORK: Duration = Duration::from_millis(200);
/// Requests that wait for a disk at most, those that have waited too long included. Beyond, it is as good as one that has nothing.
const MOST_READS: usize = 64;
/// For so long a disk that did not answer is asked for nothing, nanoseconds.
const REST: u64 = 5_000_000_000;

/// The disks of a store, and what is under way between them and the memory.
pub(crate) struct Tier {
    pub(crate) disks: Disks,
    waiting: Arc<Waiting>,
    /// Content that is in a file, the first that was opened first.
    opened: Mutex<VecDeque<Opened>>,
    /// Of each disk.
    states: Box<[DiskState]>,
}

/// A content whose file is open, and the key that it is stored under, by whatever entry.
struct Opened {
    key: Arc<[u8]>,
    content: Weak<Content>,
}

/// What is under way on a disk.
#[derive(Default)]
struct DiskState {
    /// How many purges it has noted. Held while more are noted.
    noted: Mutex<u64>,
    /// A job is to note more.
    is_noting: AtomicBool,
    /// One for each request that it is asked for.
    reads: Arc<()>,
    /// When it last answered one, and until when it is asked for none, monotonic nanoseconds.
    answered_at: AtomicU64,
    rests_until: AtomicU64,
    sweep: Mutex<DiskSweep>,
    /// Held, that of a hash, from the last look at an entry to its object's place in the index: what is replaced meanwhile must not
    /// take the place of its successor.
    finishing: [Mutex<()>; FINISHING],
}

impl DiskState {
    /// A place among those who wait for it. `None`: there are too many, or it does not answer.
    fn admit(&self, now: u64) -> Option<Arc<()>> {
        let is_asked = now >= self.rests_until.load(Relaxed) && Arc::strong_count(&self.reads) <= MOST_READS;
        is_asked.then(|| self.reads.clone())
    }

    /// A request that began to wait at `since` waits no longer.
    fn is_late(&self, since: u64, now: u64) {
        // One that is only slow has answered others.
        if self.answered_at.load(Relaxed) < since {
            self.rests_until.store(now + REST, Relaxed);
        }
    }
}

impl Tier {
    pub(crate) fn hash(&self, key: &[u8]) -> u128 {
        xxh3_128_with_seed(key, self.disks.seed())
    }

    /// Finishes an object, or keeps what there is of it, if `is_wanted` says so, before and behind it: what is asked may change all the while.
    fn finish(
        &self,
        (disk, hash): (u16, u128),
        (fill, is_whole): (DiskFill, bool),
        is_wanted: impl Fn() -> bool,
    ) -> Result<DiskEntry, DiskError> {
        let state = self.states.get(usize::from(disk)).ok_or(DiskError::Out)?;
        let _finishing = lock(&state.finishing[(hash >> 64) as usize % FINISHING]);
        if !is_wanted() {
            return Err(DiskError::Gone);
        }
        let object = if is_whole { fill.finish()? } else { fill.keep()? };
        if !is_wanted() {
            self.disks.remove(&object);
            return Err(DiskError::Gone);
        }
        Ok(object)
    }
}

impl Store {
    /// Takes folders for what the memory has no room for. Once, for a store that was made by [`Store::above_disks`]. Waits for the disks.
    pub fn open_disks(&self, settings: &[DiskSettings], now: i64) {
        let seed = settings.iter().find_map(|settings| disk::known_seed(&settings.folder));
        self.place_disks(settings, seed, now);
        let tier = self.tier.get();
        tier.iter()
            .for_each(|tier| (0..tier.disks.count()).for_each(|disk| drop(tier.disks.tick(disk, now))));
    }

    /// The same without waiting: each folder is taken by the first [`Store::tend_disk`] of its disk. `seed` is one that a folder has
    /// ([`disk::known_seed`]); `None`: none of them has one.
    pub fn place_disks(&self, settings: &[DiskSettings], seed: Option<u64>, now: i64) {
        let purges = self.purges.clone();
        let disks = Disks::below(settings, seed, move |found| purges.admit(found, now));
        let states = (0..disks.count()).map(|_| DiskState::default()).collect();
        let tier = Tier { disks, waiting: Arc::default(), opened: Mutex::default(), states };
        let _ = self.tier.set(tier);
    }

    /// Disks, in use or not; 0 until they are opened.
    pub fn disks(&self) -> u16 {
        self.tier.get().map_or(0, |tier| tier.disks.count())
    }

    /// Where the work of a disk belongs in the blocking pool.
    pub fn disk_queue(&self, disk: u16) -> QueueKey {
        self.tier.get().map_or(QueueKey::NO_DISK, |tier| tier.disks.queue_key(disk))
    }

    /// What each disk holds and does. Touches no disk.
    pub fn disk_figures(&self) -> Vec<DiskFigures> {
        self.tier.get().map(|tier| tier.disks.figures()).unwrap_or_default()
    }

    /// Another size for the disk with this folder, bytes for all slots together.
    pub fn set_disk_size(&self, folder: &Path, size: u64) {
        let Some(tier) = self.tier.get() else { return };
        let is_meant = |figures: &DiskFigures| figures.folder == folder;
        if let Some(disk) = tier.disks.figures().iter().position(is_meant) {
            tier.disks.set_size(disk as u16, size);
        }
    }

    /// The disks in use whose folder `is_named` does not know. Touches no disk.
    pub fn disks_beside(&self, is_named: impl Fn(&Path) -> bool) -> Vec<u16> {
        let figures = self.disk_figures();
        let is_beside = |figures: &DiskFigures| !figures.is_closed && !is_named(&figures.folder);
        (0..).zip(&figures).filter(|(_, figures)| is_beside(figures)).map(|(disk, _)| disk).collect()
    }

    /// Lets go of a disk that the settings name no more, with the files that are open: see [`Disks::close`]. Waits for the disk.
    pub fn close_disk(&self, disk: u16) {
        let Some(tier) = self.tier.get() else { return };
        tier.disks.close(disk);
        self.close_files(tier);
    }

    /// Once a second, for each disk: see [`Disks::tick`]. Returns what an operator has to be told. Waits for the disk.
    pub fn tend_disk(&self, disk: u16, now: i64) -> Option<Notice> {
        let tier = self.tier.get()?;
        let notice = tier.disks.tick(disk, now);
        let end = Instant::now() + AT_WORK;
        while !tier.disks.scan_step(disk, SCANNED_AT_ONCE) && tier.disks.is_read(disk) && Instant::now() < end
        {
        }
        let end = Instant::now() + self.sweep_time(disk);
        while self.sweep_disk(disk) && Instant::now() < end {}
        self.note_purges_on(disk);
        notice
    }

    /// Whether what a disk has can be read now, as far as is known. Touches no disk.
    pub fn is_disk_read(&self, disk: u16) -> bool {
        self.tier.get().is_some_and(|tier| tier.disks.is_read(disk))
    }

    /// Whether a disk does not answer. Touches no disk.
    pub fn is_disk_stalled(&self, disk: u16) -> bool {
        self.tier.get().is_some_and(|tier| tier.disks.is_stalled(disk))
    }

    /// Once a second, for each disk: whether it answers, see [`Disks::watch`]. Who has waited for an open file of it for so long hears of an
    /// error. Touches no disk.
    pub fn watch_disk(&self, disk: u16, now: i64, patience: Duration) -> Option<StallNotice> {
        let tier = self.tier.get()?;
        paged::give_up(tier.disks.queue_key(disk).device, patience);
        tier.disks.watch(disk, now)
    }

    /// At the end of the process, for each disk: what waits to be written is, unless that takes too long, and what is known of the disk, so
    /// that the next process begins with it. Waits for the disk.
    pub fn save_disk(&self, disk: u16, patience: Duration) {
        let Some(tier) = self.tier.get() else { return };
        tier.waiting.wait(patience);
        self.note_purges_on(disk);
        tier.disks.save(disk);
    }

    /// Has all disks note what was purged, soon.
    pub(crate) fn note_purges(self: &Arc<Self>) {
        let Some(tier) = self.tier.get() else { return };
        for (disk, state) in (0..).zip(&tier.states) {
            if state.is_noting.swap(true, SeqCst) {
                continue;
            }
            let store = self.clone();
            // Where it is not started, the disk is told when it is tended.
            let _ = blocking::start(tier.disks.queue_key(disk), move || store.note_purges_on(disk));
        }
    }

    /// Has a disk note what was purged, where it has not yet: from then on it holds whatever happens to the process and the machine.
    /// Waits for the disk.
    pub fn note_purges_on(&self, disk: u16) {
        let Some(tier) = self.tier.get() else { return };
        let Some(state) = tier.states.get(usize::from(disk)) else { return };
        let mut noted = lock(&state.noted);
        // Under the lock: one more job at most waits for it, however many purges there are.
        state.is_noting.store(false, SeqCst);
        let count = self.purges.count();
        if *noted != count && tier.disks.note_purges(disk, &self.purges.to_bytes()).is_ok() {
            *noted = count;
        }
    }

    /// Takes a key off the disks.
    pub(crate) fn withdraw(&self, key: &[u8]) {
        if let Some(tier) = self.tier.get() {
            tier.disks.withdraw(tier.hash(key), None);
        }
    }

    /// A file was opened, which stays open with its entry. The oldest goes where there are too many.
    fn keep_open(&self, tier: &Tier, entry: &Arc<Entry>) {
        let oldest = {
            let mut opened = lock(&tier.opened);
            opened.push_back(Opened { key: entry.shared_key(), content: Arc::downgrade(entry.content()) });
            if opened.len() > MOST_OPEN { opened.pop_front() } else { None }
        };
        oldest.iter().for_each(|oldest| self.close(oldest));
    }

    /// Lets go of files, so that a disk can have their room.
    fn close_files(&self, tier: &Tier) {
        let opened = std::mem::take(&mut *lock(&tier.opened));
        opened.iter().for_each(|opened| self.close(opened));
    }

    fn close(&self, opened: &Opened) {
        if let Some(content) = opened.content.upgrade() {
            self.unlink_content(&opened.key, &content);
        }
    }
}
