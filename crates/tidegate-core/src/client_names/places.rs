//! How many questions about names may be under way at once, of all clients and of one network.
//!
//! Whoever has a network has the reverse zone of it: name servers of his that say nothing keep each of his questions under
//! way until it has timed out. One address of IPv4 has one question, but a network of IPv6 has addresses without end, so
//! those of one network have a share of the places, and clients of others get through.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use tidegate_io::locking::lock;

/// Networks of IPv6 that have a share: how many bits they have, and what part of all places is theirs. What a customer
/// gets is 64 bits, and often many of these that lie together.
const SHARES: [(u32, usize); 2] = [(64, 16), (48, 4)];

/// The places of all questions.
#[derive(Default)]
pub(super) struct Places(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    all: usize,
    /// By bits and network.
    shares: HashMap<(u32, u128), usize>,
}

impl Places {
    /// Takes one of so many. False when there is none for this client.
    pub(super) fn take(&self, client: IpAddr, most: usize) -> bool {
        let mut taken = lock(&self.0);
        let is_used_up = |(key, part): ((u32, u128), usize)| {
            taken.shares.get(&key).is_some_and(|of| *of >= (most / part).max(1))
        };
        if taken.all >= most || shares_of(client).any(is_used_up) {
            return false;
        }
        taken.all += 1;
        for (key, _) in shares_of(client) {
            *taken.shares.entry(key).or_default() += 1;
        }
        true
    }

    /// How many are taken.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        lock(&self.0).all
    }

    /// The question is over.
    pub(super) fn give_back(&self, client: IpAddr) {
        let mut taken = lock(&self.0);
        taken.all = taken.all.saturating_sub(1);
        for (key, _) in shares_of(client) {
            match taken.shares.get_mut(&key) {
                Some(of) if *of > 1 => *of -= 1,
                _ => drop(taken.shares.remove(&key)),
            }
        }
    }
}

/// The networks of a client that have a share, and what part that is.
fn shares_of(client: IpAddr) -> impl Iterator<Item = ((u32, u128), usize)> {
    let address = match client {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(address.to_bits()),
    };
    address.into_iter().flat_map(|address| SHARES.map(|(bits, part)| ((bits, address >> (128 - bits)), part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(network: &str, host: u128) -> IpAddr {
        let network: std::net::Ipv6Addr = network.parse().unwrap();
        IpAddr::V6((network.to_bits() + host).into())
    }

    #[test]
    fn a_network_has_a_share_and_others_get_through() {
        let places = Places::default();
        let take = |network: &str, host| places.take(address(network, host), 256);
        assert_eq!((0..1000).filter(|host| take("2001:db8:1::", *host)).count(), 16);
        let beside = |number: u128| address("2001:db8:1::", (number + 1) << 64);
        assert_eq!((0..1000).filter(|number| places.take(beside(*number), 256)).count(), 64 - 16);
        assert!(take("2001:db8:2::", 1) && places.take("192.0.2.1".parse().unwrap(), 256));
        // A place that is free again is for the next of that network.
        places.give_back(address("2001:db8:1::", 0));
        assert!(take("2001:db8:1::", 2000) && !take("2001:db8:1::", 2001));
        let rest = (0..1000).filter(|network| places.take(address("2001:dc0::", network << 80), 256));
        assert_eq!(rest.count(), 256 - 64 - 2);
        assert!(!take("2001:db8:2::", 2), "all together are bounded");
    }

    #[test]
    fn what_is_given_back_leaves_nothing() {
        let places = Places::default();
        let all: Vec<IpAddr> = (0..3)
            .map(|host| address("2001:db8::", host << 70))
            .chain(["192.0.2.1".parse().unwrap()])
            .collect();
        for client in &all {
            assert!(places.take(*client, 256));
        }
        for client in all {
            places.give_back(client);
        }
        let taken = lock(&places.0);
        assert_eq!((taken.all, taken.shares.len()), (0, 0));
        drop(taken);
        assert!(places.take(address("2001:db8::", 1), 2), "where there are few, each network has one");
        assert!(!places.take(address("2001:db8::", 2), 2) && places.take(address("2001:dc0::", 1), 2));
    }
}
