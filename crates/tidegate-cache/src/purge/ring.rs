//! What applications have purged, for the other processes of the server: a ring of notes in memory that all of them share.
//!
//! A process writes a note before the client has the answer that says so; the others look at one word, the count of notes, before
//! each use of what is stored, and take in what they have not seen. So nobody waits for anybody, however slow or dead, and a
//! process that still drains is told as well. What operators purge goes through the master instead, which waits for all answers.
//!
//! | words | what |
//! | ---: | --- |
//! | 1 | how many notes were begun |
//! | 1024 | for sites that have the same place here: the number of the last one |
//! | 6 each | notes: store, what is purged, origin, site, when (nanoseconds of the monotonic clock), and a seal over these and the number |
//!
//! Who writes takes a number first. A note whose seal is not right is still being written: the readers stay before it. When that takes longer
//! than [`PATIENCE`] the writer has ended, and its client has no answer; or, like a reader that is a whole ring behind, it makes
//! sure that nothing is missed: all of a site that has had anything purged meanwhile counts as purged, and no other one.

use super::{BUCKETS, Party, bucket};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::shared::{SharedMemory, SharedWords};
use xxhash_rust::xxh3::xxh3_64;

/// Notes of the ring: as many as may come while a process without requests looks once a second.
const NOTES: usize = 8192;
/// Words of a note.
const NOTE: usize = 6;
/// Where they begin.
const FIRST: usize = 1 + BUCKETS as usize;
const LENGTH: usize = FIRST + NOTES * NOTE;
/// How long readers wait for a note that was begun, nanoseconds. Who needs half as long, or falls a quarter of the ring behind, writes
/// another one.
const PATIENCE: u64 = 1_000_000_000;
/// So much of what was noted before a store began is heard as well, nanoseconds: its disks may be those of a process that has crashed.
const BEFORE: u64 = 60 * 1_000_000_000;

/// The memory of a ring.
#[derive(Debug)]
pub struct PurgeRing(SharedWords);

impl PurgeRing {
    /// Memory for a new one, for all processes of a server: 392 KiB.
    ///
    /// # Errors
    /// There is no descriptor or no memory left.
    pub fn create() -> io::Result<OwnedFd> {
        SharedMemory::new("tidegate-purges", LENGTH).map(|(_, descriptor)| descriptor)
    }

    /// The one that [`PurgeRing::create`] has made memory for.
    ///
    /// # Errors
    /// It has not, or there is no memory left.
    pub fn attach(memory: impl AsFd) -> io::Result<Arc<PurgeRing>> {
        let memory = SharedMemory::attach(memory.as_fd())?;
        let words = memory.words(0..LENGTH);
        words.map(|words| Arc::new(PurgeRing(words))).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn begun(&self) -> &AtomicU64 {
        &self.0.words()[0]
    }

    fn last_of(&self, number: u64) -> &AtomicU64 {
        &self.0.words()[1 + (number % BUCKETS) as usize]
    }

    fn note(&self, number: u64) -> &[AtomicU64] {
        let at = FIRST + (number % NOTES as u64) as usize * NOTE;
        &self.0.words()[at..at + NOTE]
    }

    fn write(&self, store: u64, wanted: u64, party: Party) {
        loop {
            let since = monotonic_ns();
            let number = self.begun().fetch_add(1, SeqCst) + 1;
            self.last_of(party.site).fetch_max(number, SeqCst);
            let note = [store, wanted, party.origin, party.site, since];
            let words = self.note(number);
            note.iter().zip(words).for_each(|(value, word)| word.store(*value, Relaxed));
            words[NOTE - 1].store(seal(number, &note), Release);
            let is_late = monotonic_ns().saturating_sub(since) >= PATIENCE / 2;
            if !is_late && self.begun().load(SeqCst) - number < NOTES as u64 / 4 {
                return;
            }
        }
    }

    /// `None`: it is not there yet, or no more.
    fn read(&self, number: u64) -> Option<[u64; NOTE - 1]> {
        let words = self.note(number);
        let sealed = words[NOTE - 1].load(Acquire);
        let note = [0, 1, 2, 3, 4].map(|at: usize| words[at].load(Acquire));
        (sealed == seal(number, &note)).then_some(note)
    }
}

fn seal(number: u64, note: &[u64; NOTE - 1]) -> u64 {
    let mut bytes = [0; 8 * NOTE];
    for (to, word) in bytes.chunks_exact_mut(8).zip([number].iter().chain(note)) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    xxh3_64(&bytes)
}

/// How far a store of this process has read.
pub(super) struct Follower {
    ring: Arc<PurgeRing>,
    /// What tells the store from others.
    store: u64,
    /// Of all notes. It and what follows are written below the lock of the purges alone.
    read: AtomicU64,
    /// The note that is waited for, and since when.
    awaited: (AtomicU64, AtomicU64),
}

impl Follower {
    /// From now on, and of what was noted shortly before.
    pub(super) fn of(ring: Arc<PurgeRing>, store: u64) -> Follower {
        let end = ring.begun().load(SeqCst);
        let since = monotonic_ns().saturating_sub(BEFORE);
        let is_late = |number: &u64| ring.read(*number).is_none_or(|note| note[NOTE - 2] >= since);
        let late = (end.saturating_sub(NOTES as u64 / 2) + 1..=end).rev().take_while(is_late).count();
        let read = AtomicU64::new(end - late as u64);
        Follower { ring, store, read, awaited: Default::default() }
    }

    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        self.ring.begun().load(Acquire) != self.read.load(Acquire)
    }

    pub(super) fn tell(&self, wanted: u64, party: Party) {
        self.ring.write(self.store, wanted, party);
    }

    /// Hands out what was noted for the store meanwhile, that of this process as well.
    pub(super) fn follow(&self, mut take: impl FnMut(u64, Party)) {
        let (end, mut read) = (self.ring.begun().load(SeqCst), self.read.load(Acquire));
        while read < end {
            let is_lost = end - read > NOTES as u64;
            match self.ring.read(read + 1).filter(|_| !is_lost) {
                Some([store, wanted, origin, site, _]) => {
                    if store == self.store {
                        take(wanted, Party { origin, site });
                    }
                    read += 1;
                }
                None if is_lost || self.is_overdue(read + 1) => {
                    let missed = (0..BUCKETS).filter(|number| self.ring.last_of(*number).load(SeqCst) > read);
                    missed
                        .map(bucket)
                        .for_each(|wanted| take(wanted, Party { origin: wanted, site: wanted }));
                    // What is still being written before this is written again.
                    read = if is_lost { end - NOTES as u64 / 2 } else { read + 1 };
                }
                None => break,
            }
        }
        self.read.store(read, Release);
    }

    /// Whether a note has been waited for long enough.
    fn is_overdue(&self, number: u64) -> bool {
        let (awaited, since) = (&self.awaited.0, &self.awaited.1);
        let now = monotonic_ns();
        if awaited.swap(number, Relaxed) != number {
            since.store(now, Relaxed);
        }
        now.saturating_sub(since.load(Relaxed)) >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: u64 = 3;

    fn party(site: u64) -> Party {
        Party { origin: site + 100, site }
    }

    fn ring() -> (Arc<PurgeRing>, Follower) {
        let ring = PurgeRing::attach(PurgeRing::create().unwrap()).unwrap();
        (ring.clone(), Follower::of(ring, STORE))
    }

    fn heard(follower: &Follower) -> Vec<u64> {
        let mut heard = Vec::new();
        follower.follow(|wanted, _| heard.push(wanted));
        heard
    }

    #[test]
    fn what_was_noted_long_before_is_not_heard_and_what_follows_is_once() {
        let (ring, first) = ring();
        ring.write(STORE, 0, party(7));
        let old = [STORE, 0, 107, 7, 0];
        ring.note(1)[NOTE - 2].store(0, Relaxed);
        ring.note(1)[NOTE - 1].store(seal(1, &old), Relaxed);
        ring.write(STORE, 1, party(7));
        let second = Follower::of(ring.clone(), STORE);
        ring.write(STORE, 2, party(7));
        ring.write(STORE + 1, 3, party(7));
        assert!(first.is_behind() && second.is_behind());
        assert_eq!((heard(&first), heard(&second)), (vec![0, 1, 2], vec![1, 2]));
        assert!(!first.is_behind() && heard(&first).is_empty());
    }

    /// Its client has no answer, so nobody has to know what it was about; but everybody else has to be heard.
    #[test]
    fn a_writer_that_ends_in_the_middle_holds_others_up_for_a_while() {
        let (ring, follower) = ring();
        ring.write(STORE, 1, party(7));
        let dead = ring.begun().fetch_add(1, SeqCst) + 1;
        ring.write(STORE, 2, party(8));
        assert_eq!(heard(&follower), [1]);
        assert!(follower.is_behind() && heard(&follower).is_empty());
        assert_eq!(follower.awaited.0.load(Relaxed), dead);
        follower.awaited.1.store(0, Relaxed); // for longer than anybody waits
        assert_eq!(heard(&follower), [bucket(8), 2]);
        assert!(!follower.is_behind());
    }

    /// A slow writer has written over it: all of the site goes, and nothing of others.
    #[test]
    fn what_is_written_over_is_not_missed() {
        let (ring, follower) = ring();
        ring.write(STORE, 1, party(7));
        ring.note(1)[0].store(9, Relaxed);
        assert!(heard(&follower).is_empty());
        follower.awaited.1.store(0, Relaxed);
        assert_eq!(heard(&follower), [bucket(7)]);
        for number in 0..NOTES as u64 + 1 {
            ring.write(STORE, number, party(8));
        }
        let heard = heard(&follower);
        assert_eq!((heard[0], heard.len()), (bucket(8), 1 + NOTES / 2));
    }
}
