//! The store: the index of what is there, and who fetches what is not.
//!
//! Here is what callers see; `room` finds room and has entries go for it, `sweep` takes out what was purged, `list` tells of
//! what there is. The disks are in `tier`.

mod list;
mod room;
mod sweep;

use crate::budget::{Budget, Reservation};
use crate::content::Content;
use crate::encoding::variant_of;
use crate::entry::Entry;
use crate::figures::Counters;
use crate::flight::{Flight, FlightCell, Join, Lead};
use crate::index::{Hashed, Outgoing, SLOT_COST, Shard, Slot};
use crate::purge::ring::PurgeRing;
use crate::purge::{Address, Purge, Purged, Purges, Standing};
use crate::tier::Tier;
use smallvec::SmallVec;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use thiserror::Error;
use tidegate_http::Fields;
use tidegate_http::cache::Reason;
use tidegate_io::locking::lock;
use xxhash_rust::xxh3::xxh3_128_with_seed;

pub(crate) use list::lets_through;
pub use room::CopyRoom;
use room::Queues;
use sweep::Sweeping;
pub use sweep::Swept;

/// Shards of the index: a power of two; so many that the sweeper, which takes one at a time, holds up nobody for long.
const SHARDS: usize = 256;
/// How often a place in the index is tried for that others take first.
const TRIES: usize = 4;

/// How much a store may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, of everything: content, heads, keys, index.
    pub memory: u64,
    /// Bytes of content of the largest response that is stored.
    pub object: u64,
}

/// Why a response was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unstorable {
    /// Larger than the largest object.
    #[error("the response is larger than the largest object that this cache stores")]
    TooLarge,
    /// What is there is in use, or larger objects have all the memory.
    #[error("no memory of the cache comes free for the response")]
    NoRoom,
    /// It was fetched before a purge.
    #[error("the response was fetched before it was purged")]
    Purged,
}

impl Unstorable {
    /// The same as a reason.
    pub const fn reason(self) -> Reason {
        match self {
            Unstorable::TooLarge => Reason::TooLarge,
            Unstorable::NoRoom => Reason::NoRoom,
            Unstorable::Purged => Reason::Purged,
        }
    }
}

/// What a look-up finds.
#[derive(Debug)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// Nothing, and it is known not to be storable, for this reason: fetch without joining, by [`Store::lead_alone`].
    Pass(Reason),
    /// What is stored under the key: variants, the newest first; never none.
    Stored(SmallVec<[Arc<Entry>; 1]>),
}

/// Stored responses of one `cache` of the settings.
pub struct Store {
    name: Box<str>,
    /// Of the hashes of keys: secret, so that nobody can make keys that meet.
    seed: u64,
    shards: Box<[Mutex<Shard>]>,
    budget: Arc<Budget>,
    object: AtomicU64,
    /// Bytes of memory that were lent for copies.
    lent: Arc<AtomicU64>,
    queues: Mutex<Queues>,
    pub(crate) purges: Arc<Purges>,
    ids: AtomicU64,
    /// Flights that have begun.
    flights: AtomicU64,
    pub(crate) counters: Counters,
    sweeping: Mutex<Sweeping>,
    /// With so many purges each entry was compared.
    looked_at: AtomicU64,
    has_disks: bool,
    /// Below the memory; opened later, by a thread that may wait.
    pub(crate) tier: OnceLock<Tier>,
}

impl Store {
    /// An empty store, in memory alone.
    pub fn new(name: &str, limits: Limits) -> Arc<Store> {
        Arc::new(Store::empty(name, limits, false))
    }

    /// An empty store that disks are opened for: what is purged until then is remembered for what they hold.
    pub fn above_disks(name: &str, limits: Limits) -> Arc<Store> {
        Arc::new(Store::empty(name, limits, true))
    }

    fn empty(name: &str, limits: Limits, has_disks: bool) -> Store {
        Store {
            name: name.into(),
            seed: RandomState::new().hash_one(name),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            budget: Budget::new(limits.memory),
            object: AtomicU64::new(limits.object),
            lent: Arc::default(),
            queues: Mutex::new(Queues::new(limits.memory)),
            purges: Arc::default(),
            ids: AtomicU64::new(1),
            flights: AtomicU64::new(0),
            counters: Counters::default(),
            sweeping: Mutex::default(),
            looked_at: AtomicU64::new(0),
            has_disks,
            tier: OnceLock::new(),
        }
    }

    /// Has other processes of the server hear of what applications purge here, and this one of theirs: before the first request.
    pub fn share_purges(&self, ring: Arc<PurgeRing>) {
        self.purges.share(ring, &self.name);
    }

    /// The name in the settings.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it was made for disks, open or not.
    pub fn has_disks(&self) -> bool {
        self.has_disks
    }

    /// What is stored under a key. Allocates nothing for one variant.
    pub fn look_up(&self, key: &[u8], now: i64) -> Found {
        let hashed = self.hashed(key);
        let mut outgoing = Outgoing::new();
        let (found, emptied) = {
            let mut shard = self.shard(&hashed);
            let variants = variants_of(&mut shard, &hashed, &mut outgoing);
            let found = match variants.is_empty() {
                true => absent(&mut shard, &hashed, now, &self.purges),
                false => Found::Stored(variants),
            };
            shard.hits += u64::from(matches!(found, Found::Stored(_)));
            let emptied = if outgoing.is_empty() { None } else { shard.remove_if_empty(&hashed) };
            (found, emptied)
        };
        drop(emptied);
        self.left_purged(&outgoing);
        found
    }

    /// Fetches for a request with these fields, or waits for who does already: for any request of the key as long as it is not
    /// known by what its responses vary, then for one that gets the same variant.
    pub fn join(self: &Arc<Self>, key: &[u8], fields: Fields<'_>) -> Join {
        let hashed = self.hashed(key);
        let born = self.purges.count();
        let mut outgoing = Outgoing::new();
        let join = self.with_slot(&hashed, |slot| {
            slot.drop_purged(&mut outgoing);
            self.join_flight(slot, fields, born)
        });
        self.left_purged(&outgoing);
        join.unwrap_or_else(|| {
            let (key, stored) = (hashed.key.into(), SmallVec::new());
            let number = self.next_flight();
            let (hash, address) = (hashed.hash, Address::default());
            Join::Lead(Lead { store: self.clone(), hash, key, cell: None, stored, born, number, address })
        })
    }

    /// Lends the slot of a key, a new one where there is none yet; `None`: there is no room for one.
    pub(crate) fn with_slot<R>(&self, hashed: &Hashed<'_>, f: impl FnOnce(&mut Slot) -> R) -> Option<R> {
        let mut room = None;
        for _ in 0..TRIES {
            let mut shard = self.shard(hashed);
            let needed = SLOT_COST + hashed.key.len() as u64 + shard.growth();
            if let Some(slot) = shard.get(hashed) {
                return Some(f(slot));
            }
            if let Some(mut had) = room.take_if(|room: &mut Reservation| room.bytes() >= needed) {
                let own = had.split(SLOT_COST + hashed.key.len() as u64);
                return Some(f(shard.add(Slot::new(hashed, own), had)));
            }
            drop(shard);
            drop(room.take());
            room = self.reserve(needed);
            room.as_ref()?;
        }
        None
    }

    fn join_flight(self: &Arc<Self>, slot: &mut Slot, fields: Fields<'_>, born: u64) -> Join {
        if let Some(flight) = slot.flight_for(fields) {
            self.counters.collapse();
            return Join::Follow(Flight::new(flight.clone(), born));
        }
        let cell = slot.has_room(false).then(|| FlightCell::new(born, slot.selected(fields)));
        Join::Lead(self.lead(slot, cell, born))
    }

    fn lead(self: &Arc<Self>, slot: &mut Slot, cell: Option<Arc<FlightCell>>, born: u64) -> Lead {
        slot.flights.extend(cell.clone());
        Lead {
            store: self.clone(),
            hash: slot.hash(),
            key: slot.key.clone(),
            cell,
            stored: slot.variants.clone(),
            born,
            number: self.next_flight(),
            address: Address::default(),
        }
    }

    /// Fetches a response that is known not to be storable ([`Found::Pass`]), for one client: nobody waits for it. Should it be
    /// storable after all, it is stored. `None`: there is no room for that, or as many do so already as may.
    pub fn lead_alone(self: &Arc<Self>, key: &[u8]) -> Option<Lead> {
        let hashed = self.hashed(key);
        let born = self.purges.count();
        let lead = self.with_slot(&hashed, |slot| {
            slot.has_room(true).then(|| self.lead(slot, Some(FlightCell::alone(born)), born))
        });
        lead.flatten()
    }

    /// How many fetches have begun. What an entry holds that came of a later one ([`Entry::fetched`]) was asked for after this.
    pub fn fetches(&self) -> u64 {
        self.flights.load(SeqCst)
    }

    /// Removes what is stored under a key, and what is being fetched for it is not stored; answers whether there was anything.
    pub fn remove(&self, key: &[u8]) -> bool {
        let hashed = self.hashed(key);
        let mut outgoing = Outgoing::new();
        let (flights, emptied) = {
            let mut shard = self.shard(&hashed);
            let flights = shard.get(&hashed).map(|slot| {
                slot.take_where(|_| true, &mut outgoing);
                std::mem::take(&mut slot.flights)
            });
            (flights, shard.remove_if_empty(&hashed))
        };
        let was_there = !outgoing.is_empty();
        self.left(&outgoing);
        drop((flights, emptied));
        self.withdraw(key);
        was_there
    }

    /// Takes out a part that is of no use any more, off its disk as well.
    pub fn let_go(&self, part: &Arc<Entry>) {
        self.unlink(part);
        if let Some(tier) = self.tier.get() {
            tier.disks.withdraw(tier.hash(part.key()), Some(variant_of(&part.head().varying)));
        }
    }

    /// Purges; takes the same time however much is stored. A soft purge makes stale what is there. What is being fetched
    /// counts as there.
    pub fn purge(self: &Arc<Self>, what: &Purge<'_>, is_soft: bool, now: i64) -> Purged {
        if self.purges.is_nearly_full() {
            // A small step of the sweep is the work of each.
            self.sweep(0, now);
        }
        let purged = self.purges.purge(what, is_soft, now);
        self.note_purges();
        purged
    }
}

/// What flights and fills ask of it.
impl Store {
    pub(crate) fn hashed<'a>(&self, key: &'a [u8]) -> Hashed<'a> {
        Hashed { hash: xxh3_128_with_seed(key, self.seed), key }
    }

    pub(crate) fn shard(&self, hashed: &Hashed<'_>) -> MutexGuard<'_, Shard> {
        lock(&self.shards[(hashed.hash >> 96) as usize % SHARDS])
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Relaxed)
    }

    fn next_flight(&self) -> u64 {
        self.flights.fetch_add(1, SeqCst) + 1
    }

    pub(crate) fn object_limit(&self) -> u64 {
        self.object.load(Relaxed)
    }

    /// Puts an entry in for the flight that it came by, which ends; `false` where it may not be found: it was purged or
    /// removed since it was asked for, or its content is broken.
    pub(crate) fn insert(
        &self,
        hashed: &Hashed<'_>,
        entry: &Arc<Entry>,
        cell: Option<&Arc<FlightCell>>,
        replaces: bool,
        outgoing: &mut Outgoing,
    ) -> bool {
        let mut shard = self.shard(hashed);
        shard.passes.remove(hashed.hash as u64);
        let Some(slot) = shard.get(hashed) else { return false };
        let is_ours = cell.and_then(|cell| slot.end(cell)).is_some();
        let content = entry.content();
        let is_usable = is_ours
            && entry.check() != Standing::Purged
            && !self.purges.is_refused(entry.born())
            && !entry.is_gone()
            && !content.is_broken()
            && content.is_for_all();
        if replaces {
            slot.take_where(|old| Arc::ptr_eq(old.content(), content), outgoing);
            // Of what is still to come nobody knows that it will: what is whole stays until then.
            if content.is_complete() {
                slot.replace(entry.id(), &entry.head().varying, outgoing);
            }
        }
        if is_usable {
            if slot.add(entry.clone(), outgoing) {
                self.counters.evict();
            }
            self.counters.enter();
        }
        let emptied = shard.remove_if_empty(hashed);
        drop(shard);
        drop(emptied);
        is_usable
    }

    /// The flight is over; whoever asks from now on leads the next.
    pub(crate) fn end_flight(&self, hashed: &Hashed<'_>, cell: &Arc<FlightCell>) {
        let mut shard = self.shard(hashed);
        let flight = shard.get(hashed).and_then(|slot| slot.end(cell));
        let emptied = shard.remove_if_empty(hashed);
        drop(shard);
        drop((flight, emptied));
    }

    /// A content is complete: what it replaces goes. Answers with what is stored, perhaps under a newer head.
    pub(crate) fn completed(&self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        let hashed = self.hashed(entry.key());
        let mut outgoing = Outgoing::new();
        let there = {
            let mut shard = self.shard(&hashed);
            shard.get(&hashed).and_then(|slot| {
                let is_same = |other: &&Arc<Entry>| Arc::ptr_eq(other.content(), entry.content());
                let there = slot.variants.iter().find(is_same).cloned();
                if let Some(there) = &there {
                    slot.replace(there.id(), &there.head().varying, &mut outgoing);
                }
                there
            })
        };
        self.left(&outgoing);
        self.resize(entry);
        there
    }

    /// Whether there is a newer one for the same requests; the same content under a newer head is none.
    pub(crate) fn has_newer(&self, entry: &Entry) -> bool {
        let hashed = self.hashed(entry.key());
        let mut shard = self.shard(&hashed);
        let mut variants = shard.get(&hashed).into_iter().flat_map(|slot| slot.variants.iter());
        variants.any(|other| {
            other.id() > entry.id()
                && other.head().varying == entry.head().varying
                && !Arc::ptr_eq(other.content(), entry.content())
        })
    }

    /// Whether there is one for the same requests that is whole and fresh, beside which a part is worth nothing.
    pub(crate) fn is_stored_whole(&self, entry: &Entry) -> bool {
        let hashed = self.hashed(entry.key());
        let mut shard = self.shard(&hashed);
        let mut variants = shard.get(&hashed).into_iter().flat_map(|slot| slot.variants.iter());
        variants.any(|other| {
            other.id() > entry.id()
                && other.content().is_complete()
                && other.head().varying == entry.head().varying
        })
    }

    /// Takes out what is older and for the same requests as an entry that a disk has now.
    pub(crate) fn supersede(&self, entry: &Arc<Entry>) {
        self.unlink_where(entry.key(), |other| {
            other.id() < entry.id() && other.head().varying == entry.head().varying
        });
    }

    /// Takes out all that has the content of this entry.
    pub(crate) fn unlink(&self, entry: &Arc<Entry>) {
        self.unlink_content(entry.key(), entry.content());
        entry.give_up();
    }

    /// Takes out all under a key that has this content.
    pub(crate) fn unlink_content(&self, key: &[u8], content: &Arc<Content>) {
        self.unlink_where(key, |other| Arc::ptr_eq(other.content(), content));
    }

    fn unlink_where(&self, key: &[u8], is_meant: impl Fn(&Arc<Entry>) -> bool) {
        let hashed = self.hashed(key);
        let mut outgoing = Outgoing::new();
        let emptied = {
            let mut shard = self.shard(&hashed);
            if let Some(slot) = shard.get(&hashed) {
                slot.take_where(is_meant, &mut outgoing);
            }
            shard.remove_if_empty(&hashed)
        };
        self.left(&outgoing);
        drop(emptied);
    }

    pub(crate) fn remember_pass(&self, hash: u128, until: (i64, Reason), about: (Address, u64)) {
        let mut shard = self.shard(&Hashed { hash, key: &[] });
        shard.passes.add(hash as u64, until, about, &self.budget);
    }

    /// They have left the index.
    pub(crate) fn left(&self, outgoing: &[Arc<Entry>]) {
        if !outgoing.is_empty() {
            self.counters.leave(outgoing.len());
            self.dequeue(outgoing);
        }
    }

    fn left_purged(&self, outgoing: &[Arc<Entry>]) {
        if !outgoing.is_empty() {
            self.counters.purge(outgoing.len());
            self.left(outgoing);
            if let Some(tier) = self.tier.get() {
                // Counted once, it need not be looked for there.
                outgoing.iter().for_each(|entry| {
                    tier.disks.withdraw(tier.hash(entry.key()), Some(variant_of(&entry.head().varying)));
                });
            }
        }
    }
}

fn variants_of(shard: &mut Shard, hashed: &Hashed<'_>, outgoing: &mut Outgoing) -> SmallVec<[Arc<Entry>; 1]> {
    let Some(slot) = shard.get(hashed) else { return SmallVec::new() };
    slot.drop_purged(outgoing);
    slot.variants.clone()
}

fn absent(shard: &mut Shard, hashed: &Hashed<'_>, now: i64, purges: &Purges) -> Found {
    if let Some(why) = shard.passes.find(hashed.hash as u64, now, purges) {
        shard.passed += 1;
        return Found::Pass(why);
    }
    shard.misses += 1;
    Found::Nothing
}
