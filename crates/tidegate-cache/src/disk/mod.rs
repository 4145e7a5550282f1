//! The disk tier: objects as files in folders, on one disk or several, each with its own limit and each failing alone.
//!
//! The store above asks [`Disks::look_up`], which touches no disk and takes no lock that is held over a system call; everything
//! else waits for a disk and is called on the blocking pool, in the queue of that disk ([`Disks::queue_key`]), so that one that stalls holds up its
//! own alone, and is done without meanwhile (`stall`). No error here is an error to a client: what cannot be stored is not stored, what cannot be read is
//! not there, and a disk that fails is out until [`Disks::tick`] finds it well again.
//!
//! What holds whatever happens to the process or the machine: bytes that are served are those that were stored, or none.
//!
//! - An object gets its name when it is complete, so a process that is killed leaves no part of one (`fill`).
//! - Each file says what it is: key, lengths and checksums are compared before it is used (`object`). What another
//!   boot of the kernel has written may have lost pages with the power; its pieces are compared with their checksums first.
//! - Nothing is synchronised with `fsync`: a cache may lose objects, and must not slow down for those it keeps.
//! - The index is read from a snapshot and a journal (`journal`), or found by a scan (`scan`) while
//!   look-ups already go by the path that derives from the hash.
//! - What was removed is gone from the index at once, and from the disk before the call returns. What was withdrawn
//!   ([`Disks::withdraw`]) is deleted with the next tick: a process that is killed before comes back with it. A power cut
//!   can bring back what was deleted some seconds ago; where the journal has come through, it is deleted anew.
//!
//! What was purged is noted in each slot ([`Disks::note_purges`]), since no purge looks at an object: a folder without its notes is emptied
//! before it is used.
//!
//! `folder` has the names and the locks, `layout` the bytes of a file, `index` what is where, `volume` all of a slot.

mod figures;
mod fill;
mod fill_file;
mod folder;
mod index;
mod inspect;
mod journal;
pub mod layout;
mod object;
mod ownership;
mod purges;
mod rewrite;
mod scan;
mod stall;
#[cfg(test)]
mod tests;
mod trouble;
mod volume;

pub use figures::DiskFigures;
pub use fill::DiskFill;
pub use fill_file::FillFile;
pub use layout::{Head, Header};
pub use object::OpenObject;
pub use ownership::{Exposed, examine_way};
pub use stall::StallNotice;
pub use trouble::{DiskError, Notice, Trouble};

use index::{Leaving, Stored};
use layout::BootId;
use purges::Admit;
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use tidegate_io::blocking::QueueKey;
use tidegate_io::locking::lock;
use volume::{Health, Volume};

/// A disk that fails is tried again after so many seconds.
const RETRY: i64 = 10;
/// Removals that a disk which is not there is told when it comes back; beyond, it is emptied.
const MOST_OWED: usize = 65_536;

/// A folder of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSettings {
    /// Where. Its parent has to be there.
    pub folder: PathBuf,
    /// Bytes that all slots of the folder may take together, as the file system counts.
    pub size: u64,
    /// Server processes: each has a slot with its share of the size.
    pub slots: u16,
}

/// Tells an object from all others of its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Id {
    /// Of the key.
    pub hash: u128,
    /// Of one object of that key.
    pub serial: u32,
}

/// An object that the index knows. What is true of it is in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskEntry {
    /// Which disk, in the order of the settings.
    pub disk: u16,
    /// Which object of it.
    pub id: Id,
    /// As [`NewObject::mark`].
    pub mark: u64,
    /// As [`NewObject::variant`].
    pub variant: u32,
    /// Unix seconds.
    pub stored_at: u32,
    /// Bytes on the disk.
    pub size: u64,
    /// No piece is missing.
    pub is_whole: bool,
}

impl DiskEntry {
    fn of(disk: u16, stored: &Stored) -> DiskEntry {
        DiskEntry {
            disk,
            id: stored.id,
            mark: stored.mark,
            variant: stored.variant,
            stored_at: stored.stored_at,
            size: stored.size,
            is_whole: stored.is_whole,
        }
    }
}

/// What is to be stored.
#[derive(Debug, Clone, Copy)]
pub struct NewObject<'a> {
    /// Of the key, with [`Disks::seed`].
    pub hash: u128,
    /// The full key.
    pub key: &'a [u8],
    /// The stored head.
    pub head: Head<'a>,
    /// Tells the variants of a key apart: a hash of the selecting fields. An object replaces the one of the same variant.
    pub variant: u32,
    /// A number of the caller's that a sweep can go by: a hash of site and host, for example.
    pub mark: u64,
    /// Of the entity, bytes, if it is known. For one that may be kept in part it has to be.
    pub length: Option<u64>,
    /// Unix seconds.
    pub now: i64,
}

/// The seed that keys are hashed with in a folder; `None`: it has none. Waits for the disk.
pub fn known_seed(folder: &Path) -> Option<u64> {
    folder::known_seed(folder)
}

/// All disks of a cache.
pub struct Disks {
    disks: Box<[Disk]>,
    context: Context,
}

/// What every disk is taken with.
struct Context {
    seed: u64,
    boot: Option<BootId>,
    admit: Box<Admit>,
}

impl fmt::Debug for Disks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.disks.iter().map(|disk| &disk.folder)).finish()
    }
}

struct Disk {
    folder: PathBuf,
    slots: u16,
    /// This process's share.
    size: AtomicU64,
    /// The settings name it no more.
    is_closed: AtomicBool,
    volume: RwLock<Option<Arc<Volume>>>,
    /// Known from the first time that it could be opened on; before, its work has a queue of its own.
    queue_key: OnceLock<QueueKey>,
    opening_key: QueueKey,
    answers: stall::Answers,
    owed: Mutex<Owed>,
    /// Locked as long as a tick takes: by nobody who must not wait.
    claim: Mutex<Claim>,
    /// Since when it is in trouble, Unix seconds; 0: it is not.
    trouble_since: AtomicI64,
}

/// What is to be done before a disk is in use.
#[derive(Debug, Default)]
struct Claim {
    trouble: Option<Trouble>,
    said: Option<Trouble>,
    tried_at: Option<i64>,
    has_surplus: bool,
}

/// What was removed while a disk was not there.
#[derive(Debug, Default)]
struct Owed {
    /// As for [`Disks::withdraw`].
    withdrawn: HashSet<(u128, Option<u32>)>,
    is_everything: bool,
}

impl Disks {
    /// Takes the folders. What cannot be had now is tried again by [`Disks::tick`]. Waits for the disks.
    pub fn open(settings: &[DiskSettings], now: i64) -> Disks {
        Disks::open_with(settings, now, |_| Some(Vec::new()))
    }

    /// The same for who notes purges. Before anything in a folder is found, `admit` is called with what was noted there (nothing in
    /// a new one) and says what is to be noted now; for `None` the folder is emptied, and it is called anew.
    pub fn open_with(
        settings: &[DiskSettings],
        now: i64,
        admit: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Disks {
        Disks::open_under(settings, now, read_boot_id(), Box::new(admit))
    }

    fn open_under(settings: &[DiskSettings], now: i64, boot: Option<BootId>, admit: Box<Admit>) -> Disks {
        // The first folder that has a seed gives it to all.
        let seed = settings.iter().find_map(|settings| known_seed(&settings.folder));
        let disks = Disks::unopened(settings, seed, boot, admit);
        for number in 0..disks.count() {
            disks.tick(number, now);
        }
        // What is wrong at the start is said by the first tick.
        disks.disks.iter().for_each(|disk| lock(&disk.claim).said = None);
        disks
    }

    /// As [`Disks::open_with`], where each folder is taken by the first [`Disks::tick`] of its disk. `seed` is one that a folder
    /// has ([`known_seed`]); `None`: none of them has one. Touches no disk.
    pub fn below(
        settings: &[DiskSettings],
        seed: Option<u64>,
        admit: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Disks {
        Disks::unopened(settings, seed, read_boot_id(), Box::new(admit))
    }

    fn unopened(
        settings: &[DiskSettings],
        seed: Option<u64>,
        boot: Option<BootId>,
        admit: Box<Admit>,
    ) -> Disks {
        let disk = |settings: &DiskSettings| Disk {
            folder: settings.folder.clone(),
            slots: settings.slots.max(1),
            size: AtomicU64::new(settings.size / u64::from(settings.slots.max(1))),
            is_closed: AtomicBool::new(false),
            volume: RwLock::new(None),
            queue_key: OnceLock::new(),
            opening_key: QueueKey::of_unknown_device(),
            answers: stall::Answers::default(),
            owed: Mutex::default(),
            claim: Mutex::new(Claim { has_surplus: true, ..Claim::default() }),
            trouble_since: AtomicI64::new(0),
        };
        let context = Context { seed: seed.unwrap_or_else(|| fastrand::u64(..)), boot, admit };
        Disks { disks: settings.iter().map(disk).collect(), context }
    }

    /// What keys have to be hashed with, so that what an earlier process has stored is found.
    pub fn seed(&self) -> u64 {
        self.context.seed
    }

    /// Disks, in use or not; each function that takes the number of one takes a smaller one.
    pub fn count(&self) -> u16 {
        self.disks.len() as u16
    }

    /// Where the work of a disk belongs in the blocking pool. Touches no disk.
    pub fn queue_key(&self, disk: u16) -> QueueKey {
        let known = |disk: &Disk| disk.queue_key.get().copied().unwrap_or(disk.opening_key);
        self.disks.get(usize::from(disk)).map_or(QueueKey::NO_DISK, known)
    }

    /// The newest object of a key. Touches no disk.
    pub fn look_up(&self, hash: u128) -> Option<DiskEntry> {
        let mut newest: Option<DiskEntry> = None;
        self.variants(hash, |entry| {
            if newest.is_none_or(|newest| newest.stored_at <= entry.stored_at) {
                newest = Some(entry);
            }
        });
        newest
    }

    /// Calls `visit` with each object of a key, in no order; it must not call into the disks. Touches no disk.
    pub fn variants(&self, hash: u128, mut visit: impl FnMut(DiskEntry)) {
        for disk in &self.disks {
            disk.with(|volume| {
                if volume.health() != Health::Out {
                    lock(&volume.index).visit(volume.disk, hash, &mut visit);
                }
            });
        }
    }

    /// Whether [`Disks::probe`] may find what [`Disks::look_up`] does not. Touches no disk.
    pub fn may_probe(&self) -> bool {
        self.disks.iter().any(Disk::may_probe)
    }

    /// The same of one disk.
    pub fn may_probe_on(&self, disk: u16) -> bool {
        self.disks.get(usize::from(disk)).is_some_and(Disk::may_probe)
    }

    /// Looks for objects of a key on a disk that is still scanned. Waits for the disk.
    pub fn probe(&self, disk: u16, hash: u128) -> Option<DiskEntry> {
        let volume = self.readable(disk).ok()?;
        volume.probe(hash).ok()?;
        let mut newest: Option<DiskEntry> = None;
        lock(&volume.index).visit(disk, hash, |entry| {
            newest = newest.filter(|newest| newest.stored_at > entry.stored_at).or(Some(entry));
        });
        newest
    }

    /// Which disk a new object goes to, by their sizes; `None`: none takes anything. Touches no disk.
    pub fn place(&self, hash: u128) -> Option<u16> {
        let is_well = |disk: &&Disk| disk.with(|volume| volume.health() == Health::Well).unwrap_or(false);
        let sizes = || self.disks.iter().enumerate().filter(|(_, disk)| is_well(disk));
        let size = |disk: &Disk| disk.size.load(Relaxed);
        let total: u128 = sizes().map(|(_, disk)| u128::from(size(disk))).sum();
        // The lower half: the upper one names the folder.
        let mut point = (u128::from(hash as u64) * total) >> 64;
        let mut last = None;
        for (number, disk) in sizes() {
            last = Some(number as u16);
            match point.checked_sub(u128::from(size(disk))) {
                Some(rest) => point = rest,
                None => break,
            }
        }
        last
    }

    /// Begins to store an object. Waits for the disk.
    ///
    /// # Errors
    /// [`DiskError::TooLarge`], [`DiskError::NoRoom`], [`DiskError::Out`], [`DiskError::System`].
    pub fn create(&self, disk: u16, new: &NewObject<'_>) -> Result<DiskFill, DiskError> {
        DiskFill::create(self.writable(disk)?, new)
    }

    /// Goes on with an object of which pieces are missing, at the first of them. Waits for the disk.
    ///
    /// # Errors
    /// [`DiskError::Busy`]: somebody else does. As [`Disks::open_object`].
    pub fn resume(&self, disk: u16, id: Id, key: &[u8]) -> Result<DiskFill, DiskError> {
        DiskFill::resume(&self.writable(disk)?, id, key)
    }

    /// Opens an object to be read, which counts as a use. Waits for the disk.
    ///
    /// # Errors
    /// [`DiskError::Gone`], [`DiskError::OtherKey`], [`DiskError::Broken`], [`DiskError::Out`], [`DiskError::System`].
    pub fn open_object(&self, entry: &DiskEntry, key: &[u8]) -> Result<OpenObject, DiskError> {
        OpenObject::open(&self.readable(entry.disk)?, entry, key)
    }

    /// Removes an object; whether it was there. Waits for the disk.
    pub fn remove(&self, entry: &DiskEntry) -> bool {
        self.volume(entry.disk).is_some_and(|volume| volume.remove(entry.id))
    }

    /// Takes the objects of a key, or the one of a variant, out of the index at once; their files go with the next tick. Touches no disk.
    pub fn withdraw(&self, hash: u128, variant: Option<u32>) {
        for disk in &self.disks {
            if disk.with(|volume| volume.withdraw(hash, variant)).is_none() {
                lock(&disk.owed).add(hash, variant);
                // Should it have come in between.
                disk.with(|volume| volume.withdraw(hash, variant));
            }
        }
    }

    /// Whether the index still knows an object. Touches no disk.
    pub fn has(&self, entry: &DiskEntry) -> bool {
        let at = self.disks.get(usize::from(entry.disk));
        at.and_then(|disk| disk.with(|volume| lock(&volume.index).stored(entry.id).is_some()))
            .unwrap_or(false)
    }

    /// Removes all objects of a key, also on disks that are not there now, as soon as they are; how many are gone. No look-up finds
    /// one any more from the beginning on; then it waits for the disks.
    pub fn forget(&self, hash: u128) -> u64 {
        let taken: Vec<_> = self.disks.iter().map(|disk| disk.take_out(hash)).collect();
        let mut removed = 0;
        for (volume, leaving) in taken.into_iter().flatten() {
            removed += leaving.len() as u64;
            volume.delete(leaving);
            removed += volume.forget(hash);
        }
        removed
    }

    /// Goes through a step of the index of a disk, from `from` (at first 0) on, `most` places, and removes the objects that
    /// `predicate` names, which must not call into the disks. Returns where to go on; `None`: it was the last step. Waits for the
    /// disk if something is removed.
    pub fn sweep(
        &self,
        disk: u16,
        from: u32,
        most: u32,
        removed: &mut u64,
        mut predicate: impl FnMut(&DiskEntry) -> bool,
    ) -> Option<u32> {
        self.volume(disk)?.sweep(from, most, removed, &mut predicate)
    }

    /// Once a second, for each disk: takes it or tries it again, writes the journal, keeps the limit and some of the file system
    /// free. Returns what an operator has to be told. Waits for the disk.
    pub fn tick(&self, disk: u16, now: i64) -> Option<Notice> {
        let at = self.disks.get(usize::from(disk))?;
        at.tick(disk, now, &self.context)
    }

    /// Looks at `most` files of a disk of which is not known yet what it holds. `true`: all is known; `false` also while the disk is
    /// out. Waits for the disk.
    pub fn scan_step(&self, disk: u16, most: u32) -> bool {
        self.readable(disk).is_ok_and(|volume| volume.scan_step(most).unwrap_or(false))
    }

    /// At the end of the process: what is known is written, so that the next one begins with it. Waits for the disk.
    pub fn save(&self, disk: u16) {
        if let Ok(volume) = self.writable(disk) {
            let _ = volume.save();
        }
    }

    /// Lets go of a disk, so that it can be unmounted: what is known is written, and nothing on it is found any more. Should it be
    /// taken again, it is emptied, since nobody told it what was removed meanwhile. Waits for the disk.
    pub fn close(&self, disk: u16) {
        let Some(at) = self.disks.get(usize::from(disk)) else { return };
        let _claim = lock(&at.claim);
        at.is_closed.store(true, Relaxed);
        let Some(volume) = at.volume() else { return };
        at.set_volume(None);
        if volume.health() == Health::Well {
            let _ = volume.save();
        }
        *lock(&at.owed) = Owed { withdrawn: HashSet::new(), is_everything: true };
    }

    /// Another size for a disk, bytes for all slots together. What is too much goes with the next ticks. One that was closed is taken
    /// again.
    pub fn set_size(&self, disk: u16, size: u64) {
        if let Some(disk) = self.disks.get(usize::from(disk)) {
            let share = size / u64::from(disk.slots);
            disk.size.store(share, Relaxed);
            disk.with(|volume| volume.set_share(share));
            disk.is_closed.store(false, Relaxed);
        }
    }

    /// What each disk holds and does. Touches no disk.
    pub fn figures(&self) -> Vec<DiskFigures> {
        self.disks.iter().map(Disk::figures).collect()
    }

    /// A disk fails.
    #[cfg(test)]
    pub(crate) fn fail(&self, disk: u16) {
        if let Some(volume) = self.volume(disk) {
            volume.fault(rustix::io::Errno::IO);
        }
    }

    /// A call to a disk seems to have been outstanding for so long.
    #[cfg(test)]
    pub(crate) fn waits(&self, disk: u16, outstanding: std::time::Duration, now: i64) -> Option<StallNotice> {
        self.disks[usize::from(disk)].judge(outstanding, now)
    }

    fn volume(&self, disk: u16) -> Option<Arc<Volume>> {
        self.disks.get(usize::from(disk))?.volume()
    }

    fn readable(&self, disk: u16) -> Result<Arc<Volume>, DiskError> {
        self.volume(disk).filter(|volume| volume.health() != Health::Out).ok_or(DiskError::Out)
    }

    fn writable(&self, disk: u16) -> Result<Arc<Volume>, DiskError> {
        self.volume(disk).filter(|volume| volume.health() == Health::Well).ok_or(DiskError::Out)
    }
}

impl Disk {
    fn with<T>(&self, look: impl FnOnce(&Volume) -> T) -> Option<T> {
        let volume = self.volume.read().unwrap_or_else(PoisonError::into_inner);
        volume.as_deref().map(look)
    }

    fn may_probe(&self) -> bool {
        let may = |volume: &Volume| volume.health() != Health::Out && !volume.is_scanned.load(Relaxed);
        self.with(may).unwrap_or(false)
    }

    fn volume(&self) -> Option<Arc<Volume>> {
        self.volume.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_volume(&self, volume: Option<Arc<Volume>>) {
        // What is dropped may close files: not under the lock.
        let before =
            std::mem::replace(&mut *self.volume.write().unwrap_or_else(PoisonError::into_inner), volume);
        drop(before);
    }

    fn tick(&self, number: u16, now: i64, context: &Context) -> Option<Notice> {
        let mut claim = lock(&self.claim);
        if self.is_closed.load(Relaxed) {
            *claim = Claim { has_surplus: true, ..Claim::default() };
            return None;
        }
        let volume = self.volume();
        let is_well = volume.as_ref().is_some_and(|volume| volume.health() == Health::Well);
        if !is_well && claim.is_due(now) {
            claim.tried_at = Some(now);
            match &volume {
                Some(volume) if !volume.slot.has_vanished() => drop(volume.try_again()),
                _ => {
                    self.set_volume(None);
                    claim.trouble =
                        self.take(number, context).err().map(|trouble| trouble.within(&self.folder));
                }
            }
        }
        let volume = self.volume();
        if let Some(volume) = &volume {
            match volume.health() {
                Health::Well => {
                    volume.examine_place(&self.folder);
                    volume.tick(self.size.load(Relaxed));
                    self.empty_surplus(&mut claim, volume);
                }
                // Ours goes first where others have filled the disk.
                Health::Full => volume.keep_free(self.size.load(Relaxed)),
                Health::Out => {}
            }
            claim.trouble = volume.trouble();
        }
        match (&claim.trouble, self.trouble_since.load(Relaxed)) {
            (None, _) => self.trouble_since.store(0, Relaxed),
            (Some(_), 0) => self.trouble_since.store(now, Relaxed),
            (Some(_), _) => {}
        }
        let is_news = claim.trouble != claim.said;
        claim.said = claim.trouble.clone();
        is_news.then(|| Notice { folder: self.folder.clone(), trouble: claim.trouble.clone() })
    }

    /// Takes a slot of the folder, and does what was owed to it.
    fn take(&self, number: u16, context: &Context) -> Result<(), Trouble> {
        let seed = context.seed;
        let (folder, known) = folder::open_folder(&self.folder, seed)?;
        if let Some(queue_key) = folder::queue_key(&folder) {
            let _ = self.queue_key.set(queue_key);
        }
        if known != seed {
            folder::write_seed(&folder, seed).map_err(|error| Trouble::system("cannot be written", error))?;
        }
        let mut volume = Volume::claim(number, &folder, self.slots, self.size.load(Relaxed), context)?;
        volume.is_stalled = self.answers.is_stalled.clone();
        self.settle_debts(&volume);
        let volume = Arc::new(volume);
        self.set_volume(Some(volume.clone()));
        // What came in between.
        self.settle_debts(&volume);
        Ok(())
    }

    fn settle_debts(&self, volume: &Volume) {
        let owed = std::mem::take(&mut *lock(&self.owed));
        if owed.is_everything {
            volume.clear();
        }
        for (hash, variant) in owed.withdrawn {
            volume.withdraw(hash, variant);
        }
    }

    /// Slots that the settings do not know any more are emptied by who has the first.
    fn empty_surplus(&self, claim: &mut Claim, volume: &Volume) {
        if !claim.has_surplus || volume.slot.number != 0 {
            return;
        }
        let Ok(folder) = folder::reopen(&self.folder) else { return };
        claim.has_surplus = !folder::Slot::empty_surplus(&folder, self.slots).unwrap_or(false);
    }

    /// Takes all objects of a key out of the index, to be deleted, or notes that they have to be.
    fn take_out(&self, hash: u128) -> Option<(Arc<Volume>, Vec<Leaving>)> {
        let Some(volume) = self.volume() else {
            lock(&self.owed).add(hash, None);
            return None;
        };
        let leaving = volume.take_out(hash);
        Some((volume, leaving))
    }
}

impl Claim {
    /// Whether it is time to try again. Somebody who may end at any moment is asked about each time.
    fn is_due(&self, now: i64) -> bool {
        let is_late = self.tried_at.is_none_or(|at| now < at || now - at >= RETRY);
        is_late || self.trouble == Some(Trouble::Owned)
    }
}

impl Owed {
    fn add(&mut self, hash: u128, variant: Option<u32>) {
        if self.withdrawn.len() < MOST_OWED {
            self.withdrawn.insert((hash, variant));
        } else {
            *self = Owed { withdrawn: HashSet::new(), is_everything: true };
        }
    }
}

/// The boot of this kernel; `None`: it does not say, and everything is compared with its checksums.
fn read_boot_id() -> Option<BootId> {
    let text = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id")).ok()?;
    let digits: String = text.trim().chars().filter(|character| *character != '-').collect();
    let number = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok()).flatten()?;
    (number != 0).then(|| number.to_be_bytes())
}
