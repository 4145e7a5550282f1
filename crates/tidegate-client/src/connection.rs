//! One connection to a backend, with TLS or without. It is registered with the poller once, for as long as it
//! lives, and owns no buffer: an idle one costs its descriptor and little else.

use crate::end_mark::{EndMark, recv_marked};
use crate::peer::{Opened, Peer};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::connect::{Address, Connecting, connect};
use tidegate_io::descriptors;
use tidegate_io::parked::Parked;
use tidegate_io::pipe::Pipe;
use tidegate_io::socket::{self, Received, Stream};
use tidegate_io::timer;
use tidegate_io::watched::Watched;
use tidegate_tls::{ClientSession, Connector, ServerName};

/// First and last pause before a socket is tried again whose queue was full.
const BUSY_PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// Bytes that the kernel keeps for a connection in either direction while there are many. It doubles what is received, for
/// what it needs itself, which is a little less than connections begin with.
const CROWDED_BUFFER: usize = 48 << 10;

/// What was received, with the end of a unix socket whose peer has closed it and left something unread: the system calls that a
/// reset, and all that the peer has said was received before it. By TCP a reset may have destroyed some of that.
fn or_end(received: io::Result<usize>, fd: BorrowedFd<'_>) -> io::Result<usize> {
    let is_unix = || rustix::net::sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX);
    match received {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset && is_unix() => Ok(0),
        received => received,
    }
}

/// An open connection.
pub struct Connection {
    watched: Watched,
    end_mark: Cell<EndMark>,
    tls: Option<Box<RefCell<ClientSession>>>,
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
    /// What the system says, or `TimedOut`; `InvalidData` where TLS is not possible with it.
    pub async fn open(peer: &Arc<Peer>, timeout: Duration, tls: Option<&PeerTls>) -> io::Result<Connection> {
        let started = monotonic_ns();
        let opened = Opened::new(peer);
        // Most often it is done at once, and then there is no deadline to arm.
        let first = begin(peer);
        let (watched, session) = match (first, tls) {
            (Ok((stream, Connecting::Done)), None) => (Watched::new(stream.into())?, None),
            (first, tls) => timer::within(timeout, establish(peer, first, tls))
                .await
                .unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?,
        };
        watched.assume_writable();
        let connect_time = Duration::from_nanos(monotonic_ns().saturating_sub(started));
        let tls = session.map(|session| Box::new(RefCell::new(session)));
        Ok(Connection {
            watched,
            end_mark: Cell::new(EndMark::Unused),
            tls,
            connect_time,
            exchanges: 0,
            _opened: opened,
        })
    }

    /// Whether this protocol was chosen by ALPN.
    pub fn has_chosen(&self, protocol: &[u8]) -> bool {
        self.tls.as_ref().is_some_and(|session| session.borrow().protocol() == Some(protocol))
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

    /// The peer marks the end of what it sends ([`mark_end`](crate::mark_end)), and the end of the connection without that is an
    /// error: for one exchange, on a unix socket.
    pub fn expect_end_mark(&mut self) {
        self.end_mark.set(EndMark::Awaited);
    }

    /// Whether that mark is still to come: whatever has been received, the peer has not ended.
    pub fn awaits_end_mark(&self) -> bool {
        self.end_mark.get() == EndMark::Awaited
    }

    pub(crate) fn count_exchange(&mut self) {
        self.exchanges = self.exchanges.saturating_add(1);
    }

    /// Whether something has come while nothing was expected: the end, most often. As true as the last look
    /// of the poller.
    #[inline]
    pub fn is_stale(&self) -> bool {
        if !self.watched.is_readable() {
            return false;
        }
        let is_quiet = is_quiet(self.fd(), self.tls.as_deref());
        if is_quiet {
            self.watched.drained();
        }
        !is_quiet || self.watched.is_readable()
    }

    /// Nobody uses it for now.
    #[inline]
    pub(crate) fn park(self) -> ParkedConnection {
        let Connection { watched, end_mark: _, tls, connect_time, exchanges, _opened } = self;
        ParkedConnection { parked: watched.park(), tls, connect_time, exchanges, _opened }
    }

    /// The same, asked of the kernel now: for requests that must not be sent twice.
    pub fn is_stale_now(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        self.is_stale() || !matches!(rustix::net::recv(self.fd(), &mut [0u8; 1], flags), Err(Errno::AGAIN))
    }

    /// Whether the peer has closed it, asked of the kernel now; it may have begun to speak.
    pub(crate) fn is_closed_now(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(rustix::net::recv(self.fd(), &mut [0u8; 1], flags), Err(Errno::AGAIN) | Ok((_, 1..)))
    }

    /// Sends what the socket takes, at least one byte.
    #[inline]
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(session) = &self.tls {
            return self.poll_seal(cx, &mut session.borrow_mut(), bytes);
        }
        self.watched.poll_write(cx, |fd| Ok(rustix::net::send(fd, bytes, SendFlags::NOSIGNAL)?))
    }

    /// Bytes that were sent and that the peer has not taken: not acknowledged, or not read from a unix socket. A system call.
    pub fn send_queue_len(&self) -> u64 {
        socket::send_queue_len(self.fd())
    }

    /// Receives into the front of `buffer`; 0 is the end.
    #[inline]
    pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        debug_assert!(!buffer.is_empty(), "invariant: nothing read into no room looks like the end");
        if let Some(session) = &self.tls {
            return self.poll_open(cx, &mut session.borrow_mut(), buffer);
        }
        let room = buffer.len();
        let received = self.watched.poll_read(cx, |fd| match self.end_mark.get() {
            EndMark::Unused => {
                let received = rustix::net::recv(fd, &mut *buffer, RecvFlags::empty());
                or_end(received.map(|(count, _)| count).map_err(io::Error::from), fd)
            }
            EndMark::Awaited | EndMark::Received => recv_marked(fd, buffer, &self.end_mark),
        });
        if let Poll::Ready(Ok(count)) = received
            && count > 0
            && count < room
            && self.end_mark.get() != EndMark::Received
        {
            self.watched.drained();
        }
        received
    }

    /// Whether all of its bytes are those of the protocol above.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.tls.is_none() && self.end_mark.get() == EndMark::Unused
    }

    /// Receives into a pipe that is empty, `most` bytes at most; 0 is the end. For a connection that is plain.
    pub fn poll_splice(&self, cx: &mut Context<'_>, pipe: &mut Pipe, most: usize) -> Poll<io::Result<usize>> {
        self.watched.poll_read(cx, |fd| or_end(pipe.fill(fd, most), fd))
    }

    /// Has what is there be received whether the poller has told of it or not: a peer that takes no more may have answered.
    pub fn look_again(&self) {
        self.watched.assume_readable();
    }

    /// Takes plaintext, at least one byte. What the socket has no room for waits in the session, and goes with the
    /// next call of any kind.
    fn poll_seal(
        &self,
        cx: &mut Context<'_>,
        session: &mut ClientSession,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.watched.poll_write(cx, |fd| match session.send(bytes, |sealed| send(fd, sealed))? {
            0 if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        })
    }

    fn poll_open(
        &self,
        cx: &mut Context<'_>,
        session: &mut ClientSession,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            if session.has_pending() {
                // Whoever waits for an answer waits for its request to leave, too.
                let flushed =
                    self.watched.poll_write(cx, |fd| match session.flush(|sealed| send(fd, sealed))? {
                        true => Ok(()),
                        false => Err(io::ErrorKind::WouldBlock.into()),
                    });
                if let Poll::Ready(Err(error)) = flushed {
                    return Poll::Ready(Err(error));
                }
            }
            if session.has_plaintext() {
                let given = session.receive(buffer, |_| Ok(Received::WouldBlock))?;
                return Poll::Ready(Ok(if let Received::Bytes { count, .. } = given { count } else { 0 }));
            }
            let received =
                self.watched.poll_read(cx, |fd| match session.receive(buffer, |place| recv(fd, place))? {
                    Received::Bytes { count, drained } => Ok(Some((count, drained))),
                    Received::End => Ok(None),
                    Received::WouldBlock => Err(io::ErrorKind::WouldBlock.into()),
                });
            match received {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(0)),
                Poll::Ready(Ok(Some((count, drained)))) => {
                    if drained {
                        self.watched.drained();
                    }
                    if count > 0 {
                        return Poll::Ready(Ok(count));
                    }
                    // A record that is not whole, or a ticket.
                }
            }
        }
    }

    /// Tells the peer that nothing more comes.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn finish_sending(&self) -> io::Result<()> {
        if let Some(session) = &self.tls {
            session.borrow_mut().finish_sending(|sealed| send(self.fd(), sealed))?;
        }
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

/// A connection that nobody uses for now. Any worker may go on with it, one alone: it is moved to whom takes it.
pub(crate) struct ParkedConnection {
    parked: Parked,
    tls: Option<Box<RefCell<ClientSession>>>,
    connect_time: Duration,
    exchanges: u32,
    _opened: Opened,
}

impl ParkedConnection {
    /// Goes on with it.
    ///
    /// # Errors
    /// This worker cannot watch it.
    #[inline]
    pub(crate) fn resume(self) -> io::Result<Connection> {
        let ParkedConnection { parked, tls, connect_time, exchanges, _opened } = self;
        let watched = parked.resume()?;
        watched.assume_writable(); // nothing is on its way
        Ok(Connection {
            watched,
            end_mark: Cell::new(EndMark::Unused),
            tls,
            connect_time,
            exchanges,
            _opened,
        })
    }

    /// As [`Connection::is_stale`], for the worker that has parked it.
    #[inline]
    pub(crate) fn is_stale(&self) -> bool {
        if !self.parked.is_readable() {
            return false;
        }
        let is_quiet = is_quiet(self.parked.as_fd(), self.tls.as_deref());
        if is_quiet {
            self.parked.drained();
        }
        !is_quiet || self.parked.is_readable()
    }

    /// Names who is woken when something comes, or the end.
    pub(crate) fn wake_reader(&self, waker: &Waker) {
        self.parked.wake_reader(waker);
    }
}

/// Whether there is nothing after all: a read that fits its buffer exactly does not tell, and over TLS a server may
/// send new session tickets at any time, which are no answer.
#[cold]
fn is_quiet(fd: BorrowedFd<'_>, tls: Option<&RefCell<ClientSession>>) -> bool {
    let Some(session) = tls else {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        return matches!(rustix::net::recv(fd, &mut [0u8; 1], flags), Err(Errno::AGAIN));
    };
    let mut session = session.borrow_mut();
    loop {
        match session.receive(&mut [], |buffer| recv(fd, buffer)) {
            Ok(Received::Bytes { drained: false, .. }) if !session.has_plaintext() => {}
            Ok(Received::Bytes { drained: true, .. } | Received::WouldBlock) => {
                return !session.has_plaintext();
            }
            _ => return false,
        }
    }
}

/// How TLS is spoken with a peer, and what it is called.
#[derive(Clone)]
pub struct PeerTls {
    /// Whom to believe, and what to show.
    pub connector: Arc<Connector>,
    /// Asked for, and looked for in its certificate.
    pub name: ServerName<'static>,
}

impl PartialEq for PeerTls {
    fn eq(&self, other: &PeerTls) -> bool {
        Arc::ptr_eq(&self.connector, &other.connector) && self.name == other.name
    }
}

/// What the socket takes; 0 where it is full.
fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    match rustix::net::send(fd, bytes, SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN) => Ok(0),
        sent => Ok(sent?),
    }
}

fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let room = buffer.len();
    match rustix::net::recv(fd, buffer, RecvFlags::empty()) {
        Ok((_, 0)) => Ok(Received::End),
        Ok((_, count)) => Ok(Received::Bytes { count, drained: count < room }),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Received::WouldBlock),
        Err(error) => Err(error.into()),
    }
}

/// Connects, and makes the TLS handshake where one is wanted.
async fn establish(
    peer: &Peer,
    begun: Begun,
    tls: Option<&PeerTls>,
) -> io::Result<(Watched, Option<ClientSession>)> {
    let watched = finish(peer, begun).await?;
    let Some(tls) = tls else { return Ok((watched, None)) };
    watched.assume_writable();
    let mut session = ClientSession::new(&tls.connector, tls.name.clone()).map_err(io::Error::from)?;
    std::future::poll_fn(|cx| {
        loop {
            session.advance(|bytes| send(watched.as_fd(), bytes))?;
            if session.has_pending() {
                let flushed = watched.poll_write(cx, |fd| match session.flush(|bytes| send(fd, bytes))? {
                    true => Ok(()),
                    false => Err(io::ErrorKind::WouldBlock.into()),
                });
                match flushed {
                    Poll::Pending => return Poll::Pending,
                    done => std::task::ready!(done)?,
                }
            }
            if !session.is_handshaking() {
                return Poll::Ready(Ok::<(), io::Error>(()));
            }
            let drained = std::task::ready!(watched.poll_read(cx, |fd| {
                let received = session.receive(&mut [], |buffer| recv(fd, buffer));
                if received.is_err() {
                    let _ = session.flush(|bytes| send(fd, bytes)); // the alert says why
                }
                match received? {
                    Received::Bytes { drained, .. } => Ok(drained),
                    Received::WouldBlock => Err(io::ErrorKind::WouldBlock.into()),
                    Received::End => Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }))?;
            if drained {
                watched.drained();
            }
        }
    })
    .await?;
    Ok((watched, Some(session)))
}

type Begun = io::Result<(Stream, Connecting)>;

fn begin(peer: &Peer) -> Begun {
    descriptors::for_a_request()?;
    let (stream, connecting) = connect(peer.address(), None)?;
    // Left to itself the kernel lets the buffers of one that is not read grow to megabytes: 1,536 held 1.9 GiB.
    if peer.is_in_a_crowd() && matches!(peer.address(), Address::Tcp(_)) {
        socket::bound_unread(stream.as_fd(), CROWDED_BUFFER)?;
        socket::bound_unsent(stream.as_fd(), CROWDED_BUFFER as u32);
    }
    Ok((stream, connecting))
}

async fn finish(peer: &Peer, mut begun: Begun) -> io::Result<Watched> {
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
                begun = begin(peer);
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Peers;
    use rustix::net::sockopt::socket_recv_buffer_size;
    use std::net::TcpListener;
    use tidegate_io::{Poller, Runtime};

    #[test]
    fn what_the_kernel_keeps_for_each_of_a_crowd_is_bounded() {
        let poller = Poller::new().unwrap();
        let _runtime = Runtime::install(poller.registry().unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = Peers::new().peer(&Address::Tcp(listener.local_addr().unwrap()));
        let open = || {
            let opened = Opened::new(&peer);
            let (stream, _) = begin(&peer).unwrap();
            (socket_recv_buffer_size(&stream).unwrap(), stream, opened)
        };
        let (first, ..) = open();
        let crowd: Vec<_> = (0..200).map(|_| open()).collect();
        let (last, ..) = crowd.last().unwrap();
        let last = *last;
        drop(crowd);
        assert_eq!(last, 2 * CROWDED_BUFFER, "the kernel doubles it");
        let (after, ..) = open();
        assert_ne!(first, 2 * CROWDED_BUFFER);
        assert_eq!(after, first, "the crowd has gone");
    }
}
