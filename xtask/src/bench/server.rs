//! A server of a bench: started in the foreground as a child, on a port that was free, ended with the bench.
//!
//! Used by `static_files`, `idle` and `cold`; `peers` knows the servers and writes their settings.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cpu;
use super::peers::{self, Kind, ServerFiles};
use crate::workspace;

/// What all servers of a run share.
pub struct Setup {
    /// For settings, logs and documents; removed at the end.
    pub folder: PathBuf,
    pub documents: PathBuf,
    /// How long an idle connection is kept.
    pub keep_alive: Duration,
    /// Connections that a server must be able to hold.
    pub connections: u32,
    /// Tidegate itself.
    pub program: PathBuf,
    /// Server processes of Tidegate.
    pub processes: u32,
    /// Send buffer of each connection, where the server has a setting for it.
    pub send_buffer: Option<u32>,
    /// Servers that may choose read files rather than have the kernel send them: what is fastest for small ones.
    pub copies_files: bool,
    /// A folder of CGI scripts, at `/cgi-bin/` of the servers that know CGI.
    pub cgi: Option<PathBuf>,
    /// Further directives for Tidegate outside its site.
    pub directives: String,
    /// Further directives for Tidegate's site.
    pub site_directives: String,
    /// Block of Tidegate's listener.
    pub listener: String,
    /// Further directives for nginx, in `http` and in `server`.
    pub nginx: [String; 2],
    /// Further directives for lighttpd.
    pub lighttpd: String,
}

impl Setup {
    pub fn new(keep_alive: Duration, connections: u32) -> Result<Self> {
        let folder = folder()?;
        let documents = folder.join("documents");
        fs::create_dir_all(&documents)?;
        Ok(Self {
            folder,
            documents,
            keep_alive,
            connections,
            program: peers::tidegate(),
            processes: 1,
            send_buffer: None,
            copies_files: false,
            cgi: None,
            directives: String::new(),
            site_directives: String::new(),
            listener: String::new(),
            nginx: Default::default(),
            lighttpd: String::new(),
        })
    }

    /// Writes a file for the bench itself, out of the servers' sight.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        write_settings(&self.folder, name, text)
    }

    /// Adds a file of `size` bytes that no compression could shorten much.
    pub fn add_document(&self, name: &str, size: usize) -> Result<()> {
        let mut bytes = vec![0; size];
        fastrand::Rng::with_seed(17).fill(&mut bytes);
        fs::write(self.documents.join(name), bytes)?;
        Ok(())
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("bench: {} is left over: {error}", self.folder.display());
        }
    }
}

/// A folder that every server may read, whoever it runs as: Apache refuses to serve as root, so it must be
/// reachable for others.
fn folder() -> Result<PathBuf> {
    let name = format!("bench/run-{}", std::process::id());
    let folder = workspace::target_directory().join(&name);
    fs::create_dir_all(&folder)?;
    let is_reachable = folder.ancestors().all(|ancestor| {
        fs::metadata(ancestor).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0)
    });
    if is_reachable {
        return Ok(folder);
    }
    fs::remove_dir_all(&folder)?;
    let folder = std::env::temp_dir().join(format!("tidegate-{name}"));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A running server.
pub struct Server {
    pub kind: Kind,
    /// Whether it writes an access log.
    pub logs: bool,
    pub port: u16,
    child: Child,
    folder: PathBuf,
    error_log: PathBuf,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub fn start(kind: Kind, logs: bool, setup: &Setup) -> Result<Self> {
        if let Some(program) = kind.program()
            && workspace::find_program(program).is_none()
        {
            bail!("{program} is missing: cargo xtask tools --for bench");
        }
        let port = free_port()?;
        let folder = setup.folder.join(format!("{}-{port}", kind.name().replace([' ', ','], "-")));
        fs::create_dir_all(&folder)?;
        let error_log = folder.join("output.log");
        let output = fs::File::create(&error_log)?;
        let mut command = ServerFiles { folder: &folder, port, logs, setup }.command(kind)?;
        command.stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {}", kind.name()))?;
        let mut server = Self { kind, logs, port, child, folder, error_log };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Its name in a table.
    pub fn name(&self) -> String {
        let name = self.kind.name();
        if self.logs { format!("{name}, access log") } else { name.to_owned() }
    }

    /// The server and everything it has started.
    pub fn processes(&self) -> Result<Vec<u32>> {
        cpu::process_tree(self.child.id())
    }

    /// Processor time that it has used so far.
    pub fn time_used(&self) -> Result<Duration> {
        cpu::time_used(&self.processes()?)
    }

    /// The control socket of Tidegate.
    pub fn control(&self) -> PathBuf {
        self.folder.join("control")
    }

    /// Fetches a document and returns its length; an error says what else came.
    pub fn fetch(&self, name: &str) -> Result<usize> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET /{name} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
        let (head, body) = read_response(&mut stream)?;
        if !head.starts_with("HTTP/1.1 200 ") {
            bail!("{} answered /{name} with: {}", self.kind.name(), head.lines().next().unwrap_or_default());
        }
        Ok(body)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            let has_ended = ended_within(&mut self.child, Duration::from_millis(20))?;
            if has_ended || Instant::now() > deadline {
                let output = fs::read_to_string(&self.error_log).unwrap_or_default();
                let state = if has_ended { "ended at once" } else { "does not listen" };
                bail!("{} {state}:\n{}", self.kind.name(), output.trim_end());
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Has a child end, by force where it does not when told.
pub fn end(child: &mut Child) {
    if let Some(process) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
        // An error means that it has ended already.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
    }
    if !matches!(ended_within(child, Duration::from_secs(5)), Ok(true)) {
        eprintln!("bench: process {} did not end when told, so it is killed", child.id());
        let _ = child.kill();
    }
    let _ = child.wait();
}

/// Waits until a child listens, which `is_there` tries.
pub fn wait_until_listening(child: &mut Child, is_there: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_there() {
        if ended_within(child, Duration::from_millis(20))? {
            bail!("it ended at once");
        }
        if Instant::now() > deadline {
            bail!("it does not listen");
        }
    }
    Ok(())
}

/// Waits for a child to end, for a while at most.
fn ended_within(child: &mut Child, time: Duration) -> Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    if child.try_wait()?.is_some() {
        return Ok(true);
    }
    let process = Pid::from_raw(child.id().cast_signed()).context("a child has a process number")?;
    let descriptor = pidfd_open(process, PidfdFlags::empty())?;
    let timeout = Timespec::try_from(time)?;
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout))?;
    Ok(child.try_wait()?.is_some())
}

/// Writes a file of settings into the folder of a server.
pub fn write_settings(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// A port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Reads one response that has a `Content-Length`; returns the head and the length of the body.
pub fn read_response(stream: &mut TcpStream) -> Result<(String, usize)> {
    let mut head = Vec::new();
    let mut buffer = [0; 64 * 1024];
    let (head, mut body) = loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            bail!("the connection ended within a response head");
        }
        head.extend_from_slice(&buffer[..length]);
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            let body = head.len() - end - 4;
            head.truncate(end);
            break (String::from_utf8_lossy(&head).into_owned(), body);
        }
    };
    let content_length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok());
    let content_length = content_length.context("a response without Content-Length")?;
    while body < content_length {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            bail!("the connection ended after {body} of {content_length} bytes");
        }
        body += length;
    }
    Ok((head, body))
}
