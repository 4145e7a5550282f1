//! What the master writes and removes while it serves, on a thread of its own: a file system may hang, and the master's thread
//! never waits for one for long.
//!
//! One thing is done after the other. What takes longer than a moment is done later; whoever wants it hears that.

use crate::link::close_apart;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidegate_core::log;

/// How long the master waits for it.
const PATIENCE: Duration = Duration::from_secs(1);
/// What waits behind something that hangs; the rest is not done.
const WAITING: usize = 64;

type Work = Box<dyn FnOnce() + Send>;

/// The thread, and what it has to do.
#[derive(Default)]
pub struct Disk {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    /// A thread does it. There is none where nothing is to be done.
    is_running: bool,
}

impl Disk {
    /// Does this behind all that was asked for before, and waits a moment for it. `None`: its file system does not answer, which
    /// is said with `what` is meant; it is done when that answers.
    pub fn run<T: Send + 'static>(&self, what: &str, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, outcome) = channel();
        let outcome = self.begin(Box::new(move || drop(done.send(work())))).then_some(outcome);
        let outcome = outcome.and_then(|outcome: Receiver<T>| outcome.recv_timeout(PATIENCE).ok());
        if outcome.is_none() {
            log::error(format_args!("{what}: the file system does not answer, and this waits until it does"));
        }
        outcome
    }

    /// Whether it will be done.
    fn begin(&self, work: Work) -> bool {
        let mut queue = lock(&self.queue);
        if queue.work.len() >= WAITING {
            drop(queue);
            close_apart(vec![work]);
            return false;
        }
        queue.work.push_back(work);
        if !queue.is_running {
            let own = self.queue.clone();
            let thread = std::thread::Builder::new().name("tidegate-disk".into());
            queue.is_running = thread
                .spawn(move || {
                    while let Some(work) = next(&own) {
                        work()
                    }
                })
                .is_ok();
        }
        queue.is_running
    }
}

fn next(queue: &Mutex<Queue>) -> Option<Work> {
    let mut queue = lock(queue);
    let work = queue.work.pop_front();
    queue.is_running = work.is_some();
    work
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_testkit::WAIT;

    #[test]
    fn one_thing_is_done_after_the_other_and_nobody_waits_for_one_that_hangs() {
        let disk = Disk::default();
        assert_eq!(disk.run("one", || 1), Some(1));
        let (go, hangs) = channel::<()>();
        let (said, order) = channel();
        let first = said.clone();
        let hung = disk.run("a hung one", move || {
            let _ = hangs.recv();
            first.send("first").unwrap();
        });
        assert_eq!(hung, None);
        assert_eq!(disk.run("one behind it", move || said.send("second").unwrap()), None);
        drop(go);
        assert_eq!(order.recv_timeout(WAIT), Ok("first"));
        assert_eq!(order.recv_timeout(WAIT), Ok("second"));
        assert_eq!(disk.run("another", || 2), Some(2));
    }
}
