//! The thread that writes logs, and its patience with those that do not take what is written.

use super::output::{self, Output};
use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidegate_config::settings::LogTarget;

/// Buffers on their way to the thread; each holds up to 64 KiB and a line.
const QUEUE: usize = 256;
/// How long the end of the process waits for what is still to be written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// An open log: cheap to copy, good for the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sink(usize);

/// Owns the open files and the thread.
pub struct Writer {
    queue: SyncSender<Work>,
    targets: Mutex<Vec<LogTarget>>,
    lost: Arc<AtomicU64>,
}

enum Work {
    Open(Output),
    Replace(Sink, Output),
    Write(Sink, Vec<u8>),
    Reopen(SyncSender<Vec<String>>),
    Flush(SyncSender<()>),
}

impl Writer {
    /// Starts the thread.
    pub fn start() -> io::Result<Arc<Writer>> {
        let (queue, work) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        std::thread::Builder::new().name("tidegate-log".into()).spawn(move || write_all(&work, &counted))?;
        Ok(Arc::new(Writer { queue, targets: Mutex::default(), lost }))
    }

    /// Opens a log, or finds it open. The error is the operator's: a path that cannot be written.
    pub fn sink(&self, target: &LogTarget) -> io::Result<Sink> {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = targets.iter().position(|open| open == target) {
            return Ok(Sink(index));
        }
        let output = Output::open(target)?;
        self.queue.send(Work::Open(output)).map_err(|_| io::Error::other("the log thread has ended"))?;
        targets.push(target.clone());
        Ok(Sink(targets.len() - 1))
    }

    /// Takes a log that another process has opened for this one, in place of the one of that name where there
    /// is one: see [`open_file`].
    pub fn provide(&self, target: &LogTarget, file: File) -> io::Result<()> {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let output = Output::given(target, file);
        let present = targets.iter().position(|open| open == target);
        let work = match present {
            Some(index) => Work::Replace(Sink(index), output),
            None => Work::Open(output),
        };
        self.queue.send(work).map_err(|_| io::Error::other("the log thread has ended"))?;
        if present.is_none() {
            targets.push(target.clone());
        }
        Ok(())
    }

    /// Hands lines over. Never waits: what does not fit is dropped and counted.
    pub fn write(&self, sink: Sink, lines: Vec<u8>) {
        if let Err(
            TrySendError::Full(Work::Write(_, lines)) | TrySendError::Disconnected(Work::Write(_, lines)),
        ) = self.queue.try_send(Work::Write(sink, lines))
        {
            self.lost.fetch_add(count_lines(&lines), Relaxed);
        }
    }

    /// Lines lost because a log could not be written or its disk was too slow.
    pub fn lost_lines(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Opens the files anew after a rotation; the sentences say what failed (the old file stays in use).
    pub fn reopen(&self) -> Vec<String> {
        let (sender, failures) = sync_channel(1);
        match self.queue.send(Work::Reopen(sender)) {
            Ok(()) => failures.recv().unwrap_or_default(),
            Err(_) => vec!["the log thread has ended".into()],
        }
    }

    /// Waits until everything handed over so far is written, or for a while where that cannot be.
    pub fn flush(&self) {
        let (sender, done) = sync_channel(1);
        if self.queue.send(Work::Flush(sender)).is_ok() {
            let _ = done.recv_timeout(FLUSH_PATIENCE);
        }
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

fn count_lines(lines: &[u8]) -> u64 {
    lines.iter().filter(|b| **b == b'\n').count() as u64
}

fn write_all(work: &Receiver<Work>, lost: &AtomicU64) {
    let mut outputs: Vec<Output> = Vec::new();
    let mut failing = false;
    for item in work {
        match item {
            Work::Open(output) => outputs.push(output),
            Work::Replace(sink, output) => {
                if let Some(present) = outputs.get_mut(sink.0) {
                    *present = output;
                }
            }
            Work::Write(sink, lines) => {
                let Some(output) = outputs.get_mut(sink.0) else { continue };
                match output.write(&lines) {
                    Ok(()) => failing = false,
                    Err((e, rest)) => {
                        lost.fetch_add(count_lines(rest), Relaxed);
                        if !std::mem::replace(&mut failing, true) {
                            // Said once for each spell of failures; the error log may be what fails.
                            let _ = writeln!(
                                io::stderr(),
                                "tidegate: a log cannot be written ({e}); lines are lost until it can"
                            );
                        }
                    }
                }
            }
            Work::Reopen(reply) => {
                let mut failures = Vec::new();
                for output in &mut outputs {
                    if let Err(error) = output.reopen() {
                        failures.push(format!("cannot reopen {}: {error}", output.target()));
                    }
                }
                let _ = reply.send(failures);
            }
            Work::Flush(reply) => drop(reply.send(())),
        }
    }
}
