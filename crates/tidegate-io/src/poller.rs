//! Readiness: edge-triggered, one registration for each descriptor with all its interests (`epoll(7)`,
//! through mio). An event says what a descriptor may do now; it is said once.

use crate::slab::Key;
use mio::{Interest, Token, unix::SourceFd};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// What an event belongs to; sits above the 51 bits of a slab key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A listening socket; the key is its number.
    Listener = 0,
    /// A client connection.
    Connection = 1,
    /// A descriptor that an async function waits for.
    Io = 2,
    /// Another thread has something for this worker.
    Remote = 3,
}

const KIND_SHIFT: u32 = 56;

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    token: u64,
    /// Bytes, a connection or an end of stream can be read.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The peer has shut down its sending side; bytes may still be in front of that.
    pub read_closed: bool,
    /// Error, or both directions closed.
    pub dead: bool,
}

impl Ready {
    /// What the event belongs to.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self.token >> KIND_SHIFT {
            0 => Kind::Listener,
            1 => Kind::Connection,
            2 => Kind::Io,
            _ => Kind::Remote,
        }
    }

    /// The key given at registration.
    #[inline]
    pub fn key(&self) -> Key {
        Key(self.token & ((1 << KIND_SHIFT) - 1))
    }
}

/// Events that one wait gives at most. With as many, there may be more.
pub const EVENTS: usize = 512;

/// Waits for events.
pub struct Poller {
    poll: mio::Poll,
    events: mio::Events,
}

impl Poller {
    /// A new `epoll` instance.
    ///
    /// # Errors
    /// There is no descriptor left, or the system allows no more instances.
    pub fn new() -> io::Result<Self> {
        Ok(Poller { poll: mio::Poll::new()?, events: mio::Events::with_capacity(EVENTS) })
    }

    /// A handle that adds descriptors.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn registry(&self) -> io::Result<Registry> {
        self.poll.registry().try_clone().map(Registry)
    }

    /// Appends what is ready to `out`, after at most `timeout` (`None`: as long as it takes). A signal
    /// ends the wait early with nothing.
    ///
    /// # Errors
    /// The system cannot wait; a signal is no error.
    pub fn wait(&mut self, timeout: Option<Duration>, out: &mut Vec<Ready>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        out.extend(self.events.iter().map(|event| Ready {
            token: event.token().0 as u64,
            readable: event.is_readable(),
            writable: event.is_writable(),
            read_closed: event.is_read_closed(),
            dead: event.is_error() || (event.is_read_closed() && event.is_write_closed()),
        }));
        Ok(())
    }
}

/// Adds descriptors to a [`Poller`]. Closing a descriptor removes it; a stale event misses its key.
pub struct Registry(mio::Registry);

impl Registry {
    /// Watches for reading and writing.
    ///
    /// # Errors
    /// It is watched already, it is of a kind that cannot be watched (a regular file), or the system allows
    /// no more.
    pub fn add(&self, fd: BorrowedFd<'_>, kind: Kind, key: Key) -> io::Result<()> {
        self.register(fd, kind, key, Interest::READABLE | Interest::WRITABLE)
    }

    /// Watches for reading only.
    ///
    /// # Errors
    /// As [`Registry::add`].
    pub fn add_readable(&self, fd: BorrowedFd<'_>, kind: Kind, key: Key) -> io::Result<()> {
        self.register(fd, kind, key, Interest::READABLE)
    }

    /// Watches for writing too what [`Registry::add_readable`] has added. What is ready already is said again.
    ///
    /// # Errors
    /// The descriptor is not watched.
    pub fn add_writable(&self, fd: BorrowedFd<'_>, kind: Kind, key: Key) -> io::Result<()> {
        let token = (kind as u64) << KIND_SHIFT | key.0;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.0.reregister(&mut SourceFd(&fd.as_raw_fd()), Token(token as usize), interest)
    }

    /// Stops watching a descriptor that stays open.
    ///
    /// # Errors
    /// The descriptor is not watched.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.0.deregister(&mut SourceFd(&fd.as_raw_fd()))
    }

    fn register(&self, fd: BorrowedFd<'_>, kind: Kind, key: Key, interest: Interest) -> io::Result<()> {
        let token = (kind as u64) << KIND_SHIFT | key.0;
        self.0.register(&mut SourceFd(&fd.as_raw_fd()), Token(token as usize), interest)
    }
}
