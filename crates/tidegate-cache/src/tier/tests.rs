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
        tag_names: Box::default(),
        site: 0,
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

fn tier_of(store: &Arc<Store>) -> Vec<DiskEntry> {
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

/// What lies there is not sent to anybody else, and neither read nor listed; all of it is there again afterwards.
#[test]
fn what_lies_on_a_disk_that_does_not_answer_is_as_good_as_not_stored() {
    let folder = Folder::new("stalled");
    let store = folder.open();
    let (_, mut fill) = begin(&store, "/a");
    fill.append(&[7; 100_000]).unwrap();
    fill.complete();
    store.save_disk(0, PATIENCE);
    let tier = store.tier.get().unwrap();
    let open = tier.disks.open_object(&tier_of(&store)[0], b"/a").unwrap();
    let content = Content::of_file(crate::StoredFile::new(open, store.disk_queue(0)));
    let listed = || {
        let mut count = 0;
        let are_all = store.list_disk(0, &crate::Filter::default(), |_| {
            count += 1;
            true
        });
        (count, are_all)
    };
    assert_eq!(listed(), (1, true));
    tier.disks.waits(0, Duration::from_secs(5), NOW).unwrap();
    assert!(store.is_disk_stalled(0) && !store.is_disk_read(0));
    assert!(!content.file().unwrap().is_readable() && store.on_disk(b"/a", &[]).is_empty());
    assert!(!listed().1 && !store.verify_disk(0, |_, _| true));
    // What is written meanwhile stays in memory.
    put(&store, "/b");
    assert_eq!(tier_of(&store).len(), 1);
    tier.disks.waits(0, Duration::ZERO, NOW).unwrap();
    assert!(content.file().unwrap().is_readable() && store.on_disk(b"/a", &[]).len() == 1);
    assert_eq!(listed(), (1, true));
}

/// Requests that are told apart by their language, of which two have the same mark on a disk: clients can look for such.
fn colliding() -> [(String, Varying); 2] {
    let varying = |language: &str| {
        let name = "accept-language";
        let length = (language.len() as u16).to_le_bytes();
        let bytes = [&[name.len() as u8], name.as_bytes(), &[3], &length, language.as_bytes()].concat();
        Varying::from_bytes(&bytes).unwrap()
    };
    let mut known = std::collections::HashMap::new();
    for number in 0_u64.. {
        let language = format!("x{number}");
        let varying = varying(&language);
        if let Some(other) =
            known.insert(crate::encoding::variant_of(&varying), (language.clone(), varying.clone()))
        {
            return [other, (language, varying)];
        }
    }
    unreachable!()
}

/// What was confirmed for one language is not written to what another one is answered with.
#[test]
fn a_new_head_is_not_given_to_another_variant() {
    let folder = Folder::new("colliding");
    let store = folder.open();
    let variants = colliding();
    let lead = |language: &str| {
        let field = tidegate_http::Field { name: "Accept-Language", value: language.as_bytes() };
        match store.join(b"/a", tidegate_http::Fields::new(&[field])) {
            Join::Lead(lead) => lead,
            Join::Follow(_) => panic!("{language} is fetched already"),
        }
    };
    let stored = variants.each_ref().map(|(language, varying)| {
        let head = StoredHead { varying: varying.clone(), ..head("/a") };
        let (entry, mut fill) = lead(language).store(head, None, NOW).unwrap();
        fill.append(language.as_bytes()).unwrap();
        fill.complete();
        store.save_disk(0, PATIENCE);
        entry
    });
    lead(&variants[0].0).refresh(&stored[0], stored[0].head().clone(), NOW + 1);
    store.save_disk(0, PATIENCE);
    for object in tier_of(&store) {
        let open = store.tier.get().unwrap().disks.inspect(&object).unwrap();
        let varying = decode(&open.header().head).unwrap().varying;
        let (language, _) = variants.iter().find(|(_, known)| *known == varying).unwrap();
        let mut bytes = vec![0; language.len()];
        open.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, language.as_bytes());
    }
}

/// Goes on until the disk has nothing to do for purges.
fn sweep(store: &Arc<Store>) {
    while !store.sweep(usize::MAX, NOW).is_round {}
    while store.sweep_disk(0) {}
    while !store.sweep(usize::MAX, NOW).is_round {}
}

fn targets(store: &Arc<Store>) -> Vec<String> {
    let tier = store.tier.get().unwrap();
    let target = |object: &DiskEntry| {
        let open = tier.disks.inspect(object).unwrap();
        decode(&open.header().head).unwrap().target.into()
    };
    let mut targets: Vec<String> = tier_of(store).iter().map(target).collect();
    targets.sort();
    targets
}

/// Nobody asks for it, and it goes all the same, from the disk and from the figures; counted once, whether or not the memory has it.
#[test]
fn what_was_purged_leaves_a_disk_soon() {
    let folder = Folder::new("soon");
    let store = folder.open();
    ["/a", "/b", "/c"].iter().for_each(|target| put(&store, target));
    store.save_disk(0, PATIENCE);
    store.purge(&Purge::Url { host: "example.org", target: "/a" }, false, NOW);
    sweep(&store);
    assert_eq!((targets(&store), store.figures().purged), (vec!["/b".to_owned(), "/c".to_owned()], 1));
    store.save_disk(0, PATIENCE);
    drop(store);
    let store = folder.open();
    assert_eq!(store.figures().purged, 0, "that was another process");
    store.purge(&Purge::Url { host: "example.org", target: "/b" }, false, NOW);
    sweep(&store);
    assert_eq!((targets(&store), store.figures().purged), (vec!["/c".to_owned()], 1));
    assert!(!store.purges.has_notes(), "the notes have done their work");
    store.purge(&Purge::All, false, NOW);
    sweep(&store);
    assert_eq!((targets(&store).len(), store.figures().purged), (0, 2));
}

/// What was purged before a process began is not counted by it.
#[test]
fn a_process_counts_its_own_purges() {
    let folder = Folder::new("own");
    let store = folder.open();
    ["/a", "/b"].iter().for_each(|target| put(&store, target));
    store.save_disk(0, PATIENCE);
    store.purge(&Purge::Url { host: "example.org", target: "/a" }, false, NOW);
    store.purge(&Purge::Host("other.example"), false, NOW);
    store.save_disk(0, PATIENCE);
    drop(store);
    let store = folder.open();
    sweep(&store);
    assert_eq!((targets(&store), store.figures().purged), (vec!["/b".to_owned()], 0));
    let object = tier_of(&store).remove(0);
    store.purge(&Purge::All, false, NOW);
    store.note_purges_on(0);
    drop(store);
    let store = folder.open();
    sweep(&store);
    assert!(!store.tier.get().unwrap().disks.has(&object) && store.figures().purged == 0);
}

/// A soft purge deletes nothing: what lies on a disk alone says itself that it is stale, also to the next process.
#[test]
fn what_is_softly_purged_stays_on_a_disk_as_stale() {
    let folder = Folder::new("softly");
    let store = folder.open();
    ["/a", "/b"].iter().for_each(|target| put(&store, target));
    store.save_disk(0, PATIENCE);
    drop(store);
    let store = folder.open();
    store.purge(&Purge::Url { host: "example.org", target: "/a" }, true, NOW + 10);
    sweep(&store);
    assert_eq!((targets(&store).len(), store.figures().purged), (2, 1));
    assert!(!store.purges.has_notes());
    store.save_disk(0, PATIENCE);
    drop(store);
    let store = folder.open();
    let ttl = |target: &str| {
        for on_disk in store.on_disk(target.as_bytes(), &[]) {
            store.read_in(&on_disk);
        }
        match store.look_up(target.as_bytes(), NOW) {
            crate::Found::Stored(found) => found[0].freshness().ttl(NOW + 20),
            other => panic!("{target}: {other:?}"),
        }
    };
    assert!(ttl("/a") <= -10 && ttl("/b") > 3000, "{} {}", ttl("/a"), ttl("/b"));
    assert_eq!(store.figures().purged, 0);
}

/// What a disk gets while it comes in is stored, though the memory has no room for it.
#[test]
fn what_goes_to_a_disk_has_room() {
    let folder = Folder::new("spooled");
    let store = folder.open();
    let (_, mut fill) = begin(&store, "/a");
    let piece = [7; 64 << 10];
    for _ in 0..(8 << 20) / piece.len() {
        let mut taken = 0;
        while taken < piece.len() {
            taken += fill.append(&piece[taken..]).unwrap();
            std::thread::yield_now();
        }
    }
    assert!(!fill.complete(), "the memory has not got it");
    while tier_of(&store).is_empty() {
        std::thread::yield_now();
    }
    let figures = store.figures();
    assert_eq!((figures.passed_on, figures.refused, figures.too_large), (0, 0, 0));
    // What is larger than anything that is stored is no want of room.
    let (_, mut fill) = begin(&store, "/b");
    let _ = fill.append(&vec![7; (8 << 20) + 1]);
    drop(fill);
    let figures = store.figures();
    assert_eq!((figures.passed_on, figures.refused, figures.too_large), (0, 0, 1));
}
