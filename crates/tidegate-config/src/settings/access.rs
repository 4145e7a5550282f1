//! Who is let in: the rules of `allow` and `deny`, in levels.

use super::networks::{Network, NetworkIndex, Place};
use super::{Country, HostPattern, Origin, Shared, TimeWindow};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Who is let in. The default lets everyone in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Access {
    /// The rules of the top level, of the site and of the route, as far as there are any; each level has to let
    /// a client in. Routes share what they inherit.
    pub levels: Vec<Shared<AccessRules>>,
    /// Who has shown no client certificate is refused.
    pub requires_client_certificate: bool,
    /// The methods that may be used; `None` for all.
    pub methods: Option<Shared<Vec<String>>>,
    /// No client comes here by the path that it asks for: only what the server asks itself does.
    pub is_internal: bool,
}

impl Access {
    /// Whether everyone is let in.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.levels.is_empty()
            && !self.requires_client_certificate
            && self.methods.is_none()
            && !self.is_internal
    }

    /// Whether it depends on who asks that a request is let in.
    pub fn is_for_some(&self) -> bool {
        !self.levels.is_empty() || self.requires_client_certificate
    }
}

/// Whom a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whom {
    /// Clients of a network.
    Network(Network),
    /// Clients whose address is in a list file, absolute.
    List(#[serde(with = "crate::path_encoding::path")] PathBuf),
    /// Clients of any of these countries.
    Countries(Vec<Country>),
    /// Clients that are called like one of these, as name servers confirm.
    Names(Vec<HostPattern>),
}

/// What rules and conditions ask that neither the settings nor a request say.
pub trait ClientFacts {
    /// Whether a list file has an address.
    fn is_listed(&self, list: &Path, client: IpAddr) -> bool;
    /// The country of an address; [`Country::UNKNOWN`] where the database does not tell.
    fn country(&self, client: IpAddr) -> Country;
    /// Whether a client is called like one of these. `allows`: that would let it in.
    fn is_named(&self, client: IpAddr, names: &[HostPattern], allows: bool) -> bool;
    /// When the request has come, in seconds since 1970.
    fn now(&self) -> i64;
}

/// An `allow` or a `deny`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessRule {
    /// Whether whom it fits is let in or refused.
    pub allows: bool,
    /// Whom it fits.
    pub whom: Whom,
    /// When; `None` for always.
    pub time: Option<TimeWindow>,
    /// Where it was written.
    pub origin: Origin,
}

impl AccessRule {
    /// Of a network, at any time.
    pub fn of(allows: bool, network: Network, origin: Origin) -> AccessRule {
        AccessRule { allows, whom: Whom::Network(network), time: None, origin }
    }

    /// Whether it lets in who is of this machine, and nobody for whom it speaks.
    pub fn is_for_this_machine(&self) -> bool {
        self.allows && self.whom == Whom::Network(Network::Local)
    }

    /// Its network, where nothing but the address decides.
    fn network(&self) -> Option<Network> {
        match (&self.whom, &self.time) {
            (Whom::Network(network), None) => Some(*network),
            _ => None,
        }
    }

    /// Of a client whom a balancer does not name: an unspecified address, which is in no network that somebody has thought of.
    #[cold]
    fn fits_without_address(
        &self,
        unspecified: Option<IpAddr>,
        is_stand_in: bool,
        facts: &dyn ClientFacts,
    ) -> bool {
        let is_for_everybody = self.whom == Whom::Network(Network::All);
        (!self.allows || is_for_everybody) && self.fits(unspecified, is_stand_in, facts)
    }

    fn fits(&self, client: Option<IpAddr>, is_stand_in: bool, facts: &dyn ClientFacts) -> bool {
        // Looked at first: names are asked of somebody else.
        if !self.time.as_ref().is_none_or(|time| time.holds_at(facts.now())) {
            return false;
        }
        match &self.whom {
            Whom::Network(network) => network.covers(client) && !(is_stand_in && self.is_for_this_machine()),
            Whom::List(path) => client.is_some_and(|client| facts.is_listed(path, client)),
            Whom::Countries(countries) => {
                countries.contains(&client.map_or(Country::UNKNOWN, |client| facts.country(client)))
            }
            Whom::Names(names) => client.is_some_and(|client| facts.is_named(client, names, self.allows)),
        }
    }
}

impl fmt::Display for AccessRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.allows { "allow" } else { "deny" })?;
        match &self.whom {
            Whom::Network(Network::All) if self.time.is_some() => {}
            Whom::Network(network) => write!(f, " \"{network}\"")?,
            Whom::List(path) => write!(f, " list=\"{}\"", path.display())?,
            Whom::Countries(countries) => {
                let codes: Vec<&str> = countries.iter().map(Country::as_str).collect();
                write!(f, " country=\"{}\"", codes.join(","))?;
            }
            Whom::Names(names) => {
                let names: Vec<String> = names.iter().map(HostPattern::to_string).collect();
                write!(f, " name=\"{}\"", names.join(","))?;
            }
        }
        self.time.as_ref().map_or(Ok(()), |time| write!(f, " time=\"{time}\""))
    }
}

/// The rules of one level, in source order. The first that fits decides; where none fits, a level with any `allow`
/// refuses.
#[derive(Default)]
pub struct AccessRules {
    rules: Vec<AccessRule>,
    /// Of those that go by the address alone.
    index: NetworkIndex,
    /// All others, in order.
    others: Vec<usize>,
    /// The last `allow`.
    last_allow: Option<usize>,
    /// The first `allow "local"` and the first `deny "local"`.
    local: [Option<usize>; 2],
    /// Of the `allow` alone, with their places; made when a level within this one is examined.
    allows: OnceLock<(NetworkIndex, Vec<usize>)>,
}

impl AccessRules {
    /// The first rule that fits a client; `None` is one on a unix socket, and `0.0.0.0` or `::` one without an address, whom no
    /// `allow` fits but that of everybody. A client that `is_stand_in` speaks for
    /// somebody else whom it does not name: no `allow "local"` is for that one, every `deny` is.
    #[inline]
    pub fn first(
        &self,
        client: Option<IpAddr>,
        is_stand_in: bool,
        facts: &dyn ClientFacts,
    ) -> Option<&AccessRule> {
        if client.is_some_and(|address| address.to_canonical().is_unspecified()) {
            return self.rules.iter().find(|rule| rule.fits_without_address(client, is_stand_in, facts));
        }
        let [allow, deny] = self.local;
        let at = match is_stand_in && allow.is_some() {
            false => self.index.first(client),
            true => {
                let deny = deny.filter(|_| Network::Local.covers(client));
                self.index.first_beside_local(client).into_iter().chain(deny).min()
            }
        };
        if !self.others.is_empty() {
            let before = at.unwrap_or(usize::MAX);
            let others = self.others.iter().take_while(|other| **other < before);
            let mut others = others.filter_map(|other| self.rules.get(*other));
            if let Some(rule) = others.find(|rule| rule.fits(client, is_stand_in, facts)) {
                return Some(rule);
            }
        }
        self.rules.get(at?)
    }

    /// The last `allow`; `None` where there are only `deny`.
    pub fn last_allow(&self) -> Option<&AccessRule> {
        self.rules.get(self.last_allow?)
    }

    /// Whether any of them is for this machine alone.
    pub fn has_any_for_this_machine(&self) -> bool {
        self.rules.iter().any(AccessRule::is_for_this_machine)
    }

    /// Those by which more than the address decides.
    pub fn others(&self) -> impl Iterator<Item = &AccessRule> {
        self.others.iter().filter_map(|at| self.rules.get(*at))
    }

    /// The first rule that fits all clients of a network by their address alone: whatever follows it says nothing of them.
    /// `allow "local"` is for none who speak for somebody else.
    pub(crate) fn deciding(&self, network: Network) -> Option<(usize, &AccessRule)> {
        let at = self.index.first_around(network)?;
        let rule = self.rules.get(at)?;
        (!rule.is_for_this_machine()).then_some((at, rule))
    }

    /// The rule that refuses all clients of a network, or nearly all: of `all` whatever no `allow` names.
    pub(crate) fn refusing(&self, network: Network) -> Option<&AccessRule> {
        let around = self.index.first_around(network);
        // A part of it gets in, unless what has been said before is about all of it.
        let lets_a_part_in = || {
            let (index, places) = self.allows.get_or_init(|| {
                let allows = self.rules.iter().enumerate().filter(|(_, rule)| rule.allows);
                let (places, networks): (Vec<_>, Vec<_>) =
                    allows.filter_map(|(at, rule)| Some((at, rule.network()?))).unzip();
                (networks.into_iter().collect(), places)
            });
            let within = index.first_within(network).and_then(|at| places.get(at).copied());
            // Whom a list, a country or a time lets in may be of any network.
            let other =
                self.others.iter().copied().find(|at| self.rules.get(*at).is_some_and(|rule| rule.allows));
            let first = within.into_iter().chain(other).min();
            first.is_some_and(|first| around.is_none_or(|around| first < around))
        };
        if network != Network::All && lets_a_part_in() {
            return None;
        }
        match around.and_then(|at| self.rules.get(at)) {
            Some(rule) => (!rule.allows).then_some(rule),
            None => self.last_allow(),
        }
    }
}

impl From<Vec<AccessRule>> for AccessRules {
    fn from(rules: Vec<AccessRule>) -> Self {
        let is_local = |rule: &AccessRule| rule.network() == Some(Network::Local);
        let first = |allows| rules.iter().position(|rule| rule.allows == allows && is_local(rule));
        let placed = rules.iter().zip(0..Place::MAX);
        let others = rules.iter().enumerate().filter(|(_, rule)| rule.network().is_none());
        AccessRules {
            index: NetworkIndex::at_places(placed.filter_map(|(rule, at)| Some((rule.network()?, at)))),
            others: others.map(|(at, _)| at).collect(),
            last_allow: rules.iter().rposition(|rule| rule.allows),
            local: [first(true), first(false)],
            allows: OnceLock::new(),
            rules,
        }
    }
}

impl Deref for AccessRules {
    type Target = [AccessRule];

    fn deref(&self) -> &[AccessRule] {
        &self.rules
    }
}

impl PartialEq for AccessRules {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules // all else follows from them
    }
}

impl Eq for AccessRules {}

impl fmt::Debug for AccessRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.fmt(f)
    }
}

impl Serialize for AccessRules {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.rules.serialize(to)
    }
}

impl<'de> Deserialize<'de> for AccessRules {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::deserialize(from).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::super::networks::tests::{clients, networks};
    use super::*;
    use proptest::prelude::*;

    /// What a list and a country are in these tests, and what time it is.
    struct Facts;

    impl ClientFacts for Facts {
        fn is_listed(&self, list: &Path, client: IpAddr) -> bool {
            let network = if list == Path::new("/ten") { "10.0.0.0/8" } else { "::/1" };
            crate::value::read_network(network).unwrap().covers(Some(client))
        }

        fn country(&self, client: IpAddr) -> Country {
            if client.is_ipv4() { Country::read("DE").unwrap() } else { Country::UNKNOWN }
        }

        fn is_named(&self, client: IpAddr, names: &[HostPattern], _allows: bool) -> bool {
            names.iter().any(|name| name.matches(if client.is_ipv4() { "v4.example.com" } else { "v6.test" }))
        }

        fn now(&self) -> i64 {
            1_767_600_000 // Monday 08:00 UTC
        }
    }

    fn whom() -> impl Strategy<Value = Whom> {
        prop_oneof![
            6 => networks().prop_map(Whom::Network),
            1 => prop::sample::select(vec!["/ten", "/six"]).prop_map(|list| Whom::List(list.into())),
            1 => prop::sample::select(vec!["DE", "ZZ", "FR"])
                .prop_map(|code| Whom::Countries(vec![Country::read(code).unwrap()])),
            1 => prop::sample::select(vec![".example.com", ".test"])
                .prop_map(|suffix| Whom::Names(vec![HostPattern::Suffix(suffix.into())])),
        ]
    }

    fn rules() -> impl Strategy<Value = Vec<AccessRule>> {
        let time = prop::sample::select(vec!["", "", "", "Mon 07:00-09:00", "Tue"]);
        let rule = (any::<bool>(), whom(), time).prop_map(|(allows, whom, time)| AccessRule {
            allows,
            whom,
            time: TimeWindow::read(time).ok(),
            origin: Origin::default(),
        });
        prop::collection::vec(rule, 0..30)
    }

    proptest! {
        #[test]
        fn the_first_rule_that_fits_is_found(rules in rules(), client in clients(), is_stand_in: bool) {
            let is_named = client.is_none_or(|address| !address.to_canonical().is_unspecified());
            let fits = |rule: &&AccessRule| {
                (is_named || !rule.allows || rule.whom == Whom::Network(Network::All))
                    && rule.fits(client, is_stand_in, &Facts)
            };
            let fast = AccessRules::from(rules.clone());
            let place = |rule: Option<&AccessRule>| rule.map(std::ptr::from_ref);
            prop_assert_eq!(place(fast.first(client, is_stand_in, &Facts)), place(fast.iter().find(fits)));
            prop_assert_eq!(place(fast.last_allow()), place(fast.iter().rfind(|rule| rule.allows)));
            prop_assert_eq!(fast.has_any_for_this_machine(), rules.iter().any(AccessRule::is_for_this_machine));
        }

        #[test]
        fn the_rule_that_refuses_a_network_is_found(rules in rules(), network in networks()) {
            fn one_by_one(rules: &[AccessRule], network: Network) -> Option<&AccessRule> {
                for rule in rules {
                    let Some(known) = rule.network() else {
                        match rule.allows && network != Network::All {
                            true => return None,
                            false => continue,
                        }
                    };
                    if known.contains(network) {
                        return (!rule.allows).then_some(rule);
                    }
                    if rule.allows && network != Network::All && network.contains(known) {
                        return None;
                    }
                }
                rules.iter().rev().find(|rule| rule.allows)
            }
            let fast = AccessRules::from(rules);
            let place = |rule: Option<&AccessRule>| rule.map(std::ptr::from_ref);
            prop_assert_eq!(place(fast.refusing(network)), place(one_by_one(&fast, network)));
        }
    }
}
