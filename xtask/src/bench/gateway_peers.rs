//! The settings of the servers that the gateway bench compares, each as its users would write them for this
//! work: one worker, connections to the application kept, buffers that hold an answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::gateway::{Peer, Workload};
use super::host;
use crate::workspace;

/// The settings of one server.
pub struct Files<'a> {
    /// Where they go.
    pub folder: PathBuf,
    pub port: u16,
    pub workload: Workload,
    pub backend_port: u16,
    pub socket: &'a Path,
}

impl Files<'_> {
    /// The command of a server, its settings written.
    pub fn command(&self, peer: Peer) -> Result<Command> {
        match peer {
            Peer::Tidegate => self.tidegate(),
            Peer::Nginx => self.nginx(),
            Peer::Lighttpd => self.lighttpd(),
            Peer::Haproxy => self.haproxy(),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn tidegate(&self) -> Result<Command> {
        let Self { port, backend_port, socket, folder, .. } = self;
        let answer = match self.workload {
            Workload::FastCgi => format!("fastcgi \"unix:{}\" {{ mount \"/\"; keep 128 }}", socket.display()),
            _ => format!("proxy \"http://127.0.0.1:{backend_port}\" {{ keep 128 }}"),
        };
        let settings = self.write(
            "tidegate.kdl",
            &format!("workers 1\nlisten \"127.0.0.1:{port}\"\naccess-log off\nsite {{ {answer} }}\n"),
        )?;
        let program = workspace::target_directory().join("release/tidegate");
        let mut command = host::pinned(host::SERVER_PROCESSOR, &program.to_string_lossy());
        command.arg("serve").arg("--config").arg(settings).arg("--control").arg(folder.join("control"));
        Ok(command)
    }

    fn nginx(&self) -> Result<Command> {
        let Self { port, backend_port, socket, .. } = self;
        let folder = self.folder.display();
        let (upstream, location) = match self.workload {
            Workload::FastCgi => (
                format!("server unix:{};", socket.display()),
                "fastcgi_pass app; fastcgi_keep_conn on;\n\
                 fastcgi_param REQUEST_METHOD $request_method; fastcgi_param QUERY_STRING $query_string;\n\
                 fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length;\n\
                 fastcgi_param SCRIPT_NAME $fastcgi_script_name; fastcgi_param REQUEST_URI $request_uri;\n\
                 fastcgi_param DOCUMENT_URI $document_uri; fastcgi_param DOCUMENT_ROOT $document_root;\n\
                 fastcgi_param SERVER_PROTOCOL $server_protocol; fastcgi_param REQUEST_SCHEME $scheme;\n\
                 fastcgi_param GATEWAY_INTERFACE CGI/1.1; fastcgi_param SERVER_SOFTWARE nginx/$nginx_version;\n\
                 fastcgi_param REMOTE_ADDR $remote_addr; fastcgi_param REMOTE_PORT $remote_port;\n\
                 fastcgi_param SERVER_ADDR $server_addr; fastcgi_param SERVER_PORT $server_port;\n\
                 fastcgi_param SERVER_NAME $server_name; fastcgi_param REDIRECT_STATUS 200;"
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
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {folder}/temporary;\n"))
            .concat();
        let settings = self.write(
            "nginx.conf",
            &format!(
                "daemon off;\n{user}\nworker_processes 1;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n\
                 events {{ worker_connections 4096; }}\nhttp {{\naccess_log off;\ntcp_nodelay on;\n\
                 keepalive_requests 1000000000;\n{temporary}\
                 upstream app {{ {upstream} keepalive 128; keepalive_requests 1000000000; }}\n\
                 server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ {location} }} }}\n}}\n"
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "nginx");
        command.arg("-c").arg(settings).arg("-e").arg(self.folder.join("error.log"));
        Ok(command)
    }

    fn lighttpd(&self) -> Result<Command> {
        let Self { port, backend_port, socket, .. } = self;
        let folder = self.folder.display();
        let answer = match self.workload {
            Workload::FastCgi => format!(
                "server.modules = (\"mod_fastcgi\")\nfastcgi.server = (\"/\" => ((\"socket\" => \"{}\", \
                 \"check-local\" => \"disable\")))\n",
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
                "{answer}server.document-root = \"{folder}\"\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\n\
                 server.errorlog = \"{folder}/error.log\"\nserver.max-keep-alive-requests = 65535\n\
                 server.max-connections = 1024\nserver.max-fds = 4096\nserver.listen-backlog = 4096\n"
            ),
        )?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, "lighttpd");
        command.arg("-D").arg("-f").arg(settings);
        Ok(command)
    }

    fn haproxy(&self) -> Result<Command> {
        let Self { port, backend_port, socket, .. } = self;
        let backend = match self.workload {
            Workload::FastCgi => format!(
                "fcgi-app app\n    docroot /\n    option keep-conn\nbackend app\n    use-fcgi-app app\n    \
                 http-reuse always\n    server app unix@{} proto fcgi pool-max-conn 128\n",
                socket.display()
            ),
            _ => format!(
                "backend app\n    http-reuse always\n    server app 127.0.0.1:{backend_port} pool-max-conn 128\n"
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
