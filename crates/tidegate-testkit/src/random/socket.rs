//! A connection of either side: TCP, TLS over it, or a unix socket, with bounded waits and every way to end it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Address;
use crate::tls::{self, TlsOptions, TlsStream};

/// The longest that a peer may take nothing of what is sent.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);

/// What came of a look for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Got {
    Bytes(usize),
    /// The other side has closed in order.
    End,
    /// It has reset the connection.
    Reset,
    /// Nothing within the time.
    Nothing,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
}

/// A connection.
pub(super) struct Socket {
    stream: Stream,
}

impl Socket {
    /// Connects. A `receive_buffer` is set before the connection is made, since the window scale is agreed upon then.
    pub(super) fn connect(address: &Address, receive_buffer: Option<usize>) -> io::Result<Socket> {
        let stream = match address {
            Address::Tcp(address) => {
                let domain = socket2::Domain::for_address(*address);
                let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
                if let Some(size) = receive_buffer {
                    socket.set_recv_buffer_size(size)?;
                }
                socket.connect_timeout(&(*address).into(), Duration::from_secs(20))?;
                socket.set_tcp_nodelay(true)?;
                Stream::Tcp(socket.into())
            }
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        };
        Ok(Socket { stream }.with_write_patience())
    }

    pub(super) fn from_tcp(stream: TcpStream) -> Socket {
        // Without it answers are only slower.
        let _ = stream.set_nodelay(true);
        Socket { stream: Stream::Tcp(stream) }.with_write_patience()
    }

    pub(super) fn from_unix(stream: UnixStream) -> Socket {
        Socket { stream: Stream::Unix(stream) }.with_write_patience()
    }

    fn with_write_patience(self) -> Socket {
        let result = match &self.stream {
            Stream::Tcp(stream) => stream.set_write_timeout(Some(WRITE_PATIENCE)),
            Stream::Unix(stream) => stream.set_write_timeout(Some(WRITE_PATIENCE)),
            Stream::Tls(stream) => stream.sock.set_write_timeout(Some(WRITE_PATIENCE)),
        };
        result.expect("invariant: the time is not zero");
        self
    }

    /// Makes a TLS handshake on it.
    pub(super) fn secure(
        self,
        config: &Arc<rustls::ClientConfig>,
        options: &TlsOptions,
    ) -> Result<Socket, String> {
        let Stream::Tcp(stream) = self.stream else { return Err("TLS needs a TCP listener here".to_owned()) };
        stream.set_read_timeout(Some(Duration::from_secs(20))).map_err(|error| error.to_string())?;
        Ok(Socket { stream: Stream::Tls(Box::new(tls::connect(stream, config, options, &[])?)) })
    }

    /// Waits for bytes.
    pub(super) fn read(&mut self, buffer: &mut [u8], patience: Duration) -> Got {
        let patience = Some(patience.max(Duration::from_millis(1)));
        let result = match &mut self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(patience).and_then(|()| stream.read(buffer)),
            Stream::Unix(stream) => stream.set_read_timeout(patience).and_then(|()| stream.read(buffer)),
            Stream::Tls(stream) => stream.sock.set_read_timeout(patience).and_then(|()| stream.read(buffer)),
        };
        match result {
            Ok(0) => Got::End,
            Ok(count) => Got::Bytes(count),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Got::Nothing,
                // TLS that ends without a close_notify has been cut.
                _ => Got::Reset,
            },
        }
    }

    /// Waits for bytes, and takes as many as are there already up to the length of `buffer`: TLS gives one record at a time,
    /// and who reads at a pace would read at that of records.
    pub(super) fn read_full(&mut self, buffer: &mut [u8], patience: Duration) -> Got {
        let mut filled = match self.read(buffer, patience) {
            Got::Bytes(count) => count,
            other => return other,
        };
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..], Duration::ZERO) {
                Got::Bytes(count) => filled += count,
                _ => break, // an end is seen by the next read
            }
        }
        Got::Bytes(filled)
    }

    /// Sends all of it.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    /// Says that nothing more will be sent. With TLS that is a `close_notify`.
    pub(super) fn finish_sending(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
            Stream::Tls(stream) => {
                stream.conn.send_close_notify();
                stream.flush()?;
                stream.sock.shutdown(Shutdown::Write)
            }
        }
    }

    /// Ends it with a reset, where the kind of socket knows such a thing.
    pub(super) fn reset(self) {
        let linger = Some(Duration::ZERO);
        // Where it fails, the connection is closed in order instead, which is as good an end.
        let _ = match &self.stream {
            Stream::Tcp(stream) => socket2::SockRef::from(&stream.as_fd()).set_linger(linger),
            Stream::Tls(stream) => socket2::SockRef::from(&stream.sock.as_fd()).set_linger(linger),
            Stream::Unix(_) => Ok(()),
        };
    }
}
