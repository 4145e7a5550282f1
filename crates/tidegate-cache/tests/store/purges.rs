//! Purges: what each kind takes, soft ones, the sweeper, bounds.

use crate::support::*;
use std::sync::Arc;
use tidegate_cache::{Filter, Purge, Store, StoredHead, group_mark, tag_mark};

const HOST: &str = "example.org";

/// Four entries with tags.
fn filled() -> Arc<Store> {
    let store = store(MIB);
    let (news, sport) = (tag_mark("main", b"news"), tag_mark("main", b"sport"));
    let group = group_mark("https://example.org", b"g");
    for (target, tags) in [
        ("/", vec![]),
        ("/news/1", vec![news]),
        ("/news/2?a=b", vec![news, sport, group]),
        ("/newsletter", vec![group]),
    ] {
        put_head(&store, head_of(target, "", &tags), b"x").unwrap();
    }
    store
}

const ALL: [&str; 4] = ["/", "/news/1", "/news/2?a=b", "/newsletter"];

#[test]
fn what_each_kind_takes() {
    let table: [(Purge<'_>, &[&str]); 13] = [
        (Purge::All, &[]),
        (Purge::Host(HOST), &[]),
        (Purge::Host("example.com"), &ALL),
        (Purge::Url { host: HOST, target: "/news/1" }, &["/", "/news/2?a=b", "/newsletter"]),
        (Purge::Url { host: HOST, target: "/news/" }, &ALL),
        (Purge::Url { host: HOST, target: "/news/2" }, &ALL),
        (Purge::Prefix { host: HOST, prefix: "/news/" }, &["/", "/newsletter"]),
        (Purge::Prefix { host: HOST, prefix: "/news" }, &["/"]),
        (Purge::Prefix { host: HOST, prefix: "" }, &[]),
        (Purge::Prefix { host: "example.com", prefix: "/" }, &ALL),
        (Purge::Mark(tag_mark("main", b"news")), &["/", "/newsletter"]),
        (Purge::Mark(tag_mark("other", b"news")), &ALL),
        (Purge::Mark(group_mark("https://example.org", b"g")), &["/", "/news/1"]),
    ];
    for (purge, left) in table {
        for is_soft in [false, true] {
            for is_swept in [false, true] {
                let store = filled();
                let held: Vec<_> = ALL.map(|target| found(&store, target).unwrap()).into();
                assert!(!store.purge(&purge, is_soft, NOW + 5).is_widened);
                if is_swept {
                    let swept = store.sweep(usize::MAX, NOW + 5);
                    let removed = if is_soft { 0 } else { ALL.len() - left.len() };
                    assert_eq!((swept.visited, swept.removed, swept.is_round), (4, removed, true));
                }
                for (target, held) in ALL.iter().zip(held) {
                    let is_left = left.contains(target);
                    assert_eq!(held.is_current(), is_left, "{purge:?} {target}");
                    let found = found(&store, target);
                    assert_eq!(found.is_some(), is_left || is_soft, "{purge:?} {target}");
                    assert_eq!(held.freshness().ttl(NOW + 5) > 0, is_left || !is_soft);
                    assert!(held.head().freshness.ttl(NOW + 5) > 0, "a head never changes");
                }
                let figures = store.figures();
                let is_gone = !is_soft;
                let expected = if is_gone { left.len() } else { 4 };
                assert_eq!(figures.entries as usize, expected, "{purge:?}");
                assert_eq!(store.list(&Filter::default(), 10).len(), expected);
                assert_eq!(store.sweep(usize::MAX, NOW).removed, 0);
            }
        }
    }
}

#[test]
fn what_comes_later_is_not_purged_and_notes_are_forgotten() {
    let store = filled();
    for _ in 0..3 {
        store.purge(&Purge::Prefix { host: HOST, prefix: "/news" }, false, NOW);
        put(&store, "/news/1", b"new").unwrap();
        let entry = found(&store, "/news/1").unwrap();
        assert!(entry.is_current());
        assert!(store.sweep(usize::MAX, NOW).is_round);
        assert!(entry.is_current());
    }
    store.purge(&Purge::Prefix { host: HOST, prefix: "/news" }, true, NOW);
    let new = put(&store, "/news/1", b"new").unwrap();
    assert!(!new.is_expired());
}

#[test]
fn a_sweep_in_steps_comes_round() {
    let store = filled();
    store.purge(&Purge::All, false, NOW);
    let steps: Vec<_> = std::iter::from_fn(|| Some(store.sweep(0, NOW))).take(256).collect();
    assert_eq!(steps.iter().map(|swept| swept.removed).sum::<usize>(), 4);
    assert!(steps.iter().any(|swept| swept.is_round));
    assert_eq!(store.figures().purged, 4);
}

#[test]
fn a_flood_of_purges_is_bounded_and_takes_what_it_has_to() {
    let store = filled();
    // Fetched before all of them, and still under way: their notes have to stay.
    let early = lead(&store, b"/early");
    let mut widened = 0;
    for number in 0..40_000_u64 {
        widened += u64::from(store.purge(&Purge::Mark(number), false, NOW).is_widened);
    }
    assert!(widened > 0);
    assert!(early.store(head_of("/early", "", &[39_999]), None, NOW).is_err());
    put(&store, "/late", b"x").unwrap();
    assert!(found(&store, "/late").is_some());
    // Nothing is under way now: the notes are forgotten in time.
    let widened =
        (0..40_000).filter(|number| store.purge(&Purge::Mark(*number), false, NOW).is_widened).count();
    assert_eq!(widened, 0);
    assert!(found(&store, "/late").is_some());
}

#[test]
fn more_lengths_of_prefixes_than_are_told_apart() {
    for is_long_last in [true, false] {
        let store = store(MIB);
        let target = format!("/{}", "a".repeat(200));
        let mut lengths: Vec<usize> = (1..100).collect();
        if !is_long_last {
            lengths.reverse();
        }
        put(&store, "/b", b"x").unwrap();
        for length in lengths {
            put(&store, &target, b"x").unwrap();
            store.purge(&Purge::Prefix { host: HOST, prefix: &target[..length + 1] }, false, NOW);
            assert!(found(&store, &target).is_none(), "{length}");
        }
        // Only where no shorter length was known is it the host that is purged.
        assert_eq!(found(&store, "/b").is_some(), is_long_last);
    }
}

#[test]
fn lists_and_filters() {
    let store = filled();
    let mark = group_mark("https://example.org", b"g");
    let table = [
        (Filter::default(), 10, 4),
        (Filter::default(), 2, 2),
        (Filter { host: Some(HOST), ..Filter::default() }, 10, 4),
        (Filter { host: Some("x"), ..Filter::default() }, 10, 0),
        (Filter { prefix: Some("/news/"), ..Filter::default() }, 10, 2),
        (Filter { mark: Some(mark), ..Filter::default() }, 10, 2),
    ];
    for (filter, most, count) in table {
        assert_eq!(store.list(&filter, most).len(), count, "{filter:?}");
    }
    let listed = store.list(&Filter { prefix: Some("/newsl"), ..Filter::default() }, 1).remove(0);
    assert_eq!((&*listed.host, &*listed.target, listed.status), (HOST, "/newsletter", 200));
    assert_eq!((listed.filled, listed.len, listed.stored), (1, Some(1), NOW));
    assert!(listed.bytes > 100 && !listed.is_expired);
}

/// Whoever may send requests that are not safe has URLs purged: what they cannot have noted one by one costs their host, and no other.
#[test]
fn a_flood_of_changed_urls_takes_no_other_host() {
    let store = filled();
    let other = StoredHead { host: "other.example".into(), ..head("/other") };
    put_head(&store, other, b"kept").unwrap();
    let _slow = lead(&store, b"/slow");
    let mut widened = 0;
    for number in 0..20_000 {
        let target = format!("/changed/{number}");
        let purged = store.purge(&Purge::Url { host: HOST, target: &target }, false, NOW);
        widened += u64::from(purged.is_widened);
        let is_there = found(&store, "/news/1").is_some();
        assert!(is_there != purged.is_widened || widened > 1, "{number}");
    }
    assert!(widened > 0 && found(&store, "/other").is_some());
    let purged = store.purge(&Purge::Mark(7), false, NOW);
    assert!(!purged.is_widened, "there is room for what operators name");
}
