//! The floor of the static bench: answers every request with the same bytes and looks at none of it.
//!
//! What it costs is what the kernel costs; a server can only be measured against it. Started by the bench as
//! `xtask canned`, a process of its own. Edge-triggered epoll, one thread or as many as asked for that share nothing, no
//! timers, no parsing but for the blank line that ends a request.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use anyhow::Result;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{self, AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};

use super::events;

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

const END_OF_HEAD: &[u8] = b"\r\n\r\n";

struct Connection {
    stream: TcpStream,
    /// Bytes of `END_OF_HEAD` seen at the end of the last read.
    matched: usize,
    /// Bytes still to send; several answers where requests came together.
    owed: usize,
}

/// Serves until it is ended from outside.
pub fn run(arguments: &Arguments) -> Result<()> {
    let answer = answer(arguments.size, if arguments.closes { "close" } else { "keep-alive" });
    if arguments.closes {
        return close_each(&listener(arguments.port)?, &answer);
    }
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
fn work(listener: &TcpListener, answer: &[u8]) -> Result<()> {
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
    fn drive(&mut self, answer: &[u8], buffer: &mut [u8]) -> bool {
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
                Ok(length) => self.owed += self.count_requests(&buffer[..length]) * answer.len(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
    }

    fn send(&mut self, answer: &[u8]) -> bool {
        while self.owed > 0 {
            let left = match self.owed % answer.len() {
                0 => answer.len(),
                left => left,
            };
            match self.stream.write(&answer[answer.len() - left..]) {
                Ok(length) => self.owed -= length,
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
