//! Outgoing connections: an address and a connect that does not wait. The client crate and the load
//! generator build on it; name resolution is theirs.

use crate::socket::Stream;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect as connect_to, ipproto,
    socket_with, sockopt,
};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// Where a peer listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(Arc<Path>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// How a connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connecting {
    /// It is open.
    Done,
    /// The socket becomes writable when it is open or has failed; then ask [`Stream::connect_result`].
    Pending,
}

/// Opens a non-blocking socket (`TCP_NODELAY`) and begins to connect it, from `source` where one is named
/// (port 0: any).
///
/// # Errors
/// No descriptor, no such path, or refused at once. A unix socket whose queue is full is
/// [`io::ErrorKind::WouldBlock`]: the peer is there and busy.
pub fn connect(to: &Address, source: Option<SocketAddr>) -> io::Result<(Stream, Connecting)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (fd, result) = match to {
        Address::Tcp(address) => {
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let fd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
            sockopt::set_tcp_nodelay(&fd, true)?;
            if let Some(source) = source {
                bind(&fd, &source)?;
            }
            let result = connect_to(&fd, address);
            (fd, result)
        }
        Address::Unix(path) => {
            let address = SocketAddrUnix::new(&**path)?;
            let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            let result = connect_to(&fd, &address);
            (fd, result)
        }
    };
    match result {
        Ok(()) => Ok((Stream::new(fd), Connecting::Done)),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok((Stream::new(fd), Connecting::Pending)),
        Err(error) => Err(error.into()),
    }
}

impl Stream {
    /// What became of a connect, once the socket is writable.
    ///
    /// # Errors
    /// The connection was not made: the reason is that of the system.
    pub fn connect_result(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(self.as_fd())??)
    }
}
