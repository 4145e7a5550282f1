//! Networks of clients, and whether a client belongs to one: the only place that decides it, for access rules, trusted
//! proxies, the PROXY protocol and limits alike.
//!
//! A list may be long: of a country, or of a block list. [`NetworkSet`] and [`AccessRules`] find the first network of
//! a list that a client belongs to by one binary search, without an allocation.
//!
//! [`AccessRules`]: super::AccessRules

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Reverse;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;

/// `10.0.0.0/8`, `::1`, `all`, `local`, or `unix` for clients on a unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Everyone.
    All,
    /// Clients on a unix socket.
    Unix,
    /// Clients of this machine: by a loopback address or a unix socket. In access rules only those that do not
    /// speak for somebody else.
    Local,
    /// The clients whose address agrees in the first bits; the bits behind are zero.
    Prefix {
        /// The network's address.
        address: IpAddr,
        /// How many bits agree: to 32 or 128.
        bits: u8,
    },
}

impl Network {
    /// Whether a client belongs to the network; `None` is a client on a unix socket. An IPv4 client of an IPv6 socket,
    /// `::ffff:a.b.c.d`, is the IPv4 client that it is.
    pub fn covers(self, client: Option<IpAddr>) -> bool {
        match (self, client.map(|address| address.to_canonical())) {
            (Network::All, _) | (Network::Unix | Network::Local, None) => true,
            (Network::Local, Some(address)) => address.is_loopback(),
            (Network::Prefix { address: IpAddr::V4(network), bits }, Some(IpAddr::V4(address))) => {
                v4(network.to_bits(), bits) == v4(address.to_bits(), bits)
            }
            (Network::Prefix { address: IpAddr::V6(network), bits }, Some(IpAddr::V6(address))) => {
                v6(network.to_bits(), bits) == v6(address.to_bits(), bits)
            }
            (Network::Unix, Some(_)) | (Network::Prefix { .. }, _) => false,
        }
    }

    /// Whether every address is in it, or every one of its family.
    pub fn is_everybody(self) -> bool {
        matches!(self, Network::All | Network::Prefix { bits: 0, .. })
    }

    /// Whether all clients of `inner` belong to the network.
    pub fn contains(self, inner: Network) -> bool {
        match (self, inner) {
            (Network::All, _) => true,
            (Network::Local, Network::Local | Network::Unix) | (Network::Unix, Network::Unix) => true,
            (Network::Local, Network::Prefix { address, bits }) => {
                address.is_loopback() && bits >= if address.is_ipv4() { 8 } else { 128 }
            }
            (Network::Prefix { bits: fewer, .. }, Network::Prefix { address, bits }) => {
                fewer <= bits && self.covers(Some(address))
            }
            _ => false,
        }
    }
}

/// The address of the network that an address belongs to.
pub(crate) fn first_address(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4(v4(address.to_bits(), bits).0.into()),
        IpAddr::V6(address) => IpAddr::V6(v6(address.to_bits(), bits).0.into()),
    }
}

/// First and last address of the network of an IPv4 address.
pub(super) fn v4(address: u32, bits: u8) -> (u32, u32) {
    let host = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
    (address & !host, address | host)
}

/// The same for IPv6.
pub(super) fn v6(address: u128, bits: u8) -> (u128, u128) {
    let host = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
    (address & !host, address | host)
}

/// A list of networks that can be asked for a client.
#[derive(Clone, Default)]
pub struct NetworkSet {
    networks: Vec<Network>,
    index: NetworkIndex,
}

impl NetworkSet {
    /// Whether a client belongs to any of them; `None` is a client on a unix socket.
    #[inline]
    pub fn covers(&self, client: Option<IpAddr>) -> bool {
        !self.networks.is_empty() && self.index.first(client).is_some()
    }
}

impl From<Vec<Network>> for NetworkSet {
    fn from(networks: Vec<Network>) -> Self {
        NetworkSet { index: networks.iter().copied().collect(), networks }
    }
}

impl FromIterator<Network> for NetworkSet {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        Vec::from_iter(networks).into()
    }
}

impl Deref for NetworkSet {
    type Target = [Network];

    fn deref(&self) -> &[Network] {
        &self.networks
    }
}

impl PartialEq for NetworkSet {
    fn eq(&self, other: &Self) -> bool {
        self.networks == other.networks // the index follows from them
    }
}

impl Eq for NetworkSet {}

impl fmt::Debug for NetworkSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.networks.fmt(f)
    }
}

impl Serialize for NetworkSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.networks.serialize(to)
    }
}

impl<'de> Deserialize<'de> for NetworkSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::deserialize(from).map(Self::from)
    }
}

/// What finds the first network of a list that a client belongs to.
#[derive(Debug, Clone)]
pub(super) struct NetworkIndex {
    all: Place,
    unix: Place,
    local: Place,
    v4: Tree<u32>,
    v6: Tree<u128>,
}

/// Where a network stands in its list; [`NOWHERE`] where there is none.
pub(super) type Place = u32;

const NOWHERE: Place = Place::MAX;

fn place(place: Place) -> Option<usize> {
    (place != NOWHERE).then_some(place as usize)
}

impl NetworkIndex {
    /// The first network that a client belongs to.
    #[inline]
    pub(super) fn first(&self, client: Option<IpAddr>) -> Option<usize> {
        let local = if Network::Local.covers(client) { self.local } else { NOWHERE };
        place(self.first_but_local(client).min(local))
    }

    /// The first network that a client belongs to, had the list no `local`.
    pub(super) fn first_beside_local(&self, client: Option<IpAddr>) -> Option<usize> {
        place(self.first_but_local(client))
    }

    fn first_but_local(&self, client: Option<IpAddr>) -> Place {
        let place = match client.map(|address| address.to_canonical()) {
            None => self.unix,
            Some(IpAddr::V4(address)) => self.v4.first(address.to_bits()),
            Some(IpAddr::V6(address)) => self.v6.first(address.to_bits()),
        };
        place.min(self.all)
    }

    /// The first network that all clients of `inner` belong to.
    pub(super) fn first_around(&self, inner: Network) -> Option<usize> {
        let local = if Network::Local.contains(inner) { self.local } else { NOWHERE };
        let other = match inner {
            Network::All | Network::Local => NOWHERE,
            Network::Unix => self.unix,
            Network::Prefix { address: IpAddr::V4(address), bits } => {
                self.v4.first_around(v4(address.to_bits(), bits))
            }
            Network::Prefix { address: IpAddr::V6(address), bits } => {
                self.v6.first_around(v6(address.to_bits(), bits))
            }
        };
        place(self.all.min(local).min(other))
    }

    /// The first network whose clients all belong to `outer`.
    pub(super) fn first_within(&self, outer: Network) -> Option<usize> {
        let v4_within = |address: u32, bits| self.v4.first_within(v4(address, bits));
        let v6_within = |address: u128, bits| self.v6.first_within(v6(address, bits));
        place(match outer {
            Network::All => {
                let prefixes = v4_within(0, 0).min(v6_within(0, 0));
                self.all.min(self.unix).min(self.local).min(prefixes)
            }
            Network::Unix => self.unix,
            Network::Local => {
                let loopback = v4_within(0x7f00_0000, 8).min(v6_within(1, 128));
                self.unix.min(self.local).min(loopback)
            }
            Network::Prefix { address: IpAddr::V4(address), bits } => v4_within(address.to_bits(), bits),
            Network::Prefix { address: IpAddr::V6(address), bits } => v6_within(address.to_bits(), bits),
        })
    }
}

impl Default for NetworkIndex {
    fn default() -> Self {
        std::iter::empty().collect()
    }
}

impl FromIterator<Network> for NetworkIndex {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        Self::at_places(networks.into_iter().zip(0..NOWHERE))
    }
}

impl NetworkIndex {
    /// Of networks that stand at these places.
    pub(super) fn at_places(networks: impl Iterator<Item = (Network, Place)>) -> Self {
        let (mut all, mut unix, mut local) = (NOWHERE, NOWHERE, NOWHERE);
        let (mut of_v4, mut of_v6) = (Vec::new(), Vec::new());
        for (network, place) in networks {
            match network {
                Network::All => all = all.min(place),
                Network::Unix => unix = unix.min(place),
                Network::Local => local = local.min(place),
                Network::Prefix { address: IpAddr::V4(address), bits } => {
                    of_v4.push((v4(address.to_bits(), bits), place));
                }
                Network::Prefix { address: IpAddr::V6(address), bits } => {
                    of_v6.push((v6(address.to_bits(), bits), place));
                }
            }
        }
        NetworkIndex { all, unix, local, v4: Tree::new(of_v4), v6: Tree::new(of_v6) }
    }
}

/// The networks of one family in the order of their addresses. Two of them are either apart, or one lies in the other.
#[derive(Debug, Clone)]
struct Tree<A> {
    /// By first address, wider ones first; none twice.
    nodes: Vec<Node<A>>,
}

#[derive(Debug, Clone, Copy)]
struct Node<A> {
    first: A,
    last: A,
    /// The narrowest network around this one.
    parent: u32,
    /// Where it stands in the list.
    place: Place,
    /// The first place of it and of the networks around it.
    first_place: Place,
}

impl<A: Copy + Ord> Tree<A> {
    /// From first and last addresses, and the place of each network.
    fn new(mut networks: Vec<((A, A), Place)>) -> Tree<A> {
        networks.sort_unstable_by_key(|&((first, last), place)| (first, Reverse(last), place));
        networks.dedup_by_key(|&mut (addresses, _)| addresses); // the first of each stays
        let mut nodes: Vec<Node<A>> = Vec::with_capacity(networks.len());
        let mut parent = NOWHERE;
        for (((first, last), place), at) in networks.into_iter().zip(0..NOWHERE) {
            while let Some(around) = nodes.get(parent as usize)
                && around.last < first
            {
                parent = around.parent;
            }
            let first_place =
                nodes.get(parent as usize).map_or(place, |around| around.first_place.min(place));
            nodes.push(Node { first, last, parent, place, first_place });
            parent = at;
        }
        Tree { nodes }
    }

    /// The first place of the networks with an address.
    #[inline]
    fn first(&self, address: A) -> Place {
        self.around(self.nodes.partition_point(|node| node.first <= address), address)
    }

    /// The first place of the networks with all of these addresses.
    fn first_around(&self, (first, last): (A, A)) -> Place {
        let behind = |node: &Node<A>| (node.first, Reverse(node.last)) <= (first, Reverse(last));
        self.around(self.nodes.partition_point(behind), last)
    }

    /// Of the networks before `behind`, each of which begins early enough, the first place of those that reach `last`.
    #[inline]
    fn around(&self, behind: usize, last: A) -> Place {
        let mut node = behind.checked_sub(1).and_then(|at| self.nodes.get(at));
        while let Some(narrow) = node {
            if last <= narrow.last {
                return narrow.first_place;
            }
            node = self.nodes.get(narrow.parent as usize);
        }
        NOWHERE
    }

    /// The first place of the networks that have none but these addresses.
    fn first_within(&self, (first, last): (A, A)) -> Place {
        let begin =
            self.nodes.partition_point(|node| (node.first, Reverse(node.last)) < (first, Reverse(last)));
        let within = self.nodes[begin..].iter().take_while(|node| node.first <= last);
        within.map(|node| node.place).min().unwrap_or(NOWHERE)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn network(text: &str) -> Network {
        crate::value::read_network(text).unwrap()
    }

    fn client(text: &str) -> Option<IpAddr> {
        (text != "unix").then(|| text.parse().unwrap())
    }

    #[test]
    fn who_belongs_to_a_network() {
        for (text, who, expected) in [
            ("all", "unix", true),
            ("all", "192.0.2.1", true),
            ("unix", "unix", true),
            ("unix", "127.0.0.1", false),
            ("local", "unix", true),
            ("local", "127.9.9.9", true),
            ("local", "::ffff:127.0.0.1", true),
            ("local", "::1", true),
            ("local", "10.0.0.1", false),
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "9.255.255.255", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("10.0.0.0/8", "unix", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "::1", true),
            ("::/0", "127.0.0.1", false),
            ("::/0", "::ffff:127.0.0.1", false),
            ("255.255.255.255", "255.255.255.255", true),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::", false),
        ] {
            let (network, who) = (network(text), client(who));
            assert_eq!(network.covers(who), expected, "{who:?} of {text}");
            assert_eq!(NetworkSet::from(vec![network]).covers(who), expected, "{who:?} of the set {text}");
        }
        assert!(!NetworkSet::default().covers(None));
    }

    /// Few different ones, so that they meet: nested, side by side, twice.
    pub(in super::super) fn networks() -> impl Strategy<Value = Network> {
        prop_oneof![
            1 => Just(Network::All),
            1 => Just(Network::Unix),
            1 => Just(Network::Local),
            8 => (addresses(), 0..=8u8).prop_map(|(address, wider)| {
                let bits = if address.is_ipv4() { 32 - wider * 4 } else { 128 - wider * 16 };
                Network::Prefix { address: first_address(address, bits), bits }
            }),
        ]
    }

    fn addresses() -> impl Strategy<Value = IpAddr> {
        let byte = || prop::sample::select(vec![0u8, 1, 10, 127, 128, 255]);
        let v4 = [byte(), byte(), byte(), byte()].prop_map(IpAddr::from);
        let v6 = prop::array::uniform16(byte()).prop_map(IpAddr::from);
        let loopback = prop::sample::select(vec!["127.0.0.1", "::1", "::", "0.0.0.0"]);
        prop_oneof![4 => v4, 4 => v6, 1 => loopback.prop_map(|text| text.parse().unwrap())]
    }

    /// Also IPv4 clients of an IPv6 socket.
    pub(in super::super) fn clients() -> impl Strategy<Value = Option<IpAddr>> {
        (addresses(), 0..8u8).prop_map(|(address, kind)| match (address, kind) {
            (_, 0) => None,
            (IpAddr::V4(v4), 1..=3) => Some(v4.to_ipv6_mapped().into()),
            _ => Some(address),
        })
    }

    proptest! {
        #[test]
        fn the_first_of_a_list_is_found(list in prop::collection::vec(networks(), 0..40), who in clients()) {
            let index: NetworkIndex = list.iter().copied().collect();
            prop_assert_eq!(index.first(who), list.iter().position(|network| network.covers(who)));
            let others = list.iter().position(|network| *network != Network::Local && network.covers(who));
            prop_assert_eq!(index.first_beside_local(who), others);
            prop_assert_eq!(NetworkSet::from(list.clone()).covers(who), list.iter().any(|network| network.covers(who)));
        }

        #[test]
        fn the_first_around_and_within_are_found(list in prop::collection::vec(networks(), 0..40), other in networks()) {
            let index: NetworkIndex = list.iter().copied().collect();
            prop_assert_eq!(index.first_around(other), list.iter().position(|network| network.contains(other)));
            prop_assert_eq!(index.first_within(other), list.iter().position(|network| other.contains(*network)));
        }

        #[test]
        fn what_contains_a_network_covers_its_clients(outer in networks(), inner in networks(), who in clients()) {
            prop_assert!(!(outer.contains(inner) && inner.covers(who)) || outer.covers(who));
        }
    }
}
