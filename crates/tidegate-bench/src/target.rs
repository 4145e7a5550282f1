//! Where the load goes: a URL, its host resolved once before the run. Resolving blocks; it is done before any
//! clock starts.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use thiserror::Error;
use tidegate_io::connect::Address;

/// The parts of a URL that a request needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Url {
    /// What `Host` says: `host` or `host:port`.
    pub authority: String,
    /// Without brackets.
    pub host: String,
    /// The named port, else that of the scheme.
    pub port: u16,
    /// Path and query, at least `/`.
    pub request_target: String,
    /// Whether TLS is spoken.
    pub is_tls: bool,
    /// The path of a unix socket in place of host and port (`http://unix:/run/app.sock:/path`).
    pub socket: Option<PathBuf>,
}

/// Why a URL cannot be a target. What is at fault is the argument or the file it is in.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TargetError {
    /// Some other scheme.
    #[error("{0}: not an http URL; write http://host/path or https://host/path")]
    Scheme(String),
    /// Those of a user: they belong into a field. The rest of it, without them.
    #[error(
        "{0}: a name and a password do not go into a URL; send them as a field, `Authorization: Basic …`"
    )]
    Credentials(String),
    /// No host, or one with bytes that no host has.
    #[error("{0}: the URL names no valid host")]
    Host(String),
    /// Not 1 to 65535.
    #[error("{0}: the port is not a number from 1 to 65535")]
    Port(String),
    /// A byte that must be percent-encoded.
    #[error("{0}: a space, `\"`, `<`, `>`, control or non-ASCII byte must be percent-encoded")]
    Byte(String),
    /// The resolver knows no such name.
    #[error("the host {host} cannot be resolved: {reason}")]
    Unknown {
        /// The name.
        host: String,
        /// What the resolver said.
        reason: String,
    },
}

impl Url {
    /// Reads an absolute URL. Without a scheme it is `http`.
    ///
    /// # Errors
    /// The scheme is neither `http` nor `https`, there are a name and a password, there is no valid host or no path of a socket, the port is
    /// not from 1 to 65535, or a byte must be percent-encoded.
    pub fn parse(text: &str) -> Result<Url, TargetError> {
        let (is_tls, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err(TargetError::Scheme(text.to_owned())),
            None => (false, text),
        };
        if !rest.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'<' | b'>')) {
            return Err(TargetError::Byte(text.to_owned()));
        }
        let rest = rest.split('#').next().unwrap_or_default();
        if let Some(rest) = rest.strip_prefix("unix:") {
            let (path, target) = rest.split_once(':').unwrap_or((rest, "/"));
            if path.is_empty() {
                return Err(TargetError::Host(text.to_owned()));
            }
            let request_target = if target.is_empty() { "/".to_owned() } else { target.to_owned() };
            return Ok(Url {
                authority: "localhost".to_owned(),
                host: "localhost".to_owned(),
                port: 80,
                request_target,
                is_tls,
                socket: Some(PathBuf::from(path)),
            });
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if let Some((_, authority)) = authority.rsplit_once('@') {
            let scheme = if is_tls { "https" } else { "http" };
            return Err(TargetError::Credentials(format!("{scheme}://{authority}")));
        }
        let (host, port) = split_authority(authority);
        let is_host = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'%');
        if host.is_empty() || !host.bytes().all(is_host) {
            return Err(TargetError::Host(text.to_owned()));
        }
        let port = match port {
            None if is_tls => 443,
            None => 80,
            Some(port) => match port.parse() {
                Ok(port) if port != 0 => port,
                _ => return Err(TargetError::Port(text.to_owned())),
            },
        };
        let request_target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let (authority, host) = (authority.to_owned(), host.to_owned());
        Ok(Url { authority, host, port, request_target, is_tls, socket: None })
    }

    /// All addresses of the host.
    ///
    /// # Errors
    /// [`TargetError::Unknown`].
    pub fn resolve(&self) -> Result<Vec<Address>, TargetError> {
        if let Some(path) = &self.socket {
            return Ok(vec![Address::Unix(path.as_path().into())]);
        }
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![Address::Tcp(SocketAddr::new(ip, self.port))]);
        }
        let unknown = |reason: String| TargetError::Unknown { host: self.host.clone(), reason };
        let found = (self.host.as_str(), self.port).to_socket_addrs().map_err(|error| {
            let text = error.to_string();
            let reason = text.rsplit(": ").next().unwrap_or_default();
            unknown(reason.to_owned())
        })?;
        let addresses: Vec<Address> = found.map(Address::Tcp).collect();
        if addresses.is_empty() { Err(unknown("it has no address".to_owned())) } else { Ok(addresses) }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        match &self.socket {
            Some(path) => write!(f, "{scheme}://unix:{}:{}", path.display(), self.request_target),
            None => write!(f, "{scheme}://{}{}", self.authority, self.request_target),
        }
    }
}

/// Host without brackets, and what follows its colon.
fn split_authority(authority: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (host, rest.strip_prefix(':').or(if rest.is_empty() { None } else { Some(rest) }));
    }
    match authority.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let table = [
            ("http://example.com", "example.com", 80, "/", "example.com"),
            ("http://example.com:8080/a?b=c#d", "example.com", 8080, "/a?b=c", "example.com:8080"),
            ("example.com/x", "example.com", 80, "/x", "example.com"),
            ("http://example.com?q", "example.com", 80, "/?q", "example.com"),
            ("http://[::1]:81/", "::1", 81, "/", "[::1]:81"),
            ("http://[::1]/", "::1", 80, "/", "[::1]"),
            ("https://example.com/", "example.com", 443, "/", "example.com"),
            ("https://example.com:8443/a", "example.com", 8443, "/a", "example.com:8443"),
        ];
        for (text, host, port, target, authority) in table {
            let url = Url::parse(text).unwrap();
            assert_eq!(url.is_tls, text.starts_with("https"));
            assert_eq!(
                (url.host.as_str(), url.port, url.request_target.as_str(), url.authority.as_str()),
                (host, port, target, authority),
                "{text}"
            );
        }
        let unix = Url::parse("http://unix:/run/a.sock:/b").unwrap();
        assert_eq!((unix.socket, unix.request_target.as_str()), (Some("/run/a.sock".into()), "/b"));
    }

    #[test]
    fn bad_urls_say_why() {
        let table = [
            ("ftp://a/", "not an http URL"),
            ("http:///x", "no valid host"),
            ("http://a:0/", "port"),
            ("http://a:99999/", "port"),
            ("http://a/ b", "percent-encoded"),
            ("http://a<b/", "percent-encoded"),
            ("http://a/?x=<b", "`<`, `>`, control or non-ASCII byte must be percent-encoded"),
            ("http://a!b/", "no valid host"),
            ("http://user:secret@a/b", "http://a: a name and a password do not go into a URL"),
            ("", "no valid host"),
        ];
        for (text, part) in table {
            let message = Url::parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn an_address_needs_no_resolver() {
        let url = Url::parse("http://127.0.0.2:81/").unwrap();
        assert_eq!(url.resolve().unwrap(), [Address::Tcp("127.0.0.2:81".parse().unwrap())]);
    }
}
