//! Closing what goes first when there is too much: idle connections, and stuck ones that own the most.
//!
//! Once a turn a worker looks whether there is anything to do, which is four comparisons. Only when there is,
//! it looks through its connections, and then it closes several at once, so that the next look is not soon.

use super::Worker;
use crate::conn::Connection;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;
use tidegate_io::{Key, descriptors};
use tidegate_stats::Flush;

/// Of the idle connections, the share that goes in each tenth of a second of overload.
const SHED: u64 = 8;
/// Idle connections that may turn out not to be over, in one look.
const SPARED: usize = 64;
/// A connection that is stuck for less may be about to go on: seconds of a clock without fractions, so it has
/// been stuck for more than one.
const STUCK: u32 = 2;
/// Stuck connections are looked through no more often.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// A connection, and what it owns.
struct Owner<K> {
    owned: u32,
    /// Seconds without progress.
    age: u32,
    key: K,
}

/// Who goes so that `wanted` bytes of `memory` become free.
fn those_to_reset<K: Copy>(mut owners: Vec<Owner<K>>, wanted: u64, memory: u64) -> Vec<K> {
    // Were all of them to own no more than this, there would be no excess.
    let share = memory / (owners.len() as u64).max(1);
    owners.retain(|owner| u64::from(owner.owned) > share && owner.age >= STUCK);
    owners.sort_unstable_by_key(|owner| Reverse(u64::from(owner.owned) * u64::from(owner.age)));
    let mut left = wanted;
    let chosen = owners.iter().take_while(|owner| {
        let is_wanted = left > 0;
        left = left.saturating_sub(owner.owned.into());
        is_wanted
    });
    chosen.map(|owner| owner.key).collect()
}

/// Which turns were a moment ago.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    /// The first turn of this second, and of the one before.
    turns: [u32; 2],
}

impl Newcomers {
    /// Another second has begun, with this turn.
    pub(super) fn on_second(&mut self, turn: u32) {
        self.turns = [turn, self.turns[0]];
    }

    /// The turns since a second ago or two.
    fn recent(&self, turn: u32) -> u32 {
        turn.wrapping_sub(self.turns[1])
    }
}

impl Worker {
    /// Whether there is something to do soon even when nothing happens.
    pub(super) fn wants_reclaim(&self) -> bool {
        self.cx.admission.is_short_of_memory()
    }

    #[inline]
    pub(super) fn relieve(&mut self) {
        if let Some(change) = self.cx.admission.tick(self.now) {
            self.mind_the_crowd();
            if change.is_shedding {
                self.flush_idle(self.cx.stats.keep_alive.current().div_ceil(SHED), Flush::Overload);
            }
        }
        if self.cx.admission.idle_excess() > 0 {
            self.flush_idle(self.cx.admission.idle_batch(), Flush::Maximum);
        }
        if self.cx.admission.is_short_of_memory() {
            self.make_room();
        }
        let lacked = descriptors::last_lacking();
        if lacked != self.lacked_at && self.now >= self.free_after {
            self.lacked_at = lacked;
            self.free_descriptors();
        }
    }

    /// Makes room in memory, unless that was tried in vain a moment ago. Whether there is some now.
    pub(super) fn make_room(&mut self) -> bool {
        if self.now < self.relieve_after {
            return false;
        }
        // What has made room may be needed again at once: to fill it takes longer than to look.
        let has_room = self.free_memory();
        self.relieve_after = if has_room { 0 } else { self.now + PAUSE.as_nanos() as u64 };
        has_room
    }

    /// Something that is open has lacked a descriptor, here or in another worker. Where none could be freed it is not tried
    /// again for a moment, however many lack one.
    #[cold]
    fn free_descriptors(&mut self) {
        self.cx.admission.wake_others();
        let has_freed = self.spare_descriptors() > 0
            || self.flush_idle(self.cx.stats.keep_alive.current().div_ceil(SHED), Flush::Descriptors);
        self.free_after = if has_freed { 0 } else { self.now + PAUSE.as_nanos() as u64 };
    }

    /// Closes so many idle connections, those first that have been idle longest. Whether there were any.
    #[cold]
    fn flush_idle(&mut self, count: u64, why: Flush) -> bool {
        let turn = self.cx.turn;
        let recent = self.newcomers.recent(turn);
        // Who has just come has a request on its way, and is no connection that is kept.
        let is_new = |connection: &Connection| connection.is_unused() && connection.idle_for(turn) <= recent;
        let mut idle: Vec<(u32, Key)> = self
            .connections
            .keys()
            .filter_map(|key| {
                let connection = self.connections.get(key).filter(|connection| connection.is_resting())?;
                let is_kept = !is_new(connection);
                is_kept.then(|| (connection.idle_for(turn), key))
            })
            .collect();
        let most = usize::try_from(count).unwrap_or(usize::MAX);
        let mut count = most;
        // Some of those will have to stay; no more are looked at than that.
        let tried = count.saturating_add(SPARED);
        if tried < idle.len() {
            idle.select_nth_unstable_by_key(tried, |(age, _)| Reverse(*age));
            idle.truncate(tried);
        }
        idle.sort_unstable_by_key(|(age, _)| Reverse(*age));
        for (_, key) in idle {
            if count == 0 {
                break;
            }
            // A request that is on its way to us is answered, and an answer that is on its way from us arrives.
            let is_over = |connection: &Connection| connection.is_quiet() && connection.is_delivered();
            if self.connections.get(key).is_some_and(is_over) {
                self.flush(key, why);
                count -= 1;
            }
        }
        count < most
    }

    pub(super) fn flush(&mut self, key: Key, why: Flush) {
        self.cx.stats.keep_alive_flushes.add(1);
        self.cx.stats.keep_alive_flush_reasons.add(why, 1);
        // Where something is short it has to be there now.
        let is_pressing = matches!(why, Flush::Descriptors | Flush::Memory);
        match self.connections.get_mut(key).filter(|connection| connection.is_multiplexed() && !is_pressing) {
            // Its client may hold answers that it has not read, and sends something as it reads them.
            Some(connection) => {
                connection.end_keep_alive();
                self.drive(key);
            }
            None => self.close(key),
        }
    }

    /// Resets those that own the most for the longest, until there is some room again. What came a moment ago
    /// is left alone, unless it is a hoarder's; while the rest of that is too much, nobody new is let in. So is what owns
    /// no more than its share: it is not the reason, however long it has been there. Whether there is room now.
    #[cold]
    fn free_memory(&mut self) -> bool {
        let excess = self.cx.admission.excess();
        if excess == 0 {
            self.flush_idle(self.cx.stats.keep_alive.current().div_ceil(SHED), Flush::Memory);
            return false; // the kernel finds it short, which it says once a second
        }
        let memory = self.cx.admission.memory();
        let wanted = excess + memory / 8;
        let now = self.cx.second();
        let owner = |(key, connection): (Key, &Connection)| {
            let (owned, age) = connection.owned(now);
            Owner { owned, age, key }
        };
        let stuck = self.all().map(owner).collect();
        let mut freed = self.reset(those_to_reset(stuck, wanted, memory));
        if freed < excess
            && let Some(hoarder) = self.hoarder()
        {
            let is_its =
                |connection: &Connection| self.cx.admission.who(connection.admitted()) == Some(hoarder);
            let its = self.all().filter(|(_, connection)| is_its(connection)).map(owner);
            let its = its.map(|owner| Owner { age: owner.age.saturating_add(STUCK), ..owner }).collect();
            freed += self.reset(those_to_reset(its, wanted - freed, memory));
        }
        freed >= excess
    }

    fn all(&self) -> impl Iterator<Item = (Key, &Connection)> {
        self.connections.keys().filter_map(|key| Some((key, self.connections.get(key)?)))
    }

    /// The client that owns more than half of what all may. Others are not turned away for its sake: what it has asked
    /// for a moment ago goes as well.
    fn hoarder(&self) -> Option<u64> {
        let mut owned: HashMap<u64, u64> = HashMap::new();
        for (_, connection) in self.all() {
            if let Some(who) = self.cx.admission.who(connection.admitted()) {
                *owned.entry(who).or_default() += u64::from(connection.owned(0).0);
            }
        }
        let most = owned.into_iter().max_by_key(|(_, owned)| *owned);
        most.filter(|(_, owned)| *owned > self.cx.admission.memory() / 2).map(|(who, _)| who)
    }

    /// Resets connections, and says how many bytes they have owned.
    fn reset(&mut self, keys: Vec<Key>) -> u64 {
        let mut freed = 0;
        for key in keys {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            freed += u64::from(connection.owned(0).0);
            if connection.is_resting() && connection.is_quiet() {
                self.flush(key, Flush::Memory); // it only remembers what its protocol wants remembered
                continue;
            }
            connection.reset_on_close();
            self.cx.stats.memory_resets.add(1);
            self.close(key);
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_go_that_own_the_most_for_the_longest() {
        const KIB: u32 = 1024;
        for (name, owners, expected) in [
            ("the larger one", &[(600 * KIB, 5), (700 * KIB, 5)][..], &[1][..]),
            ("both, where one is not enough", &[(800 * KIB, 9), (800 * KIB, 5), (800 * KIB, 7)], &[0, 2]),
            ("the older one", &[(600 * KIB, 9), (700 * KIB, 5)], &[0]),
            ("nobody who came just now", &[(600 * KIB, 1), (700 * KIB, 1)], &[]),
            (
                "not the small one, though all others came just now",
                &[(100, 60), (600 * KIB, 1), (700 * KIB, 1)],
                &[],
            ),
            ("not the small one, however old", &[(100, 100_000), (600 * KIB, 3), (700 * KIB, 2)], &[1]),
            ("enough of many that are small", &[(3 * KIB, 4); 512], &[0; 256][..]),
        ] {
            let memory = u64::from(1024 * KIB);
            let owned: u64 = owners.iter().map(|(owned, _)| u64::from(*owned)).sum();
            let list = owners.iter().zip(0..).map(|(&(owned, age), key)| Owner { owned, age, key });
            let gone = those_to_reset(list.collect(), owned - memory + memory / 8, memory);
            match expected.len() {
                256.. => assert!(gone.len() > 200 && gone.len() < 300, "{name}: {}", gone.len()),
                _ => assert_eq!(gone, expected, "{name}"),
            }
        }
    }

    /// Whatever is owned by whom, enough is found as soon as all of it is stuck.
    #[test]
    fn there_is_always_somebody_to_reset() {
        proptest::proptest!(|(owned in proptest::collection::vec(0..1000u32, 1..50), memory in 1..20_000u64)| {
            let sum: u64 = owned.iter().copied().map(u64::from).sum();
            let owner = |(owned, key): (u32, usize)| Owner { owned, age: STUCK, key };
            let excess = sum.saturating_sub(memory);
            let gone = those_to_reset(owned.iter().copied().zip(0..).map(owner).collect(), excess, memory);
            let free: u64 = gone.iter().map(|at| u64::from(owned[*at])).sum();
            proptest::prop_assert!(free >= excess, "{} of {}", free, excess);
        });
    }
}
