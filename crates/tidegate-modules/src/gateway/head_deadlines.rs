//! How long an application may take until the head of its answer: the deadlines of the requests of a route that wait for one.
//!
//! All of them are equally long, so they pass in the order in which they began: they stand in a queue, and one timer waits for
//! the first. To begin with one and to end it touches the queue alone, where a timer for each would have to be armed and
//! disarmed with each request; hardly any ever passes.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::runtime;
use tidegate_io::timer::{self, Deadline};
use tidegate_io::{Key, Slab};

/// Those of one route on one worker.
pub(super) struct HeadDeadlines {
    /// Nanoseconds.
    timeout: u64,
    queue: RefCell<Queue>,
    /// Of the task that has the timer, once it runs.
    watcher: RefCell<Option<Waker>>,
    /// The task will look at the queue: it has been woken, or its timer is armed for the first in it or for one before that.
    is_watched: Cell<bool>,
}

/// Those that wait, in the order in which they pass: a list, so that one ends wherever it stands.
#[derive(Default)]
struct Queue {
    waiting: Slab<Waiting>,
    first: Option<Key>,
    last: Option<Key>,
}

struct Waiting {
    /// When it passes: monotonic, nanoseconds.
    due: u64,
    waker: Waker,
    /// It is in the list no more.
    has_passed: bool,
    before: Option<Key>,
    behind: Option<Key>,
}

impl Queue {
    fn push(&mut self, due: u64, waker: Waker) -> Key {
        let before = self.last;
        let key = self.waiting.insert(Waiting { due, waker, has_passed: false, before, behind: None });
        self.last = Some(key);
        match before.and_then(|before| self.waiting.get_mut(before)) {
            Some(before) => before.behind = self.last,
            None => self.first = self.last,
        }
        key
    }

    /// Takes one out of the list; its neighbours are given.
    fn unlink(&mut self, before: Option<Key>, behind: Option<Key>) {
        match before.and_then(|before| self.waiting.get_mut(before)) {
            Some(before) => before.behind = behind,
            None => self.first = behind,
        }
        match behind.and_then(|behind| self.waiting.get_mut(behind)) {
            Some(behind) => behind.before = before,
            None => self.last = before,
        }
    }

    fn remove(&mut self, key: Key) -> Option<Waiting> {
        let gone = self.waiting.remove(key)?;
        if !gone.has_passed {
            self.unlink(gone.before, gone.behind);
        }
        Some(gone)
    }

    /// When the first passes.
    fn next(&self) -> Option<u64> {
        self.waiting.get(self.first?).map(|first| first.due)
    }

    /// Whom to wake, where the first passes by `now`: it has, then.
    fn pass(&mut self, now: u64) -> Option<Waker> {
        let first = self.waiting.get_mut(self.first?).filter(|first| first.due <= now)?;
        first.has_passed = true;
        let (waker, behind) = (first.waker.clone(), first.behind);
        self.unlink(None, behind);
        Some(waker)
    }
}

impl HeadDeadlines {
    pub(super) fn new(timeout: Duration) -> Rc<HeadDeadlines> {
        Rc::new(HeadDeadlines {
            timeout: u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX),
            queue: RefCell::default(),
            watcher: RefCell::default(),
            is_watched: Cell::new(false),
        })
    }

    /// One that began at `since`, no earlier than the last one did but for the length of a step: monotonic, nanoseconds.
    fn enter(self: &Rc<Self>, since: u64, waker: &Waker) -> Key {
        let key = self.queue.borrow_mut().push(since.saturating_add(self.timeout), waker.clone());
        if !self.is_watched.replace(true) {
            self.watch();
        }
        key
    }

    #[cold]
    fn watch(self: &Rc<Self>) {
        let watcher = self.watcher.borrow().clone();
        match watcher {
            Some(watcher) => watcher.wake(),
            None => runtime::with(|runtime| {
                runtime.spawn(Watcher { deadlines: Rc::downgrade(self), timer: None });
            }),
        }
    }

    /// Ready where it has passed.
    fn poll(&self, key: Key, waker: &Waker) -> Poll<()> {
        let mut queue = self.queue.borrow_mut();
        match queue.waiting.get_mut(key) {
            Some(waiting) if !waiting.has_passed => {
                waiting.waker.clone_from(waker);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    fn leave(&self, key: Key) {
        let gone = self.queue.borrow_mut().remove(key);
        drop(gone); // not while the queue is borrowed: it is somebody's waker
    }
}

impl Drop for HeadDeadlines {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher.get_mut() {
            watcher.wake_by_ref(); // it ends
        }
    }
}

/// Wakes those whose deadlines have passed, for as long as there is a queue.
struct Watcher {
    deadlines: Weak<HeadDeadlines>,
    timer: Option<Deadline>,
}

impl Future for Watcher {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadlines) = self.deadlines.upgrade() else { return Poll::Ready(()) };
        deadlines.watcher.borrow_mut().get_or_insert_with(|| cx.waker().clone());
        loop {
            let now = monotonic_ns();
            loop {
                let passed = deadlines.queue.borrow_mut().pass(now);
                let Some(waker) = passed else { break };
                waker.wake();
            }
            let next = deadlines.queue.borrow().next();
            deadlines.is_watched.set(next.is_some());
            self.timer = next.map(timer::at);
            let Some(timer) = &mut self.timer else { return Poll::Pending };
            std::task::ready!(Pin::new(timer).poll(cx)); // else it has passed meanwhile
        }
    }
}

/// The deadline of one request, once it has been polled. Begun anew where something has come of the head, and ended where it is
/// dropped.
pub(super) struct HeadDeadline {
    /// Monotonic, nanoseconds; 0: when it is polled next.
    since: u64,
    entered: Option<(Rc<HeadDeadlines>, Key)>,
}

impl HeadDeadline {
    /// One that begins now, monotonic nanoseconds.
    pub(super) fn since(now: u64) -> HeadDeadline {
        HeadDeadline { since: now, entered: None }
    }

    /// Ends it. The next one begins when it is polled.
    pub(super) fn ends(&mut self) {
        self.since = 0;
        if let Some((deadlines, key)) = self.entered.take() {
            deadlines.leave(key);
        }
    }

    /// Nothing has come. Ready when that was so for too long.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, deadlines: &Rc<HeadDeadlines>) -> Poll<()> {
        if let Some((deadlines, key)) = &self.entered {
            return deadlines.poll(*key, cx.waker());
        }
        let since = if self.since == 0 { monotonic_ns() } else { self.since };
        self.entered = Some((deadlines.clone(), deadlines.enter(since, cx.waker())));
        Poll::Pending
    }
}

impl Drop for HeadDeadline {
    fn drop(&mut self) {
        self.ends();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_io::{Poller, Runtime};

    /// What a worker does between two polls.
    fn turn(poller: &mut Poller, runtime: &Runtime) {
        let mut ready = Vec::new();
        poller.wait(Some(Duration::from_millis(10)), &mut ready).unwrap();
        runtime.expire(monotonic_ns());
        runtime.run_tasks();
    }

    #[test]
    fn deadlines_pass_in_their_order_and_not_early() {
        let mut poller = Poller::new().unwrap();
        let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
        let timeout = Duration::from_millis(20);
        let all = HeadDeadlines::new(timeout);
        let mut cx = Context::from_waker(Waker::noop());
        for round in 0..3 {
            let begun: Vec<u64> = (0..3).map(|_| monotonic_ns()).collect();
            let mut deadlines: Vec<_> = begun.iter().map(|since| HeadDeadline::since(*since)).collect();
            for deadline in &mut deadlines {
                assert!(deadline.poll(&mut cx, &all).is_pending());
            }
            assert_eq!(all.queue.borrow().waiting.len(), 3, "{round}");
            // One ends, one has something come and waits anew.
            drop(deadlines.remove(0));
            let anew = monotonic_ns();
            deadlines[0].ends();
            assert!(deadlines[0].poll(&mut cx, &all).is_pending());
            let (mut passed_anew, mut passed) = (false, false);
            while !(passed_anew && passed) {
                turn(&mut poller, &runtime);
                passed |= deadlines[1].poll(&mut cx, &all).is_ready();
                passed_anew |= deadlines[0].poll(&mut cx, &all).is_ready();
                let now = monotonic_ns();
                let is_late = |since| u128::from(now - since) >= timeout.as_nanos();
                assert!((!passed || is_late(begun[2])) && (!passed_anew || is_late(anew)), "early");
                assert!(passed || !passed_anew, "the one that began last has passed first");
            }
            drop(deadlines);
            assert_eq!(all.queue.borrow().waiting.len(), 0);
        }
    }

    #[test]
    fn whoever_waits_is_woken_once_and_whoever_has_left_is_not() {
        struct Count(std::sync::atomic::AtomicU32);
        impl std::task::Wake for Count {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let mut poller = Poller::new().unwrap();
        let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
        let all = HeadDeadlines::new(Duration::from_millis(1));
        let counts: Vec<_> = (0..3).map(|_| std::sync::Arc::new(Count(0.into()))).collect();
        let mut deadlines: Vec<_> = counts
            .iter()
            .map(|count| {
                let mut deadline = HeadDeadline::since(monotonic_ns());
                let waker = Waker::from(count.clone());
                assert!(deadline.poll(&mut Context::from_waker(&waker), &all).is_pending());
                deadline
            })
            .collect();
        deadlines.remove(1);
        while all.queue.borrow().next().is_some() {
            turn(&mut poller, &runtime);
        }
        turn(&mut poller, &runtime);
        let woken: Vec<u32> =
            counts.iter().map(|count| count.0.load(std::sync::atomic::Ordering::Relaxed)).collect();
        assert_eq!(woken, [1, 0, 1]);
        assert!(!all.is_watched.get(), "nobody waits");
        // The task learns that there is no queue any more.
        *all.watcher.borrow_mut() = Some(Waker::from(counts[1].clone()));
        drop((deadlines, all));
        assert_eq!(counts[1].0.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}
