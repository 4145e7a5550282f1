use super::*;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

fn member(name: &str) -> MemberSettings {
    let port = 9_000 + u16::from(name.as_bytes()[0]);
    MemberSettings {
        name: name.to_owned(),
        addresses: vec![Address::Tcp(([127, 0, 0, 1], port).into())],
        weight: 1,
        is_backup: false,
        places: None,
    }
}

fn settings(members: Vec<MemberSettings>) -> GroupSettings {
    GroupSettings {
        name: "app".to_owned(),
        members,
        policy: Policy::RoundRobin,
        rules: Rules { failures: Some(2), ..Rules::default() },
        queue_length: 4,
        queue_age: Duration::from_secs(1),
        retries: 2,
        retry_budget: 10,
        kept_connections: 8,
    }
}

/// Takes a lease that is there at once.
fn take(group: &Arc<Group>, wish: Wish<'_>, tried: &Tried) -> Result<Lease, Refused> {
    match pin!(group.take(wish, tried)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}

fn names(group: &Arc<Group>, count: usize) -> String {
    let one = |_| {
        let mut lease = take(group, Wish::default(), &Tried::default()).unwrap();
        lease.answered();
        lease.member.name().to_owned()
    };
    (0..count).map(one).collect()
}

#[test]
fn members_take_turns() {
    let group = Group::new(settings(vec![member("a"), member("b"), member("c")]));
    assert_eq!(names(&group, 6), "abcabc");
}

#[test]
fn a_failing_member_is_put_aside_and_the_last_one_never() {
    let group = Group::new(settings(vec![member("a"), member("b")]));
    for _ in 0..8 {
        let mut lease = take(&group, Wish::default(), &Tried::default()).unwrap();
        if lease.member.name() == "a" {
            lease.failed(&mut Tried::default());
        } else {
            lease.answered();
        }
    }
    assert_eq!(group.report().members[0].state, "ejected");
    assert_eq!(group.report().ejections, 1);
    assert_eq!(names(&group, 3), "bbb");
    for _ in 0..8 {
        take(&group, Wish::default(), &Tried::default()).unwrap().failed(&mut Tried::default());
    }
    assert_eq!(group.report().members[1].state, "up", "there is nobody else");
}

#[test]
fn backups_stand_in() {
    let backup = MemberSettings { is_backup: true, ..member("z") };
    let group = Group::new(settings(vec![member("a"), backup]));
    assert_eq!(names(&group, 3), "aaa");
    for _ in 0..3 {
        group.on_check(0, false);
    }
    assert_eq!(names(&group, 3), "zzz");
    for _ in 0..3 {
        group.on_check(1, false);
    }
    assert!(matches!(take(&group, Wish::default(), &Tried::default()), Err(Refused::Down { .. })));
    for _ in 0..2 {
        group.on_check(0, true);
    }
    assert_eq!(names(&group, 1), "a");
}

#[test]
fn a_retry_goes_elsewhere_and_the_budget_ends_it() {
    let group = Group::new(GroupSettings {
        rules: Rules { failures: None, ..Rules::default() },
        ..settings(vec![member("a"), member("b"), member("c")])
    });
    let (mut sent, mut first_tries) = (0, 0);
    for _ in 0..1_000 {
        let mut tried = Tried::default();
        first_tries += 1;
        loop {
            let mut lease = take(&group, Wish::default(), &tried).unwrap();
            assert!(!tried.0.contains(&lease.index));
            sent += 1;
            lease.failed(&mut tried);
            drop(lease);
            if !group.may_retry(&tried) {
                break;
            }
        }
        assert!(tried.count() <= 3);
    }
    assert!(sent <= first_tries * 11 / 10 + 10, "{sent} of {first_tries}");
    assert!(sent > first_tries);
}

#[test]
fn a_cookie_and_a_key_decide() {
    let group = Group::new(settings(vec![member("a"), member("b"), member("c")]));
    let tag = group.tag(1);
    for _ in 0..4 {
        let wish = Wish { sticky: Some(tag), ..Wish::default() };
        assert_eq!(take(&group, wish, &Tried::default()).unwrap().member.name(), "b");
    }
    let hashed =
        Group::new(GroupSettings { policy: Policy::Hash, ..settings(vec![member("a"), member("b")]) });
    let wish = Wish { key: b"10.1.2.3", ..Wish::default() };
    let first = take(&hashed, wish, &Tried::default()).unwrap().index;
    for _ in 0..8 {
        assert_eq!(take(&hashed, wish, &Tried::default()).unwrap().index, first);
    }
}

#[test]
fn who_waits_gets_the_first_place_that_comes_free() {
    let small = |name: &str| MemberSettings { places: Some(1), ..member(name) };
    let group =
        Group::new(GroupSettings { queue_age: Duration::MAX, ..settings(vec![small("a"), small("b")]) });
    let first = take(&group, Wish::default(), &Tried::default()).unwrap();
    let second = take(&group, Wish::default(), &Tried::default()).unwrap();
    assert_eq!((first.member.name(), second.member.name()), ("a", "b"));
    assert_eq!(group.places().report().in_use, 2);
    drop(second);
    assert_eq!(names(&group, 3), "bbb", "a is full");
    drop(first);
}

#[test]
fn a_member_without_an_address_is_passed_over() {
    let nowhere = MemberSettings { addresses: Vec::new(), ..member("n") };
    let group = Group::new(settings(vec![nowhere, member("b")]));
    assert_eq!(names(&group, 2), "bb");
    group.set_addresses(0, member("n").addresses);
    assert_eq!(names(&group, 4).matches('n').count(), 2);
}

#[test]
fn one_request_that_may_be_repeated_tries_a_member_that_was_ill() {
    let rules = Rules { failures: Some(1), eject: Duration::ZERO, ..Rules::default() };
    let group = Group::new(GroupSettings { rules, ..settings(vec![member("a"), member("b")]) });
    let mut lease = take(&group, Wish::default(), &Tried::default()).unwrap();
    assert_eq!(lease.member.name(), "a");
    lease.failed(&mut Tried::default());
    drop(lease);
    assert_eq!(names(&group, 2), "bb", "what may not be repeated does not try");
    let wish = Wish { may_repeat: true, ..Wish::default() };
    let mut lease = take(&group, wish, &Tried::default()).unwrap();
    assert_eq!(lease.member.name(), "a");
    lease.answered();
    assert_eq!(group.report().members[0].state, "up");
}
