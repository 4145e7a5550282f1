//! Names that come most often in an endless stream, in memory of a fixed size: the space-saving sketch.
//!
//! Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in data streams" (2005). Of `k` names that
//! are kept each has a count, which is never too small, and an error, by which it may be too large. A name that is new takes the
//! place of the one with the smallest count, whose count is its error. So no error is above the k-th part of all that was
//! counted, and every name with more than that is kept. The counts of several sketches add up: see [`Sum`].
//!
//! Nothing is allocated once a sketch is made, whatever names come: they are cut off at a fixed length.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// No place.
const NOWHERE: u16 = u16::MAX;

/// What was counted of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frequency {
    /// So often or less.
    pub count: u64,
    /// By so much less at most.
    pub error: u64,
    /// Of the count, where only some of what came was looked at and each stands for several: the sum of `weight * (weight - 1)`. 0
    /// where everything was counted.
    pub variance: u64,
}

impl Frequency {
    /// One look at what stands for so many.
    fn one(weight: u64) -> Frequency {
        Frequency { count: weight, error: 0, variance: weight.saturating_mul(weight.saturating_sub(1)) }
    }

    fn add(&mut self, other: &Frequency) {
        self.count = self.count.saturating_add(other.count);
        self.error = self.error.saturating_add(other.error);
        self.variance = self.variance.saturating_add(other.variance);
    }

    /// By so much the count may be wrong either way, because not everything was looked at: two standard deviations, within which it
    /// is 19 times of 20.
    pub fn deviation(&self) -> u64 {
        ((self.variance as f64).sqrt() * 2.0).ceil() as u64
    }

    /// So often at least, as far as can be told.
    pub fn sure(&self) -> u64 {
        self.count.saturating_sub(self.error).saturating_sub(self.deviation())
    }
}

/// The busiest of many names.
#[derive(Debug)]
pub struct Sketch {
    /// Of the hash, so that nobody knows which names share a place. Who finds out lengthens a search to as many steps as there
    /// are names, and no further.
    seed: u64,
    /// Bytes of a name that are kept.
    longest: usize,
    names: Vec<u8>,
    entries: Vec<Entry>,
    /// Entries in a heap, the smallest count first.
    heap: Vec<u16>,
    /// By hash, probed in line: where an entry is.
    table: Vec<u16>,
    total: u64,
    /// How many names are kept.
    kept: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    frequency: Frequency,
    hash: u64,
    len: u16,
    /// Where it is in the heap.
    at: u16,
}

impl Sketch {
    /// For so many names, at most 32,768, of which so many bytes are kept.
    pub fn new(kept: usize, longest: usize) -> Sketch {
        let (kept, longest) = (kept.clamp(1, 1 << 15), longest.min(usize::from(u16::MAX)));
        Sketch {
            seed: RandomState::new().hash_one(kept),
            longest,
            names: vec![0; kept * longest],
            entries: Vec::with_capacity(kept),
            heap: Vec::with_capacity(kept),
            table: vec![NOWHERE; (kept * 2).next_power_of_two()],
            total: 0,
            kept,
        }
    }

    /// Counts a name `weight` times.
    pub fn add(&mut self, name: &[u8], weight: u64) {
        let name = name.get(..self.longest).unwrap_or(name);
        let hash = self.hash(name);
        self.total = self.total.saturating_add(weight);
        if let Some(entry) = self.find(name, hash) {
            self.entries[usize::from(entry)].frequency.add(&Frequency::one(weight));
            return self.sink(self.entries[usize::from(entry)].at);
        }
        if self.entries.len() < self.kept {
            return self.insert(name, hash, weight);
        }
        let Some(smallest) = self.heap.first().copied() else { return };
        self.forget(smallest);
        let entry = &mut self.entries[usize::from(smallest)];
        entry.frequency.error = 0;
        entry.frequency.add(&Frequency { error: entry.frequency.count, ..Frequency::one(weight) });
        (entry.hash, entry.len) = (hash, name.len() as u16);
        self.write(smallest, name, hash);
        self.sink(0);
    }

    /// How often anything was counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// So often at most a name was counted that is not kept; not more than the part of the total that is one of as many as are
    /// kept.
    pub fn bound(&self) -> u64 {
        if self.entries.len() < self.kept {
            return 0;
        }
        self.heap.first().map_or(0, |smallest| self.entries[usize::from(*smallest)].frequency.count)
    }

    /// The names that are kept, in no order.
    pub fn names(&self) -> impl Iterator<Item = (&[u8], Frequency)> {
        (0..).zip(&self.entries).map(|(at, entry)| (self.name(at), entry.frequency))
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.heap.clear();
        self.table.fill(NOWHERE);
        self.total = 0;
    }

    fn name(&self, entry: u16) -> &[u8] {
        let begin = usize::from(entry) * self.longest;
        let len = self.entries.get(usize::from(entry)).map_or(0, |entry| usize::from(entry.len));
        self.names.get(begin..begin + len).unwrap_or_default()
    }

    /// By multiplication, eight bytes at a time: a name is hashed for each count, and SipHash took two thirds of all of it.
    fn hash(&self, name: &[u8]) -> u64 {
        let mix = |hash: u64, word: [u8; 8]| {
            let wide = u128::from(hash ^ u64::from_le_bytes(word)) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
            (wide >> 64) as u64 ^ wide as u64
        };
        let (words, rest) = name.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let hash = words.iter().fold(self.seed ^ name.len() as u64, |hash, word| mix(hash, *word));
        mix(mix(hash, last), [0xa5; 8])
    }

    fn slot(&self, hash: u64) -> usize {
        hash as usize & (self.table.len() - 1)
    }

    fn find(&self, name: &[u8], hash: u64) -> Option<u16> {
        let mut slot = self.slot(hash);
        loop {
            let entry = self.table[slot];
            if entry == NOWHERE {
                return None;
            }
            if self.entries[usize::from(entry)].hash == hash && self.name(entry) == name {
                return Some(entry);
            }
            slot = (slot + 1) & (self.table.len() - 1);
        }
    }

    fn insert(&mut self, name: &[u8], hash: u64, weight: u64) {
        let entry = self.entries.len() as u16;
        let (frequency, len) = (Frequency::one(weight), name.len() as u16);
        self.entries.push(Entry { frequency, hash, len, at: entry });
        self.heap.push(entry);
        self.write(entry, name, hash);
        self.rise(entry);
    }

    /// Writes a name to its place, and the place into the table, which has room: half of it is always free.
    fn write(&mut self, entry: u16, name: &[u8], hash: u64) {
        let begin = usize::from(entry) * self.longest;
        if let Some(place) = self.names.get_mut(begin..begin + name.len()) {
            place.copy_from_slice(name);
        }
        let mut slot = self.slot(hash);
        while self.table[slot] != NOWHERE {
            slot = (slot + 1) & (self.table.len() - 1);
        }
        self.table[slot] = entry;
    }

    /// Takes a name out of the table, and moves up those that stand behind it for want of its slot.
    fn forget(&mut self, entry: u16) {
        let mask = self.table.len() - 1;
        let mut hole = self.slot(self.entries[usize::from(entry)].hash);
        while self.table[hole] != entry {
            hole = (hole + 1) & mask;
        }
        let mut next = (hole + 1) & mask;
        while self.table[next] != NOWHERE {
            let wanted = self.slot(self.entries[usize::from(self.table[next])].hash);
            // It may move when its own slot is not between the hole and where it is.
            if next.wrapping_sub(wanted) & mask >= next.wrapping_sub(hole) & mask {
                self.table[hole] = self.table[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.table[hole] = NOWHERE;
    }

    fn count_at(&self, at: usize) -> u64 {
        self.entries[usize::from(self.heap[at])].frequency.count
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for at in [one, other] {
            self.entries[usize::from(self.heap[at])].at = at as u16;
        }
    }

    /// A count has grown.
    fn sink(&mut self, at: u16) {
        let mut at = usize::from(at);
        loop {
            let children = [at * 2 + 1, at * 2 + 2].into_iter().filter(|child| *child < self.heap.len());
            let Some(least) = children.min_by_key(|child| self.count_at(*child)) else { return };
            if self.count_at(least) >= self.count_at(at) {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    /// A count is new.
    fn rise(&mut self, at: u16) {
        let mut at = usize::from(at);
        while at > 0 && self.count_at((at - 1) / 2) > self.count_at(at) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }
}

/// What several sketches have counted, added up.
#[derive(Debug, Default)]
pub struct Sum {
    total: u64,
    /// Of all sketches: what they may have lost of a name that none of them knows.
    bound: u64,
    /// Of each name, and the bounds of the sketches that know it.
    names: HashMap<Vec<u8>, (Frequency, u64)>,
    is_estimated: bool,
}

impl Sum {
    /// Adds one: its total, its bound and its names.
    pub fn add<'n>(&mut self, total: u64, bound: u64, names: impl Iterator<Item = (&'n [u8], Frequency)>) {
        self.total = self.total.saturating_add(total);
        self.bound = self.bound.saturating_add(bound);
        for (name, told) in names {
            if !self.names.contains_key(name) {
                self.names.insert(name.to_vec(), Default::default());
            }
            if let Some((sum, known)) = self.names.get_mut(name) {
                sum.add(&told);
                *known = known.saturating_add(bound);
                self.is_estimated |= told.variance > 0;
            }
        }
    }

    /// How often anything was counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether any name was looked at only now and then: see [`Frequency::deviation`].
    pub fn is_estimated(&self) -> bool {
        self.is_estimated
    }

    /// So often at most a name was counted that none of them knows.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// The busiest names, at most so many of them, the busiest first. A sketch that does not know a name may have lost as much of
    /// it as its bound.
    pub fn top(&self, most: usize) -> Vec<(&[u8], Frequency)> {
        let whole = |told: &Frequency, known: u64| {
            let unknown = self.bound.saturating_sub(known);
            let mut whole = *told;
            whole.add(&Frequency { count: unknown, error: unknown, variance: 0 });
            whole
        };
        let mut all: Vec<(&[u8], Frequency)> =
            self.names.iter().map(|(name, (told, known))| (name.as_slice(), whole(told, *known))).collect();
        // By what is sure of them, so that what has taken another's place does not stand first.
        all.sort_by_key(|(name, of)| (std::cmp::Reverse(of.sure()), *name));
        all.truncate(most);
        all
    }
}
