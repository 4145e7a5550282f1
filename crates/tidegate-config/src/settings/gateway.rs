//! Applications behind the server: `fastcgi`, `scgi`, `proxy`.

use super::{CertificateFiles, Origin};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where an application is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Destination {
    /// A pool or a group of the settings, by its name.
    Named(String),
    /// An address and a port.
    Tcp(SocketAddr),
    /// A unix socket; absolute, at most 107 bytes.
    Unix(#[serde(with = "crate::path_encoding::path")] PathBuf),
}

/// What `fastcgi`, `scgi` and `proxy` have in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gateway {
    /// Where requests go.
    pub to: Destination,
    /// TLS with it; `None` speaks plainly.
    pub tls: Option<BackendTls>,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long the application may be silent.
    pub timeout: Duration,
    /// Idle connections that each worker keeps.
    pub keep: u32,
    /// How long one is kept.
    pub keep_timeout: Duration,
    /// Requests that the application gets at once, all workers together. Not for pools, which know it themselves.
    pub connections: Connections,
    /// Requests that wait for one of those.
    pub queue_length: u32,
    /// How long one waits.
    pub queue_age: Duration,
    /// Bytes of a response held for a client that is slower than the application.
    pub buffer: u64,
    /// Bytes of a request body that are collected before the application is bothered.
    pub request_buffer: u64,
    /// Folders whose files the application may have sent.
    pub sendfile: Vec<SendfileRoot>,
    /// Fields that only proxies send and that any client may send here, in small letters.
    pub passed_fields: Vec<String>,
    /// The application gets a path with `%2F`, as it was sent.
    pub passes_encoded_slashes: bool,
}

/// How many requests an application gets at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Connections {
    /// As many as are usual, until their answers begin.
    Auto,
    /// So many, until their answers have ended.
    Most(u32),
    /// As many as come.
    Unlimited,
}

/// TLS with an application.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackendTls {
    /// What the server is called: asked for, and verified.
    pub name: String,
    /// Who is trusted.
    pub trust: BackendTrust,
    /// What is shown where the server asks who we are.
    pub identity: Option<CertificateFiles>,
    /// What is spoken behind it.
    pub protocol: BackendProtocol,
    /// Where it was written.
    pub origin: Origin,
}

/// What is spoken behind TLS with a backend, which ALPN asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackendProtocol {
    /// HTTP/1.1
    Http1,
    /// HTTP/2
    Http2,
    /// LDAP, which has no name in ALPN that servers know.
    Ldap,
}

/// Whom to believe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackendTrust {
    /// Whom the system trusts.
    System,
    /// Those whom the certificates in this PEM file have signed; absolute.
    Roots(#[serde(with = "crate::path_encoding::path")] PathBuf),
    /// Everybody.
    Anybody,
}

/// A folder whose files an application may name in `X-Sendfile` or `X-Accel-Redirect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendfileRoot {
    /// Absolute.
    #[serde(with = "crate::path_encoding::path")]
    pub root: PathBuf,
    /// The path of the site that stands for it in `X-Accel-Redirect`; ends with a slash.
    pub prefix: Option<String>,
}

/// `fastcgi` or `scgi`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Application {
    /// What is common to all.
    pub gateway: Gateway,
    /// `DOCUMENT_ROOT`, and where scripts are; empty where there is none.
    #[serde(with = "crate::path_encoding::path")]
    pub root: PathBuf,
    /// How the path of a request leads to a script.
    pub script: Script,
    /// Variables set in addition, in order; an empty value leaves one out.
    pub params: Vec<(String, String)>,
    /// Which symbolic links may lead to a script.
    pub symlinks: super::Symlinks,
    /// Whether scripts in hidden folders run.
    pub serves_hidden: bool,
}

/// How the path of a request leads to a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Script {
    /// A file below the root whose name ends in one of these; what follows is `PATH_INFO`.
    Suffixes(Vec<String>),
    /// The first part of the path that is a file below the root; what follows is `PATH_INFO`.
    FirstFile {
        /// Cut off the front of the path before the look-up, from `alias`; may be empty.
        strip_prefix: String,
    },
    /// One file for all paths.
    File(#[serde(with = "crate::path_encoding::path")] PathBuf),
    /// No file: the application is mounted at this prefix, and what follows is `PATH_INFO`. No slash at its
    /// end; empty for the whole site.
    Mounted(String),
}

/// `proxy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proxy {
    /// What is common to all.
    pub gateway: Gateway,
    /// In front of every path, from the address; no slash at its end, most often empty.
    pub base: String,
    /// HTTP/2 is spoken, in place of HTTP/1.1.
    pub speaks_http2: bool,
    /// `Host` for the backend; `None` passes on the client's.
    pub host: Option<String>,
    /// Cut off the front of the path.
    pub strip_prefix: Option<String>,
    /// Fields set on every request, in order; an empty value takes one away.
    pub request_fields: Vec<(String, String)>,
    /// Those that take the place of no other.
    pub more_request_fields: Vec<super::MoreField>,
    /// Whether `Location` of its answers is made to lead back here.
    pub rewrites_redirects: bool,
}

/// Where content of requests goes that has to be complete before it is passed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spill {
    /// Absolute.
    #[serde(with = "crate::path_encoding::path")]
    pub folder: PathBuf,
    /// Most bytes at once, all workers together.
    pub size: u64,
}
