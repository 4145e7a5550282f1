//! The upstream groups of a process, and what the master has found out about their members.
//!
//! The master looks up names and checks members (`Finding`); a process only hears of it. A group outlives a
//! reload that says the same of it.

use super::Group;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_config::settings::upstream::Upstream;

/// What has become known of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The name of its group.
    pub group: String,
    /// The member as written.
    pub member: String,
    /// What is known.
    pub fact: Fact,
}

/// One fact about a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// Its name leads there; nowhere, when it cannot be looked up.
    Addresses(Vec<SocketAddr>),
    /// Its checks have taken it out, or brought it back.
    IsDown(bool),
    /// Requests of some process have put it aside until this time, in nanoseconds of the monotonic clock, which all
    /// processes share; `None`: it answers again.
    Ejected(Option<u64>),
    /// An operator has said what it is to get.
    Steered(Steering),
}

/// What an operator has said of a member. It holds until something else is said, over reloads too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steering {
    /// Which requests it gets.
    pub way: Way,
    /// In place of the weight that is written.
    pub weight: Option<u32>,
}

/// Which requests a member gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// All that it is due.
    #[default]
    Serve,
    /// Those whose cookie names it, and no others.
    Drain,
    /// None.
    Pause,
}

impl Steering {
    /// The same, with what else is said.
    fn then(self, order: &SteeringOrder) -> Steering {
        match order {
            SteeringOrder::Way(way) => Steering { way: *way, ..self },
            SteeringOrder::Weight(weight) => Steering { weight: *weight, ..self },
        }
    }
}

/// What an operator says of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SteeringOrder {
    /// Which requests it is to get.
    Way(Way),
    /// How many beside the others; `None`: as it is written.
    Weight(Option<u32>),
}

/// Tells the master what requests of this process have found out.
pub(super) type Tell = Arc<dyn Fn(Finding) + Send + Sync>;

/// All that is known of a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Known {
    addresses: Option<Vec<SocketAddr>>,
    is_down: Option<bool>,
    ejected_until: Option<u64>,
    steered: Option<Steering>,
}

/// What is known of the members of all groups: the last finding of each kind.
#[derive(Debug, Default)]
pub struct Findings(HashMap<(String, String), Known>);

impl Findings {
    /// Takes in a finding.
    pub fn learn(&mut self, finding: &Finding) {
        let known = self.0.entry((finding.group.clone(), finding.member.clone())).or_default();
        match &finding.fact {
            Fact::Addresses(addresses) => known.addresses = Some(addresses.clone()),
            Fact::IsDown(is_down) => known.is_down = Some(*is_down),
            Fact::Ejected(until) => known.ejected_until = *until,
            Fact::Steered(steering) => known.steered = Some(*steering),
        }
    }

    /// What an order makes of what was said of a member before.
    pub fn steer(&self, group: &str, member: &str, order: &SteeringOrder) -> Finding {
        let known = self.0.get(&(group.to_owned(), member.to_owned()));
        let before = known.and_then(|known| known.steered).unwrap_or_default();
        let fact = Fact::Steered(before.then(order));
        Finding { group: group.to_owned(), member: member.to_owned(), fact }
    }

    /// Everything, for somebody who knows nothing yet.
    pub fn all(&self) -> Vec<Finding> {
        let of = |((group, member), known): (&(String, String), &Known)| {
            let addresses = known.addresses.clone().map(Fact::Addresses);
            let ejected = known.ejected_until.map(|until| Fact::Ejected(Some(until)));
            let facts = addresses
                .into_iter()
                .chain(known.is_down.map(Fact::IsDown))
                .chain(ejected)
                .chain(known.steered.map(Fact::Steered));
            let finding = |fact| Finding { group: group.clone(), member: member.clone(), fact };
            facts.map(finding).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }

    /// Whether the checks of a member have taken it out.
    pub fn is_down(&self, group: &str, member: &str) -> bool {
        let known = self.0.get(&(group.to_owned(), member.to_owned()));
        known.is_some_and(|known| known.is_down == Some(true))
    }

    /// Forgets members that are in no settings any more.
    pub fn retain(&mut self, upstreams: &[Upstream]) {
        self.0.retain(|(group, member), _| {
            let named = upstreams.iter().filter(|upstream| upstream.name == *group);
            named.flat_map(|upstream| &upstream.members).any(|known| known.name == *member)
        });
    }
}

/// Every group of the process.
#[derive(Default)]
pub struct Groups {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of one name the last is the one that routes are given; others are of a revision that was prepared and
    /// not taken up, or are about to go.
    groups: Vec<Arc<Group>>,
    findings: Findings,
    tell: Option<Tell>,
}

impl Groups {
    /// Has `tell` told what requests find out, for other processes. Called on the threads of workers: it must not wait.
    pub fn tell_with(&self, tell: impl Fn(Finding) + Send + Sync + 'static) {
        self.lock().tell = Some(Arc::new(tell));
    }

    /// Makes the groups of a revision that is about to be taken up. Those that say the same as before are the
    /// same.
    pub fn prepare(&self, upstreams: &[Upstream]) {
        let mut state = self.lock();
        for upstream in upstreams {
            let same = state.groups.iter().position(|group| group.settings().is_same_as(upstream));
            let group = match same {
                Some(index) => state.groups.remove(index),
                None => {
                    let before = state.groups.iter().rfind(|group| group.settings().name == upstream.name);
                    let group = Group::new(upstream.clone(), before.map(|group| &**group));
                    if let Some(tell) = &state.tell {
                        group.tell_with(tell.clone());
                    }
                    for finding in state.findings.all() {
                        // The group before knows better what its own requests have found since.
                        if before.is_none() || !matches!(finding.fact, Fact::Ejected(_)) {
                            apply(&group, &finding);
                        }
                    }
                    group
                }
            };
            state.groups.push(group);
        }
    }

    /// The group of this name.
    pub fn named(&self, name: &str) -> Option<Arc<Group>> {
        self.lock().groups.iter().rfind(|group| group.settings().name == name).cloned()
    }

    /// These are in force: others are forgotten. Requests under way keep theirs.
    pub fn retain(&self, upstreams: &[Upstream]) {
        let mut state = self.lock();
        let is_wanted = |group: &Arc<Group>| upstreams.iter().any(|known| group.settings().is_same_as(known));
        state.groups.retain(is_wanted);
        state.findings.retain(upstreams);
    }

    /// Takes in what the master has found out.
    pub fn learn(&self, findings: &[Finding]) {
        let mut state = self.lock();
        for finding in findings {
            state.findings.learn(finding);
            state.groups.iter().for_each(|group| apply(group, finding));
        }
    }

    /// What each tells of itself, by name.
    pub fn report(&self) -> Vec<super::report::GroupReport> {
        let mut reports: Vec<_> = self.lock().groups.iter().map(|group| group.report()).collect();
        reports.sort_by(|one, two| one.name.cmp(&two.name));
        reports
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn apply(group: &Group, finding: &Finding) {
    if group.settings().name != finding.group {
        return;
    }
    let Some(member) = group.members.iter().find(|member| member.name() == finding.member) else { return };
    match &finding.fact {
        Fact::Addresses(addresses) => group.set_addresses(member, addresses),
        Fact::IsDown(is_down) => group.set_down(member, *is_down),
        Fact::Ejected(until) => group.hear(member, *until),
        Fact::Steered(steering) => group.steer(member, *steering),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{member, upstream};
    use super::*;
    use crate::gateway::balance::report::MemberState;

    fn down(group: &str, member: &str) -> Finding {
        Finding { group: group.into(), member: member.into(), fact: Fact::IsDown(true) }
    }

    #[test]
    fn a_reload_keeps_what_says_the_same() {
        let groups = Groups::default();
        let first = vec![upstream(vec![member("a"), member("b")])];
        groups.prepare(&first);
        let group = groups.named("app").unwrap();
        groups.learn(&[down("app", "a"), down("other", "b")]);
        assert_eq!(group.report().members.map_states(), [MemberState::Down, MemberState::Up]);

        // Prepared and not taken up: what is in force is named again, and hears what is found meanwhile.
        let second = vec![upstream(vec![member("b"), member("a"), member("c")])];
        groups.prepare(&second);
        groups.learn(&[down("app", "b")]);
        assert_eq!(group.report().members.map_states(), [MemberState::Down; 2]);
        groups.prepare(&first);
        assert!(Arc::ptr_eq(&group, &groups.named("app").unwrap()));
        groups.retain(&first);

        groups.prepare(&second);
        groups.retain(&second);
        let other = groups.named("app").unwrap();
        assert!(!Arc::ptr_eq(&group, &other));
        let expected = [MemberState::Down, MemberState::Down, MemberState::Up];
        assert_eq!(other.report().members.map_states(), expected);
    }

    #[test]
    fn what_was_found_before_a_group_is_there_counts() {
        let groups = Groups::default();
        groups.learn(&[down("app", "a")]);
        groups.prepare(&[upstream(vec![member("a")])]);
        assert_eq!(groups.named("app").unwrap().report().members.map_states(), [MemberState::Down]);
    }

    #[test]
    fn what_one_process_finds_out_holds_in_the_others() {
        let (one, other) = (Groups::default(), Arc::new(Groups::default()));
        let upstreams = [upstream(vec![member("a"), member("b")])];
        other.prepare(&upstreams);
        let told = other.clone();
        one.tell_with(move |finding| told.learn(&[finding]));
        one.prepare(&upstreams);
        let states = |groups: &Groups| groups.named("app").unwrap().report().members.map_states();
        let group = one.named("app").unwrap();
        let report = |outcome| {
            let address = tidegate_io::connect::Address::Unix(std::path::Path::new("/a").into());
            (0..5).for_each(|_| group.on_outcome(0, &group.members[0], &address, outcome));
        };
        report(crate::gateway::balance::Outcome::Failed);
        assert_eq!(states(&one), [MemberState::Ejected, MemberState::Up]);
        assert_eq!(states(&other), [MemberState::Ejected, MemberState::Up]);
        // Never the last one that is left.
        let until = Some(u64::MAX);
        other.learn(&[Finding { group: "app".into(), member: "b".into(), fact: Fact::Ejected(until) }]);
        assert_eq!(states(&other), [MemberState::Ejected, MemberState::Up]);
        report(crate::gateway::balance::Outcome::Answered);
        assert_eq!(states(&one), [MemberState::Up, MemberState::Up]);
        assert_eq!(states(&other), [MemberState::Up, MemberState::Up]);
    }

    trait MapStates {
        fn map_states(&self) -> Vec<MemberState>;
    }

    impl MapStates for Vec<super::super::report::MemberReport> {
        fn map_states(&self) -> Vec<MemberState> {
            self.iter().map(|member| member.state).collect()
        }
    }
}
