//! Closing what goes first when there is too much: idle connections, and stuck ones that own the most.
//!
//! Once a turn a worker looks whether there is anything to do, which is three comparisons. Only when there is,
//! it looks through its connections, and then it closes several at once, so that the next look is not soon.

use super::Worker;
use crate::conn::Connection;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;
use tidegate_io::Key;
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

impl Worker {
    /// Whether there is something to do soon even when nothing happens.
    pub(super) fn wants_relief(&self) -> bool {
        self.cx.admission.is_short_of_memory()
    }

    #[inline]
    pub(super) fn relieve(&mut self) {
        if let Some(change) = self.cx.admission.tick(self.now)
            && change.is_shedding
        {
            self.flush_idle(self.cx.stats.keep_alive.current().div_ceil(SHED), Flush::Overload);
        }
        if self.cx.admission.idle_excess() > 0 {
            self.flush_idle(self.cx.admission.idle_batch(), Flush::Maximum);
        }
        if self.cx.admission.is_short_of_memory() && self.now >= self.relieve_after {
            // What has made room may be needed again at once: to fill it takes longer than to look.
            let has_room = self.free_memory();
            self.relieve_after = if has_room { 0 } else { self.now + PAUSE.as_nanos() as u64 };
        }
    }

    /// Closes so many idle connections, those first that have been idle longest.
    #[cold]
    fn flush_idle(&mut self, count: u64, why: Flush) {
        let turn = self.cx.turn;
        let mut idle: Vec<(u32, Key)> = self
            .connections
            .keys()
            .filter_map(|key| {
                let connection = self.connections.get(key).filter(|connection| connection.is_resting())?;
                Some((connection.idle_for(turn), key))
            })
            .collect();
        let mut count = usize::try_from(count).unwrap_or(usize::MAX);
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
    }

    pub(super) fn flush(&mut self, key: Key, why: Flush) {
        self.cx.stats.keep_alive_flushes.add(1);
        self.cx.stats.keep_alive_flush_reasons.add(why, 1);
        self.close(key);
    }

    /// Resets those that own the most for the longest, until there is some room again. What came a moment ago
    /// is left alone, unless it is a hoarder's; while the rest of that is too much, nobody new is let in. Whether
    /// there is room now.
    #[cold]
    fn free_memory(&mut self) -> bool {
        let excess = self.cx.admission.excess();
        if excess == 0 {
            self.flush_idle(self.cx.stats.keep_alive.current().div_ceil(SHED), Flush::Memory);
            return false; // the kernel finds it short, which it says once a second
        }
        let now = self.cx.now as u32;
        let wanted = excess + self.cx.admission.memory() / 8;
        let stuck = self.owners(|connection| connection.owned(now).1 >= STUCK);
        let mut freed = self.reset_owners(stuck, wanted);
        if freed < excess
            && let Some(hoarder) = self.hoarder()
        {
            let who =
                |worker: &Worker, connection: &Connection| worker.cx.admission.who(connection.admitted());
            let its = self.owners(|connection| who(self, connection) == Some(hoarder));
            freed += self.reset_owners(its, wanted - freed);
        }
        freed >= excess
    }

    /// The client that owns more than half of what all may. Others are not turned away for its sake: what it has asked
    /// for a moment ago goes as well.
    fn hoarder(&self) -> Option<u64> {
        let mut owned: HashMap<u64, u64> = HashMap::new();
        for connection in self.connections.keys().filter_map(|key| self.connections.get(key)) {
            if let Some(who) = self.cx.admission.who(connection.admitted()) {
                *owned.entry(who).or_default() += u64::from(connection.owned(0).0);
            }
        }
        let most = owned.into_iter().max_by_key(|(_, owned)| *owned);
        most.filter(|(_, owned)| *owned > self.cx.admission.memory() / 2).map(|(who, _)| who)
    }

    /// Connections that own something, those first that own the most for the longest.
    fn owners(&self, is_meant: impl Fn(&Connection) -> bool) -> Vec<(u32, Key)> {
        let now = self.cx.now as u32;
        let mut owners: Vec<(u64, u32, Key)> = self
            .connections
            .keys()
            .filter_map(|key| {
                let connection = self.connections.get(key).filter(|connection| is_meant(connection))?;
                let (owned, age) = connection.owned(now);
                (owned > 0).then(|| (u64::from(owned) * (u64::from(age) + 1), owned, key))
            })
            .collect();
        owners.sort_unstable_by_key(|(weight, ..)| Reverse(*weight));
        owners.into_iter().map(|(_, owned, key)| (owned, key)).collect()
    }

    /// Resets connections in this order until so many bytes are free, and says how many are.
    fn reset_owners(&mut self, owners: Vec<(u32, Key)>, wanted: u64) -> u64 {
        let mut freed = 0;
        for (owned, key) in owners {
            if freed >= wanted {
                break;
            }
            freed += u64::from(owned);
            if let Some(connection) = self.connections.get_mut(key) {
                if connection.is_resting() && connection.is_quiet() {
                    self.flush(key, Flush::Memory); // it only remembers what its protocol wants remembered
                    continue;
                }
                connection.reset_on_close();
                self.cx.stats.memory_resets.add(1);
                self.close(key);
            }
        }
        freed
    }
}
