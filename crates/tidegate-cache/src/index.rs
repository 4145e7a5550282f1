//! The index: what is stored, and who fetches, by key; in shards, each with a lock of its own.
//!
//! A key is found by a 128-bit hash with a secret seed and then compared in full. What a table allocates when it grows is
//! reserved first ([`Shard::growth`]); what leaves a shard is handed out, so that nothing is dropped below its lock.

use crate::budget::{Budget, Reservation};
use crate::entry::Entry;
use crate::flight::FlightCell;
use crate::passes::Passes;
use crate::purge::{Purges, Standing};
use hashbrown::HashTable;
use hashbrown::hash_table;
use smallvec::SmallVec;
use std::sync::Arc;
use tidegate_http::Fields;
use tidegate_http::cache::Varying;

/// Variants of a key; beyond, the one that was used least goes. So many are fetched at the same time, too.
pub(crate) const MOST_VARIANTS: usize = 16;

/// Bytes that a slot costs beside its key: itself, and the counters of the key that it shares.
pub(crate) const SLOT_COST: u64 = size_of::<Slot>() as u64 + 16;

/// Entries on their way out; dropped by who has let go of the lock.
pub(crate) type Outgoing = SmallVec<[Arc<Entry>; 1]>;

/// A key as it is looked for.
#[derive(Clone, Copy)]
pub(crate) struct Hashed<'a> {
    pub(crate) hash: u128,
    pub(crate) key: &'a [u8],
}

/// What there is under a key.
pub(crate) struct Slot {
    hash: u128,
    pub(crate) key: Arc<[u8]>,
    /// The newest first.
    pub(crate) variants: SmallVec<[Arc<Entry>; 1]>,
    /// Under way, each for requests of its own; where it is not known yet by what they vary, one for all.
    pub(crate) flights: SmallVec<[Arc<FlightCell>; 1]>,
    _reservation: Reservation,
}

/// A part of the index.
#[derive(Default)]
pub(crate) struct Shard {
    slots: HashTable<Box<Slot>>,
    /// For the table.
    reservation: Option<Reservation>,
    pub(crate) passes: Passes,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) passed: u64,
}

impl Slot {
    /// A slot for a key, for which `reservation` has been made.
    pub(crate) fn new(hashed: &Hashed<'_>, reservation: Reservation) -> Slot {
        Slot {
            hash: hashed.hash,
            key: hashed.key.into(),
            variants: SmallVec::new(),
            flights: SmallVec::new(),
            _reservation: reservation,
        }
    }

    pub(crate) fn hash(&self) -> u128 {
        self.hash
    }

    /// Takes out what was purged.
    pub(crate) fn drop_purged(&mut self, outgoing: &mut Outgoing) {
        self.take_where(|entry| entry.check() == Standing::Purged, outgoing);
    }

    /// Takes out entries. They know that they are gone when the lock is let go of.
    pub(crate) fn take_where(&mut self, is_meant: impl Fn(&Arc<Entry>) -> bool, outgoing: &mut Outgoing) {
        if !self.variants.iter().any(&is_meant) {
            return;
        }
        self.variants.retain(|entry| {
            let is_meant = is_meant(entry);
            if is_meant {
                entry.give_up();
                outgoing.push(entry.clone());
            }
            !is_meant
        });
    }

    /// The flight that a request with these fields may wait for.
    pub(crate) fn flight_for(&self, fields: Fields<'_>) -> Option<&Arc<FlightCell>> {
        self.flights
            .iter()
            .filter(|flight| !flight.is_alone)
            .find(|flight| flight.selected.as_ref().is_none_or(|selected| selected.fits(fields)))
    }

    /// Whether one flight more may be under way: of those that nobody waits for there are as many beside the others.
    pub(crate) fn has_room(&self, is_alone: bool) -> bool {
        self.flights.iter().filter(|flight| flight.is_alone == is_alone).count() < MOST_VARIANTS
    }

    /// What tells a request with these fields from requests for other variants, as far as that is known: by what the newest
    /// variant says, or by which the others were told apart that are under way.
    pub(crate) fn selected(&self, fields: Fields<'_>) -> Option<Varying> {
        let newest = self.variants.first().map(|entry| &entry.head().varying);
        let under_way = || self.flights.iter().find_map(|flight| flight.selected.as_ref());
        newest.or_else(under_way).and_then(|varying| varying.of_request(fields))
    }

    /// Takes out a flight.
    pub(crate) fn end(&mut self, cell: &Arc<FlightCell>) -> Option<Arc<FlightCell>> {
        let at = self.flights.iter().position(|flight| Arc::ptr_eq(flight, cell))?;
        Some(self.flights.swap_remove(at))
    }

    /// Adds the newest. Where there are too many, what it is to replace goes at once, or else what was used least of late, the
    /// oldest of those; answers whether one had to make room so. The others are then used by so much less: what nobody asks for
    /// any more does not stay for what it was once.
    pub(crate) fn add(&mut self, entry: Arc<Entry>, outgoing: &mut Outgoing) -> bool {
        let mut has_evicted = false;
        if self.variants.len() >= MOST_VARIANTS {
            let is_same = |other: &Arc<Entry>| other.head().varying == entry.head().varying;
            let same = self.variants.iter().rposition(is_same);
            has_evicted = same.is_none();
            let least = || (0..self.variants.len()).rev().min_by_key(|at| self.variants[*at].uses_count());
            if let Some(at) = same.or_else(least) {
                let gone = self.variants.remove(at);
                if has_evicted {
                    self.variants.iter().for_each(|other| other.fade(gone.uses_count()));
                }
                gone.give_up();
                outgoing.push(gone);
            }
        }
        self.variants.insert(0, entry);
        has_evicted
    }

    /// Takes out what is older than `id` and for the same requests.
    pub(crate) fn replace(&mut self, id: u64, varying: &Varying, outgoing: &mut Outgoing) {
        self.take_where(|entry| entry.id() < id && entry.head().varying == *varying, outgoing);
    }

    fn is_empty(&self) -> bool {
        self.variants.is_empty() && self.flights.is_empty()
    }
}

impl Shard {
    pub(crate) fn get(&mut self, hashed: &Hashed<'_>) -> Option<&mut Slot> {
        self.slots.find_mut(hashed.hash as u64, |slot| is(slot, hashed)).map(|slot| &mut **slot)
    }

    /// Bytes that the table allocates for one key more, beside those it has: while it grows, both are there.
    pub(crate) fn growth(&self) -> u64 {
        let is_full = self.slots.len() >= self.slots.capacity();
        if is_full { 2 * self.slots.allocation_size() as u64 + 128 } else { 0 }
    }

    /// Adds a key that is not there. `growth` is what [`Shard::growth`] has asked for.
    pub(crate) fn add(&mut self, slot: Slot, growth: Reservation) -> &mut Slot {
        let hash = slot.hash as u64;
        let slot = Box::new(slot);
        match &mut self.reservation {
            Some(reservation) => reservation.join(growth),
            none => *none = Some(growth),
        }
        let index = self.slots.insert_unique(hash, slot, |slot| slot.hash as u64).bucket_index();
        self.settle();
        self.slots.get_bucket_mut(index).expect("invariant: it was put there")
    }

    /// Gives back what the table has not needed.
    fn settle(&mut self) {
        let needed = self.slots.allocation_size() as u64;
        if let Some(reservation) = &mut self.reservation {
            let spare = reservation.bytes().saturating_sub(needed);
            drop(reservation.split(spare));
        }
    }

    /// Takes the slot out where nothing is left in it. The caller drops it.
    pub(crate) fn remove_if_empty(&mut self, hashed: &Hashed<'_>) -> Option<Box<Slot>> {
        let found = self.slots.find_entry(hashed.hash as u64, |slot| is(slot, hashed));
        match found {
            Ok(occupied) if occupied.get().is_empty() => Some(occupied.remove().0),
            _ => None,
        }
    }

    /// Every slot. Those that are empty behind `look` go.
    pub(crate) fn walk(&mut self, mut look: impl FnMut(&mut Slot)) {
        self.slots.retain(|slot| {
            look(slot);
            !slot.is_empty()
        });
    }

    /// Every slot, to read.
    pub(crate) fn slots(&self) -> hash_table::Iter<'_, Box<Slot>> {
        self.slots.iter()
    }

    /// Gives memory back that a table which was once much larger holds, and what is known not to be storable and was purged.
    pub(crate) fn shrink(&mut self, now: i64, budget: &Arc<Budget>, purges: &Purges) {
        self.passes.shrink(now, purges);
        if self.slots.len() * 8 > self.slots.capacity() {
            return;
        }
        let Some(meanwhile) = budget.reserve(self.slots.allocation_size() as u64 / 2 + 128) else { return };
        self.slots.shrink_to_fit(|slot| slot.hash as u64);
        drop(meanwhile);
        self.settle();
    }
}

fn is(slot: &Slot, hashed: &Hashed<'_>) -> bool {
    slot.hash == hashed.hash && *slot.key == *hashed.key
}
