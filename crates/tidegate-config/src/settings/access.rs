//! Who is let in: the rules of `allow` and `deny`, in levels.

use super::networks::{Network, NetworkIndex};
use super::{Origin, Shared};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
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
}

impl Access {
    /// Whether everyone is let in.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.levels.is_empty() && !self.requires_client_certificate && self.methods.is_none()
    }
}

/// An `allow` or a `deny` of one network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessRule {
    /// Whether whom it fits is let in or refused.
    pub allows: bool,
    /// Whom it fits.
    pub network: Network,
    /// Where it was written.
    pub origin: Origin,
}

impl AccessRule {
    /// Whether it lets in who is of this machine, and nobody for whom it speaks.
    pub fn is_for_this_machine(&self) -> bool {
        self.allows && self.network == Network::Local
    }
}

/// The rules of one level, in source order. The first that fits decides; where none fits, a level with any `allow`
/// refuses.
#[derive(Default)]
pub struct AccessRules {
    rules: Vec<AccessRule>,
    index: NetworkIndex,
    /// The last `allow`.
    last_allow: Option<usize>,
    /// The first `allow "local"` and the first `deny "local"`.
    local: [Option<usize>; 2],
    /// Of the `allow` alone, with their places; made when a level within this one is examined.
    allows: OnceLock<(NetworkIndex, Vec<usize>)>,
}

impl AccessRules {
    /// The first rule that fits a client; `None` is one on a unix socket. A client that `is_stand_in` speaks for
    /// somebody else whom it does not name: no `allow "local"` is for that one, every `deny` is.
    #[inline]
    pub fn first(&self, client: Option<IpAddr>, is_stand_in: bool) -> Option<&AccessRule> {
        let [allow, deny] = self.local;
        let at = match is_stand_in && allow.is_some() {
            false => self.index.first(client),
            true => {
                let deny = deny.filter(|_| Network::Local.covers(client));
                self.index.first_beside_local(client).into_iter().chain(deny).min()
            }
        };
        self.rules.get(at?)
    }

    /// The last `allow`; `None` where there are only `deny`.
    pub fn last_allow(&self) -> Option<&AccessRule> {
        self.rules.get(self.last_allow?)
    }

    /// Whether any of them is for this machine alone.
    pub fn has_any_for_this_machine(&self) -> bool {
        self.local[0].is_some()
    }

    /// The rule that refuses all clients of a network, or nearly all: of `all` whatever no `allow` names.
    pub(crate) fn refusing(&self, network: Network) -> Option<&AccessRule> {
        let around = self.index.first_around(network);
        // A part of it gets in, unless what has been said before is about all of it.
        let lets_a_part_in = || {
            let (index, places) = self.allows.get_or_init(|| {
                let (places, networks): (Vec<_>, Vec<_>) = self
                    .rules
                    .iter()
                    .enumerate()
                    .filter(|(_, rule)| rule.allows)
                    .map(|(at, rule)| (at, rule.network))
                    .unzip();
                (networks.into_iter().collect(), places)
            });
            let within = index.first_within(network).and_then(|at| places.get(at).copied());
            within.is_some_and(|within| around.is_none_or(|around| within < around))
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
        let first =
            |allows| rules.iter().position(|rule| rule.allows == allows && rule.network == Network::Local);
        AccessRules {
            index: rules.iter().map(|rule| rule.network).collect(),
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

    fn rules() -> impl Strategy<Value = Vec<AccessRule>> {
        let rule = (any::<bool>(), networks());
        let rule =
            rule.prop_map(|(allows, network)| AccessRule { allows, network, origin: Origin::default() });
        prop::collection::vec(rule, 0..30)
    }

    proptest! {
        #[test]
        fn the_first_rule_that_fits_is_found(rules in rules(), client in clients(), is_stand_in: bool) {
            let fits = |rule: &&AccessRule| {
                rule.network.covers(client) && !(is_stand_in && rule.is_for_this_machine())
            };
            let fast = AccessRules::from(rules.clone());
            let place = |rule: Option<&AccessRule>| rule.map(std::ptr::from_ref);
            prop_assert_eq!(place(fast.first(client, is_stand_in)), place(fast.iter().find(fits)));
            prop_assert_eq!(place(fast.last_allow()), place(fast.iter().rfind(|rule| rule.allows)));
            prop_assert_eq!(fast.has_any_for_this_machine(), rules.iter().any(AccessRule::is_for_this_machine));
        }

        #[test]
        fn the_rule_that_refuses_a_network_is_found(rules in rules(), network in networks()) {
            fn one_by_one(rules: &[AccessRule], network: Network) -> Option<&AccessRule> {
                for rule in rules {
                    if rule.network.contains(network) {
                        return (!rule.allows).then_some(rule);
                    }
                    if rule.allows && network != Network::All && network.contains(rule.network) {
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
