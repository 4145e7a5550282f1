//! The file behind a content that is passed on: what its window has let go of is read from there.
//!
//! A disk that gets the content while it comes in (`tier::spool`) has its first bytes, and has more and more of them. So a reader that is slower
//! than the disk costs no memory, and one that comes late begins with the first byte. A part that is gone on with begins with a
//! file that is there.

use crate::content::Content;
use crate::disk::FillFile;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use tidegate_io::blocking::{self, QueueKey};

/// Bytes from the first one on, in a file.
pub(crate) struct Backing {
    file: Arc<OwnedFd>,
    offset: u64,
    queue_key: QueueKey,
    written: AtomicU64,
    /// `None` once it is on its way to where the file is closed.
    keeper: Option<Keeper>,
}

/// Who counts the bytes of the file as long as it is open.
enum Keeper {
    /// The part that is gone on with.
    Part(Arc<Content>),
    Fill(Arc<FillFile>),
}

/// Content in a file, for who reads it there.
pub struct InFile {
    /// Open for reading, as long as `content` is there.
    pub file: Arc<OwnedFd>,
    /// Where work with it belongs in the blocking pool.
    pub queue_key: QueueKey,
    /// Where the content begins in the file.
    pub offset: u64,
    /// Whose it is.
    pub content: Arc<Content>,
    /// How many bytes from where the reader is, one at least.
    pub len: u64,
}

impl Backing {
    /// Of a part that is in a file. `None`: it is not.
    pub(crate) fn of_part(part: &Arc<Content>) -> Option<Backing> {
        let file = part.file()?;
        Some(Backing {
            file: file.file().clone(),
            offset: file.offset(),
            queue_key: file.queue_key(),
            written: AtomicU64::new(part.filled()),
            keeper: Some(Keeper::Part(part.clone())),
        })
    }

    /// Of an object that is being written.
    pub(crate) fn of_fill(fill: Arc<FillFile>, queue_key: QueueKey) -> Backing {
        Backing {
            file: fill.file().clone(),
            offset: fill.offset(),
            queue_key,
            written: AtomicU64::new(0),
            keeper: Some(Keeper::Fill(fill)),
        }
    }

    /// Bytes that are in it.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Acquire)
    }

    /// So many are, by now.
    pub(crate) fn has_written(&self, bytes: u64) {
        self.written.fetch_max(bytes, Release);
    }

    /// Some bytes of it, for who is at `position`. `None`: it does not go so far.
    pub(crate) fn piece(&self, content: &Arc<Content>, position: u64, most: u64) -> Option<InFile> {
        let len = self.written().checked_sub(position).filter(|len| *len > 0)?.min(most);
        Some(InFile {
            file: self.file.clone(),
            queue_key: self.queue_key,
            offset: self.offset,
            content: content.clone(),
            len,
        })
    }

    /// It could not be read.
    pub(crate) fn has_failed(&self, error: Errno) {
        match &self.keeper {
            Some(Keeper::Part(part)) => part.tell_of_failure(error),
            Some(Keeper::Fill(fill)) => fill.has_failed(error),
            None => {}
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let (file, keeper) = (self.file.clone(), self.keeper.take());
        // Closing may wait for the disk; its bytes are given back when the file is closed.
        let _ = blocking::start(self.queue_key, move || {
            drop(file);
            drop(keeper);
        });
    }
}
