//! The thread that writes logs, and its patience with those that do not take what is written.
//!
//! Workers hand over buffers and never wait. What a log does not take at once is held for it and tried
//! again: a reader that was restarted or a disk that was full for a moment loses nothing. Both what is on
//! its way and what is held for one log are bounded; beyond that, lines are dropped, counted and said
//! (FAULTS 51).

use super::error;
use super::output::{self, Output};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidegate_config::settings::LogTarget;

/// Bytes on their way to the thread and held by it, of all logs together.
const MOST_QUEUED: usize = 16 << 20;
/// Bytes held for one log.
const MOST_HELD: usize = 8 << 20;
/// How often a log that failed is tried again; a pipe tells by itself when it takes more.
const RETRY: Duration = Duration::from_secs(1);
/// How long the thread looks at a full pipe before it looks at its orders.
const PIPE_PATIENCE: Duration = Duration::from_millis(20);
/// How long the end of the process waits for what is still to be written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// An open log: cheap to copy, good for the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sink(usize);

/// Owns the open files and the thread.
pub struct Writer {
    queue: Sender<Work>,
    logs: Mutex<Vec<Log>>,
    counts: Arc<Counts>,
}

struct Log {
    target: LogTarget,
    lost: Arc<AtomicU64>,
}

#[derive(Default)]
struct Counts {
    /// Bytes handed over and neither written nor lost.
    queued: AtomicUsize,
    /// Lines.
    lost: AtomicU64,
}

enum Work {
    Open(Output, Arc<AtomicU64>),
    Replace(Sink, Output),
    Write(Sink, Vec<u8>),
    Reopen(SyncSender<Vec<String>>),
    Flush(SyncSender<()>),
    /// Messages were left out: say so when it is time.
    Wake,
}

impl Writer {
    /// Starts the thread.
    pub fn start() -> io::Result<Arc<Writer>> {
        let (queue, work) = channel();
        let counts = Arc::new(Counts::default());
        let log_thread = LogThread { work, logs: Vec::new(), counts: counts.clone() };
        std::thread::Builder::new().name("tidegate-log".into()).spawn(move || log_thread.run())?;
        Ok(Arc::new(Writer { queue, logs: Mutex::default(), counts }))
    }

    /// Opens a log, or finds it open. The error is the operator's: a path that cannot be written.
    pub fn sink(&self, target: &LogTarget) -> io::Result<Sink> {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = logs.iter().position(|log| log.target == *target) {
            return Ok(Sink(index));
        }
        let lost = Arc::new(AtomicU64::new(0));
        let open = Work::Open(Output::open(target)?, lost.clone());
        self.queue.send(open).map_err(|_| io::Error::other("the log thread has ended"))?;
        logs.push(Log { target: target.clone(), lost });
        Ok(Sink(logs.len() - 1))
    }

    /// Takes a log that another process has opened for this one, in place of the one of that name where there
    /// is one: see [`open_file`].
    pub fn provide(&self, target: &LogTarget, file: File) -> io::Result<()> {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let output = Output::given(target, file);
        let present = logs.iter().position(|log| log.target == *target);
        let lost = Arc::new(AtomicU64::new(0));
        let work = match present {
            Some(index) => Work::Replace(Sink(index), output),
            None => Work::Open(output, lost.clone()),
        };
        self.queue.send(work).map_err(|_| io::Error::other("the log thread has ended"))?;
        if present.is_none() {
            logs.push(Log { target: target.clone(), lost });
        }
        Ok(())
    }

    /// Hands lines over. Never waits: what does not fit is dropped and counted.
    pub fn write(&self, sink: Sink, lines: Vec<u8>) {
        let size = lines.len();
        let is_full = self.counts.queued.fetch_add(size, Relaxed).saturating_add(size) > MOST_QUEUED;
        if is_full {
            return self.drop_lines(sink, &lines);
        }
        if let Err(unsent) = self.queue.send(Work::Write(sink, lines))
            && let Work::Write(sink, lines) = unsent.0
        {
            self.drop_lines(sink, &lines);
        }
    }

    #[cold]
    fn drop_lines(&self, sink: Sink, lines: &[u8]) {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = logs.get(sink.0).map(|log| &*log.lost);
        self.counts.lose(lines, lost);
    }

    /// Lines lost because a log could not be written or its disk was too slow.
    pub fn lost_lines(&self) -> u64 {
        self.counts.lost.load(Relaxed)
    }

    /// Opens the files anew after a rotation; the sentences say what failed (the old file stays in use).
    /// What was handed over before goes to the old files.
    pub fn reopen(&self) -> Vec<String> {
        let (sender, failures) = sync_channel(1);
        match self.queue.send(Work::Reopen(sender)) {
            Ok(()) => failures.recv().unwrap_or_default(),
            Err(_) => vec!["the log thread has ended".into()],
        }
    }

    /// For the end: waits until everything handed over so far is written, or for a while where that cannot
    /// be. What is still held then is lost, and counted.
    pub fn flush(&self) {
        let (sender, done) = sync_channel(1);
        if self.queue.send(Work::Flush(sender)).is_ok() {
            let _ = done.recv_timeout(FLUSH_PATIENCE);
        }
    }

    /// Has the thread look after messages that were left out.
    pub(super) fn wake(&self) {
        let _ = self.queue.send(Work::Wake);
    }
}

/// Opens the file of a log for appending, for this process or another; `None` for standard output and error,
/// which every process has.
pub fn open_file(target: &LogTarget) -> io::Result<Option<File>> {
    match target {
        LogTarget::Stdout | LogTarget::Stderr => Ok(None),
        LogTarget::File(path) => output::append_to(path).map(Some),
    }
}

impl Counts {
    fn written(&self, size: usize) {
        self.queued.fetch_sub(size, Relaxed);
    }

    fn lose(&self, lines: &[u8], of_log: Option<&AtomicU64>) {
        self.written(lines.len());
        let count = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.lost.fetch_add(count, Relaxed);
        if let Some(lost) = of_log {
            lost.fetch_add(count, Relaxed);
        }
    }
}

/// The thread.
struct LogThread {
    work: Receiver<Work>,
    logs: Vec<OpenLog>,
    counts: Arc<Counts>,
}

struct OpenLog {
    output: Output,
    /// What it has not taken, the front perhaps in part.
    held: VecDeque<Vec<u8>>,
    held_bytes: usize,
    is_failing: bool,
    lost: Arc<AtomicU64>,
    /// How many of them have been said.
    said: u64,
}

impl LogThread {
    fn run(mut self) {
        loop {
            match self.next() {
                Ok(Some(Work::Open(output, lost))) => {
                    let (held, held_bytes, is_failing, said) = (VecDeque::new(), 0, false, 0);
                    self.logs.push(OpenLog { output, held, held_bytes, is_failing, lost, said });
                }
                Ok(Some(Work::Replace(sink, output))) => {
                    if let Some(log) = self.logs.get_mut(sink.0) {
                        log.retry(sink, &self.counts);
                        if log.output.replace(output) {
                            log.drop_rest_of_line(&self.counts);
                        }
                    }
                }
                Ok(Some(Work::Write(sink, lines))) => {
                    if let Some(log) = self.logs.get_mut(sink.0) {
                        log.take(sink, lines, &self.counts);
                    }
                }
                Ok(Some(Work::Reopen(reply))) => drop(reply.send(self.reopen())),
                Ok(Some(Work::Flush(reply))) => {
                    for (index, log) in self.logs.iter_mut().enumerate() {
                        log.retry(Sink(index), &self.counts);
                        log.give_up(&self.counts);
                    }
                    let _ = reply.send(());
                }
                Ok(Some(Work::Wake)) => {}
                Ok(None) => {
                    for (index, log) in self.logs.iter_mut().enumerate() {
                        log.retry(Sink(index), &self.counts);
                    }
                }
                Err(()) => return,
            }
            error::say_what_was_left_out();
        }
    }

    /// The next order; `None` when it is time to try again.
    fn next(&self) -> Result<Option<Work>, ()> {
        if let Some(pipe) = self.logs.iter().find(|log| !log.held.is_empty() && log.output.may_stick()) {
            return match self.work.try_recv() {
                Ok(work) => Ok(Some(work)),
                Err(TryRecvError::Disconnected) => Err(()),
                Err(TryRecvError::Empty) => {
                    pipe.output.wait(PIPE_PATIENCE);
                    Ok(None)
                }
            };
        }
        if self.logs.iter().any(|log| !log.held.is_empty()) || error::leaves_out() {
            return match self.work.recv_timeout(RETRY) {
                Ok(work) => Ok(Some(work)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Err(()),
            };
        }
        self.work.recv().map(Some).map_err(|_| ())
    }

    fn reopen(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        for (index, log) in self.logs.iter_mut().enumerate() {
            log.retry(Sink(index), &self.counts);
            match log.output.reopen() {
                // The rest of a line whose beginning is in the old file would be none in the new one.
                Ok(is_torn) if is_torn => log.drop_rest_of_line(&self.counts),
                Ok(_) => {}
                Err(error) => failures.push(format!("cannot reopen {}: {error}", log.output.target())),
            }
        }
        failures
    }
}

impl OpenLog {
    fn take(&mut self, sink: Sink, lines: Vec<u8>, counts: &Counts) {
        if self.held_bytes + lines.len() > MOST_HELD {
            return counts.lose(&lines, Some(&self.lost));
        }
        self.held_bytes += lines.len();
        self.held.push_back(lines);
        // One that is behind is tried when it is its time, not for every buffer.
        if self.held.len() == 1 {
            self.retry(sink, counts);
        }
    }

    fn retry(&mut self, sink: Sink, counts: &Counts) {
        while let Some(lines) = self.held.front_mut() {
            let (written, result) = self.output.write(lines);
            lines.drain(..written);
            let is_done = lines.is_empty();
            self.held_bytes -= written;
            counts.written(written);
            if is_done {
                self.held.pop_front();
            }
            if let Err(error) = result {
                if !std::mem::replace(&mut self.is_failing, true) {
                    let target = self.output.target();
                    error::say_of_log(
                        sink,
                        format_args!(
                            "the log {target} cannot be written ({error}); {} MiB of lines are held until it can, what \
                         comes on top is lost",
                            MOST_HELD >> 20,
                        ),
                    );
                }
                return;
            }
        }
        let lost = self.lost.load(Relaxed);
        if std::mem::take(&mut self.is_failing) || lost > self.said {
            let (target, count) = (self.output.target(), lost - self.said);
            self.said = lost;
            let lines = if count == 1 { "line was" } else { "lines were" };
            error::say_of_log(
                sink,
                format_args!("the log {target} can be written again; {count} {lines} lost"),
            );
        }
    }

    fn drop_rest_of_line(&mut self, counts: &Counts) {
        let Some(lines) = self.held.front_mut() else { return };
        let end = lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |at| at + 1);
        let rest: Vec<u8> = lines.drain(..end).collect();
        if lines.is_empty() {
            self.held.pop_front();
        }
        self.held_bytes -= rest.len();
        counts.lose(&rest, Some(&self.lost));
    }

    fn give_up(&mut self, counts: &Counts) {
        self.held_bytes = 0;
        for lines in self.held.drain(..) {
            counts.lose(&lines, Some(&self.lost));
        }
    }
}
