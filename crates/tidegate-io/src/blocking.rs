//! A pool of threads for calls that may wait for a disk: cold look-ups, cold pages, directory scans.
//!
//! A worker hands over a closure and gets a future; the thread that ran it wakes the worker. The queue of each
//! device is bounded: beyond it a job is refused at once, and the request that wanted it is answered 503. Which job is
//! next, so that one slow disk does not take all threads, is decided by `device_queues`.
//!
//! A call to a disk that does not answer cannot be ended. So the pool knows when each thread began to wait ([`outstanding`]), and
//! whoever owns the disk does without it meanwhile. A job of many calls says where one ends and the next begins ([`next_call`]).

use crate::clock::monotonic_ns;
use crate::device_queues::DeviceQueues;
use crate::locking::lock;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub use crate::device_queues::QueueKey;

/// Threads at most; started when there is work and none is free. One device alone gets half of them.
const THREADS: usize = 64;
/// Jobs of a device waiting at most: one that does not answer fills its own queue and nobody else's.
const QUEUE: usize = 8192;

/// The pool's queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overloaded;

impl std::fmt::Display for Overloaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the pool for blocking calls has too many jobs of this disk waiting")
    }
}

impl std::error::Error for Overloaded {}

type Job = Box<dyn FnOnce() + Send>;

struct Pool {
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    queues: DeviceQueues<Job>,
    /// May run, and wait for a thread; with their device.
    started: VecDeque<(u64, Job)>,
    threads: usize,
    idle: usize,
    /// The most jobs that have waited.
    peak: usize,
    /// Jobs that run, one for each busy thread.
    running: Vec<Running>,
}

/// A job that runs.
struct Running {
    device: u64,
    call: Arc<AtomicU64>,
}

thread_local! {
    /// When the call began that a job of this thread waits for, monotonic nanoseconds. On threads of the pool alone.
    static CALL: OnceCell<Arc<AtomicU64>> = const { OnceCell::new() };
}

/// How long the call has been outstanding that has been so longest, of all jobs of a device; zero where none runs.
pub fn outstanding(device: u64) -> Duration {
    let now = monotonic_ns();
    let state = lock(&POOL.state);
    let of_device = state.running.iter().filter(|running| running.device == device);
    let longest = of_device.map(|running| now.saturating_sub(running.call.load(Relaxed))).max();
    Duration::from_nanos(longest.unwrap_or(0))
}

/// To be called by a job between two calls that may wait for a disk: [`outstanding`] counts from here. Does nothing on other threads.
#[inline]
pub fn next_call() {
    next_call_within(Duration::ZERO);
}

/// The same before a call that may well take so long, as `fdatasync(2)` on a busy disk: only what it takes beyond counts.
pub fn next_call_within(expected: Duration) {
    CALL.with(|call| {
        if let Some(call) = call.get() {
            call.store(monotonic_ns().saturating_add(expected.as_nanos() as u64), Relaxed);
        }
    });
}

/// How the pool stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolFigures {
    /// Threads that have nothing to do.
    pub idle: usize,
    /// Threads that were started; none ends.
    pub threads: usize,
    /// Threads at most.
    pub threads_limit: usize,
    /// Jobs that wait.
    pub waiting: usize,
    /// The most jobs that have waited.
    pub waiting_peak: usize,
    /// Jobs of one device that may wait.
    pub waiting_limit: usize,
}

/// How the pool of this process stands.
pub fn figures() -> PoolFigures {
    let state = lock(&POOL.state);
    PoolFigures {
        idle: state.idle,
        threads: state.threads,
        threads_limit: THREADS,
        waiting: state.queues.waiting(),
        waiting_peak: state.peak,
        waiting_limit: QUEUE,
    }
}

/// The devices that the pool has work for now: each with the jobs that run and those that wait. What is none
/// ([`QueueKey::is_device`]) is work that waits for no disk, or for one that is not open yet.
pub fn devices() -> Vec<(u64, usize, usize)> {
    lock(&POOL.state).queues.devices().collect()
}

static POOL: LazyLock<Pool> = LazyLock::new(|| Pool {
    state: Mutex::new(State {
        queues: DeviceQueues::new(THREADS),
        started: VecDeque::new(),
        threads: 0,
        idle: 0,
        peak: 0,
        running: Vec::new(),
    }),
    work: Condvar::new(),
});

/// Runs a job that waits for no disk. Dropping the future before the job has begun cancels it.
///
/// # Errors
/// [`Overloaded`]: too many jobs wait already, or not one thread can be started.
pub fn run<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Result<Pending<T>, Overloaded> {
    run_in(QueueKey::NO_DISK, job)
}

/// Runs a job that waits for what `queue_key` names. Dropping the future before the job has begun cancels it.
///
/// # Errors
/// As [`run`].
pub fn run_in<T: Send + 'static>(
    queue_key: QueueKey,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<Pending<T>, Overloaded> {
    let (job, pending) = with_outcome(job);
    POOL.submit(queue_key, job, QUEUE)?;
    Ok(pending)
}

/// Runs a job for a response that is under way, and is therefore taken however many wait: there are never
/// more of these than connections.
///
/// # Errors
/// [`Overloaded`]: not one thread can be started.
pub fn go_on<T: Send + 'static>(
    queue_key: QueueKey,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<Pending<T>, Overloaded> {
    let (job, pending) = with_outcome(job);
    POOL.submit(queue_key, job, usize::MAX)?;
    Ok(pending)
}

/// As [`go_on`], where nobody waits for an outcome: it is carried out all the same.
///
/// # Errors
/// As [`go_on`].
pub fn start(queue_key: QueueKey, job: impl FnOnce() + Send + 'static) -> Result<(), Overloaded> {
    POOL.submit(queue_key, Box::new(job), usize::MAX)
}

fn with_outcome<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> (Job, Pending<T>) {
    let cell = Arc::new(Mutex::new(Outcome { value: None, waker: None }));
    let pending = Pending { cell: cell.clone() };
    let job = Box::new(move || {
        if Arc::strong_count(&cell) == 1 {
            return; // nobody waits for it any more
        }
        let value = job();
        let waker = {
            let mut outcome = lock(&cell);
            outcome.value = Some(value);
            outcome.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    });
    (job, pending)
}

impl Pool {
    fn submit(&'static self, queue_key: QueueKey, job: Job, most: usize) -> Result<(), Overloaded> {
        let mut state = lock(&self.state);
        if state.queues.waiting_for(queue_key.device) >= most || !self.has_a_thread(&mut state) {
            return Err(Overloaded);
        }
        state.queues.push(queue_key, job);
        self.start_what_may(&mut state);
        state.peak = state.peak.max(state.queues.waiting());
        Ok(())
    }

    /// Moves on what may run, and sees to it that there are threads for it.
    fn start_what_may(&'static self, state: &mut State) {
        while let Some(started) = state.queues.start() {
            state.started.push_back(started);
            if state.idle >= state.started.len() {
                self.work.notify_one();
            } else if state.threads < state.queues.busy() {
                self.add_thread(state); // where that fails, those that are there take it
            }
        }
    }

    fn has_a_thread(&'static self, state: &mut State) -> bool {
        state.threads > 0 || self.add_thread(state)
    }

    fn add_thread(&'static self, state: &mut State) -> bool {
        let thread = std::thread::Builder::new().name("tidegate-blocking".into());
        let is_added = state.threads < THREADS && thread.spawn(move || self.work_off()).is_ok();
        state.threads += usize::from(is_added);
        is_added
    }

    fn work_off(&'static self) {
        let call = Arc::new(AtomicU64::new(0));
        CALL.with(|own| drop(own.set(call.clone())));
        let mut state = lock(&self.state);
        loop {
            while let Some((device, job)) = state.started.pop_front() {
                call.store(monotonic_ns(), Relaxed);
                state.running.push(Running { device, call: call.clone() });
                drop(state);
                job();
                state = lock(&self.state);
                state.running.retain(|running| !Arc::ptr_eq(&running.call, &call));
                state.queues.finish(device);
                self.start_what_may(&mut state);
            }
            state.idle += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

struct Outcome<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

/// The result of a job, once it has run.
pub struct Pending<T> {
    cell: Arc<Mutex<Outcome<T>>>,
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut outcome = lock(&self.cell);
        match outcome.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                outcome.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn runs_and_wakes() {
        let (go, gate) = mpsc::channel::<()>();
        let mut pending = run(move || gate.recv().map(|()| 42)).expect("an empty queue takes a job");
        assert_eq!(Pin::new(&mut pending).poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
        go.send(()).expect("the job waits for this");
        assert_eq!(tidegate_testkit::block_on(pending), Ok(42));
    }

    #[test]
    fn a_call_is_outstanding_until_the_next_one() {
        let key = QueueKey::of_unknown_device();
        assert_ne!(key.device, QueueKey::of_unknown_device().device);
        assert_eq!(outstanding(key.device), Duration::ZERO);
        let (go, gate) = mpsc::channel::<()>();
        let (told, has_gone_on) = mpsc::channel::<()>();
        start(key, move || {
            let _ = gate.recv();
            next_call_within(Duration::from_secs(3600));
            let _ = told.send(());
            let _ = gate.recv();
        })
        .expect("an empty queue takes a job");
        while outstanding(key.device) < Duration::from_millis(5) {
            std::thread::yield_now();
        }
        go.send(()).expect("the job waits for this");
        tidegate_testkit::receive(&has_gone_on, "the job to go on");
        assert_eq!(outstanding(key.device), Duration::ZERO, "the second call may take an hour");
        assert_eq!(outstanding(0x1234_5678), Duration::ZERO);
        drop(go);
        while POOL.state.lock().unwrap().running.iter().any(|running| running.device == key.device) {
            std::thread::yield_now();
        }
    }

    /// A disk that never answers, with far more jobs than the pool has threads: others go on.
    #[test]
    fn a_stuck_device_stops_nobody_else() {
        let gate = Arc::new(Mutex::new(()));
        let shut = lock(&gate);
        let stuck: Vec<_> = (0..10 * THREADS)
            .map(|_| {
                let gate = gate.clone();
                run_in(QueueKey { device: 1, file: 1 }, move || drop(lock(&gate))).expect("room in the queue")
            })
            .collect();
        let (sender, done) = mpsc::channel();
        let other =
            run_in(QueueKey { device: 2, file: 1 }, move || sender.send(())).expect("room in the queue");
        tidegate_testkit::receive(&done, "another device to be served");
        drop(other);
        // Nor with as many as may wait.
        let more: Vec<_> =
            (0..QUEUE + THREADS).map_while(|_| run_in(QueueKey { device: 1, file: 1 }, || ()).ok()).collect();
        assert!(more.len() < QUEUE);
        let (sender, done) = mpsc::channel();
        let other =
            run_in(QueueKey { device: 2, file: 1 }, move || sender.send(())).expect("room in the queue");
        tidegate_testkit::receive(&done, "another device to be served");
        drop((shut, other, stuck, more));
    }
}
