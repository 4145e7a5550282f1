//! The servers that benches compare: Tidegate, its floor and its peers, each configured as its users would for
//! this work, one worker each, all on one processor.
//!
//! Used by `server`, which runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use super::rounds::FLOOR;
use super::server::Setup;
use super::{host, newest};
use crate::workspace;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Kind {
    Tidegate,
    Nginx,
    /// With `aio threads`: what is cold it reads on a pool, as we do.
    NginxThreads,
    Lighttpd,
    Apache,
    H2o,
    #[value(skip)]
    Canned {
        size: usize,
        /// One request on each connection.
        closes: bool,
    },
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::Nginx => "nginx",
            Self::NginxThreads => "nginx, aio threads",
            Self::Lighttpd => "lighttpd",
            Self::Apache => "apache",
            Self::H2o => "h2o",
            Self::Canned { .. } => FLOOR,
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
        match (self, self.program()) {
            (Self::Tidegate, _) => first_line(Command::new(tidegate()).arg("--version")),
            (_, Some(program)) => {
                newest::version(program, "-v").unwrap_or_else(|| format!("{program}: absent"))
            }
            (_, None) => self.name().to_owned(),
        }
    }

    /// The program of a peer; `None` for what is our own.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Self::Nginx | Self::NginxThreads => Some("nginx"),
            Self::Lighttpd => Some("lighttpd"),
            Self::Apache => Some("apache2"),
            Self::H2o => Some("h2o"),
            Self::Tidegate | Self::Canned { .. } => None,
        }
    }
}

/// Writes the settings of one server and gives the command that starts it.
pub struct ServerFiles<'a> {
    /// Where they go.
    pub folder: &'a Path,
    pub port: u16,
    /// Whether an access log is written.
    pub logs: bool,
    pub setup: &'a Setup,
}

impl ServerFiles<'_> {
    /// The command of a server, its settings written.
    pub fn command(&self, kind: Kind) -> Result<Command> {
        match kind {
            Kind::Tidegate => self.tidegate(),
            Kind::Nginx => self.nginx(""),
            Kind::NginxThreads => self.nginx("aio threads;"),
            Kind::Lighttpd => self.lighttpd(),
            Kind::Apache => self.apache(),
            Kind::H2o => self.h2o(),
            Kind::Canned { size, closes } => self.canned(size, closes),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        super::server::write_settings(self.folder, name, text)
    }

    fn tidegate(&self) -> Result<Command> {
        let Self { port, setup, folder, .. } = self;
        let log =
            if self.logs { format!("\"{}\"", folder.join("access.log").display()) } else { "off".into() };
        let settings = self.write(
            "tidegate.kdl",
            &format!(
                "processes {processes}\nworkers 1\n\
                 listen \"127.0.0.1:{port}\" {listener}\n\
                 access-log {log}\n{outside}\
                 limits {{\n    connections {connections}\n    keep-alive-timeout \"{keep_alive}s\"\n}}\n\
                 site {{\n    root \"{documents}\"\n    {directives}\n}}\n",
                listener = setup.listener,
                connections = setup.connections,
                keep_alive = setup.keep_alive.as_secs(),
                documents = setup.documents.display(),
                outside = setup.directives,
                directives = setup.site_directives,
                processes = setup.processes,
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, &setup.program.to_string_lossy());
        command.arg("serve").arg("--config").arg(settings);
        command.arg("--control").arg(folder.join("control"));
        Ok(command)
    }

    fn nginx(&self, aio: &str) -> Result<Command> {
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
                 http {{\n    {log}\n    {aio}\n    sendfile {sendfile};\n    tcp_nopush on;\n    tcp_nodelay on;\n\
                 \x20   keepalive_timeout {keep_alive}s;\n    keepalive_requests 1000000000;\n\
                 \x20   open_file_cache max=10000 inactive=600s;\n    open_file_cache_valid 60s;\n\
                 {temporary}{in_http}\
                 \x20   server {{ listen 127.0.0.1:{port} backlog=4096{send_buffer}; root {documents}; {in_server} }}\n}}\n",
                in_http = setup.nginx[0],
                in_server = setup.nginx[1],
                descriptors = host::most_descriptors(),
                sendfile = if setup.copies_files { "off" } else { "on" },
                // It closes idle connections when fewer than a sixteenth of its places are free.
                connections = setup.connections + setup.connections / 8,
                keep_alive = setup.keep_alive.as_secs(),
                documents = setup.documents.display(),
                send_buffer = setup.send_buffer.map_or(String::new(), |bytes| format!(" sndbuf={bytes}")),
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
        let cgi = setup.cgi.as_ref().map_or(String::new(), |folder| {
            format!(
                "server.modules += (\"mod_alias\", \"mod_cgi\")\nalias.url = (\"/cgi-bin/\" => \"{}/\")\n\
                 $HTTP[\"url\"] =~ \"^/cgi-bin/\" {{ cgi.assign = (\"\" => \"\") }}\n",
                folder.display()
            )
        });
        let settings = self.write(
            "lighttpd.conf",
            &format!(
                "{log}{cgi}server.document-root = \"{documents}\"\nserver.bind = \"127.0.0.1\"\n\
                 server.port = {port}\nserver.errorlog = \"{folder}/error.log\"\n\
                 server.max-keep-alive-requests = 65535\nserver.max-keep-alive-idle = {keep_alive}\n\
                 server.max-connections = {connections}\nserver.max-fds = {descriptors}\n\
                 server.listen-backlog = 4096\nserver.stat-cache-engine = \"simple\"\n\
                 server.network-backend = \"sendfile\"\n\
                 mimetype.assign = (\".bin\" => \"application/octet-stream\")\n{more}",
                more = setup.lighttpd,
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
        let cgi = setup.cgi.as_ref().map_or(String::new(), |scripts| {
            let modules: String = ["alias", "cgid"]
                .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
                .concat();
            let scripts = scripts.display();
            format!(
                "{modules}ScriptSock {folder}/cgid\nScriptAlias /cgi-bin/ {scripts}/\n\
                 <Directory {scripts}>\n    Require all granted\n    AllowOverride None\n    \
                 Options ExecCGI\n</Directory>\n"
            )
        });
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
                 EnableSendfile On\n{cgi}DocumentRoot {documents}\n\
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

    fn h2o(&self) -> Result<Command> {
        let Self { port, setup, .. } = self;
        let folder = self.folder.display();
        let user = if rustix::process::geteuid().is_root() { "user: root\n" } else { "" };
        let log = if self.logs { format!("access-log: {folder}/access.log\n") } else { String::new() };
        let settings = self.write(
            "h2o.conf",
            &format!(
                "{user}{log}num-threads: 1\nmax-connections: {connections}\npid-file: {folder}/h2o.pid\n\
                 error-log: {folder}/error.log\nhttp1-request-timeout: {keep_alive}\n\
                 listen:\n  host: 127.0.0.1\n  port: {port}\n\
                 hosts:\n  default:\n    paths:\n      /:\n        file.dir: {documents}\n",
                connections = setup.connections + 100,
                keep_alive = setup.keep_alive.as_secs(),
                documents = setup.documents.display(),
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "h2o");
        command.arg("-m").arg("worker").arg("-c").arg(settings);
        Ok(command)
    }

    fn canned(&self, size: usize, closes: bool) -> Result<Command> {
        let own = std::env::current_exe()?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, &own.to_string_lossy());
        command.arg("canned").arg(self.port.to_string()).arg(size.to_string());
        command.args(closes.then_some("--closes"));
        Ok(command)
    }
}

/// Enough for the connections of the generator, each with a request in hand; when threads run short Apache
/// closes kept connections, which the generator counts as errors.
const APACHE_THREADS: u32 = 128;

fn first_line(command: &mut Command) -> String {
    let Ok(output) = command.stdin(Stdio::null()).output() else { return "unknown version".to_owned() };
    // nginx gives its version on standard error.
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().unwrap_or("unknown version").to_owned()
}

pub fn tidegate() -> PathBuf {
    workspace::optimised().join("tidegate")
}
