//! The servers that `gateway` and `queue` compare, each with the settings that its users would write for this
//! work: one worker, connections to the application kept where that is safe, buffers that hold an answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::gateway::Workload;
use super::host;
use super::rounds::FLOOR;
use super::server::{end, free_port, wait_until_listening};
use crate::workspace;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    #[value(skip)]
    Tidegate,
    Nginx,
    /// It keeps connections to an application that serves one at a time, as few as there are workers.
    #[value(skip)]
    NginxKept,
    Lighttpd,
    Haproxy,
    /// It looks at nothing.
    #[value(skip)]
    Relay,
}

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Peer::Tidegate => "tidegate",
            Peer::Nginx => "nginx",
            Peer::NginxKept => "nginx, kept",
            Peer::Lighttpd => "lighttpd",
            Peer::Haproxy => "haproxy",
            Peer::Relay => FLOOR,
        }
    }
}

/// What is known of an application whose workers serve one connection at a time each. Who can is told so: of
/// these servers Tidegate and HAProxy have a queue.
#[derive(Debug, Clone, Copy)]
pub struct Queue {
    /// Workers of the application.
    pub places: u32,
    /// Requests that may wait.
    pub length: u32,
    /// How long one may wait.
    pub age: Duration,
    /// Clients that a server must be able to hold.
    pub clients: u32,
}

/// The application.
#[derive(Clone, Copy)]
pub struct Application<'a> {
    pub workload: Workload,
    /// Where it listens when it speaks HTTP.
    pub port: u16,
    /// Where it listens when it speaks FastCGI.
    pub socket: &'a Path,
    /// Where its scripts are, if it has any.
    pub scripts: &'a Path,
    /// `None` where it takes whatever comes.
    pub queue: Option<Queue>,
}

/// A process of the bench: told to end when it is dropped.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

pub struct Running {
    pub peer: Peer,
    pub port: u16,
    pub process: Process,
}

/// Starts a server in a folder of its own below `folder`, and waits until it has passed on an answer.
pub fn start(peer: Peer, folder: &Path, application: Application<'_>) -> Result<Running> {
    let port = free_port()?;
    let files = Files {
        folder: folder.join(format!("{}-{port}", peer.name().replace([',', ' '], "-"))),
        port,
        application,
    };
    fs::create_dir_all(&files.folder)?;
    let log = files.folder.join("output.log");
    let output = fs::File::create(&log)?;
    let mut command = files.command(peer)?;
    command.stdout(output.try_clone()?).stderr(output);
    let child = command.spawn().with_context(|| format!("cannot start {}", peer.name()))?;
    let mut process = Process(child);
    wait_until_listening(&mut process.0, || connects(port))
        .with_context(|| format!("{}:\n{}", peer.name(), fs::read_to_string(&log).unwrap_or_default()))?;
    let (head, body) = ask(port, application.workload.path())?;
    if !head.starts_with("HTTP/1.1 200 ") || body < application.workload.size() {
        bail!("{} answered {body} bytes: {}", peer.name(), head.lines().next().unwrap_or_default());
    }
    Ok(Running { peer, port, process })
}

pub fn connects(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Asks once on a connection of its own; the head of the answer and the bytes behind it.
pub fn ask(port: u16, path: &str) -> Result<(String, usize)> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let head = head.context("the connection ended within a response head")?;
    Ok((String::from_utf8_lossy(&answer[..head]).into_owned(), answer.len() - head - 4))
}

/// The settings of one server.
struct Files<'a> {
    /// Where they go.
    folder: PathBuf,
    port: u16,
    application: Application<'a>,
}

impl Files<'_> {
    /// The command of a server, its settings written.
    fn command(&self, peer: Peer) -> Result<Command> {
        match peer {
            Peer::Tidegate => self.tidegate(),
            Peer::Nginx | Peer::NginxKept => self.nginx(peer == Peer::NginxKept),
            Peer::Lighttpd => self.lighttpd(),
            Peer::Haproxy => self.haproxy(),
            Peer::Relay => self.relay(),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        super::server::write_settings(&self.folder, name, text)
    }

    fn tidegate(&self) -> Result<Command> {
        let Self { port, folder, application } = self;
        let Application { port: backend_port, socket, .. } = application;
        let (mut queue, mut limits) = (String::new(), String::new());
        if let Some(Queue { places, length, age, clients }) = application.queue {
            queue = format!("connections {places}; queue length={length} age=\"{}ms\"", age.as_millis());
            limits = format!("limits {{ connections {} }}\n", clients + 200);
        }
        let answer = match application.workload {
            Workload::FastCgi => {
                format!("fastcgi \"unix:{}\" {{ mount \"/\"; keep 128; {queue} }}", socket.display())
            }
            Workload::Php => format!(
                "root \"{}\"; route \"*.php\" {{ fastcgi \"unix:{}\" {{ {queue} }} }}",
                application.scripts.display(),
                socket.display()
            ),
            _ => format!("proxy \"http://127.0.0.1:{backend_port}\" {{ keep 128; {queue} }}"),
        };
        let settings = self.write(
            "tidegate.kdl",
            &format!("workers 1\nlisten \"127.0.0.1:{port}\"\naccess-log off\n{limits}site {{ {answer} }}\n"),
        )?;
        let program = workspace::optimised().join("tidegate");
        let mut command = host::pinned(host::SERVER_PROCESSOR, &program.to_string_lossy());
        command.arg("serve").arg("--config").arg(settings).arg("--control").arg(folder.join("control"));
        Ok(command)
    }

    fn nginx(&self, is_kept: bool) -> Result<Command> {
        let Self { port, application, .. } = self;
        let Application { port: backend_port, socket, .. } = application;
        let folder = self.folder.display();
        let (upstream, location) = match application.workload {
            Workload::FastCgi | Workload::Php => (
                format!("server unix:{};", socket.display()),
                "fastcgi_pass app;\n\
                 fastcgi_param REQUEST_METHOD $request_method; fastcgi_param QUERY_STRING $query_string;\n\
                 fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length;\n\
                 fastcgi_param SCRIPT_NAME $fastcgi_script_name; fastcgi_param REQUEST_URI $request_uri;\n\
                 fastcgi_param DOCUMENT_URI $document_uri; fastcgi_param DOCUMENT_ROOT $document_root;\n\
                 fastcgi_param SERVER_PROTOCOL $server_protocol; fastcgi_param REQUEST_SCHEME $scheme;\n\
                 fastcgi_param GATEWAY_INTERFACE CGI/1.1; fastcgi_param SERVER_SOFTWARE nginx/$nginx_version;\n\
                 fastcgi_param REMOTE_ADDR $remote_addr; fastcgi_param REMOTE_PORT $remote_port;\n\
                 fastcgi_param SERVER_ADDR $server_addr; fastcgi_param SERVER_PORT $server_port;\n\
                 fastcgi_param SERVER_NAME $server_name; fastcgi_param REDIRECT_STATUS 200;\n\
                 fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;"
                    .to_owned(),
            ),
            _ => (
                format!("server 127.0.0.1:{backend_port};"),
                "proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
                 proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;\n\
                 proxy_set_header X-Forwarded-Proto $scheme; proxy_buffer_size 64k; proxy_buffers 8 64k;"
                    .to_owned(),
            ),
        };
        // An idle connection to a worker that serves one at a time keeps others from it, and nginx has no bound.
        let (keep, keep_fastcgi) = match application.queue {
            Some(Queue { places, .. }) if is_kept => {
                (&*format!("keepalive {places}; keepalive_requests 1000000000;"), "fastcgi_keep_conn on;")
            }
            Some(_) => ("", ""),
            None => ("keepalive 128; keepalive_requests 1000000000;", "fastcgi_keep_conn on;"),
        };
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {folder}/temporary;\n"))
            .concat();
        let settings = self.write(
            "nginx.conf",
            &format!(
                "daemon off;\n{user}\nworker_processes 1;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n\
                 events {{ worker_connections 4096; }}\nhttp {{\naccess_log off;\ntcp_nodelay on;\n\
                 keepalive_requests 1000000000;\n{keep_fastcgi}\n{temporary}\
                 upstream app {{ {upstream} {keep} }}\n\
                 server {{ listen 127.0.0.1:{port} backlog=4096; root {scripts}; location / {{ {location} }} }}\n}}\n",
                scripts = application.scripts.display(),
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "nginx");
        command.arg("-c").arg(settings).arg("-e").arg(self.folder.join("error.log"));
        Ok(command)
    }

    fn lighttpd(&self) -> Result<Command> {
        let Self { port, application, .. } = self;
        let Application { port: backend_port, socket, .. } = application;
        let folder = self.folder.display();
        let answer = match application.workload {
            Workload::FastCgi => format!(
                "server.modules = (\"mod_fastcgi\")\nfastcgi.server = (\"/\" => ((\"socket\" => \"{}\", \
                 \"check-local\" => \"disable\")))\n",
                socket.display()
            ),
            Workload::Php => format!(
                "server.modules = (\"mod_fastcgi\")\nfastcgi.server = (\".php\" => ((\"socket\" => \"{}\")))\n",
                socket.display()
            ),
            _ => format!(
                "server.modules = (\"mod_proxy\")\nproxy.server = (\"/\" => ((\"host\" => \"127.0.0.1\", \
                 \"port\" => {backend_port})))\n"
            ),
        };
        let settings = self.write(
            "lighttpd.conf",
            &format!(
                "{answer}server.document-root = \"{scripts}\"\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\n\
                 server.errorlog = \"{folder}/error.log\"\nserver.max-keep-alive-requests = 65535\n\
                 server.max-connections = 1024\nserver.max-fds = 4096\nserver.listen-backlog = 4096\n",
                scripts = application.scripts.display(),
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "lighttpd");
        command.arg("-D").arg("-f").arg(settings);
        Ok(command)
    }

    fn relay(&self) -> Result<Command> {
        let Application { workload, port, socket, scripts, queue } = self.application;
        let application = match workload {
            Workload::FastCgi | Workload::Php => format!("unix:{}", socket.display()),
            Workload::Proxy | Workload::ProxyLarge => format!("127.0.0.1:{port}"),
        };
        // As many as clients, or as the application has places.
        let connections = queue.map_or(64, |queue| queue.places);
        let own = std::env::current_exe()?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, &own.to_string_lossy());
        command.arg("relay").arg(self.port.to_string()).arg(application);
        command.arg(workload.size().to_string()).arg("--connections").arg(connections.to_string());
        command.arg("--script").arg(scripts.join(workload.path().trim_start_matches('/')));
        Ok(command)
    }

    fn haproxy(&self) -> Result<Command> {
        let Self { port, application, .. } = self;
        let Application { port: backend_port, socket, .. } = application;
        let (mut queue, mut bound) = (String::new(), "pool-max-conn 128".to_owned());
        if let Some(Queue { places, length, age, .. }) = application.queue {
            queue = format!("    timeout queue {}ms\n", age.as_millis());
            bound = format!("pool-max-conn {places} maxconn {places} maxqueue {length}");
        }
        let backend = match application.workload {
            Workload::FastCgi => format!(
                "fcgi-app app\n    docroot /\n    option keep-conn\nbackend app\n    use-fcgi-app app\n    \
                 http-reuse always\n{queue}    server app unix@{} proto fcgi {bound}\n",
                socket.display()
            ),
            _ => format!(
                "backend app\n    http-reuse always\n{queue}    server app 127.0.0.1:{backend_port} {bound}\n"
            ),
        };
        let settings = self.write(
            "haproxy.cfg",
            &format!(
                "global\n    nbthread 1\n    maxconn 4096\ndefaults\n    mode http\n    timeout connect 5s\n    \
                 timeout client 60s\n    timeout server 60s\n    option forwardfor\nfrontend in\n    \
                 bind 127.0.0.1:{port}\n    default_backend app\n{backend}"
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "haproxy");
        command.arg("-f").arg(settings);
        Ok(command)
    }
}
