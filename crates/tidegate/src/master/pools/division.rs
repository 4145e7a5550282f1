//! How the places of a pool are divided among the server processes: a place is one process's at a time.
//!
//! Each is told how many places it has of each member. One that wants more than it has gets what others do not use: it is taken
//! back from them first, and given on once they have said that nothing of it is in use any more. So no member ever has more
//! requests at once than places, also while a reload replaces a server process that still has requests under way. What a
//! process has that ends is free.
//!
//! Who drains and says nothing for [`SILENCE`], since it is stopped or hangs, is taken to have nothing in use but what it has said last:
//! its successor would wait for as long as that may drain.
//!
//! Where all want more than there is, each has the same part. Where there are fewer places than processes that want one, those
//! have them whose requests have waited longest.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tidegate_modules::gateway::pool_directory::{PoolAddress, PoolDemand, PoolMember};

/// How long a server process that drains may leave what it was told unanswered; one that is well does so within milliseconds, and its
/// successor's requests wait for two seconds where the settings name no other time.
const SILENCE: Duration = Duration::from_millis(1500);

/// The places of one pool.
#[derive(Default)]
pub struct Division {
    /// By the numbers of server processes.
    shares: BTreeMap<u64, Share>,
}

/// What one server process has.
#[derive(Default)]
struct Share {
    /// Of the last division that it was told of, and of the last that it has told to know.
    told: u64,
    known: u64,
    /// Since when it has told nothing new of the divisions that it was told of.
    unanswered_since: Option<Instant>,
    members: BTreeMap<PoolAddress, Part>,
    /// It takes no new connections.
    is_draining: bool,
    /// It uses the pool no more.
    has_let_go: bool,
    /// It has to be told how things are, whether they have changed or not.
    is_untold: bool,
    in_use: usize,
    waiting: usize,
    oldest_wait: Duration,
}

/// What it has of a member.
#[derive(Default, Clone, Copy)]
struct Part {
    /// Places that it was told of last.
    places: usize,
    /// Places that it may be using, by all that it has been told and has said.
    held: usize,
    in_use: usize,
}

impl Share {
    /// Places that count as its own: those that it was told of, and those taken back of which it still makes use.
    fn places(&self) -> usize {
        self.members.values().map(|part| part.places.max(part.in_use)).sum()
    }

    /// Whether it gets what it asks for and nothing in advance.
    fn is_leaving(&self) -> bool {
        self.is_draining || self.has_let_go
    }

    fn wanted(&self) -> usize {
        self.in_use + self.waiting
    }

    /// Whether its next request would have to wait, or one does.
    fn is_out_of_places(&self) -> bool {
        self.waiting > 0 || self.places() <= self.in_use
    }

    /// How many places can be taken back where it should have so many: those in use that were are not asked for again.
    fn surplus(&self, target: usize) -> usize {
        let told: usize = self.members.values().map(|part| part.places).sum();
        let idle: usize = self.members.values().map(|part| part.places.saturating_sub(part.in_use)).sum();
        told.saturating_sub(target).max(idle.min(self.places().saturating_sub(target)))
    }

    /// Takes back so many places, those first that nobody uses.
    fn take_back(&mut self, count: usize) {
        for _ in 0..count {
            let with_places = self.members.values_mut().filter(|part| part.places > 0);
            let Some(part) = with_places.max_by_key(|part| part.places.saturating_sub(part.in_use)) else {
                return;
            };
            part.places -= 1;
        }
    }

    /// What it may be using is what it was told, where it knows that, and what it still has.
    fn settle(&mut self) {
        if self.known == self.told {
            self.unanswered_since = None;
            for part in self.members.values_mut() {
                part.held = part.places.max(part.in_use);
            }
            self.members.retain(|_, part| part.held > 0);
        }
    }
}

impl Division {
    /// The server processes there are, and whether each is draining.
    pub fn set_servers(&mut self, servers: &[(u64, bool)]) {
        self.shares.retain(|id, _| servers.iter().any(|(known, _)| known == id));
        for (id, is_draining) in servers {
            self.shares.entry(*id).or_default().is_draining = *is_draining;
        }
    }

    /// What a server process has said of the pool.
    pub fn hear(&mut self, id: u64, demand: &PoolDemand) {
        let Some(share) = self.shares.get_mut(&id) else { return };
        share.is_untold |= std::mem::take(&mut share.has_let_go);
        if demand.division > share.known {
            share.unanswered_since = None;
        }
        share.known = demand.division;
        share.waiting = demand.demand.waiting;
        share.oldest_wait = demand.demand.oldest_wait;
        share.in_use = 0;
        share.members.values_mut().for_each(|part| part.in_use = 0);
        for member in &demand.members {
            share.in_use += member.in_use;
            let part = share.members.entry(member.address.clone()).or_default();
            part.in_use += member.in_use;
            part.held = part.held.max(part.in_use);
        }
        share.settle();
    }

    /// A server process uses the pool no more. What it has not heard yet it will answer.
    pub fn let_go(&mut self, id: u64) {
        let Some(share) = self.shares.get_mut(&id).filter(|share| share.known == share.told) else { return };
        let Share { told, known, is_draining, .. } = *share;
        *share = Share { told, known, is_draining, has_let_go: true, ..Share::default() };
    }

    /// Whether any server process may have something in use.
    pub fn is_used(&self) -> bool {
        self.shares.values().any(|share| !share.members.is_empty())
    }

    /// Divides these places anew; the server processes for which something has changed.
    pub fn divide(&mut self, members: &[PoolMember], now: Instant) -> Vec<u64> {
        self.go_on_without_silent_ones(now);
        let before: Vec<BTreeMap<PoolAddress, usize>> = self.shares.values().map(told_places).collect();
        self.take_back_what_has_gone(members);
        let targets = self.targets(members.iter().map(|member| member.places).sum());
        self.take_back(members, &targets);
        self.give(members, &targets);
        let mut changed = Vec::new();
        for ((id, share), before) in self.shares.iter_mut().zip(before) {
            if std::mem::take(&mut share.is_untold) || told_places(share) != before {
                share.told += 1;
                changed.push(*id);
            }
            if share.known != share.told {
                share.unanswered_since.get_or_insert(now);
            }
        }
        changed
    }

    /// The number of the division, as a server process is told of it, and its places of a member.
    pub fn of(&self, id: u64) -> (u64, impl Fn(&PoolAddress) -> usize) {
        let share = self.shares.get(&id);
        let places = move |address: &PoolAddress| {
            share.and_then(|share| share.members.get(address)).map_or(0, |part| part.places)
        };
        (share.map_or(0, |share| share.told), places)
    }

    fn go_on_without_silent_ones(&mut self, now: Instant) {
        for share in self.shares.values_mut().filter(|share| share.is_draining) {
            let is_silent =
                share.unanswered_since.is_some_and(|since| now.saturating_duration_since(since) >= SILENCE);
            if is_silent {
                share.known = share.told;
                share.settle();
            }
        }
    }

    /// A member that is left out has no places, and one may have fewer than before.
    fn take_back_what_has_gone(&mut self, members: &[PoolMember]) {
        let places: BTreeMap<&PoolAddress, usize> =
            members.iter().map(|member| (&member.address, member.places)).collect();
        let mut given: BTreeMap<PoolAddress, usize> = BTreeMap::new();
        for share in self.shares.values_mut() {
            for (address, part) in &mut share.members {
                let given = given.entry(address.clone()).or_default();
                part.places = part.places.min(places.get(address).map_or(0, |places| places - *given));
                *given += part.places;
            }
        }
    }

    /// How many places each should have: what it wants as far as there is that for all, and its part of the rest.
    fn targets(&self, total: usize) -> BTreeMap<u64, usize> {
        let mut targets: BTreeMap<u64, usize> = self.shares.keys().map(|id| (*id, 0)).collect();
        let mut wanting: Vec<(u64, &Share)> = self
            .shares
            .iter()
            .filter(|(_, share)| share.wanted() > 0)
            .map(|(id, share)| (*id, share))
            .collect();
        wanting.sort_by_key(|(_, share)| std::cmp::Reverse(share.oldest_wait));
        wanting.truncate(total);
        wanting.sort_by_key(|(_, share)| share.wanted());
        let mut left = total;
        let mut count = wanting.len();
        for (id, share) in wanting {
            let target = share.wanted().min(left / count);
            targets.insert(id, target);
            left -= target;
            count -= 1;
        }
        let staying = || self.shares.iter().filter(|(_, share)| !share.is_leaving()).map(|(id, _)| id);
        let mut count = staying().count();
        for id in staying() {
            let part = left.div_ceil(count);
            *targets.entry(*id).or_default() += part;
            left -= part;
            count -= 1;
        }
        targets
    }

    /// Takes back what others are short of, and all that who leaves does not want.
    fn take_back(&mut self, members: &[PoolMember], targets: &BTreeMap<u64, usize>) {
        let short = |id: &u64, share: &Share| match share.is_out_of_places() {
            true => targets[id].saturating_sub(share.places()),
            false => 0,
        };
        let missing: usize = self.shares.iter().map(|(id, share)| short(id, share)).sum();
        // What nobody has is free already, or will be once those from whom it was taken back have said so.
        let total: usize = members.iter().map(|member| member.places).sum();
        let had: usize = self.shares.values().map(Share::places).sum();
        let mut missing = missing.saturating_sub(total.saturating_sub(had));
        for (id, share) in &mut self.shares {
            let surplus = share.surplus(targets[id]);
            let count = if share.is_leaving() { surplus } else { surplus.min(missing) };
            share.take_back(count);
            missing = missing.saturating_sub(count);
        }
    }

    /// Gives what nobody holds, of each member about the same to all.
    fn give(&mut self, members: &[PoolMember], targets: &BTreeMap<u64, usize>) {
        for member in members {
            let held = |share: &Share| share.members.get(&member.address).map_or(0, |part| part.held);
            let mut free = member.places.saturating_sub(self.shares.values().map(held).sum());
            while free > 0 {
                let gap = |id: &u64, share: &Share| targets[id].saturating_sub(share.places());
                let open = self.shares.iter().filter(|(id, share)| gap(id, share) > 0).count();
                let widest = self.shares.iter_mut().max_by_key(|(id, share)| gap(id, share));
                let Some((id, share)) = widest.filter(|_| open > 0) else { break };
                let count = free.div_ceil(open).min(gap(id, share));
                let part = share.members.entry(member.address.clone()).or_default();
                part.places += count;
                part.held = part.held.max(part.places);
                free -= count;
            }
        }
    }
}

fn told_places(share: &Share) -> BTreeMap<PoolAddress, usize> {
    share
        .members
        .iter()
        .filter(|(_, part)| part.places > 0)
        .map(|(at, part)| (at.clone(), part.places))
        .collect()
}

#[cfg(test)]
mod tests;
