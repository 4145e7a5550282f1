//! Upstream groups: which member gets a request, which are well, and what may be tried again.
//!
//! A [`Group`] is shared by the workers of a process. The rules are in `policy`, `health` and `budget`, which
//! have no clock, no lock and no socket; here they meet what is shared. Where members have places, one queue
//! stands before the whole group: who waits is given the first place that comes free, wherever that is.
//! `groups` holds those of the process, `balance_key` is what of a request decides where it goes.

mod balance_key;
pub mod budget;
pub mod groups;
pub mod health;
mod member;
pub mod policy;
pub mod report;

use super::places::{Place, PlaceLimits, Places, Refused};
use super::upstream::USUAL_PLACES;
pub(super) use balance_key::{BalanceKey, Sticky};
use budget::Budget;
use groups::{Fact, Finding, Steering, Tell, Way};
use health::{Fitness, Outcome, Rules};
use member::Member;
use policy::{Candidate, Turns};
use report::{GroupReport, MemberReport, MemberState};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tidegate_config::settings::upstream::{Balance, Eject, Upstream};
use tidegate_core::log;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::connect::Address;

/// A group and its members.
pub struct Group {
    settings: Upstream,
    rules: Rules,
    members: Vec<Arc<Member>>,
    places: Arc<Places>,
    turns: Mutex<Turns>,
    budget: Mutex<Budget>,
    /// When a member that was put aside may be tried, and its places count again.
    next_return: AtomicU64,
    ejections: AtomicU64,
    retries: AtomicU64,
    /// Other processes hear what requests of this one have found out.
    tell: OnceLock<Tell>,
}

/// Where a request has been tried.
#[derive(Debug, Default)]
pub(super) struct Tried(Vec<(usize, Address)>);

impl Group {
    /// A group of which all members are believed to be well. `before` is what the group has been until now:
    /// what it knows of members that stay holds on.
    pub fn new(settings: Upstream, before: Option<&Group>) -> Arc<Group> {
        let members: Vec<Arc<Member>> = settings.members.iter().cloned().map(Member::new).collect();
        for member in &members {
            let known = before.into_iter().flat_map(|before| &before.members);
            if let Some(known) = known.into_iter().find(|known| known.name() == member.name()) {
                member.inherit(known);
            }
        }
        let limits = PlaceLimits {
            places: 0,
            queue_length: settings.queue.length as usize,
            queue_age: Some(settings.queue.age),
        };
        let group = Arc::new(Group {
            rules: rules(&settings),
            members,
            places: Places::new(limits),
            turns: Mutex::default(),
            budget: Mutex::new(Budget::new(settings.retry.budget)),
            next_return: AtomicU64::new(u64::MAX),
            ejections: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            tell: OnceLock::new(),
            settings,
        });
        group.fit_places(monotonic_ns());
        group
    }

    /// Its places and its queue.
    pub(super) fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// What is written of it.
    pub fn settings(&self) -> &Upstream {
        &self.settings
    }

    /// By this a cookie names a member: a hash of its name, so that it tells nobody an address.
    fn tag(&self, member: &Member) -> u64 {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        hasher.hash_one((&self.settings.name, member.name()))
    }

    /// Waits for a place and chooses a member; where it was tried already, another one.
    ///
    /// # Errors
    /// The queue is full, the wait was too long, or no member can be asked.
    pub(super) async fn take(
        self: &Arc<Self>,
        balance_key: BalanceKey,
        tried: &Tried,
    ) -> Result<Lease, Refused> {
        let now = monotonic_ns();
        if tried.0.is_empty() {
            self.budget().on_request(now);
        }
        if now >= self.next_return.load(Relaxed) {
            self.fit_places(now);
        }
        let (place, now) = match self.places.try_take(balance_key.site) {
            Some(place) => (place, now),
            None => (self.places.take(balance_key.site).await?, monotonic_ns()),
        };
        let (member, index, address) = self.choose(balance_key, tried, now)?;
        member.requests.fetch_add(1, Relaxed);
        Ok(Lease { group: self.clone(), member, index, address, is_reported: false, place: Some(place) })
    }

    /// Whether a request that has failed may be tried on another member. `is_sent`: the member may have it in
    /// hand, so that another try is more load, and is taken from the budget. The caller knows whether it is
    /// safe to repeat.
    pub(super) fn may_retry(&self, tried: &Tried, is_sent: bool) -> bool {
        let may =
            tried.0.len() <= self.settings.retry.times as usize && (!is_sent || self.budget().try_retry());
        if may {
            self.retries.fetch_add(1, Relaxed);
        }
        may
    }

    /// The checks have taken a member out, or brought it back.
    fn set_down(&self, member: &Member, is_down: bool) {
        let now = monotonic_ns();
        member.set_down(is_down, now);
        self.fit_places(now);
    }

    /// An operator has said what a member is to get.
    fn steer(&self, member: &Member, steering: Steering) {
        member.steer(steering);
        self.fit_places(monotonic_ns());
    }

    /// What a member is good for, and which share of its weight it is given. One that an operator has taken out gets none;
    /// one that is drained gets those that its cookie brings, where there are cookies.
    fn fitness(&self, member: &Member, now: u64) -> (Fitness, f64) {
        match member.way() {
            Way::Serve => member.fitness(now, &self.rules),
            Way::Drain if self.settings.sticky.is_some() => member.fitness(now, &self.rules),
            Way::Drain | Way::Pause => (Fitness::Down, 1.0),
        }
    }

    /// Whom it tells of what requests have found out.
    fn tell_with(&self, tell: Tell) {
        let _ = self.tell.set(tell);
    }

    /// Requests of another process have put a member aside, or have found that it answers again.
    fn hear(&self, member: &Arc<Member>, until: Option<u64>) {
        let now = monotonic_ns();
        let index = self.members.iter().position(|known| Arc::ptr_eq(known, member));
        let may_eject = index.is_some_and(|index| self.has_others(index, now));
        member.hear(until, now, may_eject, &self.rules);
        self.fit_places(now);
    }

    /// What a look-up of a member's name gave.
    fn set_addresses(&self, member: &Member, addresses: &[SocketAddr]) {
        member.set_addresses(addresses.iter().copied().map(Address::Tcp).collect());
        self.fit_places(monotonic_ns());
    }

    /// Everything counted so far.
    pub fn report(&self) -> GroupReport {
        let now = monotonic_ns();
        let row = |member: &Arc<Member>| MemberReport {
            name: member.name().to_owned(),
            state: match member.fitness(now, &self.rules).0 {
                _ if member.way() == Way::Pause => MemberState::Paused,
                _ if member.way() == Way::Drain => MemberState::Draining,
                _ if member.is_awaited() => MemberState::Awaited,
                Fitness::Up => MemberState::Up,
                Fitness::Trial => MemberState::Trial,
                Fitness::Ejected { .. } => MemberState::Ejected,
                Fitness::Down => MemberState::Down,
            },
            is_backup: member.settings.is_backup,
            weight: member.weight(),
            in_use: member.in_use.load(Relaxed),
            requests: member.requests.load(Relaxed),
            failures: member.failures.load(Relaxed),
        };
        GroupReport {
            name: self.settings.name.clone(),
            members: self.members.iter().map(row).collect(),
            ejections: self.ejections.load(Relaxed),
            retries: self.retries.load(Relaxed),
            demand: self.places.demand(),
        }
    }

    /// Chooses a member and takes one of its places.
    fn choose(
        &self,
        balance_key: BalanceKey,
        tried: &Tried,
        now: u64,
    ) -> Result<(Arc<Member>, usize, Address), Refused> {
        // Another worker may take the place that was seen free; then it is seen no more.
        for _ in 0..self.members.len() {
            let (index, address) = self.look(balance_key, tried, now)?;
            let Some(member) = self.members.get(index) else { break };
            if member.try_enter() {
                return Ok((member.clone(), index, address));
            }
            if !member.has_place() && !self.members.iter().any(|member| member.has_place()) {
                break;
            }
        }
        // What is free belongs to members that cannot be asked. This happens to who tries again, and while a
        // member is on its way out: one more is better than none.
        let (index, address) = self.look(balance_key, tried, now)?;
        let Some(member) = self.members.get(index) else { return Err(self.down(now)) };
        member.in_use.fetch_add(1, Relaxed);
        Ok((member.clone(), index, address))
    }

    fn look(&self, balance_key: BalanceKey, tried: &Tried, now: u64) -> Result<(usize, Address), Refused> {
        let index = match &self.members[..] {
            // The usual case: nothing to weigh. Not even an ejection would help, so only its checks keep
            // requests away.
            [only] if only.way() == Way::Serve && only.fitness(now, &self.rules).0 != Fitness::Down => 0,
            [only] if only.way() == Way::Serve => return Err(self.down(now)),
            _ => self.look_at_many(balance_key, tried, now)?,
        };
        match self.members.get(index).and_then(|member| self.address(index, member, tried, now)) {
            Some(address) => Ok((index, address)),
            None => Err(self.down(now)),
        }
    }

    fn address(&self, index: usize, member: &Member, tried: &Tried, now: u64) -> Option<Address> {
        member
            .address(now, |address| tried.0.iter().any(|(known, tried)| *known == index && tried == address))
    }

    fn look_at_many(&self, balance_key: BalanceKey, tried: &Tried, now: u64) -> Result<usize, Refused> {
        let mut fit: Vec<Candidate<'_>> = Vec::with_capacity(self.members.len());
        let mut backups: Vec<Candidate<'_>> = Vec::new();
        let mut trial = None;
        for (index, member) in self.members.iter().enumerate() {
            let was_tried = tried.0.iter().any(|(known, _)| *known == index);
            if member.is_awaited() || (was_tried && self.address(index, member, tried, now).is_none()) {
                continue;
            }
            let (fitness, share) = self.fitness(member, now);
            if member.way() == Way::Drain
                && (balance_key.tag.is_none() || balance_key.tag != Some(self.tag(member)))
            {
                continue;
            }
            match fitness {
                Fitness::Up => {}
                Fitness::Trial => {
                    trial = trial.or(Some(index).filter(|_| !member.settings.is_backup));
                    if !member.settings.is_backup {
                        continue;
                    }
                }
                Fitness::Ejected { .. } | Fitness::Down => continue,
            }
            let candidate = Candidate {
                member: index,
                name: member.name(),
                weight: f64::from(member.weight()) * share,
                load: member.in_use.load(Relaxed),
            };
            if member.settings.is_backup { backups.push(candidate) } else { fit.push(candidate) }
        }
        if let Some(index) = trial
            && (balance_key.may_repeat || (fit.is_empty() && backups.is_empty()))
            && let Some(member) = self.members.get(index)
        {
            member.begin_trial(now);
            return Ok(index);
        }
        let mut candidates = if fit.is_empty() { backups } else { fit };
        let has_place = |candidate: &Candidate<'_>| {
            self.members.get(candidate.member).is_some_and(|member| member.has_place())
        };
        if candidates.iter().any(has_place) {
            candidates.retain(has_place);
        }
        let is_wanted = |candidate: &&Candidate<'_>| {
            let member = self.members.get(candidate.member);
            member.is_some_and(|member| Some(self.tag(member)) == balance_key.tag)
        };
        if balance_key.tag.is_some()
            && let Some(known) = candidates.iter().find(is_wanted)
        {
            return Ok(known.member);
        }
        let chosen = match self.settings.balance {
            Balance::RoundRobin => self.turns().next(&candidates),
            Balance::LeastConnections => policy::least_loaded(&mut candidates, &mut self.turns()),
            Balance::TwoChoices => policy::of_two(&candidates, fastrand::u64(..)),
            Balance::Hash { percent: None, .. } => policy::by_hash(&candidates, balance_key.key),
            Balance::Hash { percent: Some(percent), .. } => {
                policy::by_bounded_hash(&candidates, balance_key.key, percent)
            }
        };
        chosen.ok_or_else(|| self.down(now))
    }

    /// None can be asked: when the first of them may be again.
    fn down(&self, now: u64) -> Refused {
        Refused::Down { retry_after: until(self.next_return.load(Relaxed), now) }
    }

    /// Why no member can be asked, for the error log.
    pub(super) fn why_down(&self) -> String {
        let now = monotonic_ns();
        let why = |member: &Arc<Member>| {
            let why = match member.fitness(now, &self.rules).0 {
                _ if member.way() == Way::Pause => "is paused by an operator",
                _ if member.way() == Way::Drain => "is drained by an operator",
                _ if member.leads_nowhere() => "cannot be looked up",
                _ if member.is_awaited() => "is being looked up",
                Fitness::Down => "fails its checks",
                Fitness::Ejected { .. } => "has failed and is put aside",
                Fitness::Up | Fitness::Trial => "was tried",
            };
            format!("{} {why}", member.name())
        };
        let members: Vec<String> = self.members.iter().take(NAMED).map(why).collect();
        let more = self.members.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        format!("no member can be asked: {}{more}", members.join(", "))
    }

    /// Whether the others could do without this member.
    fn has_others(&self, index: usize, now: u64) -> bool {
        let is_up = |member: &Member| {
            member.way() == Way::Serve
                && !member.is_awaited()
                && member.fitness(now, &self.rules).0 == Fitness::Up
        };
        self.members.iter().enumerate().any(|(other, member)| other != index && is_up(member))
    }

    fn on_outcome(&self, index: usize, member: &Member, address: &Address, outcome: Outcome) {
        let now = monotonic_ns();
        if outcome == Outcome::Failed && member.avoid(address, now, self.rules.eject) {
            return; // of several addresses one has failed
        }
        let may_eject = outcome == Outcome::Failed && self.has_others(index, now);
        let fitness = member.on_outcome(outcome, now, may_eject, fastrand::f64(), &self.rules);
        let Some(fitness) = fitness else { return };
        let (name, group) = (member.name(), &self.settings.name);
        match fitness {
            Fitness::Ejected { until } => {
                self.ejections.fetch_add(1, Relaxed);
                let time = Duration::from_nanos(until.saturating_sub(now)).as_secs_f32();
                log::warn(format_args!(
                    "{name} of upstream {group} fails, and gets no requests for {time:.1} s"
                ));
            }
            Fitness::Up => log::info(format_args!("{name} of upstream {group} answers again")),
            Fitness::Trial | Fitness::Down => {}
        }
        let fact = match fitness {
            Fitness::Ejected { until } => Some(Fact::Ejected(Some(until))),
            Fitness::Up => Some(Fact::Ejected(None)),
            Fitness::Trial | Fitness::Down => None,
        };
        if let (Some(tell), Some(fact)) = (self.tell.get(), fact) {
            tell(Finding { group: group.clone(), member: name.to_owned(), fact });
        }
        self.fit_places(now);
    }

    /// As many places as those have that can be asked. While nobody is there but some whose names are still
    /// being looked up, requests wait; where nobody is there at all they are refused at once.
    fn fit_places(&self, now: u64) {
        let mut sum = 0_usize;
        let (mut is_anybody_awaited, mut next_return) = (false, u64::MAX);
        for member in &self.members {
            match self.fitness(member, now).0 {
                Fitness::Down => {}
                _ if member.is_awaited() => is_anybody_awaited = true,
                // The only one is asked whatever it has come to.
                Fitness::Ejected { until } if self.members.len() > 1 => {
                    next_return = next_return.min(until.max(now + 1));
                }
                Fitness::Up | Fitness::Trial | Fitness::Ejected { .. } => {
                    let places = member.settings.places.map_or(USUAL_PLACES, |places| places as usize);
                    sum = sum.saturating_add(places);
                }
            }
        }
        self.next_return.store(next_return, Relaxed);
        self.places.set_places(sum);
        let is_anybody_there = sum > 0 || is_anybody_awaited;
        self.places.set_down((!is_anybody_there).then(|| until(next_return, now)));
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rules(settings: &Upstream) -> Rules {
    let Eject { failures, time, most } = settings.eject;
    Rules { failures, eject: time, eject_most: most, slow_start: settings.slow_start, ..Rules::default() }
}

/// Members that are named in a sentence.
const NAMED: usize = 4;

/// What a client is told when nothing says when a member may be back.
const UNKNOWN_RETURN: Duration = Duration::from_secs(5);

fn until(next_return: u64, now: u64) -> Duration {
    match next_return {
        u64::MAX => UNKNOWN_RETURN,
        next_return => Duration::from_nanos(next_return.saturating_sub(now)),
    }
}

/// A member for one request, and a place on it. Free again when it is dropped.
pub(super) struct Lease {
    group: Arc<Group>,
    member: Arc<Member>,
    index: usize,
    address: Address,
    is_reported: bool,
    /// Dropped after `Drop::drop` has run, so that the count of the member is right when it is given on.
    place: Option<Place>,
}

impl Lease {
    /// Where to connect.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// The member as it is written.
    pub(super) fn name(&self) -> &str {
        self.member.name()
    }

    /// The tag that a sticky cookie carries for this member.
    pub(super) fn tag(&self) -> u64 {
        self.group.tag(&self.member)
    }

    /// The member has answered.
    pub(super) fn answered(&mut self) {
        if self.member.settings.places.is_none() {
            self.place = None; // its places are for who waits for the beginning of an answer
        }
        if !std::mem::replace(&mut self.is_reported, true) {
            self.group.on_outcome(self.index, &self.member, &self.address, Outcome::Answered);
        }
    }

    /// The member could not be reached, has not answered in time, or what came is no answer. The request
    /// has then been tried on it.
    pub(super) fn failed(&mut self, tried: &mut Tried) {
        tried.0.push((self.index, self.address.clone()));
        if !std::mem::replace(&mut self.is_reported, true) {
            self.group.on_outcome(self.index, &self.member, &self.address, Outcome::Failed);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.member.in_use.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests;
