//! One pool as the workers of a process see it: where each process listens, how many requests it takes at once, and whether it
//! is alive. Handlers ask for a [`Lease`] and never see a process.

use super::places::{Place, PlaceLimits, Places, Refused};
use super::pool_messages::{MemberDemand, PoolAddress, PoolDemand, PoolMember, PoolPhase, PoolUpdate};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
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
    on_pressure: Option<OnPressure>,
    /// Processes of which a place is taken while they go on behind their answers, where they may take their time.
    outlasting: AtomicUsize,
    state: RwLock<State>,
}

struct State {
    phase: PoolPhase,
    sequence: u64,
    division: u64,
    is_supervised: bool,
    most_places: usize,
    ends_hung: bool,
    members: Vec<Arc<Member>>,
    /// Left out of the last update, with requests under way.
    leaving: Vec<Arc<Member>>,
    /// Left out lately: no idle connection to them is kept.
    departed: VecDeque<(PoolAddress, Starving)>,
}

struct Member {
    named: PoolAddress,
    address: Address,
    /// Requests that it takes at once of all server processes.
    whole: AtomicUsize,
    /// Those that it may have at once of this one; 0 where it gets no further ones. Both this and `in_use` are read right after the
    /// other was written, by those who lower one and those who lower the other: hence `SeqCst`.
    places: AtomicUsize,
    in_use: AtomicUsize,
    requests: AtomicU64,
    answered: AtomicU64,
    hung: AtomicU64,
    /// It is ended: it gets no further requests, whatever its places.
    is_hung: AtomicBool,
    /// A request of it has ended without an answer, and it may be at work for nobody: no answer has come since.
    may_be_occupied: AtomicBool,
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
            whole: AtomicUsize::new(0),
            places: AtomicUsize::new(0),
            in_use: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            hung: AtomicU64::new(0),
            is_hung: AtomicBool::new(false),
            may_be_occupied: AtomicBool::new(false),
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

    /// Requests that it may have at once.
    fn offered(&self) -> usize {
        if self.is_hung.load(SeqCst) { 0 } else { self.places.load(SeqCst) }
    }

    /// Places that count: those that it has, or those that are still in use where it has fewer now.
    fn counted(&self) -> usize {
        self.offered().max(self.in_use.load(SeqCst))
    }

    /// Share of its places in use, in units of 2^-16: what balancing compares. `None` when it has none left.
    fn load(&self) -> Option<usize> {
        let (in_use, places) = (self.in_use.load(SeqCst), self.offered());
        (in_use < places).then(|| (in_use << 16) / places)
    }

    /// Takes one of its places, where there is one.
    fn try_take(&self) -> bool {
        let one_more = |in_use| (in_use < self.offered()).then_some(in_use + 1);
        self.in_use.fetch_update(SeqCst, SeqCst, one_more).is_ok()
    }

    fn demand(&self) -> MemberDemand {
        MemberDemand {
            address: self.named.clone(),
            in_use: self.in_use.load(SeqCst),
            requests: self.requests.load(Relaxed),
            answered: self.answered.load(Relaxed),
            hung: self.hung.load(Relaxed),
        }
    }
}

impl State {
    /// Requests at once: those of which places are taken back keep what they have until it ends, so that nobody else loses
    /// by it.
    fn places(&self) -> usize {
        self.members.iter().chain(&self.leaving).map(|member| member.counted()).sum()
    }

    /// Takes a place of the member with the smallest share in use; of one that may be at work for nobody, and then of one of `left`,
    /// where there is no other. With several places a member goes on beside such work, and has its part as ever.
    fn take(&self, left: &[Address]) -> Option<Arc<Member>> {
        loop {
            let rank = |member: &Arc<Member>| {
                let load = member.load()?;
                let is_occupied = member.may_be_occupied.load(Relaxed) && member.whole.load(Relaxed) == 1;
                Some((left.contains(&member.address), is_occupied, load))
            };
            let (_, member) = self
                .members
                .iter()
                .filter_map(|member| Some((rank(member)?, member)))
                .min_by_key(|(rank, _)| *rank)?;
            if member.try_take() {
                return Some(member.clone());
            }
        }
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
            division: 0,
            is_supervised: false,
            most_places: 0,
            ends_hung: false,
            members: Vec::new(),
            leaving: Vec::new(),
            departed: VecDeque::new(),
        });
        Arc::new(Pool {
            name: name.to_owned(),
            peers: peers.clone(),
            places,
            on_pressure: on_pressure.cloned(),
            outlasting: AtomicUsize::new(0),
            state,
        })
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

    /// Whether a process of it that has ended is replaced.
    pub(super) fn is_supervised(&self) -> bool {
        self.read().is_supervised
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
            let taken = self.read().take(left);
            let Some(member) = taken else {
                // The last one went away, or its places, after this one was given: wait for the next.
                self.recount();
                continue;
            };
            member.requests.fetch_add(1, Relaxed);
            return Ok(Lease {
                pool: self.clone(),
                member,
                is_answered: Cell::new(false),
                outlasts: Cell::default(),
                _place: place,
            });
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
        let present = state.members.iter().map(|member| member.demand());
        // Their processes are ended as it is, and a successor at the same address has nothing to do with that.
        let leaving = state.leaving.iter().map(|member| MemberDemand { hung: 0, ..member.demand() });
        PoolDemand {
            name: self.name.clone(),
            sequence: state.sequence,
            division: state.division,
            demand: self.places.demand(),
            members: present.chain(leaving).collect(),
        }
    }

    pub(super) fn apply(&self, update: PoolUpdate) {
        let mut state = self.write();
        state.phase = update.phase;
        state.sequence = update.sequence;
        state.division = update.division;
        state.is_supervised = update.is_supervised;
        state.most_places = update.most_places;
        state.ends_hung = update.ends_hung;
        let mut known = std::mem::take(&mut state.members);
        for PoolMember { address, places, whole } in update.members {
            let member = match known.iter().position(|member| member.named == address) {
                Some(index) => known.swap_remove(index),
                None => Member::new(address),
            };
            state.departed.retain(|(departed, _)| *departed != member.named);
            member.whole.store(whole, Relaxed);
            member.places.store(places, SeqCst);
            state.members.push(member);
        }
        for member in known {
            member.places.store(0, SeqCst);
            // Idle connections that workers keep to it hold up its end.
            let starving = Starving::here(&self.peers.peer(&member.address));
            state.departed.push_back((member.named.clone(), starving));
            state.leaving.push(member);
        }
        while state.departed.len() > DEPARTED {
            state.departed.pop_front();
        }
        state.leaving.retain(|member| member.in_use.load(SeqCst) > 0);
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
        drop(state);
        // Others wait for the places that were taken back.
        self.press();
    }

    /// Of a member places are taken back, and it has ended a request, or it may not end one.
    fn recount(&self) {
        let mut state = self.write();
        state.leaving.retain(|member| member.in_use.load(SeqCst) > 0);
        self.places.set_places(state.places());
    }

    /// Has the supervisor be told how things are.
    fn press(&self) {
        if let Some(call) = &self.on_pressure {
            call();
        }
    }
}

/// A place in a pool, and the address to take the request to. Free again when it is dropped.
///
/// To be held until the application is done with the request, which may be after the client has gone:
/// what is free here is taken to be free there.
pub struct Lease {
    pool: Arc<Pool>,
    member: Arc<Member>,
    is_answered: Cell<bool>,
    /// It is one of those that the pool counts as going on behind their answers.
    outlasts: Cell<bool>,
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
        self.member.may_be_occupied.store(false, Relaxed);
        self.is_answered.set(true);
    }

    pub(super) fn pool_name(&self) -> &str {
        &self.pool.name
    }

    /// The process goes on behind its answer. Whether it may take its time: half of the places that there may be can be taken by such,
    /// of which this server process has the share that it has of those that there are.
    pub(super) fn outlasts_answer(&self) -> bool {
        let most = {
            let state = self.pool.read();
            let of_all = |places: fn(&Member) -> &AtomicUsize| -> usize {
                state.members.iter().map(|member| places(member).load(Relaxed)).sum()
            };
            let (own, whole) = (of_all(|member| &member.places), of_all(|member| &member.whole).max(1));
            state.most_places.saturating_mul(own) / whole
        };
        let most = most.max(self.pool.places.limits().places); // those that are under way in processes that leave count as well
        let most = (most / 2).max(1);
        let is_one_more = |count: usize| (count < most).then_some(count + 1);
        let counted = self.pool.outlasting.fetch_update(Relaxed, Relaxed, is_one_more).is_ok();
        self.outlasts.set(counted);
        counted
    }

    /// Tells when nobody accepts connections there any more.
    pub(super) fn attended(&self) -> Attended {
        let mut attendance = lock(&self.member.attendance);
        attendance.watches += 1;
        Attended { member: self.member.clone(), watch: attendance.watches }
    }

    /// Ends the lease of a request that got no answer until its deadline: where the supervisor ends the process for that, it
    /// gets no further requests.
    pub fn hung(self) {
        if self.pool.read().ends_hung {
            self.member.is_hung.store(true, SeqCst);
        }
        self.member.hung.fetch_add(1, Relaxed);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_answered.get() {
            self.member.may_be_occupied.store(true, Relaxed);
        }
        if self.outlasts.get() {
            self.pool.outlasting.fetch_sub(1, Relaxed);
        }
        let in_use = self.member.in_use.fetch_sub(1, SeqCst);
        if in_use > self.member.offered() {
            self.pool.recount();
            self.pool.press();
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
