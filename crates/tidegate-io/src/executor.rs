//! The tasks of one worker, and which of them were woken. Knows neither wakers nor threads: those are for `runtime`.
//!
//! A task may do anything while it is polled or dropped: wake any task, itself included, spawn others, end the executor.
//! Therefore nothing here is borrowed while code of a task runs. The cells are private, and no borrow leaves a function.

use crate::clock;
use crate::runtime::LocalFuture;
use crate::slab::{Key, Slab};
use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

/// Keys that wait for their turn.
#[derive(Default)]
pub(crate) struct Queue(RefCell<Vec<Key>>);

impl Queue {
    #[inline]
    pub(crate) fn push(&self, key: Key) {
        self.0.borrow_mut().push(key);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Exchanges what waits for what is in `into`, which is empty.
    #[inline]
    pub(crate) fn swap(&self, into: &mut Vec<Key>) {
        std::mem::swap(&mut *self.0.borrow_mut(), into);
    }
}

struct Task {
    /// Away while it is polled.
    future: Option<LocalFuture<()>>,
    /// It is in the queue.
    is_woken: bool,
}

/// Tasks, each of which is polled once for all the wake-ups since it was polled last.
#[derive(Default)]
pub(crate) struct Tasks {
    slab: RefCell<Slab<Task>>,
    woken: Queue,
    /// Memory of a queue that is worked off.
    spare: Cell<Vec<Key>>,
    has_ended: Cell<bool>,
}

impl Tasks {
    /// Takes in a task, which counts as woken. After the end it is dropped instead.
    pub(crate) fn spawn(&self, future: LocalFuture<()>) {
        if self.has_ended.get() {
            return;
        }
        let key = self.slab.borrow_mut().insert(Task { future: Some(future), is_woken: true });
        self.woken.push(key);
    }

    /// The task of this key is polled by the next [`Tasks::run`]. One that has ended is not.
    pub(crate) fn wake(&self, key: Key) {
        let is_new = {
            let mut slab = self.slab.borrow_mut();
            slab.get_mut(key).is_some_and(|task| !std::mem::replace(&mut task.is_woken, true))
        };
        if is_new {
            self.woken.push(key);
        }
    }

    /// Whether a task was woken.
    #[inline]
    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Polls the tasks that were woken, once each. What they wake meanwhile is for the next call, unless its turn is
    /// still to come in this one.
    pub(crate) fn run(&self, waker: impl Fn(Key) -> Waker) {
        if !self.has_woken() {
            return;
        }
        let mut turn = self.spare.take();
        self.woken.swap(&mut turn);
        for key in turn.drain(..) {
            let Some(mut future) = self.take(key) else { continue };
            clock::begin_step();
            let is_done = future.as_mut().poll(&mut Context::from_waker(&waker(key))).is_ready();
            if is_done || self.has_ended.get() {
                let removed = self.slab.borrow_mut().remove(key);
                drop((future, removed));
            } else {
                self.put_back(key, future);
            }
        }
        self.spare.set(turn);
    }

    fn take(&self, key: Key) -> Option<LocalFuture<()>> {
        let mut slab = self.slab.borrow_mut();
        let task = slab.get_mut(key)?;
        task.is_woken = false;
        task.future.take()
    }

    fn put_back(&self, key: Key, future: LocalFuture<()>) {
        let mut slab = self.slab.borrow_mut();
        if let Some(task) = slab.get_mut(key) {
            task.future = Some(future);
        }
    }

    /// Drops all tasks, and those to come.
    pub(crate) fn end(&self) {
        self.has_ended.set(true);
        let tasks = std::mem::take(&mut *self.slab.borrow_mut());
        self.woken.swap(&mut Vec::new());
        drop(tasks);
    }
}
