//! Per-worker executor: ready queues, wakers, background tasks. Nothing here is `Send`; only a wake from
//! a foreign thread takes a lock.
//!
//! A connection's slot is its task: the waker of a connection packs the worker's number and the slab key
//! into its data pointer, so making, cloning and dropping one costs nothing. Parts of a connection that are woken apart are in
//! `parts`. Background tasks (a watcher, a
//! flusher) live in `executor` and are polled by [`Runtime::run_tasks`]; a connection is driven by
//! the worker loop, which asks [`Runtime::take_ready`] for those that were woken.

use crate::executor::{Queue, Tasks};
use crate::parked::Departed;
use crate::parts;
use crate::pipe::Pipes;
use crate::poller::{Kind, Ready, Registry};
use crate::slab::{Key, Slab};
use crate::timer::Timers;
use crate::watched::State;
use rustix::event::{EventfdFlags, eventfd};
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{RawWaker, RawWakerVTable, Waker};

/// A boxed future that stays on its worker.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Bytes of the buffer lent by [`with_scratch`].
pub const SCRATCH: usize = 64 << 10;

/// Scratch buffers that are kept; more are lent where calls are nested.
const SCRATCHES: usize = 2;

// What a waker wakes: a key, what kind of thing it is the key of, and the worker.
const KEY_BITS: u32 = 51;
const TASK_BIT: u64 = 1 << KEY_BITS;
const PART_BIT: u64 = 1 << (KEY_BITS + 1);
const WORKER_SHIFT: u32 = KEY_BITS + 2;

/// Wakes a worker from any thread.
pub struct Remote {
    woken: Mutex<Vec<u64>>,
    event: OwnedFd,
    /// Descriptors that other threads have taken from this one.
    pub(crate) departed: Departed,
}

impl Remote {
    /// Ends the worker's wait; it looks at its inboxes.
    pub fn notify(&self) {
        // A full counter (EAGAIN) means that the wake-up is pending already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// However many are woken before the worker looks, it is told once: whoever comes first tells it, and it takes all that
    /// are there when it has heard of it.
    fn push(&self, target: u64) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = woken.is_empty();
        woken.push(target);
        drop(woken);
        if is_first {
            self.notify();
        }
    }
}

static REMOTES: Mutex<Vec<Arc<Remote>>> = Mutex::new(Vec::new());

thread_local! {
    static RUNTIME: OnceCell<Rc<Runtime>> = const { OnceCell::new() };
}

/// The executor of this thread.
pub struct Runtime {
    pub(crate) worker: u64,
    registry: Arc<Registry>,
    ready: Queue,
    tasks: Tasks,
    pub(crate) watched: RefCell<Slab<Rc<State>>>,
    pub(crate) timers: RefCell<Timers>,
    scratch: RefCell<Vec<Vec<u8>>>,
    pub(crate) pipes: Pipes,
    pub(crate) parts: parts::Table,
    pub(crate) remote: Arc<Remote>,
    /// How many tasks a worker that drains waits for.
    awaited: Rc<Cell<usize>>,
}

/// How other threads reach the worker with this number.
pub(crate) fn remote_of(worker: u64) -> Option<Arc<Remote>> {
    REMOTES.lock().unwrap_or_else(PoisonError::into_inner).get(worker as usize).cloned()
}

impl Runtime {
    /// Makes this thread a worker. Once per thread; at most 2,048 in a process.
    ///
    /// # Errors
    /// This thread is a worker already, the process has had too many, or there is no descriptor left.
    pub fn install(registry: Registry) -> io::Result<Rc<Runtime>> {
        crate::paged::prepare();
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let registry = Arc::new(registry);
        let departed = Departed::from(&registry);
        let remote = Arc::new(Remote { woken: Mutex::default(), event, departed });
        let worker = {
            let mut remotes = REMOTES.lock().unwrap_or_else(PoisonError::into_inner);
            remotes.push(remote.clone());
            remotes.len() as u64 - 1
        };
        if worker >= 1 << (64 - WORKER_SHIFT) {
            return Err(io::Error::other("more than 2,048 worker threads in one process"));
        }
        let runtime = Rc::new(Runtime {
            worker,
            registry,
            ready: Queue::default(),
            tasks: Tasks::default(),
            watched: RefCell::default(),
            timers: RefCell::default(),
            scratch: RefCell::new(vec![vec![0; SCRATCH]]),
            pipes: Pipes::default(),
            parts: parts::Table::default(),
            remote: remote.clone(),
            awaited: Rc::default(),
        });
        let key = runtime.watched.borrow_mut().insert(Rc::new(State::default()));
        runtime.registry.add_readable(remote.event.as_fd(), Kind::Remote, key)?;
        RUNTIME
            .with(|cell| cell.set(runtime.clone()))
            .map_err(|_| io::Error::other("this thread is a worker already"))?;
        Ok(runtime)
    }

    /// The handle other threads use to wake this worker.
    pub fn remote(&self) -> Arc<Remote> {
        self.remote.clone()
    }

    /// Where descriptors are registered.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Swaps out the connections woken since the last call.
    #[inline]
    pub fn take_ready(&self, into: &mut Vec<Key>) {
        self.ready.swap(into);
    }

    /// Whether anything waits to be run without an event.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || self.tasks.has_woken()
    }

    /// Whether a connection waits to be run without an event.
    #[inline]
    pub fn has_woken(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Moves what other threads have woken into the queues of this one.
    pub fn on_remote(&self) {
        let _ = rustix::io::read(&self.remote.event, &mut [0; 8]);
        let woken = std::mem::take(&mut *self.remote.woken.lock().unwrap_or_else(PoisonError::into_inner));
        for target in woken {
            self.queue(target);
        }
    }

    /// Readiness of a watched descriptor: sets its flags and wakes who waits for it; runs nothing.
    pub fn on_io(&self, event: &Ready) {
        let state = self.watched.borrow().get(event.key()).cloned();
        if let Some(state) = state {
            state.on_event(event);
        }
    }

    /// When the next [`crate::timer`] passes, monotonic nanoseconds: the poller must not wait longer.
    #[inline]
    pub fn next_deadline(&self) -> Option<u64> {
        self.timers.borrow().next()
    }

    /// Wakes what waited for a deadline that has passed by `now`.
    pub fn expire(&self, now: u64) {
        if !self.timers.borrow_mut().advance(now) {
            return;
        }
        loop {
            let expired = self.timers.borrow_mut().take_expired(now);
            let Some(waker) = expired else { return };
            waker.wake();
        }
    }

    /// Starts a background task; it is polled for the first time by the next [`Runtime::run_tasks`].
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(Box::pin(future));
    }

    /// Starts a background task whose end a worker that drains waits for.
    pub fn spawn_awaited(&self, future: impl Future<Output = ()> + 'static) {
        let awaited = Awaited::one_more(&self.awaited);
        self.spawn(async move {
            future.await;
            drop(awaited);
        });
    }

    /// Whether there are tasks that a worker that drains waits for.
    pub fn has_awaited(&self) -> bool {
        self.awaited.get() > 0
    }

    /// Polls the tasks that were woken, once each.
    pub fn run_tasks(&self) {
        self.tasks.run(|key| waker_of(self.worker << WORKER_SHIFT | TASK_BIT | key.0));
    }

    /// The worker ends: drops all background tasks, and those that are spawned from now on. Left to the end of the
    /// thread they would be dropped when what they use there is gone.
    pub fn end(&self) {
        self.tasks.end();
    }

    fn queue(&self, target: u64) {
        let key = Key(target & (TASK_BIT - 1));
        if target & TASK_BIT != 0 {
            self.tasks.wake(key);
        } else if target & PART_BIT != 0 {
            if let Some(connection) = self.parts.wake(key) {
                self.ready.push(connection);
            }
        } else {
            self.ready.push(key);
        }
    }
}

/// One of those tasks, until it is dropped.
struct Awaited(Rc<Cell<usize>>);

impl Awaited {
    fn one_more(of: &Rc<Cell<usize>>) -> Awaited {
        of.set(of.get() + 1);
        Awaited(of.clone())
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Runs `f` with this thread's runtime.
///
/// # Panics
/// Outside a worker thread.
pub fn with<R>(f: impl FnOnce(&Rc<Runtime>) -> R) -> R {
    RUNTIME.with(|cell| f(cell.get().expect("invariant: called on a worker thread")))
}

/// Runs `f` with this thread's runtime where there is one: for destructors, which may run after it.
pub fn try_with<R>(f: impl FnOnce(&Rc<Runtime>) -> R) -> Option<R> {
    RUNTIME.try_with(|cell| cell.get().map(f)).ok().flatten()
}

/// Lends a scratch buffer of [`SCRATCH`] bytes. What is in it is left from its last use. A nested call gets another one.
#[inline]
pub fn with_scratch<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    with(|runtime| {
        let kept = runtime.scratch.borrow_mut().pop();
        let mut buffer = kept.unwrap_or_else(|| vec![0; SCRATCH]);
        let result = f(&mut buffer);
        let mut scratch = runtime.scratch.borrow_mut();
        if scratch.len() < SCRATCHES {
            scratch.push(buffer);
        }
        result
    })
}

/// The waker of a connection of this worker.
pub fn waker(key: Key) -> Waker {
    waker_of(with(|runtime| runtime.worker) << WORKER_SHIFT | key.0)
}

/// The waker of a part of a connection of this worker.
pub(crate) fn part_waker(key: Key) -> Waker {
    waker_of(with(|runtime| runtime.worker) << WORKER_SHIFT | PART_BIT | key.0)
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(|data| RawWaker::new(data, &VTABLE), wake, wake, |_| ());

fn waker_of(target: u64) -> Waker {
    let data = std::ptr::without_provenance(target as usize);
    // SAFETY: the data pointer is a number that nothing dereferences; every function of the table only
    // reads it, may be called from any thread, and there is nothing to free.
    #[allow(unsafe_code)]
    unsafe {
        Waker::from_raw(RawWaker::new(data, &VTABLE))
    }
}

fn wake(data: *const ()) {
    let target = data.addr() as u64;
    let worker = target >> WORKER_SHIFT;
    let is_here = RUNTIME.try_with(|cell| match cell.get() {
        Some(runtime) if runtime.worker == worker => {
            runtime.queue(target);
            true
        }
        _ => false,
    });
    if is_here != Ok(true)
        && let Some(remote) = remote_of(worker)
    {
        remote.push(target & ((1 << WORKER_SHIFT) - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poller::Poller;

    #[test]
    fn a_worker_is_told_once_of_all_that_others_wake_at_a_time() {
        let poller = Poller::new().unwrap();
        let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
        let mut connections = Slab::default();
        let keys: Vec<Key> = (0..100).map(|_| connections.insert(())).collect();
        let wakers: Vec<Waker> = keys.iter().map(|key| waker(*key)).collect();
        for _ in 0..2 {
            std::thread::scope(|scope| {
                scope.spawn(|| wakers.iter().for_each(Waker::wake_by_ref));
            });
            let mut told = [0; 8];
            rustix::io::read(&runtime.remote.event, &mut told).unwrap();
            assert_eq!(u64::from_ne_bytes(told), 1);
            runtime.on_remote();
            let mut ready = Vec::new();
            runtime.take_ready(&mut ready);
            assert_eq!(ready, keys);
        }
    }
}
