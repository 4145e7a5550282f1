//! What is under way between the memory and a disk that is slow, or fails.

use super::*;
use crate::encoding::decode;
use crate::entry::StoredHead;
use crate::flight::Join;
use crate::purge::Purge;
use crate::store::Limits;
use std::fs;
use std::path::PathBuf;
use tidegate_http::FieldLines;
use tidegate_http::cache::{Freshness, Varying};

const NOW: i64 = 1_800_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tidegate-under-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn open(&self) -> Arc<Store> {
        let store = Store::above_disks("main", Limits { memory: 8 << 20, object: 8 << 20 });
        let settings = DiskSettings { folder: self.0.join("cache"), size: 64 << 20, slots: 1 };
        store.open_disks(&[settings], NOW);
        while store.disk_figures()[0].trouble.is_some() {
            store.tend_disk(0, NOW);
            std::thread::yield_now();
        }
        store
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn head(target: &str) -> StoredHead {
    let mut bytes = [0; Freshness::ENCODED];
    bytes[..8].copy_from_slice(&NOW.to_le_bytes());
    bytes[12..16].copy_from_slice(&3600_u32.to_le_bytes());
    bytes[24] = 3;
    StoredHead {
        status: 200,
        lines: FieldLines::new(),
        freshness: Freshness::from_bytes(&bytes).unwrap(),
        varying: Varying::default(),
        tags: Box::new([]),
        host: "example.org".into(),
        target: target.into(),
    }
}

fn begin(store: &Arc<Store>, target: &str) -> (Arc<Entry>, crate::fill::Fill) {
    let Join::Lead(lead) = store.join(target.as_bytes(), tidegate_http::Fields::default()) else {
        panic!("{target} is fetched already")
    };
    lead.store(head(target), None, NOW).unwrap()
}

fn put(store: &Arc<Store>, target: &str) {
    let (_, mut fill) = begin(store, target);
    fill.append(b"content").unwrap();
    fill.complete();
}

#[test]
fn purges_that_a_slow_disk_has_to_note_take_two_threads() {
    let folder = Folder::new("noting");
    let store = folder.open();
    let tier = store.tier.get().unwrap();
    let slow = lock(&tier.states[0].noted);
    for _ in 0..10_000 {
        store.note_purges();
        std::thread::yield_now();
    }
    assert!(Arc::strong_count(&store) <= 3, "{} jobs", Arc::strong_count(&store) - 1);
    drop(slow);
}

#[test]
fn a_spool_that_is_stuck_is_no_reader_once_it_is_given_up() {
    let folder = Folder::new("stuck");
    let store = folder.open();
    let (entry, _fill) = begin(&store, "/a");
    let spool = Spool::begin(&store, &entry).unwrap();
    let stuck = lock(&spool.work);
    assert_eq!(entry.content().readers(), 1);
    spool.give_up();
    assert_eq!(entry.content().readers(), 0);
    drop(stuck);
}

#[test]
fn objects_that_could_not_be_compared_are_compared_later() {
    let folder = Folder::new("compared");
    let store = folder.open();
    (0..200).for_each(|number| put(&store, &format!("/{number}")));
    store.save_disk(0, PATIENCE);
    for number in 0..9000 {
        let target = format!("/{number}");
        store.purge(&Purge::Url { host: "example.org", target: &target }, false, NOW);
    }
    let tier = store.tier.get().unwrap();
    let goal = store.purges.count();
    assert!(store.sweep_disk(0), "a round has begun");
    tier.disks.fail(0);
    store.sweep_disk(0);
    assert!(tier.swept() < goal);
    tier.disks.tick(0, NOW + 1000);
    assert!(tier.disks.is_read(0));
    for _ in 0..100 {
        store.sweep_disk(0);
    }
    assert!(tier.swept() >= goal);
    let (left, _) = tier.disks.page(0, 0, u32::MAX);
    assert!(left.is_empty(), "{} that were purged are still there", left.len());
}

#[test]
fn a_disk_that_does_not_answer_is_left_in_peace() {
    let state = DiskState::default();
    let places: Vec<_> = (0..MOST_READS).map(|_| state.admit(10).unwrap()).collect();
    assert!(state.admit(10).is_none(), "so many may wait");
    drop(places);
    assert!(state.admit(10).is_some());
    // It has answered another one: it is slow, and no more.
    state.answered_at.store(15, Relaxed);
    state.is_late(10, 20);
    assert!(state.admit(20).is_some());
    state.is_late(16, 20);
    assert!(state.admit(20).is_none() && state.admit(20 + REST).is_some());
}

#[test]
fn what_is_softly_purged_before_it_is_written_is_not() {
    let folder = Folder::new("soft");
    let store = folder.open();
    let (entry, mut fill) = begin(&store, "/a");
    fill.append(b"content").unwrap();
    store.purge(&Purge::Host("example.org"), true, NOW);
    assert!(fill.complete());
    store.save_disk(0, PATIENCE);
    assert!(entry.is_expired() && tier_of(&store).is_empty());
    put(&store, "/b");
    store.save_disk(0, PATIENCE);
    let found = tier_of(&store);
    let open = store.tier.get().unwrap().disks.inspect(&found[0]).unwrap();
    assert_eq!(&*decode(&open.header().head).unwrap().target, "/b");
}

fn tier_of(store: &Arc<Store>) -> Vec<disk::DiskEntry> {
    store.tier.get().unwrap().disks.page(0, 0, u32::MAX).0
}

/// One that is told of is not sent to the next client, and goes.
#[test]
fn a_file_that_cannot_be_read_is_used_no_longer() {
    use tidegate_io::paged::FileOwner;
    let folder = Folder::new("unreadable");
    let store = folder.open();
    let (_, mut fill) = begin(&store, "/a");
    fill.append(&[7; 100_000]).unwrap();
    fill.complete();
    store.save_disk(0, PATIENCE);
    let tier = store.tier.get().unwrap();
    let object = tier_of(&store).remove(0);
    let open = tier.disks.open_object(&object, b"/a").unwrap();
    let content = Content::of_file(crate::StoredFile::new(open, store.disk_queue(0)));
    content.has_failed(rustix::io::Errno::MFILE);
    assert!(content.file().unwrap().is_readable(), "that is no fault of the disk");
    content.has_failed(rustix::io::Errno::IO);
    assert!(!content.file().unwrap().is_readable());
    while tier.disks.has(&object) {
        std::thread::yield_now();
    }
    tier.disks.tick(0, NOW + 1000);
    assert!(
        tier.disks.is_read(0) && !content.file().unwrap().is_readable(),
        "the disk is well, the file is not"
    );
}
