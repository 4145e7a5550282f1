//! Messages with descriptors between our own processes: over a pair of connected unix sockets.
//!
//! A frame is its length and its number of descriptors (four bytes each, little endian), then one byte for
//! every 200 descriptors, which carries them (`SCM_RIGHTS`, unix(7)), then the bytes. The highest bit of the number says that the
//! descriptors are taken only where there is room without the reserve. Calls block; the master and
//! its server processes make them on threads that serve no client. What a frame means is not known here.

use crate::descriptors::{self, Lease, Reserve};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Descriptors in one call; the kernel takes 253.
const BATCH: usize = 200;
/// The longest frame, bytes: settings of very many sites.
pub const FRAME_MAX: usize = 256 << 20;
/// Most descriptors of a frame.
pub const DESCRIPTORS_MAX: usize = 1 << 20;
/// In the number of descriptors: they do without the reserve.
const IF_THERE_IS_ROOM: u32 = 1 << 31;

/// What has come.
#[derive(Debug)]
pub struct Frame {
    /// What it means.
    pub bytes: Vec<u8>,
    /// What goes with it.
    pub descriptors: Vec<OwnedFd>,
    /// So many went with it, more than this process may hold now: there are none of them.
    pub lost: Option<usize>,
    /// Held until it is obeyed, where the reserve was let go of for it.
    pub lease: Option<Lease>,
}

/// Two ends of a link. Both are closed when another program is executed.
///
/// # Errors
/// There is no descriptor or no memory left.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Sends a frame, and waits until all of it is on its way.
///
/// # Errors
/// `InvalidInput`: it is too much for one frame. Otherwise the link is broken, or the system does not pass
/// the descriptors on.
pub fn send(link: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(link, bytes, descriptors, 0)
}

/// The same, but the other end has the descriptors only where there is room for them without its reserve.
///
/// # Errors
/// As [`send`].
pub fn send_if_there_is_room(
    link: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send_with(link, bytes, descriptors, IF_THERE_IS_ROOM)
}

fn send_with(
    link: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flag: u32,
) -> io::Result<()> {
    if bytes.len() > FRAME_MAX || descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::Error::new(ErrorKind::InvalidInput, "too much for one message between processes"));
    }
    let mut head = [0; 8];
    head[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    head[4..].copy_from_slice(&(descriptors.len() as u32 | flag).to_le_bytes());
    send_all(link, &head)?;
    for batch in descriptors.chunks(BATCH) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(batch)) {
            return Err(io::Error::other("a batch of descriptors does not fit"));
        }
        rustix::io::retry_on_intr(|| {
            sendmsg(link, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL)
        })?;
    }
    send_all(link, bytes)
}

/// Takes the next frame; `None` when the other end has closed in order.
///
/// # Errors
/// The link is broken or ends within a frame, the frame is malformed, or this process may hold no more
/// descriptors.
pub fn receive(link: BorrowedFd<'_>) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    receive_within(link, FRAME_MAX, DESCRIPTORS_MAX)
}

/// The same from one who is trusted with no more than so many bytes and descriptors.
///
/// # Errors
/// As [`receive`]; more than that is a malformed frame.
pub fn receive_within(
    link: BorrowedFd<'_>,
    bytes_max: usize,
    descriptors_max: usize,
) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    match receive_with(link, (bytes_max, descriptors_max), None)? {
        Some(Frame { lost: Some(_), .. }) => {
            Err(io::Error::other("descriptors were lost: this process may hold no more"))
        }
        frame => Ok(frame.map(|frame| (frame.bytes, frame.descriptors))),
    }
}

/// The same with descriptors of `reserve`, which lets go of as many as come. A frame whose descriptors do not fit is taken
/// without them at once, so that the link goes on.
///
/// # Errors
/// As [`receive_within`], but for descriptors.
pub fn receive_with(
    link: BorrowedFd<'_>,
    (bytes_max, descriptors_max): (usize, usize),
    reserve: Option<&Arc<Reserve>>,
) -> io::Result<Option<Frame>> {
    let mut head = [0; 8];
    if !receive_all(link, &mut head)? {
        return Ok(None);
    }
    let [length, count] = [[head[0], head[1], head[2], head[3]], [head[4], head[5], head[6], head[7]]];
    let (length, count) = (u32::from_le_bytes(length) as usize, u32::from_le_bytes(count));
    let (is_order, count) = (count & IF_THERE_IS_ROOM == 0, (count & !IF_THERE_IS_ROOM) as usize);
    if length > bytes_max || count > descriptors_max {
        return Err(io::Error::new(ErrorKind::InvalidData, "a malformed message between processes"));
    }
    let lease = reserve.filter(|_| is_order && count > 0).map(|reserve| reserve.let_go(count));
    // Those that are free may have been let go of for a message before.
    let is_room = is_order || !descriptors::are_reserved();
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    let mut is_lost = false;
    for batch in 0..count.div_ceil(BATCH) {
        let expected = BATCH.min(count - batch * BATCH);
        let before = descriptors.len();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control =
            if is_room { RecvAncillaryBuffer::new(&mut space) } else { RecvAncillaryBuffer::default() };
        let mut byte = [0];
        let got = rustix::io::retry_on_intr(|| {
            recvmsg(link, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        if got.bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(given) = message {
                descriptors.extend(given);
            }
        }
        // The kernel cuts what this process may not hold, or does not ask for.
        if got.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() - before < expected {
            is_lost = true;
        }
        if is_lost {
            descriptors.clear();
        }
    }
    let mut bytes = vec![0; length];
    if !receive_all(link, &mut bytes)? {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(Frame { bytes, descriptors, lost: is_lost.then_some(count), lease }))
}

fn send_all(link: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = rustix::io::retry_on_intr(|| rustix::net::send(link, bytes, SendFlags::NOSIGNAL))?;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}

/// `false`: the other end closed before the first byte.
fn receive_all(link: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        let rest = buffer.get_mut(filled..).unwrap_or_default();
        match rustix::io::retry_on_intr(|| rustix::net::recv(link, &mut *rest, RecvFlags::empty()))? {
            (0, _) if filled == 0 => return Ok(false),
            (0, _) => return Err(ErrorKind::UnexpectedEof.into()),
            (count, _) => filled += count,
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn frames_and_many_descriptors_arrive_in_order() {
        let (here, there) = pair().unwrap();
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let sender = std::thread::spawn(move || {
            let many = vec![writer.as_fd(); BATCH + 1];
            send(here.as_fd(), b"first", &many).unwrap();
            send(here.as_fd(), &vec![7; 1 << 20], &[]).unwrap();
            send(here.as_fd(), b"", &[writer.as_fd()]).unwrap();
        });
        let (bytes, given) = receive(there.as_fd()).unwrap().unwrap();
        assert_eq!((bytes.as_slice(), given.len()), (&b"first"[..], BATCH + 1));
        rustix::io::write(&given[BATCH], b"x").unwrap();
        assert_eq!(rustix::io::read(&reader, &mut [0; 4]).unwrap(), 1);
        assert_eq!(receive(there.as_fd()).unwrap().unwrap().0, vec![7; 1 << 20]);
        let (bytes, given) = receive(there.as_fd()).unwrap().unwrap();
        assert_eq!((bytes.len(), given.len()), (0, 1));
        tidegate_testkit::join(sender, "all to be sent");
        assert!(receive(there.as_fd()).unwrap().is_none());
    }

    #[test]
    fn who_is_trusted_with_less_may_not_send_more() {
        for (bytes, is_taken) in [(&b"1234"[..], true), (b"12345", false)] {
            let (here, there) = pair().unwrap();
            send(here.as_fd(), bytes, &[]).unwrap();
            assert_eq!(receive_within(there.as_fd(), 4, 0).is_ok(), is_taken);
        }
        let (here, there) = pair().unwrap();
        send(here.as_fd(), b"", &[here.as_fd()]).unwrap();
        assert!(receive_within(there.as_fd(), 4, 0).is_err());
    }

    #[test]
    fn a_frame_that_breaks_off_or_is_too_long_is_an_error() {
        for bytes in
            [&b"\x05\0\0\0\0\0\0\0ab"[..], b"\xff\xff\xff\xff\0\0\0\0", b"\x01\0", b"\0\0\0\0\x01\0\0\0"]
        {
            let (here, there) = pair().unwrap();
            send_all(here.as_fd(), bytes).unwrap();
            drop(here);
            assert!(receive(there.as_fd()).is_err(), "{bytes:?}");
        }
    }
}
