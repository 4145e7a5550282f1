//! Sockets: listening, accepting, and the few calls that a connection makes.

use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, acceptfrom_with, recv, send, sendmsg,
};
use socket2::{Domain, SockAddr, Socket, Type};
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Address and port.
    Tcp(SocketAddr),
    /// A client on a unix socket; it has no address.
    Unix,
}

impl Peer {
    /// Its address; `None` on a unix socket. An IPv4 client of an IPv6 socket, `::ffff:a.b.c.d`, is the IPv4 client that
    /// it is.
    #[inline]
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Peer::Tcp(address) => Some(address.ip().to_canonical()),
            Peer::Unix => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip() {
            Some(address) => address.fmt(f),
            None => f.write_str("a unix socket"),
        }
    }
}

/// What a listening socket is told about the connections it will give.
#[derive(Debug, Clone, Copy)]
pub struct ListenOptions {
    /// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
    pub backlog: u32,
    /// The kernel keeps a connection back until its first bytes are there, this long at most
    /// (`TCP_DEFER_ACCEPT`).
    pub defer: Duration,
}

/// Opens `count` sockets that share one TCP address (`SO_REUSEPORT`), one for each worker. Port 0 takes a
/// free port, the same for all.
///
/// # Errors
/// `AddrInUse`: somebody listens there already, even one who would share the address. Otherwise the address
/// is not ours to take, or there is no descriptor left.
pub fn listen_tcp(address: SocketAddr, count: usize, options: &ListenOptions) -> io::Result<Vec<OwnedFd>> {
    let mut address = address;
    if address.port() != 0 {
        // A socket that does not share: it finds whoever listens there already.
        bound(address, false)?.listen(1)?;
    }
    let mut sockets = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = one_more_tcp(address, options)?;
        if address.port() == 0
            && let Peer::Tcp(taken) = local_address(socket.as_fd())?
        {
            address = taken;
        }
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Opens another socket of an address that this process listens on already, with [`listen_tcp`].
///
/// # Errors
/// The address cannot be taken, as where somebody has it who does not share it, or there is no descriptor
/// left.
pub fn one_more_tcp(address: SocketAddr, options: &ListenOptions) -> io::Result<OwnedFd> {
    let socket = bound(address, true)?;
    socket.set_tcp_nodelay(true)?; // inherited by what is accepted
    set_defer_accept(socket.as_fd(), options.defer)?;
    socket.listen(options.backlog.min(i32::MAX as u32) as i32)?;
    Ok(socket.into())
}

/// Makes a listening stream socket that somebody else has opened one like ours, and tells what it listens
/// on: an address, or the path of a unix socket.
///
/// # Errors
/// `InvalidInput`: it is no stream socket that listens on an address or a path. Otherwise it is no socket, or
/// does not take our options.
pub fn adopt_listener(fd: BorrowedFd<'_>, defer: Duration) -> io::Result<Result<SocketAddr, PathBuf>> {
    use rustix::net::{SocketType, sockopt};
    let is_ours = sockopt::socket_type(fd)? == SocketType::STREAM && sockopt::socket_acceptconn(fd)?;
    let address = rustix::net::getsockname(fd)?;
    rustix::io::ioctl_fionbio(fd, true)?;
    let foreign = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    match SocketAddr::try_from(address.clone()) {
        _ if !is_ours => foreign("it is no listening stream socket"),
        Ok(tcp) => {
            sockopt::set_tcp_nodelay(fd, true)?;
            set_defer_accept(fd, defer)?;
            Ok(Ok(tcp))
        }
        Err(_) => {
            let unix = rustix::net::SocketAddrUnix::try_from(address);
            match unix.ok().as_ref().and_then(|unix| unix.path_bytes()) {
                Some(path) => Ok(Err(PathBuf::from(OsStr::from_bytes(path)))),
                None => foreign("it listens neither on an address nor on a path"),
            }
        }
    }
}

/// Bounds the unsent bytes that the kernel takes for each connection accepted from now on
/// (`TCP_NOTSENT_LOWAT`, inherited); 0 leaves it to the kernel. Without effect on a unix socket.
pub fn bound_unsent(listener: BorrowedFd<'_>, bytes: u32) {
    let _ = socket2::SockRef::from(&listener).set_tcp_notsent_lowat(bytes);
}

/// Bounds what the kernel holds of what was sent on a connection until it is acknowledged, twice so many bytes with all that
/// it keeps beside them (`SO_SNDBUF`). It does not grow by itself any more.
pub fn bound_send_buffer(connection: BorrowedFd<'_>, bytes: u32) {
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(connection, bytes as usize);
}

/// Lets the kernel choose again what [`bound_send_buffer`] and [`bound_unread`] have bounded (`SO_BUF_LOCK`, since Linux 5.14; before, the bound
/// stays).
pub fn leave_send_buffer_to_the_kernel(connection: BorrowedFd<'_>) {
    let nothing_is_locked: libc::c_int = 0;
    // SAFETY: the pointer and the length describe `nothing_is_locked`, which outlives the call.
    #[allow(unsafe_code)]
    let _ = unsafe {
        libc::setsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUF_LOCK,
            (&raw const nothing_is_locked).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

/// Has the kernel spread what it sends, so that it is no faster than so many bytes a second (`SO_MAX_PACING_RATE`, socket(7));
/// `None` lets it go. Where the kernel does not know how, it sends as ever.
pub fn bound_pace(connection: BorrowedFd<'_>, most: Option<u64>) {
    let rate =
        most.map_or(libc::c_ulong::MAX, |most| libc::c_ulong::try_from(most).unwrap_or(libc::c_ulong::MAX));
    // SAFETY: the pointer and the length describe `rate`, which outlives the call.
    #[allow(unsafe_code)]
    let _ = unsafe {
        libc::setsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of::<libc::c_ulong>() as libc::socklen_t,
        )
    };
}

/// Bounds the bytes received and not read that the kernel keeps for a connection (`SO_RCVBUF`, which ends its own growth of
/// the buffer). Without effect on a unix socket, where the sender's buffer counts.
///
/// # Errors
/// What the system says.
pub fn bound_unread(connection: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_recv_buffer_size(connection, bytes)?)
}

/// Opens a unix socket, in place of a stale one.
///
/// `prepare` may change who may connect: it is called when the file is there and nobody can connect yet.
///
/// # Errors
/// `AddrInUse`: somebody still answers there, or it cannot be told whether. `AlreadyExists`: something else than a
/// socket lies there. Otherwise the path is too long or
/// not ours to write, there is no descriptor left, or `prepare` has failed.
pub fn listen_unix(
    path: &Path,
    backlog: u32,
    prepare: &dyn Fn(&Path) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let address = SockAddr::unix(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    if let Err(e) = socket.bind(&address) {
        // To connect to a file of another kind is refused as well: it is somebody's, and stays.
        if std::fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_socket()) {
            let text = "there is a file that is no socket; move it, or take another path";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let is_stale = e.kind() == io::ErrorKind::AddrInUse
            && Socket::new(Domain::UNIX, Type::STREAM, None)?
                .connect(&address)
                .is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
        if !is_stale {
            return Err(e);
        }
        std::fs::remove_file(path)?;
        socket.bind(&address)?;
    }
    socket.set_nonblocking(true)?;
    prepare(path).inspect_err(|_| drop(std::fs::remove_file(path)))?;
    socket.listen(backlog.min(i32::MAX as u32) as i32)?;
    Ok(socket.into())
}

/// Takes over a descriptor that another process has left open for this one. The caller names each number
/// once.
///
/// # Errors
/// `fd` is not an open descriptor.
pub fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    close_on_exec(fd)?;
    // SAFETY: it is open, and by the contract with the process that left it nobody else owns it.
    #[allow(unsafe_code)]
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Keeps whatever this process has inherited from those that it starts: what a shell has left open, perhaps a file of
/// keys, is for nobody else. Standard input, output and error stay. Called before anything is started.
pub fn keep_inherited_to_oneself() {
    // Without /proc there is nothing to go by.
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    for fd in numbers.filter(|fd| *fd > 2).collect::<Vec<_>>() {
        let _ = close_on_exec(fd); // it may have been that of the folder
    }
}

fn close_on_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: borrowed only for the call; a closed number is an error of it, not undefined.
    #[allow(unsafe_code)]
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?)
}

/// The address of a listening or connected socket.
///
/// # Errors
/// The descriptor is no socket.
pub fn local_address(fd: BorrowedFd<'_>) -> io::Result<Peer> {
    let address = rustix::net::getsockname(fd)?;
    Ok(SocketAddr::try_from(address).map_or(Peer::Unix, Peer::Tcp))
}

fn bound(address: SocketAddr, shares: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shares)?;
    if address.is_ipv6() {
        // `[::]` takes IPv4 as well, whatever the host's default is.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn set_defer_accept(socket: BorrowedFd<'_>, wait: Duration) -> io::Result<()> {
    let seconds = wait.as_secs().min(60) as libc::c_int;
    // SAFETY: the pointer and the length describe `seconds`, which outlives the call.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Connections that wait to be accepted on a TCP socket (`TCP_INFO`, where a listening socket tells the
/// length of its queue in place of the unacknowledged segments). `None` for a unix socket.
pub fn accept_queue(listener: BorrowedFd<'_>) -> Option<u32> {
    tcp_info(listener).map(|(info, _)| info.tcpi_unacked)
}

/// What the kernel knows of a TCP socket, and how many bytes of it it has told.
fn tcp_info(socket: BorrowedFd<'_>) -> Option<(libc::tcp_info, usize)> {
    // SAFETY: a plain structure of integers; all zeros is one.
    #[allow(unsafe_code)]
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the pointers describe `info` and `length`, which outlive the call; the kernel writes no more
    // than `length` bytes.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some((info, length as usize))
}

/// Bytes that the kernel has accepted for the peer of a socket and not got rid of, as [`SendQueue::waiting`]
/// (`SIOCOUTQ`). One call.
pub fn send_queue_len(socket: BorrowedFd<'_>) -> u64 {
    let mut waiting: libc::c_int = 0;
    // SAFETY: the request writes one `int` at the pointer, which is that of `waiting`.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
    if result == 0 { u64::try_from(waiting).unwrap_or(0) } else { 0 }
}

/// What the kernel has not got rid of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendQueue {
    /// Bytes that the peer has acknowledged since the connection began; `None` where the kernel does not count
    /// them, as on a unix socket.
    pub acknowledged: Option<u64>,
    /// Bytes that were accepted and have not left: for TCP those that are not acknowledged (`SIOCOUTQ`). On a
    /// unix socket what the kernel keeps with them is counted, too.
    pub waiting: u64,
}

/// Accepts one connection. `Ok(None)`: nobody waits.
///
/// # Errors
/// No descriptor or no memory is left, or the connection has failed before it was accepted.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<(Stream, Peer)>> {
    match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok((fd, address)) => {
            let peer = address.and_then(|a| SocketAddr::try_from(a).ok()).map_or(Peer::Unix, Peer::Tcp);
            Ok(Some((Stream { fd }, peer)))
        }
        Err(Errno::AGAIN) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// What a read gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// So many bytes; `drained` when the socket holds no more.
    Bytes {
        /// At least 1.
        count: usize,
        /// The read came up short, so the next byte raises a new edge.
        drained: bool,
    },
    /// The peer has finished sending.
    End,
    /// Nothing there yet.
    WouldBlock,
}

/// A connected, non-blocking stream socket.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
}

impl Stream {
    /// Takes a non-blocking socket.
    pub fn new(fd: OwnedFd) -> Self {
        Stream { fd }
    }

    /// The address that the peer has connected to; `None` for a unix socket.
    pub fn local_ip(&self) -> Option<IpAddr> {
        match local_address(self.fd.as_fd()) {
            Ok(Peer::Tcp(address)) => Some(address.ip()),
            Ok(Peer::Unix) | Err(_) => None,
        }
    }

    /// Receives what is there into `buffer`, which has room for a byte at least (`recv(2)`).
    ///
    /// # Errors
    /// The connection is broken, as by a reset.
    #[inline]
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let room = buffer.len();
        debug_assert!(room > 0, "invariant: nothing read into no room looks like the end");
        match recv(&self.fd, buffer, RecvFlags::empty()) {
            Ok((0, _)) => Ok(Received::End),
            Ok((count, _)) => Ok(Received::Bytes { count, drained: count < room }),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Received::WouldBlock),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether nothing has come that was not read: closing now destroys nothing that is on its way.
    pub fn is_quiet(&self) -> bool {
        matches!(recv(&self.fd, &mut [0; 1], RecvFlags::PEEK), Err(Errno::AGAIN))
    }

    /// Sends what the socket takes, 0 when it is full. `more` keeps a partial segment back (`MSG_MORE`).
    ///
    /// # Errors
    /// The connection is broken, or the peer has closed it.
    #[inline]
    pub fn send(&self, data: &[u8], more: bool) -> io::Result<usize> {
        taken(send(&self.fd, data, flags(more)))
    }

    /// As [`Stream::send`], for several pieces in one call.
    ///
    /// # Errors
    /// As [`Stream::send`].
    #[inline]
    pub fn send_all(&self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        taken(sendmsg(&self.fd, pieces, &mut SendAncillaryBuffer::default(), flags(more)))
    }

    /// Tells the peer that nothing more comes.
    ///
    /// # Errors
    /// The socket is not connected any more.
    pub fn finish_sending(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Write)?)
    }

    /// What the peer has taken of what was sent, and what it has not. Two calls: not for every request.
    pub fn send_queue(&self) -> SendQueue {
        let told = std::mem::offset_of!(libc::tcp_info, tcpi_bytes_acked) + size_of::<u64>();
        SendQueue {
            acknowledged: tcp_info(self.fd.as_fd())
                .and_then(|(info, length)| (length >= told).then_some(info.tcpi_bytes_acked)),
            waiting: send_queue_len(self.fd.as_fd()),
        }
    }

    /// Makes closing send a reset, so that nothing of it stays behind in the kernel.
    pub fn reset_on_close(&self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO));
    }
}

impl From<Stream> for OwnedFd {
    fn from(stream: Stream) -> OwnedFd {
        stream.fd
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn flags(more: bool) -> SendFlags {
    SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() }
}

fn taken(result: Result<usize, Errno>) -> io::Result<usize> {
    match result {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpStream};

    /// Only a socket that nobody answers on gives way; a file that somebody has named by mistake is kept.
    #[test]
    fn a_unix_socket_takes_the_place_of_a_stale_one_and_of_nothing_else() {
        let folder = std::env::temp_dir().join(format!("tidegate-listen-unix-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let open = |name: &str| listen_unix(&folder.join(name), 1, &|_| Ok(()));
        drop(open("socket").unwrap());
        let socket = open("socket").unwrap();
        assert_eq!(open("socket").unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        std::fs::write(folder.join("file"), "precious").unwrap();
        std::os::unix::fs::symlink("file", folder.join("link")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(open(name).unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{name}");
        }
        assert_eq!(std::fs::read(folder.join("link")).unwrap(), b"precious");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_kernel_is_told_how_fast_it_may_send() {
        let told = |socket: BorrowedFd<'_>| {
            let (mut rate, mut length): (u64, libc::socklen_t) = (0, 8);
            // SAFETY: the pointers describe `rate` and `length`, which outlive the call.
            #[allow(unsafe_code)]
            let result = unsafe {
                libc::getsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_MAX_PACING_RATE,
                    (&raw mut rate).cast(),
                    &raw mut length,
                )
            };
            assert_eq!((result, length), (0, 8));
            rate
        };
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        bound_pace(socket.as_fd(), Some(20 << 30));
        assert_eq!(told(socket.as_fd()), 20 << 30);
        bound_pace(socket.as_fd(), None);
        assert_eq!(told(socket.as_fd()), u64::MAX);
    }

    #[test]
    fn who_waits_to_be_accepted_is_counted() {
        let options = ListenOptions { backlog: 16, defer: Duration::ZERO };
        let sockets = listen_tcp((Ipv4Addr::LOCALHOST, 0).into(), 1, &options).unwrap();
        let listener = sockets[0].as_fd();
        assert_eq!(accept_queue(listener), Some(0));
        let Peer::Tcp(address) = local_address(listener).unwrap() else { panic!("a TCP socket") };
        let _clients = [TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap()];
        assert_eq!(accept_queue(listener), Some(2));
        let (stream, _) = accept(listener).unwrap().unwrap();
        assert_eq!(accept_queue(listener), Some(1));
        assert!(stream.is_quiet());
    }

    /// A pair of connected sockets, the first of which does not block.
    fn tcp_pair() -> (Stream, TcpStream) {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        (Stream::new(stream.into()), client)
    }

    #[test]
    fn what_a_peer_has_taken_is_known_apart_from_what_the_kernel_has() {
        let (stream, mut client) = tcp_pair();
        let piece = [7; 64 << 10];
        let mut accepted = 0;
        loop {
            match stream.send(&piece, false).unwrap() {
                0 => break,
                count => accepted += count as u64,
            }
        }
        let before = stream.send_queue();
        assert!(before.waiting > 0, "{before:?}");
        assert_eq!(before.acknowledged, Some(accepted - before.waiting));
        client.set_read_timeout(Some(tidegate_testkit::WAIT)).unwrap();
        let mut read = vec![0; accepted as usize];
        client.read_exact(&mut read).unwrap();
        let after = tidegate_testkit::wait_for(
            || Some(stream.send_queue()).filter(|queue| queue.waiting == 0),
            "the last acknowledgement",
        );
        assert_eq!(after.acknowledged, Some(accepted));
    }

    #[test]
    fn a_unix_socket_tells_only_what_waits() {
        let (stream, mut client) = std::os::unix::net::UnixStream::pair().unwrap();
        let stream = Stream::new(stream.into());
        assert_eq!(stream.send_queue(), SendQueue { acknowledged: None, waiting: 0 });
        assert_eq!(stream.send(b"hello", false).unwrap(), 5);
        assert!(stream.send_queue().waiting >= 5);
        client.read_exact(&mut [0; 5]).unwrap();
        assert_eq!(stream.send_queue().waiting, 0);
    }
}
