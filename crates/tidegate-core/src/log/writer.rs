//! The thread that writes logs, and its patience with those that do not take what is written.
//!
//! Workers hand over buffers and never wait. What a log does not take at once is held for it and tried
//! again: a reader that was restarted or a disk that was full for a moment loses nothing. What is on its way
//! and held is bounded for each log and for all ([`Room`]): a log that takes nothing costs the others no
//! line. Beyond the bounds, lines are dropped, counted and said (FAULTS 51).

use super::error;
use super::open_log::{OpenLog, PATIENCE, PIPE_RETRY, RETRY};
use super::output::{self, Output};
use super::room::{Room, Rooms};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidegate_config::settings::LogTarget;

/// How long the end of the process waits for what is still to be written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// An open log: cheap to copy. Good for the life of the process once it is in force ([`Writer::settle`]).
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
    account: Arc<Account>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Opened for settings that may still be given up. Nobody writes to it.
    Prepared,
    InForce,
    /// Its settings were given up: another may have its number.
    Closed,
}

/// What all logs have in common.
#[derive(Default)]
pub(super) struct Counts {
    /// For bytes handed over and neither written nor lost.
    rooms: Arc<Rooms>,
    /// Lines.
    lost: AtomicU64,
}

/// What workers and the thread both know of one log.
pub(super) struct Account {
    pub(super) room: Room,
    /// Lines.
    pub(super) lost: AtomicU64,
}

enum Work {
    Open(Sink, Output, Arc<Account>),
    Close(Sink),
    Replace(Sink, Output),
    Write(Sink, Vec<u8>),
    Reopen(SyncSender<Vec<String>>),
    Retry(SyncSender<bool>),
    Flush(SyncSender<BTreeMap<String, u64>>),
    /// Messages were left out: say so when it is time.
    Wake,
}

impl Writer {
    /// Starts the thread that writes all logs.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub fn start() -> io::Result<Arc<Writer>> {
        let (queue, work) = channel();
        let counts = Arc::new(Counts::default());
        let log_thread = LogThread::new(work, counts.clone());
        std::thread::Builder::new().name("tidegate-log".into()).spawn(move || log_thread.run())?;
        Ok(Arc::new(Writer { queue, logs: Mutex::default(), counts }))
    }

    /// Opens a log, or finds it open.
    ///
    /// # Errors
    /// As [`open_file`], which is the operator's to mend; or the log thread has ended.
    pub fn sink(&self, target: &LogTarget) -> io::Result<Sink> {
        self.sink_opened_by(target, || Output::open(target))
    }

    fn sink_opened_by(
        &self,
        target: &LogTarget,
        open: impl FnOnce() -> io::Result<Output>,
    ) -> io::Result<Sink> {
        let known = open_sink(&self.logs(), target);
        if let Some(sink) = known {
            return Ok(sink);
        }
        // A path may hang, and workers take the lock.
        let output = open()?;
        let mut logs = self.logs();
        match open_sink(&logs, target) {
            Some(sink) => Ok(sink),
            None => self.open(&mut logs, target, output),
        }
    }

    /// Takes a log that another process has opened for this one, in place of the one of that name where there
    /// is one: see [`open_file`].
    ///
    /// # Errors
    /// The log thread has ended.
    pub fn provide(&self, target: &LogTarget, file: File) -> io::Result<()> {
        let output = Output::given(target, file);
        let mut logs = self.logs();
        match open_sink(&logs, target) {
            Some(sink) => self.order(Work::Replace(sink, output)),
            None => self.open(&mut logs, target, output).map(drop),
        }
    }

    fn open(&self, logs: &mut Vec<Log>, target: &LogTarget, output: Output) -> io::Result<Sink> {
        let account = self.counts.account();
        let closed = logs.iter().position(|log| log.state == State::Closed);
        let sink = Sink(closed.unwrap_or(logs.len()));
        self.order(Work::Open(sink, output, account.clone()))?;
        let log = Log { target: target.clone(), account, state: State::Prepared };
        match logs.get_mut(sink.0) {
            Some(free) => *free = log,
            None => logs.push(log),
        }
        Ok(sink)
    }

    /// What is open is in force, and stays open.
    pub fn settle(&self) {
        self.logs().iter_mut().filter(|log| log.state == State::Prepared).for_each(|log| {
            log.state = State::InForce;
        });
    }

    /// Closes what was opened since, for settings that are given up.
    pub fn discard(&self) {
        for (index, log) in self.logs().iter_mut().enumerate() {
            if log.state == State::Prepared && self.order(Work::Close(Sink(index))).is_ok() {
                log.state = State::Closed;
            }
        }
    }

    fn order(&self, work: Work) -> io::Result<()> {
        self.queue.send(work).map_err(|_| io::Error::other("the log thread has ended"))
    }

    fn logs(&self) -> MutexGuard<'_, Vec<Log>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands lines over. Never waits: what does not fit is dropped and counted.
    pub fn write(&self, sink: Sink, lines: Vec<u8>) {
        // The lock is held for moments only: nothing is opened or written under it.
        let Some(account) = self.logs().get(sink.0).map(|log| log.account.clone()) else { return };
        if !account.room.take(lines.len()) {
            return self.counts.lose(&lines, &account);
        }
        if let Err(unsent) = self.queue.send(Work::Write(sink, lines))
            && let Work::Write(_, lines) = unsent.0
        {
            account.room.give_back(lines.len());
            self.counts.lose(&lines, &account);
        }
    }

    /// Lines lost because a log could not be written or its disk was too slow.
    pub fn lost_lines(&self) -> u64 {
        self.counts.lost.load(Relaxed)
    }

    /// The same of each log that has lost some, by its name.
    pub fn lost_by_log(&self) -> BTreeMap<String, u64> {
        let mut lost = BTreeMap::new();
        for log in self.logs().iter().filter(|log| log.state != State::Closed) {
            let count = log.account.lost.load(Relaxed);
            if count > 0 {
                *lost.entry(log.target.to_string()).or_default() += count;
            }
        }
        lost
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

    /// Tries to write everything handed over so far. Whether nothing is behind that is worth waiting for: a file, or a pipe or a
    /// daemon that has taken something within the last second.
    pub fn retry(&self) -> bool {
        let (sender, done) = sync_channel(1);
        self.queue.send(Work::Retry(sender)).is_err() || done.recv_timeout(FLUSH_PATIENCE).unwrap_or(true)
    }

    /// For the end: waits until everything handed over so far is written, or for a while where that cannot
    /// be. What is still held then is lost, and counted: how many lines of which log, with those that were lost before and of
    /// which the error log has not told.
    pub fn flush(&self) -> BTreeMap<String, u64> {
        let (sender, done) = sync_channel(1);
        match self.queue.send(Work::Flush(sender)) {
            Ok(()) => done.recv_timeout(FLUSH_PATIENCE).unwrap_or_default(),
            Err(_) => BTreeMap::new(),
        }
    }

    /// Has the thread look after messages that were left out.
    pub(super) fn wake(&self) {
        let _ = self.queue.send(Work::Wake);
    }
}

fn open_sink(logs: &[Log], target: &LogTarget) -> Option<Sink> {
    logs.iter().position(|log| log.state != State::Closed && log.target == *target).map(Sink)
}

/// Opens the file of a log for appending, for this process or another; `None` for standard output and error,
/// which every process has, and for a daemon, to which each finds its own way.
///
/// # Errors
/// The file cannot be opened or made for writing, or it is a symbolic link that belongs neither to root nor
/// to this process's user.
pub fn open_file(target: &LogTarget) -> io::Result<Option<File>> {
    match target {
        LogTarget::Stdout | LogTarget::Stderr | LogTarget::Collector(_) => Ok(None),
        LogTarget::File(path) => output::append_to(path).map(Some),
    }
}

impl Counts {
    fn account(&self) -> Arc<Account> {
        Arc::new(Account { room: Room::of(&self.rooms), lost: AtomicU64::new(0) })
    }

    /// Counts lines that are lost.
    pub(super) fn lose(&self, lines: &[u8], of: &Account) {
        let count = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.lost.fetch_add(count, Relaxed);
        of.lost.fetch_add(count, Relaxed);
    }
}

/// The thread.
struct LogThread {
    work: Receiver<Work>,
    logs: BTreeMap<usize, OpenLog>,
    /// Those that hold lines, and when each is tried next.
    behind: BTreeMap<usize, Instant>,
    counts: Arc<Counts>,
}

impl LogThread {
    fn new(work: Receiver<Work>, counts: Arc<Counts>) -> LogThread {
        LogThread { work, logs: BTreeMap::new(), behind: BTreeMap::new(), counts }
    }

    fn run(mut self) {
        loop {
            match self.next() {
                Ok(Some(work)) => self.obey(work),
                Ok(None) => {}
                Err(()) => return,
            }
            if !self.behind.is_empty() {
                self.retry_due(Instant::now());
            }
            error::say_what_was_left_out();
        }
    }

    fn obey(&mut self, work: Work) {
        match work {
            Work::Open(sink, mut output, account) => {
                output.look();
                self.logs.insert(sink.0, OpenLog::of(output, account));
            }
            Work::Close(sink) => {
                self.logs.remove(&sink.0);
                self.behind.remove(&sink.0);
            }
            Work::Replace(sink, output) => {
                if let Some(log) = self.logs.get_mut(&sink.0) {
                    log.retry(sink, &self.counts);
                    if let Some(old) = log.output.replace(output) {
                        log.keep_tail(sink, old, &self.counts);
                    }
                    self.is_tried_at(sink.0, Instant::now());
                }
            }
            Work::Write(sink, lines) => {
                let Some(log) = self.logs.get_mut(&sink.0) else { return };
                let was_behind = !log.held.is_empty();
                log.take(sink, lines, &self.counts);
                // One that was behind before is tried when it is its time, not for every buffer.
                if !was_behind && !log.held.is_empty() {
                    let pause = log.pause();
                    self.is_tried_at(sink.0, Instant::now() + pause);
                }
            }
            Work::Reopen(reply) => drop(reply.send(self.reopen())),
            Work::Retry(reply) => {
                let mut are_written = true;
                for (&index, log) in &mut self.logs {
                    log.retry(Sink(index), &self.counts);
                    are_written &= !log.waits_for_disk() && !log.has_reader(Instant::now());
                }
                let _ = reply.send(are_written);
            }
            Work::Flush(reply) => {
                let mut given_up = BTreeMap::new();
                let until = Instant::now() + PATIENCE;
                for (&index, log) in &mut self.logs {
                    log.retry(Sink(index), &self.counts);
                    while log.has_reader(Instant::now())
                        && log.output.wait(until.saturating_duration_since(Instant::now()))
                        && Instant::now() < until
                    {
                        log.retry(Sink(index), &self.counts);
                    }
                    let lost = log.give_up(&self.counts);
                    if lost > 0 {
                        let target = log.output.target();
                        error::say_of_error_log(
                            Sink(index),
                            format_args!(
                                "the log {target} could not be written until the end; {lost} lines were lost"
                            ),
                        );
                        given_up.insert(target.to_string(), lost);
                    }
                }
                self.behind.clear();
                let _ = reply.send(given_up);
            }
            Work::Wake => {}
        }
    }

    /// A log may hold lines: those are tried then, and before only for who flushes.
    fn is_tried_at(&mut self, index: usize, at: Instant) {
        if self.logs.get(&index).is_some_and(OpenLog::is_behind) {
            self.behind.insert(index, at);
        } else {
            self.behind.remove(&index);
        }
    }

    /// Tries those again whose time has come.
    fn retry_due(&mut self, now: Instant) {
        let LogThread { logs, behind, counts, .. } = self;
        behind.retain(|index, at| {
            let Some(log) = logs.get_mut(index) else { return false };
            if *at <= now {
                log.retry(Sink(*index), counts);
                *at = now + log.pause();
            }
            log.is_behind()
        });
    }

    /// The next order; `None` when it is time to try again.
    fn next(&mut self) -> Result<Option<Work>, ()> {
        let waits = |index: &usize| self.logs.get(index).is_some_and(OpenLog::waits_for_reader);
        if let Some(index) = self.behind.keys().copied().find(waits) {
            return match self.work.try_recv() {
                Ok(work) => Ok(Some(work)),
                Err(TryRecvError::Disconnected) => Err(()),
                Err(TryRecvError::Empty) => {
                    if self.logs.get(&index).is_some_and(|pipe| pipe.output.wait(PIPE_RETRY)) {
                        self.behind.insert(index, Instant::now());
                    }
                    Ok(None)
                }
            };
        }
        let wait = match self.behind.values().min() {
            Some(at) => at.saturating_duration_since(Instant::now()),
            None if error::leaves_out() => RETRY,
            None => return self.work.recv().map(Some).map_err(|_| ()),
        };
        match self.work.recv_timeout(wait) {
            Ok(work) => Ok(Some(work)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }

    fn reopen(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        for (&index, log) in &mut self.logs {
            log.retry(Sink(index), &self.counts);
            match log.output.reopen() {
                Ok(Some(old)) => log.keep_tail(Sink(index), old, &self.counts),
                Ok(None) => {}
                Err(error) => failures.push(format!("cannot reopen {}: {error}", log.output.target())),
            }
        }
        self.behind.values_mut().for_each(|at| *at = Instant::now());
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::{Path, PathBuf};

    /// Files of a folder that this process has open.
    fn open_below(folder: &PathBuf) -> usize {
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
        descriptors.filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(folder))).count()
    }

    /// FAULTS 51: a log that failed is tried once a second also where there is something to write all the time, and orders
    /// of other logs do not put that off.
    #[test]
    fn a_log_that_failed_is_tried_again_under_load() {
        let folder = std::env::temp_dir().join(format!("tidegate-writer-load-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let target = |name: &str| LogTarget::File(folder.join(name));
        for name in ["log", "other"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let (_queue, work) = channel();
        let mut thread = LogThread::new(work, Arc::default());
        // It is open for reading: what is written to it fails.
        let output = Output::given(&target("log"), File::open(folder.join("log")).unwrap());
        let counts = thread.counts.clone();
        thread.obey(Work::Open(Sink(0), output, counts.account()));
        thread.obey(Work::Open(Sink(1), Output::open(&target("other")).unwrap(), counts.account()));
        let began = Instant::now();
        let writes = |thread: &mut LogThread, at: Instant| {
            for sink in [0, 1] {
                assert!(thread.logs[&sink].account.room.take(5));
                thread.obey(Work::Write(Sink(sink), b"line\n".to_vec()));
                thread.retry_due(at);
            }
        };
        for tenths in 0..15 {
            writes(&mut thread, began + Duration::from_millis(100) * tenths);
        }
        assert!(thread.logs[&0].is_failing && thread.behind.keys().eq([&0]));
        let held = thread.logs[&0].held.len();
        thread.retry_due(began);
        assert_eq!(thread.logs[&0].held.len(), held, "it is left alone until it is its time");
        // There is room again.
        thread.logs.get_mut(&0).unwrap().output = Output::open(&target("log")).unwrap();
        for tenths in 15..30 {
            writes(&mut thread, began + Duration::from_millis(100) * tenths);
        }
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!((read("log"), read("other")), ("line\n".repeat(30), "line\n".repeat(30)));
        assert!(thread.behind.is_empty() && !thread.logs[&0].is_failing);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Of the files that a log had before, one waits for the rest of its last line; another that comes on top takes its place.
    #[test]
    fn one_torn_line_waits_for_the_file_of_before() {
        let folder = std::env::temp_dir().join(format!("tidegate-writer-tail-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let target = |name: &str| LogTarget::File(folder.join(name));
        let old = |name: &str| {
            fs::write(folder.join(name), "whole\nto").unwrap();
            // It is open for reading: what is written to it fails.
            Output::given(&target(name), File::open(folder.join(name)).unwrap())
        };
        let (_queue, work) = channel();
        let mut thread = LogThread::new(work, Arc::default());
        let counts = thread.counts.clone();
        let account = counts.account();
        thread.obey(Work::Open(Sink(0), Output::open(&target("log")).unwrap(), account.clone()));
        for (name, lines) in [("old-0", "rn line\nfirst\n"), ("old-1", "rn line\nsecond\n")] {
            let log = thread.logs.get_mut(&0).unwrap();
            assert!(account.room.take(lines.len()));
            log.held.push_back(lines.into());
            log.held_bytes = lines.len();
            log.keep_tail(Sink(0), old(name), &counts);
            thread.is_tried_at(0, Instant::now());
            thread.retry_due(Instant::now());
            assert!(thread.behind.contains_key(&0) && thread.logs[&0].waits_for_disk());
        }
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!((read("log"), counts.lost.load(Relaxed)), ("first\nsecond\n".into(), 1));
        // There is room again.
        let tail = thread.logs.get_mut(&0).unwrap().tail.as_mut().unwrap();
        tail.output = Output::torn(&target("old-1"));
        thread.obey(Work::Reopen(sync_channel(1).0));
        thread.retry_due(Instant::now());
        assert_eq!((read("old-0"), read("old-1")), ("whole\nto".into(), "whole\ntorn line\n".into()));
        assert!(thread.behind.is_empty());
        assert_eq!((read("log"), counts.lost.load(Relaxed)), ("first\nsecond\n".into(), 1));
        fs::remove_dir_all(&folder).unwrap();
    }

    /// However many logs take nothing, however much is logged to them: one that can be written loses no line to them, and
    /// all together hold what is bounded.
    #[test]
    fn logs_that_are_stuck_cost_the_others_no_line() {
        let folder = std::env::temp_dir().join(format!("tidegate-writer-stuck-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let writer = Writer::start().unwrap();
        // Pipes that nobody reads.
        let pipes = ["a", "b", "c"].map(|name| folder.join(name));
        let readers = pipes.clone().map(|path| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
            File::options().read(true).write(true).open(path).unwrap()
        });
        let stuck = pipes.map(|path| writer.sink(&LogTarget::File(path)).unwrap());
        let healthy = writer.sink(&LogTarget::File(folder.join("healthy"))).unwrap();
        writer.settle();
        let line = || [vec![b'x'; (64 << 10) - 1], vec![b'\n']].concat();
        // 3 * 32 MiB, and as much again while the healthy one is written. Reopening waits until the thread has seen all.
        let fill = |lines| (0..lines).for_each(|_| stuck.iter().for_each(|log| writer.write(*log, line())));
        for _ in 0..8 {
            fill(64);
            writer.reopen();
        }
        let before = writer.lost_lines();
        assert!(before > 3 * 512 - 2 * 128 - 64, "{before}");
        for _ in 0..64 {
            fill(8);
            (0..32).for_each(|_| writer.write(healthy, line()));
            writer.reopen();
        }
        let written = fs::metadata(folder.join("healthy")).unwrap().len();
        assert_eq!(written, 64 * 32 * (64 << 10), "the healthy log has all its lines");
        drop(readers);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A pipe of a folder, and its reader, who waits for nothing.
    fn pipe(folder: &Path) -> (LogTarget, File) {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let reader = File::options().read(true).custom_flags(nonblocking).open(&path).unwrap();
        (LogTarget::File(path), reader)
    }

    fn read_on(reader: &mut File, read: &mut Vec<u8>) {
        // It says that there is no more at the moment.
        let _ = reader.read_to_end(read);
    }

    /// Who reads a pipe slowly is waited for at the end.
    #[test]
    fn a_pipe_that_is_read_has_something_to_wait_for() {
        let folder = std::env::temp_dir().join(format!("tidegate-writer-read-{}", std::process::id()));
        let (target, mut reader) = pipe(&folder);
        let writer = Writer::start().unwrap();
        let log = writer.sink(&target).unwrap();
        writer.settle();
        let lines = [b"short\n".as_slice(), &[b'x'; 50_000], b"\n", &[b'y'; 9000], b"\n"].concat();
        (0..40).for_each(|_| writer.write(log, lines.clone()));
        assert!(!writer.retry(), "the pipe is full");
        let mut read = Vec::new();
        while !writer.retry() {
            read_on(&mut reader, &mut read);
        }
        assert!(writer.flush().is_empty());
        read_on(&mut reader, &mut read);
        assert!(read == lines.repeat(40), "{} bytes", read.len());
        fs::remove_dir_all(&folder).unwrap();
    }

    /// What did not fit any more is said with what was still held at the end.
    #[test]
    fn all_lines_that_are_lost_are_said_at_the_end() {
        let folder = std::env::temp_dir().join(format!("tidegate-writer-lost-{}", std::process::id()));
        let (target, mut reader) = pipe(&folder);
        let writer = Writer::start().unwrap();
        let log = writer.sink(&target).unwrap();
        writer.settle();
        let line = [vec![b'x'; 9999], vec![b'\n']].concat();
        // It is behind before any line is lost: what is lost while it takes lines is said at once.
        (0..10).for_each(|_| writer.write(log, line.clone()));
        writer.retry();
        (0..990).for_each(|_| writer.write(log, line.clone()));
        let overflowed = writer.lost_lines();
        assert!(overflowed > 0);
        let said = writer.flush();
        let mut read = Vec::new();
        read_on(&mut reader, &mut read);
        assert_eq!(said.values().sum::<u64>() + read.len() as u64 / 10_000, 1000);
        assert_eq!(read.len() % 10_000, 0, "no line is torn");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A path that hangs is a matter of whoever opens it: workers, which count what they drop, do not wait for that.
    #[test]
    fn workers_do_not_wait_while_a_log_is_opened() {
        let writer = Writer::start().unwrap();
        let target = LogTarget::Stderr;
        let opened = writer.sink_opened_by(&target, || {
            assert!(writer.logs.try_lock().is_ok(), "what a worker takes is free");
            Output::open(&target)
        });
        assert_eq!(writer.sink(&target).unwrap(), opened.unwrap());
    }

    /// FAULTS 67: what settings have opened that were given up is closed, and what is in force stays as it is.
    #[test]
    fn logs_of_settings_that_are_given_up_are_closed() {
        let folder = std::env::temp_dir().join(format!("tidegate-writer-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let target = |name: &str| LogTarget::File(folder.join(name));
        let writer = Writer::start().unwrap();
        let present = writer.sink(&target("present")).unwrap();
        writer.settle();
        for round in 0..3 {
            let file = open_file(&target("provided")).unwrap().unwrap();
            writer.provide(&target("provided"), file).unwrap();
            writer.sink(&target(&format!("next-{round}"))).unwrap();
            assert_eq!(writer.sink(&target("present")).unwrap(), present);
            writer.flush();
            assert_eq!(open_below(&folder), 3);
            writer.discard();
            writer.flush();
            assert_eq!(open_below(&folder), 1, "round {round}");
        }
        let next = writer.sink(&target("next-0")).unwrap();
        assert!(next.0 < 2, "numbers are used again: {next:?}");
        writer.settle();
        writer.discard();
        writer.write(next, b"of the next\n".to_vec());
        writer.write(present, b"of the present\n".to_vec());
        writer.flush();
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!((read("next-0"), read("present")), ("of the next\n".into(), "of the present\n".into()));
        fs::remove_dir_all(&folder).unwrap();
    }
}
