//! Finds out what lies in a slot, where no journal says it or one that a power cut may have torn.
//!
//! Called in small steps on a thread that may wait, behind the back of everything else. Until it is done, what the index does
//! not know is looked for by the path that derives from the hash ([`Volume::probe`]). Files that the journal knows are not read again.

use super::folder::{FOLDERS, folder_number, parse_name};
use super::volume::{STEP, Volume};
use super::{DiskError, Id};
use hashbrown::HashSet;
use rustix::fs::Dir;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_io::locking::lock;

/// How far a scan has come.
pub(super) struct Scan {
    folder: u16,
    listing: Option<Dir>,
    /// What the journal says was deleted: a power cut may have brought it back.
    removed: HashSet<Id>,
    /// Places of the index from here on are still to be compared with what was found, once all folders are read.
    place: u32,
}

/// What a scan has come across.
enum Step {
    Object(Id),
    /// The end of a folder.
    Folder(u16),
    Something,
    End,
}

impl Scan {
    pub(super) fn new(removed: &[Id]) -> Scan {
        Scan { folder: 0, listing: None, removed: removed.iter().copied().collect(), place: 0 }
    }

    fn next(&mut self, volume: &Volume) -> rustix::io::Result<Step> {
        if self.folder >= FOLDERS {
            return Ok(Step::End);
        }
        if self.listing.is_none() {
            self.listing = volume.slot.list(self.folder)?;
        }
        match self.listing.as_mut().and_then(Dir::read) {
            Some(found) => {
                Ok(parse_name(found?.file_name().to_bytes()).map_or(Step::Something, Step::Object))
            }
            None => {
                self.listing = None;
                self.folder += 1;
                Ok(Step::Folder(self.folder - 1))
            }
        }
    }
}

impl Volume {
    /// Goes on with the scan: looks at `most` names at most. `true`: it is done.
    pub(super) fn scan_step(&self, most: u32) -> Result<bool, DiskError> {
        let mut guard = lock(&self.scan);
        let Some(scan) = guard.as_mut() else { return Ok(true) };
        for _ in 0..most.max(1) {
            match scan.next(self).map_err(|error| self.fault(error))? {
                Step::Object(id) => self.come_across(scan, id)?,
                Step::Folder(number) => self.weigh_folder(u128::from(number) << 116),
                Step::Something => {}
                Step::End => {
                    if self.forget_unseen(scan) {
                        *guard = None;
                        self.is_scanned.store(true, Relaxed);
                    }
                    break;
                }
            }
        }
        let is_done = guard.is_none();
        drop(guard);
        self.shrink();
        if is_done {
            // From now on the journal knows every file, and the next process need not scan.
            self.save()?;
        }
        Ok(is_done)
    }

    /// Looks on the disk for objects of a key that the index does not know. Only while a scan is not done.
    pub(super) fn probe(&self, hash: u128) -> Result<(), DiskError> {
        let mut guard = lock(&self.scan);
        let Some(scan) = guard.as_mut() else { return Ok(()) };
        let listing = self.slot.list(folder_number(hash)).map_err(|error| self.fault(error))?;
        let Some(mut listing) = listing else { return Ok(()) };
        while let Some(found) = listing.read() {
            let found = found.map_err(|error| self.fault(error))?;
            if let Some(id) = parse_name(found.file_name().to_bytes()).filter(|id| id.hash == hash) {
                self.come_across(scan, id)?;
            }
        }
        Ok(())
    }

    fn come_across(&self, scan: &mut Scan, id: Id) -> Result<(), DiskError> {
        if lock(&self.index).has_seen(id) {
            return Ok(());
        }
        self.wait_for_publishers();
        if lock(&self.index).has_seen(id) {
            return Ok(());
        }
        if scan.removed.remove(&id) {
            return self.slot.unlink(id).map_err(|error| self.fault(error));
        }
        self.adopt(id)
    }

    /// Objects that the journal has and the disk has not. `true`: that was the last step.
    fn forget_unseen(&self, scan: &mut Scan) -> bool {
        let mut index = lock(&self.index);
        let end = scan.place.saturating_add(STEP).min(index.places());
        let unseen = index.unseen(scan.place..end);
        let leaving: Vec<_> = unseen.into_iter().filter_map(|id| index.remove(id)).collect();
        let is_done = end >= index.places();
        drop(index);
        scan.place = end;
        self.delete(leaving);
        is_done
    }
}
