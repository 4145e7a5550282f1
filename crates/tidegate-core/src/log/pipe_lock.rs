//! Whose turn it is to write to a pipe, a socket or a terminal that several processes write lines to.
//!
//! write(2) to a pipe is atomic for `PIPE_BUF` bytes (pipe(7)). A longer line may be taken in part, and what another process
//! writes then would stand in the middle of it. So whoever writes holds a record lock (fcntl(2), `F_SETLK`), and keeps it until a long
//! line is written. Such a lock belongs to the inode: it is one for all processes, also those before and after an upgrade, and the
//! kernel releases it when its process ends. Nobody waits for it.
//!
//! A long line waits, with the lock, until the pipe has room for all of it, so that a process that is killed leaves no part of
//! a line. Only what is longer than the pipe itself, and what has no known size (a socket, a terminal), is written in parts.

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::{Errno, ioctl_fionread};
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use tidegate_io::locking::lock;

/// What a pipe takes at once when it says that it takes something, bytes (`PIPE_BUF`, which is also the size of its buffers).
pub(super) const PIPE_BUF: usize = 4 << 10;

/// Device and inode of each pipe that a log of this process has locked: record locks do not keep logs of one process apart.
static LOCKED: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// The lock of one pipe.
pub(super) struct PipeLock((u64, u64));

impl PipeLock {
    /// Takes the lock of a pipe, unless another log or process has it. `of` is the one that the caller may have.
    pub(super) fn take(of: Option<PipeLock>, pipe: BorrowedFd<'_>) -> Option<PipeLock> {
        let taken = match of {
            Some(taken) => taken,
            None => {
                let stat = rustix::fs::fstat(pipe).ok()?;
                let inode = (stat.st_dev, stat.st_ino);
                let is_free = lock(&LOCKED).insert(inode);
                is_free.then(|| PipeLock(inode))?
            }
        };
        // Also one that is held already: the kernel releases it when any descriptor of its inode is closed.
        match fcntl_lock(pipe, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN | Errno::ACCESS) => None,
            // What knows no locks goes without.
            Ok(()) | Err(_) => Some(taken),
        }
    }

    pub(super) fn release(self, pipe: BorrowedFd<'_>) {
        let _ = fcntl_lock(pipe, FlockOperation::Unlock);
    }
}

impl Drop for PipeLock {
    fn drop(&mut self) {
        lock(&LOCKED).remove(&self.0);
    }
}

/// Whether a pipe whose lock is held takes so many bytes in one call, or never would.
pub(super) fn has_room(pipe: BorrowedFd<'_>, bytes: usize) -> bool {
    let Ok(capacity) = fcntl_getpipe_size(pipe) else { return true };
    if bytes > capacity && fcntl_setpipe_size(pipe, bytes).is_ok() {
        return has_room(pipe, bytes);
    }
    let Some(unread) = unread(pipe).and_then(|unread| usize::try_from(unread).ok()) else { return true };
    // A piece that does not fit into the rest of a buffer begins another one: half of each may be unused, and most of the
    // first, which is read in part, and of the last.
    unread == 0 || unread.saturating_mul(2).saturating_add(2 * PIPE_BUF).saturating_add(bytes) <= capacity
}

/// Bytes that are in a pipe; `None` where that is not known.
pub(super) fn unread(pipe: BorrowedFd<'_>) -> Option<u64> {
    fcntl_getpipe_size(pipe).ok()?;
    ioctl_fionread(pipe).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn one_log_of_a_process_has_the_lock_of_a_pipe() {
        let (_reader, writer) = rustix::pipe::pipe().unwrap();
        let other = writer.try_clone().unwrap();
        let taken = PipeLock::take(None, writer.as_fd()).unwrap();
        assert!(PipeLock::take(None, other.as_fd()).is_none());
        let again = PipeLock::take(Some(taken), writer.as_fd()).unwrap();
        again.release(writer.as_fd());
        PipeLock::take(None, other.as_fd()).unwrap().release(other.as_fd());
    }

    /// What is said to fit is taken whole, however the pipe was filled and read before.
    #[test]
    fn what_has_room_is_taken_whole() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let capacity = fcntl_getpipe_size(&writer).unwrap();
        for piece in [1, 300, 2049, 3001, 4096] {
            for read in [0, 1, 5000] {
                let mut held = 0;
                for _ in 0..200 {
                    let _ = rustix::io::write(&writer, &vec![b'a'; piece]);
                    held = unread(writer.as_fd()).unwrap();
                    for bytes in [5000, 20_000, 50_000, capacity] {
                        if has_room(writer.as_fd(), bytes) {
                            assert_eq!(
                                rustix::io::write(&writer, &vec![b'l'; bytes]),
                                Ok(bytes),
                                "{piece} {held}"
                            );
                        }
                    }
                    let _ = rustix::io::read(&reader, &mut vec![0; read]);
                }
                assert!(held > 0);
                while rustix::io::read(&reader, &mut [0; 65_536]).is_ok() {}
                assert!(has_room(writer.as_fd(), capacity), "it is empty");
                assert_eq!(rustix::io::write(&writer, &vec![b'l'; capacity]), Ok(capacity));
                while rustix::io::read(&reader, &mut [0; 65_536]).is_ok() {}
            }
        }
    }
}
