//! Finds out what lies in a slot, where no journal says it or one that a power cut may have torn.
//!
//! Called in small steps on a thread that may wait, behind the back of everything else. Until it is done, what the index does
//! not know is looked for by the path that derives from the hash ([`Volume::probe`]). Files that the journal knows are not read again.

use super::folder::{FOLDERS, folder_number, parse_name};
use super::volume::{STEP, Volume};
use super::{DiskError, Id};
use rustix::fs::Dir;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_io::blocking;
use tidegate_io::locking::lock;

/// A folder is begun anew so often; then a file that cannot be read is left out, so that the scan comes to its end.
const MOST_FAILURES: u8 = 3;

/// How far a scan has come.
pub(super) struct Scan {
    folder: u16,
    listing: Option<Dir>,
    /// How often this folder was begun anew since the disk has failed there.
    failures: u8,
    /// Places of the index from here on are still to be compared with what was found, once all folders are read.
    place: u32,
}

/// What a scan has come across.
#[derive(Clone, Copy)]
enum Step {
    Object(Id),
    /// The end of a folder.
    Folder(u16),
    Something,
    End,
}

impl Scan {
    pub(super) fn new() -> Scan {
        Scan { folder: 0, listing: None, failures: 0, place: 0 }
    }

    /// The disk has failed within a folder: all of it is looked at again, unless it fails there each time.
    fn has_failed(&mut self) {
        if self.failures < MOST_FAILURES {
            self.failures += 1;
            self.listing = None;
        }
    }

    fn next(&mut self, volume: &Volume) -> rustix::io::Result<Step> {
        if self.folder >= FOLDERS {
            return Ok(Step::End);
        }
        if self.listing.is_none() {
            self.listing = volume.slot.list(self.folder)?;
        }
        blocking::next_call();
        match self.listing.as_mut().and_then(Dir::read) {
            Some(found) => {
                Ok(parse_name(found?.file_name().to_bytes()).map_or(Step::Something, Step::Object))
            }
            None => {
                self.listing = None;
                self.folder += 1;
                self.failures = 0;
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
            let step = scan.next(self).map_err(|error| self.fault(error));
            let step = step.and_then(|step| match step {
                Step::Object(id) => self.come_across(id).map(|()| step),
                other => Ok(other),
            });
            match step.inspect_err(|_| scan.has_failed())? {
                Step::Object(_) | Step::Something => {}
                Step::Folder(number) => self.weigh_folder(u128::from(number) << 116),
                Step::End => {
                    if self.forget_unseen(scan) {
                        *guard = None;
                        self.is_scanned.store(true, Relaxed);
                        lock(&self.index).has_been_scanned();
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

    /// Looks on the disk for objects of a key that the index does not know. Only while a scan is not done, which it does not wait for.
    pub(super) fn probe(&self, hash: u128) -> Result<(), DiskError> {
        if self.is_scanned.load(Relaxed) {
            return Ok(());
        }
        let listing = self.slot.list(folder_number(hash)).map_err(|error| self.fault(error))?;
        let Some(mut listing) = listing else { return Ok(()) };
        while let Some(found) = listing.read() {
            let found = found.map_err(|error| self.fault(error))?;
            if let Some(id) = parse_name(found.file_name().to_bytes()).filter(|id| id.hash == hash) {
                self.come_across(id)?;
            }
        }
        Ok(())
    }

    fn come_across(&self, id: Id) -> Result<(), DiskError> {
        if lock(&self.index).has_seen(id) {
            return Ok(());
        }
        self.wait_for_publishers();
        let is_removed = {
            let mut index = lock(&self.index);
            if index.has_seen(id) {
                return Ok(());
            }
            index.was_removed(id)
        };
        if is_removed {
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
