//! The servers of a bench: Tidegate, its floor and its peers, each configured as its users would for this
//! work, one worker each, all on one processor.
//!
//! Used by `static_files` and `idle`. Every server runs in the foreground as a child, listens on a port of
//! its own that was free, and ends with the bench.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{cpu, host};
use crate::workspace;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Kind {
    Tidegate,
    Nginx,
    Lighttpd,
    Apache,
    #[value(skip)]
    Canned {
        size: usize,
    },
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::Nginx => "nginx",
            Self::Lighttpd => "lighttpd",
            Self::Apache => "apache",
            Self::Canned { .. } => "canned floor",
        }
    }

    /// Idle connections that it can be made to hold. lighttpd wants two descriptors for each.
    pub fn most_connections(self) -> u64 {
        // Some descriptors are for other things than connections.
        let descriptors = host::most_descriptors();
        match self {
            Self::Lighttpd => (descriptors / 2).saturating_sub(200),
            _ => descriptors.saturating_sub(200),
        }
    }

    /// Name and version as the server gives them.
    pub fn version(self) -> String {
        let (program, argument) = match self {
            Self::Tidegate => return first_line(Command::new(tidegate()).arg("--version")),
            Self::Nginx => ("nginx", "-v"),
            Self::Lighttpd => ("lighttpd", "-v"),
            Self::Apache => ("apache2", "-v"),
            Self::Canned { .. } => return self.name().to_owned(),
        };
        let path = workspace::find_program(program).unwrap_or_else(|| program.into());
        let line = first_line(Command::new(path).arg(argument));
        line.trim_start_matches("nginx version: ").trim_start_matches("Server version: ").to_owned()
    }

    fn program(self) -> Option<&'static str> {
        match self {
            Self::Nginx => Some("nginx"),
            Self::Lighttpd => Some("lighttpd"),
            Self::Apache => Some("apache2"),
            Self::Tidegate | Self::Canned { .. } => None,
        }
    }
}

/// What all servers of a run share.
pub struct Setup {
    /// For settings, logs and documents; removed at the end.
    folder: PathBuf,
    pub documents: PathBuf,
    /// How long an idle connection is kept.
    pub keep_alive: Duration,
    /// Connections that a server must be able to hold.
    pub connections: u32,
}

impl Setup {
    pub fn new(keep_alive: Duration, connections: u32) -> Result<Self> {
        let folder = folder()?;
        let documents = folder.join("documents");
        fs::create_dir_all(&documents)?;
        Ok(Self { folder, documents, keep_alive, connections })
    }

    /// Adds a file of `size` bytes that no compression could shorten much.
    pub fn add_document(&self, name: &str, size: usize) -> Result<()> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            // xorshift: Marsaglia, 2003
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[7]
        })
        .take(size)
        .collect();
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
        let folder = setup.folder.join(format!("{}-{port}", kind.name().replace(' ', "-")));
        fs::create_dir_all(&folder)?;
        let error_log = folder.join("output.log");
        let output = fs::File::create(&error_log)?;
        let files = ServerFiles { folder: &folder, port, logs, setup };
        let mut command = match kind {
            Kind::Tidegate => files.tidegate()?,
            Kind::Nginx => files.nginx()?,
            Kind::Lighttpd => files.lighttpd()?,
            Kind::Apache => files.apache()?,
            Kind::Canned { size } => files.canned(size)?,
        };
        command.stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {}", kind.name()))?;
        let mut server = Self { kind, logs, port, child, error_log };
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
        if let Some(process) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            // An error means that it has ended already.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        if !matches!(ended_within(&mut self.child, Duration::from_secs(5)), Ok(true)) {
            eprintln!("bench: {} did not end when told, so it is killed", self.kind.name());
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
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

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
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

fn first_line(command: &mut Command) -> String {
    let Ok(output) = command.stdin(Stdio::null()).output() else { return "unknown version".to_owned() };
    // nginx gives its version on standard error.
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().unwrap_or("unknown version").to_owned()
}

fn tidegate() -> PathBuf {
    workspace::target_directory().join("release/tidegate")
}

/// Writes the settings of one server and gives the command that starts it.
struct ServerFiles<'a> {
    folder: &'a Path,
    port: u16,
    logs: bool,
    setup: &'a Setup,
}

impl ServerFiles<'_> {
    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn tidegate(&self) -> Result<Command> {
        let Self { port, setup, folder, .. } = self;
        let log =
            if self.logs { format!("\"{}\"", folder.join("access.log").display()) } else { "off".into() };
        let settings = self.write(
            "tidegate.kdl",
            &format!(
                "workers 1\n\
                 listen \"127.0.0.1:{port}\"\n\
                 access-log {log}\n\
                 limits {{\n    connections {connections}\n    keep-alive-timeout \"{keep_alive}s\"\n}}\n\
                 site {{ root \"{documents}\" }}\n",
                connections = setup.connections,
                keep_alive = setup.keep_alive.as_secs(),
                documents = setup.documents.display(),
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, &tidegate().to_string_lossy());
        command.arg("serve").arg("--config").arg(settings);
        command.arg("--control").arg(folder.join("control"));
        Ok(command)
    }

    fn nginx(&self) -> Result<Command> {
        let Self { port, setup, .. } = self;
        let folder = self.folder.display();
        // The worker reads the documents as who started the bench.
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let log = if self.logs {
            format!("access_log {folder}/access.log combined buffer=64k flush=1s;")
        } else {
            "access_log off;".into()
        };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("    {name}_temp_path {folder}/temporary;\n"))
            .concat();
        let settings = self.write(
            "nginx.conf",
            &format!(
                "daemon off;\n{user}\nworker_processes 1;\nworker_rlimit_nofile {descriptors};\n\
                 pid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n\
                 events {{ worker_connections {connections}; }}\n\
                 http {{\n    {log}\n    sendfile on;\n    tcp_nopush on;\n    tcp_nodelay on;\n\
                 \x20   keepalive_timeout {keep_alive}s;\n    keepalive_requests 1000000000;\n\
                 \x20   open_file_cache max=10000 inactive=600s;\n    open_file_cache_valid 60s;\n\
                 {temporary}\
                 \x20   server {{ listen 127.0.0.1:{port} backlog=4096; root {documents}; }}\n}}\n",
                descriptors = host::most_descriptors(),
                // It closes idle connections when fewer than a sixteenth of its places are free.
                connections = setup.connections + setup.connections / 8,
                keep_alive = setup.keep_alive.as_secs(),
                documents = setup.documents.display(),
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "nginx");
        command.arg("-c").arg(settings).arg("-e").arg(self.folder.join("error.log"));
        Ok(command)
    }

    fn lighttpd(&self) -> Result<Command> {
        let Self { port, setup, .. } = self;
        let folder = self.folder.display();
        let log = if self.logs {
            format!("server.modules = (\"mod_accesslog\")\naccesslog.filename = \"{folder}/access.log\"\n")
        } else {
            String::new()
        };
        let settings = self.write(
            "lighttpd.conf",
            &format!(
                "{log}server.document-root = \"{documents}\"\nserver.bind = \"127.0.0.1\"\n\
                 server.port = {port}\nserver.errorlog = \"{folder}/error.log\"\n\
                 server.max-keep-alive-requests = 65535\nserver.max-keep-alive-idle = {keep_alive}\n\
                 server.max-connections = {connections}\nserver.max-fds = {descriptors}\n\
                 server.listen-backlog = 4096\nserver.stat-cache-engine = \"simple\"\n\
                 server.network-backend = \"sendfile\"\n\
                 mimetype.assign = (\".bin\" => \"application/octet-stream\")\n",
                documents = setup.documents.display(),
                keep_alive = setup.keep_alive.as_secs(),
                connections = setup.connections + 100,
                descriptors = host::most_descriptors(),
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "lighttpd");
        command.arg("-D").arg("-f").arg(settings);
        Ok(command)
    }

    fn apache(&self) -> Result<Command> {
        let Self { port, setup, .. } = self;
        let folder = self.folder.display();
        let modules: String = ["mpm_event", "authz_core", "mime"]
            .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
            .concat();
        let log = if self.logs {
            format!(
                "LogFormat \"%h %l %u %t \\\"%r\\\" %>s %O \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\" combined\n\
                 CustomLog {folder}/access.log combined\nBufferedLogs On\n"
            )
        } else {
            String::new()
        };
        // One process; connections beyond its threads wait with its listener.
        let factor = setup.connections / APACHE_THREADS + 2;
        let settings = self.write(
            "apache.conf",
            &format!(
                "ServerRoot {folder}\nServerName localhost\nDefaultRuntimeDir {folder}\n\
                 PidFile {folder}/apache.pid\nListen 127.0.0.1:{port}\nListenBackLog 4096\n{modules}{log}\
                 ErrorLog {folder}/error.log\nUser www-data\nGroup www-data\nTypesConfig /etc/mime.types\n\
                 ServerLimit 1\nStartServers 1\nThreadLimit {APACHE_THREADS}\n\
                 ThreadsPerChild {APACHE_THREADS}\nMaxRequestWorkers {APACHE_THREADS}\n\
                 MinSpareThreads 1\nMaxSpareThreads {APACHE_THREADS}\nMaxConnectionsPerChild 0\n\
                 AsyncRequestWorkerFactor {factor}\n\
                 KeepAlive On\nMaxKeepAliveRequests 0\nKeepAliveTimeout {keep_alive}\n\
                 EnableSendfile On\nDocumentRoot {documents}\n\
                 <Directory {documents}>\n    Require all granted\n    AllowOverride None\n\
                 \x20   Options FollowSymLinks\n</Directory>\n",
                keep_alive = setup.keep_alive.as_secs(),
                documents = setup.documents.display(),
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "apache2");
        command.arg("-D").arg("FOREGROUND").arg("-f").arg(settings);
        Ok(command)
    }

    fn canned(&self, size: usize) -> Result<Command> {
        let own = std::env::current_exe()?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, &own.to_string_lossy());
        command.arg("canned").arg(self.port.to_string()).arg(size.to_string());
        Ok(command)
    }
}

/// Enough for the connections of the generator, each with a request in hand; when threads run short Apache
/// closes kept connections, which the generator counts as errors.
const APACHE_THREADS: u32 = 128;
