//! The settings of the servers that the TLS bench compares, each as its users would write them for this work:
//! one worker, TLS 1.2 and 1.3, one ECDSA certificate, session tickets, files from the page cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::host;
use super::tls::Peer;
use crate::workspace;

/// The settings of one server.
pub struct Files<'a> {
    /// Where they go.
    pub folder: PathBuf,
    pub port: u16,
    /// What is served.
    pub documents: &'a Path,
    /// `site.pem` and `site.key` are there.
    pub certificates: &'a Path,
    /// Connections that it must be able to hold.
    pub connections: u32,
}

impl Files<'_> {
    /// The command of a server, its settings written.
    pub fn command(&self, peer: Peer) -> Result<Command> {
        match peer {
            Peer::Tidegate => self.tidegate(),
            Peer::Nginx => self.nginx(),
            Peer::H2o => self.h2o(),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
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
        let program = workspace::target_directory().join("release/tidegate");
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
                 server {{ listen 127.0.0.1:{port} ssl backlog=4096; root {documents}; }}\n}}\n",
                descriptors = host::most_descriptors(),
                connections = self.connections + self.connections / 8,
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "nginx");
        command.arg("-c").arg(settings).arg("-e").arg(self.folder.join("error.log"));
        Ok(command)
    }

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
                 listen:\n  host: 127.0.0.1\n  port: {port}\n  ssl:\n    minimum-version: TLSv1.2\n    \
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
