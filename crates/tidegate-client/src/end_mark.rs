//! How one end of a unix socket tells the other that what it has sent is all of it, where several processes write and the end
//! of the connection says nothing: it looks the same when they have been killed.
//!
//! It passes a descriptor, with one byte behind all that was sent. The other end has no room for a descriptor: the kernel
//! closes it, says that it has (`MSG_CTRUNC`), and ends what is received with that byte (unix(7), recvmsg(2)).

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

/// Marks the end of what was sent on a unix socket. `false` where there is no room for that yet, there or in the system: it is
/// to be tried again. Whoever has gone needs no telling.
pub fn mark_end(sent: impl AsFd) -> bool {
    let descriptors = [sent.as_fd()];
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let said = sendmsg(&sent, &[IoSlice::new(b".")], &mut ancillary, flags);
    matches!(said, Ok(_) | Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN))
}

/// What the end of a connection means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndMark {
    /// The end: the peer marks none.
    Unused,
    /// That the peer has broken off: it marks its end, and has not yet.
    Awaited,
    /// Nothing: the mark has come.
    Received,
}

/// Receives up to the mark; 0 is the end.
pub(crate) fn recv_marked(fd: BorrowedFd<'_>, buffer: &mut [u8], mark: &Cell<EndMark>) -> io::Result<usize> {
    if mark.get() == EndMark::Received {
        return Ok(0);
    }
    let mut ancillary = RecvAncillaryBuffer::default();
    let received = recvmsg(fd, &mut [IoSliceMut::new(buffer)], &mut ancillary, RecvFlags::empty())?;
    if received.flags.contains(ReturnFlags::CTRUNC) {
        mark.set(EndMark::Received);
        return Ok(received.bytes.saturating_sub(1));
    }
    match received.bytes {
        0 => Err(io::Error::other("it was ended before its answer was")),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn all_that_was_sent_is_received_and_then_its_end() {
        for rooms in [vec![64], vec![4, 64], vec![3, 1, 64], vec![5]] {
            let (mut one, other) = UnixStream::pair().unwrap();
            one.write_all(b"half").unwrap();
            assert!(mark_end(&one));
            let (mark, mut received) = (Cell::new(EndMark::Awaited), Vec::new());
            let mut rooms = rooms.iter().chain(std::iter::repeat(&64));
            loop {
                let mut buffer = vec![0; *rooms.next().unwrap()];
                match recv_marked(other.as_fd(), &mut buffer, &mark).unwrap() {
                    0 => break,
                    count => received.extend_from_slice(&buffer[..count]),
                }
            }
            assert_eq!(received, b"half");
            assert_eq!(recv_marked(other.as_fd(), &mut [0; 8], &mark).unwrap(), 0, "it stays so");
        }
    }

    #[test]
    fn an_end_without_a_mark_is_broken_off() {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(b"half").unwrap();
        drop(one);
        let mark = Cell::new(EndMark::Awaited);
        assert_eq!(recv_marked(other.as_fd(), &mut [0; 8], &mark).unwrap(), 4);
        let error = recv_marked(other.as_fd(), &mut [0; 8], &mark).unwrap_err();
        assert_eq!(error.to_string(), "it was ended before its answer was");
        // Whoever is killed may leave something unread, and the system calls its end a reset.
        let (mut one, mut other) = UnixStream::pair().unwrap();
        one.write_all(b"half").unwrap();
        other.write_all(b"unread").unwrap();
        drop(one);
        let mark = Cell::new(EndMark::Awaited);
        assert_eq!(recv_marked(other.as_fd(), &mut [0; 8], &mark).unwrap(), 4);
        assert!(recv_marked(other.as_fd(), &mut [0; 8], &mark).is_err());
    }

    #[test]
    fn whoever_has_no_room_is_told_later() {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(count) = one.write(&[b'x'; 4096]) {
            sent += count;
        }
        assert!(!mark_end(&one));
        let (mark, mut buffer) = (Cell::new(EndMark::Awaited), vec![0; sent]);
        assert!(recv_marked(other.as_fd(), &mut buffer, &mark).is_ok_and(|count| count > 0));
        assert!(mark_end(&one));
        drop(other);
        assert!(mark_end(&one), "nobody is left");
    }
}
