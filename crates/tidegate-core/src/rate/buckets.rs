//! A time for each of very many keys, in memory of fixed size that processes share.
//!
//! Keys are told apart by a hash of 64 bits under a secret of the table, so that nobody can choose keys that meet. Eight
//! keys make a set, in two cache lines: their hashes, and the times at which they will have caught up. Who takes a place
//! claims its time first and changes its key then, so that nothing is counted for a key that has just left or just come. A key that has caught
//! up is as good as one that was never seen, so its place may be taken; one that has not keeps its place, so that no flood of
//! other keys lets it go. Where all eight have not, further keys are judged together, by one time for all of them: the
//! table is too small then, which is counted.

use super::{Rate, Ruling};
use std::array;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::hint::spin_loop;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread::yield_now;
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
const TRIES: usize = 64;
/// In place of a time: somebody takes the place since the time that the other bits say.
const CLAIM: u64 = 1 << 63;
/// What takes longer than these nanoseconds was given up.
const ABANDONED: u64 = 1_000_000_000;
/// Bits of times in the first half second after the start of the machine.
const LONG_AGO: u64 = (1 << 29) - 1;

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
        let ruling = self.change(key, now, |due| rate.judge(due, now));
        if matches!(ruling, Ruling::Beyond { .. }) {
            self.words.words()[REFUSED].fetch_add(1, Relaxed);
        }
        ruling
    }

    /// What [`charge`](Buckets::charge) would say, without counting anything.
    pub fn look(&self, key: &[u8], rate: Rate, now: u64) -> Ruling {
        let hash = self.hash(key);
        let due = self.set(hash).and_then(|(hashes, dues)| dues.get(way_of(hashes, hash)?));
        let due = due.map(|due| due.load(SeqCst)).filter(|due| due & CLAIM == 0);
        rate.judge(due.unwrap_or(0), now).1
    }

    /// Reserves so many nanoseconds of a key's time behind what is reserved already: when they begin. Time before `since`
    /// has gone. Whoever is told of a time to come waits for it, so that all who share a key have their turns one behind
    /// the other.
    pub fn reserve(&self, key: &[u8], cost: u64, since: u64, now: u64) -> u64 {
        self.change(key, now, |due| {
            let start = due.max(since);
            (Some(start.saturating_add(cost)), start)
        })
    }

    /// A key has not caught up before this time.
    pub fn raise(&self, key: &[u8], due: u64, now: u64) {
        self.change(key, now, |known| (Some(due).filter(|due| *due > known), ()));
    }

    /// Gives back what was reserved and is not used.
    pub fn give_back(&self, key: &[u8], cost: u64, now: u64) {
        self.change(key, now, |due| (Some(due.saturating_sub(cost)), ()));
    }

    /// Counts what was held up, or would have been.
    pub fn count_refused(&self, count: u64) {
        self.words.words()[REFUSED].fetch_add(count, Relaxed);
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.clone();
        hasher.write(key);
        hasher.finish().max(1) // 0 is a place without a key
    }

    /// Changes the time of a key as `next` says, in a place that is taken for it where it has none; that of all without a
    /// place where there is none.
    #[inline]
    fn change<T>(&self, key: &[u8], now: u64, next: impl Fn(u64) -> (Option<u64>, T)) -> T {
        let hash = self.hash(key);
        if let Some((hashes, dues)) = self.set(hash) {
            for attempt in 0..TRIES {
                if let Some(way) = way_of(hashes, hash)
                    && let Some(outcome) = change(&dues[way], &next, || hashes[way].load(SeqCst) == hash)
                {
                    return outcome;
                }
                match take(hashes, dues, hash, now) {
                    Taking::Done => {}
                    Taking::Full => break,
                    // Whoever is about to take a place has it after some instructions, unless it was interrupted.
                    Taking::Again if attempt < TRIES / 2 => spin_loop(),
                    Taking::Again => yield_now(),
                }
            }
        }
        self.words.words()[CROWDED].fetch_add(1, Relaxed);
        let of_crowd = &self.words.words()[CROWD];
        loop {
            if let Some(outcome) = change(of_crowd, &next, || true) {
                return outcome;
            }
            of_crowd.store(0, SeqCst); // no time, and nobody writes such
        }
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
}

/// The place of a key.
fn way_of(hashes: &[AtomicU64], hash: u64) -> Option<usize> {
    hashes.iter().position(|known| known.load(SeqCst) == hash)
}

/// Changes a time as `next` says, while the place is that of the key as `is_own` says; `None`: it is not.
///
/// Who takes a place changes its time first, and then its key. So a time that was read before the key was looked at, and
/// is still the same, is that of the key.
fn change<T>(
    due: &AtomicU64,
    next: &impl Fn(u64) -> (Option<u64>, T),
    is_own: impl Fn() -> bool,
) -> Option<T> {
    let mut known = due.load(SeqCst);
    loop {
        if known & CLAIM != 0 || !is_own() {
            return None;
        }
        let (new, outcome) = next(known);
        let Some(new) = new else { return Some(outcome) };
        match due.compare_exchange_weak(known, new & !CLAIM, SeqCst, SeqCst) {
            Ok(_) => return Some(outcome),
            Err(other) => known = other,
        }
    }
}

enum Taking {
    /// The key has a place now.
    Done,
    /// Another one has come in between.
    Again,
    /// All places are of keys that have not caught up.
    Full,
}

/// Takes a place for a key: one that nobody has, else the one that has caught up for the longest.
fn take(hashes: &[AtomicU64], dues: &[AtomicU64], hash: u64, now: u64) -> Taking {
    let known: [u64; WAYS] = array::from_fn(|way| hashes[way].load(SeqCst));
    let times: [u64; WAYS] = array::from_fn(|way| dues[way].load(SeqCst));
    // A process that was killed while it took a place has left its claim.
    let is_stale = |time: u64| now.saturating_sub(time & !CLAIM) > ABANDONED;
    let is_claimed = |way: usize| times[way] & CLAIM != 0 && !is_stale(times[way]);
    if (0..WAYS).any(|way| known[way] == hash && times[way] & CLAIM == 0) {
        return Taking::Done;
    }
    let is_free = |way: &usize| {
        let time = times[*way];
        !is_claimed(*way) && (known[*way] == 0 || time & CLAIM != 0 || time <= now)
    };
    let free = (0..WAYS).filter(is_free);
    // What a killed process was about to take for this key comes first: no key may have two places.
    let age = |way: &usize| (known[*way] != hash, if known[*way] == 0 { 0 } else { times[*way] });
    let Some(way) = free.min_by_key(age) else {
        return if (0..WAYS).any(is_claimed) { Taking::Again } else { Taking::Full };
    };
    let claim = CLAIM | now;
    if dues[way].compare_exchange(times[way], claim, SeqCst, SeqCst).is_err() {
        return Taking::Again;
    }
    if hashes[way].compare_exchange(known[way], hash, SeqCst, SeqCst).is_err() {
        let _ = dues[way].compare_exchange(claim, times[way] & !CLAIM, SeqCst, SeqCst);
        return Taking::Again;
    }
    // Somebody else may have taken another place for the same key meanwhile: then one of them has to go.
    if (0..WAYS).any(|other| other != way && hashes[other].load(SeqCst) == hash) {
        let _ = hashes[way].compare_exchange(hash, 0, SeqCst, SeqCst);
        let _ = dues[way].compare_exchange(claim, 0, SeqCst, SeqCst);
        return Taking::Again;
    }
    // A time long ago, and another one for each key: nobody takes it for the time of a key that was here before.
    let _ = dues[way].compare_exchange(claim, hash & LONG_AGO, SeqCst, SeqCst);
    Taking::Done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::memory_of;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::num::NonZeroU64;
    use std::sync::Barrier;
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

    /// Keys that come, go and take places of each other's: each is judged by its own time, whoever comes in between.
    #[test]
    fn no_key_is_charged_for_another() {
        const KEYS: u64 = 12;
        const THREADS: usize = 4;
        let table = table(1, [5, 6]); // of which all share one set
        let rate = rate(1, 1);
        let admitted: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let (begun, ended) = (Barrier::new(THREADS), Barrier::new(THREADS));
        let (wrong, crowded) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (table, admitted, wrong, crowded) = (&table, &admitted, &wrong, &crowded);
                let (begun, ended) = (&begun, &ended);
                scope.spawn(move || {
                    let mut random = 1u64;
                    for round in 1..30_000u64 {
                        // Four keys for all threads, each of which has an order of its own.
                        let keys: [u64; 4] = array::from_fn(|_| {
                            random = random
                                .wrapping_mul(6_364_136_223_846_793_005)
                                .wrapping_add(1_442_695_040_888_963_407);
                            (random >> 33) % KEYS
                        });
                        begun.wait();
                        for at in 0..4 {
                            let key = keys[(at + thread) % 4];
                            if is_within(table.charge(&key.to_le_bytes(), rate, round * 2 * SECOND)) {
                                admitted[key as usize].fetch_add(1, SeqCst);
                            }
                        }
                        if ended.wait().is_leader() {
                            // One that was interrupted while it took a place may have sent another to the crowd.
                            let is_alone = crowded.swap(table.crowded(), SeqCst) == table.crowded();
                            for key in 0..KEYS {
                                let expected = u64::from(keys.contains(&key));
                                // Told at the end, since the other threads wait for this one.
                                let of_key = admitted[key as usize].swap(0, SeqCst);
                                wrong.fetch_add(u64::from(is_alone && of_key != expected), SeqCst);
                            }
                        }
                        begun.wait();
                    }
                });
            }
        });
        assert_eq!(wrong.load(SeqCst), 0);
        assert!(table.crowded() < 1000, "{}", table.crowded());
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
    fn a_place_that_was_about_to_be_taken_by_a_killed_process_is_not_lost() {
        let table = table(1, [1, 2]);
        let (rate, now) = (rate(1, 1), 10 * SECOND);
        let (hashes, dues) = table.set(1).unwrap();
        for has_key in [false, true] {
            for (hash, due) in hashes.iter().zip(dues) {
                hash.store(0, SeqCst);
                due.store(CLAIM | now, SeqCst);
            }
            if has_key {
                hashes[5].store(table.hash(b"key"), SeqCst);
            }
            let before = table.crowded();
            table.charge(b"key", rate, now);
            assert_eq!(table.crowded(), before + 1, "it may still be about to");
            let later = now + ABANDONED + 1;
            assert!(is_within(table.charge(b"key", rate, later)));
            assert!(!is_within(table.charge(b"key", rate, later)));
            assert!(is_within(table.charge(b"other", rate, later)));
            assert_eq!(table.crowded(), before + 1);
            let own = hashes.iter().filter(|hash| hash.load(SeqCst) == table.hash(b"key"));
            assert_eq!(own.count(), 1);
        }
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
