//! Goes through the objects of a disk for purges, so that what was noted of them can be forgotten.
//!
//! What a purge of everything has taken is removed by the index alone. For the others heads have to be read: a little of the time of the
//! disk, so that files and figures follow a purge soon, and more of it once half of the notes are in use. An object that no purge has
//! taken is marked in the index as one that was asked for just now; one that was purged softly is written down as stale.
//!
//! The memory goes first: what it has of what was purged it counts, and takes off the disks as well. So nothing is counted twice.

use super::{AT_WORK, Tier};
use crate::disk::{DiskEntry, DiskError};
use crate::encoding::{Encoded, decode};
use crate::entry::StoredHead;
use crate::purge::Standing;
use crate::store::Store;
use std::time::Duration;
use tidegate_io::locking::lock;

/// So long heads are read each second where there is room for notes.
const AT_LEISURE: Duration = Duration::from_millis(50);
/// Objects whose heads are read each time.
const READ_AT_ONCE: u32 = 16;
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
        let (emptied, looked_at) = (self.purges.emptied(), self.looked_at());
        if sweep.emptied.0 < emptied && emptied <= looked_at {
            sweep.emptied = (emptied, Some(0));
        }
        if let Some(from) = sweep.emptied.1 {
            let mut removed = 0;
            sweep.emptied.1 =
                tier.disks.sweep(disk, from, LOOKED_AT_ONCE, &mut removed, |object| object.mark < emptied);
            if emptied > self.purges.inherited() {
                self.counters.purge(usize::try_from(removed).unwrap_or(usize::MAX));
            }
        }
        let goal = if self.purges.is_half_full() { self.purges.count() } else { looked_at };
        if sweep.round.is_none() && sweep.swept < goal && self.purges.has_notes() {
            sweep.round = Some((goal, 0));
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
        let (head, key) = (decode(&open.header().head), open.header().key.to_vec());
        drop(open);
        let standing = head.as_ref().map(|head| self.purges.standing(head, object.mark));
        match (head, standing) {
            (Some(_), Some(Standing::Current)) => tier.disks.restamp(object, goal),
            (Some(head), Some(Standing::Expired(at))) => {
                let is_new = self.is_of_disks_alone(object, &key, &head);
                if !write_as_stale(tier, (object, &key), head, (at, goal)) {
                    return false;
                }
                self.counters.purge(usize::from(is_new));
            }
            (head, _) => {
                let is_new = head.is_some_and(|head| self.is_of_disks_alone(object, &key, &head));
                self.counters.purge(usize::from(tier.disks.remove(object) && is_new));
            }
        }
        true
    }

    /// Whether this process has had an object purged, and nothing in memory counts for it.
    fn is_of_disks_alone(&self, object: &DiskEntry, key: &[u8], head: &StoredHead) -> bool {
        self.purges.is_own(head, object.mark) && !self.has_variant(key, object)
    }

    /// How long a disk is swept each second.
    pub(super) fn sweep_time(&self, disk: u16) -> Duration {
        let state = self.tier.get().and_then(|tier| tier.states.get(usize::from(disk)));
        let is_emptied = state.is_some_and(|state| lock(&state.sweep).emptied.1.is_some());
        if is_emptied || self.purges.is_half_full() { AT_WORK } else { AT_LEISURE }
    }
}

/// From now on the object says itself that it is stale, so that the note of it can be forgotten. Should that fail, it is gone. `false`: the
/// disk takes nothing now.
fn write_as_stale(
    tier: &Tier,
    (object, key): (&DiskEntry, &[u8]),
    head: StoredHead,
    (at, goal): (i64, u64),
) -> bool {
    let head = StoredHead { freshness: head.freshness.expired(at), ..head };
    let encoded = Encoded::of(&head);
    let new = (encoded.as_head(&head), goal, i64::from(object.stored_at));
    match tier.disks.rewrite_head(object, key, new) {
        Ok(()) => {}
        Err(DiskError::Out) => return false,
        Err(_) => {
            tier.disks.remove(object);
        }
    }
    true
}

impl Tier {
    /// Every object of every disk was compared with so many purges.
    pub(crate) fn swept(&self) -> u64 {
        self.states.iter().map(|state| lock(&state.sweep).swept).min().unwrap_or(0)
    }
}
