//! What all workers of the process know of one address: connections that are open, and who keeps idle ones.
//!
//! Each worker keeps its own idle connections, and many applications serve one connection at a time: one that
//! a worker keeps idle is a process that no other worker can use. Two rules hold that off:
//!
//! - A worker that opens a connection while others keep idle ones asks one of them to let go of one. So the
//!   connections that are open never grow while any is idle.
//! - A request that got no byte for a while on a new connection may wait behind idle ones ([`Starving`]):
//!   as long as there is one, all idle connections are let go and none is kept.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use tidegate_io::connect::Address;

/// With more open connections than this further ones get bounded buffers of the kernel: as with clients, only a crowd
/// needs it.
const CROWD: usize = 128;

/// All that a process connects to. Its home makes one, and whoever connects is given it.
#[derive(Default)]
pub struct Peers {
    /// Open connections to all of them.
    open: AtomicUsize,
    known: Mutex<HashMap<Address, Weak<Peer>>>,
}

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
            idle: AtomicUsize::new(0),
            starving: AtomicUsize::new(0),
            keepers: Mutex::default(),
        });
        known.insert(address.clone(), Arc::downgrade(&peer));
        peer
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
    idle: AtomicUsize,
    starving: AtomicUsize,
    keepers: Mutex<Vec<Arc<Keeper>>>,
}

/// A worker that keeps idle connections.
pub(crate) struct Keeper {
    pub(crate) idle: AtomicUsize,
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
        self.idle.load(Relaxed)
    }

    /// Whether no connection may be kept idle now.
    #[inline]
    pub(crate) fn is_starving(&self) -> bool {
        self.starving.load(SeqCst) > 0
    }

    pub(crate) fn add_keeper(&self) -> Arc<Keeper> {
        let keeper = Arc::new(Keeper {
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

    pub(crate) fn add_idle(&self, keeper: &Keeper) {
        self.idle.fetch_add(1, Relaxed);
        // In one order with `starving`: either who keeps one sees who starves, or the other way round.
        keeper.idle.fetch_add(1, SeqCst);
    }

    pub(crate) fn remove_idle(&self, keeper: &Keeper) {
        self.idle.fetch_sub(1, Relaxed);
        keeper.idle.fetch_sub(1, Relaxed);
    }

    /// Asks whoever keeps most to let go of one.
    fn want_one(&self) {
        if self.idle() == 0 {
            return;
        }
        let keepers = lock(&self.keepers);
        let spare = |keeper: &Keeper| keeper.idle.load(Relaxed).saturating_sub(keeper.wanted.load(Relaxed));
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
pub struct Starving(Arc<Peer>);

impl Starving {
    /// Until this is dropped no connection to `peer` is kept idle.
    pub fn new(peer: &Arc<Peer>) -> Starving {
        peer.starving.fetch_add(1, SeqCst);
        peer.want_all();
        Starving(peer.clone())
    }
}

impl Drop for Starving {
    fn drop(&mut self) {
        self.0.starving.fetch_sub(1, Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(name: &str) -> Address {
        Address::Unix(name.into())
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
        let (few, many) = (peer.add_keeper(), peer.add_keeper());
        let first = Opened::new(&peer);
        assert_eq!((few.wanted.load(Relaxed), many.wanted.load(Relaxed)), (0, 0));
        peer.add_idle(&few);
        (0..2).for_each(|_| peer.add_idle(&many));
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
}
