//! What upstream groups tell of themselves: by a process, and added up for all of them.

use crate::gateway::places::Demand;
use serde::{Deserialize, Serialize};

/// What has happened in a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Its name.
    pub name: String,
    /// One row for each.
    pub members: Vec<MemberReport>,
    /// Members put aside.
    pub ejections: u64,
    /// Requests tried on a further member.
    pub retries: u64,
    /// The queue before it.
    pub demand: Demand,
}

/// What has happened on a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReport {
    /// As written.
    pub name: String,
    /// How it is.
    pub state: MemberState,
    /// Whether it is asked only when none of the others can be.
    pub is_backup: bool,
    /// What it gets beside the others.
    #[serde(default)]
    pub weight: u32,
    /// Requests under way.
    pub in_use: usize,
    /// Requests given to it.
    pub requests: u64,
    /// Of them, those that failed.
    pub failures: u64,
}

/// How a member is, the better the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberState {
    /// It is given requests.
    Up,
    /// One request will try it.
    Trial,
    /// It has failed requests, and gets none for a while.
    Ejected,
    /// Its name is being looked up.
    Awaited,
    /// Its checks fail, or its name leads nowhere.
    Down,
    /// An operator has it get only those whose cookie names it.
    Draining,
    /// An operator has it get none.
    Paused,
}

impl MemberState {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            MemberState::Up => "up",
            MemberState::Trial => "trial",
            MemberState::Ejected => "ejected",
            MemberState::Awaited => "awaited",
            MemberState::Down => "down",
            MemberState::Draining => "draining",
            MemberState::Paused => "paused",
        }
    }
}

impl GroupReport {
    /// Adds what another process tells of the same group.
    fn merge(&mut self, other: &GroupReport) {
        self.ejections += other.ejections;
        self.retries += other.retries;
        self.demand.merge(&other.demand);
        for theirs in &other.members {
            match self.members.iter_mut().find(|member| member.name == theirs.name) {
                Some(member) => {
                    // Where processes disagree, the worse one is worth knowing.
                    member.state = member.state.max(theirs.state);
                    member.in_use += theirs.in_use;
                    member.requests += theirs.requests;
                    member.failures += theirs.failures;
                }
                None => self.members.push(theirs.clone()),
            }
        }
    }

    /// What stays of it when its process has ended.
    pub fn retire(&mut self) {
        for member in &mut self.members {
            (member.in_use, member.state) = (0, MemberState::Up);
        }
        (self.demand.in_use, self.demand.waiting) = (0, 0);
        self.demand.oldest_wait = Default::default();
    }
}

/// Adds what another process tells.
pub fn merge(all: &mut Vec<GroupReport>, others: &[GroupReport]) {
    for other in others {
        match all.iter_mut().find(|known| known.name == other.name) {
            Some(known) => known.merge(other),
            None => all.push(other.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_added_up() {
        let report = |state, requests| GroupReport {
            name: "app".into(),
            members: vec![MemberReport {
                name: "a:1".into(),
                state,
                is_backup: false,
                weight: 1,
                in_use: 2,
                requests,
                failures: 1,
            }],
            ejections: 1,
            retries: 3,
            demand: Demand::default(),
        };
        let mut all = Vec::new();
        let mut ended = report(MemberState::Down, 5);
        ended.retire();
        merge(&mut all, &[ended]);
        merge(&mut all, &[report(MemberState::Ejected, 7)]);
        merge(&mut all, &[report(MemberState::Up, 9)]);
        let member = &all[0].members[0];
        assert_eq!((member.state, member.in_use, member.requests), (MemberState::Ejected, 4, 21));
        assert_eq!((all.len(), all[0].retries), (1, 9));
    }
}
