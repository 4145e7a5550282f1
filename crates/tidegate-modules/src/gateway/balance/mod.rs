//! Upstream groups: which member gets a request, which are well, and what may be tried again.
//!
//! A [`Group`] is shared by the workers of a process. The rules are in `policy`, `health` and `budget`, which
//! have no clock, no lock and no socket; here they meet what is shared. Where members have places, one queue
//! stands before the whole group: who waits is given the first place that comes free, wherever that is.

pub mod budget;
pub mod health;
mod member;
pub mod policy;

use super::places::{Place, PlaceLimits, Places, Refused};
use budget::Budget;
use health::{Fitness, Outcome, Rules};
pub use member::{Member, MemberSettings};
use policy::{Candidate, Turns};
use serde::Serialize;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, RandomState};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::connect::Address;

/// How a member is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Each in its turn, by weight.
    RoundRobin,
    /// The one with the fewest requests for its weight.
    LeastConnections,
    /// The less loaded of two drawn at random.
    TwoChoices,
    /// The same key goes to the same member.
    Hash,
}

/// What is written of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSettings {
    /// Its name.
    pub name: String,
    /// In the order of the file.
    pub members: Vec<MemberSettings>,
    /// How a member is chosen.
    pub policy: Policy,
    /// When a member is put aside and comes back.
    pub rules: Rules,
    /// Requests that wait when all places are taken.
    pub queue_length: usize,
    /// How long one may wait.
    pub queue_age: Duration,
    /// Members that a request may be tried on after the first.
    pub retries: u32,
    /// Retries, in percent of requests.
    pub retry_budget: u32,
    /// Connections kept to each member.
    pub kept_connections: usize,
}

/// What of a request decides where it goes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish<'a> {
    /// The key of [`Policy::Hash`].
    pub key: &'a [u8],
    /// The tag of a member, from the client's cookie.
    pub sticky: Option<u64>,
    /// Whether it could be tried elsewhere: only such a request tries a member that was ill.
    pub may_repeat: bool,
}

/// A group and its members.
pub struct Group {
    settings: GroupSettings,
    members: Vec<Arc<Member>>,
    places: Arc<Places>,
    turns: Mutex<Turns>,
    turn: AtomicUsize,
    budget: Mutex<Budget>,
    random: RandomState,
    drawn: AtomicU64,
    ejections: AtomicU64,
    retries: AtomicU64,
}

/// The members that a request has been tried on.
#[derive(Debug, Clone, Default)]
pub struct Tried(Vec<usize>);

impl Tried {
    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Group {
    /// A group of which all members are believed to be well.
    pub fn new(settings: GroupSettings) -> Arc<Group> {
        let members: Vec<_> = settings.members.iter().cloned().map(Member::new).collect();
        let limits = PlaceLimits {
            places: places_of(&members, |_| true),
            queue_length: settings.queue_length,
            queue_age: Some(settings.queue_age),
        };
        Arc::new(Group {
            members,
            places: Places::new(limits),
            turns: Mutex::default(),
            turn: AtomicUsize::new(0),
            budget: Mutex::new(Budget::new(settings.retry_budget)),
            random: RandomState::new(),
            drawn: AtomicU64::new(0),
            ejections: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            settings,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// What is written of it.
    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// Its members, in the order of the file.
    pub fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// By this a cookie names a member: a hash of its name, so that it tells nobody an address.
    pub fn tag(&self, member: usize) -> u64 {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        hasher.hash_one((self.name(), self.members[member].name()))
    }

    /// Waits for a place and chooses a member that was not tried yet.
    ///
    /// # Errors
    /// The queue is full, the wait was too long, or no member can be asked.
    pub async fn take(self: &Arc<Self>, wish: Wish<'_>, tried: &Tried) -> Result<Lease, Refused> {
        if tried.0.is_empty() {
            self.budget().on_request();
        }
        let place = self.places.take().await?;
        let (index, address) = self.choose(wish, tried, monotonic_ns())?;
        let member = self.members[index].clone();
        member.in_use.fetch_add(1, Relaxed);
        member.requests.fetch_add(1, Relaxed);
        Ok(Lease { group: self.clone(), member, index, address, is_reported: false, _place: place })
    }

    /// Whether a request that has failed may be tried on another member; where it may, that is taken from
    /// the budget. The caller knows whether it is safe to repeat.
    pub fn may_retry(&self, tried: &Tried) -> bool {
        let most = (self.settings.retries as usize + 1).min(self.members.len());
        if tried.count() >= most || !self.budget().try_retry() {
            return false;
        }
        self.retries.fetch_add(1, Relaxed);
        true
    }

    /// Takes note of an active check of a member. `Some` says which way its state has changed.
    pub fn on_check(&self, member: usize, passed: bool) -> Option<Fitness> {
        let changed = self.members[member].on_check(passed, monotonic_ns(), &self.settings.rules);
        if changed.is_some() {
            self.fit_places();
        }
        changed
    }

    /// What a look-up of a member's name gave.
    pub fn set_addresses(&self, member: usize, addresses: Vec<Address>) {
        self.members[member].set_addresses(addresses);
        self.fit_places();
    }

    /// Everything counted so far.
    pub fn report(&self) -> GroupReport {
        let now = monotonic_ns();
        let row = |member: &Arc<Member>| MemberReport {
            name: member.name().to_owned(),
            state: match member.fitness(now, &self.settings.rules).0 {
                Fitness::Up => "up",
                Fitness::Trial => "trial",
                Fitness::Ejected { .. } => "ejected",
                Fitness::Down => "down",
            },
            is_backup: member.settings.is_backup,
            in_use: member.in_use.load(Relaxed),
            requests: member.requests.load(Relaxed),
            failures: member.failures.load(Relaxed),
        };
        GroupReport {
            name: self.name().to_owned(),
            members: self.members.iter().map(row).collect(),
            ejections: self.ejections.load(Relaxed),
            retries: self.retries.load(Relaxed),
        }
    }

    /// The queue before the group.
    pub fn places(&self) -> &Arc<Places> {
        &self.places
    }

    fn choose(&self, wish: Wish<'_>, tried: &Tried, now: u64) -> Result<(usize, Address), Refused> {
        let index = match &self.members[..] {
            // The usual case: nothing to weigh.
            [_only] if tried.0.is_empty() => self.only(now)?,
            _ => self.choose_of_many(wish, tried, now)?,
        };
        match self.members[index].address() {
            Some(address) => Ok((index, address)),
            None => Err(Refused::Down { retry_after: NO_ADDRESS_RETRY }),
        }
    }

    /// The one member there is: not even an ejection would help, so only its checks keep requests away.
    fn only(&self, now: u64) -> Result<usize, Refused> {
        match self.members[0].fitness(now, &self.settings.rules).0 {
            Fitness::Down => Err(self.down(now)),
            _ => Ok(0),
        }
    }

    fn choose_of_many(&self, wish: Wish<'_>, tried: &Tried, now: u64) -> Result<usize, Refused> {
        let rules = &self.settings.rules;
        let mut fit: Vec<Candidate<'_>> = Vec::with_capacity(self.members.len());
        let mut backups: Vec<Candidate<'_>> = Vec::new();
        let mut trial = None;
        for (index, member) in self.members.iter().enumerate() {
            if tried.0.contains(&index) {
                continue;
            }
            let (fitness, share) = member.fitness(now, rules);
            match fitness {
                Fitness::Up => {}
                Fitness::Trial => {
                    trial = trial.or(Some(index));
                    continue;
                }
                Fitness::Ejected { .. } | Fitness::Down => continue,
            }
            let candidate = Candidate {
                member: index,
                name: member.name(),
                weight: f64::from(member.settings.weight.max(1)) * share,
                load: member.in_use.load(Relaxed),
            };
            if member.settings.is_backup { backups.push(candidate) } else { fit.push(candidate) }
        }
        if let Some(index) = trial
            && (wish.may_repeat || (fit.is_empty() && backups.is_empty()))
        {
            self.members[index].begin_trial(now);
            return Ok(index);
        }
        let mut candidates = if fit.is_empty() { backups } else { fit };
        if candidates.is_empty() {
            return Err(self.down(now));
        }
        // Places of the group are places of its members: who has none is passed over, unless a member has
        // gone meanwhile and what is left is full.
        if candidates.iter().any(|candidate| self.members[candidate.member].has_place()) {
            candidates.retain(|candidate| self.members[candidate.member].has_place());
        }
        if let Some(tag) = wish.sticky
            && let Some(known) = candidates.iter().find(|candidate| self.tag(candidate.member) == tag)
        {
            return Ok(known.member);
        }
        let chosen = match self.settings.policy {
            Policy::RoundRobin => self.turns.lock().unwrap_or_else(PoisonError::into_inner).next(&candidates),
            Policy::LeastConnections => policy::least_loaded(&candidates, self.turn.fetch_add(1, Relaxed)),
            Policy::TwoChoices => policy::of_two(&candidates, self.draw()),
            Policy::Hash => policy::by_hash(&candidates, wish.key),
        };
        Ok(chosen.expect("invariant: there are candidates"))
    }

    /// None can be asked: when the first of them may be again.
    fn down(&self, now: u64) -> Refused {
        let until = |member: &Arc<Member>| match member.fitness(now, &self.settings.rules).0 {
            Fitness::Ejected { until } => Some(until),
            _ => None,
        };
        let soonest = self.members.iter().filter_map(until).min();
        let retry_after = soonest.map(|until| Duration::from_nanos(until.saturating_sub(now)));
        Refused::Down { retry_after: retry_after.unwrap_or(NO_ADDRESS_RETRY) }
    }

    /// Whether the others could do without this member.
    fn has_others(&self, index: usize, now: u64) -> bool {
        let is_up = |member: &Arc<Member>| member.fitness(now, &self.settings.rules).0 == Fitness::Up;
        self.members.iter().enumerate().any(|(other, member)| other != index && is_up(member))
    }

    fn on_outcome(&self, index: usize, outcome: Outcome) {
        let now = monotonic_ns();
        let may_eject = outcome == Outcome::Failed && self.has_others(index, now);
        let random = (self.draw() >> 11) as f64 / (1u64 << 53) as f64;
        if self.members[index].on_outcome(outcome, now, may_eject, random, &self.settings.rules) {
            self.ejections.fetch_add(1, Relaxed);
        }
    }

    /// As many places as those have that checks have not taken out. Ejected ones keep theirs: they are away
    /// for a moment, and a place that is given is used on another member.
    fn fit_places(&self) {
        let now = monotonic_ns();
        let is_there = |member: &Member| member.fitness(now, &self.settings.rules).0 != Fitness::Down;
        self.places.set_places(places_of(&self.members, is_there).max(1));
    }

    fn draw(&self) -> u64 {
        self.random.hash_one(self.drawn.fetch_add(1, Relaxed))
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a client is told when nothing says when a member may be back.
const NO_ADDRESS_RETRY: Duration = Duration::from_secs(5);

fn places_of(members: &[Arc<Member>], counts: impl Fn(&Member) -> bool) -> usize {
    let places = members.iter().filter(|member| counts(member)).map(|member| member.settings.places);
    places.fold(0, |sum: usize, places| sum.saturating_add(places.unwrap_or(usize::MAX)))
}

/// A member for one request, and a place on it. Free again when it is dropped.
pub struct Lease {
    group: Arc<Group>,
    member: Arc<Member>,
    index: usize,
    address: Address,
    is_reported: bool,
    /// Dropped after `Drop::drop` has run, so that the count of the member is right when it is given on.
    _place: Place,
}

impl Lease {
    /// Where to connect.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The tag that a sticky cookie carries for this member.
    pub fn tag(&self) -> u64 {
        self.group.tag(self.index)
    }

    /// An open connection to the address that nobody uses, not registered with any poller. The peer may
    /// have closed it since.
    pub fn connection(&self) -> Option<OwnedFd> {
        self.member.take_connection(&self.address)
    }

    /// Gives back a connection on which the member expects another request.
    pub fn keep(&self, connection: OwnedFd) {
        let most = self.group.settings.kept_connections;
        self.member.keep_connection(self.address.clone(), connection, most);
    }

    /// The member has answered.
    pub fn answered(&mut self) {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.group.on_outcome(self.index, Outcome::Answered);
        }
    }

    /// The member could not be reached, has not answered in time, or what came is no answer. The request
    /// has then been tried on it.
    pub fn failed(&mut self, tried: &mut Tried) {
        tried.0.push(self.index);
        if !std::mem::replace(&mut self.is_reported, true) {
            self.group.on_outcome(self.index, Outcome::Failed);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.member.in_use.fetch_sub(1, Relaxed);
    }
}

/// What has happened in a group.
#[derive(Debug, Clone, Serialize)]
pub struct GroupReport {
    /// Its name.
    pub name: String,
    /// One row for each.
    pub members: Vec<MemberReport>,
    /// Members put aside.
    pub ejections: u64,
    /// Requests tried on a further member.
    pub retries: u64,
}

/// What has happened on a member.
#[derive(Debug, Clone, Serialize)]
pub struct MemberReport {
    /// As written.
    pub name: String,
    /// `up`, `trial`, `ejected` or `down`.
    pub state: &'static str,
    /// Whether it is asked only when none of the others can be.
    pub is_backup: bool,
    /// Requests under way.
    pub in_use: usize,
    /// Requests given to it.
    pub requests: u64,
    /// Of them, those that failed.
    pub failures: u64,
}

#[cfg(test)]
mod tests;
