//! A pool of threads for calls that may wait for a disk: cold look-ups, cold pages, directory scans.
//!
//! A worker hands over a closure and gets a future; the thread that ran it wakes the worker. The queue is
//! bounded: beyond it a job is refused at once, and the request that wanted it is answered 503.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Threads at most; started when there is work and none is free.
const THREADS: usize = 32;
/// Jobs waiting at most.
const QUEUE: usize = 8192;

/// The pool's queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overloaded;

impl std::fmt::Display for Overloaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the pool for blocking calls has too many jobs waiting")
    }
}

impl std::error::Error for Overloaded {}

type Job = Box<dyn FnOnce() + Send>;

struct Pool {
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static POOL: Pool =
    Pool { state: Mutex::new(State { jobs: VecDeque::new(), threads: 0, idle: 0 }), work: Condvar::new() };

/// Runs `job` on a thread of the pool. Dropping the future before the job has begun cancels it.
pub fn run<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Result<Pending<T>, Overloaded> {
    let cell = Arc::new(Mutex::new(Outcome { value: None, waker: None }));
    let pending = Pending { cell: cell.clone() };
    POOL.submit(Box::new(move || {
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
    }))?;
    Ok(pending)
}

impl Pool {
    fn submit(&'static self, job: Job) -> Result<(), Overloaded> {
        let mut state = lock(&self.state);
        if state.jobs.len() >= QUEUE {
            return Err(Overloaded);
        }
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            self.work.notify_one();
        } else if state.threads < THREADS {
            state.threads += 1;
            let started =
                std::thread::Builder::new().name("tidegate-blocking".into()).spawn(move || self.work_off());
            if started.is_err() {
                state.threads -= 1;
                if state.threads == 0 {
                    state.jobs.pop_back();
                    return Err(Overloaded);
                }
            }
        }
        Ok(())
    }

    fn work_off(&self) {
        let mut state = lock(&self.state);
        loop {
            while let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = lock(&self.state);
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::task::Wake;

    struct Signal(mpsc::SyncSender<()>);
    impl Wake for Signal {
        fn wake(self: Arc<Self>) {
            let _ = self.0.try_send(());
        }
    }

    #[test]
    fn runs_and_wakes() {
        let (sender, woken) = mpsc::sync_channel(1);
        let waker = Waker::from(Arc::new(Signal(sender)));
        let (go, gate) = mpsc::channel::<()>();
        let mut pending = run(move || gate.recv().map(|()| 42)).expect("an empty queue takes a job");
        let mut cx = Context::from_waker(&waker);
        assert_eq!(Pin::new(&mut pending).poll(&mut cx), Poll::Pending);
        go.send(()).expect("the job waits for this");
        woken.recv().expect("the job wakes its waiter");
        assert_eq!(Pin::new(&mut pending).poll(&mut cx), Poll::Ready(Ok(42)));
    }
}
