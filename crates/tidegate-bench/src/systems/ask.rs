//! How systems are asked: a page over HTTP, with TLS or without, memcached, and MariaDB by its client. Each question has a moment at
//! which it is over.

use super::place::Group;
use crate::target::Url;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use tidegate_io::connect::Address;
use tidegate_io::socket::Received;
use tidegate_tls::{ClientSession, Connector, ConnectorOptions, ServerName, Trust};

/// Bytes of an answer, at most.
const ANSWER: u64 = 4 << 20;

/// Time that is left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::Error::other("no answer in time")) } else { Ok(left) }
}

/// A stream that ends at a moment.
trait Timed: Read + Write {
    fn bound(&self, left: Duration) -> io::Result<()>;
}

impl Timed for TcpStream {
    fn bound(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left)).and_then(|()| self.set_write_timeout(Some(left)))
    }
}

impl Timed for UnixStream {
    fn bound(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left)).and_then(|()| self.set_write_timeout(Some(left)))
    }
}

/// TLS on such a stream. Any certificate will do: nothing secret is said, and the systems of a run have most often one of their own.
struct Sealed<'s, S> {
    stream: &'s mut S,
    session: ClientSession,
}

impl<'s, S: Timed> Sealed<'s, S> {
    fn begin(stream: &'s mut S, host: &str, until: Instant) -> io::Result<Sealed<'s, S>> {
        let connector = Connector::new(&ConnectorOptions::new(Trust::Anybody)).map_err(io::Error::other)?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut sealed = Sealed { stream, session: ClientSession::new(&connector, name)? };
        loop {
            sealed.stream.bound(left(until)?)?;
            sealed.session.advance(|bytes| sealed.stream.write(bytes))?;
            if !sealed.session.is_handshaking() {
                return Ok(sealed);
            }
            sealed.receive(&mut [])?;
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        Ok(self.session.receive(buffer, |buffer| match self.stream.read(buffer)? {
            0 => Ok(Received::End),
            count => Ok(Received::Bytes { count, drained: true }),
        })?)
    }
}

impl<S: Timed> Read for Sealed<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.receive(buffer)? {
                Received::Bytes { count: 0, .. } | Received::WouldBlock => {
                    self.session.flush(|bytes| self.stream.write(bytes))?;
                }
                Received::Bytes { count, .. } => return Ok(count),
                Received::End => return Ok(0),
            }
        }
    }
}

impl<S: Timed> Write for Sealed<'_, S> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.session.send(data, |bytes| self.stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.session.flush(|bytes| self.stream.write(bytes)).map(drop)
    }
}

impl<S: Timed> Timed for Sealed<'_, S> {
    fn bound(&self, left: Duration) -> io::Result<()> {
        self.stream.bound(left)
    }
}

/// Sends, and reads until the peer closes, `is_whole` says so, or there is too much.
fn exchange(
    stream: &mut impl Timed,
    request: &[u8],
    until: Instant,
    is_whole: impl Fn(&[u8]) -> bool,
) -> io::Result<Vec<u8>> {
    stream.bound(left(until)?)?;
    stream.write_all(request)?;
    stream.flush()?;
    let mut answer = Vec::new();
    let mut part = [0; 16 << 10];
    while !is_whole(&answer) {
        stream.bound(left(until)?)?;
        let read = stream.read(&mut part)?;
        if read == 0 {
            break;
        }
        answer.extend_from_slice(part.get(..read).unwrap_or_default());
        if answer.len() as u64 > ANSWER {
            return Err(io::Error::other("the answer is too large"));
        }
    }
    Ok(answer)
}

fn connect(address: impl ToSocketAddrs, until: Instant) -> io::Result<TcpStream> {
    let mut fault = io::Error::other("the host has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(until)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => fault = error,
        }
    }
    Err(fault)
}

/// The status of a page.
pub(super) fn status_of(url: &Url, until: Instant) -> io::Result<u16> {
    let (status, _) = fetch(url, until)?;
    status.parse().map_err(|_| io::Error::other("the answer is not HTTP"))
}

/// Whether somebody takes connections.
pub(super) fn tcp(address: &str, until: Instant) -> io::Result<()> {
    connect(address, until).map(drop)
}

/// Status and content of a page. HTTP/1.0: it ends with the connection and comes in no chunks.
pub(super) fn fetch(url: &Url, until: Instant) -> io::Result<(String, Vec<u8>)> {
    let request = format!(
        "GET {} HTTP/1.0\r\nHost: {}\r\nAccept: application/json\r\nConnection: close\r\n\r\n",
        url.request_target, url.authority
    );
    let answer = match url.resolve().map_err(io::Error::other)?.first() {
        Some(Address::Unix(path)) => {
            page_by(&mut UnixStream::connect(path)?, url, request.as_bytes(), until)?
        }
        _ => {
            let mut stream = connect((url.host.as_str(), url.port), until)?;
            page_by(&mut stream, url, request.as_bytes(), until)?
        }
    };
    let head = memchr::memmem::find(&answer, b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
    let line = String::from_utf8_lossy(answer.get(..head).unwrap_or_default());
    let status = line.split_whitespace().nth(1).unwrap_or("no status").to_owned();
    Ok((status, answer.get(head..).unwrap_or_default().to_vec()))
}

fn page_by(stream: &mut impl Timed, url: &Url, request: &[u8], until: Instant) -> io::Result<Vec<u8>> {
    if !url.is_tls {
        return exchange(stream, request, until, is_whole_page);
    }
    exchange(&mut Sealed::begin(stream, &url.host, until)?, request, until, is_whole_page)
}

/// Whether an answer has as much content as it announces. One that announces nothing ends with its connection.
fn is_whole_page(answer: &[u8]) -> bool {
    let Some(head) = memchr::memmem::find(answer, b"\r\n\r\n") else { return false };
    let fields = String::from_utf8_lossy(answer.get(..head).unwrap_or_default()).to_ascii_lowercase();
    let length = fields.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    length.is_some_and(|length: usize| answer.len() - head - 4 >= length)
}

pub(super) fn memcached(address: &str, until: Instant) -> io::Result<Vec<u8>> {
    let mut stream = connect(address, until)?;
    exchange(&mut stream, b"stats\r\n", until, |answer| answer.ends_with(b"END\r\n"))
}

pub(super) fn mariadb(options: &str, until: Instant) -> io::Result<Vec<u8>> {
    let mut command = Command::new("mariadb");
    command.args(options.split_whitespace());
    command.args(["--connect-timeout=3", "--batch", "--skip-column-names", "-e", "SHOW GLOBAL STATUS"]);
    let mut child = Group::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let (sender, receiver) = sync_channel(1);
    let (out, fault) = (child.0.stdout.take(), child.0.stderr.take());
    std::thread::Builder::new().name("bench-client".to_owned()).spawn(move || {
        let (mut answer, mut said) = (Vec::new(), Vec::new());
        // What it complains of fits into the pipe.
        let _ = out.map(|out| out.take(ANSWER).read_to_end(&mut answer));
        let _ = fault.map(|fault| fault.take(1_000).read_to_end(&mut said));
        let _ = sender.send((answer, said));
    })?;
    let (answer, fault) =
        receiver.recv_timeout(left(until)?).map_err(|_| io::Error::other("no answer in time"))?;
    if answer.is_empty() {
        let text = String::from_utf8_lossy(&fault);
        let line = text.lines().next().unwrap_or("no answer").to_owned();
        return Err(io::Error::other(line));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_page_ends() {
        for (answer, is_whole) in [
            ("", false),
            ("HTTP/1.1 200 OK\r\n\r\n{}", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", true),
            ("HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}", false),
        ] {
            assert_eq!(is_whole_page(answer.as_bytes()), is_whole, "{answer:?}");
        }
    }
}
