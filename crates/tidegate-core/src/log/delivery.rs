//! Lines on their way to a daemon that collects logs: the socket, and what becomes of lines while the daemon is away.
//!
//! The writer thread alone uses it, and never waits here: what the daemon does not take now stays with the writer, which
//! holds it as for a full disk or a pipe that nobody reads (FAULTS 51). A daemon that has gone and come back is found again
//! by the next line. Each server process opens its own socket, since it has to do so again whenever the daemon restarts.

use super::message::Speaker;
use super::record::{Before, Record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_error;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, send, sendmsg, socket_with,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;
use tidegate_config::settings::{Collector, CollectorAddress};
use tidegate_io::sealed;

/// The way to one daemon.
pub(super) struct Delivery {
    to: Collector,
    speaker: Speaker,
    socket: Option<OwnedFd>,
    /// The last call found no room, or a connection that is still being made: there is something to wait for.
    is_blocked: bool,
    /// The socket has taken something.
    is_connected: bool,
    /// The message of the first line that has not been taken.
    message: Vec<u8>,
    /// How much of it a stream has taken.
    sent: usize,
    /// Of the last line, which those that are indented go on with.
    before: Before,
}

impl Delivery {
    /// To a daemon, which need not be there yet.
    pub(super) fn to(to: &Collector) -> Delivery {
        Delivery {
            to: to.clone(),
            speaker: Speaker::this(),
            socket: None,
            is_blocked: false,
            is_connected: false,
            message: Vec::new(),
            sent: 0,
            before: Before::default(),
        }
    }

    /// Sends lines as far as that goes: how many bytes of whole lines, and why no more.
    pub(super) fn write(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        if let Some(socket) = self.socket.as_ref().filter(|socket| has_gone(socket)) {
            let why = socket_error(socket).ok().and_then(Result::err);
            let was_connected = self.is_connected;
            self.close();
            // One that has never come about is not tried again at once.
            if !was_connected {
                let why = why.unwrap_or(rustix::io::Errno::CONNREFUSED);
                return (0, Err(why.into()));
            }
        }
        let mut at = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let record = Record::of(line.strip_suffix(b"\n").unwrap_or(line), self.before);
            if self.sent == 0 {
                self.speaker.write(&mut self.message, &self.to, &record);
            }
            self.before = record.as_before();
            if let Err(error) = self.deliver() {
                return (at, Err(error));
            }
            at += line.len();
        }
        (at, Ok(()))
    }

    /// Sends the message; once more where the daemon has been replaced since the last one.
    fn deliver(&mut self) -> io::Result<()> {
        let was_open = self.socket.is_some();
        match self.send() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                self.close();
                if was_open { self.send().inspect_err(|_| self.close_unless_blocked()) } else { Err(error) }
            }
            outcome => outcome,
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => open(&self.to.at)?,
        };
        let socket = self.socket.insert(socket);
        self.is_blocked = false;
        let is_stream = matches!(self.to.at, CollectorAddress::Tcp(_));
        let sent = send_on(socket, &self.message, self.sent, is_stream, &self.to.at);
        match sent {
            Ok(count) => {
                self.sent += count;
                self.is_connected = true;
                self.is_blocked = self.sent < self.message.len();
            }
            Err(error) => {
                self.is_blocked = error.kind() == io::ErrorKind::WouldBlock;
                return Err(if self.is_blocked { busy() } else { error });
            }
        }
        if self.is_blocked {
            return Err(busy());
        }
        self.sent = 0;
        Ok(())
    }

    /// Closes the socket: what a stream has taken of a message is nothing without its rest.
    pub(super) fn close(&mut self) {
        (self.socket, self.is_blocked, self.is_connected, self.sent) = (None, false, false, 0);
    }

    fn close_unless_blocked(&mut self) {
        if !self.is_blocked {
            self.close();
        }
    }

    /// Whether it waits for the daemon to take something, or to be connected.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Waits until the daemon takes something, for so long at most; whether it may.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let Some(socket) = &self.socket else { return false };
        let patience = Timespec::try_from(patience).ok();
        let mut fd = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)];
        poll(&mut fd, patience.as_ref()).is_ok_and(|count| count > 0)
    }
}

fn busy() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, "the daemon takes nothing")
}

/// Whether the other end of a stream has closed it, or a connection has failed.
fn has_gone(socket: &OwnedFd) -> bool {
    let mut fd = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::RDHUP)];
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut fd, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
        && fd[0].revents().intersects(gone)
}

fn open(at: &CollectorAddress) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let unix = |path: &Path| {
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(socket)
    };
    let internet = |address: &SocketAddr, kind| {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, kind, flags, None)?;
        match connect(&socket, address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
            Err(error) => Err(error.into()),
        }
    };
    match at {
        CollectorAddress::Journal(path) | CollectorAddress::Unix { path, .. } => unix(path),
        CollectorAddress::Udp(address) => internet(address, SocketType::DGRAM),
        CollectorAddress::Tcp(address) => internet(address, SocketType::STREAM),
    }
}

/// Sends a message from `start` on: how much of it has been taken.
fn send_on(
    socket: &OwnedFd,
    message: &[u8],
    start: usize,
    is_stream: bool,
    at: &CollectorAddress,
) -> io::Result<usize> {
    let rest = message.get(start..).unwrap_or_default();
    loop {
        return match send(socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(count) => Ok(count),
            Err(rustix::io::Errno::INTR) => continue,
            // It is still being connected, or why it could not be.
            Err(rustix::io::Errno::NOTCONN) if is_stream => match socket_error(socket)? {
                Ok(()) => Err(io::ErrorKind::WouldBlock.into()),
                Err(error) => Err(error.into()),
            },
            Err(rustix::io::Errno::MSGSIZE | rustix::io::Errno::NOBUFS)
                if matches!(at, CollectorAddress::Journal(_)) =>
            {
                send_sealed(socket, message)
            }
            // Longer than this machine takes: half of it says more than nothing.
            Err(rustix::io::Errno::MSGSIZE) if rest.len() > 1024 => {
                send_on(socket, &rest[..rest.len() / 2], 0, is_stream, at).map(|_| rest.len())
            }
            Err(error) => Err(error.into()),
        };
    }
}

/// An entry that is larger than a datagram may be: the journal gets a descriptor of sealed memory.
fn send_sealed(socket: &OwnedFd, entry: &[u8]) -> io::Result<usize> {
    let sealed = sealed::seal("tidegate-journal", entry)?;
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [sealed.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    sendmsg(socket, &[], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(entry.len())
}
