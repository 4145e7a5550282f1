//! What all workers of the process know of one address: connections that are open, and who keeps idle ones.
//!
//! Each worker keeps its own idle connections, and many applications serve one connection at a time: one that
//! a worker keeps idle is a process that no other worker can use. Three rules hold that off:
//!
//! - A worker that has no idle connection takes one of another worker ([`Peer::take_elsewhere`]). It is moved, so that it
//!   never has two owners, and only one whose last exchange was finished in order is there to be taken.
//! - A worker that opens a connection while others keep idle ones asks one of them to let go of one. So the
//!   connections that are open never grow while any is idle.
//! - A request that got no byte for a while on a new connection may wait behind idle ones ([`Starving`]):
//!   as long as there is one, all idle connections are let go and none is kept.
//!
//! Server processes beside this one, and those that an upgrade or a reload replaces, keep idle connections too. What starves
//! here is told to them ([`Peers::starving`]), and what starves there is heard of ([`Peers::let_go`]).

use crate::connection::{ParkedConnection, PeerTls};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::connect::Address;
use tidegate_io::locking::lock;

/// With more open connections than this further ones get bounded buffers of the kernel: as with clients, only a crowd
/// needs it.
const CROWD: usize = 128;

/// All that a process connects to. Its home makes one, and whoever connects is given it.
#[derive(Default)]
pub struct Peers {
    /// Open connections to all of them.
    open: AtomicUsize,
    known: Mutex<HashMap<Address, Weak<Peer>>>,
    on_starving: OnceLock<OnStarving>,
}

type OnStarving = Box<dyn Fn() + Send + Sync>;

/// How long no connection is kept after another process has said that it starves; it says so again as long as it does.
const HEARD: Duration = Duration::from_millis(500);

impl Peers {
    /// None yet.
    pub fn new() -> Arc<Peers> {
        Arc::default()
    }

    /// The peer at this address: one for all who ask as long as anybody uses it.
    pub fn peer(self: &Arc<Self>, address: &Address) -> Arc<Peer> {
        let mut known = lock(&self.known);
        if let Some(peer) = known.get(address).and_then(Weak::upgrade) {
            return peer;
        }
        let peer = Arc::new(Peer {
            all: self.clone(),
            address: address.clone(),
            open: AtomicUsize::new(0),
            starving: AtomicUsize::new(0),
            asking: AtomicUsize::new(0),
            elsewhere_until: AtomicU64::new(0),
            keepers: Mutex::default(),
        });
        known.insert(address.clone(), Arc::downgrade(&peer));
        peer
    }

    /// Names what is called, on any thread, when requests begin to starve at an address. Once only; it must not wait.
    pub fn on_starving(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_starving.set(Box::new(call));
    }

    /// The addresses at which requests of this process starve.
    pub fn starving(&self) -> Vec<Address> {
        let starves = |peer: &Arc<Peer>| peer.asking.load(Relaxed) > 0;
        self.all().into_iter().filter(starves).map(|peer| peer.address.clone()).collect()
    }

    fn all(&self) -> Vec<Arc<Peer>> {
        lock(&self.known).values().filter_map(Weak::upgrade).collect()
    }

    /// Requests of other processes starve there: lets go of what is idle, and keeps nothing for a moment.
    pub fn let_go(&self, addresses: &[Address]) {
        let until = monotonic_ns().saturating_add(HEARD.as_nanos() as u64);
        for address in addresses {
            let known = lock(&self.known).get(address).and_then(Weak::upgrade);
            if let Some(peer) = known {
                peer.elsewhere_until.store(until, SeqCst);
                peer.want_all();
            }
        }
    }

    /// How many are in use.
    pub fn count(&self) -> usize {
        lock(&self.known).len()
    }
}

/// One address, shared by the workers of the process.
pub struct Peer {
    all: Arc<Peers>,
    address: Address,
    open: AtomicUsize,
    starving: AtomicUsize,
    /// Requests among those that starve: the others are members of pools that have left.
    asking: AtomicUsize,
    /// Requests of other processes starve, as far as is known: monotonic, nanoseconds; 0 where none do.
    elsewhere_until: AtomicU64,
    keepers: Mutex<Vec<Arc<Keeper>>>,
}

/// An idle connection.
pub(crate) struct Idle {
    pub(crate) connection: ParkedConnection,
    /// Monotonic, nanoseconds.
    pub(crate) since: u64,
}

/// A worker that keeps idle connections.
pub(crate) struct Keeper {
    /// How TLS is spoken on them.
    tls: Option<PeerTls>,
    /// The longest idle first. Held for moments, and never while anything is closed.
    connections: Mutex<Vec<Idle>>,
    /// How many they are, for a glance without the lock.
    idle: AtomicUsize,
    /// Connections that it is asked to let go of.
    pub(crate) wanted: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl Peer {
    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether there are so many open connections, to whomever, that what the kernel keeps for each has to be bounded.
    pub(crate) fn is_in_a_crowd(&self) -> bool {
        self.all.open.load(Relaxed) > CROWD
    }

    /// Connections that are open, idle ones included, of all workers.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Connections that are kept idle, by all workers.
    pub fn idle(&self) -> usize {
        lock(&self.keepers).iter().map(|keeper| keeper.idle()).sum()
    }

    /// Whether no connection may be kept idle now.
    #[inline]
    pub(crate) fn is_starving(&self) -> bool {
        self.starving.load(SeqCst) > 0 || self.is_starving_elsewhere()
    }

    #[inline]
    fn is_starving_elsewhere(&self) -> bool {
        let until = self.elsewhere_until.load(SeqCst);
        until > 0 && monotonic_ns() < until
    }

    pub(crate) fn add_keeper(&self, tls: Option<PeerTls>) -> Arc<Keeper> {
        let keeper = Arc::new(Keeper {
            tls,
            connections: Mutex::default(),
            idle: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            waker: Mutex::new(None),
        });
        lock(&self.keepers).push(keeper.clone());
        keeper
    }

    pub(crate) fn remove_keeper(&self, keeper: &Arc<Keeper>) {
        lock(&self.keepers).retain(|known| !Arc::ptr_eq(known, keeper));
    }

    /// Takes the longest idle connection of the worker that keeps most, where it speaks as `own` does, from which nothing is to
    /// be had. Whether the other end has closed it, only the kernel can say.
    pub(crate) fn take_elsewhere(&self, own: &Keeper) -> Option<ParkedConnection> {
        let keepers = lock(&self.keepers);
        let others = keepers.iter().filter(|keeper| keeper.idle() > 0 && keeper.tls == own.tls);
        let most = others.max_by_key(|keeper| keeper.idle())?.clone();
        drop(keepers);
        let taken = most.change(|connections| (!connections.is_empty()).then(|| connections.remove(0)));
        taken.map(|idle| idle.connection)
    }

    /// Asks whoever keeps most to let go of one.
    fn want_one(&self) {
        let keepers = lock(&self.keepers);
        let spare = |keeper: &Keeper| keeper.idle().saturating_sub(keeper.wanted.load(Relaxed));
        if let Some(keeper) =
            keepers.iter().max_by_key(|keeper| spare(keeper)).filter(|keeper| spare(keeper) > 0)
        {
            keeper.wanted.fetch_add(1, Relaxed);
            keeper.wake();
        }
    }

    fn want_all(&self) {
        for keeper in lock(&self.keepers).iter().filter(|keeper| keeper.idle.load(SeqCst) > 0) {
            keeper.wake();
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut known = lock(&self.all.known);
        // Somebody may have asked for the address anew in the meantime.
        if known.get(&self.address).is_some_and(|peer| peer.strong_count() == 0) {
            known.remove(&self.address);
        }
    }
}

impl Keeper {
    /// Connections that it keeps.
    #[inline]
    pub(crate) fn idle(&self) -> usize {
        self.idle.load(Relaxed)
    }

    /// Changes what it keeps. What goes is to be returned: closing takes time.
    #[inline]
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Vec<Idle>) -> R) -> R {
        let mut connections = lock(&self.connections);
        let changed = change(&mut connections);
        // In one order with `starving`: either who keeps one sees who starves, or the other way round.
        self.idle.store(connections.len(), SeqCst);
        changed
    }

    pub(crate) fn wake_with(&self, waker: &Waker) {
        *lock(&self.waker) = Some(waker.clone());
    }

    fn wake(&self) {
        if let Some(waker) = &*lock(&self.waker) {
            waker.wake_by_ref();
        }
    }
}

/// Counts an open connection.
pub(crate) struct Opened(Arc<Peer>);

impl Opened {
    /// The worker that calls this keeps no idle one itself.
    pub(crate) fn new(peer: &Arc<Peer>) -> Opened {
        peer.all.open.fetch_add(1, Relaxed);
        peer.open.fetch_add(1, Relaxed);
        peer.want_one();
        Opened(peer.clone())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
        self.0.all.open.fetch_sub(1, Relaxed);
    }
}

/// A request that may be waiting behind idle connections; over when it is dropped.
pub struct Starving {
    peer: Arc<Peer>,
    is_asking: bool,
}

impl Starving {
    /// Until this is dropped no connection to `peer` is kept idle, by other processes either.
    pub fn new(peer: &Arc<Peer>) -> Starving {
        let is_first = peer.asking.fetch_add(1, Relaxed) == 0;
        let mut starving = Starving::here(peer);
        starving.is_asking = true;
        if is_first && let Some(call) = peer.all.on_starving.get() {
            call();
        }
        starving
    }

    /// The same for this process alone: of an address that nobody is to use any more.
    pub fn here(peer: &Arc<Peer>) -> Starving {
        peer.starving.fetch_add(1, SeqCst);
        peer.want_all();
        Starving { peer: peer.clone(), is_asking: false }
    }
}

impl Drop for Starving {
    fn drop(&mut self) {
        self.peer.starving.fetch_sub(1, Relaxed);
        if self.is_asking {
            self.peer.asking.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(name: &str) -> Address {
        Address::Unix(std::path::Path::new(name).into())
    }

    fn peer(name: &str) -> Arc<Peer> {
        Peers::new().peer(&address(name))
    }

    #[test]
    fn one_peer_for_each_address_and_none_when_nobody_uses_it() {
        let peers = Peers::new();
        let one = peers.peer(&address("/a"));
        assert!(Arc::ptr_eq(&one, &peers.peer(&address("/a"))));
        assert!(!Arc::ptr_eq(&one, &peers.peer(&address("/b"))));
        assert_eq!(peers.count(), 1);
        drop(one);
        assert_eq!(peers.count(), 0);
    }

    #[test]
    fn who_keeps_most_is_asked_for_each_new_connection() {
        let peer = peer("/keepers");
        let (few, many) = (peer.add_keeper(None), peer.add_keeper(None));
        let first = Opened::new(&peer);
        assert_eq!((few.wanted.load(Relaxed), many.wanted.load(Relaxed)), (0, 0));
        few.idle.store(1, Relaxed);
        many.idle.store(2, Relaxed);
        let others: Vec<_> = (0..5).map(|_| Opened::new(&peer)).collect();
        // One each, and not more than there are.
        assert_eq!((few.wanted.load(Relaxed), many.wanted.load(Relaxed)), (1, 2));
        assert_eq!((peer.open(), peer.idle()), (6, 3));
        drop((first, others));
        assert_eq!(peer.open(), 0);
    }

    #[test]
    fn starving_ends() {
        let peer = peer("/starving");
        assert!(!peer.is_starving());
        let (one, two) = (Starving::new(&peer), Starving::new(&peer));
        drop(one);
        assert!(peer.is_starving());
        drop(two);
        assert!(!peer.is_starving());
    }

    #[test]
    fn what_starves_elsewhere_is_given_up_here_for_a_moment() {
        let peers = Peers::new();
        let (asked, peer) = (Arc::new(AtomicUsize::new(0)), peers.peer(&address("/a")));
        let calls = asked.clone();
        peers.on_starving(move || {
            calls.fetch_add(1, Relaxed);
        });
        assert!(peers.starving().is_empty());
        let (left, one, two) = (Starving::here(&peer), Starving::new(&peer), Starving::new(&peer));
        assert_eq!((peers.starving(), asked.load(Relaxed)), (vec![address("/a")], 1));
        drop((one, two));
        assert!(peers.starving().is_empty() && peer.is_starving(), "who has left asks nobody else");
        drop(left);
        assert!(!peer.is_starving());
        peers.let_go(&[address("/a"), address("/nobody")]);
        assert!(peer.is_starving() && peers.starving().is_empty());
        peer.elsewhere_until.store(1, SeqCst);
        assert!(!peer.is_starving(), "it is over");
    }
}
