//! The servers that `tls` and `h2` compare, each with the settings that its users would write for this work:
//! one worker, TLS 1.2 and 1.3, one ECDSA certificate, session tickets, files from the page cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, bail};

use super::host;
use super::server::{end, free_port, wait_until_listening};
use crate::workspace;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    #[value(skip)]
    Tidegate,
    Nginx,
    H2o,
}

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Peer::Tidegate => "tidegate",
            Peer::Nginx => "nginx",
            Peer::H2o => "h2o",
        }
    }
}

/// What all servers of a run share. Its folder goes with it.
pub struct Site {
    folder: PathBuf,
    /// Connections that a server must be able to hold.
    connections: u32,
    /// Whether they speak HTTP/2 to those who ask for it.
    http2: bool,
}

impl Site {
    /// A site with a certificate and without documents; an error names a peer that is missing.
    pub fn new(bench: &str, peers: &[Peer], connections: u32, http2: bool) -> Result<Self> {
        for program in ["openssl"].into_iter().chain(peers.iter().map(|peer| peer.name())) {
            if workspace::find_program(program).is_none() {
                bail!("{program} is missing: cargo xtask tools --for bench");
            }
        }
        let folder = workspace::target_directory().join(format!("bench/{bench}-{}", std::process::id()));
        fs::create_dir_all(folder.join("documents"))?;
        let site = Self { folder, connections, http2 };
        certify(&site.folder)?;
        Ok(site)
    }

    /// Adds a file of `size` bytes.
    pub fn add_document(&self, name: &str, size: usize) -> Result<()> {
        fs::write(self.folder.join("documents").join(name), vec![b'x'; size])?;
        Ok(())
    }

    /// Tidegate, and then the peers.
    pub fn start_all(&self, peers: &[Peer]) -> Result<Vec<Running>> {
        let peers = [Peer::Tidegate].into_iter().chain(peers.iter().copied());
        peers.map(|peer| self.start(peer)).collect()
    }

    /// Starts one and waits until it listens.
    pub fn start(&self, peer: Peer) -> Result<Running> {
        let port = free_port()?;
        let files = Files {
            folder: self.folder.join(format!("{}-{port}", peer.name())),
            port,
            documents: &self.folder.join("documents"),
            certificates: &self.folder,
            connections: self.connections,
            http2: self.http2,
        };
        fs::create_dir_all(&files.folder)?;
        let log = files.folder.join("output.log");
        let output = fs::File::create(&log)?;
        let mut command = files.command(peer)?;
        command.stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {}", peer.name()))?;
        let mut running = Running { peer, port, child, folder: files.folder };
        let is_there = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        wait_until_listening(&mut running.child, is_there)
            .with_context(|| format!("{}:\n{}", peer.name(), fs::read_to_string(&log).unwrap_or_default()))?;
        Ok(running)
    }
}

/// Makes a certificate as most have it today: ECDSA with P-256.
pub fn certify(folder: &Path) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    command.args(["-days", "30", "-subj", "/CN=bench.test", "-addext"]);
    command.args(["subjectAltName=DNS:bench.test,IP:127.0.0.1", "-keyout", "site.key", "-out"]);
    workspace::output(command.arg("site.pem").current_dir(folder)).map(drop)
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("bench: {} is left over: {error}", self.folder.display());
        }
    }
}

/// A server of the bench: told to end when it is dropped.
pub struct Running {
    pub peer: Peer,
    pub port: u16,
    pub child: Child,
    folder: PathBuf,
}

impl Running {
    /// What has become of it, for an error: its name, whether it has ended and how, what its logs say last.
    pub fn state(&self) -> String {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        // It is left to be reaped by who has started it.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let pid = Pid::from_raw(self.child.id().cast_signed());
        let ended = pid.and_then(|pid| waitid(WaitId::Pid(pid), options).ok().flatten());
        let how = match ended.map(|ended| (ended.exit_status(), ended.terminating_signal())) {
            None => "runs".to_owned(),
            Some((Some(status), _)) => format!("has ended with status {status}"),
            Some((None, Some(signal))) => format!("was ended by signal {signal}"),
            Some((None, None)) => "has ended".to_owned(),
        };
        let last_lines = ["output.log", "error.log"].into_iter().filter_map(|name| {
            let text = fs::read_to_string(self.folder.join(name)).ok()?;
            Some(format!("; {name}: {}", text.lines().rfind(|line| !line.is_empty())?))
        });
        format!("{} (process {}) {how}{}", self.peer.name(), self.child.id(), last_lines.collect::<String>())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// The settings of one server.
struct Files<'a> {
    /// Where they go.
    folder: PathBuf,
    port: u16,
    /// What is served.
    documents: &'a Path,
    /// `site.pem` and `site.key` are there.
    certificates: &'a Path,
    connections: u32,
    http2: bool,
}

impl Files<'_> {
    /// The command of a server, its settings written.
    fn command(&self, peer: Peer) -> Result<Command> {
        match peer {
            Peer::Tidegate => self.tidegate(),
            Peer::Nginx => self.nginx(),
            Peer::H2o => self.h2o(),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        super::server::write_settings(&self.folder, name, text)
    }

    fn tidegate(&self) -> Result<Command> {
        let Self { port, connections, .. } = self;
        let (documents, certificates) = (self.documents.display(), self.certificates.display());
        let settings = self.write(
            "tidegate.kdl",
            &format!(
                "workers 1\naccess-log off\n\
                 listen \"127.0.0.1:{port}\" {{ tls certificate=\"{certificates}/site.pem\" \
                 key=\"{certificates}/site.key\" }}\n\
                 limits {{ connections {connections}; keep-alive-timeout \"600s\" }}\n\
                 site {{ root \"{documents}\" }}\n"
            ),
        )?;
        let program = workspace::optimised().join("tidegate");
        let mut command = host::pinned(host::SERVER_PROCESSOR, &program.to_string_lossy());
        command.arg("serve").arg("--config").arg(settings);
        command.arg("--control").arg(self.folder.join("control"));
        Ok(command)
    }

    fn nginx(&self) -> Result<Command> {
        let Self { port, .. } = self;
        let (folder, documents) = (self.folder.display(), self.documents.display());
        let certificates = self.certificates.display();
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {folder}/temporary;\n"))
            .concat();
        let settings = self.write(
            "nginx.conf",
            &format!(
                "daemon off;\n{user}\nworker_processes 1;\nworker_rlimit_nofile {descriptors};\n\
                 pid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n\
                 events {{ worker_connections {connections}; }}\nhttp {{\naccess_log off;\nsendfile on;\n\
                 tcp_nopush on;\ntcp_nodelay on;\nkeepalive_timeout 600s;\nkeepalive_requests 1000000000;\n\
                 open_file_cache max=10000 inactive=600s;\nopen_file_cache_valid 60s;\n{temporary}\
                 ssl_protocols TLSv1.2 TLSv1.3;\nssl_session_tickets on;\n\
                 ssl_certificate {certificates}/site.pem;\nssl_certificate_key {certificates}/site.key;\n\
                 server {{ listen 127.0.0.1:{port} ssl{http2} backlog=4096; root {documents}; }}\n}}\n",
                descriptors = host::most_descriptors(),
                http2 = if self.http2 { " http2" } else { "" },
                connections = self.connections + self.connections / 8,
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "nginx");
        command.arg("-c").arg(settings).arg("-e").arg(self.folder.join("error.log"));
        Ok(command)
    }

    /// Without OCSP: it would start a program for each certificate, whose end looked like that of a server.
    fn h2o(&self) -> Result<Command> {
        let Self { port, .. } = self;
        let (folder, documents) = (self.folder.display(), self.documents.display());
        let certificates = self.certificates.display();
        let user = if rustix::process::geteuid().is_root() { "user: root\n" } else { "" };
        let settings = self.write(
            "h2o.conf",
            &format!(
                "{user}num-threads: 1\nmax-connections: {connections}\npid-file: {folder}/h2o.pid\n\
                 error-log: {folder}/error.log\nhttp1-request-timeout: 600\n\
                 listen:\n  host: 127.0.0.1\n  port: {port}\n  ssl:\n    ocsp-update-interval: 0\n    minimum-version: TLSv1.2\n    \
                 certificate-file: {certificates}/site.pem\n    key-file: {certificates}/site.key\n\
                 hosts:\n  default:\n    paths:\n      /:\n        file.dir: {documents}\n",
                connections = self.connections,
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "h2o");
        command.arg("-m").arg("worker").arg("-c").arg(settings);
        Ok(command)
    }
}
