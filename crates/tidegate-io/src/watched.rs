//! A descriptor that async functions on a worker wait for.

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
    reader: Cell<Option<Waker>>,
    writer: Cell<Option<Waker>>,
}

impl State {
    pub(crate) fn on_event(&self, event: &Ready) {
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
    fd: OwnedFd,
    key: Key,
    state: Rc<State>,
}

impl Watched {
    /// Registers `fd`, which must be non-blocking, for reading.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Watched::register(fd, Registry::add_readable)
    }

    /// Registers `fd`, which must be non-blocking, for reading and writing.
    pub fn duplex(fd: OwnedFd) -> io::Result<Self> {
        Watched::register(fd, Registry::add)
    }

    fn register(
        fd: OwnedFd,
        add: impl FnOnce(&Registry, BorrowedFd<'_>, Kind, Key) -> io::Result<()>,
    ) -> io::Result<Self> {
        runtime::with(|runtime| {
            let state = Rc::new(State::default());
            let key = runtime.watched.borrow_mut().insert(state.clone());
            let watched = Watched { fd, key, state };
            add(runtime.registry(), watched.fd.as_fd(), Kind::Io, key)?;
            Ok(watched)
        })
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
        }
        self.state.writer.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Closing the descriptor removes it from the poller; a late event misses the generation.
        runtime::try_with(|runtime| runtime.watched.borrow_mut().remove(self.key));
    }
}
