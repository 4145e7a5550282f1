//! What the workers of a process share of applications, in one place ([`PoolDirectory`]): pools, groups, the queues before plain
//! addresses, whom connections lead to, and the room for content that is kept.
//!
//! An engine that is built takes what it names from here, and changes nothing that others see. Once it is in force, or given
//! up, [`PoolDirectory::keep`] lets go of what no settings and no request use any more.
//!
//! Of a pool: where each process listens, how many requests it takes at once, and whether it is alive.
//!
//! The supervisor in the master says so in [`PoolUpdate`]s and is told what is wanted in [`PoolDemand`]s;
//! both can be sent over a link between processes. Handlers ask for a [`Lease`] and never see a process.

use super::balance::groups::Groups;
use super::places::{Demand, Place, PlaceLimits, Places, PlacesReport, Refused};
use super::spill::{Spill, Spills};
use super::upstream::Queues;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use tidegate_client::{Peers, Starving};
use tidegate_config::Settings;
use tidegate_config::settings;
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

impl From<Address> for PoolAddress {
    fn from(address: Address) -> PoolAddress {
        match address {
            Address::Tcp(address) => PoolAddress::Tcp(address),
            Address::Unix(path) => PoolAddress::Unix(path),
        }
    }
}

impl fmt::Display for PoolAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Address::from(self.clone()).fmt(f)
    }
}

/// Members that have left and are remembered as such.
const DEPARTED: usize = 256;

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

/// A process of a pool, or several that share a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMember {
    /// Where it listens; no two members of a pool have the same.
    pub address: PoolAddress,
    /// Requests that it takes at once.
    pub places: usize,
}

/// What the supervisor says of a pool: all of it, each time something has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUpdate {
    /// Its name in the settings.
    pub name: String,
    /// Rises with each update; demands say which one they know.
    pub sequence: u64,
    /// Those that take requests now. One that is left out gets no further ones and ends those it has.
    pub members: Vec<PoolMember>,
    /// Requests that may wait before it.
    pub queue_length: usize,
    /// How long one may wait.
    pub queue_age: Duration,
    /// How it is.
    pub phase: PoolPhase,
    /// Set while it is down: when the next attempt is due.
    pub retry_after: Option<Duration>,
}

/// What the workers want of a pool, and what they know of its members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDemand {
    /// Its name.
    pub name: String,
    /// The last update taken in.
    pub sequence: u64,
    /// What is wanted.
    pub demand: Demand,
    /// Each member, and each that was left out and still has requests.
    pub members: Vec<MemberDemand>,
}

impl PoolDemand {
    /// Adds what the workers of another process want. The update that both know is the older one.
    pub fn merge(&mut self, other: &PoolDemand) {
        self.sequence = self.sequence.min(other.sequence);
        self.demand.merge(&other.demand);
        for theirs in &other.members {
            match self.members.iter_mut().find(|member| member.address == theirs.address) {
                Some(member) => {
                    member.in_use += theirs.in_use;
                    member.requests += theirs.requests;
                    member.hung += theirs.hung;
                }
                None => self.members.push(theirs.clone()),
            }
        }
    }
}

/// What the workers know of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberDemand {
    /// Where it listens.
    pub address: PoolAddress,
    /// Requests under way.
    pub in_use: usize,
    /// Requests taken to it since it was named first.
    pub requests: u64,
    /// Requests that it has left without an answer until their deadline.
    pub hung: u64,
}

/// What is called when requests begin to wait.
type OnPressure = Arc<dyn Fn() + Send + Sync>;

/// What the workers of a process share of applications. There is one for each process, and no other state of the gateways
/// that outlives an engine.
#[derive(Default)]
pub struct PoolDirectory {
    pools: RwLock<HashMap<String, Arc<Pool>>>,
    groups: Groups,
    queues: Queues,
    spills: Spills,
    peers: Arc<Peers>,
    on_pressure: OnceLock<OnPressure>,
}

impl PoolDirectory {
    /// A directory without pools.
    pub fn new() -> Arc<PoolDirectory> {
        Arc::default()
    }

    /// The queues before plain addresses.
    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Whom connections lead to.
    pub(super) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// The addresses at which requests of this process wait behind idle connections that others may keep.
    pub fn starving(&self) -> Vec<PoolAddress> {
        self.peers.starving().into_iter().map(PoolAddress::from).collect()
    }

    /// Requests of another process wait there: lets go of what is idle.
    pub fn let_go(&self, addresses: Vec<PoolAddress>) {
        self.peers.let_go(&addresses.into_iter().map(Address::from).collect::<Vec<_>>());
    }

    /// Names what is called, on any thread, when requests begin to wait so. Once only.
    pub fn on_starving(&self, call: impl Fn() + Send + Sync + 'static) {
        self.peers.on_starving(call);
    }

    /// Where content waits that has to be complete: the same for all who ask with the same settings.
    pub fn spill(&self, settings: &settings::gateway::Spill) -> Arc<Spill> {
        self.spills.of(settings)
    }

    /// These settings are in force, or stay so: what belongs to none of them goes, but for what requests under way use.
    pub fn keep(&self, settings: &Settings) {
        let is_wanted = |name: &str| settings.pools.iter().any(|pool| pool.name == name);
        self.pools.write().unwrap_or_else(PoisonError::into_inner).retain(|name, _| is_wanted(name));
        self.groups.retain(&settings.upstreams);
        self.queues.sweep();
        self.spills.sweep();
    }

    /// How much there is of each kind.
    pub fn held(&self) -> Held {
        Held {
            pools: self.pools.read().unwrap_or_else(PoisonError::into_inner).len(),
            groups: self.groups.report().len(),
            queues: self.queues.count(),
            spills: self.spills.count(),
            peers: self.peers.count(),
        }
    }

    /// The upstream groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The pool of this name. One that nobody has spoken of yet is there as well: requests wait in its
    /// queue until the supervisor says where it listens.
    pub fn pool(&self, name: &str) -> Arc<Pool> {
        if let Some(pool) = self.pools.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return pool.clone();
        }
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let on_pressure = self.on_pressure.get();
        pools.entry(name.to_owned()).or_insert_with(|| Pool::new(name, &self.peers, on_pressure)).clone()
    }

    /// Takes in what the supervisor says.
    pub fn apply(&self, update: PoolUpdate) {
        self.pool(&update.name).apply(update);
    }

    /// What the workers want of each pool, since they were last asked.
    pub fn demands(&self) -> Vec<PoolDemand> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        pools.values().map(|pool| pool.demand()).collect()
    }

    /// Names what is called, on any thread, when requests begin to wait before a pool. Once, and before
    /// the first pool is asked for. It must not wait.
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

/// What a [`PoolDirectory`] holds, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Pools.
    pub pools: usize,
    /// Upstream groups.
    pub groups: usize,
    /// Queues before plain addresses.
    pub queues: usize,
    /// Rooms for content that is kept.
    pub spills: usize,
    /// Addresses that connections lead to.
    pub peers: usize,
}

/// One pool as the workers see it.
pub struct Pool {
    name: String,
    peers: Arc<Peers>,
    places: Arc<Places>,
    state: RwLock<State>,
}

struct State {
    phase: PoolPhase,
    sequence: u64,
    members: Vec<Arc<Member>>,
    /// Left out of the last update, with requests under way.
    leaving: Vec<Arc<Member>>,
    /// Left out lately: no idle connection to them is kept.
    departed: VecDeque<(PoolAddress, Starving)>,
}

struct Member {
    named: PoolAddress,
    address: Address,
    places: AtomicUsize,
    in_use: AtomicUsize,
    requests: AtomicU64,
    hung: AtomicU64,
    is_leaving: AtomicBool,
}

impl Member {
    fn new(named: PoolAddress) -> Arc<Member> {
        Arc::new(Member {
            address: named.clone().into(),
            named,
            places: AtomicUsize::new(0),
            in_use: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            hung: AtomicU64::new(0),
            is_leaving: AtomicBool::new(false),
        })
    }

    /// Share of its places in use, in units of 2^-16: what balancing compares.
    fn load(&self) -> usize {
        (self.in_use.load(Relaxed) << 16) / self.places.load(Relaxed).max(1)
    }

    fn demand(&self) -> MemberDemand {
        MemberDemand {
            address: self.named.clone(),
            in_use: self.in_use.load(Relaxed),
            requests: self.requests.load(Relaxed),
            hung: self.hung.load(Relaxed),
        }
    }
}

impl State {
    /// Requests at once: those that leave keep what they have until it ends, so that nobody else loses by
    /// it.
    fn places(&self) -> usize {
        let present = self.members.iter().map(|member| member.places.load(Relaxed));
        let leaving = self.leaving.iter().map(|member| member.in_use.load(Relaxed));
        present.chain(leaving).sum()
    }
}

impl Pool {
    fn new(name: &str, peers: &Arc<Peers>, on_pressure: Option<&OnPressure>) -> Arc<Pool> {
        // What counts until the supervisor has spoken: nobody is served, and few wait.
        let limits = PlaceLimits { places: 0, queue_length: 128, queue_age: Some(Duration::from_secs(2)) };
        let places = Places::new(limits);
        if let Some(call) = on_pressure.cloned() {
            places.on_pressure(move || call());
        }
        let phase = PoolPhase::Starting;
        let state = RwLock::new(State {
            phase,
            sequence: 0,
            members: Vec::new(),
            leaving: Vec::new(),
            departed: VecDeque::new(),
        });
        Arc::new(Pool { name: name.to_owned(), peers: peers.clone(), places, state })
    }

    /// Its name in the settings.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is.
    pub fn phase(&self) -> PoolPhase {
        self.read().phase
    }

    /// Its places and its queue.
    pub fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// Where it listens now: nothing while none of it runs.
    pub fn addresses(&self) -> Vec<Address> {
        self.read().members.iter().map(|member| member.address.clone()).collect()
    }

    /// Waits for one of the places of a site and says where to go with it: to the member with the smallest share of its places
    /// in use, and to none of `left` where there are others.
    ///
    /// # Errors
    /// The queue is full, the wait was too long, or the pool is down.
    pub async fn take(self: &Arc<Self>, site: u64, left: &[Address]) -> Result<Lease, Refused> {
        loop {
            let place = self.places.take(site).await?;
            let state = self.read();
            // None is left when the last one went away after the place was given: wait for the next.
            let rank = |member: &&Arc<Member>| (left.contains(&member.address), member.load());
            let Some(member) = state.members.iter().min_by_key(rank) else { continue };
            member.in_use.fetch_add(1, Relaxed);
            member.requests.fetch_add(1, Relaxed);
            return Ok(Lease { pool: self.clone(), member: member.clone(), _place: place });
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn demand(&self) -> PoolDemand {
        let state = self.read();
        PoolDemand {
            name: self.name.clone(),
            sequence: state.sequence,
            demand: self.places.demand(),
            members: state.members.iter().chain(&state.leaving).map(|member| member.demand()).collect(),
        }
    }

    fn apply(&self, update: PoolUpdate) {
        let mut state = self.write();
        state.phase = update.phase;
        state.sequence = update.sequence;
        let mut known = std::mem::take(&mut state.members);
        for PoolMember { address, places } in update.members {
            let member = match known.iter().position(|member| member.named == address) {
                Some(index) => known.swap_remove(index),
                None => Member::new(address),
            };
            state.departed.retain(|(departed, _)| *departed != member.named);
            member.places.store(places, Relaxed);
            state.members.push(member);
        }
        for member in known {
            member.is_leaving.store(true, Relaxed);
            // Idle connections that workers keep to it hold up its end.
            let starving = Starving::here(&self.peers.peer(&member.address));
            state.departed.push_back((member.named.clone(), starving));
            state.leaving.push(member);
        }
        while state.departed.len() > DEPARTED {
            state.departed.pop_front();
        }
        state.leaving.retain(|member| member.in_use.load(Relaxed) > 0);
        let limits = PlaceLimits {
            places: state.places(),
            queue_length: update.queue_length,
            queue_age: Some(update.queue_age),
        };
        // With the lock held: whoever is given a place by this looks for a member after it.
        self.places.set_limits(limits);
        self.places.set_down(update.retry_after);
    }

    /// A member that leaves has ended a request.
    fn forget(&self) {
        let mut state = self.write();
        state.leaving.retain(|member| member.in_use.load(Relaxed) > 0);
        self.places.set_places(state.places());
    }
}

/// A place in a pool, and the address to take the request to. Free again when it is dropped.
///
/// To be held until the application is done with the request, which may be after the client has gone:
/// what is free here is taken to be free there.
pub struct Lease {
    pool: Arc<Pool>,
    member: Arc<Member>,
    /// Dropped after `Drop::drop` has run, so that the count of the member is right when it is given on.
    _place: Place,
}

impl Lease {
    /// Where to connect.
    pub fn address(&self) -> &Address {
        &self.member.address
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Ends the lease of a request that got no answer until its deadline: the supervisor ends the process.
    pub fn hung(self) {
        self.member.hung.fetch_add(1, Relaxed);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.member.in_use.fetch_sub(1, Relaxed);
        if self.member.is_leaving.load(Relaxed) {
            self.pool.forget();
        }
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
            sequence: 1,
            members: ports.iter().map(|port| PoolMember { address: address(port), places }).collect(),
            queue_length: 0,
            queue_age: Duration::from_secs(1),
            phase: PoolPhase::Up,
            retry_after: None,
        }
    }

    fn take(pool: &Arc<Pool>) -> Result<Lease, Refused> {
        match pin!(pool.take(1, &[])).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("a queue without room never makes one wait"),
        }
    }

    use std::future::Future;

    #[test]
    fn requests_go_to_the_member_with_the_fewest() {
        let directory = PoolDirectory::default();
        let pool = directory.pool("app");
        directory.apply(update(2, &[1, 2]));
        let leases: Vec<Lease> = (0..4).map(|_| take(&pool).expect("a place")).collect();
        let mut ports: Vec<String> = leases.iter().map(|lease| lease.address().to_string()).collect();
        ports.sort();
        assert_eq!(ports, ["127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:2"]);
        assert!(matches!(take(&pool), Err(Refused::Full { .. })));
        drop(leases);
        // One goes away, one comes: the counts of those that stay are kept.
        let _held = take(&pool).expect("a place");
        directory.apply(update(2, &[2, 3]));
        assert_eq!(pool.addresses().len(), 2);
        assert_eq!(pool.places().in_use(), 1);
    }

    #[test]
    fn who_tries_again_leaves_the_one_that_has_failed() {
        let directory = PoolDirectory::default();
        let pool = directory.pool("app");
        directory.apply(update(2, &[1, 2]));
        let first = take(&pool).expect("a place");
        let left = [first.address().clone()];
        drop(first);
        for _ in 0..3 {
            let Poll::Ready(Ok(lease)) =
                pin!(pool.take(1, &left)).poll(&mut Context::from_waker(Waker::noop()))
            else {
                panic!("a place")
            };
            assert_ne!(lease.address(), &left[0]);
        }
        // Where there is no other, its successor at the same address has it.
        directory.apply(PoolUpdate { sequence: 2, ..update(2, &[1]) });
        let only = [take(&pool).expect("a place").address().clone()];
        assert!(pin!(pool.take(1, &only)).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }

    #[test]
    fn who_leaves_ends_what_it_has_and_costs_nobody_a_place() {
        let directory = PoolDirectory::default();
        let pool = directory.pool("app");
        directory.apply(update(1, &[1, 2]));
        let (one, two) = (take(&pool).expect("a place"), take(&pool).expect("a place"));
        let (one, two) = if one.address().to_string().ends_with(":1") { (one, two) } else { (two, one) };
        directory.apply(PoolUpdate { sequence: 2, ..update(1, &[2, 3]) });
        let demand = &directory.demands()[0];
        assert_eq!((demand.sequence, demand.members.len()), (2, 3));
        assert!(demand.members.iter().all(|member| member.in_use == usize::from(member.requests > 0)));
        let third = take(&pool).expect("the place of the new one");
        assert!(third.address().to_string().ends_with(":3"));
        assert!(take(&pool).is_err());
        drop(one);
        assert!(take(&pool).is_err());
        assert_eq!(directory.demands()[0].members.len(), 2);
        drop(two);
        assert!(take(&pool).is_ok());
    }

    #[test]
    fn a_pool_that_is_down_says_so_at_once() {
        let directory = PoolDirectory::default();
        let pool = directory.pool("app");
        let retry_after = Some(Duration::from_secs(7));
        directory.apply(PoolUpdate { phase: PoolPhase::Failing, retry_after, ..update(0, &[]) });
        assert_eq!(take(&pool).err().map(|refused| refused.retry_after_seconds()), Some(7));
        directory.apply(update(1, &[1]));
        assert!(take(&pool).is_ok());
        assert_eq!(directory.demands().len(), 1);
        directory.keep(&tidegate_config::from_folder("/".as_ref(), &[]).expect("sound settings"));
        assert!(directory.demands().is_empty());
    }

    #[test]
    fn messages_survive_the_link() {
        let update = PoolUpdate { retry_after: Some(Duration::from_millis(1500)), ..update(2, &[9]) };
        let text = serde_json::to_string(&update).expect("can be written");
        assert_eq!(serde_json::from_str::<PoolUpdate>(&text).expect("can be read"), update);
        let directory = PoolDirectory::default();
        directory.apply(update.clone());
        let demand = directory.demands().remove(0);
        let text = serde_json::to_string(&demand).expect("can be written");
        assert_eq!(serde_json::from_str::<PoolDemand>(&text).expect("can be read"), demand);
    }
}
