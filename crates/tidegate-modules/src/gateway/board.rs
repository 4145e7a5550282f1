//! The pools as the workers of a process see them: where each listens, how many requests it takes at once,
//! and whether it is alive.
//!
//! The supervisor in the master says so in [`PoolUpdate`]s and is told what is wanted in [`PoolDemand`]s;
//! both can be sent over a link between processes. Handlers ask for a [`Lease`] and never see a process.

use super::places::{Demand, Place, PlaceLimits, Places, PlacesReport, Refused};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tidegate_io::connect::Address;

/// Where a pool, or one process of it, listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolAddress {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl From<PoolAddress> for Address {
    fn from(address: PoolAddress) -> Address {
        match address {
            PoolAddress::Tcp(address) => Address::Tcp(address),
            PoolAddress::Unix(path) => Address::Unix(path),
        }
    }
}

impl fmt::Display for PoolAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Address::from(self.clone()).fmt(f)
    }
}

/// How a pool is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolPhase {
    /// Its first processes are on their way.
    Starting,
    /// It serves.
    Up,
    /// No process runs, and one is started when somebody asks.
    Idle,
    /// Its processes end as soon as they are started; the next attempt is a while away.
    Failing,
    /// It is being ended.
    Stopping,
}

impl PoolPhase {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            PoolPhase::Starting => "starting",
            PoolPhase::Up => "up",
            PoolPhase::Idle => "idle",
            PoolPhase::Failing => "failing",
            PoolPhase::Stopping => "stopping",
        }
    }
}

/// What the supervisor says of a pool: all of it, each time something has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUpdate {
    /// Its name in the settings.
    pub name: String,
    /// Where it listens: one address that its processes share, or one for each process.
    pub addresses: Vec<PoolAddress>,
    /// Requests that it takes at once.
    pub places: usize,
    /// Requests that may wait before it.
    pub queue_length: usize,
    /// How long one may wait.
    pub queue_age: Duration,
    /// How it is.
    pub phase: PoolPhase,
    /// Set while it is down: when the next attempt is due.
    pub retry_after: Option<Duration>,
}

/// What the workers want of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDemand {
    /// Its name.
    pub name: String,
    /// What is wanted.
    pub demand: Demand,
}

/// Every pool of the server, by name. Shared by the workers of a process.
#[derive(Default)]
pub struct Board {
    pools: RwLock<HashMap<String, Arc<Pool>>>,
    on_pressure: OnceLock<Arc<dyn Fn() + Send + Sync>>,
}

impl Board {
    /// A board without pools.
    pub fn new() -> Arc<Board> {
        Arc::default()
    }

    /// The pool of this name. One that nobody has spoken of yet is there as well: requests wait in its
    /// queue until the supervisor says where it listens.
    pub fn pool(&self, name: &str) -> Arc<Pool> {
        if let Some(pool) = self.pools.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return pool.clone();
        }
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let on_pressure = self.on_pressure.get();
        pools.entry(name.to_owned()).or_insert_with(|| Pool::new(name, on_pressure)).clone()
    }

    /// Takes in what the supervisor says.
    pub fn apply(&self, update: PoolUpdate) {
        self.pool(&update.name).apply(update);
    }

    /// Forgets pools that are in no settings any more. Handlers of a revision that is going away keep
    /// theirs.
    pub fn retain(&self, is_wanted: impl Fn(&str) -> bool) {
        self.pools.write().unwrap_or_else(PoisonError::into_inner).retain(|name, _| is_wanted(name));
    }

    /// What the workers want of each pool, since they were last asked.
    pub fn demands(&self) -> Vec<PoolDemand> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        let demand = |pool: &Arc<Pool>| PoolDemand { name: pool.name.clone(), demand: pool.places.demand() };
        pools.values().map(demand).collect()
    }

    /// Names what is called, on any thread, when requests begin to wait before a pool. Once, and before
    /// the first pool is asked for.
    pub fn on_pressure(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_pressure.set(Arc::new(call));
    }

    /// The queues of all pools, by name.
    pub fn report(&self) -> Vec<(String, PoolPhase, PlacesReport)> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        let row = |pool: &Arc<Pool>| (pool.name.clone(), pool.phase(), pool.places.report());
        let mut rows: Vec<_> = pools.values().map(row).collect();
        rows.sort_by(|one, two| one.0.cmp(&two.0));
        rows
    }
}

/// One pool as the workers see it.
pub struct Pool {
    name: String,
    places: Arc<Places>,
    state: RwLock<State>,
}

struct State {
    phase: PoolPhase,
    members: Vec<Arc<Member>>,
}

struct Member {
    address: Address,
    in_use: AtomicUsize,
}

impl Pool {
    fn new(name: &str, on_pressure: Option<&Arc<dyn Fn() + Send + Sync>>) -> Arc<Pool> {
        // What counts until the supervisor has spoken: nobody is served, and few wait.
        let limits = PlaceLimits { places: 0, queue_length: 128, queue_age: Some(Duration::from_secs(2)) };
        let places = Places::new(limits);
        if let Some(call) = on_pressure.cloned() {
            places.on_pressure(move || call());
        }
        let state = RwLock::new(State { phase: PoolPhase::Starting, members: Vec::new() });
        Arc::new(Pool { name: name.to_owned(), places, state })
    }

    /// Its name in the settings.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is.
    pub fn phase(&self) -> PoolPhase {
        self.state.read().unwrap_or_else(PoisonError::into_inner).phase
    }

    /// Its places and its queue.
    pub fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// Where it listens now: nothing while none of it runs.
    pub fn addresses(&self) -> Vec<Address> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.members.iter().map(|member| member.address.clone()).collect()
    }

    /// Waits for a place and says where to go with it.
    ///
    /// # Errors
    /// The queue is full, the wait was too long, or the pool is down.
    pub async fn take(&self) -> Result<Lease, Refused> {
        let place = self.places.take().await?;
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let member = state.members.iter().min_by_key(|member| member.in_use.load(Relaxed));
        // Places are only there as long as there are members: this one went away in between.
        let member = member.ok_or(Refused::Down { retry_after: Duration::from_secs(1) })?.clone();
        member.in_use.fetch_add(1, Relaxed);
        Ok(Lease { member, _place: place })
    }

    fn apply(&self, update: PoolUpdate) {
        let limits = PlaceLimits {
            places: update.places,
            queue_length: update.queue_length,
            queue_age: Some(update.queue_age),
        };
        {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            state.phase = update.phase;
            let mut known = std::mem::take(&mut state.members);
            for address in update.addresses.into_iter().map(Address::from) {
                let member = match known.iter().position(|member| member.address == address) {
                    Some(index) => known.swap_remove(index),
                    None => Arc::new(Member { address, in_use: AtomicUsize::new(0) }),
                };
                state.members.push(member);
            }
        }
        // Members first: whoever is woken by a new place must find where to go.
        self.places.set_limits(limits);
        self.places.set_down(update.retry_after);
    }
}

/// A place in a pool, and the address to take the request to. Free again when it is dropped.
pub struct Lease {
    member: Arc<Member>,
    _place: Place,
}

impl Lease {
    /// Where to connect.
    pub fn address(&self) -> &Address {
        &self.member.address
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.member.in_use.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn update(places: usize, ports: &[u16]) -> PoolUpdate {
        let address = |port: &u16| PoolAddress::Tcp(([127, 0, 0, 1], *port).into());
        PoolUpdate {
            name: "app".into(),
            addresses: ports.iter().map(address).collect(),
            places,
            queue_length: 0,
            queue_age: Duration::from_secs(1),
            phase: PoolPhase::Up,
            retry_after: None,
        }
    }

    fn take(pool: &Pool) -> Result<Lease, Refused> {
        match pin!(pool.take()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("a queue without room never makes one wait"),
        }
    }

    use std::future::Future;

    #[test]
    fn requests_go_to_the_member_with_the_fewest() {
        let board = Board::default();
        let pool = board.pool("app");
        board.apply(update(4, &[1, 2]));
        let leases: Vec<Lease> = (0..4).map(|_| take(&pool).expect("a place")).collect();
        let mut ports: Vec<String> = leases.iter().map(|lease| lease.address().to_string()).collect();
        ports.sort();
        assert_eq!(ports, ["127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:2"]);
        assert!(matches!(take(&pool), Err(Refused::Full { .. })));
        drop(leases);
        // One goes away, one comes: the counts of those that stay are kept.
        let _held = take(&pool).expect("a place");
        board.apply(update(4, &[2, 3]));
        assert_eq!(pool.addresses().len(), 2);
        assert_eq!(pool.places().in_use(), 1);
    }

    #[test]
    fn a_pool_that_is_down_says_so_at_once() {
        let board = Board::default();
        let pool = board.pool("app");
        let retry_after = Some(Duration::from_secs(7));
        board.apply(PoolUpdate { phase: PoolPhase::Failing, retry_after, ..update(0, &[]) });
        assert_eq!(take(&pool).err().map(|refused| refused.retry_after_seconds()), Some(7));
        board.apply(update(1, &[1]));
        assert!(take(&pool).is_ok());
        assert_eq!(board.demands().len(), 1);
        board.retain(|name| name != "app");
        assert!(board.demands().is_empty());
    }

    #[test]
    fn messages_survive_the_link() {
        let update = PoolUpdate { retry_after: Some(Duration::from_millis(1500)), ..update(2, &[9]) };
        let text = serde_json::to_string(&update).expect("can be written");
        assert_eq!(serde_json::from_str::<PoolUpdate>(&text).expect("can be read"), update);
        let demand = PoolDemand { name: "app".into(), demand: Demand { waiting: 3, ..Demand::default() } };
        let text = serde_json::to_string(&demand).expect("can be written");
        assert_eq!(serde_json::from_str::<PoolDemand>(&text).expect("can be read"), demand);
    }
}
