//! A member of an upstream group as the workers of a process share it: its health, its load and where it is.

use super::groups::{Steering, Way};
use super::health::{Fitness, Health, Outcome, Rules};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tidegate_config::settings::upstream::{self, MemberAddress};
use tidegate_io::connect::Address;

/// One member.
pub struct Member {
    pub(super) settings: upstream::Member,
    health: Mutex<Health>,
    /// Nothing speaks against it: `health` need not be asked.
    is_plain: AtomicBool,
    pub(super) in_use: AtomicUsize,
    pub(super) requests: AtomicU64,
    pub(super) failures: AtomicU64,
    addresses: RwLock<Addresses>,
    /// Of several addresses those that have failed, and until when they are passed over.
    avoided: Mutex<Vec<(Address, u64)>>,
    /// Which of several addresses is next.
    turn: AtomicUsize,
    /// What an operator has said: a `Way`, and a weight in place of the one that is written, 0 for none.
    way: AtomicU8,
    weight: AtomicU32,
}

#[derive(Clone)]
enum Addresses {
    /// Nobody has said yet where its name leads.
    Awaited,
    Known(Arc<[Address]>),
}

impl Member {
    pub(super) fn new(settings: upstream::Member) -> Arc<Member> {
        let addresses = match &settings.address {
            MemberAddress::Tcp(address) => Addresses::Known([Address::Tcp(*address)].into()),
            MemberAddress::Unix(path) => Addresses::Known([Address::Unix(path.as_path().into())].into()),
            MemberAddress::Name { .. } => Addresses::Awaited,
        };
        Arc::new(Member {
            health: Mutex::new(Health::default()),
            is_plain: AtomicBool::new(true),
            in_use: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            addresses: RwLock::new(addresses),
            avoided: Mutex::default(),
            turn: AtomicUsize::new(0),
            way: AtomicU8::new(0),
            weight: AtomicU32::new(0),
            settings,
        })
    }

    /// Its name: the address as written.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// What another group has known of the same server holds here as well.
    pub(super) fn inherit(&self, known: &Member) {
        *self.health() = known.health().clone();
        self.is_plain.store(false, Relaxed);
        self.requests.store(known.requests.load(Relaxed), Relaxed);
        self.failures.store(known.failures.load(Relaxed), Relaxed);
        self.way.store(known.way.load(Relaxed), Relaxed);
        self.weight.store(known.weight.load(Relaxed), Relaxed);
        let addresses = known.addresses.read().unwrap_or_else(PoisonError::into_inner).clone();
        *self.addresses.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// What it is good for, and which share of its weight it is given.
    pub(super) fn fitness(&self, now: u64, rules: &Rules) -> (Fitness, f64) {
        if self.leads_nowhere() {
            return (Fitness::Down, 1.0);
        }
        if self.is_plain.load(Relaxed) {
            return (Fitness::Up, 1.0);
        }
        let health = self.health();
        let (fitness, share) = (health.fitness(now, rules), health.share(now, rules));
        if fitness == Fitness::Up && share >= 1.0 && health.is_untroubled() {
            self.is_plain.store(true, Relaxed);
        }
        (fitness, share)
    }

    /// What an operator has said of it.
    pub(super) fn steer(&self, steering: Steering) {
        self.way.store(steering.way as u8, Relaxed);
        self.weight.store(steering.weight.unwrap_or(0), Relaxed);
    }

    /// Which requests it is to get.
    #[inline]
    pub(super) fn way(&self) -> Way {
        match self.way.load(Relaxed) {
            1 => Way::Drain,
            2 => Way::Pause,
            _ => Way::Serve,
        }
    }

    /// What it is to get beside the others.
    #[inline]
    pub(super) fn weight(&self) -> u32 {
        match self.weight.load(Relaxed) {
            0 => self.settings.weight.max(1),
            steered => steered,
        }
    }

    /// Whether it is not known yet where it is.
    pub(super) fn is_awaited(&self) -> bool {
        self.address_count().is_none()
    }

    /// Whether its name has been looked up in vain, and never led anywhere.
    pub(super) fn leads_nowhere(&self) -> bool {
        self.address_count() == Some(0)
    }

    /// A request is given to it as a trial.
    pub(super) fn begin_trial(&self, now: u64) {
        self.health().begin_trial(now);
    }

    /// Takes note of what a request came to; whether it has been put aside, or has come back, by this.
    pub(super) fn on_outcome(
        &self,
        outcome: Outcome,
        now: u64,
        may_eject: bool,
        random: f64,
        rules: &Rules,
    ) -> Option<Fitness> {
        if outcome == Outcome::Answered && self.is_plain.load(Relaxed) {
            return None;
        }
        if outcome == Outcome::Failed {
            self.failures.fetch_add(1, Relaxed);
        }
        let mut health = self.health();
        self.is_plain.store(false, Relaxed);
        let was_up = health.fitness(now, rules) == Fitness::Up;
        let is_ejected = health.on_outcome(outcome, now, may_eject, random, rules);
        let fitness = health.fitness(now, rules);
        (is_ejected || was_up != (fitness == Fitness::Up)).then_some(fitness)
    }

    /// What requests of another process have found out.
    pub(super) fn hear(&self, until: Option<u64>, now: u64, may_eject: bool, rules: &Rules) {
        let mut health = self.health();
        self.is_plain.store(false, Relaxed);
        health.hear(until, now, may_eject, rules);
    }

    /// Its checks have taken it out, or brought it back.
    pub(super) fn set_down(&self, is_down: bool, now: u64) {
        let mut health = self.health();
        self.is_plain.store(false, Relaxed);
        health.set_down(is_down, now);
    }

    /// Takes one of its places, where one is free.
    pub(super) fn try_enter(&self) -> bool {
        let most = self.settings.places.map_or(usize::MAX, |places| places as usize);
        let enter = |in_use: usize| (in_use < most).then(|| in_use + 1);
        self.in_use.fetch_update(Relaxed, Relaxed, enter).is_ok()
    }

    /// Whether it has a free place.
    pub(super) fn has_place(&self) -> bool {
        self.settings.places.is_none_or(|most| self.in_use.load(Relaxed) < most as usize)
    }

    /// The address to go to: of several, each in its turn, and those first that have not failed lately.
    /// `None`: it has none, or all are among those tried.
    pub(super) fn address(&self, now: u64, is_tried: impl Fn(&Address) -> bool) -> Option<Address> {
        let addresses = self.addresses()?;
        if let [only] = &addresses[..] {
            return (!is_tried(only)).then(|| only.clone());
        }
        let turn = self.turn.fetch_add(1, Relaxed) % addresses.len().max(1);
        let (later, sooner) = addresses.split_at_checked(turn)?;
        let mut avoided = self.avoided();
        avoided.retain(|(_, until)| now < *until);
        let open = sooner.iter().chain(later).filter(|address| !is_tried(address));
        // Equals stay in their order.
        open.min_by_key(|address| avoided.iter().any(|(bad, _)| bad == *address)).cloned()
    }

    /// One of its addresses has failed. Whether there is another that has not, which speaks for the member.
    pub(super) fn avoid(&self, address: &Address, now: u64, time: Duration) -> bool {
        let Some(addresses) = self.addresses().filter(|addresses| addresses.len() > 1) else { return false };
        let mut avoided = self.avoided();
        avoided.retain(|(known, until)| known != address && now < *until && addresses.contains(known));
        let until = now.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        avoided.push((address.clone(), until));
        avoided.len() < addresses.len()
    }

    /// What a look-up of its name gave; nothing where it failed.
    pub(super) fn set_addresses(&self, addresses: Vec<Address>) {
        *self.addresses.write().unwrap_or_else(PoisonError::into_inner) = Addresses::Known(addresses.into());
    }

    fn addresses(&self) -> Option<Arc<[Address]>> {
        match &*self.addresses.read().unwrap_or_else(PoisonError::into_inner) {
            Addresses::Awaited => None,
            Addresses::Known(addresses) => Some(addresses.clone()),
        }
    }

    fn avoided(&self) -> MutexGuard<'_, Vec<(Address, u64)>> {
        self.avoided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address_count(&self) -> Option<usize> {
        match &*self.addresses.read().unwrap_or_else(PoisonError::into_inner) {
            Addresses::Awaited => None,
            Addresses::Known(addresses) => Some(addresses.len()),
        }
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
