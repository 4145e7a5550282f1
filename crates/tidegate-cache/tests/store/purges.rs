//! Purges: what each kind takes, soft ones, the sweeper, bounds.

use crate::support::*;
use std::sync::Arc;
use tidegate_cache::{
    Change, Filter, Limits, Origin, Purge, PurgeRing, Store, StoredHead, group_mark, site_mark, tag_mark,
};

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
    let table: [(Purge<'_>, &[&str]); 15] = [
        (Purge::All, &[]),
        (Purge::Host(HOST), &[]),
        (Purge::Host("example.com"), &ALL),
        (Purge::Host("example.org:80"), &[]),
        (Purge::Host("example.org:8080"), &ALL),
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
    // Fetched before all of them, and still under way: it is not stored, rather than that their notes stay.
    let early = lead(&store, b"/early");
    let mut widened = 0;
    for number in 0..40_000_u64 {
        widened += u64::from(store.purge(&Purge::Mark(number), false, NOW).is_widened);
    }
    assert_eq!(widened, 0);
    assert!(early.store(head_of("/early", "", &[39_999]), None, NOW).is_err());
    put(&store, "/late", b"x").unwrap();
    assert!(found(&store, "/late").is_some());
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

/// Whoever may send requests that are not safe has URLs purged. In memory their notes are forgotten in time, however slow somebody else's
/// answer is.
#[test]
fn a_flood_of_changes_takes_nothing_else() {
    let store = filled();
    let slow = lead(&store, b"/slow");
    let origin = Origin { site: site_mark("ours"), scheme: "http", host: HOST };
    for number in 0..40_000 {
        let target = format!("/changed/{number}");
        store.purge(&Purge::Changed(origin, Change::Url(&target)), false, NOW);
        assert!(found(&store, "/news/1").is_some(), "{number}");
    }
    // Whether it was purged nobody knows any more.
    assert!(slow.store(head("/slow"), None, NOW).is_err());
}

/// Where disks hold what nobody has compared yet, what cannot be noted one by one costs its host, then its site, and no other.
#[test]
fn a_flood_of_changes_takes_no_other_origin() {
    let store = Store::above_disks("main", Limits { memory: MIB, object: MIB });
    let [ours, theirs] = [site_mark("ours"), site_mark("theirs")];
    let stored = [(ours, "a.example"), (ours, "b.example"), (theirs, "a.example")];
    let put_all = || {
        for (site, host) in stored {
            let target = format!("/{site}/{host}");
            let head = StoredHead { site, host: host.into(), ..head(&target) };
            put_head(&store, head, b"kept").unwrap();
        }
    };
    put_all();
    let left = || stored.map(|(site, host)| found(&store, &format!("/{site}/{host}")).is_some());
    let _slow = lead(&store, b"/slow");
    let change = |host: &str, target: &str| {
        let origin = Origin { site: ours, scheme: "http", host };
        store.purge(&Purge::Changed(origin, Change::Url(target)), false, NOW);
    };
    change("b.example", "/other");
    (0..20_000).for_each(|number| change("a.example", &format!("/changed/{number}")));
    assert_eq!(left(), [false, true, true], "the host that has most noted");
    (0..40_000).for_each(|number| change(&format!("{number}.example"), "/"));
    assert_eq!(left(), [false, false, true], "the site that names so many hosts");
    let purged = store.purge(&Purge::Mark(7), false, NOW);
    assert!(!purged.is_widened, "there is room for what operators name");
    put_all();
    change("b.example", &format!("/{ours}/b.example"));
    assert_eq!(left(), [true, false, true], "there is room again");
}

/// A fetch that hangs keeps no notes for good: what comes of it is not stored, since nobody knows what was changed meanwhile.
#[test]
fn a_fetch_that_takes_long_is_not_waited_for() {
    for is_purged in [true, false] {
        let store = store(MIB);
        let hangs = lead(&store, b"/hangs");
        if is_purged {
            store.purge(&Purge::Url { host: HOST, target: "/elsewhere" }, false, NOW);
        }
        store.sweep(usize::MAX, NOW);
        store.sweep(usize::MAX, NOW + 29);
        let early = lead(&store, b"/early");
        assert!(early.store(head("/early"), None, NOW).is_ok());
        store.sweep(usize::MAX, NOW + 31);
        assert_eq!(hangs.store(head("/hangs"), None, NOW + 40).is_err(), is_purged);
        assert!(found(&store, "/hangs").is_none() || !is_purged);
    }
}

#[test]
fn other_processes_hear_of_changes() {
    let memory = PurgeRing::create().unwrap();
    let shared = |name: &str| {
        let store = Store::new(name, Limits { memory: MIB, object: MIB });
        store.share_purges(PurgeRing::attach(&memory).unwrap());
        for (site, target) in [("a", "/a"), ("a", "/b"), ("b", "/c")] {
            put_head(&store, StoredHead { site: site_mark(site), ..head(target) }, b"x").unwrap();
        }
        store
    };
    let [one, two, other] = ["main", "main", "other"].map(shared);
    let left = |store: &Arc<Store>| ["/a", "/b", "/c"].map(|target| found(store, target).is_some());
    let held = found(&two, "/a").unwrap();
    let change = |site: &str, target: &str| {
        let origin = Origin { site: site_mark(site), scheme: "http", host: HOST };
        one.purge(&Purge::Changed(origin, Change::Url(target)), false, NOW);
    };
    change("b", "/a");
    assert!(held.is_current(), "it is not the URL of that site");
    change("a", "/a");
    assert!(!held.is_current());
    for store in [&one, &two] {
        assert_eq!(left(store), [false, true, true]);
        put_head(store, StoredHead { site: site_mark("a"), ..head("/a") }, b"x").unwrap();
        assert!(found(store, "/a").is_some(), "it was asked for later");
    }
    assert_eq!(left(&other), [true; 3]);
    // More than the ring holds, and than can be heard of one by one.
    let late = lead(&two, b"/late");
    (0..30_000).for_each(|number| change("a", &format!("/{number}")));
    assert_eq!(left(&two), [false, false, true]);
    assert!(late.store(StoredHead { site: site_mark("a"), ..head("/late") }, None, NOW).is_err());
}

#[test]
fn a_part_that_was_purged_before_its_rest_was_asked_for_is_not_gone_on_with() {
    let store = store(4 * MIB);
    let (_, mut fill) = lead(&store, b"/a").store(head("/a"), Some(100_000), NOW).unwrap();
    fill.keeps_part();
    append_all(&mut fill, &bytes(1, 50_000));
    drop(fill);
    let part = found(&store, "/a").unwrap();
    store.purge(&Purge::All, false, NOW);
    let gone_on = lead(&store, b"/a").go_on(&part, head("/a"), NOW + 1);
    assert_eq!(gone_on.map(|_| ()).err(), Some(tidegate_cache::Unstorable::Purged));
    assert!(found(&store, "/a").is_none());
}

/// It was looked up before the purge, and confirmed behind it: only who has asked gets it.
#[test]
fn what_was_purged_before_it_was_asked_about_is_not_refreshed() {
    let store = store(MIB);
    let entry = put(&store, "/a", b"content").unwrap();
    store.purge(&Purge::All, false, NOW);
    let refreshed = lead(&store, b"/a").refresh(&entry, head("/a"), NOW + 1);
    assert_eq!(read_all(&refreshed), b"content");
    assert!(found(&store, "/a").is_none());
}
