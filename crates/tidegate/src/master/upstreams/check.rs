//! One check of one member: does it accept, does it answer.

use super::secured::Conversation;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_config::settings::upstream::{Check, CheckKind, MemberAddress};
use tidegate_tls::{Connector, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// Where a member can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Any of these; none while its name is not known.
    Tcp(Vec<SocketAddr>),
    /// A unix socket.
    Unix(PathBuf),
}

impl Place {
    /// What the settings alone tell.
    pub fn of(address: &MemberAddress) -> Place {
        match address {
            MemberAddress::Tcp(address) => Place::Tcp(vec![*address]),
            MemberAddress::Unix(path) => Place::Unix(path.clone()),
            MemberAddress::Name { .. } => Place::Tcp(Vec::new()),
        }
    }
}

/// How members of a group are reached with TLS.
#[derive(Clone)]
pub struct Way {
    /// Whom it trusts, and what it shows.
    pub connector: Arc<Connector>,
    /// What the members are called.
    pub name: ServerName<'static>,
    /// HTTP/2 is asked for.
    pub speaks_http2: bool,
}

impl Way {
    /// Whether it would come to the same.
    pub fn is_same_as(&self, other: &Way) -> bool {
        Arc::ptr_eq(&self.connector, &other.connector)
            && (&self.name, self.speaks_http2) == (&other.name, other.speaks_http2)
    }
}

/// Asks once; an error says what was wrong. `name` is the `Host` where the settings name none, `way` is there where
/// TLS is spoken.
pub async fn once(check: &Check, place: &Place, way: Option<&Way>, name: &str) -> Result<(), String> {
    match timeout(check.timeout, ask(check, place, way, name)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer to its check within {:?}", check.timeout)),
    }
}

async fn ask(check: &Check, place: &Place, way: Option<&Way>, name: &str) -> Result<(), String> {
    let refused = |error: std::io::Error| format!("it accepts no connection: {error}");
    match place {
        Place::Unix(path) => {
            converse(check, UnixStream::connect(path).await.map_err(refused)?, way, name).await
        }
        Place::Tcp(addresses) if addresses.is_empty() => Err("its name leads nowhere".to_owned()),
        Place::Tcp(addresses) => {
            // It is well when one of its addresses is: requests find out which.
            let mut last = String::new();
            for address in addresses {
                let outcome = match TcpStream::connect(address).await {
                    Ok(stream) => converse(check, stream, way, name).await,
                    Err(error) => Err(refused(error)),
                };
                match outcome {
                    Ok(()) => return Ok(()),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

async fn converse(
    check: &Check,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    way: Option<&Way>,
    name: &str,
) -> Result<(), String> {
    let mut stream = match way {
        None => Conversation::plain(stream),
        Some(way) => Conversation::begin(stream, way).await?,
    };
    let lost = |error: std::io::Error| format!("its connection was lost: {error}");
    match &check.kind {
        CheckKind::Tcp => Ok(()),
        CheckKind::Http { path, host } => {
            let host = if host.is_empty() { name } else { host };
            let called = way.map(|way| way.name.to_str());
            let host = match &called {
                Some(called) if std::ptr::eq(host, name) => called,
                // A unix socket has no name that a `Host` may hold.
                _ if host.starts_with("unix:") => "localhost",
                _ => host,
            };
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tidegate-check\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.map_err(lost)?;
            let mut line = [0; 13]; // `HTTP/1.1 200 `
            stream.read_exact(&mut line[..12]).await.map_err(lost)?;
            match status(&line[..12]) {
                Some(200..=399) => Ok(()),
                Some(status) => Err(format!("it answers its check with {status}")),
                None => Err("what it answers its check with is not HTTP".to_owned()),
            }
        }
        CheckKind::FastCgi => {
            // FCGI_GET_VALUES, no request, 17 bytes: the name FCGI_MAX_CONNS, no value (FastCGI 1.0 section 4.1).
            let mut record = vec![1, 9, 0, 0, 0, 16, 0, 0, 14, 0];
            record.extend_from_slice(b"FCGI_MAX_CONNS");
            stream.write_all(&record).await.map_err(lost)?;
            let mut head = [0; 8];
            stream.read_exact(&mut head).await.map_err(lost)?;
            match head {
                [1, 10, 0, 0, ..] => Ok(()), // FCGI_GET_VALUES_RESULT
                _ => Err("what it answers its check with is not FastCGI".to_owned()),
            }
        }
    }
}

/// The status of a status line.
fn status(line: &[u8]) -> Option<u16> {
    let digits = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
