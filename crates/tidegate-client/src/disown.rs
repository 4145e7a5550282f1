//! How one end of a unix socket tells the other that what it has sent is not all of it, where nothing but the end of the connection
//! tells the end of an answer, and every end looks whole.
//!
//! It passes a descriptor, with one byte behind all that it has sent. The other end has no room for a descriptor: the kernel
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

/// Disowns what was sent on a unix socket. `false` where there is no room for it yet, there or in the system: it is to be tried
/// again. Whoever has gone needs no telling.
pub fn disown(sent: impl AsFd) -> bool {
    let descriptors = [sent.as_fd()];
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let said = sendmsg(&sent, &[IoSlice::new(b"!")], &mut ancillary, flags);
    matches!(said, Ok(_) | Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN))
}

/// Whether the other end of a connection may disown what it has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disowning {
    /// It is somebody who does not.
    Ignored,
    /// It may.
    Heeded,
    /// It has.
    Said,
}

/// Receives what was not disowned, and keeps in mind that it was.
pub(crate) fn recv_owned(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    disowning: &Cell<Disowning>,
) -> io::Result<usize> {
    let broken = || Err(io::Error::other("it was ended before its answer was"));
    if disowning.get() == Disowning::Said {
        return broken();
    }
    let mut ancillary = RecvAncillaryBuffer::default();
    let received = recvmsg(fd, &mut [IoSliceMut::new(buffer)], &mut ancillary, RecvFlags::empty())?;
    if !received.flags.contains(ReturnFlags::CTRUNC) {
        return Ok(received.bytes);
    }
    disowning.set(Disowning::Said);
    match received.bytes {
        0 | 1 => broken(),
        bytes => Ok(bytes - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn all_that_was_sent_is_received_before_it_is_disowned() {
        for rooms in [vec![64], vec![4, 64], vec![3, 1, 64], vec![5]] {
            let (mut one, other) = UnixStream::pair().unwrap();
            one.write_all(b"half").unwrap();
            assert!(disown(&one));
            drop(one);
            let (disowning, mut received) = (Cell::new(Disowning::Heeded), Vec::new());
            let mut rooms = rooms.iter().chain(std::iter::repeat(&64));
            let error = loop {
                let mut buffer = vec![0; *rooms.next().unwrap()];
                match recv_owned(other.as_fd(), &mut buffer, &disowning) {
                    Ok(0) => panic!("it looks whole"),
                    Ok(count) => received.extend_from_slice(&buffer[..count]),
                    Err(error) => break error,
                }
            };
            assert_eq!(received, b"half");
            assert_eq!(error.to_string(), "it was ended before its answer was");
            assert!(recv_owned(other.as_fd(), &mut [0; 8], &disowning).is_err(), "it stays so");
        }
    }

    #[test]
    fn what_is_not_disowned_is_whole() {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(b"all").unwrap();
        drop(one);
        let disowning = Cell::new(Disowning::Heeded);
        let recv = || recv_owned(other.as_fd(), &mut [0; 8], &disowning).unwrap();
        assert_eq!([recv(), recv()], [3, 0]);
    }

    #[test]
    fn whoever_has_no_room_is_told_later() {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(count) = one.write(&[b'x'; 4096]) {
            sent += count;
        }
        assert!(!disown(&one));
        let (disowning, mut buffer) = (Cell::new(Disowning::Heeded), vec![0; sent]);
        assert!(recv_owned(other.as_fd(), &mut buffer, &disowning).is_ok_and(|count| count > 0));
        assert!(disown(&one));
        drop(other);
        assert!(disown(&one), "nobody is left");
    }
}
