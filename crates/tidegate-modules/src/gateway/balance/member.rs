//! A member of an upstream group as the workers of a process share it: its health, its load, its addresses
//! and the connections to it that nobody uses.

use super::health::{Fitness, Health, Outcome, Rules};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tidegate_io::connect::Address;

/// What is written of a member.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberSettings {
    /// As written: by this the hash, the cookie and the report know it.
    pub name: String,
    /// Where it listens, where that is written; empty for a name that is looked up.
    pub addresses: Vec<Address>,
    /// Its share of the requests: 1 unless written.
    pub weight: u32,
    /// Whether it is asked only when none of the others can be.
    pub is_backup: bool,
    /// Requests that it takes at once; `None` is without bound.
    pub places: Option<usize>,
}

/// One member.
pub struct Member {
    pub(super) settings: MemberSettings,
    health: Mutex<Health>,
    /// Nothing speaks against it: `health` need not be asked.
    is_plain: AtomicBool,
    pub(super) in_use: AtomicUsize,
    pub(super) requests: AtomicU64,
    pub(super) failures: AtomicU64,
    addresses: RwLock<Arc<[Address]>>,
    /// Which of several addresses is next.
    turn: AtomicUsize,
    kept: Mutex<Vec<(Address, OwnedFd)>>,
}

impl Member {
    pub(super) fn new(settings: MemberSettings) -> Arc<Member> {
        Arc::new(Member {
            health: Mutex::new(Health::default()),
            is_plain: AtomicBool::new(true),
            in_use: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            addresses: RwLock::new(settings.addresses.clone().into()),
            turn: AtomicUsize::new(0),
            kept: Mutex::default(),
            settings,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// What it is good for, and which share of its weight it is given.
    pub(super) fn fitness(&self, now: u64, rules: &Rules) -> (Fitness, f64) {
        if self.has_no_address() {
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

    /// A request is given to it as a trial.
    pub(super) fn begin_trial(&self, now: u64) {
        self.health().begin_trial(now);
    }

    /// Takes note of what a request came to; whether it has been put aside by this.
    pub(super) fn on_outcome(
        &self,
        outcome: Outcome,
        now: u64,
        may_eject: bool,
        random: f64,
        rules: &Rules,
    ) -> bool {
        if outcome == Outcome::Answered && self.is_plain.load(Relaxed) {
            return false;
        }
        if outcome == Outcome::Failed {
            self.failures.fetch_add(1, Relaxed);
        }
        let mut health = self.health();
        self.is_plain.store(false, Relaxed);
        health.on_outcome(outcome, now, may_eject, random, rules)
    }

    /// Takes note of a check; see [`Health::on_check`].
    pub fn on_check(&self, passed: bool, now: u64, rules: &Rules) -> Option<Fitness> {
        let mut health = self.health();
        if !passed {
            self.is_plain.store(false, Relaxed);
        }
        health.on_check(passed, now, rules)
    }

    /// Whether it has a free place.
    pub(super) fn has_place(&self) -> bool {
        self.settings.places.is_none_or(|most| self.in_use.load(Relaxed) < most)
    }

    /// The address to go to: of several, each in its turn.
    pub(super) fn address(&self) -> Option<Address> {
        let addresses = self.addresses();
        let turn = if addresses.len() > 1 { self.turn.fetch_add(1, Relaxed) } else { 0 };
        addresses.get(turn % addresses.len().max(1)).cloned()
    }

    /// Every address that it has now.
    pub fn addresses(&self) -> Arc<[Address]> {
        self.addresses.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a look-up of its name gave. Kept connections to other addresses are closed.
    pub fn set_addresses(&self, addresses: Vec<Address>) {
        self.kept().retain(|(address, _)| addresses.contains(address));
        *self.addresses.write().unwrap_or_else(PoisonError::into_inner) = addresses.into();
    }

    /// An open connection to this address that nobody uses.
    pub(super) fn take_connection(&self, address: &Address) -> Option<OwnedFd> {
        let mut kept = self.kept();
        let index = kept.iter().rposition(|(known, _)| known == address)?;
        Some(kept.swap_remove(index).1)
    }

    /// Keeps a connection for the next request, up to `most`.
    pub(super) fn keep_connection(&self, address: Address, connection: OwnedFd, most: usize) {
        let mut kept = self.kept();
        if kept.len() < most && self.addresses().contains(&address) {
            kept.push((address, connection));
        }
    }

    fn has_no_address(&self) -> bool {
        self.addresses.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(Address, OwnedFd)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
