//! The content of an object on a disk, kept open for those who send it.

use crate::content::Content;
use crate::disk::{Id, OpenObject};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tidegate_io::blocking::{self, QueueKey};
use tidegate_io::paged::FileOwner;

/// An object whose pieces were verified, or need not be. Its bytes on the disk count until it is dropped: whoever has its
/// descriptor keeps the content that this belongs to.
pub struct StoredFile {
    /// `None` once it is on its way to where it is closed: that may wait for the disk.
    object: Option<OpenObject>,
    file: Arc<OwnedFd>,
    queue_key: QueueKey,
    offset: u64,
    len: u64,
    /// It could not be read once.
    has_failed: AtomicBool,
}

impl StoredFile {
    pub(crate) fn new(object: OpenObject, queue_key: QueueKey) -> StoredFile {
        let (offset, len) = (object.content_offset(), object.header().entity_length);
        StoredFile {
            file: object.shared_file(),
            object: Some(object),
            queue_key,
            offset,
            len,
            has_failed: AtomicBool::new(false),
        }
    }

    /// Bytes of the content.
    #[expect(clippy::len_without_is_empty, reason = "it is not a collection")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Where the content begins in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The file, open for reading.
    pub fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Whether it can be read now, as far as is known: its disk is not out, and it never failed. Touches no disk.
    pub fn is_readable(&self) -> bool {
        !self.has_failed.load(Relaxed) && self.object.as_ref().is_some_and(OpenObject::is_readable)
    }

    /// Which object of which disk it is.
    pub(crate) fn place(&self) -> Option<(u16, Id)> {
        self.object.as_ref().map(|object| (object.disk(), object.id()))
    }

    /// Where work with the file belongs in the blocking pool.
    pub fn queue_key(&self) -> QueueKey {
        self.queue_key
    }
}

impl FileOwner for Content {
    fn has_failed(&self, error: Errno) {
        self.tell_of_failure(error);
    }
}

impl Content {
    /// The file that it lies in, or that is behind it, cannot be read.
    pub(crate) fn tell_of_failure(&self, error: Errno) {
        let Some(file) = self.file() else { return self.backing_has_failed(error) };
        let Some(object) = &file.object else { return };
        // Of this process, and not of the disk: the file is as good as before.
        if !object.has_failed(error) || file.has_failed.swap(true, Relaxed) {
            return;
        }
        let removal = object.removal();
        let _ = blocking::start(file.queue_key, removal);
    }
}

impl Drop for StoredFile {
    fn drop(&mut self) {
        let (object, file) = (self.object.take(), self.file.clone());
        // In this order: the bytes are given back when the file is closed.
        let _ = blocking::start(self.queue_key, move || {
            drop(file);
            drop(object);
        });
    }
}
