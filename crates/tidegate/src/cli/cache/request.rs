//! Requests to a listener of the running server on this machine, over HTTP/1.1 with a connection each, TLS where the URL says so.

use super::url;
use anyhow::{Context, Result, bail};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_io::socket::Received;
use tidegate_tls::{ClientSession, Connector, ConnectorOptions, Trust};

/// The longest head of a response, bytes.
const HEAD: usize = 64 << 10;
/// Bytes of one read.
const PIECE: usize = 64 << 10;
/// How a content in chunks without trailers ends (RFC 9112 section 7.1).
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Where a server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    address: SocketAddr,
    speaks_tls: bool,
}

impl Listener {
    /// Of a listener as the report on the server names it, `https://127.0.0.1:8443/`; `None` for a unix socket.
    pub fn of(name: &str) -> Option<Listener> {
        let (scheme, rest) = name.split_once("://")?;
        let address: SocketAddr = rest.trim_end_matches('/').parse().ok()?;
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        Some(Listener { address: SocketAddr::new(ip, address.port()), speaks_tls: scheme == "https" })
    }
}

/// What is needed to ask.
pub struct Asker {
    listeners: Vec<Listener>,
    to: Option<SocketAddr>,
    fields: Vec<String>,
    timeout: Duration,
    connector: Arc<Connector>,
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The status.
    pub status: u16,
    /// `Cache-Status`, its lines joined.
    pub cache_status: Option<String>,
    /// Bytes of the content as it was sent.
    pub bytes: u64,
    /// The content, where it was wanted.
    pub content: Vec<u8>,
}

impl Asker {
    /// `to` is asked for all URLs, where it is named.
    ///
    /// # Errors
    /// TLS cannot be spoken.
    pub fn new(
        listeners: Vec<Listener>,
        to: Option<SocketAddr>,
        fields: Vec<String>,
        timeout: Duration,
    ) -> Result<Asker> {
        // It is this machine that is asked, by whatever name: nobody stands between.
        let connector = Connector::new(&ConnectorOptions::new(Trust::Anybody))?;
        Ok(Asker { listeners, to, fields, timeout: timeout.max(Duration::from_millis(1)), connector })
    }

    /// Requests a URL, as `url::whole` gives it. All of the content is read, and kept where it has at most `wanted` bytes.
    ///
    /// # Errors
    /// There is no such listener, or no whole response comes in time.
    pub fn ask(&self, url: &str, wanted: u64) -> Result<Outcome> {
        let (scheme, host, target) = url::parts(url).context("it is no URL")?;
        let to = self.listener(scheme, host)?;
        let mut head = format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tidegate-warm\r\nConnection: close\r\n"
        );
        for field in &self.fields {
            head += &format!("{field}\r\n");
        }
        head += "\r\n";
        let deadline = Instant::now() + self.timeout;
        let stream = TcpStream::connect_timeout(&to, self.timeout)
            .with_context(|| format!("{to} cannot be reached"))?;
        stream.set_nodelay(true)?;
        let mut connection = Connection { stream, session: None, deadline };
        if scheme == "https" {
            let (name, _) = name_and_port(host);
            connection.secure(&self.connector, name)?;
        }
        connection.send(head.as_bytes())?;
        receive(|buffer| connection.read(buffer), wanted)
    }

    fn listener(&self, scheme: &str, host: &str) -> Result<SocketAddr> {
        let (_, own) = name_and_port(host);
        let port = own.unwrap_or(if scheme == "https" { 443 } else { 80 });
        let fits = |listener: &&Listener| {
            listener.address.port() == port && listener.speaks_tls == (scheme == "https")
        };
        let found = self.listeners.iter().find(fits).map(|listener| listener.address);
        self.to.or(found).with_context(|| {
            format!("the server has no listener for {scheme} on port {port}: name the one that is to be asked with --to")
        })
    }
}

fn name_and_port(host: &str) -> (&str, Option<u16>) {
    let split = host.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
    split.map_or((host, None), |(name, port)| (name, Some(port)))
}

/// A connection that is read and written in turn.
struct Connection {
    stream: TcpStream,
    session: Option<ClientSession>,
    deadline: Instant,
}

impl Connection {
    fn secure(&mut self, connector: &Connector, name: &str) -> Result<()> {
        let mut session = ClientSession::new(connector, Connector::name(name)?)?;
        loop {
            arm(&self.stream, self.deadline)?;
            session.advance(|bytes| (&self.stream).write(bytes))?;
            if !session.is_handshaking() {
                break;
            }
            session.receive(&mut [], |buffer| read_once(&self.stream, buffer))?;
        }
        self.session = Some(session);
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        arm(&self.stream, self.deadline)?;
        let Some(session) = &mut self.session else { return Ok((&self.stream).write_all(bytes)?) };
        let mut at = 0;
        while at < bytes.len() {
            at += session.send(&bytes[at..], |sealed| (&self.stream).write(sealed))?;
        }
        while !session.flush(|sealed| (&self.stream).write(sealed))? {}
        Ok(())
    }

    /// 0 at the end.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            arm(&self.stream, self.deadline)?;
            let Some(session) = &mut self.session else { return Ok((&self.stream).read(buffer)?) };
            match session.receive(buffer, |buffer| read_once(&self.stream, buffer))? {
                Received::Bytes { count: 0, .. } => {
                    session.flush(|sealed| (&self.stream).write(sealed))?;
                }
                Received::Bytes { count, .. } => return Ok(count),
                _ => return Ok(0),
            }
        }
    }
}

/// What is left of the time is for the next call.
fn arm(stream: &TcpStream, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(ErrorKind::TimedOut, "it takes too long; --timeout gives it more"));
    }
    stream.set_read_timeout(Some(left))?;
    stream.set_write_timeout(Some(left))
}

fn read_once(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<Received> {
    let count = stream.read(buffer)?;
    Ok(if count == 0 { Received::End } else { Received::Bytes { count, drained: false } })
}

/// The head of a response.
#[derive(Debug)]
struct Head {
    status: u16,
    cache_status: Option<String>,
    length: Option<u64>,
    is_chunked: bool,
}

impl Head {
    fn of(text: &str) -> Option<Head> {
        let mut lines = text.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
        let mut head = Head { status, cache_status: None, length: None, is_chunked: false };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "cache-status" => {
                    let before = head.cache_status.take().map(|known| known + ", ").unwrap_or_default();
                    head.cache_status = Some(before + value);
                }
                "content-length" => head.length = Some(value.parse().ok()?),
                "transfer-encoding" => head.is_chunked = true,
                _ => {}
            }
        }
        Some(head)
    }
}

/// Reads a response up to the end of its connection.
fn receive(mut read: impl FnMut(&mut [u8]) -> Result<usize>, wanted: u64) -> Result<Outcome> {
    let mut buffer = vec![0; PIECE];
    let mut content = Vec::new();
    let head = loop {
        if let Some(end) = content.windows(4).position(|four| four == b"\r\n\r\n") {
            let behind = content.split_off(end + 4);
            let head =
                Head::of(&String::from_utf8_lossy(&content)).context("what comes back is no HTTP/1.1")?;
            content = behind;
            // An interim response is followed by another one.
            if head.status >= 200 {
                break head;
            }
            continue;
        }
        if content.len() > HEAD {
            bail!("the head of the response is longer than {} KiB", HEAD >> 10);
        }
        match read(&mut buffer)? {
            0 => bail!("the connection has ended before there was a response"),
            count => content.extend_from_slice(&buffer[..count]),
        }
    };
    let mut bytes = content.len() as u64;
    loop {
        // Of what is not wanted the end is needed, to tell whether it is one.
        if bytes > wanted {
            content.drain(..content.len().saturating_sub(LAST_CHUNK.len()));
        }
        match read(&mut buffer)? {
            0 => break,
            count => {
                bytes += count as u64;
                content.extend_from_slice(&buffer[..count]);
            }
        }
    }
    let is_whole = match (head.is_chunked, head.length) {
        (true, _) => content.ends_with(LAST_CHUNK),
        (false, Some(length)) => length == bytes,
        (false, None) => true,
    };
    if !is_whole && !matches!(head.status, 204 | 304) {
        bail!("the response breaks off after {bytes} bytes");
    }
    let content = match bytes <= wanted {
        true if head.is_chunked => unchunked(&content).context("its chunks cannot be read")?,
        true => content,
        false => Vec::new(),
    };
    Ok(Outcome { status: head.status, cache_status: head.cache_status, bytes, content })
}

/// The content in chunks (RFC 9112 section 7.1), all of which is there.
fn unchunked(mut chunks: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let end = chunks.windows(2).position(|two| two == b"\r\n")?;
        let (line, rest) = (std::str::from_utf8(&chunks[..end]).ok()?, chunks.get(end + 2..)?);
        let size = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(content);
        }
        content.extend_from_slice(rest.get(..size)?);
        chunks = rest.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(text: &str, piece: usize, wanted: u64) -> Result<Outcome> {
        let mut pieces = text.as_bytes().chunks(piece);
        receive(
            |buffer| {
                let piece = pieces.next().unwrap_or_default();
                buffer[..piece.len()].copy_from_slice(piece);
                Ok(piece.len())
            },
            wanted,
        )
    }

    #[test]
    fn responses_are_read_whole_however_they_come() {
        let fixed = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nCache-Status: far; hit\r\ncontent-length: 5\r\n\
                     cache-status: near; fwd=miss; stored\r\n\r\nhello";
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n";
        for piece in 1..fixed.len() {
            let outcome = received(fixed, piece, 100).unwrap();
            assert_eq!(
                (outcome.status, outcome.bytes, &*outcome.content),
                (200, 5, &b"hello"[..]),
                "{piece}"
            );
            assert_eq!(outcome.cache_status.as_deref(), Some("far; hit, near; fwd=miss; stored"));
            assert_eq!(received(chunked, piece, 100).unwrap().content, b"hello", "{piece}");
            let unwanted = received(chunked, piece, 0).unwrap();
            assert!(unwanted.content.is_empty() && unwanted.bytes == 24, "{piece} {unwanted:?}");
            for whole in [fixed, chunked] {
                assert!(received(&whole[..whole.len() - 1], piece, 0).is_err(), "{piece}");
            }
        }
        assert!(received("SSH-2.0-x\r\n\r\n", 5, 0).is_err());
        assert!(received(&"x".repeat(HEAD + 1), PIECE, 0).is_err() || HEAD > PIECE);
    }

    #[test]
    fn listeners_are_asked_on_this_machine() {
        for (name, expected) in [
            ("http://0.0.0.0:80/", Some(("127.0.0.1:80", false))),
            ("https://[::]:443/", Some(("[::1]:443", true))),
            ("https://192.0.2.1:8443/", Some(("192.0.2.1:8443", true))),
            ("unix:/run/x.sock", None),
        ] {
            let expected = expected
                .map(|(address, speaks_tls)| Listener { address: address.parse().unwrap(), speaks_tls });
            assert_eq!(Listener::of(name), expected, "{name}");
        }
        assert_eq!(name_and_port("[::1]"), ("[::1]", None));
        assert_eq!(name_and_port("[::1]:8080"), ("[::1]", Some(8080)));
    }
}
