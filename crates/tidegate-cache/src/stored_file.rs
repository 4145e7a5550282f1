//! The content of an object on a disk, kept open for those who send it.

use crate::disk::OpenObject;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tidegate_io::blocking::{self, QueueKey};

/// An object whose pieces were verified, or need not be. Its bytes on the disk count until it is dropped: whoever has its
/// descriptor keeps the content that this belongs to.
pub struct StoredFile {
    /// `None` once it is on its way to where it is closed: that may wait for the disk.
    object: Option<OpenObject>,
    file: Arc<OwnedFd>,
    queue_key: QueueKey,
    offset: u64,
    len: u64,
}

impl StoredFile {
    pub(crate) fn new(object: OpenObject, queue_key: QueueKey) -> StoredFile {
        let (offset, len) = (object.content_offset(), object.header().entity_length);
        StoredFile { file: object.shared_file(), object: Some(object), queue_key, offset, len }
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

    /// Where work with the file belongs in the blocking pool.
    pub fn queue_key(&self) -> QueueKey {
        self.queue_key
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
