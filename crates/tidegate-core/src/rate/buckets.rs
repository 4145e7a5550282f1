//! A time for each of very many keys, in memory of fixed size that processes share.
//!
//! Keys are told apart by a hash of 64 bits under a secret of the table, so that nobody can choose keys that meet. Eight
//! keys make a set, in two cache lines: their hashes, and the times at which they will have caught up. A key that has caught
//! up is as good as one that was never seen, so its place may be taken; one that has not keeps its place, so that no flood of
//! other keys lets it go. Where all eight have not, further keys are judged together, by one time for all of them: the
//! table is too small then, which is counted.

use super::{Rate, Ruling};
use std::array;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use tidegate_io::shared::SharedWords;

/// Keys of a set.
const WAYS: usize = 8;
/// Words of a set: the hashes of its keys, then their times.
const SET: usize = 2 * WAYS;
/// Words in front of the sets.
const HEAD: usize = 8;
/// Of these: the time of all keys that have found no place, how many requests those were, how many were refused, and the
/// two words of the secret.
const CROWD: usize = 0;
const CROWDED: usize = 1;
const REFUSED: usize = 2;
const SECRET: [usize; 2] = [3, 4];
/// How often a key looks for a place while others take them.
const TRIES: usize = 4;

/// The keys of a limit, and when each will have caught up.
#[derive(Debug)]
pub struct Buckets {
    words: SharedWords,
    sets: u64,
    /// Has taken the secret in.
    hasher: DefaultHasher,
}

impl Buckets {
    /// How many words a table for `keys` keys at once takes: 32 bytes for each.
    pub fn length(keys: usize) -> usize {
        // Half of the places stay free, so that hardly any set is full before so many are there.
        let sets = keys.div_ceil(WAYS / 2).max(1);
        sets.saturating_mul(SET).saturating_add(HEAD)
    }

    /// A table in words that are all zero. `secret` comes from the system's source of randomness.
    ///
    /// # Errors
    /// `InvalidData`: these are too few.
    pub fn new(words: SharedWords, secret: [u64; 2]) -> io::Result<Buckets> {
        for (word, secret) in SECRET.into_iter().filter_map(|at| words.words().get(at)).zip(secret) {
            word.store(secret, Relaxed);
        }
        Self::attach(words)
    }

    /// The table that another process has made.
    ///
    /// # Errors
    /// `InvalidData`: it is none.
    pub fn attach(words: SharedWords) -> io::Result<Buckets> {
        let sets = words.words().len().saturating_sub(HEAD) / SET;
        if sets == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the shared memory is no table of rates"));
        }
        let mut hasher = DefaultHasher::new();
        SECRET.map(|at| words.words()[at].load(Relaxed)).hash(&mut hasher);
        Ok(Buckets { words, sets: sets as u64, hasher })
    }

    /// Judges one more of a key at `now` (nanoseconds of the monotonic clock, which is one for all processes), and counts
    /// it where it may happen. Neither allocates nor waits.
    #[inline]
    pub fn charge(&self, key: &[u8], rate: Rate, now: u64) -> Ruling {
        let ruling = charge(self.time_of(key, now), rate, now);
        if matches!(ruling, Ruling::Beyond { .. }) {
            self.words.words()[REFUSED].fetch_add(1, Relaxed);
        }
        ruling
    }

    /// What [`charge`](Buckets::charge) would say, without counting anything.
    pub fn look(&self, key: &[u8], rate: Rate, now: u64) -> Ruling {
        let mut hasher = self.hasher.clone();
        hasher.write(key);
        let hash = hasher.finish().max(1);
        let due = self.known(hash).map_or(0, |due| due.load(SeqCst));
        rate.judge(due, now).1
    }

    /// Reserves so many nanoseconds of a key's time behind what is reserved already: when they begin. Time before `since`
    /// has gone. Whoever is told of a time to come waits for it, so that all who share a key have their turns one behind
    /// the other.
    pub fn reserve(&self, key: &[u8], cost: u64, since: u64, now: u64) -> u64 {
        let due = self.time_of(key, now);
        let mut known = due.load(SeqCst);
        loop {
            let start = known.max(since);
            match due.compare_exchange_weak(known, start.saturating_add(cost), SeqCst, SeqCst) {
                Ok(_) => return start,
                Err(other) => known = other,
            }
        }
    }

    /// Gives back what was reserved and is not used.
    pub fn give_back(&self, key: &[u8], cost: u64, now: u64) {
        let _ = self.time_of(key, now).fetch_update(SeqCst, SeqCst, |due| Some(due.saturating_sub(cost)));
    }

    /// Counts what was held up, or would have been.
    pub fn count_refused(&self, count: u64) {
        self.words.words()[REFUSED].fetch_add(count, Relaxed);
    }

    /// The time of a key, in a place that is taken for it; that of all without a place where there is none.
    fn time_of(&self, key: &[u8], now: u64) -> &AtomicU64 {
        let mut hasher = self.hasher.clone();
        hasher.write(key);
        // 0 is a place without a key.
        self.place(hasher.finish().max(1), now).unwrap_or_else(|| {
            self.words.words()[CROWDED].fetch_add(1, Relaxed);
            &self.words.words()[CROWD]
        })
    }

    /// The time of a key that has a place.
    fn known(&self, hash: u64) -> Option<&AtomicU64> {
        let (hashes, dues) = self.set(hash)?;
        let way = hashes.iter().position(|known| known.load(SeqCst) == hash)?;
        dues.get(way)
    }

    /// Where a key may stand: hashes and times.
    fn set(&self, hash: u64) -> Option<(&[AtomicU64], &[AtomicU64])> {
        // The upper bits choose the set: all are used, whatever the number of sets.
        let set = ((u128::from(hash) * u128::from(self.sets)) >> 64) as usize;
        let words = self.words.words().get(HEAD + set * SET..)?.get(..SET)?;
        Some(words.split_at(WAYS))
    }

    /// How many were refused, in all processes.
    pub fn refused(&self) -> u64 {
        self.words.words()[REFUSED].load(Relaxed)
    }

    /// How many were judged together with others, since the table is too small.
    pub fn crowded(&self) -> u64 {
        self.words.words()[CROWDED].load(Relaxed)
    }

    /// The time of a key, in a place that is taken for it where it has none.
    fn place(&self, hash: u64, now: u64) -> Option<&AtomicU64> {
        let (hashes, dues) = self.set(hash)?;
        for _ in 0..TRIES {
            let known: [u64; WAYS] = array::from_fn(|way| hashes[way].load(SeqCst));
            if let Some(way) = known.iter().position(|known| *known == hash) {
                return dues.get(way);
            }
            // A place that nobody has, else the one that has caught up for the longest.
            let free = |way: &usize| known[*way] == 0 || dues[*way].load(SeqCst) <= now;
            let way = (0..WAYS)
                .filter(free)
                .min_by_key(|way| if known[*way] == 0 { 0 } else { dues[*way].load(SeqCst) })?;
            if hashes[way].compare_exchange(known[way], hash, SeqCst, SeqCst).is_err() {
                continue;
            }
            // Somebody else may have taken another place for the same key meanwhile: then one of them has to go.
            if (0..WAYS).any(|other| other != way && hashes[other].load(SeqCst) == hash) {
                let _ = hashes[way].compare_exchange(hash, 0, SeqCst, SeqCst);
                continue;
            }
            return dues.get(way);
        }
        None
    }
}

fn charge(due: &AtomicU64, rate: Rate, now: u64) -> Ruling {
    let mut known = due.load(SeqCst);
    loop {
        let (next, ruling) = rate.judge(known, now);
        let Some(next) = next else { return ruling };
        match due.compare_exchange_weak(known, next, SeqCst, SeqCst) {
            Ok(_) => return ruling,
            Err(other) => known = other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::memory_of;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::num::NonZeroU64;
    use std::thread;
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;

    fn rate(count: u64, burst: u64) -> Rate {
        Rate::new(NonZeroU64::new(count).unwrap(), Duration::from_secs(1), NonZeroU64::new(burst).unwrap())
    }

    fn table(keys: usize, secret: [u64; 2]) -> Buckets {
        let [words] = memory_of(Buckets::length(keys));
        Buckets::new(words, secret).unwrap()
    }

    fn is_within(ruling: Ruling) -> bool {
        matches!(ruling, Ruling::Within { .. })
    }

    #[test]
    fn exact_for_all_who_share_it() {
        let [ours, theirs] = memory_of(Buckets::length(100));
        let ours = Buckets::new(ours, [1, 2]).unwrap();
        let theirs = Buckets::attach(theirs).unwrap();
        for round in 0..50u64 {
            let key = round.to_be_bytes();
            let now = (round + 1) * 1000 * SECOND;
            let admitted: usize = thread::scope(|scope| {
                let ask = |table: &'static str| {
                    let table = if table == "ours" { &ours } else { &theirs };
                    move || (0..40).filter(|_| is_within(table.charge(&key, rate(1, 25), now))).count()
                };
                let all =
                    [ask("ours"), ask("theirs"), ask("ours"), ask("theirs")].map(|ask| scope.spawn(ask));
                all.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(admitted, 25, "round {round}");
        }
        assert_eq!((ours.refused(), theirs.crowded()), (50 * (160 - 25), 0));
    }

    #[test]
    fn a_flood_of_keys_lets_none_go_that_is_blocked() {
        let table = table(1000, [1, 2]);
        let (rate, now) = (rate(1, 1), SECOND);
        assert!(is_within(table.charge(b"blocked", rate, now)));
        for key in 0..1_000_000u64 {
            table.charge(&key.to_le_bytes(), rate, now);
            if key % 1000 == 0 {
                assert!(!is_within(table.charge(b"blocked", rate, now)), "after {key}");
            }
        }
        assert!(table.crowded() > 990_000, "{}", table.crowded());
        // Those that have found no place have had one request in all.
        let more =
            (2_000_000..3_000_000u64).filter(|key| is_within(table.charge(&key.to_le_bytes(), rate, now)));
        assert_eq!(more.count(), 0);
        // Once all have caught up there is place again.
        assert!(is_within(table.charge(b"new", rate, now + 2 * SECOND)));
        assert!(is_within(table.charge(b"blocked", rate, now + 2 * SECOND)));
    }

    #[test]
    fn another_secret_is_another_hash() {
        let places = |secret| {
            let table = table(1 << 16, secret);
            table.charge(b"key", rate(1, 1), SECOND);
            table.words.words().iter().skip(HEAD).position(|word| word.load(Relaxed) != 0)
        };
        assert_ne!(places([1, 2]), places([1, 3]));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let [words] = memory_of(HEAD + SET - 1);
        let error = Buckets::attach(words).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        /// Beside a map that forgets nothing: as long as the table has place, each key is judged by itself.
        #[test]
        fn as_a_map_that_forgets_nothing(
            requests in prop::collection::vec((0u8..20, 0u64..300_000_000), 1..400), burst in 1u64..5
        ) {
            let table = table(4096, [3, 4]);
            let rate = rate(10, burst);
            let mut model: HashMap<u8, u64> = HashMap::new();
            let mut now = SECOND;
            for (key, gap) in requests {
                now += gap;
                let due = model.entry(key).or_default();
                let (next, expected) = rate.judge(*due, now);
                *due = next.unwrap_or(*due);
                prop_assert_eq!(table.charge(&[key], rate, now), expected);
            }
            prop_assert_eq!(table.crowded(), 0);
        }
    }
}
