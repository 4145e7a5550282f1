//! What the workers of a process share of applications, in one place ([`PoolDirectory`]): pools, groups, the queues before plain
//! addresses, whom connections lead to, and the room for content that is kept.
//!
//! An engine that is built takes what it names from here, and changes nothing that others see. Once it is in force, or given
//! up, [`PoolDirectory::keep`] lets go of what no settings and no request use any more.

use super::balance::groups::Groups;
use super::places::PlacesReport;
use super::pool::OnPressure;
pub use super::pool::{Lease, Pool};
pub use super::pool_messages::{MemberDemand, PoolAddress, PoolDemand, PoolMember, PoolPhase, PoolUpdate};
use super::spill::{Spill, Spills};
use super::upstream::Queues;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use tidegate_client::Peers;
use tidegate_config::Settings;
use tidegate_config::settings;
use tidegate_io::connect::Address;

/// What the workers of a process share of applications. There is one for each process, and no other state of the gateways
/// that outlives an engine.
#[derive(Default)]
pub struct PoolDirectory {
    pools: RwLock<HashMap<String, Arc<Pool>>>,
    groups: Groups,
    queues: Queues,
    spills: Spills,
    peers: Arc<Peers>,
    on_pressure: OnceLock<OnPressure>,
}

impl PoolDirectory {
    /// A directory without pools.
    pub fn new() -> Arc<PoolDirectory> {
        Arc::default()
    }

    /// The queues before plain addresses.
    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Whom connections lead to.
    pub(super) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// The addresses at which requests of this process wait behind idle connections that others may keep.
    pub fn starving(&self) -> Vec<PoolAddress> {
        self.peers.starving().into_iter().map(PoolAddress::from).collect()
    }

    /// Requests of another process wait there: lets go of what is idle.
    pub fn let_go(&self, addresses: Vec<PoolAddress>) {
        self.peers.let_go(&addresses.into_iter().map(Address::from).collect::<Vec<_>>());
    }

    /// Names what is called, on any thread, when requests begin to wait so. Once only.
    pub fn on_starving(&self, call: impl Fn() + Send + Sync + 'static) {
        self.peers.on_starving(call);
    }

    /// Where content waits that has to be complete: the same for all who ask with the same settings.
    pub fn spill(&self, settings: &settings::gateway::Spill) -> Arc<Spill> {
        self.spills.of(settings)
    }

    /// These settings are in force, or stay so: what belongs to none of them goes, but for what requests under way use.
    pub fn keep(&self, settings: &Settings) {
        let is_wanted = |name: &str| settings.pools.iter().any(|pool| pool.name == name);
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|name, pool| is_wanted(name) || Arc::strong_count(pool) > 1);
        drop(pools);
        self.groups.retain(&settings.upstreams);
        self.queues.sweep();
        self.spills.sweep();
    }

    /// How much there is of each kind.
    pub fn held(&self) -> Held {
        Held {
            pools: self.pools.read().unwrap_or_else(PoisonError::into_inner).len(),
            groups: self.groups.report().len(),
            queues: self.queues.count(),
            spills: self.spills.count(),
            peers: self.peers.count(),
        }
    }

    /// The upstream groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The pool of this name. One that nobody has spoken of yet is there as well: requests wait in its
    /// queue until the supervisor says where it listens.
    pub fn pool(&self, name: &str) -> Arc<Pool> {
        if let Some(pool) = self.pools.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return pool.clone();
        }
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let on_pressure = self.on_pressure.get();
        pools.entry(name.to_owned()).or_insert_with(|| Pool::new(name, &self.peers, on_pressure)).clone()
    }

    /// Takes in what the supervisor says.
    pub fn apply(&self, update: PoolUpdate) {
        self.pool(&update.name).apply(update);
    }

    /// What the workers want of each pool, since they were last asked. Of one that is left out they have let go: they take
    /// nothing there.
    pub fn demands(&self) -> Vec<PoolDemand> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        pools.values().map(|pool| pool.demand()).collect()
    }

    /// Names what is called, on any thread, when requests begin to wait before a pool. Once, and before
    /// the first pool is asked for. It must not wait.
    pub fn on_pressure(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_pressure.set(Arc::new(call));
    }

    /// The queues of all pools, by name.
    pub fn report(&self) -> Vec<(String, PoolPhase, PlacesReport)> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        let row = |pool: &Arc<Pool>| (pool.name().to_owned(), pool.phase(), pool.places().report());
        let mut rows: Vec<_> = pools.values().map(row).collect();
        rows.sort_by(|one, two| one.0.cmp(&two.0));
        rows
    }
}

/// What a [`PoolDirectory`] holds, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Pools.
    pub pools: usize,
    /// Upstream groups.
    pub groups: usize,
    /// Queues before plain addresses.
    pub queues: usize,
    /// Rooms for content that is kept.
    pub spills: usize,
    /// Addresses that connections lead to.
    pub peers: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::places::Refused;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    fn update(places: usize, ports: &[u16]) -> PoolUpdate {
        let address = |port: &u16| PoolAddress::Tcp(([127, 0, 0, 1], *port).into());
        PoolUpdate {
            is_supervised: true,
            most_places: 0,
            name: "app".into(),
            sequence: 1,
            division: 0,
            ends_hung: true,
            members: ports
                .iter()
                .map(|port| PoolMember { address: address(port), places, whole: places })
                .collect(),
            unattended: Vec::new(),
            queue_length: 0,
            queue_age: Duration::from_secs(1),
            phase: PoolPhase::Up,
            retry_after: None,
        }
    }

    fn take(pool: &Arc<Pool>) -> Result<Lease, Refused> {
        match pin!(pool.take(1, &[])).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("a queue without room never makes one wait"),
        }
    }

    use std::future::Future;

    #[test]
    fn requests_go_to_the_member_with_the_fewest() {
        let directory = PoolDirectory::default();
        let pool = directory.pool("app");
        directory.apply(update(2, &[1, 2]));
        let leases: Vec<Lease> = (0..4).map(|_| take(&pool).expect("a place")).collect();
        let mut ports: Vec<String> = leases.iter().map(|lease| lease.address().to_string()).collect();
        ports.sort();
        assert_eq!(ports, ["127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:2"]);
        assert!(matches!(take(&pool), Err(Refused::Full { .. })));
        drop(leases);
        // One goes away, one comes: the counts of those that stay are kept.
        let _held = take(&pool).expect("a place");
        directory.apply(update(2, &[2, 3]));
        assert_eq!(pool.addresses().len(), 2);
        assert_eq!(pool.places().in_use(), 1);
    }

    #[test]
    fn who_tries_again_leaves_the_one_that_has_failed() {
        let directory = PoolDirectory::default();
        let pool = directory.pool("app");
        directory.apply(update(2, &[1, 2]));
        let first = take(&pool).expect("a place");
        let left = [first.address().clone()];
        drop(first);
        for _ in 0..3 {
            let Poll::Ready(Ok(lease)) =
                pin!(pool.take(1, &left)).poll(&mut Context::from_waker(Waker::noop()))
            else {
                panic!("a place")
            };
            assert_ne!(lease.address(), &left[0]);
        }
        // Where there is no other, its successor at the same address has it.
        directory.apply(PoolUpdate { sequence: 2, ..update(2, &[1]) });
        let only = [take(&pool).expect("a place").address().clone()];
        assert!(pin!(pool.take(1, &only)).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }

    #[test]
    fn who_leaves_ends_what_it_has_and_costs_nobody_a_place() {
        let directory = PoolDirectory::default();
        let pool = directory.pool("app");
        directory.apply(update(1, &[1, 2]));
        let (one, two) = (take(&pool).expect("a place"), take(&pool).expect("a place"));
        let (one, two) = if one.address().to_string().ends_with(":1") { (one, two) } else { (two, one) };
        directory.apply(PoolUpdate { sequence: 2, ..update(1, &[2, 3]) });
        let demand = &directory.demands()[0];
        assert_eq!((demand.sequence, demand.members.len()), (2, 3));
        assert!(demand.members.iter().all(|member| member.in_use == usize::from(member.requests > 0)));
        let third = take(&pool).expect("the place of the new one");
        assert!(third.address().to_string().ends_with(":3"));
        assert!(take(&pool).is_err());
        drop(one);
        assert!(take(&pool).is_err());
        assert_eq!(directory.demands()[0].members.len(), 2);
        drop(two);
        assert!(take(&pool).is_ok());
    }

    #[test]
    fn places_that_are_taken_back_are_not_used_again() {
        let directory = PoolDirectory::default();
        let pool = directory.pool("app");
        directory.apply(update(1, &[1, 2]));
        let first = take(&pool).expect("a place");
        let mut divided = PoolUpdate { division: 1, ..update(1, &[1, 2]) };
        for member in &mut divided.members {
            member.places = usize::from(Address::from(member.address.clone()) != *first.address());
        }
        directory.apply(divided);
        let second = take(&pool).expect("the other keeps its place");
        assert_ne!(first.address(), second.address());
        drop(first);
        assert!(take(&pool).is_err(), "another server process may have it by now");
        let demand = &directory.demands()[0];
        assert_eq!((demand.division, demand.demand.in_use), (1, 1));
        drop(second);
        assert!(take(&pool).is_ok());
    }

    #[test]
    fn who_may_be_at_work_for_nobody_is_taken_last() {
        let directory = PoolDirectory::default();
        let pool = directory.pool("app");
        directory.apply(update(1, &[1, 2]));
        let left = take(&pool).expect("a place");
        let abandoned = left.address().clone();
        drop(left);
        let other = take(&pool).expect("a place");
        assert_ne!(*other.address(), abandoned, "the other one is free");
        let last = take(&pool).expect("a place");
        assert_eq!(*last.address(), abandoned);
        last.answered();
        drop((last, other));
        let next = take(&pool).expect("a place");
        assert_eq!(*next.address(), abandoned, "it has answered since, and the other has not");
    }

    /// One that takes several at once is not left out for the one that was given up.
    #[test]
    fn who_goes_on_beside_such_work_has_its_part() {
        let directory = PoolDirectory::default();
        let pool = directory.pool("app");
        directory.apply(update(8, &[1, 2]));
        drop(take(&pool).expect("a place"));
        let taken: Vec<_> = (0..8).map(|_| take(&pool).expect("a place")).collect();
        let first = taken.iter().filter(|lease| lease.address() == taken[0].address()).count();
        assert_eq!(first, 4);
    }

    #[test]
    fn who_has_not_answered_gets_no_further_request_where_it_is_ended() {
        for ends_hung in [true, false] {
            let directory = PoolDirectory::default();
            let pool = directory.pool("app");
            directory.apply(PoolUpdate { ends_hung, ..update(2, &[1]) });
            let (one, _other) = (take(&pool).expect("a place"), take(&pool).expect("a place"));
            one.hung();
            assert_eq!(take(&pool).is_ok(), !ends_hung);
            // What serves there when it has gone is another.
            directory.apply(PoolUpdate { sequence: 2, ..update(2, &[]) });
            directory.apply(PoolUpdate { sequence: 3, ends_hung, ..update(2, &[1]) });
            assert!(take(&pool).is_ok());
            assert!(directory.demands()[0].members.iter().all(|member| member.hung == 0));
        }
    }

    #[test]
    fn who_waits_for_a_member_hears_when_nobody_accepts_there_any_more() {
        let directory = PoolDirectory::default();
        let pool = directory.pool("app");
        directory.apply(update(1, &[1, 2]));
        let leases = [take(&pool).expect("a place"), take(&pool).expect("a place")];
        let watches = leases.each_ref().map(Lease::attended);
        let is_left = |at: usize| watches[at].poll_left(&mut Context::from_waker(Waker::noop())).is_ready();
        let first = usize::from(leases[1].address().to_string().ends_with(":1"));
        // One that is drained goes on with what it has.
        directory.apply(PoolUpdate { sequence: 2, ..update(1, &[2]) });
        assert!(!is_left(0) && !is_left(1));
        let unattended = vec![PoolAddress::Tcp(([127, 0, 0, 1], 1).into())];
        directory.apply(PoolUpdate { sequence: 3, unattended, ..update(1, &[2]) });
        assert!(is_left(first) && !is_left(1 - first));
        // Its successor at the address is another, and takes nothing of it over.
        directory.apply(PoolUpdate { sequence: 4, ..update(1, &[1, 2]) });
        assert!(is_left(first) && !is_left(1 - first));
        let next = take(&pool).expect("the place of the successor");
        assert!(next.attended().poll_left(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    #[test]
    fn a_pool_that_is_down_says_so_at_once() {
        let directory = PoolDirectory::default();
        let pool = directory.pool("app");
        let retry_after = Some(Duration::from_secs(7));
        directory.apply(PoolUpdate { phase: PoolPhase::Failing, retry_after, ..update(0, &[]) });
        assert_eq!(take(&pool).err().map(|refused| refused.retry_after_seconds()), Some(7));
        directory.apply(update(1, &[1]));
        assert!(take(&pool).is_ok());
        let nothing = tidegate_config::from_folder("/".as_ref(), &[]).expect("sound settings");
        directory.keep(&nothing);
        assert_eq!(directory.demands().len(), 1, "requests under way use it");
        drop(pool);
        directory.keep(&nothing);
        assert!(directory.demands().is_empty());
    }

    #[test]
    fn messages_survive_the_link() {
        let update = PoolUpdate { retry_after: Some(Duration::from_millis(1500)), ..update(2, &[9]) };
        let text = serde_json::to_string(&update).expect("can be written");
        assert_eq!(serde_json::from_str::<PoolUpdate>(&text).expect("can be read"), update);
        let directory = PoolDirectory::default();
        directory.apply(update.clone());
        let demand = directory.demands().remove(0);
        let text = serde_json::to_string(&demand).expect("can be written");
        assert_eq!(serde_json::from_str::<PoolDemand>(&text).expect("can be read"), demand);
    }
}
