//! The idle connections of one worker to one address.
//!
//! The last one that came back is the first to be used. Where there is none, one of another worker is (see `peer`). A task of
//! the worker lets go of what was idle for too long, of what the other end has closed, and of what other workers need.

use crate::connection::{Connection, PeerTls};
use crate::peer::{Idle, Keeper, Peer};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::runtime::{self, LocalFuture};
use tidegate_io::timer::{self, Deadline};

/// How long a connection that nobody waits for any more is kept for the next request: some applications read from it
/// until something comes.
const LEFT_TIME: u64 = 100_000_000;
/// How many of them.
const LEFT_MAX: usize = 64;

/// Bounds of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimits {
    /// Idle connections kept; 0 keeps none.
    pub idle: usize,
    /// How long one is kept.
    pub idle_timeout: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
}

/// A pool. It belongs to one worker's thread.
pub struct Pool {
    peer: Arc<Peer>,
    tls: Option<PeerTls>,
    keeper: Arc<Keeper>,
    limits: Cell<PoolLimits>,
    /// The one that was left first comes first.
    left: RefCell<Vec<Left>>,
    /// Of the task that lets go, once it runs.
    sweeper: RefCell<Option<Waker>>,
    is_sweeper_started: Cell<bool>,
    is_deadline_armed: Cell<bool>,
    /// One has come back since the idle ones were looked through.
    has_put: Cell<bool>,
}

/// A connection that is being made, and for nobody at the moment.
struct Left {
    attempt: LocalFuture<io::Result<Connection>>,
    /// Monotonic, nanoseconds.
    since: u64,
}

/// A connection that is being made for somebody. Dropped before its end, it is left to others.
struct Attempt<'p> {
    pool: &'p Rc<Pool>,
    future: Option<LocalFuture<io::Result<Connection>>>,
}

impl Future for Attempt<'_> {
    type Output = io::Result<Connection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.future.as_mut().expect("invariant: not polled after its end");
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            self.future = None;
        }
        polled
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.pool.leave(future);
        }
    }
}

impl Pool {
    /// An empty pool.
    pub fn new(peer: Arc<Peer>, limits: PoolLimits) -> Rc<Pool> {
        Pool::with_tls(peer, limits, None)
    }

    /// An empty pool of connections that speak TLS.
    pub fn with_tls(peer: Arc<Peer>, limits: PoolLimits, tls: Option<PeerTls>) -> Rc<Pool> {
        Rc::new(Pool {
            keeper: peer.add_keeper(tls.clone()),
            peer,
            tls,
            limits: Cell::new(limits),
            left: RefCell::default(),
            sweeper: RefCell::default(),
            is_sweeper_started: Cell::new(false),
            is_deadline_armed: Cell::new(false),
            has_put: Cell::new(false),
        })
    }

    /// What all workers know of the address.
    pub fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// How TLS is spoken on its connections.
    pub fn tls(&self) -> Option<&PeerTls> {
        self.tls.as_ref()
    }

    pub(crate) fn limits(&self) -> PoolLimits {
        self.limits.get()
    }

    /// Takes up other bounds.
    pub fn set_limits(&self, limits: PoolLimits) {
        self.limits.set(limits);
        self.wake_sweeper();
    }

    /// An idle connection that the other end has not closed: of this worker, or else of another one. `is_certain` asks the
    /// kernel once more: for requests that must not be sent twice.
    #[inline]
    pub fn take(&self, is_certain: bool) -> Option<Connection> {
        loop {
            let own = if self.keeper.idle() > 0 { self.keeper.change(Vec::pop) } else { None };
            let Some(Idle { connection, .. }) = own else { return self.take_elsewhere() };
            let Ok(connection) = connection.resume() else { continue };
            let is_stale = if is_certain { connection.is_stale_now() } else { connection.is_stale() };
            if !is_stale {
                return Some(connection);
            }
        }
    }

    #[cold]
    fn take_elsewhere(&self) -> Option<Connection> {
        // While somebody starves, or the worker is about to end, they are not for anybody.
        if self.limits.get().idle == 0 || self.peer.is_starving() {
            return None;
        }
        loop {
            let taken = self.peer.take_elsewhere(&self.keeper)?.resume();
            if let Ok(connection) = taken
                && !connection.is_stale_now()
            {
                return Some(connection);
            }
        }
    }

    /// A new connection. One that was being made for a request that is gone serves as well: who begins requests and
    /// cancels them must not make the peer accept a connection for each (FAULTS 59).
    ///
    /// # Errors
    /// What the system says, or `TimedOut`.
    pub async fn connect(self: &Rc<Self>) -> io::Result<Connection> {
        self.connect_unless(Connection::is_stale_now).await
    }

    /// The same where a peer may speak first. `is_useless`: what was being made for somebody else serves nobody now.
    pub(crate) async fn connect_unless(
        self: &Rc<Self>,
        is_useless: fn(&Connection) -> bool,
    ) -> io::Result<Connection> {
        loop {
            let left = self.left.borrow_mut().pop();
            let Some(Left { attempt, .. }) = left else { break };
            let made = Attempt { pool: self, future: Some(attempt) }.await;
            match made {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
                Ok(connection) if !is_useless(&connection) => return Ok(connection),
                // What has become of it in the meantime is not this request's concern.
                Ok(_) | Err(_) => {}
            }
        }
        let (peer, timeout, tls) = (self.peer.clone(), self.limits.get().connect_timeout, self.tls.clone());
        let future: LocalFuture<_> =
            Box::pin(async move { Connection::open(&peer, timeout, tls.as_ref()).await });
        Attempt { pool: self, future: Some(future) }.await
    }

    /// Nobody waits for a connection that is being made any more: the next request may have it.
    fn leave(self: &Rc<Self>, attempt: LocalFuture<io::Result<Connection>>) {
        if self.left.borrow().len() >= LEFT_MAX {
            return;
        }
        self.left.borrow_mut().push(Left { attempt, since: monotonic_ns() });
        match self.sweeper() {
            Some(waker) => waker.wake(),
            None => self.start_sweeper(),
        }
    }

    /// Keeps no idle connection from now on: for a worker that is about to end.
    pub fn close(&self) {
        self.set_limits(PoolLimits { idle: 0, ..self.limits.get() });
    }

    /// Whether it keeps any.
    pub fn has_idle(&self) -> bool {
        self.keeper.idle() > 0
    }

    /// Takes back a connection whose exchange was finished in order, `now`, monotonic nanoseconds. It is closed where it cannot
    /// be kept.
    #[inline]
    pub fn put(self: &Rc<Self>, mut connection: Connection, now: u64) {
        let limits = self.limits.get();
        if self.idle() >= limits.idle || connection.is_stale() || self.peer.is_starving() {
            return;
        }
        connection.count_exchange();
        self.has_put.set(true);
        match self.sweeper() {
            Some(waker) => {
                connection.wake_reader(&waker);
                if !self.is_deadline_armed.get() {
                    waker.wake();
                }
            }
            None => self.start_sweeper(),
        }
        let idle = Idle { connection: connection.park(), since: now };
        self.keeper.change(|connections| connections.push(idle));
        // Whoever began to starve since it was looked at has seen no idle connection here, and woken nobody.
        if self.peer.is_starving() {
            self.wake_sweeper();
        }
    }

    /// Idle connections.
    pub fn idle(&self) -> usize {
        self.keeper.idle()
    }

    fn sweeper(&self) -> Option<Waker> {
        self.sweeper.borrow().clone()
    }

    fn wake_sweeper(&self) {
        if let Some(waker) = self.sweeper() {
            waker.wake();
        }
    }

    fn start_sweeper(self: &Rc<Self>) {
        if !self.is_sweeper_started.replace(true) {
            let sweeper = Sweeper { pool: Rc::downgrade(self), deadline: None };
            // There is none any more where the worker itself ends.
            runtime::try_with(|runtime| runtime.spawn(sweeper));
        }
    }

    /// Lets go of what has to go. When the next one has been idle for too long.
    fn sweep(&self) -> Option<u64> {
        let limits = self.limits.get();
        let now = monotonic_ns();
        let lifetime = u64::try_from(limits.idle_timeout.as_nanos()).unwrap_or(u64::MAX);
        let mut wanted = self.keeper.wanted.swap(0, Relaxed);
        let is_starving = self.peer.is_starving();
        let mut excess = self.idle().saturating_sub(limits.idle);
        let goes = |kept: &mut Idle| {
            let is_old = now.saturating_sub(kept.since) >= lifetime;
            let goes = is_starving || is_old || wanted > 0 || excess > 0 || kept.connection.is_stale();
            if goes {
                wanted = wanted.saturating_sub(1);
                excess = excess.saturating_sub(1);
            }
            goes
        };
        let gone: Vec<Idle> = self.keeper.change(|connections| connections.extract_if(.., goes).collect());
        drop(gone); // not while others wait for the lock
        let has_passed = |left: &mut Left| now.saturating_sub(left.since) >= LEFT_TIME;
        let gone: Vec<Left> = self.left.borrow_mut().extract_if(.., has_passed).collect();
        drop(gone);
        // Where all are in use at the moment the first of them is not idle for too long before that.
        let since = self.keeper.change(|connections| connections.first().map(|oldest| oldest.since));
        let since = since.or_else(|| self.has_put.get().then_some(now));
        self.has_put.set(false);
        let idle = since.map(|since| since.saturating_add(lifetime));
        let left = self.left.borrow().first().map(|oldest| oldest.since.saturating_add(LEFT_TIME));
        idle.into_iter().chain(left).min()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.peer.remove_keeper(&self.keeper);
        drop(self.keeper.change(std::mem::take));
        self.wake_sweeper(); // it ends
    }
}

/// Lets go of idle connections for as long as their pool lives.
struct Sweeper {
    pool: Weak<Pool>,
    deadline: Option<Deadline>,
}

impl Future for Sweeper {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pool) = self.pool.upgrade() else { return Poll::Ready(()) };
        if pool.sweeper.borrow().is_none() {
            *pool.sweeper.borrow_mut() = Some(cx.waker().clone());
            pool.keeper.wake_with(cx.waker());
        }
        let next = pool.sweep();
        let wake = |kept: &mut Idle| kept.connection.wake_reader(cx.waker());
        pool.keeper.change(|connections| connections.iter_mut().for_each(wake));
        pool.is_deadline_armed.set(next.is_some());
        let deadline = next.map(timer::at);
        self.deadline = deadline;
        if let Some(deadline) = &mut self.deadline
            && Pin::new(deadline).poll(cx).is_ready()
        {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Peers;
    use std::io::Read;
    use std::net::TcpListener;
    use std::time::Instant;
    use tidegate_io::connect::Address;
    use tidegate_io::{Kind, Poller, Runtime};
    use tidegate_testkit::WAIT;

    /// What a worker does between two polls.
    fn turn(poller: &mut Poller, runtime: &Runtime) {
        let mut ready = Vec::new();
        poller.wait(Some(Duration::from_millis(10)), &mut ready).unwrap();
        ready.iter().filter(|event| event.kind() == Kind::Io).for_each(|event| runtime.on_io(event));
        runtime.expire(monotonic_ns());
        runtime.run_tasks();
    }

    #[test]
    fn a_connection_that_was_being_made_for_nobody_serves_the_next() {
        let mut poller = Poller::new().unwrap();
        let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let limits = PoolLimits {
            idle: 1,
            idle_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
        };
        let pool = Pool::new(Peers::new().peer(&address), limits);
        let mut cx = Context::from_waker(Waker::noop());

        // Cancelled before it is made, twice.
        for _ in 0..2 {
            let mut connect = Box::pin(pool.connect());
            assert!(connect.as_mut().poll(&mut cx).is_pending());
            drop(connect);
        }
        let mut connect = Box::pin(pool.connect());
        let deadline = Instant::now() + WAIT;
        let connection = loop {
            assert!(Instant::now() < deadline, "nobody is connected");
            match connect.as_mut().poll(&mut cx) {
                Poll::Ready(connection) => break connection.unwrap(),
                Poll::Pending => turn(&mut poller, &runtime),
            }
        };
        let (mut accepted, _) = listener.accept().unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "one was enough");
        drop((connect, connection));

        // Nobody comes: it is not kept.
        let mut connect = Box::pin(pool.connect());
        assert!(connect.as_mut().poll(&mut cx).is_pending());
        drop(connect);
        let deadline = Instant::now() + WAIT;
        while !pool.left.borrow().is_empty() {
            assert!(Instant::now() < deadline);
            turn(&mut poller, &runtime);
        }
        let mut end = [0; 1];
        accepted.set_nonblocking(false).unwrap();
        accepted.set_read_timeout(Some(WAIT)).unwrap();
        assert_eq!(accepted.read(&mut end).unwrap(), 0);
        let (mut left, _) = listener.accept().unwrap();
        left.set_nonblocking(false).unwrap();
        left.set_read_timeout(Some(WAIT)).unwrap();
        assert_eq!(left.read(&mut end).unwrap(), 0);
    }

    /// A worker of its own: its runtime, and a pool of connections to `peer`.
    fn worker(peer: Arc<Peer>) -> (Poller, Rc<Runtime>, Rc<Pool>) {
        let poller = Poller::new().unwrap();
        let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
        let limits = PoolLimits {
            idle: 4,
            idle_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
        };
        (poller, runtime, Pool::new(peer, limits))
    }

    fn opened(poller: &mut Poller, runtime: &Runtime, pool: &Rc<Pool>) -> Connection {
        let mut cx = Context::from_waker(Waker::noop());
        let mut connect = Box::pin(pool.connect());
        loop {
            match connect.as_mut().poll(&mut cx) {
                Poll::Ready(connection) => return connection.unwrap(),
                Poll::Pending => turn(poller, runtime),
            }
        }
    }

    #[test]
    fn a_worker_without_idle_connections_takes_one_of_another() {
        use std::io::Write;
        use std::sync::mpsc::channel;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = Peers::new().peer(&Address::Tcp(listener.local_addr().unwrap()));
        let (mut poller, runtime, pool) = worker(peer.clone());
        let kept: Vec<Connection> = (0..3).map(|_| opened(&mut poller, &runtime, &pool)).collect();
        let mut accepted: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        // The first one that is put back is the longest idle one, and its other end has gone.
        kept.into_iter().for_each(|connection| pool.put(connection, monotonic_ns()));
        assert_eq!((pool.idle(), peer.idle(), peer.open()), (3, 3, 3));
        accepted.remove(0).shutdown(std::net::Shutdown::Both).unwrap();

        let (told, tell) = channel();
        let there = peer.clone();
        let other = std::thread::spawn(move || {
            let (mut poller, runtime, pool) = worker(there);
            let taken = pool.take(false).expect("there is one that is open");
            assert!(taken.is_reused());
            told.send(()).unwrap();
            let mut buffer = [0; 8];
            let mut cx = Context::from_waker(Waker::noop());
            let count = loop {
                match taken.poll_recv(&mut cx, &mut buffer) {
                    Poll::Ready(count) => break count.unwrap(),
                    Poll::Pending => turn(&mut poller, &runtime),
                }
            };
            assert_eq!(&buffer[..count], b"answer");
            pool.put(taken, monotonic_ns());
            assert_eq!(pool.idle(), 1);
        });
        tell.recv().unwrap();
        assert_eq!(pool.idle(), 1, "one was closed, and one is used elsewhere");
        accepted[0].write_all(b"answer").unwrap();
        other.join().unwrap();

        // What the other worker kept has gone with it; this one has its own, and nothing that came was for it.
        assert_eq!((peer.idle(), peer.open()), (1, 1));
        turn(&mut poller, &runtime);
        let own = pool.take(true).expect("it was never touched");
        assert!(!own.is_stale_now());
        assert!(pool.take(false).is_none());
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "none was opened");
    }
}
