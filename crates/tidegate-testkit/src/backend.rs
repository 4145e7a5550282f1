//! The other side of a gateway: a scripted application that the transcript plays line by line, so that
//! everything happens in the order of its lines and nothing by the clock.
//!
//! FastCGI and SCGI are read and written here anew, by the documents and not by the server's code.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Instant;

use crate::client::{Client, Filled, WAIT};
use crate::response::{Fields, Response};

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Backend {
    Tcp(TcpListener),
    Unix(UnixListener, String),
}

impl Backend {
    /// Listens on a free port, or on a unix socket.
    pub(crate) fn listen(socket: Option<&Path>) -> Result<Backend, String> {
        let failed = |error: std::io::Error| format!("cannot listen: {error}");
        match socket {
            None => {
                let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                Ok(Backend::Tcp(listener))
            }
            Some(path) => {
                let listener = UnixListener::bind(path).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                Ok(Backend::Unix(listener, path.display().to_string()))
            }
        }
    }

    /// The address as settings name it.
    pub(crate) fn address(&self) -> Result<String, String> {
        match self {
            Backend::Tcp(listener) => {
                listener.local_addr().map(|address| address.to_string()).map_err(|error| error.to_string())
            }
            Backend::Unix(_, path) => Ok(format!("unix:{path}")),
        }
    }

    /// The next connection; `None` when there is none within the time.
    pub(crate) fn accept(&self, until: Instant) -> Result<Option<Client>, String> {
        loop {
            let accepted = match self {
                Backend::Tcp(listener) => listener
                    .accept()
                    .map(|(stream, _)| stream.set_nonblocking(false).map(|()| Client::from_tcp(stream))),
                Backend::Unix(listener, _) => listener
                    .accept()
                    .map(|(stream, _)| stream.set_nonblocking(false).map(|()| Client::from_unix(stream))),
            };
            match accepted {
                Ok(client) => return client.map(Some).map_err(|error| error.to_string()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    self.wait(left)?;
                }
                Err(error) => return Err(format!("cannot accept: {error}")),
            }
        }
    }

    fn wait(&self, left: std::time::Duration) -> Result<(), String> {
        use rustix::event::{PollFd, PollFlags, poll};
        let fd = match self {
            Backend::Tcp(listener) => PollFd::new(listener, PollFlags::IN),
            Backend::Unix(listener, _) => PollFd::new(listener, PollFlags::IN),
        };
        let left =
            rustix::time::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [fd], Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Waits for `count` bytes and takes them.
fn take(client: &mut Client, count: usize, until: Instant) -> Result<Vec<u8>, String> {
    while client.received.len() < count {
        match client.fill(until)? {
            Filled::More => {}
            Filled::TimedOut => return Err(format!("timed out after {WAIT:?} within a request")),
            Filled::Eof | Filled::Reset => return Err("the server closed within a request".to_owned()),
        }
    }
    Ok(client.received.drain(..count).collect())
}

/// Reads one FastCGI request: variables as fields, content as body, whether the connection shall stay as
/// reason (`keep` or `close`).
pub(crate) fn read_fastcgi(client: &mut Client, until: Instant) -> Result<Response, String> {
    let (mut request, mut params, mut stdin) = (Response::default(), Vec::new(), Vec::new());
    let mut has_params = false;
    loop {
        let head = take(client, 8, until)?;
        let length = usize::from(head[4]) << 8 | usize::from(head[5]);
        let content = take(client, length, until)?;
        take(client, usize::from(head[6]), until)?;
        let (version, kind, id) = (head[0], head[1], u16::from(head[2]) << 8 | u16::from(head[3]));
        if version != 1 || id != 1 {
            return Err(format!("a record of version {version}, type {kind}, request {id}"));
        }
        match (kind, length) {
            (1, 8) if request.reason.is_empty() && content[..2] == [0, 1] => {
                request.reason = if content[2] & 1 == 1 { "keep" } else { "close" }.to_owned();
            }
            (4, 0) if !has_params => {
                has_params = true;
                request.fields = pairs(&params)?;
            }
            (4, _) if !has_params => params.extend_from_slice(&content),
            (5, 0) if has_params => {
                request.body = stdin;
                return Ok(request);
            }
            (5, _) if has_params => stdin.extend_from_slice(&content),
            _ => return Err(format!("a record of type {kind} with {length} bytes in the wrong place")),
        }
    }
}

fn pairs(mut rest: &[u8]) -> Result<Fields, String> {
    fn length(rest: &mut &[u8]) -> Option<usize> {
        let (first, more) = rest.split_first()?;
        if *first < 128 {
            *rest = more;
            return Some(usize::from(*first));
        }
        let (four, more) = rest.split_at_checked(4)?;
        *rest = more;
        Some(four.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)) & 0x7fff_ffff)
    }
    fn pair(rest: &mut &[u8]) -> Option<(String, String)> {
        let (name, value) = (length(rest)?, length(rest)?);
        let (name, more) = rest.split_at_checked(name)?;
        let (value, more) = more.split_at_checked(value)?;
        *rest = more;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some((text(name), text(value)))
    }
    let mut fields = Vec::new();
    while !rest.is_empty() {
        fields.push(pair(&mut rest).ok_or("variables whose lengths do not fit")?);
    }
    Ok(fields)
}

/// Reads one SCGI request: variables as fields, content as body.
pub(crate) fn read_scgi(client: &mut Client, until: Instant) -> Result<Response, String> {
    let mut digits = String::new();
    loop {
        match take(client, 1, until)?[0] {
            b':' => break,
            digit if digit.is_ascii_digit() => digits.push(char::from(digit)),
            other => return Err(format!("byte {other:#x} in the length of the variables")),
        }
    }
    let length: usize = digits.parse().map_err(|_| "no length of the variables".to_owned())?;
    let variables = take(client, length, until)?;
    if take(client, 1, until)? != b"," {
        return Err("no comma behind the variables".to_owned());
    }
    let parts: Vec<String> =
        variables.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    let fields: Fields = parts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    match fields.first() {
        Some((name, length)) if name == "CONTENT_LENGTH" => {
            let length = length.parse().map_err(|_| format!("CONTENT_LENGTH {length:?}"))?;
            let body = take(client, length, until)?;
            Ok(Response { fields, body, ..Response::default() })
        }
        other => Err(format!("{other:?} comes first, and not CONTENT_LENGTH")),
    }
}

/// What an application sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FastCgi {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// END_REQUEST with this protocol status.
    End(u8),
    /// Output and END_REQUEST at once.
    Answer(Vec<u8>),
}

impl FastCgi {
    /// The records, with `fill` over the text.
    pub(crate) fn encode(&self, fill: impl Fn(&[u8]) -> Result<Vec<u8>, String>) -> Result<Vec<u8>, String> {
        let record = |kind: u8, content: &[u8]| {
            let mut out = Vec::new();
            for piece in content.chunks(65_535) {
                let padding = (8 - piece.len() % 8) % 8;
                let length = piece.len() as u16;
                out.extend([1, kind, 0, 1, (length >> 8) as u8, length as u8, padding as u8, 0]);
                out.extend_from_slice(piece);
                out.extend(std::iter::repeat_n(0, padding));
            }
            out
        };
        let end = |status: u8| record(3, &[0, 0, 0, 0, status, 0, 0, 0]);
        Ok(match self {
            FastCgi::Stdout(text) => record(6, &fill(text)?),
            FastCgi::Stderr(text) => record(7, &fill(text)?),
            FastCgi::End(status) => end(*status),
            FastCgi::Answer(text) => [record(6, &fill(text)?), end(0)].concat(),
        })
    }
}
