//! What the disk tier gets from memory, and asks of it.

use crate::support::*;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker};
use tidegate_cache::disk::Disks;
use tidegate_cache::{Entry, Limits, Purge, Store};

/// A store with disks, of which there are none.
fn with_disks(memory: u64) -> Arc<Store> {
    Store::new("main", Limits { memory, object: memory }, Some(Arc::new(Disks::open(&[], NOW))))
}

fn next(store: &Store, waker: &Waker) -> Option<Arc<Entry>> {
    match store.poll_for_disk(&mut Context::from_waker(waker)) {
        Poll::Ready(entry) => Some(entry),
        Poll::Pending => None,
    }
}

#[test]
fn what_is_complete_waits_for_a_disk_and_not_too_much_of_it() {
    let store = with_disks(MIB);
    let (woken, waker) = waker();
    assert!(next(&store, &waker).is_none());
    let (_, fill) = lead(&store, b"/broken").store(head("/broken"), None, NOW).unwrap();
    fill.break_off();
    let entry = put(&store, "/0", b"x").unwrap();
    assert_eq!(woken.0.load(SeqCst), 1);
    assert_eq!(next(&store, &waker).map(|next| next.id()), Some(entry.id()));
    assert!(next(&store, &waker).is_none());
    (0..70).for_each(|number| drop(put(&store, &format!("/{number}"), b"x")));
    assert_eq!(store.figures().not_written, 6);
    assert_eq!(std::iter::from_fn(|| next(&store, &waker)).count(), 64);
    put(&store, "/large", &bytes(1, 200_000)).unwrap();
    assert_eq!(store.figures().not_written, 7, "more than an eighth of the memory");
    let alone = crate::support::store(MIB);
    put(&alone, "/a", b"x").unwrap();
    assert!(next(&alone, &waker).is_none());
}

#[test]
fn purges_are_kept_for_what_is_on_disks() {
    let store = with_disks(MIB);
    let head = head_of("/a", "", &[7]);
    store.purge(&Purge::Mark(7), false, NOW);
    let count = store.purge_count();
    assert!(store.is_purged(&head, 0) && !store.is_purged(&head, count));
    assert!(!store.is_purged(&head_of("/a", "", &[8]), 0));
    store.sweep(usize::MAX, NOW);
    assert!(store.is_purged(&head, 0), "the disks have not been looked at");
    store.disk_is_swept(count);
    store.sweep(usize::MAX, NOW);
    assert!(!store.is_purged(&head, 0), "nothing is left that it could be of");
    assert_eq!(store.hash(b"/a"), store.hash(b"/a"));
    assert_ne!(store.hash(b"/a"), crate::support::store(MIB).hash(b"/a"), "the seed is secret");
}
