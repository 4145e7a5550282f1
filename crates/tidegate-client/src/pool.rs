//! The idle connections of one worker to one address.
//!
//! The last one that came back is the first to be used. A task of the worker lets go of what was idle for
//! too long, of what the other end has closed, and of what other workers need (see `peer`).

use crate::connection::{Connection, PeerTls};
use crate::peer::{Keeper, Peer};
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
use tidegate_io::connect::Address;
use tidegate_io::runtime;
use tidegate_io::timer::{self, Deadline};

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
    /// The longest idle first.
    idle: RefCell<Vec<Idle>>,
    /// Of the task that lets go, once it runs.
    sweeper: RefCell<Option<Waker>>,
    is_sweeper_started: Cell<bool>,
    is_deadline_armed: Cell<bool>,
}

struct Idle {
    connection: Connection,
    /// Monotonic, nanoseconds.
    since: u64,
}

impl Pool {
    /// An empty pool.
    pub fn new(address: &Address, limits: PoolLimits) -> Rc<Pool> {
        Pool::with_tls(address, limits, None)
    }

    /// An empty pool of connections that speak TLS.
    pub fn with_tls(address: &Address, limits: PoolLimits, tls: Option<PeerTls>) -> Rc<Pool> {
        let peer = Peer::of(address);
        Rc::new(Pool {
            keeper: peer.add_keeper(),
            peer,
            tls,
            limits: Cell::new(limits),
            idle: RefCell::default(),
            sweeper: RefCell::default(),
            is_sweeper_started: Cell::new(false),
            is_deadline_armed: Cell::new(false),
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

    /// Takes up other bounds.
    pub fn set_limits(&self, limits: PoolLimits) {
        self.limits.set(limits);
        self.wake_sweeper();
    }

    /// An idle connection that the other end has not closed. `is_certain` asks the kernel once more: for
    /// requests that must not be sent twice.
    #[inline]
    pub fn take(&self, is_certain: bool) -> Option<Connection> {
        loop {
            let Idle { connection, .. } = self.idle.borrow_mut().pop()?;
            self.peer.remove_idle(&self.keeper);
            let is_stale = if is_certain { connection.is_stale_now() } else { connection.is_stale() };
            if !is_stale {
                return Some(connection);
            }
        }
    }

    /// A new connection.
    ///
    /// # Errors
    /// What the system says, or `TimedOut`.
    pub async fn connect(&self) -> io::Result<Connection> {
        Connection::open(&self.peer, self.limits.get().connect_timeout, self.tls.as_ref()).await
    }

    /// Takes back a connection whose exchange was finished in order. It is closed where it cannot be kept.
    #[inline]
    pub fn put(self: &Rc<Self>, mut connection: Connection) {
        let limits = self.limits.get();
        if self.idle() >= limits.idle || connection.is_stale() || self.peer.is_starving() {
            return;
        }
        connection.count_exchange();
        match self.sweeper() {
            Some(waker) => {
                connection.wake_reader(&waker);
                if !self.is_deadline_armed.get() {
                    waker.wake();
                }
            }
            None => self.start_sweeper(),
        }
        self.idle.borrow_mut().push(Idle { connection, since: monotonic_ns() });
        self.peer.add_idle(&self.keeper);
    }

    /// Idle connections.
    pub fn idle(&self) -> usize {
        self.idle.borrow().len()
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
            runtime::with(|runtime| runtime.spawn(sweeper));
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
        let gone: Vec<Idle> = self.idle.borrow_mut().extract_if(.., goes).collect();
        gone.iter().for_each(|_| self.peer.remove_idle(&self.keeper));
        drop(gone); // not while the cell is borrowed
        self.idle.borrow().first().map(|oldest| oldest.since.saturating_add(lifetime))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for _ in self.idle.take() {
            self.peer.remove_idle(&self.keeper);
        }
        self.peer.remove_keeper(&self.keeper);
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
        pool.idle.borrow().iter().for_each(|kept| kept.connection.wake_reader(cx.waker()));
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
