//! One connection to a backend. It is registered with the poller once, for as long as it lives, and owns no
//! buffer: an idle one costs its descriptor and little else.

use crate::peer::{Opened, Peer};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::connect::{Address, Connecting, connect};
use tidegate_io::socket::Stream;
use tidegate_io::timer;
use tidegate_io::watched::Watched;

/// First and last pause before a socket is tried again whose queue was full.
const BUSY_PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// An open connection.
pub struct Connection {
    watched: Watched,
    /// How long it took to connect.
    connect_time: Duration,
    /// Exchanges that were finished on it.
    exchanges: u32,
    _opened: Opened,
}

impl Connection {
    /// Connects to `peer` within `timeout`. A unix socket whose queue is full is tried again until then: its
    /// owner is there and busy.
    ///
    /// # Errors
    /// What the system says, or `TimedOut`.
    pub async fn open(peer: &Arc<Peer>, timeout: Duration) -> io::Result<Connection> {
        let started = monotonic_ns();
        let opened = Opened::new(peer);
        // Most often it is done at once, and then there is no deadline to arm.
        let first = begin(peer.address());
        let stream = match first {
            Ok((stream, Connecting::Done)) => Watched::new(stream.into())?,
            first => timer::within(timeout, finish(peer.address(), first))
                .await
                .unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?,
        };
        stream.assume_writable();
        let connect_time = Duration::from_nanos(monotonic_ns().saturating_sub(started));
        Ok(Connection { watched: stream, connect_time, exchanges: 0, _opened: opened })
    }

    /// How long it took to connect.
    pub fn connect_time(&self) -> Duration {
        self.connect_time
    }

    /// Whether it has carried an exchange before: then the peer may have closed it meanwhile.
    #[inline]
    pub fn is_reused(&self) -> bool {
        self.exchanges > 0
    }

    pub(crate) fn count_exchange(&mut self) {
        self.exchanges = self.exchanges.saturating_add(1);
    }

    /// Whether something has come while nothing was expected: the end, most often. As true as the last look
    /// of the poller.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.watched.is_readable()
    }

    /// The same, asked of the kernel now: for requests that must not be sent twice.
    pub fn is_stale_now(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        self.is_stale() || !matches!(rustix::net::recv(self.fd(), &mut [0u8; 1], flags), Err(Errno::AGAIN))
    }

    /// Sends what the socket takes, at least one byte.
    #[inline]
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.watched.poll_write(cx, |fd| Ok(rustix::net::send(fd, bytes, SendFlags::NOSIGNAL)?))
    }

    /// Sends both pieces in one call, at least one byte.
    pub fn poll_send_both(&self, cx: &mut Context<'_>, one: &[u8], two: &[u8]) -> Poll<io::Result<usize>> {
        let pieces = [IoSlice::new(one), IoSlice::new(two)];
        self.watched.poll_write(cx, |fd| {
            let mut control = SendAncillaryBuffer::default();
            Ok(rustix::net::sendmsg(fd, &pieces, &mut control, SendFlags::NOSIGNAL)?)
        })
    }

    /// Receives into the front of `buffer`; 0 is the end.
    #[inline]
    pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let room = buffer.len();
        let received = self.watched.poll_read(cx, |fd| {
            let (count, _) = rustix::net::recv(fd, &mut *buffer, RecvFlags::empty())?;
            Ok(count)
        });
        if let Poll::Ready(Ok(count)) = received
            && count > 0
            && count < room
        {
            self.watched.drained();
        }
        received
    }

    /// Tells the peer that nothing more comes.
    pub fn finish_sending(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self.fd(), rustix::net::Shutdown::Write)?)
    }

    /// Names who is woken when something comes, or the end.
    pub(crate) fn wake_reader(&self, waker: &Waker) {
        self.watched.wake_reader(waker);
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}

type Begun = io::Result<(Stream, Connecting)>;

fn begin(address: &Address) -> Begun {
    connect(address, None)
}

async fn finish(address: &Address, mut begun: Begun) -> io::Result<Watched> {
    let (mut pause, longest) = BUSY_PAUSES;
    loop {
        match begun {
            Ok((stream, Connecting::Done)) => return Watched::new(stream.into()),
            Ok((stream, Connecting::Pending)) => {
                let watched = Watched::duplex(stream.into())?;
                std::future::poll_fn(|cx| {
                    watched.poll_write(cx, |fd| Ok(rustix::net::sockopt::socket_error(fd)??))
                })
                .await?;
                return Ok(watched);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                timer::after(pause).await;
                pause = (pause * 2).min(longest);
                begun = begin(address);
            }
            Err(error) => return Err(error),
        }
    }
}
