//! Threads of their own for work that takes long without waiting for anything, such as comparing passwords.
//!
//! The pool for blocking calls may have many threads, since they sleep. Work that computes would take the processors
//! from the workers: a lane has few threads, of low priority, and a bounded queue, beyond which a job is refused at once.

use crate::blocking::{Overloaded, PoolFigures};
use rustix::process::setpriority_process;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How much lower than the workers' the priority of a lane is (nice(2)).
const NICE: i32 = 10;

type Job = Box<dyn FnOnce() + Send>;

/// A few threads that compute. Made once for the process.
pub struct Lane {
    name: &'static str,
    most_threads: usize,
    most_waiting: usize,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// The most jobs that have waited.
    peak: usize,
}

impl Lane {
    /// A lane of at most so many threads, which are started when there is work, and so many jobs that wait. The name is
    /// that of the threads, at most 15 bytes.
    pub fn new(name: &'static str, threads: usize, waiting: usize) -> Lane {
        let (state, work) = (Mutex::default(), Condvar::new());
        Lane { name, most_threads: threads.max(1), most_waiting: waiting, state, work }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a job.
    ///
    /// # Errors
    /// [`Overloaded`]: too many jobs wait already, or not one thread can be started.
    pub fn run(&'static self, job: impl FnOnce() + Send + 'static) -> Result<(), Overloaded> {
        let mut state = self.state();
        if state.jobs.len() >= self.most_waiting {
            return Err(Overloaded);
        }
        // One that was woken and has not come yet is idle still: it takes one job.
        if state.idle <= state.jobs.len() && state.threads < self.most_threads {
            let thread = std::thread::Builder::new().name(self.name.into());
            match thread.spawn(move || self.work_off()) {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads == 0 => return Err(Overloaded),
                Err(_) => {} // those that are there take it
            }
        }
        state.jobs.push_back(Box::new(job));
        state.peak = state.peak.max(state.jobs.len());
        self.work.notify_one();
        Ok(())
    }

    /// The name of its threads.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How it stands.
    pub fn figures(&self) -> PoolFigures {
        let state = self.state();
        PoolFigures {
            idle: state.idle,
            threads: state.threads,
            threads_limit: self.most_threads,
            waiting: state.jobs.len(),
            waiting_peak: state.peak,
            waiting_limit: self.most_waiting,
        }
    }

    /// The life of a thread.
    fn work_off(&self) {
        // Of this thread alone, on Linux. Where it is refused the work is done all the same.
        let _ = setpriority_process(None, NICE);
        let mut state = self.state();
        loop {
            match state.jobs.pop_front() {
                Some(job) => {
                    drop(state);
                    job();
                    state = self.state();
                }
                None => {
                    state.idle += 1;
                    state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.idle -= 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;
    use std::sync::mpsc::channel;
    use tidegate_testkit::receive;

    /// Threads that were woken have work already: jobs that come at once are not left to one of them.
    #[test]
    fn jobs_that_come_at_once_have_a_thread_each() {
        static LANE: LazyLock<Lane> = LazyLock::new(|| Lane::new("tidegate-test", 4, 8));
        let (said, heard) = channel();
        for _ in 0..20 {
            // All four have to be there, or nobody says anything.
            let all = std::sync::Arc::new(std::sync::Barrier::new(4));
            for _ in 0..4 {
                let (said, all) = (said.clone(), all.clone());
                LANE.run(move || {
                    all.wait();
                    said.send(()).unwrap();
                })
                .unwrap();
            }
            (0..4).for_each(|_| receive(&heard, "a job"));
        }
    }

    #[test]
    fn refuses_what_would_wait_too_long() {
        static LANE: LazyLock<Lane> = LazyLock::new(|| Lane::new("tidegate-test", 1, 2));
        let (go, gone) = channel::<()>();
        let (said, heard) = channel();
        let say = |what: &'static str| {
            let said = said.clone();
            move || said.send(what).unwrap()
        };
        let begun = say("begun");
        LANE.run(move || {
            begun();
            gone.recv().unwrap();
        })
        .unwrap();
        assert_eq!(receive(&heard, "the first"), "begun"); // the one thread is busy
        LANE.run(say("second")).unwrap();
        LANE.run(say("third")).unwrap();
        assert!(LANE.run(say("fourth")).is_err());
        let expected = PoolFigures {
            idle: 0,
            threads: 1,
            threads_limit: 1,
            waiting: 2,
            waiting_peak: 2,
            waiting_limit: 2,
        };
        assert_eq!((LANE.figures(), LANE.name()), (expected, "tidegate-test"));
        go.send(()).unwrap();
        assert_eq!((receive(&heard, "the second"), receive(&heard, "the third")), ("second", "third"));
        LANE.run(say("fifth")).unwrap();
        assert_eq!(receive(&heard, "the fifth"), "fifth");
    }
}
