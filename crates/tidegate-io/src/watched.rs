//! A descriptor that async functions on a worker wait for.

use crate::parked::{Parked, Seat};
use crate::poller::{Kind, Ready, Registry};
use crate::runtime;
use crate::slab::Key;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

#[derive(Default)]
pub(crate) struct State {
    readable: Cell<bool>,
    writable: Cell<bool>,
    /// The other end has been seen: there is always something to read, if only the end.
    closed: Cell<bool>,
    reader: Cell<Option<Waker>>,
    writer: Cell<Option<Waker>>,
}

impl State {
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        self.readable.get()
    }

    #[inline]
    pub(crate) fn drained(&self) {
        self.readable.set(self.closed.get());
    }

    #[inline]
    pub(crate) fn wake_reader(&self, waker: &Waker) {
        self.reader.set(Some(waker.clone()));
    }

    pub(crate) fn on_event(&self, event: &Ready) {
        if event.read_closed || event.dead {
            self.closed.set(true);
        }
        if event.readable || event.read_closed || event.dead {
            self.readable.set(true);
            if let Some(waker) = self.reader.take() {
                waker.wake();
            }
        }
        if event.writable || event.dead {
            self.writable.set(true);
            if let Some(waker) = self.writer.take() {
                waker.wake();
            }
        }
    }
}

/// A non-blocking descriptor that async functions on this worker read from and write to. One may wait to
/// read while another waits to write.
pub struct Watched {
    // Dropped first. Closing the descriptor removes it from the poller; a late event misses the generation.
    seat: Seat,
    fd: OwnedFd,
    state: Rc<State>,
    /// Watched for writing too.
    is_duplex: Cell<bool>,
}

impl Watched {
    /// Registers `fd`, which must be non-blocking, for reading. It is watched for writing from the first
    /// write on that has to wait: most never do, and a unix socket would raise an edge for every message that
    /// its peer takes.
    ///
    /// # Errors
    /// The system cannot watch it.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Watched::register(fd, false, Registry::add_readable)
    }

    /// Registers `fd`, which must be non-blocking, for reading and writing.
    ///
    /// # Errors
    /// As [`Watched::new`].
    pub fn duplex(fd: OwnedFd) -> io::Result<Self> {
        Watched::register(fd, true, Registry::add)
    }

    fn register(
        fd: OwnedFd,
        is_duplex: bool,
        add: impl FnOnce(&Registry, BorrowedFd<'_>, Kind, Key) -> io::Result<()>,
    ) -> io::Result<Self> {
        runtime::with(|runtime| {
            let state = Rc::new(State::default());
            let seat = Seat::new(runtime, &state);
            let key = seat.key();
            let watched = Watched { seat, fd, state, is_duplex: Cell::new(is_duplex) };
            add(runtime.registry(), watched.fd.as_fd(), Kind::Io, key)?;
            Ok(watched)
        })
    }

    pub(crate) fn of_seat(seat: Seat, fd: OwnedFd, state: Rc<State>, is_duplex: bool) -> Watched {
        Watched { seat, fd, state, is_duplex: Cell::new(is_duplex) }
    }

    /// Nobody uses it for now, and any thread may go on with it.
    #[inline]
    pub fn park(self) -> Parked {
        Parked::new(self.seat, self.fd, self.is_duplex.get())
    }

    /// Runs `call` when the descriptor is readable; `WouldBlock` waits for the next edge.
    pub fn poll_read<R>(
        &self,
        cx: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        if self.state.readable.get() {
            match call(self.fd.as_fd()) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.state.readable.set(false),
                result => return Poll::Ready(result),
            }
        }
        self.state.reader.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Watched {
    /// Runs `call` when the descriptor is writable; `WouldBlock` waits for the next edge.
    pub fn poll_write<R>(
        &self,
        cx: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        if self.state.writable.get() {
            match call(self.fd.as_fd()) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.state.writable.set(false),
                result => return Poll::Ready(result),
            }
            if !self.is_duplex.replace(true) {
                runtime::with(|runtime| {
                    runtime.registry().add_writable(self.fd.as_fd(), Kind::Io, self.seat.key())
                })?;
            }
        }
        self.state.writer.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Watched {
    /// Says that the last read of a stream socket came up short: the next byte raises a new edge, so the
    /// next [`Watched::poll_read`] waits for it without a call that could only fail.
    #[inline]
    pub fn drained(&self) {
        self.state.drained();
    }

    /// Says that there may be something to read, though no edge has said so yet: of a peer that takes no more.
    #[inline]
    pub fn assume_readable(&self) {
        self.state.readable.set(true);
    }

    /// Says that the descriptor may be writable, though no edge has said so: a socket that is connected.
    #[inline]
    pub fn assume_writable(&self) {
        self.state.writable.set(true);
    }

    /// Whether an edge has come since the descriptor was drained: there is something to read, the end
    /// perhaps. As true as the last look of the poller.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.state.is_readable()
    }

    /// Names who is woken when there is something to read, without trying to.
    #[inline]
    pub fn wake_reader(&self, waker: &Waker) {
        self.state.wake_reader(waker);
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
