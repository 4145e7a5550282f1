//! Before a run: does the target answer at all, and has this process what the run needs? One clear sentence
//! now is worth more than a minute of refused connects.

use crate::plan::{Plan, TlsPlan};
use crate::quantity::show_duration;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use thiserror::Error;
use tidegate_io::connect::Address;
use tidegate_io::socket::Received;
use tidegate_tls::{Agreed, ClientSession, ClientSessionError, ServerName};
use tidegate_wire::h2::{Connection, Limits, Section};

/// Why a run is not begun.
#[derive(Debug, Error)]
pub enum PreflightError {
    /// The target is at fault.
    #[error("{place} {reason}")]
    Unreachable {
        /// As the URL names it, with the address of the resolver where that says more.
        place: String,
        /// What the system said, as a sentence's end.
        reason: String,
    },
    /// The target speaks no HTTP/2, which was wanted.
    #[error(
        "{authority} does not speak HTTP/2{way}: {reason}; leave --h2 (of a scenario `client h2`) away to measure HTTP/1.1"
    )]
    NoHttp2 {
        /// As the URL names it.
        authority: String,
        /// With TLS or without.
        way: &'static str,
        /// What it did, as a sentence's end.
        reason: String,
    },
    /// The target cannot be spoken to over TLS.
    #[error("{authority}: {fault}{help}")]
    Tls {
        /// As the URL names it.
        authority: String,
        /// What is wrong.
        fault: ClientSessionError,
        /// What to do.
        help: &'static str,
    },
}

/// Descriptors that a process needs beside its connections.
const SPARE_DESCRIPTORS: u64 = 128;

/// Connections from one address that its ports surely suffice for.
const PER_SOURCE: u32 = 20_000;

/// Opens and closes one connection to each server. What the last one has agreed upon, where it speaks TLS.
///
/// # Errors
/// For the first that cannot be reached, or not spoken to.
pub fn reach(plan: &Plan) -> Result<Option<Agreed>, PreflightError> {
    let mut agreed = None;
    for (address, server) in plan.mix.first_addresses() {
        let wait = Duration::from_secs(5).min(plan.timeout);
        let result = match address {
            Address::Tcp(address) => TcpStream::connect_timeout(address, wait).and_then(|stream| {
                stream.set_read_timeout(Some(wait))?;
                Ok(Box::new(stream) as Box<dyn Duplex>)
            }),
            Address::Unix(path) => UnixStream::connect(path).and_then(|stream| {
                stream.set_read_timeout(Some(wait))?;
                Ok(Box::new(stream) as Box<dyn Duplex>)
            }),
        };
        let stream = result.map_err(|error| PreflightError::Unreachable {
            place: place(&server.authority, &address.to_string()),
            reason: reason(&error),
        })?;
        if let (Some(name), Some(tls)) = (&server.tls_name, &plan.tls) {
            let chosen;
            (agreed, chosen) = shake(stream, name, tls).map_err(|fault| PreflightError::Tls {
                authority: server.authority.clone(),
                help: help(&fault),
                fault: told(fault, wait),
            })?;
            if plan.streams.is_some() && chosen.as_deref() != Some(b"h2") {
                let chosen = chosen.map_or("nothing".to_owned(), |name| name.escape_ascii().to_string());
                return Err(PreflightError::NoHttp2 {
                    authority: server.authority.clone(),
                    way: " over TLS",
                    reason: format!("by ALPN it chooses {chosen}"),
                });
            }
        } else if plan.streams.is_some() {
            greet(stream).map_err(|reason| PreflightError::NoHttp2 {
                authority: server.authority.clone(),
                way: " without TLS",
                reason,
            })?;
        }
    }
    Ok(agreed)
}

/// What to do about a handshake that failed.
fn help(fault: &ClientSessionError) -> &'static str {
    match fault {
        ClientSessionError::Untrusted(_) => "; name whom to trust with --roots FILE, or use --insecure",
        ClientSessionError::NotTls => "; use http://",
        ClientSessionError::Left | ClientSessionError::Socket(_) => {
            "; is there TLS on this port? With http:// none is spoken"
        }
        _ => "",
    }
}

/// A fault in words that name no system call.
fn told(fault: ClientSessionError, wait: Duration) -> ClientSessionError {
    let sentence = match &fault {
        ClientSessionError::Socket(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("it has not answered to the beginning of TLS within {}", show_duration(wait))
            }
            io::ErrorKind::ConnectionReset => "it reset the connection at the beginning of TLS".to_owned(),
            _ => return fault,
        },
        _ => return fault,
    };
    ClientSessionError::Socket(io::Error::other(sentence))
}

trait Duplex: Read + Write {}
impl<T: Read + Write> Duplex for T {}

/// Begins HTTP/2 without TLS (RFC 9113 section 3.3), and waits for the server's first frame.
fn greet(mut stream: Box<dyn Duplex>) -> Result<(), String> {
    let mut out = Vec::new();
    let mut wire = Connection::client(Limits::default(), &mut out);
    stream.write_all(&out).map_err(|error| error.to_string())?;
    let (mut received, mut section, mut buffer) = (Vec::new(), Section::new(), [0; 4096]);
    loop {
        let count = match stream.read(&mut buffer) {
            Ok(0) => return Err("it closes the connection".to_owned()),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err("it does not answer to the beginning of it".to_owned());
            }
            Err(error) => return Err(error.to_string()),
        };
        received.extend_from_slice(buffer.get(..count).unwrap_or_default());
        match wire.read(&received, 0, &mut section, &mut out) {
            Ok(read) if read.consumed > 0 => return Ok(()),
            Ok(_) => {}
            Err(_) if received.starts_with(b"HTTP/1.") => return Err("it answers in HTTP/1".to_owned()),
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn shake(
    mut stream: Box<dyn Duplex>,
    name: &ServerName<'static>,
    tls: &TlsPlan,
) -> Result<(Option<Agreed>, Option<Vec<u8>>), ClientSessionError> {
    let mut session = ClientSession::new(&tls.fresh, name.clone())?;
    loop {
        session.advance(|bytes| stream.write(bytes))?;
        if !session.is_handshaking() {
            let _ = session.finish_sending(|bytes| stream.write(bytes)); // it need not be heard
            return Ok((session.agreed(), session.protocol().map(<[u8]>::to_vec)));
        }
        let received = session.receive(&mut [], |buffer| match stream.read(buffer)? {
            0 => Ok(Received::End),
            count => Ok(Received::Bytes { count, drained: true }),
        });
        if received.is_err() {
            let _ = session.flush(|bytes| stream.write(bytes)); // the alert says why
        }
        received?;
    }
}

/// Where a server is: its name, and the address that the name led to. Of a name that is the address itself the address alone.
fn place(authority: &str, address: &str) -> String {
    let port = address.strip_prefix(authority);
    if port.is_some_and(|port| port.is_empty() || port.starts_with(':')) {
        return address.to_owned();
    }
    format!("{authority} ({address})")
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "refuses connections: nothing listens there".to_owned(),
        io::ErrorKind::TimedOut => "does not answer a connect".to_owned(),
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        _ => format!("cannot be reached: {error}"),
    }
}

/// Raises the limit on descriptors to what this process may have, and says what that is.
pub fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // An unlimited maximum is more than anybody needs; a failure leaves what was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Whether connections can go from the addresses of a plan.
///
/// # Errors
/// A sentence: this machine does not have one of them, or a server has none of its kind.
pub fn check_sources(plan: &Plan) -> Result<(), String> {
    let servers = plan.mix.addresses().filter_map(|address| match address {
        Address::Tcp(address) => Some(address),
        Address::Unix(_) => None,
    });
    let servers: Vec<&SocketAddr> = servers.collect();
    for source in &plan.sources {
        let kind = |is_ipv4| if is_ipv4 { "IPv4" } else { "IPv6" };
        if let Some(other) = servers.iter().find(|server| server.is_ipv4() != source.is_ipv4()) {
            return Err(format!(
                "--source {source}: no connection goes from an address of {} to {other}; name one of {}",
                kind(source.is_ipv4()),
                kind(other.is_ipv4())
            ));
        }
        if let Err(error) = UdpSocket::bind((*source, 0)) {
            return Err(match error.kind() {
                io::ErrorKind::AddrNotAvailable => {
                    format!(
                        "--source {source}: this machine does not have that address; `ip address` shows those that it has"
                    )
                }
                _ => format!("--source {source}: {error}"),
            });
        }
    }
    Ok(())
}

/// How many processes so many connections take, where each may hold `descriptors`.
pub fn processes_for(connections: u32, descriptors: u64) -> u32 {
    let each = descriptors.saturating_sub(SPARE_DESCRIPTORS).max(1);
    u32::try_from(u64::from(connections).div_ceil(each)).unwrap_or(u32::MAX).max(1)
}

/// Local addresses for so many connections, where the loopback interface offers them for nothing: one for
/// every 20,000. Empty where one address does.
pub fn loopback_sources(connections: u32) -> Vec<IpAddr> {
    let count = connections.div_ceil(PER_SOURCE);
    if count < 2 {
        return Vec::new();
    }
    (1..=count.min(250)).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last as u8))).collect()
}

/// Threads for so many connections: as many as processors, but none with nearly nothing to do.
pub fn threads_for(connections: u32) -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    processors.min(connections.div_ceil(8)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_said_once() {
        let table = [
            ("127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1:8080"),
            // The port of the scheme.
            ("127.0.0.1", "127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]", "[::1]:443", "[::1]:443"),
            ("127.0.0.1", "127.0.0.11:80", "127.0.0.1 (127.0.0.11:80)"),
            ("shop.test:8080", "10.0.0.7:8080", "shop.test:8080 (10.0.0.7:8080)"),
            ("localhost", "/run/shop.sock", "localhost (/run/shop.sock)"),
        ];
        for (authority, address, expected) in table {
            assert_eq!(place(authority, address), expected);
        }
    }

    #[test]
    fn connections_go_from_addresses_that_there_are() {
        let plan = |url: &str, source: &str| {
            let url = crate::target::Url::parse(url).unwrap();
            let mix =
                crate::request::Mix::build(&[crate::request::Description::get(url)], true, None).unwrap();
            Plan { sources: vec![source.parse().unwrap()], ..Plan::new(mix) }
        };
        let (here, socket) = ("http://127.0.0.1:1/", "http://unix:/run/a.sock:/");
        let table = [
            (here, "127.0.0.9", None),
            // TEST-NET-3 (RFC 5737), which no machine has.
            (here, "203.0.113.9", Some("this machine does not have that address")),
            (here, "::1", Some("from an address of IPv6 to 127.0.0.1:1; name one of IPv4")),
            ("http://[::1]:1/", "127.0.0.1", Some("from an address of IPv4 to [::1]:1; name one of IPv6")),
            (socket, "127.0.0.1", None),
        ];
        for (url, source, expected) in table {
            let told = check_sources(&plan(url, source)).err();
            let is_right = match (&told, expected) {
                (Some(told), Some(expected)) => told.contains(expected),
                (told, expected) => told.is_none() && expected.is_none(),
            };
            assert!(is_right, "{url} from {source}: {told:?}");
        }
    }

    #[test]
    fn many_connections_take_several_processes_and_addresses() {
        assert_eq!([1, 19_872, 19_873, 60_000].map(|count| processes_for(count, 20_000)), [1, 1, 2, 4]);
        assert_eq!(loopback_sources(20_000), Vec::<IpAddr>::new());
        assert_eq!(loopback_sources(30_000).len(), 2);
        assert_eq!(processes_for(u32::MAX, 0), u32::MAX);
    }
}
