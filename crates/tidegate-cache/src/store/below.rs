//! What the disk tier below has to know of the memory tier, and gets from it.
//!
//! Whatever touches a disk waits, so the store never does it itself: who has a thread for that takes what is to be written
//! ([`Store::poll_for_disk`]), and looks on the disks for what memory has not, by [`Store::hash`]. What was read there is checked with
//! [`Store::is_purged`] before it is used.

use super::Store;
use crate::entry::{Entry, StoredHead};
use crate::purge::Standing;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker};
use tidegate_io::locking::lock;

/// Entries that wait for a disk: they cannot be evicted meanwhile.
const MOST_WAITING: usize = 64;
/// The part of the memory that they may have.
const WAITING_PART: u64 = 8;

/// What is to be written to a disk.
#[derive(Default)]
pub(super) struct ForDisk {
    entries: VecDeque<Arc<Entry>>,
    bytes: u64,
    waker: Option<Waker>,
}

impl Store {
    /// The hash of a key, by which the disks know it too.
    pub fn hash(&self, key: &[u8]) -> u128 {
        self.hashed(key).hash
    }

    /// How many purges there have been: noted with what goes to a disk, as of when its response was asked for
    /// ([`Entry::born`]).
    pub fn purge_count(&self) -> u64 {
        self.purges.count()
    }

    /// Whether a response was purged, not softly, that was asked for after `born` purges. Of what an earlier process has stored
    /// `born` is 0.
    pub fn is_purged(&self, head: &StoredHead, born: u64) -> bool {
        self.purges.standing(head, born) == Standing::Purged
    }

    /// Everything on the disks has been looked at since there were `purges` purges, and what they took has gone: they can be
    /// forgotten. Until then they are kept for what is on the disks.
    pub fn disk_is_swept(&self, purges: u64) {
        self.disk_floor.fetch_max(purges, SeqCst);
    }

    /// The next entry that is complete and is to be written to a disk, the longest waiting first. For one task. Where
    /// too much waits already, what is complete is not written: the disks are slower than what comes.
    pub fn poll_for_disk(&self, cx: &mut Context<'_>) -> Poll<Arc<Entry>> {
        let (entry, before) = {
            let mut waiting = lock(&self.for_disk);
            let entry = waiting.entries.pop_front();
            waiting.bytes -= entry.as_ref().map_or(0, |entry| entry.content().filled());
            let waker = entry.is_none().then(|| cx.waker().clone());
            (entry, std::mem::replace(&mut waiting.waker, waker))
        };
        drop(before);
        entry.map_or(Poll::Pending, Poll::Ready)
    }

    /// An entry is complete.
    pub(super) fn offer_to_disk(&self, entry: &Arc<Entry>) {
        if self.disk.is_none() {
            return;
        }
        let bytes = entry.content().filled();
        let waker = {
            let mut waiting = lock(&self.for_disk);
            let is_full = waiting.entries.len() >= MOST_WAITING
                || waiting.bytes + bytes > self.budget.limit() / WAITING_PART;
            if is_full {
                self.counters.skip_disk();
                return;
            }
            waiting.bytes += bytes;
            waiting.entries.push_back(entry.clone());
            waiting.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
