//! Collapsed forwarding: who leads, what followers get, what is remembered.

use crate::support::*;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Poll;
use tidegate_cache::{Found, Join, Landing, Limits, Purge, Store, Unstorable};
use tidegate_http::cache::Reason;
use tidegate_http::{Field, Fields};

#[test]
fn followers_get_the_entry_at_its_head() {
    let store = store(MIB);
    let first = lead(&store, b"/a");
    let (woken, waker) = waker();
    let mut others: Vec<_> = (0..5).map(|_| follow(&store, b"/a")).collect();
    others.iter_mut().for_each(|flight| assert!(poll(flight, &waker).is_pending()));
    others.pop();
    let (entry, mut fill) = first.store(head("/a"), None, NOW).unwrap();
    assert_eq!(woken.0.load(SeqCst), 4, "who has gone is not woken");
    for flight in &mut others {
        let Poll::Ready(Landing::Stored(got)) = poll(flight, &waker) else { panic!("it is there") };
        assert!(got.id() == entry.id() && !got.content().is_complete());
    }
    assert_eq!(found(&store, "/a").map(|found| found.id()), Some(entry.id()), "also for who comes now");
    assert_eq!(store.figures().collapsed, 5);
    append_all(&mut fill, b"abc");
    assert!(fill.complete());
    assert!(matches!(store.join(b"/a", NOBODY), Join::Lead(_)), "the flight is over");
}

type Holds = fn(&Landing) -> bool;

#[test]
fn all_ways_to_land() {
    type Way = fn(tidegate_cache::Lead);
    let table: [(&str, Way, Holds); 4] = [
        ("pass", |lead| lead.pass(NOW, 60, Reason::Private), |landing| matches!(landing, Landing::Pass)),
        ("fail", |lead| lead.fail(502), |landing| matches!(landing, Landing::Failed(Some(502)))),
        ("drop", |lead| drop(lead), |landing| matches!(landing, Landing::Failed(None))),
        (
            "too large",
            |lead| {
                let refused = lead.store(head("/a"), Some(u64::MAX), NOW).err();
                assert_eq!(refused, Some(Unstorable::TooLarge));
            },
            |landing| matches!(landing, Landing::Pass),
        ),
    ];
    for (name, way, is_right) in table {
        let store = store(MIB);
        let first = lead(&store, b"/a");
        let (woken, waker) = waker();
        let (mut early, mut late) = (follow(&store, b"/a"), follow(&store, b"/a"));
        assert!(poll(&mut early, &waker).is_pending());
        way(first);
        assert_eq!(woken.0.load(SeqCst), 1, "{name}");
        for flight in [&mut early, &mut late] {
            let Poll::Ready(landing) = poll(flight, &waker) else { panic!("{name}") };
            assert!(is_right(&landing), "{name}: {landing:?}");
        }
        let is_passed = matches!(store.look_up(b"/a", NOW), Found::Pass(_));
        assert_eq!(is_passed, name == "pass" || name == "too large", "{name}");
        assert!(!matches!(store.look_up(b"/a", NOW + 200), Found::Pass(_)), "{name}: for a while");
        drop((early, late));
        assert!(matches!(store.join(b"/a", NOBODY), Join::Lead(_)), "{name}");
    }
}

#[test]
fn what_is_storable_again_is_no_longer_passed() {
    let store = store(MIB);
    lead(&store, b"/a").pass(NOW, 60, Reason::Private);
    assert!(matches!(store.look_up(b"/a", NOW + 59), Found::Pass(_)));
    put(&store, "/a", b"x").unwrap();
    assert!(store.remove(b"/a"));
    assert!(matches!(store.look_up(b"/a", NOW), Found::Nothing));
}

#[test]
fn what_is_passed_is_fetched_alone_and_stored_if_it_may_be() {
    let store = store(MIB);
    lead(&store, b"/a").pass(NOW, 60, Reason::Private);
    let mut alone: Vec<_> = (0..16).filter_map(|_| store.lead_alone(b"/a")).collect();
    assert!(alone.len() == 16 && store.lead_alone(b"/a").is_none(), "so many at the same time");
    let Join::Lead(other) = store.join(b"/a", NOBODY) else { panic!("nobody waits for one that is alone") };
    assert!(matches!(store.join(b"/a", NOBODY), Join::Follow(_)), "they take no place of the others");
    drop(other);
    assert!(matches!(store.look_up(b"/a", NOW), Found::Pass(_)));
    let (entry, mut fill) = alone.pop().unwrap().store(head("/a"), None, NOW).unwrap();
    append_all(&mut fill, b"abc");
    assert!(fill.complete());
    assert_eq!(found(&store, "/a").map(|found| found.id()), Some(entry.id()));
    drop(alone);
    assert!(store.remove(b"/a"));
    assert!(matches!(store.look_up(b"/a", NOW), Found::Nothing), "the mark is gone");
}

#[test]
fn who_looked_too_early_finds_it_when_joining() {
    let store = store(MIB);
    assert!(found(&store, "/a").is_none());
    let entry = put(&store, "/a", b"x").unwrap();
    let late = lead(&store, b"/a");
    assert_eq!(late.stored().len(), 1);
    let mut behind = follow(&store, b"/a");
    late.serve(&entry);
    let (_, waker) = waker();
    assert!(matches!(poll(&mut behind, &waker), Poll::Ready(Landing::Stored(got)) if got.id() == entry.id()));
}

#[test]
fn a_304_gives_the_content_a_new_head() {
    let store = store(MIB);
    let old = put(&store, "/a", b"content").unwrap();
    let again = lead(&store, b"/a");
    let mut behind = follow(&store, b"/a");
    let mut newer = head("/a");
    newer.lines.push("ETag", "\"2\"");
    let new = again.refresh(&old, newer, NOW + 10);
    assert!(!old.is_current() && new.is_current());
    assert!(std::sync::Arc::ptr_eq(old.content(), new.content()));
    let (_, waker) = waker();
    assert!(matches!(poll(&mut behind, &waker), Poll::Ready(Landing::Stored(got)) if got.id() == new.id()));
    let Found::Stored(entries) = store.look_up(b"/a", NOW) else { panic!("it is there") };
    assert_eq!((entries.len(), entries[0].id(), store.figures().refreshed), (1, new.id(), 1));
    assert_eq!(read_all(&new), b"content");
    // Also while it is still coming in; and it goes with its content.
    let (filling, mut fill) = lead(&store, b"/b").store(head("/b"), None, NOW).unwrap();
    append_all(&mut fill, b"1");
    let refreshed = lead(&store, b"/b").refresh(&filling, head("/b"), NOW);
    assert!(refreshed.is_current() && !filling.is_current());
    fill.break_off();
    assert!(!refreshed.is_current() && found(&store, "/b").is_none());
}

#[test]
fn what_was_asked_for_before_a_purge_is_not_stored_after_it() {
    let purges = [
        Purge::All,
        Purge::Host("example.org"),
        Purge::Url { host: "example.org", target: "/a" },
        Purge::Prefix { host: "example.org", prefix: "/" },
        Purge::Mark(7),
    ];
    for purge in &purges {
        let store = store(MIB);
        let early = lead(&store, b"/a");
        let mut before = follow(&store, b"/a");
        store.purge(purge, false, NOW);
        let mut after = follow(&store, b"/a");
        let stored = early.store(head_of("/a", "", &[7]), None, NOW);
        assert_eq!(stored.err(), Some(Unstorable::Purged), "{purge:?}");
        let (_, waker) = waker();
        for flight in [&mut before, &mut after] {
            assert!(matches!(poll(flight, &waker), Poll::Ready(Landing::Failed(None))));
        }
        assert!(found(&store, "/a").is_none());
        assert!(store.sweep(usize::MAX, NOW).is_round);
        put_head(&store, head_of("/a", "", &[7]), b"x").unwrap();
        assert!(found(&store, "/a").is_some_and(|entry| entry.is_current()));
    }
    // Stored before the purge, joined after it: not for the one who joined.
    let store = store(MIB);
    let early = lead(&store, b"/a");
    let mut before = follow(&store, b"/a");
    let (entry, _fill) = early.store(head("/a"), None, NOW).unwrap();
    store.purge(&Purge::All, false, NOW);
    let (_, waker) = waker();
    assert!(matches!(poll(&mut before, &waker), Poll::Ready(Landing::Stored(_))), "it asked before");
    assert!(!entry.is_current());
}

#[test]
fn what_is_removed_while_it_is_fetched_is_not_stored() {
    let store = store(MIB);
    let early = lead(&store, b"/a");
    assert!(!store.remove(b"/a"));
    let later = lead(&store, b"/a");
    let (entry, mut fill) = early.store(head("/a"), None, NOW).unwrap();
    append_all(&mut fill, b"old");
    assert!(!fill.complete() && !entry.is_current() && found(&store, "/a").is_none());
    assert_eq!(read_all(&entry), b"old", "for who asked before");
    let (_, fill) = later.store(head("/a"), Some(0), NOW).unwrap();
    assert!(fill.complete() && found(&store, "/a").is_some());
}

#[test]
fn without_room_for_a_key_one_fetches_alone() {
    let store = Store::new("main", Limits { memory: 10, object: 10 });
    let first = lead(&store, b"/a");
    assert!(matches!(store.join(b"/a", NOBODY), Join::Lead(_)));
    assert_eq!(first.store(head("/a"), Some(1), NOW).err(), Some(Unstorable::NoRoom));
    lead(&store, b"/a").pass(NOW, 60, Reason::Private);
    assert_eq!(store.figures().bytes, 0);
}

#[test]
fn variants_are_fetched_at_the_same_time_once_they_are_known() {
    let store = store(MIB);
    let field = |value| [Field { name: "Accept-Language", value }];
    let (german, french, italian) = (field(b"de"), field(b"fr"), field(b"it"));
    let join = |fields| store.join(b"/a", Fields::new(fields));
    let Join::Lead(first) = join(&german) else { panic!("nobody fetches it") };
    assert!(matches!(join(&french), Join::Follow(_)), "nothing is known yet");
    let before = store.fetches();
    let (entry, _fill) = first.store(head_of("/a", "de", &[]), None, NOW).unwrap();
    assert_eq!(entry.fetched(), before);
    let Join::Lead(second) = join(&french) else { panic!("it is for another request") };
    assert!(matches!(join(&french), Join::Follow(_)));
    let Join::Lead(third) = join(&italian) else { panic!("it is for another request") };
    let (_, waker) = waker();
    let (Join::Follow(mut of_third), Join::Follow(mut of_second)) = (join(&italian), join(&french)) else {
        panic!("both are under way")
    };
    let (entry, _fill) = third.store(head_of("/a", "it", &[]), None, NOW).unwrap();
    assert!(entry.fetched() > before, "asked for since");
    assert!(matches!(poll(&mut of_third, &waker), Poll::Ready(Landing::Stored(_))));
    assert!(poll(&mut of_second, &waker).is_pending());
    drop(second);
    assert!(matches!(poll(&mut of_second, &waker), Poll::Ready(Landing::Failed(None))));
}

#[test]
fn only_so_many_variants_are_waited_for() {
    let store = store(MIB);
    put_head(&store, head_of("/a", "de", &[]), b"de").unwrap();
    let leads = |value: String| {
        let fields = [Field { name: "Accept-Language", value: value.as_bytes() }];
        match store.join(b"/a", Fields::new(&fields)) {
            Join::Lead(lead) => Some(lead),
            Join::Follow(_) => None,
        }
    };
    let mut all: Vec<_> = (0..16).filter_map(|at| leads(format!("x{at}"))).collect();
    assert!(all.len() == 16 && leads("x3".into()).is_none());
    let beyond = [leads("y".into()), leads("y".into())];
    assert!(beyond.iter().all(Option::is_some), "each for itself");
    drop(beyond);
    all.pop();
    let next = leads("y".into());
    assert!(next.is_some() && leads("y".into()).is_none());
}
