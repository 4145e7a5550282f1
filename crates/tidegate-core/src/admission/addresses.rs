//! How many connections each client address has open, against `limits connections-per-address`.
//!
//! One table for the workers of a process, in shards, so that accepting rarely waits for another worker.
//! Touched when a connection comes and when it ends, never by a request. An address is in the table only
//! while it has a connection open, so `limits connections` bounds the table too, and what a flood has made
//! it grow is given back afterwards.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Power of two.
const SHARDS: usize = 64;
/// A shard with room for no more than this is left as it is.
const ROOM: usize = 64;

/// Who is counted as one: an IPv4 address, or an IPv6 network of 64 bits, which is what one subscriber has
/// at least (RFC 6177). An IPv4 client of an IPv6 socket is the IPv4 client that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Subscriber {
    V4(u32),
    V6(u64),
}

impl Subscriber {
    pub(super) fn of(address: SocketAddr) -> Subscriber {
        match address.ip().to_canonical() {
            IpAddr::V4(address) => Subscriber::V4(address.to_bits()),
            IpAddr::V6(address) => Subscriber::V6((address.to_bits() >> 64) as u64),
        }
    }
}

/// A hash of whom an address belongs to, for those who count other things by it.
pub(super) fn subscriber(address: SocketAddr) -> u64 {
    static STATE: OnceLock<RandomState> = OnceLock::new();
    STATE.get_or_init(RandomState::new).hash_one(Subscriber::of(address))
}

/// Open connections by subscriber.
pub struct Addresses {
    /// Keyed at random: nobody can choose addresses that collide.
    state: RandomState,
    shards: Box<[Mutex<HashMap<Subscriber, u32, RandomState>>]>,
}

impl Default for Addresses {
    fn default() -> Self {
        let state = RandomState::new();
        let shard = || Mutex::new(HashMap::with_hasher(state.clone()));
        Addresses { shards: (0..SHARDS).map(|_| shard()).collect(), state }
    }
}

impl Addresses {
    /// Counts a connection of this address, unless it has `most` open. `leave` must follow, once, where this
    /// has said `true`.
    pub fn enter(&self, address: SocketAddr, most: u32) -> bool {
        let subscriber = Subscriber::of(address);
        let mut shard = self.shard(subscriber);
        let count = shard.entry(subscriber).or_insert(0);
        if *count < most {
            *count += 1;
            return true;
        }
        if *count == 0 {
            shard.remove(&subscriber); // `most` is 0
        }
        false
    }

    /// A connection that was counted has ended.
    pub fn leave(&self, address: SocketAddr) {
        let subscriber = Subscriber::of(address);
        let mut shard = self.shard(subscriber);
        let Some(count) = shard.get_mut(&subscriber) else { return };
        *count -= 1; // at least 1: an entry of 0 is removed at once
        if *count == 0 {
            shard.remove(&subscriber);
            if shard.capacity() > ROOM && shard.len() < shard.capacity() / 8 {
                let room = shard.len() * 2;
                shard.shrink_to(room.max(ROOM / 2));
            }
        }
    }

    fn shard(&self, subscriber: Subscriber) -> MutexGuard<'_, HashMap<Subscriber, u32, RandomState>> {
        // The upper bits: the table of a shard goes by the lower ones.
        let at = (self.state.hash_one(subscriber) >> 32) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn counts(&self) -> HashMap<Subscriber, u32> {
        self.shards.iter().flat_map(|shard| shard.lock().unwrap().clone()).collect()
    }

    #[cfg(test)]
    fn room(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().capacity()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn address(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 1)
    }

    #[test]
    fn who_is_one_and_who_is_another() {
        let addresses = Addresses::default();
        let cases = [
            ("192.0.2.1", true),
            ("192.0.2.1", false),
            ("::ffff:192.0.2.1", false),
            ("192.0.2.2", true),
            ("2001:db8:0:1::1", true),
            ("2001:db8:0:1:ffff::2", false),
            ("2001:db8:0:2::1", true),
            ("::c000:201", true),
        ];
        for (text, is_admitted) in cases {
            assert_eq!(addresses.enter(address(text), 1), is_admitted, "{text}");
        }
    }

    #[test]
    fn none_at_all_leaves_nothing_behind() {
        let addresses = Addresses::default();
        assert!(!addresses.enter(address("192.0.2.1"), 0));
        assert!(addresses.counts().is_empty());
    }

    #[test]
    fn a_flood_gives_its_memory_back() {
        let addresses = Addresses::default();
        let flood = |n: u32| SocketAddr::new(Ipv4Addr::from_bits(n).into(), 1);
        for n in 0..50_000 {
            assert!(addresses.enter(flood(n), 1));
        }
        for n in 0..50_000 {
            addresses.leave(flood(n));
        }
        assert!(addresses.counts().is_empty());
        assert!(addresses.room() <= SHARDS * ROOM * 2, "{}", addresses.room());
    }

    proptest! {
        /// Against the obvious model; a leave comes only after an enter, as `enter` asks for.
        #[test]
        fn counts_like_a_map(steps in proptest::collection::vec((0u128..12, 1u32..4, any::<bool>()), 1..300)) {
            let addresses = Addresses::default();
            let mut model: HashMap<Subscriber, u32> = HashMap::new();
            let mut open: Vec<SocketAddr> = Vec::new();
            for (number, most, ends) in steps {
                if ends && !open.is_empty() {
                    let gone = open.swap_remove(number as usize % open.len());
                    addresses.leave(gone);
                    let count = model.get_mut(&Subscriber::of(gone)).unwrap();
                    *count -= 1;
                    if *count == 0 {
                        model.remove(&Subscriber::of(gone));
                    }
                } else {
                    let address = match number % 3 {
                        0 => IpAddr::V4(Ipv4Addr::from_bits(number as u32)),
                        _ => IpAddr::V6(Ipv6Addr::from_bits(number << 63)),
                    };
                    let address = SocketAddr::new(address, 1);
                    let count = model.get(&Subscriber::of(address)).copied().unwrap_or(0);
                    let is_admitted = addresses.enter(address, most);
                    prop_assert_eq!(is_admitted, count < most);
                    if is_admitted {
                        model.insert(Subscriber::of(address), count + 1);
                        open.push(address);
                    }
                }
                prop_assert_eq!(&addresses.counts(), &model);
                prop_assert!(model.len() <= open.len());
            }
            for address in open {
                addresses.leave(address);
            }
            prop_assert!(addresses.counts().is_empty());
        }
    }
}
