//! What is known not to be storable: 16 bytes for each, so many and no more.
//!
//! Whoever asks for such a response fetches on its own at once; without this the next of a crowd would make the others wait in
//! vain, one after the other. A place that is wanted for another is that whose time ends first.

use crate::budget::{Budget, Reservation};
use std::sync::Arc;

/// Marks of a group.
const GROUP: usize = 4;
/// Groups of a shard: all shards together know 16,384 keys.
const GROUPS: usize = 16;

/// A key, and until when it counts: Unix seconds.
#[derive(Clone, Copy, Default)]
struct Mark {
    hash: u64,
    until: i64,
}

/// The marks of a shard.
#[derive(Default)]
pub(crate) struct Passes {
    groups: Box<[[Mark; GROUP]]>,
    reservation: Option<Reservation>,
}

impl Passes {
    /// Whether a key is not to be waited for.
    #[inline]
    pub(crate) fn contains(&self, hash: u64, now: i64) -> bool {
        !self.groups.is_empty()
            && self.groups[group_of(hash)].iter().any(|mark| mark.hash == hash && mark.until > now)
    }

    /// Remembers it, where there is memory to remember with.
    pub(crate) fn add(&mut self, hash: u64, until: i64, budget: &Arc<Budget>) {
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
            group[at] = Mark { hash, until };
        }
    }

    /// It is storable now.
    pub(crate) fn remove(&mut self, hash: u64) {
        if !self.groups.is_empty() {
            let group = &mut self.groups[group_of(hash)];
            group.iter_mut().filter(|mark| mark.hash == hash).for_each(|mark| *mark = Mark::default());
        }
    }

    /// Gives the memory back where nothing counts any more.
    pub(crate) fn shrink(&mut self, now: i64) {
        if self.groups.iter().flatten().all(|mark| mark.until <= now) {
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

    #[test]
    fn remembers_for_a_while_and_is_bounded() {
        let budget = Budget::new(1 << 20);
        let mut passes = Passes::default();
        assert!(!passes.contains(7, 0));
        passes.add(7, 10, &budget);
        assert!(passes.contains(7, 9) && !passes.contains(7, 10) && !passes.contains(8, 9));
        passes.remove(7);
        assert!(!passes.contains(7, 9));
        let before = budget.reserved();
        (0..100_000_u64).for_each(|hash| passes.add(hash << 20, hash as i64 + 1, &budget));
        assert_eq!(budget.reserved(), before);
        assert!(passes.contains(99_999 << 20, 99_999));
        passes.shrink(100_000);
        assert_eq!(budget.reserved(), 0);
        let poor = Budget::new(10);
        passes.add(7, 10, &poor);
        assert!(!passes.contains(7, 0), "no memory to remember with");
    }
}
