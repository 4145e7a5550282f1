//! Accepting: each worker takes connections from its own listening sockets, within the limits.
//!
//! When descriptors run out, accepting pauses instead of spinning: what is open goes on being served, and
//! the next close, or a short while, tries again (FAULTS 41).

use crate::log;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tidegate_config::settings::ListenAddress;
use tidegate_io::socket::{self, Peer, Stream};
use tidegate_stats::{AcceptError, Worker as Stats};

/// Connections accepted from one socket in one turn.
pub(crate) const ACCEPTS: usize = 64;
/// How long accepting rests when descriptors or memory have run out.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// Without a descriptor for this long, those who wait are told so instead of being left to hang.
pub(crate) const EXHAUSTION: Duration = Duration::from_secs(1);
/// How long the kernel keeps a connection back that has sent nothing.
const DEFER: Duration = Duration::from_secs(5);

/// A listening socket of one worker.
pub struct Listener {
    /// Shared by the workers where the kernel gives each no queue of its own (unix sockets).
    pub fd: OwnedFd,
    /// The address it was opened for.
    pub address: ListenAddress,
}

/// Opens the sockets of one address, one for each of `workers`, and tells the address that was really
/// taken (port 0 takes any). `prepare` is for unix sockets: see [`socket::listen_unix`].
///
/// # Errors
/// As [`socket::listen_tcp`] or [`socket::listen_unix`]: the address is taken or not ours to take, or there
/// is no descriptor left.
pub fn open(
    address: &ListenAddress,
    backlog: u32,
    workers: usize,
    prepare: &dyn Fn(&Path) -> io::Result<()>,
) -> io::Result<(Vec<OwnedFd>, ListenAddress)> {
    match address {
        ListenAddress::Tcp(tcp) => {
            let options = socket::ListenOptions { backlog, defer: DEFER };
            let sockets = socket::listen_tcp(*tcp, workers, &options)?;
            let taken = match sockets.first().map(|fd| socket::local_address(fd.as_fd())).transpose()? {
                Some(Peer::Tcp(taken)) => taken,
                _ => *tcp,
            };
            Ok((sockets, ListenAddress::Tcp(taken)))
        }
        ListenAddress::Unix(path) => {
            let first = socket::listen_unix(path, backlog, prepare)?;
            let mut sockets = Vec::with_capacity(workers);
            for _ in 1..workers {
                sockets.push(first.try_clone()?);
            }
            sockets.push(first);
            Ok((sockets, address.clone()))
        }
    }
}

/// Has the kernel hold so many bytes for each TCP connection that is accepted from now on; `None` leaves it to the kernel.
/// Where it does not do that it goes on as before.
pub fn bound_buffers(listener: BorrowedFd<'_>, send: Option<u32>, receive: Option<u32>) {
    socket::leave_send_buffer_to_the_kernel(listener);
    if let Some(bytes) = send {
        socket::bound_send_buffer(listener, bytes);
    }
    if let Some(bytes) = receive {
        let _ = socket::bound_unread(listener, bytes as usize);
    }
}

/// Opens another socket of an address that this process listens on already; `None` where an address has
/// only one (unix sockets).
///
/// # Errors
/// As [`socket::one_more_tcp`].
pub fn one_more(address: &ListenAddress, backlog: u32) -> io::Result<Option<OwnedFd>> {
    match address {
        ListenAddress::Tcp(tcp) => {
            let options = socket::ListenOptions { backlog, defer: DEFER };
            socket::one_more_tcp(*tcp, &options).map(Some)
        }
        ListenAddress::Unix(_) => Ok(None),
    }
}

/// Takes over a listening socket that somebody else has opened, such as systemd, and tells its address.
///
/// # Errors
/// As [`socket::adopt_listener`]: it is no listening stream socket with an address or a path.
pub fn adopt(fd: BorrowedFd<'_>) -> io::Result<ListenAddress> {
    Ok(match socket::adopt_listener(fd, DEFER)? {
        Ok(tcp) => ListenAddress::Tcp(tcp),
        Err(path) => ListenAddress::Unix(path),
    })
}

/// What accepting gave.
pub(crate) enum Accepted {
    /// A connection.
    Connection(Stream, Peer),
    /// One that was given up before it was accepted.
    Aborted,
    /// Nobody waits.
    Nobody,
    /// No descriptor or no memory for it.
    Exhausted,
}

/// Accepts one connection.
#[inline]
pub(crate) fn accept(listener: BorrowedFd<'_>, stats: &Stats) -> Accepted {
    match socket::accept(listener) {
        Ok(Some((stream, peer))) => {
            stats.connections_accepted.add(1);
            Accepted::Connection(stream, peer)
        }
        Ok(None) => Accepted::Nobody,
        Err(error) => refused_by_the_system(&error, stats),
    }
}

/// Running out is said once; the counter tells how often it happened.
static SAID: AtomicBool = AtomicBool::new(false);

#[cold]
fn refused_by_the_system(error: &io::Error, stats: &Stats) -> Accepted {
    let (kind, what) = match error.raw_os_error() {
        Some(libc_errno::EMFILE) => {
            (AcceptError::ProcessDescriptors, "this process may hold no more descriptors (see ulimit -n)")
        }
        Some(libc_errno::ENFILE) => {
            (AcceptError::SystemDescriptors, "the system may hold no more descriptors")
        }
        Some(libc_errno::ENOBUFS | libc_errno::ENOMEM) => {
            (AcceptError::Memory, "the kernel has no memory left")
        }
        Some(libc_errno::ECONNABORTED) => {
            stats.accept_errors.add(AcceptError::Aborted, 1);
            return Accepted::Aborted;
        }
        _ => (AcceptError::Other, "accepting failed"),
    };
    if !SAID.swap(true, Relaxed) {
        log::warn(format_args!("a connection could not be accepted: {what} ({error}); trying again shortly"));
    }
    stats.accept_errors.add(kind, 1);
    Accepted::Exhausted
}

/// The numbers of `errno(3)` that matter here, the same on all Linux architectures served.
mod libc_errno {
    pub const ENOMEM: i32 = 12;
    pub const ENFILE: i32 = 23;
    pub const EMFILE: i32 = 24;
    pub const ECONNABORTED: i32 = 103;
    pub const ENOBUFS: i32 = 105;
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::{socket_recv_buffer_size, socket_send_buffer_size};
    use std::net::TcpStream;

    #[test]
    fn connections_have_the_buffers_of_their_listener() {
        let any = ListenAddress::Tcp("127.0.0.1:0".parse().unwrap());
        let (sockets, taken) = open(&any, 16, 1, &|_| Ok(())).unwrap();
        let ListenAddress::Tcp(taken) = taken else { panic!("it is TCP") };
        let buffers = |send, receive| {
            bound_buffers(sockets[0].as_fd(), send, receive);
            // Sent at once: who has sent nothing is held back by the kernel.
            let mut client = TcpStream::connect(taken).unwrap();
            io::Write::write_all(&mut client, b"x").unwrap();
            loop {
                match socket::accept(sockets[0].as_fd()).unwrap() {
                    Some((stream, _)) => {
                        let (send, receive) =
                            (socket_send_buffer_size(&stream), socket_recv_buffer_size(&stream));
                        return (send.unwrap(), receive.unwrap());
                    }
                    None => std::thread::yield_now(),
                }
            }
        };
        // The kernel tells twice of what was asked for.
        assert_eq!(buffers(Some(32 << 10), Some(16 << 10)), (64 << 10, 32 << 10));
        assert_eq!(buffers(Some(48 << 10), None).0, 96 << 10);
    }
}
