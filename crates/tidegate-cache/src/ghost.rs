//! The ghost queue of S3-FIFO: which objects were evicted not long ago, without their content.
//!
//! A table of marks of 8 bytes, eight of them to a cache line: 32 bits of the object's hash, and when it was evicted, counted
//! in evictions. A mark is too old once so many evictions have followed as the caller says. Where a line is full its
//! oldest mark is overwritten, so nothing is ever searched for or cleaned (SOSP'23, section 4.2).

/// Marks of a group: a cache line.
const GROUP: usize = 8;
/// Groups that a table begins with.
const FIRST_GROUPS: usize = 16;

/// Hashes of what was evicted from the small queue.
#[derive(Default)]
pub(crate) struct Ghost {
    /// A power of two of groups, or none.
    groups: Box<[[u64; GROUP]]>,
    /// Evictions so far, from 1; wraps round, without 0.
    now: u32,
    /// How many evictions a mark outlives.
    reach: u32,
}

impl Ghost {
    /// So many of the latest marks count.
    pub(crate) fn set_reach(&mut self, entries: usize) {
        self.reach = u32::try_from(entries).unwrap_or(u32::MAX);
    }

    /// Bytes of memory that the table has.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.groups)
    }

    /// Bytes that [`Ghost::make_room`] would allocate beside those it has; 0 for most numbers.
    pub(crate) fn growth(&self, entries: usize) -> usize {
        self.next_groups(entries).map_or(0, |groups| groups * size_of::<[u64; GROUP]>())
    }

    fn next_groups(&self, entries: usize) -> Option<usize> {
        let wanted = (2 * entries).div_ceil(GROUP).next_power_of_two().max(FIRST_GROUPS);
        (wanted > self.groups.len()).then_some(wanted)
    }

    /// There may be so many marks that count: the table is at most half full of them.
    pub(crate) fn make_room(&mut self, entries: usize) {
        let Some(groups) = self.next_groups(entries) else { return };
        let before = std::mem::replace(&mut self.groups, vec![[0; GROUP]; groups].into_boxed_slice());
        before.iter().flatten().filter(|mark| **mark != 0).for_each(|mark| self.put(*mark));
    }

    /// It has been evicted. Allocates nothing; without room it is not remembered.
    pub(crate) fn add(&mut self, hash: u64) {
        if self.groups.is_empty() {
            return;
        }
        self.now = self.now.checked_add(1).unwrap_or(1);
        let mark = mark(hash, self.now);
        self.put(mark);
    }

    /// Whether it was evicted not long ago. Asked once: the mark is gone then.
    pub(crate) fn take(&mut self, hash: u64) -> bool {
        if self.groups.is_empty() {
            return false;
        }
        let (now, reach) = (self.now, self.reach);
        let wanted = mark(hash, 0);
        let group = &mut self.groups[group_of(wanted, self.groups.len())];
        let found = group.iter_mut().find(|mark| **mark != 0 && **mark >> 32 == wanted >> 32);
        let Some(found) = found else { return false };
        let is_young = age(*found, now) < reach;
        *found = 0;
        is_young
    }

    fn put(&mut self, mark: u64) {
        let now = self.now;
        let group = &mut self.groups[group_of(mark, self.groups.len())];
        // An empty place is as old as can be.
        let oldest =
            group.iter_mut().max_by_key(|place| if **place == 0 { u32::MAX } else { age(**place, now) });
        if let Some(place) = oldest {
            *place = mark;
        }
    }
}

/// The upper half tells objects apart and gives the group, so that a larger table can be made of a smaller one.
fn mark(hash: u64, now: u32) -> u64 {
    hash & !u64::from(u32::MAX) | u64::from(now)
}

fn group_of(mark: u64, groups: usize) -> usize {
    ((mark >> 32) as usize).wrapping_mul(groups) >> 32
}

fn age(mark: u64, now: u32) -> u32 {
    now.wrapping_sub(mark as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes())
    }

    #[test]
    fn remembers_as_many_as_it_is_told() {
        let mut ghost = Ghost::default();
        assert!(!ghost.take(hash(0)));
        ghost.set_reach(1000);
        ghost.add(hash(0));
        assert!(!ghost.take(hash(0)), "without room");
        assert_eq!(ghost.growth(1000), 2048 * 8);
        ghost.make_room(1000);
        (0..2000).for_each(|number| ghost.add(hash(number)));
        assert!((0..1000).all(|number| !ghost.take(hash(number))), "too old");
        let kept = (1000..2000).filter(|number| ghost.take(hash(*number))).count();
        assert!(kept > 950, "{kept}: lines that are full lose few");
        assert!((1000..2000).all(|number| !ghost.take(hash(number))), "asked once");
        assert_eq!((ghost.memory(), ghost.growth(1000)), (2048 * 8, 0));
    }

    #[test]
    fn what_grows_keeps_what_it_had() {
        let mut ghost = Ghost::default();
        for number in 0..100_u64 {
            ghost.set_reach(number as usize + 1);
            ghost.make_room(number as usize + 1);
            ghost.add(hash(number));
        }
        assert!((0..100).filter(|number| ghost.take(hash(*number))).count() > 90);
    }
}
