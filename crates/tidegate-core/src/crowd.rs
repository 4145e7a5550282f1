//! What the kernel may hold of what each connection sends: little until it is known how many a worker has, much where they are
//! few, a share of a bound for all of them where they are many.
//!
//! Its listening sockets hand on `unsent-size`, since many who come at once are all let into the queue before anybody could know
//! that they are many. A connection that sends more than fits takes its share by itself (`conn/send.rs`): in a crowd before
//! it begins, and without one when it has been waited for, so that those who come first do not get the most.

use std::os::fd::BorrowedFd;
use tidegate_io::socket;

/// With more connections than this on a worker, each gets a bounded share of the kernel's memory.
pub(crate) const CROWD: usize = 128;
/// Unsent bytes of all connections of a worker, as long as each may have [`LEAST`].
const OF_ALL: usize = 160 << 20;
/// The kernel takes a whole segment beyond it, 64 KiB where it can, so that less would not be less.
const LEAST: u32 = 16 << 10;

/// Unsent bytes that the kernel may hold for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share(u32);

impl Share {
    /// What a listening socket has handed on.
    pub(crate) const INHERITED: Share = Share(0);
    /// There is no crowd.
    pub(crate) const WIDE: Share = Share(u32::MAX);

    /// Where a worker has so many connections. `unsent_size` is the setting.
    pub(crate) fn of(connections: usize, unsent_size: u32) -> Share {
        if connections <= CROWD {
            return Share::WIDE;
        }
        let even = u32::try_from(OF_ALL / connections).unwrap_or(u32::MAX);
        Share(even.clamp(LEAST.min(unsent_size), unsent_size))
    }

    /// Whether content of so many bytes has to wait for it, as one of a crowd.
    #[inline]
    pub(crate) fn is_exceeded_by(self, len: u64) -> bool {
        self != Share::WIDE && len > u64::from(self.0)
    }

    /// Whether a connection that has `present` is to take this one: what differs a little is not worth a call.
    #[inline]
    pub(crate) fn replaces(self, present: Share) -> bool {
        let is_bounded = |share: Share| share != Share::INHERITED && share != Share::WIDE;
        self != present
            && !(is_bounded(self)
                && is_bounded(present)
                && self.0.abs_diff(present.0) < self.0.min(present.0))
    }

    /// Takes it in place of `present`. In a crowd what has not been acknowledged is bounded as well, more generously: a client far
    /// away needs it to be fast. `wide` is for who is not in one, `own` the buffer that its listener gives it.
    pub(crate) fn apply(
        self,
        present: Share,
        stream: BorrowedFd<'_>,
        unsent_size: u32,
        wide: u32,
        own: Option<u32>,
    ) {
        if self != Share::WIDE {
            let of_crowd = unsent_size.max(64 << 10);
            socket::bound_unsent(stream, self.0);
            return socket::bound_send_buffer(stream, own.map_or(of_crowd, |own| own.min(of_crowd)));
        }
        socket::bound_unsent(stream, wide);
        match own {
            _ if present == Share::INHERITED => {}
            None => socket::leave_send_buffer_to_the_kernel(stream),
            Some(own) => socket::bound_send_buffer(stream, own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::SockRef;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::AsFd;

    /// Who comes gets little, much once nobody else wants it, a share in a crowd, and much again without one.
    #[test]
    fn the_kernel_holds_as_much_as_there_are_few() {
        const UNSENT: u32 = 128 << 10;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket::bound_unsent(listener.as_fd(), UNSENT);
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let mut present = Share::INHERITED;
        let mut bounds = |connections: Option<usize>, own| {
            if let Some(share) = connections.map(|connections| Share::of(connections, UNSENT)) {
                share.apply(present, stream.as_fd(), UNSENT, UNSENT * 8, own);
                present = share;
            }
            let socket = SockRef::from(&stream);
            (socket.tcp_notsent_lowat().unwrap(), socket.send_buffer_size().unwrap())
        };
        let (unsent, buffer) = bounds(None, None);
        assert_eq!(unsent, UNSENT);
        assert_eq!(bounds(Some(1), None), (UNSENT * 8, buffer), "the kernel lets its buffer grow");
        assert_eq!(
            bounds(Some(10_000), None),
            (16_777, 2 * UNSENT as usize),
            "it keeps twice what it is told"
        );
        assert_eq!(bounds(Some(1), Some(50 << 10)), (UNSENT * 8, 100 << 10), "what its listener gives it");
        assert_eq!(bounds(Some(10_000), Some(50 << 10)), (16_777, 100 << 10), "never more than that");
    }

    #[test]
    fn the_larger_the_crowd_the_smaller_the_share() {
        let share = |connections| Share::of(connections, 128 << 10).0;
        assert_eq!([0, 1, CROWD].map(|connections| Share::of(connections, 128 << 10)), [Share::WIDE; 3]);
        assert_eq!(share(CROWD + 1), 128 << 10);
        assert_eq!(share(2560), 64 << 10);
        assert_eq!((share(10_000), share(1_000_000)), (16_777, 16 << 10));
        assert_eq!(Share::of(10_000, 4 << 10).0, 4 << 10, "what is set is never exceeded");
    }

    #[test]
    fn small_differences_are_left() {
        let (inherited, wide) = (Share::INHERITED, Share::WIDE);
        let [small, more, large] = [20_000, 30_000, 40_000].map(Share);
        assert!(!small.replaces(small) && !more.replaces(small) && !small.replaces(more));
        assert!(large.replaces(small) && small.replaces(large));
        assert!(wide.replaces(small) && small.replaces(wide) && !wide.replaces(wide));
        assert!(wide.replaces(inherited) && small.replaces(inherited));
        assert!(
            !wide.is_exceeded_by(u64::MAX) && small.is_exceeded_by(20_001) && !small.is_exceeded_by(20_000)
        );
    }
}
