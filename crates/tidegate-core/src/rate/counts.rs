//! How many of something there are at present for each of very many keys, in memory of fixed size that processes share.
//!
//! A place is one word: a tag of the key, and its count. Eight places make a set, in one cache line. A place whose count
//! is 0 may be taken for another key, and is taken by the same compare-and-swap that would count for the key before: what
//! one process counts can never be counted for somebody else. Where all eight places of a set are in use, further keys
//! are counted together.
//!
//! Beside the counts each process keeps a ledger of what it has counted, so that whoever outlives it can give that back
//! ([`Counts::give_back`]). A process writes into its ledger before it counts, and takes out of it after: what it held
//! when it was killed is never forgotten. One that was killed between the two of them has given back one more than it had,
//! which the next time that the key is idle makes good.

use std::array;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use tidegate_io::shared::SharedWords;

/// Places of a set.
const WAYS: usize = 8;
/// Words in front of everything: the count of keys without a place, how many those were, how many were refused, the two
/// words of the secret, how many ledgers there are.
const HEAD: usize = 8;
const CROWD: usize = 0;
const CROWDED: usize = 1;
const REFUSED: usize = 2;
const SECRET: [usize; 2] = [3, 4];
const LEDGERS: usize = 5;
/// Bits of a place that count; the others are the tag.
const COUNT_BITS: u32 = 24;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// The most that is counted for a key.
pub const MOST: u32 = COUNT as u32;
/// How often a key looks for a place while others take them.
const TRIES: usize = 4;

/// Where something has been counted. Has to be given to [`Counts::leave`] once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(usize);

impl Place {
    /// It is that of all keys without a place.
    pub(crate) fn is_crowd(self) -> bool {
        self.0 == usize::MAX
    }
}

/// The keys of which there is something at present, and how much.
#[derive(Debug)]
pub struct Counts {
    words: SharedWords,
    sets: u64,
    ledgers: usize,
    /// Has taken the secret in.
    hasher: DefaultHasher,
    /// The ledger of this process; `None` where there was none left.
    own: OnceLock<Option<usize>>,
}

impl Counts {
    /// How many words a table for `keys` keys at once takes: 16 bytes for each, and 8 more in the ledger of each process that
    /// counts for them, of which there may be `processes`. `None`: more than can be told.
    pub fn length(keys: usize, processes: usize) -> Option<usize> {
        // Half of the places stay free, so that hardly any set is full before so many are there.
        Self::length_of(keys.div_ceil(WAYS / 2).max(1), processes)
    }

    /// A table for so many processes in words that are all zero. `secret` comes from the system's source of randomness.
    ///
    /// # Errors
    /// `InvalidData`: these are not as many as it takes.
    pub fn new(words: SharedWords, processes: usize, secret: [u64; 2]) -> io::Result<Counts> {
        let values = SECRET.into_iter().zip(secret).chain([(LEDGERS, processes as u64)]);
        for (word, value) in values.filter_map(|(at, value)| Some((words.words().get(at)?, value))) {
            word.store(value, Relaxed);
        }
        Self::attach(words)
    }

    /// Words in all. A ledger has who owns it, what it holds of the crowd, and half a word for each place.
    fn length_of(sets: usize, processes: usize) -> Option<usize> {
        let places = sets.checked_mul(WAYS)?;
        let ledger = places.div_ceil(2).checked_add(2)?;
        places.checked_add(HEAD)?.checked_add(ledger.checked_mul(processes)?)
    }

    /// The table that another process has made.
    ///
    /// # Errors
    /// `InvalidData`: it is none.
    pub fn attach(words: SharedWords) -> io::Result<Counts> {
        let ledgers = usize::try_from(words.words().get(LEDGERS).map_or(0, |word| word.load(Relaxed)));
        let length = words.words().len();
        // places + HEAD + ledgers × (places / 2 + 2), and places are a multiple of 8
        let sets = ledgers.ok().and_then(|ledgers| {
            let front = ledgers.checked_mul(2)?.checked_add(HEAD)?;
            let each = ledgers.checked_mul(WAYS / 2)?.checked_add(WAYS)?;
            let sets = length.checked_sub(front)? / each;
            (sets > 0 && Self::length_of(sets, ledgers) == Some(length)).then_some((sets, ledgers))
        });
        let Some((sets, ledgers)) = sets else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the shared memory is no table of counts",
            ));
        };
        let mut hasher = DefaultHasher::new();
        SECRET.map(|at| words.words()[at].load(Relaxed)).hash(&mut hasher);
        Ok(Counts { words, sets: sets as u64, ledgers, hasher, own: OnceLock::new() })
    }

    /// How many processes may count there so that what they have counted goes with them.
    pub fn processes(&self) -> usize {
        self.ledgers
    }

    /// Counts one more of a key, unless there are `most` of it: where, and how many there are with this one. Neither
    /// allocates nor waits.
    pub fn enter(&self, key: &[u8], most: u32) -> Option<(Place, u32)> {
        let entered = self.look_for_place(key, most);
        if entered.is_none() {
            self.count_refused();
        }
        entered
    }

    /// The same for one who comes back where it is `None`, and so was not refused.
    pub fn look_for_place(&self, key: &[u8], most: u32) -> Option<(Place, u32)> {
        let most = most.min(MOST);
        let hash = self.hash(key);
        for _ in 0..TRIES {
            match self.try_enter(hash, most) {
                Attempt::Entered(place, count) => return Some((place, count)),
                Attempt::Beyond => return None,
                Attempt::Again => {}
                Attempt::Full => break,
            }
        }
        self.words.words()[CROWDED].fetch_add(1, Relaxed);
        let crowd = Place(usize::MAX);
        let entered = self.count_in(crowd, |word| (word & COUNT < u64::from(most)).then(|| word + 1));
        entered.map(|count| (crowd, count))
    }

    /// One was refused.
    pub fn count_refused(&self) {
        self.words.words()[REFUSED].fetch_add(1, Relaxed);
    }

    /// One less of what was counted there.
    pub fn leave(&self, place: Place) {
        self.lower(self.word(place), 1);
        if let Some(ledger) = self.own() {
            self.note(ledger, place, false);
        }
    }

    /// How many there are at present of what was counted there.
    pub fn count(&self, place: Place) -> u32 {
        (self.word(place).load(Relaxed) & COUNT) as u32
    }

    /// How many there are of a key, without counting anything.
    pub fn look(&self, key: &[u8]) -> u32 {
        let tag = self.hash(key) & !COUNT;
        let (_, set) = self.set(self.hash(key));
        let count = |word: &AtomicU64| Some(word.load(SeqCst)).filter(|word| word & !COUNT == tag);
        set.iter().find_map(count).map_or(0, |word| (word & COUNT) as u32)
    }

    /// A number that all processes have which share the table, and hardly any other.
    pub fn identity(&self) -> u64 {
        let mut hasher = self.hasher.clone();
        hasher.write(b"identity");
        hasher.finish()
    }

    /// How many were refused, in all processes.
    pub fn refused(&self) -> u64 {
        self.words.words()[REFUSED].load(Relaxed)
    }

    /// How many were counted together with others, since the table is too small.
    pub fn crowded(&self) -> u64 {
        self.words.words()[CROWDED].load(Relaxed)
    }

    /// How many there are in all, which looks through all of the table.
    pub fn total(&self) -> u64 {
        let places = &self.words.words()[HEAD..HEAD + self.places()];
        let placed: u64 = places.iter().map(|word| word.load(Relaxed) & COUNT).sum();
        placed + (self.words.words()[CROWD].load(Relaxed) & COUNT)
    }

    /// Gives back what processes had counted that are no longer there, as `is_there` says of their numbers; whether there
    /// were any.
    pub fn give_back(&self, is_there: impl Fn(u32) -> bool) -> bool {
        let mut has_given = false;
        for ledger in 0..self.ledgers {
            let words = self.ledger(ledger);
            let owner = words[0].load(SeqCst);
            if owner == 0 || is_there(owner as u32) {
                continue;
            }
            has_given = true;
            self.lower(&self.words.words()[CROWD], words[1].swap(0, SeqCst));
            for (pair, word) in words[2..].iter().enumerate() {
                if word.load(Relaxed) == 0 {
                    continue;
                }
                let held = word.swap(0, SeqCst);
                for (half, held) in [held & u64::from(u32::MAX), held >> 32].into_iter().enumerate() {
                    if let Some(place) = self.words.words().get(HEAD + 2 * pair + half).filter(|_| held > 0) {
                        self.lower(place, held);
                    }
                }
            }
            let _ = words[0].compare_exchange(owner, 0, SeqCst, SeqCst);
        }
        has_given
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.clone();
        hasher.write(key);
        hasher.finish().max(1 << COUNT_BITS) // a tag of 0 is a place without a key
    }

    fn places(&self) -> usize {
        self.sets as usize * WAYS
    }

    /// The set of a key: the number of its first place, and its places.
    fn set(&self, hash: u64) -> (usize, &[AtomicU64]) {
        // Mixed, since the tag has the upper bits: all of the hash chooses the set.
        let mixed = hash.rotate_left(32) ^ hash;
        let set = ((u128::from(mixed) * u128::from(self.sets)) >> 64) as usize;
        (set * WAYS, &self.words.words()[HEAD + set * WAYS..][..WAYS])
    }

    fn word(&self, place: Place) -> &AtomicU64 {
        // A place that was not given out is the crowd.
        let at = Some(place.0).filter(|at| *at < self.places()).map_or(CROWD, |at| HEAD + at);
        &self.words.words()[at]
    }

    fn ledger(&self, number: usize) -> &[AtomicU64] {
        let length = self.places().div_ceil(2) + 2;
        &self.words.words()[HEAD + self.places() + number * length..][..length]
    }

    /// The ledger of this process, which it takes when it counts first.
    fn own(&self) -> Option<usize> {
        *self.own.get_or_init(|| {
            let process = u64::from(std::process::id());
            let take = |at: &usize| self.ledger(*at)[0].compare_exchange(0, process, SeqCst, SeqCst).is_ok();
            (0..self.ledgers).find(take)
        })
    }

    /// One more, or one less, of a place in a ledger.
    fn note(&self, ledger: usize, place: Place, is_more: bool) {
        let words = self.ledger(ledger);
        let (word, one) = match words.get(2 + place.0 / 2).filter(|_| place.0 < self.places()) {
            Some(word) => (word, 1 << (32 * (place.0 % 2) as u32)),
            None => (&words[1], 1u64),
        };
        if is_more {
            word.fetch_add(one, SeqCst)
        } else {
            word.fetch_sub(one, SeqCst)
        };
    }

    /// Counts one more in a place, where `next` says what its word will be; how many there are then.
    fn count_in(&self, place: Place, next: impl Fn(u64) -> Option<u64>) -> Option<u32> {
        let word = self.word(place);
        let mut known = word.load(SeqCst);
        next(known)?;
        let ledger = self.own();
        if let Some(ledger) = ledger {
            self.note(ledger, place, true);
        }
        loop {
            let Some(new) = next(known) else {
                if let Some(ledger) = ledger {
                    self.note(ledger, place, false);
                }
                return None;
            };
            match word.compare_exchange_weak(known, new, SeqCst, SeqCst) {
                Ok(_) => return Some((new & COUNT) as u32),
                Err(other) => known = other,
            }
        }
    }

    fn try_enter(&self, hash: u64, most: u32) -> Attempt {
        let tag = hash & !COUNT;
        let (first, set) = self.set(hash);
        let known: [u64; WAYS] = array::from_fn(|way| set[way].load(SeqCst));
        if let Some(way) = known.iter().position(|word| word & !COUNT == tag) {
            let place = Place(first + way);
            let is_beyond = |word: u64| word & COUNT >= u64::from(most);
            let is_ours = |word: u64| word & !COUNT == tag;
            return match self.count_in(place, |word| (is_ours(word) && !is_beyond(word)).then(|| word + 1)) {
                Some(count) => Attempt::Entered(place, count),
                None if is_ours(set[way].load(SeqCst)) => Attempt::Beyond,
                None => Attempt::Again, // another key has the place
            };
        }
        if most == 0 {
            return Attempt::Beyond;
        }
        // A place that no key has had, else one of a key of which there is nothing.
        let free = (0..WAYS).filter(|way| known[*way] & COUNT == 0).min_by_key(|way| known[*way] != 0);
        let Some(way) = free else { return Attempt::Full };
        let place = Place(first + way);
        if self.count_in(place, |word| (word == known[way]).then_some(tag | 1)).is_none() {
            return Attempt::Again;
        }
        // Somebody else may have taken another place for the same key meanwhile: then one of them has to go.
        if (0..WAYS).any(|other| other != way && set[other].load(SeqCst) & !COUNT == tag) {
            self.leave(place);
            // Only while nobody has come to it: what is there stays as it is then.
            let _ = set[way].compare_exchange(tag, 0, SeqCst, SeqCst);
            return Attempt::Again;
        }
        Attempt::Entered(place, 1)
    }

    fn lower(&self, word: &AtomicU64, by: u64) {
        let less = |word: u64| Some(word - (word & COUNT).min(by));
        let _ = word.fetch_update(SeqCst, SeqCst, less);
    }
}

enum Attempt {
    Entered(Place, u32),
    /// There are as many as may be.
    Beyond,
    /// Another one has come in between.
    Again,
    /// All places of the set are in use.
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::memory_of;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::thread;

    /// The same table for so many who share it.
    fn tables<const N: usize>(keys: usize, processes: usize, secret: [u64; 2]) -> [Counts; N] {
        let mut is_new = true;
        memory_of(Counts::length(keys, processes).unwrap()).map(|words| match std::mem::take(&mut is_new) {
            true => Counts::new(words, processes, secret).unwrap(),
            false => Counts::attach(words).unwrap(),
        })
    }

    #[test]
    fn exact_for_all_who_share_it() {
        let [ours, theirs] = tables(100, 4, [1, 2]);
        for round in 0..200u64 {
            let key = round.to_be_bytes();
            let enter = |counts: &'static str| {
                let counts = if counts == "ours" { &ours } else { &theirs };
                move || (0..20).filter_map(|_| counts.enter(&key, 25)).collect::<Vec<_>>()
            };
            let held: Vec<_> = thread::scope(|scope| {
                let all = ["ours", "theirs", "ours", "theirs"].map(|which| scope.spawn(enter(which)));
                all.map(|thread| thread.join().unwrap()).into_iter().collect()
            });
            assert_eq!(held.iter().map(Vec::len).sum::<usize>(), 25, "round {round}");
            assert_eq!(ours.look(&key), 25);
            for (which, held) in held.into_iter().enumerate() {
                let counts = if which % 2 == 0 { &ours } else { &theirs };
                held.into_iter().for_each(|(place, _)| counts.leave(place));
            }
            assert_eq!(ours.look(&key), 0);
        }
        assert_eq!((ours.total(), ours.crowded(), theirs.refused()), (0, 0, 200 * 55));
    }

    /// Threads that come, go, and take places of each other's keys: no key ever has more than it may, nothing is left.
    #[test]
    fn no_key_is_counted_for_another() {
        const KEYS: u64 = 40;
        let [counts] = tables(4, 4, [5, 6]); // of which all share one set
        let inside: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            for seed in 0..4 {
                let (counts, inside) = (&counts, &inside);
                scope.spawn(move || {
                    let mut random = seed as u64 + 1;
                    for _ in 0..20_000 {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let key = (random >> 33) % KEYS;
                        let Some((place, _)) = counts.enter(&key.to_le_bytes(), 2) else { continue };
                        if place != Place(usize::MAX) {
                            let now = inside[key as usize].fetch_add(1, SeqCst);
                            assert!(now < 2, "{} of key {key}", now + 1);
                            inside[key as usize].fetch_sub(1, SeqCst);
                        }
                        counts.leave(place);
                    }
                });
            }
        });
        assert_eq!(counts.total(), 0);
        assert!(
            counts.ledger(0)[1..].iter().all(|word| word.load(SeqCst) == 0),
            "the ledger is empty as well"
        );
    }

    #[test]
    fn what_a_killed_process_held_is_given_back() {
        let [ours, killed, next] = tables(1, 2, [1, 2]);
        let own = ours.enter(b"a", 30).unwrap().0;
        // All in one process here, which therefore owns both ledgers: told apart by hand.
        for key in 0..20u8 {
            killed.enter(&[key], 30).unwrap();
        }
        killed.enter(b"a", 30).unwrap();
        assert_eq!(killed.own(), Some(1));
        ours.ledger(1)[0].store(77, SeqCst);
        assert!(ours.crowded() > 0, "some have no place of their own");
        assert_eq!(ours.total(), 22);
        ours.give_back(|process| process != 88);
        assert_eq!(ours.total(), 22, "it is there");
        ours.give_back(|process| process != 77);
        assert_eq!((ours.total(), ours.look(b"a")), (1, 1));
        ours.give_back(|process| process != 77);
        ours.leave(own);
        assert_eq!(ours.total(), 0);
        // The ledger is free again.
        assert!(next.enter(b"a", 1).is_some());
        assert_ne!(ours.ledger(1)[0].load(SeqCst), 0);
    }

    #[test]
    fn without_a_ledger_it_counts_all_the_same() {
        let [ours] = tables(8, 0, [1, 2]);
        let (place, count) = ours.enter(b"a", 1).unwrap();
        assert_eq!((count, ours.enter(b"a", 1)), (1, None));
        ours.leave(place);
        assert!(ours.enter(b"a", 1).is_some() && ours.enter(b"b", 0).is_none());
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for length in [1, HEAD, HEAD + 7] {
            let [words] = memory_of(length);
            let error = Counts::attach(words).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        let [lying] = memory_of(HEAD + 64);
        lying.words()[LEDGERS].store(u64::MAX, Relaxed);
        assert!(Counts::attach(lying).is_err());
        assert!(Counts::length(usize::MAX, 4).is_none());
    }

    proptest! {
        /// Beside a map that forgets nothing.
        #[test]
        fn as_a_map(steps in prop::collection::vec((0u8..30, any::<bool>()), 1..400), most in 1u32..4) {
            let [counts] = tables(4096, 1, [3, 4]);
            let mut model: HashMap<u8, Vec<Place>> = HashMap::new();
            for (key, enters) in steps {
                let held = model.entry(key).or_default();
                if enters {
                    match counts.enter(&[key], most) {
                        Some((place, count)) => {
                            held.push(place);
                            prop_assert_eq!(count as usize, held.len());
                            prop_assert!(count <= most);
                        }
                        None => prop_assert_eq!(held.len(), most as usize),
                    }
                } else if let Some(place) = held.pop() {
                    counts.leave(place);
                }
                prop_assert_eq!(counts.look(&[key]) as usize, model[&key].len());
            }
            prop_assert_eq!(counts.crowded(), 0);
            prop_assert_eq!(counts.total(), model.values().map(Vec::len).sum::<usize>() as u64);
        }
    }
}
