//! Eviction, limits, and that every byte comes back.

use crate::support::*;
use tidegate_cache::{Limits, Store, Unstorable};

#[test]
fn what_is_used_stays_and_the_limit_holds() {
    let store = store(MIB);
    let content = bytes(1, 9_000);
    for number in 0..1000 {
        put(&store, &format!("/{number}"), &content).unwrap();
        for favourite in 0..10.min(number) {
            if let Some(entry) = found(&store, &format!("/{favourite}")) {
                entry.touch();
            }
        }
        assert!(store.figures().bytes <= MIB);
    }
    let figures = store.figures();
    let kept = (0..10).filter(|number| found(&store, &format!("/{number}")).is_some()).count();
    assert_eq!(kept, 10);
    assert!(figures.entries > 90 && figures.entries + figures.evicted == 1000, "{figures:?}");
}

#[test]
fn what_is_being_read_is_not_evicted_for_nothing() {
    let store = store(400 * KIB);
    let read = put(&store, "/read", &bytes(1, 200_000)).unwrap();
    let reader = read.content().reader(0..u64::MAX).unwrap();
    drop(read);
    for number in 0..20 {
        put(&store, &format!("/{number}"), &bytes(2, 50_000)).unwrap();
    }
    assert!(found(&store, "/read").is_some());
    assert_eq!(put(&store, "/large", &bytes(3, 60_000)).map(|_| ()), Ok(()));
    let (_, mut fill) = lead(&store, b"/larger").store(head("/larger"), Some(250_000), NOW).unwrap();
    let content = bytes(4, 250_000);
    let mut at = 0;
    while let Ok(count) = fill.append(&content[at..(at + 1000).min(250_000)]) {
        at += count;
    }
    assert!(at < 200_000 && found(&store, "/read").is_some(), "{at}: there is only so much");
    drop((fill, reader));
    put(&store, "/larger", &content).unwrap();
    assert!(store.figures().bytes <= 400 * KIB);
}

#[test]
fn a_lower_limit_holds_at_once_and_all_comes_back() {
    let store = store(MIB);
    let mut left = Vec::new();
    for _ in 0..3 {
        store.set_limits(Limits { memory: MIB, object: MIB });
        for number in 0..200 {
            put(&store, &format!("/{number}"), &bytes(1, 4_000)).unwrap();
        }
        let held = found(&store, "/199").unwrap();
        store.set_limits(Limits { memory: 100 * KIB, object: 50 * KIB });
        assert!(store.figures().bytes <= 100 * KIB);
        assert_eq!(put(&store, "/x", &bytes(1, 51 * 1024)).err(), Some(Unstorable::TooLarge));
        store.set_limits(Limits { memory: 0, object: 0 });
        assert!(held.is_current(), "somebody has it");
        drop(held);
        store.set_limits(Limits { memory: 0, object: 0 });
        assert_eq!(store.figures().entries, 0);
        store.sweep(usize::MAX, NOW);
        left.push(store.figures().bytes);
        assert_eq!(put(&store, "/y", b"").err(), Some(Unstorable::NoRoom));
    }
    // A table in each shard that has a key, as many as the seed has it, and the queues.
    assert!(left[0] < 24 * KIB && left[2] <= left[0] + KIB, "{left:?}: tables alone, and no more each time");
}

#[test]
fn larger_than_all_the_memory_evicts_nothing() {
    let store = Store::new("main", Limits { memory: MIB, object: u64::MAX });
    put(&store, "/a", b"x").unwrap();
    let mut head = head("/b");
    head.lines.push("Large", vec![b'x'; 2 * MIB as usize]);
    assert_eq!(put_head(&store, head, b"").err(), Some(Unstorable::NoRoom));
    assert!(found(&store, "/a").is_some());
    assert_eq!(store.figures().refused, 1);
}
