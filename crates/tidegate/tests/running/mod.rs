//! Runs the command as an operator does: real processes, sockets, signals and files. Shared by the tests that
//! do so.
//!
//! Nothing here sleeps and hopes: every wait is for a line, a process or an answer, and ends after `WAIT`.

#![allow(dead_code, reason = "not every test that shares this needs all of it")]

pub mod accounts;
pub mod countries;
pub mod over_tls;
pub mod posts;
pub mod random;

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Instant;
use tidegate_testkit::InTime;
pub use tidegate_testkit::{WAIT, join, wait_for};

pub const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");

/// A folder of one test's own.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, SeqCst);
        let path = std::env::temp_dir().join(format!("tidegate-{}-{number}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// One that lies in no folder for everybody, as that for temporary files is.
    pub fn apart(name: &str) -> Folder {
        Folder(tidegate_testkit::folder_apart(Path::new(env!("CARGO_TARGET_TMPDIR")), name))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub fn command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).current_dir(&folder.0).stdin(Stdio::null());
    command.env("XDG_RUNTIME_DIR", &folder.0).env_remove("NO_COLOR");
    command
}

/// Runs the command to its end.
pub fn run(folder: &Folder, arguments: &[&str]) -> Outcome {
    let output = command(folder, arguments).output_in_time();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A server that runs.
pub struct Server<'a> {
    pub folder: &'a Folder,
    pub child: Child,
    pub lines: Receiver<String>,
    pub seen: Vec<String>,
    pub control: Option<String>,
    pub address: String,
}

impl<'a> Server<'a> {
    /// `serve` with a settings file and a control socket of its own.
    pub fn with_config(folder: &'a Folder, text: &str) -> Server<'a> {
        Server::through(folder, text, |command| command)
    }

    /// The same, with the command changed on the way.
    pub fn through(folder: &'a Folder, text: &str, change: impl FnOnce(Command) -> Command) -> Server<'a> {
        let config = folder.write("tidegate.kdl", text);
        let control = folder.path("control").display().to_string();
        let arguments = ["serve", "--config", &config, "--control", &control];
        let mut server = Server::spawn(folder, change(command(folder, &arguments)));
        server.control = Some(control);
        server
    }

    /// `serve` with these arguments, until it says where it listens.
    pub fn start(folder: &'a Folder, arguments: &[&str]) -> Server<'a> {
        let arguments: Vec<&str> = ["serve"].iter().chain(arguments).copied().collect();
        Server::spawn(folder, command(folder, &arguments))
    }

    pub fn spawn(folder: &'a Folder, mut command: Command) -> Server<'a> {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut server =
            Server { folder, child, lines, seen: Vec::new(), control: None, address: String::new() };
        let line = server.line("listening on http://");
        server.address = line.rsplit("http://").next().unwrap().to_owned();
        server
    }

    /// All that the log has said so far.
    pub fn log(&mut self) -> String {
        self.seen.extend(self.lines.try_iter());
        self.seen.join("\n")
    }

    /// A line that contains `text`, of those that were seen or the next: the log has a thread of its own, so what is said at the start
    /// comes before the line of the listener or after.
    pub fn said(&mut self, text: &str) -> String {
        let seen = self.seen.iter().find(|line| line.contains(text)).cloned();
        seen.unwrap_or_else(|| self.line(text))
    }

    /// The next line that contains `text`.
    pub fn line(&mut self, text: &str) -> String {
        let deadline = Instant::now() + WAIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no line with {text:?}; there were:\n{}", self.seen.join("\n"));
            };
            self.seen.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    pub fn tell(&self, arguments: &[&str]) -> Outcome {
        let control = self.control.as_deref().unwrap();
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--control", control]).collect();
        run(self.folder, &arguments)
    }

    pub fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.tell(&["status", "--json"]).stdout).unwrap()
    }

    /// The server processes.
    pub fn processes(&self) -> Vec<Pid> {
        let status = self.status();
        let all = status["server"]["processes"].as_array().unwrap().iter();
        all.filter_map(|process| Pid::from_raw(process["pid"].as_i64()? as i32)).collect()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait_for(|| self.child.try_wait().unwrap(), "the server to end")
    }

    pub fn body(&self, path: &str) -> String {
        get(&self.address, path).unwrap()
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if self.control.as_ref().is_some_and(|path| Path::new(path).exists()) {
            self.tell(&["stop", "--now"]); // a successor is not our child
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of one answer, on a connection of its own.
pub fn get(address: &str, path: &str) -> std::io::Result<String> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(WAIT))?;
    exchange(stream, path)
}

pub fn exchange(stream: impl Read + Write, path: &str) -> std::io::Result<String> {
    exchange_with("localhost", stream, path)
}

pub fn exchange_with(host: &str, mut stream: impl Read + Write, path: &str) -> std::io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(std::io::Error::other(format!("{answer:?}"))),
    }
}

/// A connection that stays open between requests.
pub struct KeepAlive(pub BufReader<TcpStream>);

impl KeepAlive {
    pub fn new(address: &str) -> KeepAlive {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        KeepAlive(BufReader::new(stream))
    }

    /// The body, and whether the connection stays.
    pub fn get(&mut self, path: &str) -> (String, bool) {
        // In one piece: what follows a first small piece would wait for its acknowledgement.
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut length, mut stays) = (0, true);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            let line = line.to_ascii_lowercase();
            match line.trim_end().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(("connection", value)) => stays = value != "close",
                Some(_) => {}
                None if line == "\r\n" => break,
                None => assert!(line.starts_with("http/1.1 200"), "{line:?}"),
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (String::from_utf8(body).unwrap(), stays)
    }

    pub fn is_closed_by_the_server(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0))
    }
}

/// Asks again and again until told to end; how many answers there were, and what failed.
pub struct Load {
    pub is_over: Arc<AtomicBool>,
    pub thread: JoinHandle<(usize, Vec<String>)>,
}

impl Load {
    pub fn on(address: &str) -> Load {
        Load::on_path(address, "/")
    }

    pub fn on_path(address: &str, path: &str) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, address, path) = (is_over.clone(), address.to_owned(), path.to_owned());
        let thread = std::thread::spawn(move || {
            let (mut answers, mut failures) = (0, Vec::new());
            while !over.load(SeqCst) {
                match get(&address, &path) {
                    Ok(_) => answers += 1,
                    Err(error) => failures.push(error.to_string()),
                }
            }
            (answers, failures)
        });
        Load { is_over, thread }
    }

    pub fn end(self) {
        self.is_over.store(true, SeqCst);
        let (answers, failures) = join(self.thread, "the load to end");
        assert!(answers > 0);
        assert_eq!(failures, Vec::<String>::new(), "beside {answers} answers");
    }
}

pub fn site(body: &str) -> String {
    format!("workers 2\nlisten \"127.0.0.1:0\"\nsite {{ respond 200 \"{body}\" }}\n")
}
