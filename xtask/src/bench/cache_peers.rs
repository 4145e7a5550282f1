//! The caches that `cache` compares, each with the settings that its users would write for this work: one worker,
//! memory for all that is asked for, one fetch where many ask.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::gateway_peers::{Process, ask, connects};
use super::host;
use super::server::{free_port, wait_until_listening};
use crate::workspace;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    #[value(skip)]
    Tidegate,
    /// The same bytes as a file of Tidegate's own: what a stored answer costs beside it.
    #[value(skip)]
    TidegateFile,
    Nginx,
    Varnish,
    Apache,
    #[value(name = "ats")]
    TrafficServer,
}

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Peer::Tidegate => "tidegate",
            Peer::TidegateFile => "tidegate, a file",
            Peer::Nginx => "nginx",
            Peer::Varnish => "varnish",
            Peer::Apache => "apache",
            Peer::TrafficServer => "traffic server",
        }
    }

    pub fn program(self) -> Option<&'static str> {
        match self {
            Peer::Tidegate | Peer::TidegateFile => None,
            Peer::Nginx => Some("nginx"),
            Peer::Varnish => Some("varnishd"),
            Peer::Apache => Some("apache2"),
            Peer::TrafficServer => Some("traffic_server"),
        }
    }
}

pub struct Running {
    pub peer: Peer,
    pub port: u16,
    pub process: Process,
}

/// Starts a cache before the origin, in a folder of its own below `folder`. `documents` is what Tidegate has as files.
pub fn start(peer: Peer, folder: &Path, documents: &Path, origin: u16) -> Result<Running> {
    let port = free_port()?;
    let files = Files {
        folder: folder.join(format!("{}-{port}", peer.name().replace([' ', ','], "-"))),
        documents,
        port,
        origin,
    };
    fs::create_dir_all(&files.folder)?;
    if !matches!(peer, Peer::Tidegate | Peer::TidegateFile) {
        // Some change who they are. Tidegate stores nothing where others may write.
        fs::set_permissions(&files.folder, fs::Permissions::from_mode(0o777))?;
    }
    let log = files.folder.join("output.log");
    let output = fs::File::create(&log)?;
    let mut command = files.command(peer)?;
    command.stdout(output.try_clone()?).stderr(output);
    let child = command.spawn().with_context(|| format!("cannot start {}", peer.name()))?;
    let mut process = Process(child);
    wait_until_listening(&mut process.0, || connects(port))
        .with_context(|| format!("{}:\n{}", peer.name(), fs::read_to_string(&log).unwrap_or_default()))?;
    let running = Running { peer, port, process };
    running.fetch("/16", 16)?;
    Ok(running)
}

impl Running {
    /// Asks once, on a connection of its own.
    pub fn fetch(&self, path: &str, size: usize) -> Result<()> {
        let (head, body) = ask(self.port, path)?;
        if !head.starts_with("HTTP/1.1 200 ") || body != size {
            let line = head.lines().next().unwrap_or_default();
            bail!("{} answered {path} with {body} bytes: {line}", self.peer.name());
        }
        Ok(())
    }
}

/// The settings of one cache.
struct Files<'a> {
    folder: PathBuf,
    documents: &'a Path,
    port: u16,
    origin: u16,
}

impl Files<'_> {
    fn command(&self, peer: Peer) -> Result<Command> {
        match peer {
            Peer::Tidegate => self.tidegate(&format!(
                "cache \"main\" {{ memory \"512MiB\"; object-size \"2GiB\"; disk \"{}\" size=\"8GiB\" }}\n\
                 site {{ cache \"main\"; proxy \"http://127.0.0.1:{}\" }}\n",
                self.folder.join("stored").display(),
                self.origin
            )),
            Peer::TidegateFile => {
                self.tidegate(&format!("site {{ root \"{}\" }}\n", self.documents.display()))
            }
            Peer::Nginx => self.nginx(),
            Peer::Varnish => self.varnish(),
            Peer::Apache => self.apache(),
            Peer::TrafficServer => self.traffic_server(),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        super::server::write_settings(&self.folder, name, text)
    }

    fn tidegate(&self, answer: &str) -> Result<Command> {
        let text = format!("workers 1\nlisten \"127.0.0.1:{}\"\naccess-log off\n{answer}", self.port);
        let settings = self.write("tidegate.kdl", &text)?;
        let program = workspace::optimised().join("tidegate");
        let mut command = host::pinned(host::SERVER_PROCESSOR, &program.to_string_lossy());
        command.arg("serve").arg("--config").arg(settings);
        command.arg("--control").arg(self.folder.join("control"));
        Ok(command)
    }

    /// What is stored is a file, which the kernel has in memory; small ones are read, as that is faster.
    fn nginx(&self) -> Result<Command> {
        let Self { port, origin, .. } = self;
        let folder = self.folder.display();
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {folder}/temporary;\n"))
            .concat();
        let settings = self.write(
            "nginx.conf",
            &format!(
                "daemon off;\n{user}\nworker_processes 1;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n\
                 events {{ worker_connections 4096; }}\nhttp {{\naccess_log off;\ntcp_nodelay on;\ntcp_nopush on;\n\
                 sendfile on;\nkeepalive_requests 1000000000;\nopen_file_cache max=10000 inactive=600s;\n\
                 open_file_cache_valid 60s;\n{temporary}\
                 proxy_cache_path {folder}/cache levels=1:2 keys_zone=main:64m max_size=4g inactive=1h \
                 use_temp_path=off;\n\
                 upstream app {{ server 127.0.0.1:{origin}; keepalive 128; }}\n\
                 server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ proxy_pass http://app; \
                 proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_cache main; \
                 proxy_cache_lock on; proxy_cache_lock_timeout 300s; proxy_cache_lock_age 300s; \
                 proxy_buffer_size 64k; proxy_buffers 8 64k; }} }}\n}}\n"
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "nginx");
        command.arg("-c").arg(settings).arg("-e").arg(self.folder.join("error.log"));
        Ok(command)
    }

    fn varnish(&self) -> Result<Command> {
        let Self { port, origin, .. } = self;
        let program = format!(
            "vcl 4.1;\nbackend default {{ .host = \"127.0.0.1\"; .port = \"{origin}\"; \
             .first_byte_timeout = 300s; .between_bytes_timeout = 300s; }}\n"
        );
        let program = self.write("cache.vcl", &program)?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "varnishd");
        command.args(["-F", "-j", "none", "-a", &format!("127.0.0.1:{port}"), "-f"]).arg(program);
        command.arg("-n").arg(self.folder.join("work"));
        command.args(["-s", "malloc,512m", "-T", "none", "-p", "thread_pools=1"]);
        command.args(["-p", "thread_pool_min=200", "-p", "thread_pool_max=2000"]);
        Ok(command)
    }

    fn apache(&self) -> Result<Command> {
        let Self { port, origin, .. } = self;
        let folder = self.folder.display();
        let modules: String = ["mpm_event", "authz_core", "proxy", "proxy_http", "cache", "cache_disk"]
            .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
            .concat();
        let stored = self.folder.join("cache");
        fs::create_dir_all(&stored)?;
        fs::set_permissions(&stored, fs::Permissions::from_mode(0o777))?;
        let settings = self.write(
            "apache.conf",
            &format!(
                "ServerRoot {folder}\nServerName localhost\nDefaultRuntimeDir {folder}\nPidFile {folder}/apache.pid\n\
                 Listen 127.0.0.1:{port}\nListenBackLog 4096\n{modules}ErrorLog {folder}/error.log\n\
                 User www-data\nGroup www-data\nServerLimit 1\nStartServers 1\nThreadLimit {THREADS}\n\
                 ThreadsPerChild {THREADS}\nMaxRequestWorkers {THREADS}\nMinSpareThreads 1\n\
                 MaxSpareThreads {THREADS}\nMaxConnectionsPerChild 0\nAsyncRequestWorkerFactor 8\nKeepAlive On\n\
                 MaxKeepAliveRequests 0\nEnableSendfile On\nCacheRoot {stored}\nCacheEnable disk /\n\
                 CacheQuickHandler On\nCacheLock On\nCacheLockPath {folder}/locks\nCacheLockMaxAge 300\n\
                 CacheMaxFileSize 2000000000\nProxyTimeout 300\nProxyPass / http://127.0.0.1:{origin}/\n",
                stored = stored.display(),
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "apache2");
        command.arg("-D").arg("FOREGROUND").arg("-f").arg(settings);
        Ok(command)
    }

    /// In a layout of its own. What is stored is in its memory as well. It runs as root only if it is built for that.
    fn traffic_server(&self) -> Result<Command> {
        let Self { port, origin, .. } = self;
        let root = self.folder.join("root");
        for name in ["etc", "run", "log", "stored"] {
            let folder = root.join(name);
            fs::create_dir_all(&folder)?;
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
        }
        let at = root.display();
        let layout = format!(
            "prefix: /usr\nexec_prefix: /usr\nbindir: /usr/bin\nsbindir: /usr/sbin\nincludedir: /usr/include\n\
             libdir: /usr/lib/trafficserver\nlibexecdir: /usr/lib/trafficserver/modules\nsysconfdir: {at}/etc\n\
             datadir: {at}/stored\ncachedir: {at}/stored\nlocalstatedir: {at}\nruntimedir: {at}/run\n\
             logdir: {at}/log\n"
        );
        fs::write(root.join("runroot.yaml"), layout)?;
        let user = if rustix::process::geteuid().is_root() { "www-data" } else { "#-1" };
        let settings = format!(
            "CONFIG proxy.config.http.server_ports STRING {port}:ip-in=127.0.0.1\n\
             CONFIG proxy.config.admin.user_id STRING {user}\n\
             CONFIG proxy.config.exec_thread.autoconfig INT 0\nCONFIG proxy.config.exec_thread.limit INT 1\n\
             CONFIG proxy.config.accept_threads INT 0\nCONFIG proxy.config.cache.ram_cache.size INT 536870912\n\
             CONFIG proxy.config.log.logging_enabled INT 0\nCONFIG proxy.config.http.cache.required_headers INT 0\n\
             CONFIG proxy.config.http.cache.max_open_read_retries INT 100\n\
             CONFIG proxy.config.http.cache.open_read_retry_time INT 10\n\
             CONFIG proxy.config.cache.enable_read_while_writer INT 1\n\
             CONFIG proxy.config.http.background_fill_active_timeout INT 0\n\
             CONFIG proxy.config.http.background_fill_completed_threshold FLOAT 0.0\n\
             CONFIG proxy.config.http.transaction_no_activity_timeout_out INT 300\n"
        );
        let allowed =
            "ip_allow:\n  - apply: in\n    ip_addrs: 127.0.0.1\n    action: allow\n    methods: ALL\n";
        fs::write(root.join("etc/records.config"), settings)?;
        fs::write(root.join("etc/ip_allow.yaml"), allowed)?;
        fs::write(root.join("etc/remap.config"), format!("map / http://127.0.0.1:{origin}/\n"))?;
        fs::write(root.join("etc/storage.config"), format!("{at}/stored 1G\n"))?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "traffic_server");
        command.arg(format!("--run-root={at}"));
        Ok(command)
    }
}

/// Enough for the connections of the generator, each with a request in hand.
const THREADS: u32 = 128;
