//! Goes through the objects of a disk for purges, so that what was noted of them can be forgotten.
//!
//! What a purge of everything has taken is removed by the index alone. For the others heads have to be read, which is done only
//! once half of the notes are in use: an object that no purge has taken by then is marked in the index as one that was asked for just now.

use super::Tier;
use crate::disk::{DiskEntry, DiskError};
use crate::encoding::decode;
use crate::purge::Standing;
use crate::store::Store;
use tidegate_io::locking::lock;

/// Objects whose heads are read each time.
const READ_AT_ONCE: u32 = 64;
/// Places of the index that are looked at each time.
const LOOKED_AT_ONCE: u32 = 16_384;

/// How far a disk has come.
#[derive(Default)]
pub(super) struct DiskSweep {
    /// Everything was last removed after so many purges, up to this place: `None` for the end.
    emptied: (u64, Option<u32>),
    /// The round under way: purges before it, and the next place.
    round: Option<(u64, u32)>,
    /// Every object was compared with so many purges.
    swept: u64,
}

impl Store {
    /// A step of a disk; whether there is another one. Waits for it.
    pub(super) fn sweep_disk(&self, disk: u16) -> bool {
        let Some(tier) = self.tier.get() else { return false };
        // What a scan has still to find would be left out.
        let is_known = !tier.disks.may_probe() && tier.disks.is_read(disk);
        let Some(state) = tier.states.get(usize::from(disk)).filter(|_| is_known) else { return false };
        let mut sweep = lock(&state.sweep);
        let emptied = self.purges.emptied();
        if sweep.emptied.0 < emptied {
            sweep.emptied = (emptied, Some(0));
        }
        if let Some(from) = sweep.emptied.1 {
            let mut removed = 0;
            sweep.emptied.1 =
                tier.disks.sweep(disk, from, LOOKED_AT_ONCE, &mut removed, |object| object.mark < emptied);
            self.counters.purge(usize::try_from(removed).unwrap_or(usize::MAX));
        }
        if sweep.round.is_none() && self.purges.is_half_full() && sweep.swept < self.purges.count() {
            sweep.round = Some((self.purges.count(), 0));
        }
        let Some((goal, from)) = sweep.round else { return sweep.emptied.1.is_some() };
        let (objects, next) = tier.disks.page(disk, from, READ_AT_ONCE);
        let mut older = objects.iter().filter(|object| object.mark < goal);
        if older.any(|object| !self.compare(tier, object, goal)) || !tier.disks.is_read(disk) {
            // Begun anew once the disk is well: what was not compared may be what was purged.
            sweep.round = None;
            return false;
        }
        sweep.round = next.map(|next| (goal, next));
        if next.is_none() {
            sweep.swept = goal;
        }
        sweep.round.is_some() || sweep.emptied.1.is_some()
    }

    /// Whether the object was compared, or has gone.
    fn compare(&self, tier: &Tier, object: &DiskEntry, goal: u64) -> bool {
        let open = match tier.disks.inspect(object) {
            Ok(open) => open,
            Err(DiskError::Gone | DiskError::Broken(_)) => return true,
            Err(DiskError::System(_)) => return false,
            Err(_) => {
                // Should the disk fail at this place each time, no round would ever come to its end.
                tier.disks.remove(object);
                return false;
            }
        };
        let head = decode(&open.header().head);
        let is_kept = head.is_some_and(|head| self.purges.standing(&head, object.mark) == Standing::Current);
        drop(open);
        if is_kept {
            tier.disks.restamp(object, goal);
        } else {
            tier.disks.remove(object);
        }
        true
    }
}

impl Tier {
    /// Every object of every disk was compared with so many purges.
    pub(crate) fn swept(&self) -> u64 {
        self.states.iter().map(|state| lock(&state.sweep).swept).min().unwrap_or(0)
    }
}
