//! Takes out what was purged, shard by shard, so that its memory comes free before somebody asks for it.
//!
//! At the end of a round every entry has been looked at, and what purges had noted before the round is forgotten; but not what
//! was purged since the oldest response was asked for that is still to come, unless that takes too long
//! ([`FlightCell::needs`](crate::flight::FlightCell::needs)). Nor what a disk may still hold.

use super::Store;
use crate::index::Outgoing;
use crate::purge::Standing;
use std::sync::atomic::{Ordering::Acquire, Ordering::Release};
use std::sync::{MutexGuard, TryLockError};
use tidegate_io::locking::lock;

/// What a step of the sweeper did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Entries looked at.
    pub visited: usize,
    /// Entries taken out since they were purged.
    pub removed: usize,
    /// Whether it came to the end of a round: all that was purged before the round has gone.
    pub is_round: bool,
    /// There are many notes of purges: it is to go on soon.
    pub is_pressed: bool,
}

/// How far the round has come.
#[derive(Default)]
pub(super) struct Sweeping {
    next: usize,
    /// How many purges there had been when the round began.
    began: u64,
    /// Purges that every entry and every flight of this round is later than, or has been looked at for.
    floor: u64,
    /// Notes are nearly full. What is still under way is then not stored, rather than that notes are kept for it: a single slow answer
    /// would have all of a host purged.
    is_urgent: bool,
}

impl Store {
    /// Takes out what was purged: whole shards, until `budget` entries were looked at or a round is at its end. To be called
    /// now and then; once a second is plenty. Does nothing while another thread does it.
    pub fn sweep(&self, budget: usize, now: i64) -> Swept {
        match self.sweeping.try_lock() {
            Ok(sweeping) => self.sweep_with(sweeping, budget, now),
            Err(TryLockError::Poisoned(poisoned)) => self.sweep_with(poisoned.into_inner(), budget, now),
            Err(TryLockError::WouldBlock) => Swept::default(),
        }
    }

    fn sweep_with(&self, mut sweeping: MutexGuard<'_, Sweeping>, budget: usize, now: i64) -> Swept {
        let mut swept = Swept::default();
        while swept.visited <= budget && !swept.is_round {
            if sweeping.next == 0 {
                sweeping.began = self.purges.count();
                let may_forget = self.swept_below() > self.purges.forgotten();
                sweeping.is_urgent = may_forget && self.purges.is_nearly_full();
                sweeping.floor =
                    if sweeping.is_urgent { self.purges.refuse_older() } else { self.purges.count() };
            }
            let oldest = self.sweep_shard(sweeping.next, now, &mut swept);
            if !sweeping.is_urgent {
                sweeping.floor = sweeping.floor.min(oldest);
            }
            sweeping.next = (sweeping.next + 1) % self.shards.len();
            swept.is_round = sweeping.next == 0;
        }
        if swept.is_round {
            self.looked_at.fetch_max(sweeping.began, Release);
            self.purges.forget(sweeping.floor.min(self.swept_below()));
        }
        swept.is_pressed = self.purges.is_half_full();
        swept
    }

    /// With so many purges all that is in memory was compared.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at.load(Acquire)
    }

    /// With so many purges all that lies on disks was compared.
    fn swept_below(&self) -> u64 {
        match self.has_disks {
            true => self.tier.get().map_or(0, |tier| tier.swept()),
            false => u64::MAX,
        }
    }

    /// Answers when the oldest flight of the shard that is waited for began, in purges.
    fn sweep_shard(&self, shard: usize, now: i64, swept: &mut Swept) -> u64 {
        let mut oldest = u64::MAX;
        let mut outgoing = Outgoing::new();
        {
            let mut shard = lock(&self.shards[shard]);
            shard.walk(|slot| {
                swept.visited += slot.variants.len();
                oldest = slot.flights.iter().filter_map(|flight| flight.needs(now)).fold(oldest, u64::min);
                slot.take_where(|entry| entry.check() == Standing::Purged, &mut outgoing);
            });
            shard.shrink(now, &self.budget, &self.purges);
        }
        swept.removed += outgoing.len();
        self.left_purged(&outgoing);
        oldest
    }
}
