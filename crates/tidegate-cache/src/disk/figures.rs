//! What a disk tells of itself. Asks no disk, and waits for no tick: somebody looks each second.

use super::volume::Health;
use super::{Disk, Trouble};
use crate::s3fifo::Returned;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_io::locking::lock;

/// What a disk holds and does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskFigures {
    /// Which disk.
    pub folder: PathBuf,
    /// Why it takes nothing.
    pub trouble: Option<Trouble>,
    /// It does not answer, which is the trouble then.
    pub is_stalled: bool,
    /// What of it is found on it is served.
    pub is_read: bool,
    /// Which slot of the folder this process has.
    pub slot: Option<u16>,
    /// Objects.
    pub objects: u64,
    /// Bytes that may be taken: of the settings, or less where others fill the file system.
    pub limit: u64,
    /// Bytes that are spoken for, of all kinds.
    pub used: u64,
    /// Of these: reserved by fills.
    pub reserved: u64,
    /// Of these: unlinked and still open.
    pub lingering: u64,
    /// Of these: journal, snapshot and folders.
    pub overhead: u64,
    /// Bytes of memory of the index.
    pub index_memory: u64,
    /// Objects that were stored.
    pub stored: u64,
    /// Objects that made room.
    pub evicted: u64,
    /// Of these, what was stored again soon.
    pub returned: Returned,
    /// Since when it takes nothing, Unix seconds.
    pub trouble_since: Option<i64>,
    /// Objects that were damaged.
    pub broken: u64,
    /// Errors of the disk.
    pub faults: u64,
    /// Objects for which there was no room.
    pub no_room: u64,
    /// The settings name it no more: see [`super::Disks::close`].
    pub is_closed: bool,
    /// It is not known yet what is on the disk: see [`super::Disks::scan_step`].
    pub is_scanning: bool,
}

impl Disk {
    pub(super) fn figures(&self) -> DiskFigures {
        let stalled_since = self.stalled_since();
        let stalled = stalled_since.map(|_| Trouble::Stalled);
        let claim_trouble = || self.claim.try_lock().ok().and_then(|claim| claim.trouble.clone());
        let trouble_since = Some(self.trouble_since.load(Relaxed)).filter(|since| *since != 0);
        let trouble_since = stalled_since.or(trouble_since);
        let Some(volume) = self.volume() else {
            return DiskFigures {
                folder: self.folder.clone(),
                is_stalled: stalled.is_some(),
                trouble: stalled.or_else(claim_trouble),
                is_closed: self.is_closed.load(Relaxed),
                trouble_since,
                ..DiskFigures::default()
            };
        };
        let (usage, objects, limit, index_memory, returned) = {
            let index = lock(&volume.index);
            (index.usage(), index.len() as u64, index.limit(), index.memory() as u64, index.returned())
        };
        let counts = &volume.counts;
        DiskFigures {
            folder: self.folder.clone(),
            is_stalled: stalled.is_some(),
            trouble: stalled.or_else(|| volume.trouble()),
            trouble_since,
            is_read: volume.health() != Health::Out,
            slot: Some(volume.slot.number),
            objects,
            limit,
            used: usage.sum(),
            reserved: usage.reserved,
            lingering: usage.lingering,
            overhead: usage.overhead,
            index_memory,
            stored: counts.stored.load(Relaxed),
            evicted: counts.evicted.load(Relaxed),
            returned,
            broken: counts.broken.load(Relaxed),
            faults: counts.faults.load(Relaxed),
            no_room: counts.no_room.load(Relaxed),
            is_closed: false,
            is_scanning: !volume.is_scanned.load(Relaxed),
        }
    }
}
