//! What operators look at: each object of a disk, whatever its key, and where it is.

use super::folder::path_of;
use super::object::OpenObject;
use super::{DiskEntry, DiskError, Disks};
use std::path::PathBuf;
use tidegate_io::locking::lock;

impl Disks {
    /// The objects among `most` places of the index of a disk, from `from` (at first 0) on, and where to go on; `None`: these were the
    /// last. Touches no disk.
    pub fn page(&self, disk: u16, from: u32, most: u32) -> (Vec<DiskEntry>, Option<u32>) {
        let Some(volume) = self.volume(disk) else { return (Vec::new(), None) };
        let index = lock(&volume.index);
        let end = from.saturating_add(most.max(1)).min(index.places());
        let found = (from..end).filter_map(|place| index.at(disk, place)).collect();
        (found, (end < index.places()).then_some(end))
    }

    /// Objects of a disk. Touches no disk.
    pub fn objects(&self, disk: u16) -> u64 {
        self.volume(disk).map_or(0, |volume| lock(&volume.index).len() as u64)
    }

    /// Opens an object whatever its key, which is no use of it. Waits for the disk.
    ///
    /// # Errors
    /// As [`Disks::open_object`].
    pub fn inspect(&self, entry: &DiskEntry) -> Result<OpenObject, DiskError> {
        OpenObject::open_as(&self.readable(entry.disk)?, entry.id, None, false)
    }

    /// Whether what a disk has can be read now. Touches no disk.
    pub fn is_read(&self, disk: u16) -> bool {
        self.readable(disk).is_ok()
    }

    /// The file of an object; nothing where its disk has gone.
    pub fn path(&self, entry: &DiskEntry) -> PathBuf {
        let Some(volume) = self.volume(entry.disk) else { return PathBuf::new() };
        let folder = self.disks.get(usize::from(entry.disk)).map(|disk| disk.folder.as_path());
        let slot = format!("slot-{}", volume.slot.number);
        folder.map(|folder| folder.join(slot).join(path_of(entry.id))).unwrap_or_default()
    }
}
