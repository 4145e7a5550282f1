//! Variants of a key, and what replaces what.

use crate::support::*;
use tidegate_cache::Found;

fn languages(store: &std::sync::Arc<tidegate_cache::Store>) -> Vec<u64> {
    match store.look_up(b"/a", NOW) {
        Found::Stored(entries) => entries.iter().map(|entry| entry.id()).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn the_newest_first_and_sixteen_at_most() {
    let store = store(MIB);
    let ids: Vec<u64> = (0..20)
        .map(|number| put_head(&store, head_of("/a", &format!("l{number}"), &[]), b"x").unwrap().id())
        .collect();
    let kept: Vec<u64> = ids.iter().rev().take(16).copied().collect();
    assert_eq!(languages(&store), kept);
    assert_eq!(store.figures().entries, 16);
    let again = put_head(&store, head_of("/a", "l10", &[]), b"y").unwrap();
    assert_eq!(languages(&store)[0], again.id());
    assert_eq!((languages(&store).len(), store.figures().entries), (16, 16));
    assert!(!languages(&store).contains(&ids[10]), "the same variant is replaced");
}

#[test]
fn the_least_used_goes_first_and_counts_as_evicted() {
    let store = store(MIB);
    let put = |name: String| put_head(&store, head_of("/a", &name, &[]), b"x").unwrap();
    let used: Vec<_> = (0..8).map(|number| put(format!("used{number}"))).collect();
    used.iter().for_each(|entry| entry.touch());
    (0..20).for_each(|number| drop(put(format!("once{number}"))));
    assert_eq!(languages(&store).len(), 16);
    assert!(used.iter().all(|entry| languages(&store).contains(&entry.id())), "what is asked for stays");
    assert_eq!(store.figures().evicted, 12);
    // What nobody asks for any more goes once others are asked for as often.
    (0..40).for_each(|number| put(format!("now{number}")).touch());
    assert!(!used.iter().any(|entry| languages(&store).contains(&entry.id())));
}

/// An answer to HEAD gives it another head meanwhile.
#[test]
fn what_is_replaced_stays_though_its_successor_has_had_another_head() {
    let store = store(MIB);
    let old = put(&store, "/a", b"old").unwrap();
    for is_complete in [false, true] {
        let (new, mut fill) = lead(&store, b"/a").store(head("/a"), Some(3), NOW).unwrap();
        fill.append(b"ne").unwrap();
        let newer = lead(&store, b"/a").refresh(&new, head("/a"), NOW);
        assert_eq!(languages(&store), [newer.id(), old.id()]);
        if is_complete {
            fill.append(b"w").unwrap();
            assert!(fill.complete());
            assert_eq!(languages(&store), [newer.id()]);
        } else {
            fill.break_off();
            assert_eq!(languages(&store), [old.id()]);
        }
    }
}

#[test]
fn what_is_replaced_stays_until_its_successor_is_complete() {
    let store = store(MIB);
    let old = put(&store, "/a", b"old").unwrap();
    let (new, mut fill) = lead(&store, b"/a").store(head("/a"), None, NOW).unwrap();
    assert_eq!(languages(&store), [new.id(), old.id()]);
    fill.append(b"ne").unwrap();
    fill.break_off();
    assert_eq!(languages(&store), [old.id()]);
    assert!(old.is_current() && !new.is_current());
    let (newer, mut fill) = lead(&store, b"/a").store(head("/a"), None, NOW).unwrap();
    let (newest, second) = lead(&store, b"/a").store(head("/a"), Some(0), NOW).unwrap();
    assert!(second.complete());
    assert_eq!(languages(&store), [newest.id()]);
    assert!(!old.is_current() && !newer.is_current());
    fill.append(b"new").unwrap();
    assert!(!fill.is_kept() && !fill.complete(), "what came earlier replaces nothing");
    assert_eq!(languages(&store), [newest.id()]);
}
