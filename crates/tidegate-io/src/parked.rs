//! A watched descriptor that nobody uses for now, and that any thread may go on with.
//!
//! Its worker goes on watching it, so that going on where it was parked costs next to nothing. Another thread takes it out of
//! that worker's poller and has its own watch it. Who may have it when is for others to say: a [`Parked`] has one owner.

use crate::poller::Registry;
use crate::runtime::{self, Runtime};
use crate::slab::Key;
use crate::watched::{State, Watched};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What a worker knows of a descriptor by, free again when this is dropped, on whichever thread.
pub(crate) struct Seat {
    pub(crate) key: Key,
    worker: u64,
}

impl Seat {
    pub(crate) fn new(runtime: &Runtime, state: &Rc<State>) -> Seat {
        let mut watched = runtime.watched.borrow_mut();
        // Those that others have left empty.
        runtime.remote.departed.take().into_iter().for_each(|key| drop(watched.remove(key)));
        Seat { key: watched.insert(state.clone()), worker: runtime.worker }
    }

    /// What is known of the descriptor, on its own worker.
    fn state(&self) -> Option<Rc<State>> {
        runtime::try_with(|runtime| {
            let is_here = runtime.worker == self.worker;
            is_here.then(|| runtime.watched.borrow().get(self.key).cloned()).flatten()
        })
        .flatten()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let removed = runtime::try_with(|runtime| {
            let is_here = runtime.worker == self.worker;
            is_here.then(|| runtime.watched.borrow_mut().remove(self.key))
        });
        if removed.flatten().is_none()
            && let Some(remote) = runtime::remote_of(self.worker)
        {
            remote.departed.push(self.key);
        }
    }
}

/// What other threads have taken from a worker.
pub(crate) struct Departed {
    /// Gone with the worker.
    registry: Weak<Registry>,
    keys: Mutex<Vec<Key>>,
    are_there_any: AtomicBool,
}

impl From<&Arc<Registry>> for Departed {
    fn from(registry: &Arc<Registry>) -> Departed {
        Departed {
            registry: Arc::downgrade(registry),
            keys: Mutex::default(),
            are_there_any: AtomicBool::new(false),
        }
    }
}

impl Departed {
    fn push(&self, key: Key) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        self.are_there_any.store(true, Relaxed);
    }

    #[inline]
    fn take(&self) -> Vec<Key> {
        if !self.are_there_any.load(Relaxed) {
            return Vec::new();
        }
        self.are_there_any.store(false, Relaxed);
        std::mem::take(&mut *self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A [`Watched`] descriptor at rest.
pub struct Parked {
    // Dropped first: the worker forgets the descriptor before its number is free.
    seat: Seat,
    fd: OwnedFd,
    is_duplex: bool,
}

impl Parked {
    pub(crate) fn new(seat: Seat, fd: OwnedFd, is_duplex: bool) -> Parked {
        Parked { seat, fd, is_duplex }
    }

    /// Goes on with it: at once on the worker that has parked it, elsewhere once this worker watches it. Whether there is
    /// something to read is known there only from the next look of the poller on.
    ///
    /// # Errors
    /// The system cannot watch it.
    pub fn resume(self) -> io::Result<Watched> {
        if let Some(state) = self.seat.state() {
            return Ok(Watched::of_seat(self.seat, self.fd, state, self.is_duplex));
        }
        // An event that is under way there misses the key, or says something of nobody's concern.
        let home = runtime::remote_of(self.seat.worker);
        if let Some(registry) = home.and_then(|home| home.departed.registry.upgrade()) {
            registry.remove(self.fd.as_fd())?;
        }
        Watched::new(self.fd)
    }

    /// As [`Watched::is_readable`], on the worker that has parked it; `true` elsewhere.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.seat.state().is_none_or(|state| state.is_readable())
    }

    /// As [`Watched::drained`].
    pub fn drained(&self) {
        if let Some(state) = self.seat.state() {
            state.drained();
        }
    }

    /// As [`Watched::wake_reader`], on the worker that has parked it.
    pub fn wake_reader(&self, waker: &std::task::Waker) {
        if let Some(state) = self.seat.state() {
            state.wake_reader(waker);
        }
    }
}

impl AsFd for Parked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Poller};
    use std::os::unix::net::UnixStream;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    fn read(watched: &Watched) -> Poll<io::Result<usize>> {
        let mut buffer = [0; 8];
        watched
            .poll_read(&mut Context::from_waker(Waker::noop()), |fd| Ok(rustix::io::read(fd, &mut buffer)?))
    }

    /// Events of descriptors that have come so far.
    fn look(poller: &mut Poller, runtime: &Runtime) -> usize {
        let mut ready = Vec::new();
        poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        ready.iter().filter(|event| event.kind() == Kind::Io).for_each(|event| runtime.on_io(event));
        ready.iter().filter(|event| event.kind() == Kind::Io).count()
    }

    #[test]
    fn another_worker_goes_on_with_it_and_the_first_hears_no_more_of_it() {
        let mut poller = Poller::new().unwrap();
        let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
        let (far, near) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let watched = Watched::new(near.into()).unwrap();
        let known = runtime.watched.borrow().len();

        // Here it is as it was.
        let watched = watched.park().resume().unwrap();
        assert!(read(&watched).is_pending());
        rustix::io::write(&far, b"one").unwrap();
        assert_eq!(look(&mut poller, &runtime), 1);
        assert!(matches!(read(&watched), Poll::Ready(Ok(3))));
        watched.drained();
        assert!(!watched.park_and_look());

        let (near_by, far_by) = UnixStream::pair().unwrap();
        near_by.set_nonblocking(true).unwrap();
        let parked = Watched::new(near_by.into()).unwrap().park();
        assert_eq!(runtime.watched.borrow().len(), known, "one has gone, and one has come");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut poller = Poller::new().unwrap();
                let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
                let watched = parked.resume().unwrap();
                rustix::io::write(&far_by, b"four").unwrap();
                assert_eq!(look(&mut poller, &runtime), 1);
                assert!(matches!(read(&watched), Poll::Ready(Ok(4))));
                // What ends there is nothing to the first.
                drop((watched, far_by));
            });
        });
        assert_eq!(look(&mut poller, &runtime), 0);
        // Its seat is free for the next.
        let (_other, near) = UnixStream::pair().unwrap();
        let _next = Watched::new(near.into()).unwrap();
        assert_eq!(runtime.watched.borrow().len(), known);
    }

    impl Watched {
        fn park_and_look(self) -> bool {
            self.park().is_readable()
        }
    }
}
