//! Timer wheel: one deadline for each slab index, 512 slots of 128 ms, or of another length that its type says.
//!
//! Moving a deadline later is one store (the node stays where it is and is linked anew when its slot comes
//! up early); cancelling unlinks, so that short connections leave nothing behind; a deadline past the
//! horizon waits in the last slot and is linked anew from there. Ticks are counted from the monotonic clock
//! by the caller: a jump of the wall clock moves nothing (FAULTS 47).

use std::time::Duration;

const SLOTS: usize = 512;
const WORDS: usize = SLOTS / 64;
const NIL: u32 = u32::MAX;

/// Length of a tick where nothing else is said: the precision of every timeout of a server.
pub const TICK: Duration = Duration::from_millis(TICK_MILLIS);
const TICK_MILLIS: u64 = 128;

#[derive(Clone, Copy)]
struct Node {
    prev: u32,
    next: u32,
    deadline: u32,
    /// Tick this node is linked at; `NIL` when it is not.
    armed: u32,
}

const UNLINKED: Node = Node { prev: NIL, next: NIL, deadline: 0, armed: NIL };

/// Deadlines by slab index, in ticks of so many milliseconds.
pub struct Wheel<const MILLIS: u64 = TICK_MILLIS> {
    nodes: Vec<Node>,
    heads: Box<[u32; SLOTS]>,
    occupied: [u64; WORDS],
    now: u32,
}

impl<const MILLIS: u64> Default for Wheel<MILLIS> {
    fn default() -> Self {
        Wheel::with_capacity(0)
    }
}

impl<const MILLIS: u64> Wheel<MILLIS> {
    /// Bytes that each index takes here.
    pub const NODE_SIZE: usize = size_of::<Node>();

    /// With room for so many indexes before it grows.
    pub fn with_capacity(indexes: usize) -> Self {
        let nodes = Vec::with_capacity(indexes);
        Wheel { nodes, heads: Box::new([NIL; SLOTS]), occupied: [0; WORDS], now: 0 }
    }

    /// Sets the deadline of `index`, in place of an earlier one. It fires up to one tick late, never early.
    #[inline]
    pub fn arm(&mut self, index: u32, after: Duration) {
        // Not by `as_millis`, which reckons with twice as many bits.
        let subsec = after.subsec_nanos().div_ceil(1_000_000);
        let millis = after.as_secs().saturating_mul(1000).saturating_add(subsec.into());
        let ticks = millis.div_ceil(MILLIS).min(u64::from(u32::MAX / 4));
        self.arm_at(index, self.now + 1 + ticks as u32);
    }

    /// The same by the tick at which it fires; one that has gone fires with the next.
    #[inline]
    pub fn arm_at(&mut self, index: u32, deadline: u32) {
        if index as usize >= self.nodes.len() {
            self.nodes.resize(index as usize + 1, UNLINKED);
        }
        let node = &mut self.nodes[index as usize];
        node.deadline = deadline;
        if node.armed <= deadline {
            return; // linked early enough (`NIL` is above every tick)
        }
        if node.armed != NIL {
            self.unlink(index);
        }
        self.link(index);
    }

    /// Forgets the deadline of `index`.
    pub fn cancel(&mut self, index: u32) {
        if self.nodes.get(index as usize).is_some_and(|node| node.armed != NIL) {
            self.unlink(index);
        }
    }

    /// Whether `index` has a deadline.
    pub fn is_armed(&self, index: u32) -> bool {
        self.nodes.get(index as usize).is_some_and(|node| node.armed != NIL)
    }

    /// Moves to tick `now`; `expired` receives the indexes whose deadlines have passed.
    pub fn advance(&mut self, now: u32, expired: &mut Vec<u32>) {
        while self.now < now {
            // However long nothing was waited for, it is not gone through.
            self.now = self.next_tick().map_or(now, |next| next.min(now));
            let mut index = self.heads[self.now as usize % SLOTS];
            while index != NIL {
                let node = self.nodes[index as usize];
                self.unlink(index);
                if node.deadline <= self.now {
                    expired.push(index);
                } else {
                    self.link(index);
                }
                index = node.next;
            }
        }
    }

    /// The tick of the next slot that holds something.
    #[inline]
    pub fn next_tick(&self) -> Option<u32> {
        self.next().map(|ticks| self.now.saturating_add(ticks))
    }

    /// Ticks until the next slot that holds something.
    pub fn next(&self) -> Option<u32> {
        let base = (self.now as usize + 1) % SLOTS;
        for step in 0..=WORDS {
            let word = (base / 64 + step) % WORDS;
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (base % 64);
            }
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                return Some(1 + ((slot + SLOTS - base) % SLOTS) as u32);
            }
        }
        None
    }

    fn link(&mut self, index: u32) {
        let at = self.nodes[index as usize].deadline.clamp(self.now + 1, self.now + SLOTS as u32 - 1);
        let slot = at as usize % SLOTS;
        let next = self.heads[slot];
        if next != NIL {
            self.nodes[next as usize].prev = index;
        }
        let node = &mut self.nodes[index as usize];
        (node.prev, node.next, node.armed) = (NIL, next, at);
        self.heads[slot] = index;
        self.occupied[slot / 64] |= 1 << (slot % 64);
    }

    fn unlink(&mut self, index: u32) {
        let node = self.nodes[index as usize];
        let slot = node.armed as usize % SLOTS;
        if node.prev != NIL {
            self.nodes[node.prev as usize].next = node.next;
        } else {
            self.heads[slot] = node.next;
            if node.next == NIL {
                self.occupied[slot / 64] &= !(1 << (slot % 64));
            }
        }
        if node.next != NIL {
            self.nodes[node.next as usize].prev = node.prev;
        }
        self.nodes[index as usize].armed = NIL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ticks(n: u32) -> Duration {
        TICK * n
    }

    #[test]
    fn fires_once_at_the_latest_deadline() {
        let (mut wheel, mut out) = (Wheel::<TICK_MILLIS>::default(), Vec::new());
        wheel.arm(3, ticks(8));
        wheel.arm(3, ticks(39));
        wheel.arm(7, ticks(3));
        wheel.arm(9, ticks(3));
        wheel.cancel(9);
        assert!(wheel.is_armed(3) && !wheel.is_armed(9) && !wheel.is_armed(100));
        assert_eq!(wheel.next(), Some(4));
        wheel.advance(20, &mut out);
        assert_eq!(out, [7]);
        wheel.advance(41, &mut out);
        assert_eq!(out, [7, 3]);
        assert_eq!(wheel.next(), None);
    }

    /// A shorter tick is a more precise wheel, and none fires early: what is left of a millisecond counts as one.
    #[test]
    fn ticks_are_as_long_as_the_type_says() {
        let (mut wheel, mut out) = (Wheel::<2>::default(), Vec::new());
        wheel.arm(1, Duration::from_micros(4_001));
        wheel.arm(2, Duration::from_micros(4_000));
        wheel.advance(3, &mut out);
        assert_eq!(out, [2]);
        wheel.advance(4, &mut out);
        assert_eq!(out, [2, 1]);
    }

    #[test]
    fn a_deadline_beyond_the_horizon_waits() {
        let (mut wheel, mut out) = (Wheel::<TICK_MILLIS>::default(), Vec::new());
        wheel.arm(1, ticks(5_000));
        for now in (0..5_001).step_by(100) {
            wheel.advance(now, &mut out);
        }
        assert!(out.is_empty());
        wheel.advance(5_001, &mut out);
        assert_eq!(out, [1]);
    }

    proptest! {
        /// Against the obvious model: a map of deadlines.
        #[test]
        fn behaves_like_a_map(steps in proptest::collection::vec((0u32..8, 0u32..1_200, 0u8..4), 1..200)) {
            let (mut wheel, mut model) = (Wheel::<TICK_MILLIS>::default(), std::collections::BTreeMap::new());
            let mut now = 0;
            for (index, amount, what) in steps {
                match what {
                    0 | 1 => {
                        wheel.arm(index, ticks(amount));
                        model.insert(index, now + 1 + amount);
                    }
                    2 => {
                        wheel.cancel(index);
                        model.remove(&index);
                    }
                    _ => {
                        now += amount;
                        let mut fired = Vec::new();
                        wheel.advance(now, &mut fired);
                        fired.sort_unstable();
                        let due: Vec<u32> = model.iter().filter(|(_, d)| **d <= now).map(|(i, _)| *i).collect();
                        model.retain(|_, d| *d > now);
                        prop_assert_eq!(fired, due);
                    }
                }
                if let Some(first) = model.values().min() {
                    prop_assert!(wheel.next().is_some_and(|n| now + n <= *first));
                }
            }
        }
    }
}
