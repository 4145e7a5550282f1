//! Applications inside the test process: each answers as the query of the request asks it to (`plan`), over
//! HTTP/1, HTTP/2 (`http2`), FastCGI or SCGI, on TCP or on a unix socket.
//!
//! A thread for each connection, which ends with it. Content of a request is compared as it comes, so that an
//! upload that was mixed up is seen here.

mod http1;
mod http2;
mod records;

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::content::{self, Check};
use super::findings::{Findings, Invariant};
use super::plan::{AnswerPlan, Ending, Framing};
use super::socket::{Got, Socket};
use crate::client::Address;
use crate::random::pause::rest;

/// What an application speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    H2c,
    FastCgi,
    Scgi,
}

impl Protocol {
    const ALL: [Protocol; 4] = [Protocol::Http1, Protocol::H2c, Protocol::FastCgi, Protocol::Scgi];

    /// Its name as an argument.
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "http1",
            Protocol::H2c => "h2c",
            Protocol::FastCgi => "fastcgi",
            Protocol::Scgi => "scgi",
        }
    }
}

/// How long an application waits for more of a request before it gives the connection up.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long an answer that stalls is held open.
const STALL: Duration = Duration::from_secs(8);

/// A listening application; it ends when this is dropped.
pub(super) struct Application {
    pub(super) address: Address,
    is_over: Arc<AtomicBool>,
}

/// What a process of a pool does: it answers on the socket that the server has given it, by path or as standard
/// input. It returns only when it cannot begin.
///
/// # Errors
/// There is no such protocol, or the socket cannot be listened on.
pub fn run_application(protocol: &str) -> Result<(), String> {
    let protocol = Protocol::ALL.into_iter().find(|known| known.name() == protocol);
    let protocol = protocol.ok_or("no such protocol")?;
    let listener = match std::env::var_os("SOCKET") {
        Some(path) => UnixListener::bind(path),
        None => io::stdin().as_fd().try_clone_to_owned().map(UnixListener::from),
    };
    let listener = listener.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    let listener = Listener::Unix(listener.map_err(|error| error.to_string())?);
    let findings = Arc::new(Findings::default());
    loop {
        accept(protocol, &listener, &findings, true);
        for finding in findings.take() {
            eprintln!("{}", finding.text);
        }
    }
}

/// Accepts one connection and serves it on a thread of its own, or waits a little for one.
fn accept(protocol: Protocol, listener: &Listener, findings: &Arc<Findings>, is_process: bool) {
    match listener.accept() {
        Ok(socket) => {
            let findings = findings.clone();
            std::thread::spawn(move || serve(protocol, socket, &findings, is_process));
        }
        // Also when descriptors are scarce for a moment.
        Err(_) => listener.wait(),
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Application {
    /// Listens on a free port of 127.0.0.1, or at `path`.
    pub(super) fn start(
        protocol: Protocol,
        path: Option<&Path>,
        findings: &Arc<Findings>,
    ) -> io::Result<Application> {
        let (listener, address) = match path {
            None => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                listener.set_nonblocking(true)?;
                let address = Address::Tcp(listener.local_addr()?);
                (Listener::Tcp(listener), address)
            }
            Some(path) => {
                let listener = UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                (Listener::Unix(listener), Address::Unix(path.to_owned()))
            }
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, findings) = (is_over.clone(), findings.clone());
        std::thread::spawn(move || {
            while !over.load(SeqCst) {
                accept(protocol, &listener, &findings, false);
            }
        });
        Ok(Application { address, is_over })
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
    }
}

impl Listener {
    fn accept(&self) -> io::Result<Socket> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Socket::from_tcp(stream))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Socket::from_unix(stream))
            }
        }
    }

    fn wait(&self) {
        use rustix::event::{PollFd, PollFlags, poll};
        let fd = match self {
            Listener::Tcp(listener) => PollFd::new(listener, PollFlags::IN),
            Listener::Unix(listener) => PollFd::new(listener, PollFlags::IN),
        };
        let patience = rustix::time::Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        // Whatever comes of it, the next attempt to accept tells.
        let _ = poll(&mut [fd], Some(&patience));
    }
}

fn serve(protocol: Protocol, socket: Socket, findings: &Findings, is_process: bool) {
    let mut incoming = Incoming { socket, buffer: Vec::new(), is_process };
    let result = match protocol {
        Protocol::Http1 => http1::serve(&mut incoming, findings),
        Protocol::FastCgi => records::serve_fastcgi(&mut incoming, findings),
        Protocol::Scgi => records::serve_scgi(&mut incoming, findings),
        Protocol::H2c => http2::serve(&mut incoming, findings),
    };
    match result {
        Ok(Some(Reset)) => incoming.socket.reset(),
        Ok(None) | Err(Stop::Gone) => {}
        Err(Stop::Fault(text)) => {
            let text =
                format!("an application ({protocol:?}) was sent what is no request of a client: {text}");
            findings.report_text(Invariant::Answer, text);
        }
    }
}

/// The connection is to be ended with a reset.
struct Reset;

/// Why a connection is served no longer.
enum Stop {
    /// The server has gone, which is its right.
    Gone,
    /// It has sent what it should not have.
    Fault(String),
}

/// A connection and what was read of it and not yet looked at.
struct Incoming {
    socket: Socket,
    buffer: Vec<u8>,
    /// This is a process of a pool.
    is_process: bool,
}

impl Incoming {
    /// Reads more; an error when nothing more comes.
    fn fill(&mut self) -> Result<(), Stop> {
        let mut piece = vec![0; 65_536];
        match self.socket.read(&mut piece, PATIENCE) {
            Got::Bytes(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                Ok(())
            }
            Got::End | Got::Reset | Got::Nothing => Err(Stop::Gone),
        }
    }

    /// The next `count` bytes.
    fn take(&mut self, count: usize) -> Result<Vec<u8>, Stop> {
        while self.buffer.len() < count {
            self.fill()?;
        }
        Ok(self.buffer.drain(..count).collect())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.socket.write(bytes).map_err(|_| Stop::Gone)
    }
}

/// Compares what comes with a request, and says when it is not what its client has sent.
struct Upload {
    check: Check,
    expected: u64,
}

impl Upload {
    fn of(plan: &AnswerPlan) -> Upload {
        Upload { check: Check::new(plan.nonce.upload()), expected: plan.upload }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.check.take(bytes).map_err(|text| Stop::Fault(format!("in what came with a request: {text}")))
    }

    /// So many bytes, as they come.
    fn take_all(&mut self, incoming: &mut Incoming, mut left: usize) -> Result<(), Stop> {
        while left > 0 {
            if incoming.buffer.is_empty() {
                incoming.fill()?;
            }
            let count = left.min(incoming.buffer.len());
            let piece: Vec<u8> = incoming.buffer.drain(..count).collect();
            self.take(&piece)?;
            left -= count;
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Stop> {
        if self.check.offset == self.expected {
            return Ok(());
        }
        Err(Stop::Fault(format!("content of {} bytes where {} were sent", self.check.offset, self.expected)))
    }
}

/// A field that came behind the content of a request.
fn trailer(plan: &AnswerPlan, name: &str, value: &str) -> Result<(), Stop> {
    let is_right = plan.sends_trailer
        && name.eq_ignore_ascii_case("x-end")
        && value.trim() == format!("{:x}", plan.nonce.0);
    match is_right {
        true => Ok(()),
        false => Err(Stop::Fault(format!("the trailer {name}: {value} with the request {:x}", plan.nonce.0))),
    }
}

/// How a protocol writes an answer.
trait Encode {
    fn head(&self, plan: &AnswerPlan, out: &mut Vec<u8>);
    fn data(&self, plan: &AnswerPlan, data: &[u8], out: &mut Vec<u8>);
    fn end(&self, plan: &AnswerPlan, out: &mut Vec<u8>);
    /// What no reader of the protocol understands.
    fn garbage(&self) -> &'static [u8];
}

/// What becomes of the connection behind an answer.
enum After {
    Keep,
    Close,
    Reset,
}

/// Answers as planned.
fn perform(plan: &AnswerPlan, encode: &impl Encode, incoming: &mut Incoming) -> Result<After, Stop> {
    rest(plan.delay);
    match plan.ending {
        Ending::Silent => return Ok(After::Close),
        Ending::Garbage => {
            incoming.write(encode.garbage())?;
            return Ok(After::Close);
        }
        _ => {}
    }
    let mut out = Vec::new();
    encode.head(plan, &mut out);
    let end = match plan.ending {
        Ending::Cut(at) | Ending::Reset(at) | Ending::Stall(at) => at.min(plan.length),
        _ => plan.length,
    };
    let (piece, pause) = plan.pace.unwrap_or((16_384, Duration::ZERO));
    let (mut sent, mut content) = (0, Vec::new());
    while sent < end {
        let count = piece.min(end - sent);
        content.clear();
        content::append(&mut content, plan.nonce, sent, count);
        encode.data(plan, &content, &mut out);
        sent += count;
        if !pause.is_zero() || out.len() > 65_536 {
            incoming.write(&out)?;
            out.clear();
            rest(pause);
        }
    }
    match plan.ending {
        Ending::Complete => {
            encode.end(plan, &mut out);
            incoming.write(&out)?;
            Ok(if plan.framing == Framing::Close { After::Close } else { After::Keep })
        }
        Ending::Reset(_) => {
            incoming.write(&out)?;
            Ok(After::Reset)
        }
        Ending::Stall(_) => {
            incoming.write(&out)?;
            let end = Instant::now() + STALL;
            let mut rest = [0; 4096];
            while let Some(left) = end.checked_duration_since(Instant::now()) {
                if matches!(incoming.socket.read(&mut rest, left), Got::End | Got::Reset) {
                    break;
                }
            }
            Ok(After::Close)
        }
        Ending::Cut(_) | Ending::Silent | Ending::Garbage => {
            incoming.write(&out)?;
            Ok(After::Close)
        }
    }
}
