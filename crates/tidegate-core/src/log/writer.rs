//! The thread that writes logs.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_config::settings::LogTarget;

/// Buffers on their way to the thread; each holds up to 64 KiB and a line.
const QUEUE: usize = 256;
/// How long somebody may wait for the thread, which a stuck pipe or disk may hold for good.
const PATIENCE: Duration = Duration::from_secs(2);

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
    Write(Sink, Vec<u8>),
    Reopen(SyncSender<Vec<String>>),
    Flush(SyncSender<()>),
}

enum Output {
    Stdout,
    Stderr,
    File { path: PathBuf, file: File },
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
        let output = match target {
            LogTarget::Stdout => Output::Stdout,
            LogTarget::Stderr => Output::Stderr,
            LogTarget::File(path) => Output::File { path: path.clone(), file: append_to(path)? },
        };
        self.queue
            .try_send(Work::Open(output))
            .map_err(|_| io::Error::other("a log that cannot be written holds up the others"))?;
        targets.push(target.clone());
        Ok(Sink(targets.len() - 1))
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
        self.ask(Work::Reopen).unwrap_or_else(|| {
            vec!["a log that cannot be written holds up the others; they are reopened once it can".into()]
        })
    }

    /// Waits until everything handed over so far is written, a short while at most.
    pub fn flush(&self) {
        self.ask(Work::Flush);
    }

    /// Asks the thread something; `None` when it is held up.
    fn ask<T>(&self, question: impl FnOnce(SyncSender<T>) -> Work) -> Option<T> {
        let (sender, answer) = sync_channel(1);
        let mut work = question(sender);
        let until = Instant::now() + PATIENCE;
        loop {
            match self.queue.try_send(work) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) if Instant::now() < until => work = back,
                Err(_) => return None,
            }
            std::thread::sleep(Duration::from_millis(10)); // a busy disk: there is no call that waits so long
        }
        answer.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }
}

/// A pipe that nobody reads is an error; without the flag, opening would wait for a reader.
fn append_to(path: &Path) -> io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().append(true).create(true).custom_flags(nonblocking).open(path);
    let file = file.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => io::Error::other("nobody reads this pipe"),
        _ => error,
    })?;
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?; // writing may wait: that is what the thread is for
    Ok(file)
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
            Work::Write(sink, lines) => {
                let Some(output) = outputs.get_mut(sink.0) else { continue };
                let result = match output {
                    Output::Stdout => {
                        io::stdout().lock().write_all(&lines).and_then(|()| io::stdout().flush())
                    }
                    Output::Stderr => io::stderr().lock().write_all(&lines),
                    Output::File { file, .. } => file.write_all(&lines),
                };
                match result {
                    Ok(()) => failing = false,
                    Err(e) => {
                        lost.fetch_add(count_lines(&lines), Relaxed);
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
                    if let Output::File { path, file } = output {
                        match append_to(path) {
                            Ok(new) => *file = new,
                            Err(e) => failures.push(format!("cannot reopen {}: {e}", path.display())),
                        }
                    }
                }
                let _ = reply.send(failures);
            }
            Work::Flush(reply) => drop(reply.send(())),
        }
    }
}
