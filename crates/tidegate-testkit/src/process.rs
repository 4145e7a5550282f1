//! The server under test as a process: starting it, its log, signals, and the other subcommands.
//!
//! `run.rs` sees only the traits [`Launch`] and [`Running`], so that the tests of this crate can put a scripted
//! server in the place of the binary. The contract with the binary: `tidegate serve --config FILE --control
//! PATH` prints `listening on http://ADDRESS:PORT` or `listening on unix:PATH` for each listener when it is
//! ready, ends in order on SIGTERM and takes new settings on SIGHUP.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::client::WAIT;

/// The files that a server is started with.
#[derive(Debug, Clone)]
pub struct Place {
    /// The transcript's own folder, and the server's working folder.
    pub folder: PathBuf,
    /// The configuration file.
    pub config: PathBuf,
    /// Where the control socket is to be.
    pub control: PathBuf,
}

/// Starts servers and runs commands.
pub trait Launch {
    /// Starts a server that writes what it says to `log`. It is ended when the answer is dropped.
    fn launch(&self, place: &Place, log: Arc<Log>) -> Result<Box<dyn Running>, String>;

    /// Runs `tidegate` with these arguments to its end.
    fn command(&self, arguments: &[String], place: &Place) -> Result<Outcome, String>;
}

/// A server that runs.
pub trait Running {
    /// Sends it a signal.
    fn signal(&mut self, signal: Signal) -> Result<(), String>;

    /// Its exit code once it has ended; the negated signal where one ended it.
    fn exit_code(&mut self) -> Result<Option<i32>, String>;
}

/// What a transcript may send to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// New settings.
    Hangup,
    /// Drain and end.
    Terminate,
}

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Exit code; the negated signal where one ended it.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// The lines that a server has written. What it has written before somebody asks is there, also when it has ended since.
#[derive(Debug, Default)]
pub struct Log {
    lines: Mutex<Vec<String>>,
    grown: Condvar,
    /// What the lines come from.
    pipes: Mutex<Vec<Arc<Mutex<Pipe>>>>,
}

impl Log {
    /// Adds a line.
    pub fn push(&self, line: String) {
        self.lock().push(line);
        self.grown.notify_all();
    }

    /// All lines so far, each with its line end.
    pub fn text(&self) -> String {
        self.catch_up();
        self.lock().iter().map(|line| format!("{line}\n")).collect()
    }

    /// Waits until `find` is content with the lines; `None` when `patience` is over first.
    pub fn wait_for<T>(&self, patience: Duration, mut find: impl FnMut(&[String]) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + patience;
        self.catch_up();
        let mut lines = self.lock();
        loop {
            if let Some(found) = find(&lines) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            (lines, _) = self.grown.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the lines of a pipe, as they come.
    fn follow(self: Arc<Self>, from: impl Into<OwnedFd>) -> Result<(), String> {
        let pipe = Pipe { from: from.into(), begun: Vec::new() };
        rustix::io::ioctl_fionbio(&pipe.from, true).map_err(|error| error.to_string())?;
        let ready = pipe.from.try_clone().map_err(|error| error.to_string())?;
        let pipe = Arc::new(Mutex::new(pipe));
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner).push(pipe.clone());
        std::thread::spawn(move || {
            loop {
                let mut ready = [PollFd::new(&ready, PollFlags::IN)];
                match rustix::event::poll(&mut ready, None) {
                    Ok(_) | Err(Errno::INTR) if Pipe::read(&pipe, &self) => {}
                    _ => return,
                }
            }
        });
        Ok(())
    }

    /// Reads what is in the pipes: the threads that follow them may not have come to it.
    fn catch_up(&self) {
        let pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for pipe in pipes {
            Pipe::read(&pipe, self);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a process writes to. Read by whoever comes first.
#[derive(Debug)]
struct Pipe {
    /// Without waiting.
    from: OwnedFd,
    /// The beginning of a line.
    begun: Vec<u8>,
}

impl Pipe {
    /// Reads what is there. Whether there may be more later.
    fn read(pipe: &Mutex<Pipe>, log: &Log) -> bool {
        let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = [0; 16 << 10];
        // Little more than there was at the beginning: who writes without a pause is not waited for.
        let mut left = rustix::io::ioctl_fionread(&pipe.from).unwrap_or(0) + 1;
        loop {
            match rustix::io::read(&pipe.from, &mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    pipe.take(&buffer[..count], log);
                    left = left.saturating_sub(count as u64);
                    if left == 0 {
                        return true;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => break,
            }
        }
        if !pipe.begun.is_empty() {
            pipe.take(b"\n", log);
        }
        false
    }

    fn take(&mut self, bytes: &[u8], log: &Log) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if let Some(line) = self.begun.strip_suffix(b"\n") {
                log.push(String::from_utf8_lossy(line).into_owned());
                self.begun.clear();
            }
        }
    }
}

/// The real server: the path of the `tidegate` binary.
#[derive(Debug, Clone)]
pub struct Binary {
    path: PathBuf,
}

impl Binary {
    /// The binary at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Binary { path: path.into() }
    }

    fn start(&self, arguments: &[String], folder: &Path) -> Result<Child, String> {
        let mut command = Command::new(&self.path);
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

impl Launch for Binary {
    fn launch(&self, place: &Place, log: Arc<Log>) -> Result<Box<dyn Running>, String> {
        let path = |path: &Path| path.display().to_string();
        let arguments = [
            "serve".to_owned(),
            "--config".to_owned(),
            path(&place.config),
            "--control".to_owned(),
            path(&place.control),
        ];
        let mut child = self.start(&arguments, &place.folder)?;
        let pipes = (child.stdout.take(), child.stderr.take());
        let process = Process { child }; // ends with what follows, should that fail
        if let (Some(stdout), Some(stderr)) = pipes {
            log.clone().follow(stdout)?;
            log.follow(stderr)?;
        }
        Ok(Box::new(process))
    }

    fn command(&self, arguments: &[String], place: &Place) -> Result<Outcome, String> {
        let mut child = Process { child: self.start(arguments, &place.folder)? };
        let stdout = child.child.stdout.take().map(collect);
        let stderr = child.child.stderr.take().map(collect);
        let code =
            wait_for_exit(&mut child)?.ok_or_else(|| format!("the command did not end within {WAIT:?}"))?;
        let text = |reader: Option<std::thread::JoinHandle<Vec<u8>>>| {
            let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(Outcome { code, stdout: text(stdout), stderr: text(stderr) })
    }
}

/// Waits for the end of a server; `None` when it still runs after ten seconds.
pub(crate) fn wait_for_exit(running: &mut dyn Running) -> Result<Option<i32>, String> {
    let deadline = Instant::now() + WAIT;
    loop {
        if let Some(code) = running.exit_code()? {
            return Ok(Some(code));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        // A pause between two looks; the deadline is what counts.
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn collect(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is still worth showing.
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

struct Process {
    child: Child,
}

impl Running for Process {
    fn signal(&mut self, signal: Signal) -> Result<(), String> {
        if let Some(code) = self.exit_code()? {
            return Err(format!("the server has ended already, with {code}"));
        }
        let signal = match signal {
            Signal::Hangup => rustix::process::Signal::HUP,
            Signal::Terminate => rustix::process::Signal::TERM,
        };
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal)
            .map_err(|error| format!("the signal was not sent: {error}"))
    }

    fn exit_code(&mut self) -> Result<Option<i32>, String> {
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.try_wait().map_err(|error| error.to_string())?;
        Ok(status.map(|status| status.code().unwrap_or_else(|| -status.signal().unwrap_or_default())))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_there() {
        for round in 0..100 {
            let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
            let log = Arc::new(Log::default());
            log.clone().follow(reader).expect("a thread");
            let text = format!("{}\nbegun", "a".repeat(round * 100));
            rustix::io::write(&writer, text.as_bytes()).expect("room");
            assert_eq!(log.text(), text[..text.len() - 5], "{round}");
            rustix::io::write(&writer, b" and ended\n\nlast").expect("room");
            drop(writer);
            assert!(log.text().ends_with("begun and ended\n\n") || log.text().ends_with("last\n"), "{round}");
            // Where another test begins a process at this moment, that has the pipe as well until it runs its program.
            let is_ended = |lines: &[String]| (lines.last()? == "last").then_some(());
            assert!(log.wait_for(crate::WAIT, is_ended).is_some(), "{round}");
        }
    }
}
