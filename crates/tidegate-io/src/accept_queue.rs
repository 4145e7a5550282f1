//! Connections that wait to be accepted at sockets of other processes, as the kernel tells of them (sock_diag(7)): a connection
//! that is there says of its other end only that somebody listens.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `SOCK_DIAG_BY_FAMILY`, `NLMSG_ERROR` and `NLMSG_DONE`.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`: all that fit.
const REQUEST_ALL: u16 = 0x301;
/// Of the states of a socket the one that listens (`TCP_LISTEN`), for unix sockets too.
const LISTENING: u32 = 1 << 10;
/// `IPPROTO_TCP`
const TCP: u8 = 6;
/// `UDIAG_SHOW_NAME | UDIAG_SHOW_RQLEN`
const NAME_AND_QUEUE: u32 = 0x11;
/// Attributes: `UNIX_DIAG_NAME` and `UNIX_DIAG_RQLEN`.
const NAME: u16 = 0;
const QUEUE: u16 = 4;

/// Bytes in front of a message, of `inet_diag_msg` up to `idiag_rqueue`, and of `unix_diag_msg`.
const HEADER: usize = 16;
const INET_QUEUE_AT: usize = 56;
const UNIX_HEAD: usize = 16;

/// How many wait at what listens on a port of TCP, on whichever address. `None` where nothing does, or the kernel does not
/// tell: it may have been built without.
pub fn waiting_on_port(port: u16) -> Option<u32> {
    let mut found = None;
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        // `inet_diag_req_v2`: what is asked for, and the socket, of which the port alone.
        let mut request = vec![family.as_raw() as u8, TCP, 0, 0];
        request.extend(LISTENING.to_ne_bytes());
        request.extend(port.to_be_bytes());
        request.resize(56, 0);
        ask(&request, |message| {
            if message.get(4..6) == Some(&port.to_be_bytes())
                && let Some(queue) = number(message, INET_QUEUE_AT)
            {
                found = Some(found.unwrap_or(0) + queue);
            }
        })?;
    }
    found
}

/// The same of a unix socket at a path, as who listens has called it.
pub fn waiting_at_path(path: &Path) -> Option<u32> {
    let mut request = vec![AddressFamily::UNIX.as_raw() as u8, 0, 0, 0];
    request.extend(LISTENING.to_ne_bytes());
    request.extend(0_u32.to_ne_bytes()); // of no inode alone
    request.extend(NAME_AND_QUEUE.to_ne_bytes());
    request.resize(24, 0);
    let mut found = None;
    ask(&request, |message| {
        let (mut is_it, mut queue) = (false, None);
        let mut rest = message.get(UNIX_HEAD..).unwrap_or_default();
        while let Some((kind, value, others)) = attribute(rest) {
            match kind {
                NAME => is_it = value.strip_suffix(b"\0").unwrap_or(value) == path.as_os_str().as_bytes(),
                QUEUE => queue = number(value, 0),
                _ => {}
            }
            rest = others;
        }
        if let Some(queue) = queue.filter(|_| is_it) {
            found = Some(found.unwrap_or(0) + queue);
        }
    })?;
    found
}

/// Gives each message of the answer to `hear`, without its header. `None` where there is no answer, or no end of it.
fn ask(request: &[u8], mut hear: impl FnMut(&[u8])) -> Option<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK; // what is asked is answered before `send` is back
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG)).ok()?;
    let mut message = u32::try_from(HEADER + request.len()).ok()?.to_ne_bytes().to_vec();
    message.extend(BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST_ALL.to_ne_bytes());
    message.resize(HEADER, 0); // number and sender
    message.extend(request);
    send(&socket, &message, SendFlags::empty()).ok()?;
    let mut buffer = vec![0; 32 << 10];
    loop {
        let (count, _) = recv(&socket, &mut buffer, RecvFlags::empty()).ok()?;
        let mut rest = buffer.get(..count)?;
        while let Some(length) = number(rest, 0).and_then(|length| usize::try_from(length).ok()) {
            let message = rest.get(..length).filter(|message| message.len() >= HEADER)?;
            match u16::from_ne_bytes([message[4], message[5]]) {
                DONE => return Some(()),
                ERROR => return None,
                _ => hear(&message[HEADER..]),
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// The first attribute, its kind and its value, and what is behind it.
fn attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let head: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
    let value = bytes.get(4..length)?;
    Some((
        u16::from_ne_bytes([head[2], head[3]]),
        value,
        bytes.get(length.next_multiple_of(4)..).unwrap_or_default(),
    ))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn who_waits_to_be_accepted_is_counted_until_somebody_does() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(waiting_on_port(address.port()), Some(0));
        let first = TcpStream::connect(address).unwrap();
        let second = TcpStream::connect(address).unwrap();
        // The other end may be told of the second a moment later.
        let both = || (waiting_on_port(address.port()) == Some(2)).then_some(());
        tidegate_testkit::wait_for(both, "two connections to wait");
        let accepted = listener.accept().unwrap();
        assert_eq!(waiting_on_port(address.port()), Some(1));
        drop((accepted, first, second, listener));
        assert_eq!(waiting_on_port(address.port()), None);

        let folder = std::env::temp_dir().join(format!("tidegate-queue-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, other) = (folder.join("a.sock"), folder.join("a.sock.other"));
        let (listener, _other) = (UnixListener::bind(&path).unwrap(), UnixListener::bind(&other).unwrap());
        assert_eq!(waiting_at_path(&path), Some(0));
        let _first = UnixStream::connect(&path).unwrap();
        assert_eq!((waiting_at_path(&path), waiting_at_path(&other)), (Some(1), Some(0)));
        let _accepted = listener.accept().unwrap();
        assert_eq!(waiting_at_path(&path), Some(0));
        drop(listener);
        assert_eq!(waiting_at_path(&path), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn attributes_that_break_off_are_none() {
        assert_eq!(attribute(&[6, 0, 4, 0, 1, 2, 0, 0]), Some((4, &[1, 2][..], &[][..])));
        for bytes in [&[][..], &[4, 0, 0], &[3, 0, 0, 0], &[9, 0, 4, 0, 1, 2, 3, 4]] {
            assert_eq!(attribute(bytes), None, "{bytes:?}");
        }
    }
}
