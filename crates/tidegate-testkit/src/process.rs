//! The server under test as a process: starting it, its log, signals, and the other subcommands.
//!
//! `run.rs` sees only the traits [`Launch`] and [`Running`], so that the tests of this crate can put a scripted
//! server in the place of the binary. The contract with the binary: `tidegate serve --config FILE --control
//! PATH` prints `listening on http://ADDRESS:PORT` or `listening on unix:PATH` for each listener when it is
//! ready, ends in order on SIGTERM and takes new settings on SIGHUP.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

/// The lines that a server has written.
#[derive(Debug, Default)]
pub struct Log {
    lines: Mutex<Vec<String>>,
    grown: Condvar,
}

impl Log {
    /// Adds a line.
    pub fn push(&self, line: String) {
        self.lock().push(line);
        self.grown.notify_all();
    }

    /// All lines so far, each with its line end.
    pub fn text(&self) -> String {
        self.lock().iter().map(|line| format!("{line}\n")).collect()
    }

    /// Waits until `find` is content with the lines; `None` when `patience` is over first.
    pub fn wait_for<T>(&self, patience: Duration, mut find: impl FnMut(&[String]) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + patience;
        let mut lines = self.lock();
        loop {
            if let Some(found) = find(&lines) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            (lines, _) = self.grown.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
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
        if let Some(stdout) = child.stdout.take() {
            follow(stdout, log.clone());
        }
        if let Some(stderr) = child.stderr.take() {
            follow(stderr, log);
        }
        Ok(Box::new(Process { child }))
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

fn follow(from: impl Read + Send + 'static, log: Arc<Log>) {
    std::thread::spawn(move || {
        let mut lines = BufReader::new(from);
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
            log.push(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned());
            line.clear();
        }
    });
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
