//! The file of an object that is being written, for who reads what is there already.

use super::volume::{Holder, Volume};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use tidegate_io::locking::lock;

/// The file of a [`DiskFill`](super::DiskFill). Its bytes on the disk count until this is dropped, whatever becomes of the object, so the
/// descriptor must not outlive it.
pub struct FillFile {
    // Before what counts: the file is closed when its bytes are given back.
    file: Arc<OwnedFd>,
    offset: u64,
    volume: Arc<Volume>,
    counted: Mutex<Counted>,
}

/// How the bytes count.
enum Counted {
    /// The fill has reserved them.
    ByFill,
    /// They are those of an object that is open.
    AsObject(#[expect(dead_code, reason = "it is dropped")] Holder),
    /// The fill has ended and left its reservation.
    Reserved(u64),
}

impl FillFile {
    pub(super) fn new(volume: Arc<Volume>, file: Arc<OwnedFd>, offset: u64) -> FillFile {
        FillFile { file, offset, volume, counted: Mutex::new(Counted::ByFill) }
    }

    /// The file, open for reading.
    pub fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Where the content begins in it.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// It could not be read.
    pub(crate) fn has_failed(&self, error: Errno) {
        let _ = self.volume.fault(error);
    }

    pub(super) fn is_published(&self, holder: Holder) {
        *lock(&self.counted) = Counted::AsObject(holder);
    }

    pub(super) fn is_given_up(&self, reserved: u64) {
        *lock(&self.counted) = Counted::Reserved(reserved);
    }
}

impl std::fmt::Debug for FillFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FillFile").finish_non_exhaustive()
    }
}

impl Drop for FillFile {
    fn drop(&mut self) {
        if let Counted::Reserved(bytes) = *lock(&self.counted) {
            lock(&self.volume.index).release(bytes);
        }
    }
}
