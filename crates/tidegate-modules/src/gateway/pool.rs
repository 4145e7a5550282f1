//! One pool as the workers of a process see it: where each process listens, how many requests it takes at once, and whether it
//! is alive. Handlers ask for a [`Lease`] and never see a process.

use super::places::{Place, PlaceLimits, Places, Refused};
use super::pool_messages::{MemberDemand, PoolAddress, PoolDemand, PoolMember, PoolPhase, PoolUpdate};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_client::{Peers, Starving};
use tidegate_io::connect::Address;
use tidegate_io::locking::lock;

/// Members that have left and are remembered as such.
const DEPARTED: usize = 256;

/// What is called when requests begin to wait.
pub(super) type OnPressure = Arc<dyn Fn() + Send + Sync>;

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
    answered: AtomicU64,
    hung: AtomicU64,
    is_leaving: AtomicBool,
    attendance: Mutex<Attendance>,
}

/// Whether anybody accepts connections at a member, and who wants to hear when nobody does any more.
#[derive(Default)]
struct Attendance {
    /// Never false again: a successor at the same address is another member.
    is_unattended: bool,
    watches: u64,
    wakers: HashMap<u64, Waker>,
}

impl Member {
    fn new(named: PoolAddress) -> Arc<Member> {
        Arc::new(Member {
            address: named.clone().into(),
            named,
            places: AtomicUsize::new(0),
            in_use: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            hung: AtomicU64::new(0),
            is_leaving: AtomicBool::new(false),
            attendance: Mutex::default(),
        })
    }

    /// No process accepts connections there.
    fn abandon(&self) {
        let wakers = {
            let mut attendance = lock(&self.attendance);
            attendance.is_unattended = true;
            std::mem::take(&mut attendance.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
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
            answered: self.answered.load(Relaxed),
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
    pub(super) fn new(name: &str, peers: &Arc<Peers>, on_pressure: Option<&OnPressure>) -> Arc<Pool> {
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

    pub(super) fn demand(&self) -> PoolDemand {
        let state = self.read();
        PoolDemand {
            name: self.name.clone(),
            sequence: state.sequence,
            demand: self.places.demand(),
            members: state.members.iter().chain(&state.leaving).map(|member| member.demand()).collect(),
        }
    }

    pub(super) fn apply(&self, update: PoolUpdate) {
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
        // Behind that: whoever leaves it for another place is told whether there is one.
        for member in state.leaving.iter().filter(|member| update.unattended.contains(&member.named)) {
            member.abandon();
        }
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

    /// The request was answered: the process takes requests.
    #[inline]
    pub fn answered(&self) {
        self.member.answered.fetch_add(1, Relaxed);
    }

    /// Tells when nobody accepts connections there any more.
    pub(super) fn attended(&self) -> Attended {
        let mut attendance = lock(&self.member.attendance);
        attendance.watches += 1;
        Attended { member: self.member.clone(), watch: attendance.watches }
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

/// Watches for the moment in which no process is left that accepts connections at a member. See [`Lease::attended`].
pub(super) struct Attended {
    member: Arc<Member>,
    watch: u64,
}

impl Attended {
    /// Ready once nobody does.
    pub(super) fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut attendance = lock(&self.member.attendance);
        if attendance.is_unattended {
            return Poll::Ready(());
        }
        attendance.wakers.insert(self.watch, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        let waker = lock(&self.member.attendance).wakers.remove(&self.watch);
        drop(waker); // not while the lock is held
    }
}
