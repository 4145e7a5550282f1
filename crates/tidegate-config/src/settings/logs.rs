//! Where logs go, and what their lines look like.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// An access log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AccessLog {
    /// Where the lines go.
    pub target: LogTarget,
    /// What a line looks like.
    pub format: AccessFormat,
    /// Only requests that were answered with an error: 400 and above.
    pub only_errors: bool,
}

/// Where the requests of a site are logged. Not an `Option` of an `Option`: in JSON the two nothings are one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SiteLog {
    /// Where the server's are.
    #[default]
    Inherited,
    /// Nowhere.
    Off,
    /// In a log of its own.
    Own(AccessLog),
}

impl SiteLog {
    /// A log that takes the place of the server's.
    pub fn own(&self) -> Option<&AccessLog> {
        match self {
            SiteLog::Inherited | SiteLog::Off => None,
            SiteLog::Own(log) => Some(log),
        }
    }

    /// The log in force, where this is the server's.
    pub fn within<'s>(&'s self, of_server: Option<&'s AccessLog>) -> Option<&'s AccessLog> {
        match self {
            SiteLog::Inherited => of_server,
            SiteLog::Off => None,
            SiteLog::Own(log) => Some(log),
        }
    }
}

/// Where a log goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogTarget {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file; absolute, its folder exists.
    File(#[serde(with = "crate::path_encoding::path")] PathBuf),
    /// A daemon that collects the messages of many programs.
    Collector(Collector),
}

/// How a log gets to a daemon that collects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Collector {
    /// Where it listens, and what it speaks.
    pub at: CollectorAddress,
    /// What kind of program speaks, from 0 to 23 (RFC 5424 section 6.2.1).
    pub facility: u8,
    /// What the program is called.
    pub tag: String,
}

/// Where a daemon that collects listens, and what it speaks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CollectorAddress {
    /// The journal of systemd: entries with fields.
    Journal(#[serde(with = "crate::path_encoding::path")] PathBuf),
    /// A syslog daemon of this machine. What `syslog(3)` writes, or RFC 5424.
    Unix {
        /// Of its socket.
        #[serde(with = "crate::path_encoding::path")]
        path: PathBuf,
        /// The daemon reads RFC 5424.
        is_rfc5424: bool,
    },
    /// RFC 5424 over UDP (RFC 5426).
    Udp(SocketAddr),
    /// RFC 5424 over TCP, with a count of octets in front of each message (RFC 6587).
    Tcp(SocketAddr),
}

impl CollectorAddress {
    /// Whether its messages have fields beside their text.
    pub fn takes_fields(&self) -> bool {
        matches!(self, CollectorAddress::Journal(_))
    }
}

impl AccessLog {
    /// Whether its lines tell of what came of a request beside its head: its id, its site and route, who was asked.
    pub fn shows_trace(&self) -> bool {
        let takes_fields = matches!(&self.target, LogTarget::Collector(to) if to.at.takes_fields());
        takes_fields || self.format.shows_trace()
    }
}

/// What an access line looks like.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AccessFormat {
    /// The common log format.
    Common,
    /// The common log format with referrer and user agent.
    Combined,
    /// One JSON object.
    Json,
    /// These, one after the other.
    Pattern(Arc<[LogPart]>),
}

/// A part of an access line. What is not there is `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogPart {
    /// As it stands.
    Text(String),
    /// `{client}`: the address of the client.
    Client,
    /// `{client.name}`: what the client is called, as far as that is known when the line is written; else its address.
    ClientName,
    /// `{client-port}`
    ClientPort,
    /// `{user}`: who has logged in.
    User,
    /// `{scheme}`: `http` or `https`.
    Scheme,
    /// `{tls-version}`: of TLS, such as `TLSv1.3`; nothing on a plain connection.
    TlsVersion,
    /// `{tls-cipher}`: the cipher suite of TLS, by its name.
    TlsCipher,
    /// `{host}`: the host asked for, as sent.
    Host,
    /// `{method}`
    Method,
    /// `{target}`: the request target as sent.
    Target,
    /// `{path}`: the target before its `?`.
    Path,
    /// `{query}`: the target behind its `?`.
    Query,
    /// `{protocol}`: `HTTP/1.1`.
    Protocol,
    /// `{status}`
    Status,
    /// `{bytes}`: of the response, without its head.
    Bytes,
    /// `{bytes-in}`: of the request, its head included.
    BytesIn,
    /// `{bytes-out}`: of the response, its head included.
    BytesOut,
    /// `{duration-us}`: from the complete head to the last byte handed to the kernel.
    DurationMicroseconds,
    /// `{duration-ms}`: the same in milliseconds, with three digits behind the point.
    DurationMilliseconds,
    /// `{duration}`: the same in seconds, with six digits behind the point.
    DurationSeconds,
    /// `{time}`: `10/Oct/2000:13:55:36 +0000`.
    Time,
    /// `{time-iso}`: `2000-10-10T13:55:36Z`.
    TimeIso,
    /// `{time-unix}`: seconds since 1970.
    TimeUnix,
    /// `{request-id}`
    RequestId,
    /// `{trace-id}`
    TraceId,
    /// `{site}`: the first name of the site that has the request.
    Site,
    /// `{route}`: the pattern of the route that it came to first.
    Route,
    /// `{upstream}`: the members that were asked, in order.
    Upstream,
    /// `{upstream-status}`: what each has answered.
    UpstreamStatus,
    /// `{upstream-connect}` and the like: how long each took to get there.
    UpstreamTime(UpstreamStage, TimeUnit),
    /// `{request.NAME}`: the first field of this name.
    Request(String),
    /// `{response.NAME}`: the first field of this name, as far as a handler or the settings set it.
    Response(String),
}

/// How far a request has come at a member; times count from its being sent there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UpstreamStage {
    /// There is a connection.
    Connected,
    /// The head of the answer has come.
    FirstByte,
    /// All of it has.
    Complete,
}

/// What a time in a line is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TimeUnit {
    /// With six digits behind the point.
    Seconds,
    /// With three.
    Milliseconds,
}

impl AccessFormat {
    fn shows_trace(&self) -> bool {
        let is_traced = |part: &LogPart| {
            use LogPart::{RequestId, Route, Site, TraceId, Upstream, UpstreamStatus, UpstreamTime};
            matches!(part, RequestId | TraceId | Site | Route | Upstream | UpstreamStatus | UpstreamTime(..))
        };
        match self {
            AccessFormat::Common | AccessFormat::Combined => false,
            AccessFormat::Json => true,
            AccessFormat::Pattern(parts) => parts.iter().any(is_traced),
        }
    }
}

/// The log of the server's own messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ErrorLog {
    /// Where the lines go.
    pub target: LogTarget,
    /// The least important messages that are written.
    pub level: Level,
}

/// How important a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Level {
    /// Something is not served.
    Error,
    /// Something is served, but hardly as meant.
    Warn,
    /// What an operator wants to see: start, reload, stop.
    Info,
    /// What helps to find a fault.
    Debug,
}

impl Level {
    /// As settings name it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(name: &str) -> Result<Level, String> {
        let levels = [Level::Error, Level::Warn, Level::Info, Level::Debug];
        let known = levels.into_iter().find(|level| level.name() == name);
        known.ok_or_else(|| format!("{name:?} is no level: there are error, warn, info and debug"))
    }
}
