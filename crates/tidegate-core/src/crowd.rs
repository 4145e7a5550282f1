//! What the kernel may hold of what each connection sends, once a worker has many of them.
//!
//! Its listening sockets hand a bound on to what they accept, but many who come at once were all let into the queue before
//! anybody could know that they are many, and each of them would be given megabytes. So a connection that sends more than
//! fits takes its share by itself (`conn/send.rs`), and gives it up when the crowd has gone.

use std::os::fd::BorrowedFd;
use tidegate_io::socket;

/// With more connections than this on a worker, each gets a bounded share of the kernel's memory.
pub(crate) const CROWD: usize = 128;
/// Unsent bytes of all connections of a worker, as long as each may have [`LEAST`].
const OF_ALL: usize = 160 << 20;
/// The kernel takes a whole segment beyond it, 64 KiB where it can, so that less would not be less.
const LEAST: u32 = 16 << 10;

/// Unsent bytes that the kernel may hold for one connection; 0 where there is no crowd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Share(u32);

impl Share {
    /// Where a worker has so many connections. `unsent_size` is the setting.
    pub(crate) fn of(connections: usize, unsent_size: u32) -> Share {
        if connections <= CROWD {
            return Share(0);
        }
        let even = u32::try_from(OF_ALL / connections).unwrap_or(u32::MAX);
        Share(even.clamp(LEAST.min(unsent_size), unsent_size))
    }

    /// Whether content of so many bytes has to wait for it.
    #[inline]
    pub(crate) fn is_exceeded_by(self, len: u64) -> bool {
        len > u64::from(self.0)
    }

    /// Whether a connection that has `present` is to take this one: what differs a little is not worth a call.
    #[inline]
    pub(crate) fn replaces(self, present: Share) -> bool {
        self != present
            && (self.0 == 0 || present.0 == 0 || self.0.abs_diff(present.0) >= self.0.min(present.0))
    }

    /// Takes it. What has not been acknowledged is bounded as well, more generously: a client far away needs it to be fast.
    /// `own` is the buffer that its listener gives it.
    pub(crate) fn apply(self, stream: BorrowedFd<'_>, unsent_size: u32, unbounded: u32, own: Option<u32>) {
        let of_crowd = unsent_size.max(64 << 10);
        match (self.0, own) {
            (0, None) => {
                socket::bound_unsent(stream, unbounded);
                socket::leave_send_buffer_to_the_kernel(stream);
            }
            (0, Some(own)) => {
                socket::bound_unsent(stream, unbounded);
                socket::bound_send_buffer(stream, own);
            }
            (share, own) => {
                socket::bound_unsent(stream, share);
                socket::bound_send_buffer(stream, own.map_or(of_crowd, |own| own.min(of_crowd)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_the_crowd_the_smaller_the_share() {
        let share = |connections| Share::of(connections, 128 << 10).0;
        assert_eq!([0, 1, CROWD].map(share), [0; 3]);
        assert_eq!(share(CROWD + 1), 128 << 10);
        assert_eq!(share(2560), 64 << 10);
        assert_eq!((share(10_000), share(1_000_000)), (16_777, 16 << 10));
        assert_eq!(Share::of(10_000, 4 << 10).0, 4 << 10, "what is set is never exceeded");
    }

    #[test]
    fn small_differences_are_left() {
        let [none, small, more, large] = [0, 20_000, 30_000, 40_000].map(Share);
        assert!(!small.replaces(small) && !more.replaces(small) && !small.replaces(more));
        assert!(large.replaces(small) && small.replaces(large));
        assert!(none.replaces(small) && small.replaces(none) && !none.replaces(none));
    }
}
