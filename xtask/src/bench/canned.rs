//! The floor of the static bench: answers every request with the same bytes and looks at none of it. What is not small it sends from
//! a file, which is the least that the kernel can be asked for.
//!
//! What it costs is what the kernel costs; a server can only be measured against it. Started by the bench as
//! `xtask canned`, a process of its own. Edge-triggered epoll, one thread or as many as asked for that share nothing, no
//! timers, no parsing but for the blank line that ends a request.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use anyhow::{Context, Result};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{self, AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};

use super::events;
use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    port: u16,
    /// Bytes of the body
    size: usize,
    /// Answer one request on each connection, and close it
    #[arg(long)]
    closes: bool,
    /// Threads, each with a listening socket of its own
    #[arg(long, default_value_t = 1, conflicts_with = "closes")]
    workers: usize,
}

/// Connections of a worker that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// The key of the listener; connections have their place in the list.
const LISTENER: u64 = u64::MAX;

/// Larger content is sent from a file.
pub const COPIED: usize = 16 * 1024;

const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// What is sent for every request.
struct Answer {
    /// All of it, or what comes before the file.
    bytes: Vec<u8>,
    /// The rest, which has no name any more.
    file: Option<File>,
    /// Of both.
    length: usize,
}

impl Answer {
    /// With so much content, and this in its `Connection`.
    fn new(size: usize, connection: &str) -> Result<Self> {
        let mut bytes = answer(size, connection);
        let length = bytes.len();
        if size <= COPIED {
            return Ok(Self { bytes, file: None, length });
        }
        let content = bytes.split_off(length - size);
        let path = workspace::target_directory().join(format!("canned-{}", std::process::id()));
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        fs::remove_file(&path)?;
        Ok(Self { bytes, file: Some(file), length })
    }

    /// Sends what comes from `position` on by one call: how much of it went, and whether the socket is full.
    fn send(&self, mut stream: &TcpStream, position: usize) -> std::io::Result<(usize, bool)> {
        let front = self.bytes.get(position..).unwrap_or_default();
        let (sent, asked) = match &self.file {
            None => (stream.write(front)?, front.len()),
            Some(_) if !front.is_empty() => {
                (net::send(stream, front, SendFlags::MORE | SendFlags::NOSIGNAL)?, front.len())
            }
            Some(file) => {
                let mut offset = (position - self.bytes.len()) as u64;
                let asked = self.length - position;
                (rustix::fs::sendfile(stream, file, Some(&mut offset), asked)?, asked)
            }
        };
        Ok((sent, sent < asked))
    }
}

struct Connection {
    stream: TcpStream,
    /// Bytes of `END_OF_HEAD` seen at the end of the last read.
    matched: usize,
    /// Bytes still to send; several answers where requests came together.
    owed: usize,
}

/// Serves until it is ended from outside.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.closes {
        return close_each(&listener(arguments.port)?, &answer(arguments.size, "close"));
    }
    let answer = Answer::new(arguments.size, "keep-alive")?;
    let listeners = (0..arguments.workers).map(|_| listener(arguments.port)).collect::<Result<Vec<_>>>()?;
    println!("listening on http://127.0.0.1:{}", arguments.port);
    thread::scope(|scope| {
        let workers: Vec<_> =
            listeners.iter().map(|listener| scope.spawn(|| work(listener, &answer))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("invariant: it does not panic"))
    })
}

/// One of those that share a port.
fn listener(port: u16) -> Result<TcpListener> {
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Answers what comes to one listening socket.
fn work(listener: &TcpListener, answer: &Answer) -> Result<()> {
    listener.set_nonblocking(true)?;
    let poller = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&poller, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;

    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut events = Vec::with_capacity(512);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        events::wait(&poller, &mut events)?;
        for event in &events {
            let key = event.data.u64();
            if key == LISTENER {
                accept(listener, &poller, &mut connections, &mut free)?;
                continue;
            }
            let place = usize::try_from(key).expect("invariant: a place in the list");
            let Some(connection) = connections[place].as_mut() else { continue };
            if !connection.drive(answer, &mut buffer) {
                connections[place] = None;
                free.push(place);
            }
        }
    }
}

/// One request on each connection: what no server can do with fewer calls. The request is there when the connection is,
/// or is waited for; the answer leaves with the end.
fn close_each(listener: &TcpListener, answer: &[u8]) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        let mut have = 0;
        while !buffer[..have].ends_with(END_OF_HEAD) {
            match stream.read(&mut buffer[have..]) {
                Ok(count) if count > 0 => have += count,
                _ => break,
            }
        }
        // Whoever goes away without a request has its connection closed like all others.
        if have > 0 {
            let _ = net::send(&stream, answer, SendFlags::MORE | SendFlags::NOSIGNAL);
        }
    }
}

/// What is sent for every request, with this in its `Connection`.
pub fn answer(size: usize, connection: &str) -> Vec<u8> {
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\nServer: canned\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {size}\r\n\
         Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\nETag: \"0-0\"\r\nAccept-Ranges: bytes\r\n\
         Connection: {connection}\r\n\r\n"
    )
    .into_bytes();
    answer.resize(answer.len() + size, b'x');
    answer
}

fn accept(
    listener: &TcpListener,
    poller: &OwnedFd,
    connections: &mut Vec<Option<Connection>>,
    free: &mut Vec<usize>,
) -> Result<()> {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        stream.set_nonblocking(true)?;
        let place = free.pop().unwrap_or_else(|| {
            connections.push(None);
            connections.len() - 1
        });
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(poller, stream.as_fd(), EventData::new_u64(place as u64), flags)?;
        connections[place] = Some(Connection { stream, matched: 0, owed: 0 });
    }
}

impl Connection {
    /// Reads and answers what there is; `false` when the connection is over.
    fn drive(&mut self, answer: &Answer, buffer: &mut [u8]) -> bool {
        loop {
            if self.owed > 0 {
                if !self.send(answer) {
                    return false;
                }
                if self.owed > 0 {
                    return true;
                }
            }
            match self.stream.read(buffer) {
                Ok(0) => return false,
                Ok(length) => self.owed += self.count_requests(&buffer[..length]) * answer.length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
    }

    fn send(&mut self, answer: &Answer) -> bool {
        while self.owed > 0 {
            let left = match self.owed % answer.length {
                0 => answer.length,
                left => left,
            };
            match answer.send(&self.stream, answer.length - left) {
                Ok((sent, is_full)) => {
                    self.owed -= sent;
                    if is_full {
                        return true;
                    }
                }
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn count_requests(&mut self, bytes: &[u8]) -> usize {
        // The usual case: exactly one request.
        if self.matched == 0 && bytes.len() < 512 && bytes.ends_with(END_OF_HEAD) && count(bytes) == 1 {
            return 1;
        }
        let mut requests = 0;
        for &byte in bytes {
            self.matched = match byte {
                _ if byte == END_OF_HEAD[self.matched] => self.matched + 1,
                b'\r' => 1,
                _ => 0,
            };
            if self.matched == END_OF_HEAD.len() {
                requests += 1;
                self.matched = 0;
            }
        }
        requests
    }
}

fn count(bytes: &[u8]) -> usize {
    bytes.windows(END_OF_HEAD.len()).filter(|window| *window == END_OF_HEAD).count()
}
