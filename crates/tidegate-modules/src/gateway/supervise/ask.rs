//! Requests that the server itself makes of a process of a pool, to warm it up or to learn how it is.
//!
//! Blocking, on a thread of the caller's, and bounded in time and in what is kept. Never on the way of a client's
//! request.

use crate::gateway::pool_directory::PoolAddress;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tidegate_config::settings::pool::WarmUpProtocol;
use tidegate_http::{Field, Fields};
use tidegate_wire::cgi::{self, Environment};
use tidegate_wire::fastcgi::{self, Event, Params, ResponseDecoder, Role};
use tidegate_wire::h1::{FieldSpace, HeadLimits};
use tidegate_wire::scgi::Variables;

/// What such requests say that they come from.
const AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));
/// The number of the only request on its connection.
const REQUEST: u16 = 1;
/// Bytes of an answer that are kept; what follows is read and forgotten.
const KEPT: usize = 128 << 10;

/// A `GET`.
pub(super) struct Question<'a> {
    pub(super) protocol: WarmUpProtocol,
    /// A path, with a query perhaps.
    pub(super) target: &'a str,
    pub(super) host: &'a str,
    /// The file that is run, where it is one.
    pub(super) script: Option<&'a Path>,
    pub(super) root: Option<&'a Path>,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content: Vec<u8>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Asks, and waits for the whole answer until `deadline`.
///
/// # Errors
/// A sentence's end: `it accepts no connection: …`.
pub(super) fn ask(
    address: &PoolAddress,
    question: &Question<'_>,
    deadline: Instant,
) -> Result<Answer, String> {
    let mut stream =
        Stream::open(address, deadline).map_err(|error| format!("it accepts no connection: {error}"))?;
    let told = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it did not answer in time".to_owned(),
        _ => format!("its connection was lost: {error}"),
    };
    let request = encode(question);
    stream.wait_until(deadline).and_then(|()| stream.write_all(&request)).map_err(told)?;
    let mut reading = Reading::new(question.protocol);
    let mut buffer = [0; 16 << 10];
    while !reading.is_complete() {
        let read = stream.wait_until(deadline).and_then(|()| stream.read(&mut buffer));
        match read {
            Ok(0) => break,
            Ok(count) => reading.take(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(told(error)),
        }
    }
    reading.answer()
}

fn encode(question: &Question<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    if question.protocol == WarmUpProtocol::Http {
        let Question { target, host, .. } = question;
        // An answer of version 1.0 has no chunks.
        let head = format!(
            "GET {target} HTTP/1.0\r\nHost: {host}\r\nUser-Agent: {AGENT}\r\nConnection: close\r\n\r\n"
        );
        out.extend_from_slice(head.as_bytes());
        return out;
    }
    let (path, query) = question.target.split_once('?').unwrap_or((question.target, ""));
    let of = |path: Option<&Path>| path.map_or(Vec::new(), |path| path.as_os_str().as_bytes().to_vec());
    let (script, root) = (of(question.script), of(question.root));
    let fields = [
        Field { name: "Host", value: question.host.as_bytes() },
        Field { name: "User-Agent", value: AGENT.as_bytes() },
    ];
    let environment = Environment {
        server_software: AGENT,
        server_name: question.host,
        server_port: 80,
        server_protocol: "HTTP/1.1",
        request_method: "GET",
        request_uri: question.target,
        request_scheme: "http",
        query_string: query,
        script_name: path.as_bytes(),
        script_filename: &script,
        document_root: &root,
        remote_addr: "127.0.0.1",
        fields: Fields::new(&fields),
        ..Environment::default()
    };
    if question.protocol == WarmUpProtocol::Scgi {
        let mut variables = Variables::begin(&mut out, 0);
        let mut sink = |name: &[u8], value: &[u8]| {
            variables.push(name, value);
        };
        environment.write(&mut sink, |_| true);
        variables.finish();
    } else {
        fastcgi::begin_request(&mut out, REQUEST, Role::Responder, false);
        let mut params = Params::begin(&mut out, REQUEST);
        environment.write(&mut |name: &[u8], value: &[u8]| params.push(name, value), |_| true);
        params.finish();
        fastcgi::end_stdin(&mut out, REQUEST);
    }
    out
}

/// An answer as it comes in.
struct Reading {
    protocol: WarmUpProtocol,
    decoder: ResponseDecoder,
    /// Of FastCGI, what no record was made of yet.
    held: Vec<u8>,
    output: Vec<u8>,
}

impl Reading {
    fn new(protocol: WarmUpProtocol) -> Reading {
        Reading { protocol, decoder: ResponseDecoder::new(REQUEST), held: Vec::new(), output: Vec::new() }
    }

    /// Whether nothing more is worth waiting for; else the end of the connection says so.
    fn is_complete(&self) -> bool {
        self.protocol == WarmUpProtocol::FastCgi && self.decoder.has_ended()
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.protocol != WarmUpProtocol::FastCgi {
            keep(&mut self.output, bytes);
            return Ok(());
        }
        self.held.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let rest = self.held.get(at..).unwrap_or_default();
            let step =
                self.decoder.decode(rest).map_err(|error| format!("it does not speak FastCGI: {error}"))?;
            if let Event::Stdout(data) = step.event {
                keep(&mut self.output, data);
            }
            at += step.consumed;
            if step.consumed == 0 || rest.is_empty() {
                break;
            }
        }
        self.held.drain(..at.min(self.held.len()));
        Ok(())
    }

    fn answer(self) -> Result<Answer, String> {
        if self.protocol == WarmUpProtocol::Http {
            let status = self.output.get(9..12).filter(|_| self.output.starts_with(b"HTTP/1."));
            let status = status.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
            let status = status.ok_or("what it answers is not HTTP")?;
            return Ok(Answer { status, content: Vec::new() });
        }
        let mut space = FieldSpace::new();
        match cgi::parse_head(&self.output, &HeadLimits::default(), &mut space) {
            Ok(Some(head)) => {
                let content = self.output.get(head.len..).unwrap_or_default().to_vec();
                Ok(Answer { status: head.status, content })
            }
            Ok(None) => Err("it ended its answer before the head was complete".to_owned()),
            Err(error) => Err(format!("its answer begins with {error}")),
        }
    }
}

fn keep(output: &mut Vec<u8>, bytes: &[u8]) {
    let room = KEPT.saturating_sub(output.len());
    output.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
}

impl Stream {
    fn open(address: &PoolAddress, deadline: Instant) -> io::Result<Stream> {
        match address {
            PoolAddress::Tcp(address) => TcpStream::connect_timeout(address, left(deadline)).map(Stream::Tcp),
            PoolAddress::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
        }
    }

    fn wait_until(&self, deadline: Instant) -> io::Result<()> {
        let left = Some(left(deadline));
        match self {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(left).and_then(|()| stream.set_write_timeout(left))
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(left).and_then(|()| stream.set_write_timeout(left))
            }
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

/// A timeout of 0 would be none.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_wire::fastcgi::ProtocolStatus;

    fn read(protocol: WarmUpProtocol, pieces: &[&[u8]]) -> Result<(u16, Vec<u8>), String> {
        let mut reading = Reading::new(protocol);
        for piece in pieces {
            reading.take(piece)?;
        }
        reading.answer().map(|answer| (answer.status, answer.content))
    }

    #[test]
    fn answers_of_all_protocols() {
        let mut records = Vec::new();
        fastcgi::append_stdout(&mut records, REQUEST, b"Status: 404 Not Found\r\nA: b\r\n\r\nx");
        fastcgi::append_stderr(&mut records, REQUEST, b"oh");
        fastcgi::append_stdout(&mut records, REQUEST, b"y");
        fastcgi::end_request(&mut records, REQUEST, 0, ProtocolStatus::RequestComplete);
        let bytes: Vec<&[u8]> = records.chunks(1).collect();
        for pieces in [&[&records[..]][..], &bytes] {
            assert_eq!(read(WarmUpProtocol::FastCgi, pieces), Ok((404, b"xy".to_vec())));
        }
        assert!(read(WarmUpProtocol::FastCgi, &[b"HTTP/1.1 200 OK\r\n\r\n"]).is_err());
        assert!(read(WarmUpProtocol::FastCgi, &[]).is_err());
        let scgi: &[&[u8]] = &[b"Content-Type: a/b\r\n", b"\r\nx"];
        assert_eq!(read(WarmUpProtocol::Scgi, scgi), Ok((200, b"x".to_vec())));
        assert_eq!(read(WarmUpProtocol::Http, &[b"HTTP/1.1 503 No\r\n\r\nx"]), Ok((503, Vec::new())));
        assert!(read(WarmUpProtocol::Http, &[b"220 mail ESMTP"]).is_err());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut output = Vec::new();
        for _ in 0..100 {
            keep(&mut output, &[b'x'; 10_000]);
        }
        assert_eq!(output.len(), KEPT);
    }
}
