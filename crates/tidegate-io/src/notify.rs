//! File change notification (`inotify(7)`): which watched folders changed, and under which names.

use crate::watched::Watched;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::task::{Context, Poll};

/// Number of a watched folder. The kernel gives the same number for the same folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Watch(i32);

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The entry `name` of the folder was written, created, removed, renamed or had its attributes changed.
    Entry {
        /// Of the folder.
        watch: Watch,
        /// The entry's name.
        name: Box<[u8]>,
    },
    /// The folder itself moved or went away; its number is void.
    Folder {
        /// Of the folder.
        watch: Watch,
    },
    /// Changes were lost: anything may have changed.
    Overflow,
}

/// An inotify instance on this worker's poller.
pub struct Notifier {
    watched: Watched,
}

impl Notifier {
    /// Begins with no folder; what is watched is told by [`Notifier::poll_changes`].
    ///
    /// # Errors
    /// The user's limit of instances is reached (`fs.inotify.max_user_instances`), there is no descriptor
    /// left, or the poller does not take it.
    pub fn new() -> io::Result<Self> {
        Ok(Notifier { watched: Watched::new(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?)? })
    }

    /// Watches the entries of `folder`.
    ///
    /// # Errors
    /// The limit `fs.inotify.max_user_watches` is reached, or the folder cannot be watched, as where it may
    /// not be read.
    pub fn watch(&self, folder: &OwnedFd) -> io::Result<Watch> {
        let flags = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        // By descriptor, so that it is the very folder that was resolved below the root.
        let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
        Ok(Watch(inotify::add_watch(&self.watched, path, flags)?))
    }

    /// Stops watching.
    pub fn unwatch(&self, watch: Watch) {
        let _ = inotify::remove_watch(&self.watched, watch.0);
    }

    /// Appends what has changed to `changes`.
    pub fn poll_changes(&self, cx: &mut Context<'_>, changes: &mut Vec<Change>) -> Poll<io::Result<()>> {
        self.watched.poll_read(cx, |fd| {
            let mut buffer = [MaybeUninit::uninit(); 16 << 10];
            let mut reader = Reader::new(fd.as_fd(), &mut buffer);
            loop {
                let event = reader.next()?;
                let watch = Watch(event.wd());
                let flags = event.events();
                if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                    changes.push(Change::Overflow);
                } else if let Some(name) = event.file_name() {
                    changes.push(Change::Entry { watch, name: name.to_bytes().into() });
                } else if flags.intersects(
                    ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED | ReadFlags::UNMOUNT,
                ) {
                    changes.push(Change::Folder { watch });
                }
                if reader.is_buffer_empty() {
                    return Ok(());
                }
            }
        })
    }
}
