//! What is known not to be storable, and for what reason: 72 bytes for each, so many and no more.
//!
//! Whoever asks for such a response fetches on its own at once; without this the next of a crowd would make the others wait in
//! vain, one after the other. A place that is wanted for another is that whose time ends first. A purge forgets it: what was changed
//! may be storable now.

use crate::budget::{Budget, Reservation};
use crate::purge::{Address, Purges};
use std::sync::Arc;
use tidegate_http::cache::Reason;

/// Marks of a group.
const GROUP: usize = 4;
/// Groups of a shard: all shards together know 16,384 keys.
const GROUPS: usize = 16;

/// A key.
#[derive(Clone, Copy, Default)]
struct Mark {
    hash: u64,
    /// Until when it counts, Unix seconds.
    until: u32,
    /// Why the response that has told so was not stored; `None`: the place is free.
    why: Option<Reason>,
    /// What purges know it by, and how many of them it is later than or was compared with.
    address: Address,
    born: u64,
}

impl Mark {
    fn is_purged(&self, purges: &Purges) -> bool {
        self.born != purges.count() && purges.has_purged(&self.address, self.born)
    }
}

/// The marks of a shard.
#[derive(Default)]
pub(crate) struct Passes {
    groups: Box<[[Mark; GROUP]]>,
    reservation: Option<Reservation>,
}

impl Passes {
    /// Why a key is not to be waited for; `None`: it is.
    #[inline]
    pub(crate) fn find(&self, hash: u64, now: i64, purges: &Purges) -> Option<Reason> {
        let is_it = |mark: &&Mark| mark.hash == hash && i64::from(mark.until) > now;
        let group = self.groups.get(group_of(hash))?;
        group.iter().find(is_it).filter(|mark| !mark.is_purged(purges)).and_then(|mark| mark.why)
    }

    /// The same of each key of a URL, with the seconds that are left.
    pub(crate) fn of_url<'p>(
        &'p self,
        url: u64,
        now: i64,
        purges: &'p Purges,
    ) -> impl Iterator<Item = (Reason, i64)> {
        let marks = self.groups.iter().flatten().filter(move |mark| mark.address.is_url(url));
        let left = move |mark: &Mark| Some((mark.why?, i64::from(mark.until) - now));
        marks.filter(|mark| !mark.is_purged(purges)).filter_map(left).filter(|(_, left)| *left > 0)
    }

    /// Remembers what was asked for after `born` purges, where there is memory to remember with.
    pub(crate) fn add(
        &mut self,
        hash: u64,
        (until, why): (i64, Reason),
        (address, born): (Address, u64),
        budget: &Arc<Budget>,
    ) {
        if self.groups.is_empty() {
            let bytes = (GROUPS * GROUP * size_of::<Mark>()) as u64;
            self.reservation = budget.reserve(bytes);
            if self.reservation.is_none() {
                return;
            }
            self.groups = vec![[Mark::default(); GROUP]; GROUPS].into_boxed_slice();
        }
        let group = &mut self.groups[group_of(hash)];
        let known = group.iter().position(|mark| mark.hash == hash);
        let soonest = (0..GROUP).min_by_key(|at| group[*at].until);
        if let Some(at) = known.or(soonest) {
            let until = u32::try_from(until.max(0)).unwrap_or(u32::MAX);
            group[at] = Mark { hash, until, why: Some(why), address, born };
        }
    }

    /// It is storable now.
    pub(crate) fn remove(&mut self, hash: u64) {
        if !self.groups.is_empty() {
            let group = &mut self.groups[group_of(hash)];
            group.iter_mut().filter(|mark| mark.hash == hash).for_each(|mark| *mark = Mark::default());
        }
    }

    /// Forgets what was purged, and gives the memory back where nothing counts any more.
    pub(crate) fn shrink(&mut self, now: i64, purges: &Purges) {
        // Before they are looked at: one that comes meanwhile is compared the next time.
        let count = purges.count();
        for mark in self.groups.iter_mut().flatten() {
            if mark.is_purged(purges) {
                *mark = Mark::default();
            }
            mark.born = mark.born.max(count);
        }
        if self.groups.iter().flatten().all(|mark| i64::from(mark.until) <= now) {
            *self = Passes::default();
        }
    }
}

fn group_of(hash: u64) -> usize {
    (hash >> 20) as usize % GROUPS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purge::Purge;

    const WHY: Reason = Reason::Private;

    /// The model of what a store takes knows it.
    #[test]
    fn a_mark_is_small() {
        assert_eq!(size_of::<Mark>(), 72);
    }

    #[test]
    fn remembers_for_a_while_and_is_bounded() {
        let (budget, purges) = (Budget::new(1 << 20), Purges::default());
        let mut passes = Passes::default();
        let about = (Address::default(), 0);
        assert!(passes.find(7, 0, &purges).is_none());
        passes.add(7, (10, WHY), about, &budget);
        assert_eq!(passes.find(7, 9, &purges), Some(WHY));
        assert!(passes.find(7, 10, &purges).is_none());
        assert!(passes.find(8, 9, &purges).is_none());
        passes.remove(7);
        assert!(passes.find(7, 9, &purges).is_none());
        let before = budget.reserved();
        (0..100_000_u64).for_each(|hash| passes.add(hash << 20, (hash as i64 + 1, WHY), about, &budget));
        assert_eq!(budget.reserved(), before);
        assert!(passes.find(99_999 << 20, 99_999, &purges).is_some());
        passes.shrink(100_000, &purges);
        assert_eq!(budget.reserved(), 0);
        let poor = Budget::new(10);
        passes.add(7, (10, WHY), about, &poor);
        assert!(passes.find(7, 0, &purges).is_none(), "no memory to remember with");
    }

    /// By whichever purge it is meant, and by no other; also once the purge itself is forgotten.
    #[test]
    fn a_purge_forgets_it() {
        const HOST: &str = "a.test";
        for (what, is_meant) in [
            (Purge::All, true),
            (Purge::Host(HOST), true),
            (Purge::Host("b.test"), false),
            (Purge::Url { host: HOST, target: "/x" }, true),
            (Purge::Url { host: HOST, target: "/y" }, false),
            (Purge::Url { host: "b.test", target: "/x" }, false),
            // What begins so nobody can tell by a hash.
            (Purge::Prefix { host: HOST, prefix: "/x" }, true),
            (Purge::Mark(7), false),
        ] {
            for (is_soft, is_swept) in [(false, false), (true, false), (false, true)] {
                let (budget, purges) = (Budget::new(1 << 20), Purges::default());
                let mut passes = Passes::default();
                passes.add(7, (10, WHY), (Address::of(1, HOST, "/x"), purges.count()), &budget);
                let purged = purges.purge(&what, is_soft, 0);
                if is_swept {
                    passes.shrink(0, &purges);
                    purges.forget(purged.number);
                }
                assert_eq!(passes.find(7, 1, &purges).is_some(), !is_meant, "{what:?} {is_soft} {is_swept}");
                // What comes behind the purge is known for itself.
                passes.add(7, (10, WHY), (Address::of(1, HOST, "/x"), purges.count()), &budget);
                assert!(passes.find(7, 1, &purges).is_some(), "{what:?}");
            }
        }
    }
}
