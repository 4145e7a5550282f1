//! Requests that each client address has begun and cancelled over HTTP/2: a leaky bucket for each, over all its
//! connections (FAULTS 17 and 59).
//!
//! A connection has buckets of its own (`wire/h2/flood.rs`); who fills one opens the next. Touched by a reset of a request
//! that was under way, never by anything else. Memory is bounded: an address whose bucket is empty is forgotten when room is
//! wanted, and where that gives none, all of a shard are.

use super::addresses::Subscriber;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

/// What an address may cancel at once: pages that many people behind it leave at the same moment.
const MOST: u32 = 1000;
/// What a second makes good.
const EACH_SECOND: u32 = 100;
/// Power of two.
const SHARDS: usize = 16;
/// Addresses in a shard.
const ROOM: usize = 1024;

#[derive(Clone, Copy)]
struct Bucket {
    level: u32,
    second: u32,
}

impl Bucket {
    fn at(self, second: u32) -> Bucket {
        let passed = second.saturating_sub(self.second);
        let level = self.level.saturating_sub(passed.saturating_mul(EACH_SECOND));
        Bucket { level, second: self.second.max(second) }
    }
}

/// The buckets, for all workers of a process.
pub struct Resets {
    /// Keyed at random: nobody can choose addresses that collide.
    state: RandomState,
    shards: Box<[Mutex<HashMap<Subscriber, Bucket, RandomState>>]>,
}

impl Default for Resets {
    fn default() -> Self {
        let state = RandomState::new();
        let shard = || Mutex::new(HashMap::with_hasher(state.clone()));
        Resets { shards: (0..SHARDS).map(|_| shard()).collect(), state }
    }
}

impl Resets {
    /// Counts one; whether it is too much. `second` is of a clock that never runs backwards.
    pub fn add(&self, address: SocketAddr, second: u32) -> bool {
        let subscriber = Subscriber::of(address);
        // The upper bits: the table of a shard goes by the lower ones.
        let at = (self.state.hash_one(subscriber) >> 32) as usize % SHARDS;
        let mut shard = self.shards[at].lock().unwrap_or_else(PoisonError::into_inner);
        if shard.len() >= ROOM && !shard.contains_key(&subscriber) {
            shard.retain(|_, bucket| bucket.at(second).level > 0);
            if shard.len() >= ROOM {
                shard.clear();
            }
        }
        let bucket = shard.entry(subscriber).or_insert(Bucket { level: 0, second });
        *bucket = bucket.at(second);
        let is_full = bucket.level >= MOST;
        bucket.level += u32::from(!is_full);
        is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u32) -> SocketAddr {
        SocketAddr::new(std::net::Ipv4Addr::from_bits(last).into(), 80)
    }

    #[test]
    fn buckets_run_over_and_empty() {
        let resets = Resets::default();
        assert!((0..MOST).all(|_| !resets.add(address(1), 5)));
        assert!(resets.add(address(1), 5));
        assert!(!resets.add(address(2), 5), "somebody else");
        assert!((0..EACH_SECOND).all(|_| !resets.add(address(1), 6)));
        assert!(resets.add(address(1), 6));
        assert!(resets.add(address(1), 0), "a clock that ran backwards forgives nothing");
    }

    #[test]
    fn memory_is_bounded() {
        let resets = Resets::default();
        (0..100_000).for_each(|number| assert!(!resets.add(address(number), 5)));
        let kept: usize = resets.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!(kept <= SHARDS * ROOM, "{kept}");
    }
}
