//! Groups: turns, places, backups, ejections, names that are looked up.

use super::*;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tidegate_config::settings::Origin;
use tidegate_config::settings::pool::Queue;
use tidegate_config::settings::upstream::{self, HashKey, MemberAddress, Retry};

pub(super) fn member(name: &str) -> upstream::Member {
    upstream::Member {
        name: name.to_owned(),
        address: MemberAddress::Tcp(address(name)),
        weight: 1,
        is_backup: false,
        places: None,
        origin: Origin::default(),
    }
}

pub(super) fn upstream(members: Vec<upstream::Member>) -> Upstream {
    Upstream {
        name: "app".to_owned(),
        members,
        balance: Balance::RoundRobin,
        sticky: None,
        queue: Queue { length: 4, age: Duration::MAX },
        check: None,
        eject: Eject { failures: Some(2), time: Duration::from_secs(10), most: Duration::from_secs(300) },
        slow_start: Duration::ZERO,
        retry: Retry { times: 2, budget: 10 },
        hooks: Vec::new(),
        origin: Origin::default(),
    }
}

fn address(name: &str) -> SocketAddr {
    ([127, 0, 0, 1], 9_000 + u16::from(name.as_bytes()[0])).into()
}

fn named(name: &str) -> upstream::Member {
    let address = MemberAddress::Name { host: name.to_owned(), port: 80 };
    upstream::Member { address, ..member(name) }
}

fn group(members: Vec<upstream::Member>) -> Arc<Group> {
    patient(upstream(members))
}

/// A group before which one may wait for ever: the tests have no clock.
fn patient(settings: Upstream) -> Arc<Group> {
    let group = Group::new(settings, None);
    group.places.set_limits(PlaceLimits { queue_age: None, ..group.places.limits() });
    group
}

/// Takes a lease that is there at once.
fn take(group: &Arc<Group>, balance_key: BalanceKey, tried: &Tried) -> Result<Lease, Refused> {
    match pin!(group.take(balance_key, tried)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}

fn taken(group: &Arc<Group>) -> Lease {
    take(group, BalanceKey::default(), &Tried::default()).unwrap()
}

fn names(group: &Arc<Group>, count: usize) -> String {
    let one = |_| {
        let mut lease = taken(group);
        lease.answered();
        lease.member.name().to_owned()
    };
    (0..count).map(one).collect()
}

fn states(group: &Group) -> Vec<MemberState> {
    group.report().members.iter().map(|member| member.state).collect()
}

#[test]
fn members_take_turns() {
    assert_eq!(names(&group(vec![member("a"), member("b"), member("c")]), 6), "abcabc");
}

#[test]
fn a_failing_member_is_put_aside_and_the_last_one_never() {
    let group = group(vec![member("a"), member("b")]);
    for _ in 0..8 {
        let mut lease = taken(&group);
        if lease.member.name() == "a" {
            lease.failed(&mut Tried::default());
        } else {
            lease.answered();
        }
    }
    assert_eq!(states(&group), [MemberState::Ejected, MemberState::Up]);
    assert_eq!(group.report().ejections, 1);
    assert_eq!(names(&group, 3), "bbb");
    for _ in 0..8 {
        taken(&group).failed(&mut Tried::default());
    }
    assert_eq!(states(&group), [MemberState::Ejected, MemberState::Up], "there is nobody else");
}

#[test]
fn backups_stand_in() {
    let backup = upstream::Member { is_backup: true, ..member("z") };
    let group = group(vec![member("a"), backup]);
    assert_eq!(names(&group, 3), "aaa");
    group.set_down(&group.members[0], true);
    assert_eq!(names(&group, 3), "zzz");
    group.set_down(&group.members[1], true);
    assert!(matches!(take(&group, BalanceKey::default(), &Tried::default()), Err(Refused::Down { .. })));
    group.set_down(&group.members[0], false);
    assert_eq!(names(&group, 1), "a");
}

#[test]
fn a_retry_goes_elsewhere_and_the_budget_ends_it() {
    let never = Eject { failures: None, time: Duration::ZERO, most: Duration::ZERO };
    let members = vec![member("a"), member("b"), member("c")];
    let group = Group::new(Upstream { eject: never, ..upstream(members) }, None);
    let sent = |is_sent: bool| {
        let mut sent = 0;
        for _ in 0..1_000 {
            let mut tried = Tried::default();
            loop {
                let mut lease = take(&group, BalanceKey::default(), &tried).unwrap();
                assert!(!tried.0.iter().any(|(index, _)| *index == lease.index));
                sent += 1;
                lease.failed(&mut tried);
                drop(lease);
                if !group.may_retry(&tried, is_sent) {
                    break;
                }
            }
            assert!(tried.0.len() <= 3);
        }
        sent
    };
    let with_budget = sent(true);
    assert!((1_001..=1_110).contains(&with_budget), "{with_budget}");
    assert_eq!(sent(false), 3_000, "who could not be reached has had no work of it");
}

#[test]
fn a_cookie_and_a_key_decide() {
    let group = group(vec![member("a"), member("b"), member("c")]);
    let tag = Some(group.tag(&group.members[1]));
    for _ in 0..4 {
        let balance_key = BalanceKey { tag, ..BalanceKey::default() };
        assert_eq!(take(&group, balance_key, &Tried::default()).unwrap().member.name(), "b");
    }
    let settings = Upstream {
        balance: Balance::Hash { key: HashKey::Path, percent: None },
        ..upstream(vec![member("a"), member("b")])
    };
    let hashed = Group::new(settings, None);
    let balance_key = BalanceKey { key: 7, ..BalanceKey::default() };
    let first = take(&hashed, balance_key, &Tried::default()).unwrap().index;
    for _ in 0..8 {
        assert_eq!(take(&hashed, balance_key, &Tried::default()).unwrap().index, first);
    }
}

#[test]
fn a_hot_key_gets_further_members_and_comes_back() {
    let balance = Balance::Hash { key: HashKey::Url, percent: Some(125) };
    let group =
        Group::new(Upstream { balance, ..upstream(vec![member("a"), member("b"), member("c")]) }, None);
    let balance_key = BalanceKey { key: 7, ..BalanceKey::default() };
    let one = || take(&group, balance_key, &Tried::default()).unwrap();
    let first = one().index;
    let in_hand: Vec<Lease> = (0..60).map(|_| one()).collect();
    let mut counts = [0; 3];
    in_hand.iter().for_each(|lease| counts[lease.index] += 1);
    assert!(counts.iter().all(|count| (10..=25).contains(count)), "{counts:?}");
    assert_eq!(counts[first], 25, "most are where it belongs");
    drop(in_hand);
    assert_eq!(one().index, first);
}

#[test]
fn who_waits_gets_the_first_place_that_comes_free() {
    let small = |name: &str| upstream::Member { places: Some(1), ..member(name) };
    let group = group(vec![small("a"), small("b")]);
    let first = taken(&group);
    let second = taken(&group);
    assert_eq!((first.member.name(), second.member.name()), ("a", "b"));
    let tried = Tried::default();
    let mut third = pin!(group.take(BalanceKey::default(), &tried));
    let mut context = Context::from_waker(Waker::noop());
    assert!(third.as_mut().poll(&mut context).is_pending());
    drop(second);
    let Poll::Ready(Ok(third)) = third.as_mut().poll(&mut context) else { panic!("no place") };
    assert_eq!(third.member.name(), "b", "a is full");
    drop(third);
    assert_eq!(names(&group, 3), "bbb");
    drop(first);
}

#[test]
fn a_member_that_is_put_aside_takes_its_places_along() {
    let small = |name: &str| upstream::Member { places: Some(1), ..member(name) };
    let rules = Eject { failures: Some(1), ..upstream(Vec::new()).eject };
    let group = patient(Upstream { eject: rules, ..upstream(vec![small("a"), small("b")]) });
    taken(&group).failed(&mut Tried::default());
    let lease = taken(&group);
    assert_eq!(lease.member.name(), "b");
    let tried = Tried::default();
    assert!(
        pin!(group.take(BalanceKey::default(), &tried))
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    // When its time is over somebody may try it.
    group.members[0].set_down(false, 0);
    group.fit_places(u64::MAX - 1);
    assert_eq!(group.places.limits().places, 2);
    drop(lease);
}

#[test]
fn a_name_is_waited_for_until_it_is_looked_up() {
    let group = group(vec![named("n")]);
    let tried = Tried::default();
    let mut waits = pin!(group.take(BalanceKey::default(), &tried));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    assert_eq!(states(&group), [MemberState::Awaited]);
    group.set_addresses(&group.members[0], &[address("n")]);
    let Poll::Ready(Ok(lease)) = waits.as_mut().poll(&mut context) else { panic!("no place") };
    assert_eq!(lease.address(), &Address::Tcp(address("n")));
    group.set_addresses(&group.members[0], &[]);
    assert!(matches!(take(&group, BalanceKey::default(), &tried), Err(Refused::Down { .. })));
}

#[test]
fn a_member_without_an_address_is_passed_over() {
    let group = group(vec![named("n"), member("b")]);
    assert_eq!(names(&group, 2), "bb");
    group.set_addresses(&group.members[0], &[]);
    assert_eq!(names(&group, 2), "bb");
    group.set_addresses(&group.members[0], &[address("n")]);
    assert_eq!(names(&group, 4).matches('n').count(), 2);
}

#[test]
fn of_several_addresses_the_dead_one_is_passed_over() {
    let group = group(vec![named("n")]);
    let (dead, alive) = (Address::Tcp(address("d")), Address::Tcp(address("e")));
    group.set_addresses(&group.members[0], &[address("d"), address("e")]);
    let mut failures = 0;
    for _ in 0..10 {
        let mut tried = Tried::default();
        let mut lease = take(&group, BalanceKey::default(), &tried).unwrap();
        if lease.address() == &dead {
            failures += 1;
            lease.failed(&mut tried);
            assert!(group.may_retry(&tried, false));
            drop(lease);
            lease = take(&group, BalanceKey::default(), &tried).unwrap();
        }
        assert_eq!(lease.address(), &alive);
        lease.answered();
    }
    assert_eq!((failures, states(&group)), (1, vec![MemberState::Up]));
}

#[test]
fn one_request_that_may_be_repeated_tries_a_member_that_was_ill() {
    let at_once = Eject { failures: Some(1), time: Duration::ZERO, most: Duration::ZERO };
    let group = Group::new(Upstream { eject: at_once, ..upstream(vec![member("a"), member("b")]) }, None);
    let mut lease = taken(&group);
    assert_eq!(lease.member.name(), "a");
    lease.failed(&mut Tried::default());
    drop(lease);
    assert_eq!(names(&group, 2), "bb", "what may not be repeated does not try");
    let balance_key = BalanceKey { may_repeat: true, ..BalanceKey::default() };
    let mut lease = take(&group, balance_key, &Tried::default()).unwrap();
    assert_eq!(lease.member.name(), "a");
    lease.answered();
    assert_eq!(states(&group), [MemberState::Up; 2]);
}
