//! The pools of the server: the supervisor beside the master's thread, and its link to the directory of every server
//! process.
//!
//! What the supervisor says goes to all of them, with the places of a pool divided among them ([`division`]); what they want
//! is added up before the supervisor hears it, and moves places from one to the other.

mod division;

use crate::descriptors;
use crate::link::{Link, ToServer};
use anyhow::{Context, Result};
use division::Division;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tidegate_config::Settings;
use tidegate_modules::gateway::places::Demand;
use tidegate_modules::gateway::pool_directory::{PoolDemand, PoolUpdate};
use tidegate_modules::gateway::supervise::status::PoolStatus;
use tidegate_modules::gateway::supervise::{Clients, Ends, Supervisor, User};

/// The supervisor and whom it speaks to.
pub struct Pools {
    supervisor: Supervisor,
    subscribers: Arc<Mutex<Subscribers>>,
}

#[derive(Default)]
struct Subscribers {
    /// What was said of each pool last: a process that starts hears it as well.
    updates: BTreeMap<String, PoolUpdate>,
    /// How the places of each are divided.
    divisions: BTreeMap<String, Division>,
    servers: Vec<Listener>,
    /// Of each pool, what server processes have counted that have ended: a count never falls.
    past: BTreeMap<String, Demand>,
}

/// A server process that is told of pools.
pub struct Served {
    /// Its number.
    pub id: u64,
    /// Its process.
    pub pid: u32,
    /// The user that it runs as, where it is not this one.
    pub user: Option<User>,
    /// The way to it.
    pub link: Arc<Link>,
    /// It finishes what is open, and counts no more when places are divided.
    pub is_draining: bool,
}

struct Listener {
    served: Served,
    demands: HashMap<String, PoolDemand>,
}

impl Listener {
    /// Takes in what it wants of all pools, and names those of which it says something new. Of those that it no longer names it
    /// has let go: it takes nothing there, whatever it has been told last.
    fn hear(&mut self, demands: Vec<PoolDemand>) -> Vec<String> {
        let mut news = Vec::new();
        for (name, known) in &mut self.demands {
            if known.sequence < u64::MAX && !demands.iter().any(|demand| demand.name == *name) {
                known.sequence = u64::MAX;
                known.members.clear();
                known.demand = known.demand.counts();
                news.push(name.clone());
            }
        }
        for demand in demands {
            if self.demands.get(&demand.name) != Some(&demand) {
                news.push(demand.name.clone());
                self.demands.insert(demand.name.clone(), demand);
            }
        }
        news
    }

    /// Tells it how a pool is, with its own places.
    fn tell(&self, update: &PoolUpdate, division: &Division) {
        let mut own = update.clone();
        let (number, places) = division.of(self.served.id);
        own.division = number;
        for member in &mut own.members {
            member.places = places(&member.address);
        }
        self.served.link.order(&ToServer::Pool(own), Vec::new());
    }
}

impl Pools {
    /// Starts the supervisor, without pools. `clients` is the user that server processes run as, where it is
    /// not this one: it is given the sockets.
    pub fn start(clients: Option<User>) -> Result<Arc<Pools>> {
        let subscribers = Arc::new(Mutex::new(Subscribers::default()));
        let told = subscribers.clone();
        let publish = Box::new(move |update: PoolUpdate| {
            lock(&told).publish(update);
        });
        let ends = Ends { publish, demands: None, clients: Clients::of(clients) };
        let supervisor = Supervisor::start(ends).context("cannot start the supervisor of pools")?;
        Ok(Arc::new(Pools { supervisor, subscribers }))
    }

    /// Takes up the pools of a revision.
    pub fn adopt(&self, settings: &Settings) {
        self.supervisor.set_patience(settings.drain_timeout);
        self.supervisor.keep_back(descriptors::kept_back(settings));
        let is_there = |name: &str| settings.pools.iter().any(|pool| pool.name == name);
        let mut subscribers = lock(&self.subscribers);
        subscribers.updates.retain(|name, _| is_there(name));
        subscribers.past.retain(|name, _| is_there(name));
        // Should it come again, what is in use of it still counts.
        subscribers.divisions.retain(|name, division| is_there(name) || division.is_used());
        drop(subscribers);
        self.supervisor.adopt(&settings.pools);
    }

    /// The server processes there are. New ones hear how things stand.
    pub fn set_servers(&self, servers: Vec<Served>) {
        let what = |served: &Served| (served.id, served.is_draining);
        let is_same = |known: &Subscribers| {
            known.servers.iter().map(|known| what(&known.served)).eq(servers.iter().map(what))
        };
        if is_same(&lock(&self.subscribers)) {
            return;
        }
        let mut users: Vec<User> = Vec::new();
        for user in servers.iter().rev().filter_map(|served| served.user) {
            if !users.contains(&user) {
                users.push(user);
            }
        }
        // Before a process is told that it may serve, so that it reaches what it connects to. Where there is none at the
        // moment, the next is likely of the same user. No lock is held: a file system may hang, and the supervisor publishes.
        if !users.is_empty() {
            self.supervisor.set_clients(users);
        }
        self.supervisor.set_servers(servers.iter().map(|served| served.pid).collect());
        lock(&self.subscribers).replace(servers);
    }

    /// What a server process wants.
    pub fn heard(&self, id: u64, demands: Vec<PoolDemand>) {
        let mut subscribers = lock(&self.subscribers);
        subscribers.hear(id, demands);
        let all = subscribers.demands();
        drop(subscribers);
        self.supervisor.report(all);
    }

    /// Replaces the processes of a pool; whether it is one that is run here.
    pub fn restart(&self, name: &str) -> bool {
        self.supervisor.restart(name)
    }

    /// How they stand.
    pub fn status(&self) -> Vec<PoolStatus> {
        self.supervisor.status()
    }

    /// Ends their processes, and waits for that.
    pub fn end(&self) {
        self.supervisor.end();
    }
}

impl Subscribers {
    /// The supervisor says how a pool is.
    fn publish(&mut self, update: PoolUpdate) {
        let Subscribers { updates, divisions, servers, .. } = self;
        let division = divisions.entry(update.name.clone()).or_default();
        division.set_servers(&numbers(servers));
        division.divide(&update.members, Instant::now());
        for listener in servers.iter() {
            listener.tell(&update, division);
        }
        updates.insert(update.name.clone(), update);
    }

    /// A server process says what it wants. What others have to give for that, or get by that, they are told.
    fn hear(&mut self, id: u64, demands: Vec<PoolDemand>) {
        let Subscribers { updates, divisions, servers, .. } = self;
        let Some(listener) = servers.iter_mut().find(|listener| listener.served.id == id) else { return };
        let news: Vec<String> = listener.hear(demands);
        for name in news {
            let Some(listener) = servers.iter().find(|listener| listener.served.id == id) else { return };
            let Some(division) = divisions.get_mut(&name) else { continue };
            match listener.demands.get(&name) {
                Some(demand) if demand.sequence < u64::MAX => division.hear(id, demand),
                _ => division.let_go(id),
            }
            let Some(update) = updates.get(&name) else { continue };
            let changed = division.divide(&update.members, Instant::now());
            for listener in servers.iter().filter(|listener| changed.contains(&listener.served.id)) {
                listener.tell(update, division);
            }
        }
    }

    /// These take the place of those that there are. Of those that go, what they have counted stays.
    fn replace(&mut self, servers: Vec<Served>) {
        let mut before = std::mem::take(&mut self.servers);
        for served in servers {
            let known = before.iter_mut().find(|known| known.served.id == served.id);
            let demands = known.map(|known| std::mem::take(&mut known.demands)).unwrap_or_default();
            self.servers.push(Listener { served, demands });
        }
        for (name, told) in before.into_iter().flat_map(|gone| gone.demands) {
            if self.updates.contains_key(&name) {
                self.past.entry(name).or_default().merge(&told.demand.counts());
            }
        }
        for update in self.updates.values().cloned().collect::<Vec<_>>() {
            self.publish(update);
        }
    }

    /// What all processes want of each pool. It is known to all only as far as the last of them knows it.
    fn demands(&self) -> Vec<PoolDemand> {
        let mut all: BTreeMap<&str, PoolDemand> = BTreeMap::new();
        for name in self.updates.keys() {
            let told: Vec<Option<&PoolDemand>> =
                self.servers.iter().map(|listener| listener.demands.get(name)).collect();
            for demand in told.iter().flatten() {
                match all.get_mut(name.as_str()) {
                    None => drop(all.insert(name, (*demand).clone())),
                    Some(sum) => sum.merge(demand),
                }
            }
            if let Some(sum) = all.get_mut(name.as_str()) {
                if told.iter().any(Option::is_none) {
                    sum.sequence = 0;
                }
                if let Some(past) = self.past.get(name) {
                    sum.demand.merge(past);
                }
            }
        }
        all.into_values().collect()
    }
}

/// The numbers of server processes, and whether each is draining.
fn numbers(servers: &[Listener]) -> Vec<(u64, bool)> {
    servers.iter().map(|Listener { served, .. }| (served.id, served.is_draining)).collect()
}

fn lock(subscribers: &Mutex<Subscribers>) -> MutexGuard<'_, Subscribers> {
    subscribers.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::ToMaster;
    use rustix::net::SendFlags;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use tidegate_io::passing;
    use tidegate_modules::gateway::pool_directory::PoolPhase;
    use tidegate_testkit::receive;

    fn update(name: &str) -> PoolUpdate {
        PoolUpdate {
            is_supervised: true,
            most_places: 0,
            name: name.into(),
            sequence: 1,
            division: 0,
            members: Vec::new(),
            ends_hung: true,
            unattended: Vec::new(),
            queue_length: 0,
            queue_age: Duration::ZERO,
            phase: PoolPhase::Up,
            retry_after: None,
        }
    }

    /// It would send requests to members that are gone.
    #[test]
    fn a_process_that_misses_how_a_pool_is_does_not_go_on_without() {
        let (ours, _theirs) = passing::pair().unwrap();
        while rustix::net::send(&ours, &[0], SendFlags::DONTWAIT).is_ok() {}
        let (ended, has_ended) = channel();
        let heard = |_: &Arc<Link>, _: ToMaster, _| {};
        let link = Link::start(ours, heard, move |outcome| ended.send(outcome.is_err()).unwrap()).unwrap();
        while link.send(&ToServer::Discard, Vec::new()) {}
        let served = Served { id: 1, pid: 1, user: None, link, is_draining: false };
        let servers = vec![Listener { served, demands: HashMap::new() }];
        let mut subscribers = Subscribers { servers, ..Subscribers::default() };
        let update = update("app");
        // The thread that writes may take one more before it waits for good: then there is room for one of these.
        subscribers.publish(update.clone());
        subscribers.publish(update);
        assert!(receive(&has_ended, "the end of the link"));
    }

    /// A process that was killed takes nothing of what was counted along: to Prometheus it would be as many new requests.
    #[test]
    fn what_a_process_has_counted_stays_when_it_has_ended() {
        let served = |id| {
            let (ours, _theirs) = passing::pair().unwrap();
            let link = Link::start(ours, |_: &Arc<Link>, _: ToMaster, _| {}, |_| {}).unwrap();
            Served { id, pid: 1, user: None, link, is_draining: false }
        };
        let mut subscribers = Subscribers::default();
        subscribers.updates.insert("app".into(), update("app"));
        subscribers.replace(vec![served(1), served(2)]);
        let tell = |subscribers: &mut Subscribers, index: usize, requests| {
            let demand = Demand { requests, in_use: 1, refused_full: 2, ..Demand::default() };
            let told =
                PoolDemand { name: "app".into(), sequence: 1, division: 0, demand, members: Vec::new() };
            subscribers.servers[index].demands.insert("app".into(), told);
        };
        tell(&mut subscribers, 0, 10);
        tell(&mut subscribers, 1, 5);
        let sum = |subscribers: &Subscribers| {
            let [told] = &subscribers.demands()[..] else { panic!("one pool is told of") };
            (told.demand.requests, told.demand.refused_full, told.demand.in_use)
        };
        assert_eq!(sum(&subscribers), (15, 4, 2));
        subscribers.replace(vec![served(2), served(3)]);
        assert_eq!(sum(&subscribers), (15, 4, 1));
        tell(&mut subscribers, 1, 1);
        assert_eq!(sum(&subscribers), (16, 6, 2));
    }

    /// Its settings no longer have the pool, and it may have forgotten it before it could say that it knows the last update.
    #[test]
    fn who_has_let_go_of_a_pool_holds_up_no_end_of_its_processes() {
        let (ours, _theirs) = passing::pair().unwrap();
        let link = Link::start(ours, |_: &Arc<Link>, _: ToMaster, _| {}, |_| {}).unwrap();
        let served = Served { id: 1, pid: 1, user: None, link, is_draining: false };
        let mut subscribers = Subscribers::default();
        subscribers.updates.insert("app".into(), update("app"));
        subscribers.replace(vec![served]);
        let demand = Demand { requests: 3, in_use: 1, ..Demand::default() };
        let told = PoolDemand { name: "app".into(), sequence: 1, division: 0, demand, members: Vec::new() };
        subscribers.servers[0].hear(vec![told]);
        let heard = |subscribers: &Subscribers| {
            let [told] = &subscribers.demands()[..] else { panic!("one pool is told of") };
            (told.sequence, told.demand.in_use, told.demand.requests)
        };
        assert_eq!(heard(&subscribers), (1, 1, 3));
        subscribers.servers[0].hear(Vec::new());
        assert_eq!(heard(&subscribers), (u64::MAX, 0, 3));
    }
}
