//! A master and server processes whose messages take their time: no member ever has more than its places, and nobody waits
//! while there is a place.

use super::*;
use std::collections::VecDeque;
use tidegate_modules::gateway::places::Demand;
use tidegate_modules::gateway::pool_directory::MemberDemand;

/// A server process as the master sees it.
#[derive(Default)]
struct Server {
    /// What is on its way to it, and from it.
    orders: VecDeque<(u64, BTreeMap<PoolAddress, usize>)>,
    reports: VecDeque<PoolDemand>,
    division: u64,
    places: BTreeMap<PoolAddress, usize>,
    in_use: BTreeMap<PoolAddress, usize>,
    /// When each began to wait.
    waiting: VecDeque<u64>,
    is_draining: bool,
    /// Nothing comes to it or from it.
    is_frozen: bool,
}

impl Server {
    fn serve(&mut self) {
        while !self.waiting.is_empty() {
            let used = |address: &PoolAddress| self.in_use.get(address).copied().unwrap_or_default();
            let free = self.places.iter().find(|(address, places)| used(address) < **places);
            let Some(address) = free.map(|(address, _)| address.clone()) else { return };
            *self.in_use.entry(address).or_default() += 1;
            self.waiting.pop_front();
        }
    }

    fn report(&mut self, now: u64) {
        let member = |(address, in_use): (&PoolAddress, &usize)| MemberDemand {
            address: address.clone(),
            in_use: *in_use,
            requests: 0,
            answered: 0,
            hung: 0,
        };
        let oldest = self.waiting.front().map_or(0, |since| now - since);
        let demand = Demand {
            waiting: self.waiting.len(),
            oldest_wait: Duration::from_millis(oldest),
            ..Demand::default()
        };
        let members = self.in_use.iter().map(member).collect();
        let name = "app".into();
        self.reports.push_back(PoolDemand { name, sequence: 1, division: self.division, demand, members });
    }
}

struct World {
    began: Instant,
    division: Division,
    members: Vec<PoolMember>,
    servers: BTreeMap<u64, Server>,
    now: u64,
}

fn address(port: u16) -> PoolAddress {
    PoolAddress::Tcp(([127, 0, 0, 1], port).into())
}

fn members(places: &[usize]) -> Vec<PoolMember> {
    let member = |(port, places): (u16, &usize)| PoolMember {
        address: address(port),
        places: *places,
        whole: *places,
    };
    (1..).zip(places).map(member).collect()
}

impl World {
    fn new(places: &[usize], servers: u64) -> World {
        let servers = (0..servers).map(|id| (id, Server::default())).collect();
        let (began, division, now) = (Instant::now(), Division::default(), 0);
        let mut world = World { began, division, members: members(places), servers, now };
        world.publish();
        world
    }

    fn instant(&self) -> Instant {
        self.began + Duration::from_millis(self.now)
    }

    fn publish(&mut self) {
        let known: Vec<(u64, bool)> =
            self.servers.iter().map(|(id, server)| (*id, server.is_draining)).collect();
        self.division.set_servers(&known);
        self.division.divide(&self.members, self.instant());
        for (id, _) in known {
            self.tell(id);
        }
    }

    fn tell(&mut self, id: u64) {
        let (number, places) = self.division.of(id);
        let told =
            self.members.iter().map(|member| (member.address.clone(), places(&member.address))).collect();
        self.servers.get_mut(&id).unwrap().orders.push_back((number, told));
    }

    /// The next message to a server process arrives.
    fn order(&mut self, id: u64) {
        let server = self.servers.get_mut(&id).unwrap();
        let Some((number, places)) = server.orders.pop_front() else { return };
        (server.division, server.places) = (number, places);
        server.serve();
        server.report(self.now);
    }

    /// The next message from a server process arrives.
    fn report(&mut self, id: u64) {
        let Some(demand) = self.servers.get_mut(&id).unwrap().reports.pop_front() else { return };
        self.division.hear(id, &demand);
        let now = self.instant();
        for id in self.division.divide(&self.members, now) {
            self.tell(id);
        }
    }

    fn arrive(&mut self, id: u64) {
        let server = self.servers.get_mut(&id).unwrap();
        server.waiting.push_back(self.now);
        server.serve();
        if server.waiting.len() == 1 {
            server.report(self.now);
        }
    }

    fn end(&mut self, id: u64, port: u16) {
        let server = self.servers.get_mut(&id).unwrap();
        if let Some(in_use) = server.in_use.get_mut(&address(port)).filter(|in_use| **in_use > 0) {
            *in_use -= 1;
            server.serve();
        }
    }

    /// All that is on its way arrives, and all report as they do from time to time.
    fn settle(&mut self) {
        for _ in 0..20 {
            self.now += 50;
            let ids: Vec<u64> =
                self.servers.iter().filter(|(_, server)| !server.is_frozen).map(|(id, _)| *id).collect();
            for id in ids {
                while !self.servers[&id].orders.is_empty() || !self.servers[&id].reports.is_empty() {
                    self.order(id);
                    self.report(id);
                }
                self.servers.get_mut(&id).unwrap().report(self.now);
            }
        }
    }

    fn in_use(&self, port: u16) -> usize {
        let used = |server: &Server| server.in_use.get(&address(port)).copied().unwrap_or_default();
        self.servers.values().map(used).sum()
    }

    /// Places that are in use or may be, by what the server processes know.
    fn in_sight(&self, address: &PoolAddress) -> usize {
        let count = |of: &BTreeMap<PoolAddress, usize>| of.get(address).copied().unwrap_or_default();
        self.servers.values().map(|server| count(&server.places).max(count(&server.in_use))).sum()
    }

    fn waiting(&self) -> usize {
        self.servers.values().map(|server| server.waiting.len()).sum()
    }

    fn places(&self, id: u64) -> usize {
        self.servers[&id].places.values().sum()
    }
}

#[test]
fn places_are_divided_among_processes() {
    for (places, servers, expected) in [
        (vec![8], 1, vec![8]),
        (vec![8], 3, vec![3, 3, 2]),
        (vec![1, 1, 1, 1], 2, vec![2, 2]),
        (vec![1], 2, vec![1, 0]),
        (vec![], 2, vec![0, 0]),
    ] {
        let mut world = World::new(&places, servers);
        world.settle();
        let divided: Vec<usize> = (0..servers).map(|id| world.places(id)).collect();
        assert_eq!(divided, expected, "{places:?}");
    }
    let mut world = World::new(&[4, 4], 2);
    world.settle();
    assert_eq!(world.servers[&0].places.values().collect::<Vec<_>>(), [&2, &2], "of each member the same");
}

#[test]
fn what_one_does_not_use_another_gets_at_once() {
    let mut world = World::new(&[1, 1, 1, 1], 2);
    world.settle();
    for _ in 0..5 {
        world.arrive(0);
    }
    world.settle();
    assert_eq!((world.waiting(), world.places(0), world.places(1)), (1, 4, 0));
    // Of what is wanted by both each has its part, as soon as it is free.
    for _ in 0..3 {
        world.arrive(1);
    }
    world.settle();
    assert_eq!((world.waiting(), world.places(0)), (4, 2));
    (1..=4).for_each(|port| world.end(0, port));
    world.settle();
    assert_eq!(
        (world.waiting(), world.in_use(1) + world.in_use(2) + world.in_use(3) + world.in_use(4)),
        (0, 4)
    );
}

#[test]
fn fewer_places_than_processes_go_to_who_has_waited_longest() {
    let mut world = World::new(&[1], 3);
    world.settle();
    let mut served = Vec::new();
    for id in [2, 1, 0, 2] {
        world.arrive(id);
        world.settle();
    }
    for _ in 0..4 {
        let busy = world.servers.iter().find(|(_, server)| server.in_use.values().any(|in_use| *in_use > 0));
        let id = *busy.expect("one is served").0;
        served.push(id);
        world.end(id, 1);
        world.settle();
    }
    assert_eq!(served, [2, 1, 0, 2]);
}

#[test]
fn who_takes_the_place_of_another_gets_what_that_one_has_done_with() {
    let mut world = World::new(&[1, 1], 1);
    world.settle();
    world.arrive(0);
    // A reload: the old process ends what it has.
    world.servers.insert(1, Server::default());
    world.servers.get_mut(&0).unwrap().is_draining = true;
    world.publish();
    world.settle();
    world.arrive(1);
    world.arrive(1);
    world.settle();
    assert_eq!((world.waiting(), world.in_use(1), world.in_use(2)), (1, 1, 1));
    // It is killed: what it had is free.
    world.servers.remove(&0);
    world.publish();
    world.settle();
    assert_eq!((world.waiting(), world.places(1)), (0, 2));
}

#[test]
fn who_drains_and_says_nothing_keeps_what_it_uses_and_no_more() {
    let mut world = World::new(&[2, 2], 1);
    world.settle();
    world.arrive(0);
    world.settle();
    // It is stopped, and replaced by a reload.
    world.servers.insert(1, Server::default());
    let old = world.servers.get_mut(&0).unwrap();
    (old.is_draining, old.is_frozen) = (true, true);
    world.publish();
    for _ in 0..4 {
        world.arrive(1);
    }
    world.settle();
    assert_eq!((world.places(1), world.waiting()), (0, 4), "it may go on in a moment");
    world.now += SILENCE.as_millis() as u64;
    world.settle();
    assert_eq!((world.places(1), world.waiting()), (3, 1));
}

/// Processes of the pool come and go, at addresses that there were before as well, and take fewer requests or more.
#[test]
fn members_that_come_and_go_have_no_more_than_their_places() {
    for seed in 0..300 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let all = members(&[2, 1, 3, 1]);
        let mut world = World::new(&[2, 1, 3, 1], 3);
        // What each may have in use: its places, and more where they became fewer, as long as not everybody has heard.
        let mut most = [2, 1, 3, 1];
        for _ in 0..300 {
            world.now += chance.u64(..5); // nobody is taken for silent
            let id = chance.u64(..3);
            match chance.u8(..20) {
                0..7 => world.arrive(id),
                7..10 => world.end(id, chance.u16(1..=4)),
                10..14 => world.order(id),
                14..18 => world.report(id),
                18 => world.servers.get_mut(&id).unwrap().report(world.now),
                _ => {
                    world.members = all.iter().filter(|_| chance.u8(..4) > 0).cloned().collect();
                    world.members.iter_mut().for_each(|member| member.places = chance.usize(1..=3));
                    world.publish();
                }
            }
            let have_heard = world.servers.values().all(|server| server.orders.is_empty());
            for (member, most) in all.iter().zip(&mut most) {
                let PoolAddress::Tcp(at) = &member.address else { unreachable!() };
                let now = world.members.iter().find(|now| now.address == member.address);
                let (places, in_use) = (now.map_or(0, |now| now.places), world.in_use(at.port()));
                assert!(in_use <= places.max(*most), "{seed}: {at}");
                *most = places.max(if have_heard { world.in_sight(&member.address) } else { *most });
            }
        }
        world.members = all.clone();
        world.publish();
        world.settle();
        let used: usize = (1..=4).map(|port| world.in_use(port)).sum();
        assert!(world.waiting() == 0 || used >= 7, "{seed}: {} wait, {used} are used", world.waiting());
    }
}

#[test]
fn who_has_let_go_of_a_pool_has_no_places_until_it_asks_again() {
    let mut world = World::new(&[4], 2);
    world.settle();
    world.division.let_go(0);
    let now = world.instant();
    for id in world.division.divide(&world.members, now) {
        world.tell(id);
    }
    world.order(1);
    assert_eq!(world.places(1), 4);
    world.servers.insert(0, Server::default());
    world.arrive(0);
    world.settle();
    assert_eq!((world.waiting(), world.places(0), world.places(1)), (0, 3, 1));
}

#[test]
fn no_member_ever_has_more_than_its_places_and_nobody_waits_for_nothing() {
    for seed in 0..300 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let places: Vec<usize> = (0..chance.usize(1..5)).map(|_| chance.usize(1..4)).collect();
        let mut world = World::new(&places, chance.u64(1..4));
        let mut next = 3;
        for _ in 0..300 {
            world.now += chance.u64(..5); // nobody is taken for silent
            let ids: Vec<u64> = world.servers.keys().copied().collect();
            let id = ids[chance.usize(..ids.len())];
            match chance.u8(..20) {
                0..6 => world.arrive(id),
                6..9 => world.end(id, chance.u16(1..=places.len() as u16)),
                9..13 => world.order(id),
                13..17 => world.report(id),
                17 => world.servers.get_mut(&id).unwrap().report(world.now),
                // A process is replaced, or killed.
                18 if ids.len() < 4 && chance.bool() => {
                    world.servers.insert(next, Server::default());
                    world.servers.get_mut(&id).unwrap().is_draining = true;
                    next += 1;
                    world.publish();
                }
                19 if ids.len() > 1 && chance.bool() => {
                    world.servers.remove(&id);
                    world.publish();
                }
                _ => {}
            }
            for (port, places) in (1..).zip(&places) {
                assert!(world.in_use(port) <= *places, "{seed}: member {port}");
            }
        }
        world.settle();
        let free: usize = (1..).zip(&places).map(|(port, places)| places - world.in_use(port)).sum();
        assert!(world.waiting() == 0 || free == 0, "{seed}: {} wait, {free} are free", world.waiting());
    }
}
