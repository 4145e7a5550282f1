//! One client connection of a transcript: bounded reads and writes on a TCP or unix socket.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::tls::{self, TlsOptions, TlsStream};

/// The longest that a transcript waits for anything that a client sends or receives.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// Where a listener is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// An address and port.
    Tcp(SocketAddr),
    /// The path of a socket.
    Unix(PathBuf),
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
}

/// What an attempt to read more brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    /// More bytes.
    More,
    /// The server closed in order.
    Eof,
    /// The server reset the connection.
    Reset,
    /// Nothing until the deadline.
    TimedOut,
}

/// A connection and what was received but not yet looked at.
pub(crate) struct Client {
    stream: Stream,
    /// Received, not yet consumed.
    pub(crate) received: Vec<u8>,
    ended: Option<Filled>,
}

impl Client {
    /// Connects. `receive_buffer` bounds what the kernel takes for a client that does not read.
    pub(crate) fn connect(address: &Address, receive_buffer: Option<usize>) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("cannot connect to {address:?}: {error}");
        let stream = match address {
            Address::Tcp(address) => {
                let domain = socket2::Domain::for_address(*address);
                let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).map_err(failed)?;
                if let Some(size) = receive_buffer {
                    // Before the connection is made: the window scale is agreed upon then.
                    socket.set_recv_buffer_size(size).map_err(failed)?;
                }
                socket.connect_timeout(&(*address).into(), WAIT).map_err(failed)?;
                socket.set_tcp_nodelay(true).map_err(failed)?;
                Stream::Tcp(socket.into())
            }
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path).map_err(failed)?),
        };
        Ok(Client { stream, received: Vec::new(), ended: None })
    }

    /// Makes a TLS handshake on it, with `early` in its first packet.
    pub(crate) fn secure(
        self,
        config: &Arc<rustls::ClientConfig>,
        options: &TlsOptions,
        early: &[u8],
    ) -> Result<Self, String> {
        let Stream::Tcp(stream) = self.stream else { return Err("TLS needs a TCP listener here".to_owned()) };
        let prepared =
            stream.set_read_timeout(Some(WAIT)).and_then(|()| stream.set_write_timeout(Some(WAIT)));
        prepared.map_err(|error| error.to_string())?;
        let stream = Stream::Tls(Box::new(tls::connect(stream, config, options, early)?));
        Ok(Client { stream, received: Vec::new(), ended: None })
    }

    /// The TLS connection, where it is one.
    pub(crate) fn tls(&self) -> Option<&TlsStream> {
        match &self.stream {
            Stream::Tls(stream) => Some(stream),
            _ => None,
        }
    }

    /// A connection that a backend has accepted.
    pub(crate) fn from_tcp(stream: TcpStream) -> Self {
        let _ = stream.set_nodelay(true);
        Client { stream: Stream::Tcp(stream), received: Vec::new(), ended: None }
    }

    /// The same for a unix socket.
    pub(crate) fn from_unix(stream: UnixStream) -> Self {
        Client { stream: Stream::Unix(stream), received: Vec::new(), ended: None }
    }

    /// Sends all of it. A server that has closed already is no failure here: what it answered before will be
    /// looked at, and that tells more.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let deadline = Instant::now() + WAIT;
        let mut rest = bytes;
        while !rest.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let sent = match &mut self.stream {
                Stream::Tcp(stream) => stream.set_write_timeout(Some(left)).and_then(|()| stream.write(rest)),
                Stream::Unix(stream) => {
                    stream.set_write_timeout(Some(left)).and_then(|()| stream.write(rest))
                }
                Stream::Tls(stream) => stream
                    .sock
                    .set_write_timeout(Some(left))
                    .and_then(|()| stream.write(rest))
                    .and_then(|count| stream.flush().map(|()| count)),
            };
            match sent {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                    return Ok(());
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    let done = bytes.len() - rest.len();
                    return Err(format!("the server took only {done} of {} bytes in {WAIT:?}", bytes.len()));
                }
                Err(error) => return Err(format!("sending failed: {error}")),
            }
        }
        Ok(())
    }

    /// Says that nothing more will be sent.
    pub(crate) fn shutdown(&mut self) -> Result<(), String> {
        let done = match &mut self.stream {
            Stream::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(std::net::Shutdown::Write),
            Stream::Tls(stream) => {
                stream.conn.send_close_notify();
                stream.flush()
            }
        };
        match done {
            Err(error) if error.kind() != ErrorKind::NotConnected => {
                Err(format!("half-close failed: {error}"))
            }
            _ => Ok(()),
        }
    }

    /// Closes with a reset instead of in order.
    pub(crate) fn reset(self) -> Result<(), String> {
        match &self.stream {
            Stream::Tcp(stream) => socket2::SockRef::from(stream)
                .set_linger(Some(Duration::ZERO))
                .map_err(|error| format!("reset failed: {error}")),
            Stream::Tls(stream) => socket2::SockRef::from(&stream.sock)
                .set_linger(Some(Duration::ZERO))
                .map_err(|error| format!("reset failed: {error}")),
            Stream::Unix(_) => Err("a unix socket knows no reset".to_owned()),
        }
    }

    /// Waits for more bytes and appends them to `received`.
    pub(crate) fn fill(&mut self, deadline: Instant) -> Result<Filled, String> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        let mut buffer = [0; 16 * 1024];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Filled::TimedOut);
            }
            let read = match &mut self.stream {
                Stream::Tcp(stream) => {
                    stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut buffer))
                }
                Stream::Unix(stream) => {
                    stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut buffer))
                }
                Stream::Tls(stream) => {
                    stream.sock.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut buffer))
                }
            };
            let ended = match read {
                Ok(0) => Filled::Eof,
                Ok(count) => {
                    self.received.extend_from_slice(&buffer[..count]);
                    return Ok(Filled::More);
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => continue,
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(Filled::TimedOut),
                    // With TLS the end of the socket without a word is no end in order.
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                        Filled::Reset
                    }
                    _ => return Err(format!("receiving failed: {error}")),
                },
            };
            self.ended = Some(ended);
            return Ok(ended);
        }
    }

    /// Takes what has arrived already, without waiting.
    pub(crate) fn fill_now(&mut self) -> Result<Filled, String> {
        self.set_nonblocking(true)?;
        let filled = self.fill(Instant::now() + WAIT);
        self.set_nonblocking(false)?;
        filled
    }

    fn set_nonblocking(&self, on: bool) -> Result<(), String> {
        let done = match &self.stream {
            Stream::Tcp(stream) => stream.set_nonblocking(on),
            Stream::Unix(stream) => stream.set_nonblocking(on),
            Stream::Tls(stream) => stream.sock.set_nonblocking(on),
        };
        done.map_err(|error| error.to_string())
    }
}
