//! The threads of a run: started, listened to, waited for. Whoever makes load in this process (`run`, `scenario/engine`) has its workers
//! here. A thread cannot be ended from outside, so that one that does not end is left behind.

use crate::clock::monotonic_ns;
use crate::run::Stop;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long workers that are to have ended are waited for, while none of them says anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked whether somebody wants the run to end.
const LOOK: Duration = Duration::from_millis(100);

/// When workers are to end.
pub(crate) struct Ends<'e> {
    /// Somebody wants it from outside.
    pub stop: &'e Stop,
    /// What workers read.
    pub is_over: &'e AtomicBool,
    /// By when all of them have ended by themselves, monotonic nanoseconds, where that is known.
    pub latest: Option<u64>,
    /// How long they are waited for then, while none of them says anything.
    pub patience: Duration,
}

/// Why a worker has ended before its time, and what to do, where that is known.
pub(crate) fn fault_of_worker(fault: &io::Error) -> String {
    let is_full = |errno: Errno| fault.raw_os_error() == Some(errno.raw_os_error());
    let help = match () {
        () if is_full(Errno::MFILE) => "; raise `ulimit -n`, or use fewer --threads",
        () if is_full(Errno::NFILE) => "; raise the sysctl fs.file-max",
        () => "",
    };
    format!("a worker of the generator failed: {fault}{help}")
}

/// Runs so many workers, a thread each, and takes in what they tell until all of them have ended. One that is in something without
/// end, as a function of a script may be, is left behind, so that the run ends; it goes when the process does. Gives the numbers of
/// those.
///
/// # Errors
/// A thread could not be started; the others have ended.
pub(crate) fn with_workers<M: Send + 'static>(
    name: &str,
    threads: u32,
    ends: Ends<'_>,
    work: impl Fn(u32, Sender<M>) + Send + Sync + 'static,
    mut take: impl FnMut(M),
) -> io::Result<Vec<u32>> {
    let (sender, receiver) = channel();
    let work = Arc::new(work);
    let (mut workers, mut refused) = (Vec::new(), None);
    for number in 0..threads {
        let (sender, work) = (sender.clone(), work.clone());
        let thread = thread::Builder::new().name(format!("{name}-{number}"));
        match thread.spawn(move || work(number, sender)) {
            Ok(worker) => workers.push(worker),
            Err(error) => {
                ends.is_over.store(true, Relaxed);
                refused = Some(error);
                break;
            }
        }
    }
    drop(sender);
    // Looks, and not the clock: a process that was stopped for a while goes on with all of its threads at once.
    let most = (ends.patience.as_millis() / LOOK.as_millis()) as u32;
    let mut silent = 0;
    let has_ended = loop {
        match receiver.recv_timeout(LOOK) {
            Ok(message) => {
                silent = 0;
                take(message);
            }
            Err(RecvTimeoutError::Timeout) => {
                let is_due = ends.latest.is_some_and(|latest| monotonic_ns() > latest);
                let is_due = is_due || ends.is_over.load(Relaxed);
                silent = if is_due { silent + 1 } else { 0 };
                if silent > most {
                    break false;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break true,
        }
        if ends.stop.is_stopped() {
            ends.is_over.store(true, Relaxed);
        }
    };
    let mut left = Vec::new();
    for (number, worker) in (0..).zip(workers) {
        if !has_ended && !worker.is_finished() {
            left.push(number);
        } else if let Err(panic) = worker.join() {
            std::panic::resume_unwind(panic);
        }
    }
    refused.map_or(Ok(left), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A worker that does not end is left behind, when it was to have ended and has been silent for long enough.
    #[test]
    fn who_does_not_end_is_left_behind() {
        for (latest, is_stopped) in [(Some(0), false), (None, true)] {
            let (stop, is_over) = (Stop::default(), AtomicBool::new(false));
            // Kept, so that the worker waits for good.
            let (_keep, held) = channel::<()>();
            let held = Mutex::new(held);
            let work = move |number, sender: Sender<u32>| {
                sender.send(number).unwrap();
                if number == 1 {
                    let _ = held.lock().unwrap().recv();
                }
            };
            if is_stopped {
                stop.stop();
            }
            let mut told = Vec::new();
            let ends = Ends { stop: &stop, is_over: &is_over, latest, patience: Duration::from_millis(200) };
            let left = with_workers("test", 3, ends, work, |number| told.push(number)).unwrap();
            told.sort_unstable();
            assert_eq!((left, told, is_over.load(Relaxed)), (vec![1], vec![0, 1, 2], is_stopped));
        }
        let (stop, is_over) = (Stop::default(), AtomicBool::new(false));
        let ends = Ends { stop: &stop, is_over: &is_over, latest: Some(0), patience: PATIENCE };
        let work = |number, sender: Sender<u32>| sender.send(number).unwrap();
        assert_eq!(with_workers("test", 3, ends, work, drop).unwrap(), Vec::<u32>::new());
    }
}
