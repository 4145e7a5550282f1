//! Memory above a disk: what is written behind, what is read in, and what of it nobody gets any more.

use crate::support::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidegate_cache::disk::DiskSettings;
use tidegate_cache::{Entry, Limits, Purge, Store, StoredHead, Verified, tag_mark};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder that goes with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tidegate-tier-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    /// A process that begins with what is there. The one before may still be closing files.
    pub fn open(&self, memory: u64) -> Arc<Store> {
        let store = self.open_untended(memory);
        while store.disk_figures()[0].trouble.is_some() {
            store.tend_disk(0, NOW);
            std::thread::yield_now();
        }
        store
    }

    /// The same, where nobody else has the folder.
    fn open_untended(&self, memory: u64) -> Arc<Store> {
        let store = Store::above_disks("main", Limits { memory, object: memory });
        let settings = DiskSettings { folder: self.0.join("cache"), size: 64 * MIB, slots: 1 };
        store.open_disks(&[settings], NOW);
        store
    }

    /// Bytes of each file of an object are changed by this.
    pub fn damage(&self, change: impl Fn(&mut Vec<u8>)) {
        walk(&self.0, &mut |path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.len() == 41 {
                let mut bytes = fs::read(path).unwrap();
                change(&mut bytes);
                fs::write(path, bytes).unwrap();
            }
        });
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn walk(path: &Path, visit: &mut dyn FnMut(&Path)) {
    for found in fs::read_dir(path).unwrap() {
        let found = found.unwrap().path();
        if found.is_dir() { walk(&found, visit) } else { visit(&found) }
    }
}

/// The end of a process that was told to end.
fn end(store: Arc<Store>) {
    store.save_disk(0, PATIENCE);
}

/// As a handler asks: the memory, else the disk, and then the memory again.
pub fn get(store: &Arc<Store>, target: &str) -> Option<Arc<Entry>> {
    found(store, target).or_else(|| {
        store.on_disk(target.as_bytes(), &[]).iter().for_each(|on_disk| store.read_in(on_disk));
        found(store, target)
    })
}

pub fn content(entry: &Arc<Entry>) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let Some(file) = entry.content().file() else {
        return entry.content().shared().unwrap().whole().unwrap().to_vec();
    };
    let mut bytes = vec![0; file.len() as usize];
    let opened = fs::File::from(file.file().try_clone().unwrap());
    opened.read_exact_at(&mut bytes, file.offset()).unwrap();
    bytes
}

#[test]
fn what_was_stored_is_there_after_a_restart() {
    let folder = Folder::new("restart");
    let sizes = [0, 1, 5000, 64 * 1024, 64 * 1024 + 1, 700_000];
    let store = folder.open(8 * MIB);
    for size in sizes {
        put(&store, &format!("/{size}"), &bytes(size as u64, size)).unwrap();
    }
    end(store);
    let store = folder.open(8 * MIB);
    for size in sizes {
        assert!(found(&store, &format!("/{size}")).is_none(), "{size} is not in memory yet");
        let entry = get(&store, &format!("/{size}")).unwrap();
        assert_eq!(content(&entry), bytes(size as u64, size), "{size}");
        assert_eq!(entry.content().file().is_some(), size > 64 * 1024, "{size}");
        assert_eq!((entry.head().status, entry.stored()), (200, NOW));
        assert_eq!(entry.head().lines.first("content-type"), Some(&b"text/plain"[..]));
        assert_eq!(entry.freshness().ttl(NOW), 3600);
    }
    assert!(get(&store, "/other").is_none());
    assert!(store.figures().bytes <= store.figures().limit);
}

#[test]
fn what_leaves_the_memory_is_read_in_again() {
    let folder = Folder::new("evicted");
    let store = folder.open(MIB);
    for number in 0..200_u64 {
        put(&store, &format!("/{number}"), &bytes(number, 30_000)).unwrap();
        // All are written: none has to wait for the memory of another.
        store.save_disk(0, PATIENCE);
    }
    assert!(store.figures().evicted > 100, "{:?}", store.figures());
    for number in 0..200_u64 {
        let entry = get(&store, &format!("/{number}")).unwrap();
        assert_eq!(content(&entry), bytes(number, 30_000), "{number}");
        assert!(store.figures().bytes <= MIB);
    }
}

#[test]
fn what_was_purged_is_never_read_in() {
    let tag = tag_mark("example.org", b"news");
    let purges = [
        Purge::Url { host: "example.org", target: "/a/b" },
        Purge::Prefix { host: "example.org", prefix: "/a/" },
        Purge::Host("example.org"),
        Purge::Mark(tag),
        Purge::All,
    ];
    for (number, purge) in purges.iter().enumerate() {
        // In memory; on the disk alone; before a restart; before a restart that did not hear of the end.
        for place in 0..4 {
            let folder = Folder::new(&format!("purged-{number}-{place}"));
            let mut store = folder.open(MIB);
            put_head(&store, head_of("/a/b", "", &[tag]), b"old").unwrap();
            let other = StoredHead { host: "other.example".into(), ..head("/other") };
            put_head(&store, other, b"kept").unwrap();
            if place == 1 {
                end(store);
                store = folder.open(MIB);
            }
            store.save_disk(0, PATIENCE);
            store.purge(purge, false, NOW);
            if place == 2 {
                end(store);
                store = folder.open(MIB);
            } else if place == 3 {
                store.tend_disk(0, NOW);
                drop(store);
                store = folder.open(MIB);
            }
            assert!(get(&store, "/a/b").is_none(), "{purge:?} {place}");
            assert_eq!(get(&store, "/other").is_some(), *purge != Purge::All, "{purge:?} {place}");
            put_head(&store, head_of("/a/b", "", &[tag]), b"new").unwrap();
            end(store);
            let store = folder.open(MIB);
            assert_eq!(content(&get(&store, "/a/b").unwrap()), b"new", "{purge:?} {place}");
        }
    }
}

#[test]
fn a_soft_purge_holds_after_a_restart() {
    let folder = Folder::new("soft");
    let store = folder.open(MIB);
    put(&store, "/a", b"old").unwrap();
    store.save_disk(0, PATIENCE);
    store.purge(&Purge::Host("example.org"), true, NOW + 10);
    end(store);
    let store = folder.open(MIB);
    let entry = get(&store, "/a").unwrap();
    assert!(entry.is_expired() && entry.freshness().ttl(NOW + 11) < 0);
}

#[test]
fn without_its_notes_a_folder_is_emptied() {
    for is_torn in [false, true] {
        let folder = Folder::new(&format!("notes-{is_torn}"));
        let store = folder.open(MIB);
        put(&store, "/a", b"old").unwrap();
        end(store);
        let notes = folder.0.join("cache/slot-0/purges");
        if is_torn {
            fs::write(&notes, b"torn").unwrap()
        } else {
            fs::remove_file(&notes).unwrap()
        }
        let store = folder.open(MIB);
        assert!(get(&store, "/a").is_none(), "{is_torn}");
        assert_eq!(store.disk_figures()[0].objects, 0);
    }
}

#[test]
fn a_purge_that_a_disk_cannot_note_holds_after_a_restart() {
    let folder = Folder::new("unnoted");
    let store = folder.open(MIB);
    put(&store, "/a", b"old").unwrap();
    put(&store, "/b", b"other").unwrap();
    store.save_disk(0, PATIENCE);
    let slot = folder.0.join("cache/slot-0");
    // In the way of what is written first.
    fs::create_dir(slot.join("purges.new")).unwrap();
    store.purge(&Purge::Url { host: "example.org", target: "/a" }, false, NOW);
    store.save_disk(0, PATIENCE);
    assert!(!slot.join("purges").exists(), "notes without it would bring it back");
    fs::remove_dir(slot.join("purges.new")).unwrap();
    end(store);
    let store = folder.open(MIB);
    assert!(get(&store, "/a").is_none());
    // A disk that is well again has them again, and nothing else is lost from then on.
    put(&store, "/b", b"other").unwrap();
    store.purge(&Purge::Url { host: "example.org", target: "/c" }, false, NOW);
    store.save_disk(0, PATIENCE);
    end(store);
    assert!(get(&folder.open(MIB), "/b").is_some());
}

#[test]
fn what_is_new_takes_the_place_of_what_was() {
    let folder = Folder::new("replaced");
    let store = folder.open(MIB);
    for round in 0..20_u64 {
        put(&store, "/a", &bytes(round, 1000)).unwrap();
        put_head(&store, head_of("/v", "de", &[]), &bytes(round, 10)).unwrap();
        put_head(&store, head_of("/v", "en", &[]), &bytes(round + 100, 10)).unwrap();
    }
    store.save_disk(0, PATIENCE);
    store.tend_disk(0, NOW);
    assert_eq!(store.disk_figures()[0].objects, 3);
    end(store);
    let store = folder.open(MIB);
    assert_eq!(content(&get(&store, "/a").unwrap()), bytes(19, 1000));
    let known = get(&store, "/v").unwrap();
    assert!(!store.on_disk(b"/v", &[known]).is_empty(), "the other variant is told apart");
    assert!(store.remove(b"/a"));
    assert!(get(&store, "/a").is_none(), "removed from the disk as well");
}

#[test]
fn what_is_confirmed_is_confirmed_on_the_disk() {
    for size in [10, 200_000] {
        let folder = Folder::new(&format!("confirmed-{size}"));
        let store = folder.open(MIB);
        put(&store, "/a", &bytes(1, size)).unwrap();
        end(store);
        let store = folder.open(MIB);
        let entry = get(&store, "/a").unwrap();
        let mut newer = head("/a");
        newer.lines.push("X-New", "yes");
        lead(&store, b"/a").refresh(&entry, newer, NOW + 50);
        drop(entry);
        end(store);
        let store = folder.open(MIB);
        let entry = get(&store, "/a").unwrap();
        assert_eq!(entry.head().lines.first("x-new"), Some(&b"yes"[..]), "{size}");
        assert_eq!((content(&entry), entry.stored()), (bytes(1, size), NOW + 50));
    }
}

#[test]
fn a_damaged_object_is_as_good_as_none() {
    let changes: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes[200] ^= 1,
        |bytes| bytes[20] ^= 1,
        |bytes| bytes.truncate(5000),
        |bytes| bytes.iter_mut().for_each(|byte| *byte = 0),
    ];
    for (number, change) in changes.iter().enumerate() {
        let folder = Folder::new(&format!("damaged-{number}"));
        let store = folder.open(MIB);
        put(&store, "/a", &bytes(1, 100_000)).unwrap();
        end(store);
        folder.damage(change);
        let store = folder.open(MIB);
        assert!(get(&store, "/a").is_none(), "{number}");
        assert!(store.on_disk(b"/a", &[]).is_empty(), "{number}: nobody asks for it again");
        put(&store, "/a", b"again").unwrap();
        assert_eq!(content(&get(&store, "/a").unwrap()), b"again");
    }
}

#[test]
fn a_file_in_use_stays_while_it_is_removed() {
    let folder = Folder::new("in-use");
    let store = folder.open(MIB);
    put(&store, "/a", &bytes(1, 300_000)).unwrap();
    end(store);
    let store = folder.open(MIB);
    let entry = get(&store, "/a").unwrap();
    store.purge(&Purge::All, false, NOW);
    assert!(get(&store, "/a").is_none());
    store.tend_disk(0, NOW);
    assert_eq!(content(&entry), bytes(1, 300_000));
    let figures = store.disk_figures().remove(0);
    assert!(figures.lingering >= 300_000 || figures.objects == 1, "its bytes count: {figures:?}");
}

/// Brings in content that the memory has no room for, in small steps; a client reads all of it.
fn pass_through(store: &Arc<Store>, target: &str, content: &[u8], len: Option<u64>) {
    use std::task::{Context, Poll, Waker};
    let (entry, mut fill) = lead(store, target.as_bytes()).store(head(target), len, NOW).unwrap();
    let mut reader = entry.content().reader(0..u64::MAX).unwrap();
    let (mut left, mut seen) = (content, Vec::new());
    while !left.is_empty() {
        let taken = fill.append(&left[..left.len().min(10_000)]).unwrap();
        left = &left[taken..];
        let (bytes, end) = read(&mut reader, 20_000);
        assert_eq!(end, Poll::Pending);
        seen.extend(bytes);
        assert!(store.figures().bytes <= store.figures().limit);
        while fill.poll_room(&mut Context::from_waker(Waker::noop())).is_pending() {
            std::thread::yield_now();
        }
    }
    fill.complete();
    seen.extend(read(&mut reader, 20_000).0);
    assert!(seen == content, "{target}");
}

#[test]
fn what_memory_has_no_room_for_goes_to_the_disk() {
    let folder = Folder::new("large");
    let store = folder.open(MIB);
    let large = bytes(7, 5_000_000);
    store.set_limits(Limits { memory: MIB, object: 32 * MIB });
    for (target, len) in [("/announced", Some(5_000_000)), ("/counted", None)] {
        // It takes the place of what the memory has.
        put(&store, target, b"before").unwrap();
        pass_through(&store, target, &large, len);
        store.save_disk(0, PATIENCE);
        let entry = get(&store, target).unwrap();
        assert!(content(&entry) == large, "{target}");
    }
    let too_large = bytes(8, 33 * MIB as usize);
    pass_through(&store, "/endless", &too_large, None);
    store.save_disk(0, PATIENCE);
    assert!(get(&store, "/endless").is_none(), "larger than the largest object");
    // What is broken off, or purged on its way, is not stored.
    let (_, mut fill) = lead(&store, b"/broken").store(head("/broken"), Some(5_000_000), NOW).unwrap();
    fill.append(&large[..100_000]).unwrap();
    drop(fill);
    let (entry, mut fill) = lead(&store, b"/purged").store(head("/purged"), Some(5_000_000), NOW).unwrap();
    fill.append(&large[..100_000]).unwrap();
    store.purge(&Purge::Url { host: "example.org", target: "/purged" }, false, NOW);
    let mut left = &large[100_000..];
    while !left.is_empty() {
        left = &left[fill.append(left).unwrap()..];
        std::thread::yield_now();
    }
    fill.complete();
    drop(entry);
    store.save_disk(0, PATIENCE);
    assert!(get(&store, "/broken").is_none() && get(&store, "/purged").is_none());
    // Whoever wrote last may still be about to let go of its file.
    while store.disk_figures()[0].reserved > 0 {
        std::thread::yield_now();
    }
    assert_eq!(store.disk_figures()[0].objects, 2);
}

#[test]
fn so_many_purges_that_some_are_forgotten_take_what_they_were_about() {
    let folder = Folder::new("many-purges");
    let store = folder.open(MIB);
    for number in 0..40 {
        put(&store, &format!("/{number}"), b"old").unwrap();
    }
    end(store);
    let store = folder.open(MIB);
    for number in 0..40_000 {
        let target = if number < 20 { format!("/{number}") } else { format!("/other/{number}") };
        let purged = store.purge(&Purge::Url { host: "example.org", target: &target }, false, NOW);
        assert!(!purged.is_widened, "{number}");
        if number % 4000 == 0 {
            // Rounds of the memory and of the disk.
            (0..2).for_each(|_| drop(store.tend_disk(0, NOW)));
            while !store.sweep(usize::MAX, NOW).is_round {}
        }
    }
    assert_eq!(store.disk_figures()[0].objects, 20);
    end(store);
    let store = folder.open(MIB);
    for number in 0..40 {
        assert_eq!(get(&store, &format!("/{number}")).is_some(), number >= 20, "{number}");
    }
    store.purge(&Purge::All, false, NOW);
    // The memory goes first.
    while !store.sweep(usize::MAX, NOW).is_round {}
    // That round may have begun before the purge.
    while !store.sweep(usize::MAX, NOW).is_round {}
    store.tend_disk(0, NOW);
    assert_eq!(store.disk_figures()[0].objects, 0);
}

/// By what is in memory, by a file that is open, and where the header itself does not say what the file was.
#[test]
fn what_is_found_broken_is_not_served_from_memory_either() {
    for (name, at) in [("broken-pieces", 4096 + 10), ("broken-headers", 130)] {
        let folder = Folder::new(name);
        let store = folder.open(8 * MIB);
        for size in [5000, 700_000] {
            put(&store, &format!("/{size}"), &bytes(size as u64, size)).unwrap();
        }
        end(store);
        let store = folder.open(8 * MIB);
        let held: Vec<_> = [5000, 700_000].map(|size| get(&store, &format!("/{size}")).unwrap()).into();
        folder.damage(|bytes| bytes[at] ^= 1);
        let mut broken = 0;
        store.verify_disk(0, |verified, _| {
            broken += usize::from(matches!(verified, Verified::Broken(_)));
            true
        });
        assert_eq!(broken, 2, "{name}");
        for entry in &held {
            let target = String::from_utf8(entry.key().to_vec()).unwrap();
            assert!(get(&store, &target).is_none(), "{name}: {target} is served from what was read in");
        }
    }
}

/// Where the first of the readers was a disk that has failed, its seat is that of a client now.
#[test]
fn a_disk_that_has_failed_is_given_up_without_harm() {
    let folder = Folder::new("seat");
    let store = folder.open(MIB);
    store.set_limits(Limits { memory: MIB, object: 1024 * MIB });
    let (entry, mut fill) = lead(&store, b"/big").store(head("/big"), Some(100 * MIB), NOW).unwrap();
    let mut leader = entry.content().reader(0..u64::MAX).unwrap();
    // The disk finds that it is too large.
    store.save_disk(0, PATIENCE);
    let mut follower = entry.content().reader(0..u64::MAX).unwrap();
    let chunk = bytes(1, 64 * 1024);
    while fill.append(&chunk).unwrap() > 0 {
        let _ = read(&mut leader, 64 * 1024);
    }
    fill.give_up_slow_disk();
    let _ = read(&mut leader, 64 * 1024);
    assert_eq!(fill.append(&chunk).unwrap(), 0, "the follower has read nothing yet");
    assert_eq!(read(&mut follower, 64 * 1024).1, std::task::Poll::Pending, "nothing is lost");
}

#[test]
fn files_of_what_was_confirmed_are_not_left_open() {
    const COUNT: u64 = 600;
    let folder = Folder::new("confirmed-files");
    let store = folder.open(16 * MIB);
    for number in 0..COUNT {
        put(&store, &format!("/{number}"), &bytes(number, 70_000)).unwrap();
        if number % 50 == 0 {
            store.save_disk(0, PATIENCE);
        }
    }
    end(store);
    let store = folder.open(16 * MIB);
    let mut opened = Vec::new();
    for number in 0..COUNT {
        let target = format!("/{number}");
        let entry = get(&store, &target).unwrap();
        opened.push(Arc::downgrade(entry.content()));
        lead(&store, target.as_bytes()).refresh(&entry, head(&target), NOW + 1);
    }
    store.save_disk(0, PATIENCE);
    let open = opened.iter().filter(|content| content.strong_count() > 0).count();
    assert_eq!(open, 512);
}

#[test]
fn what_is_withdrawn_while_a_disk_is_scanned_does_not_come_back() {
    let folder = Folder::new("withdrawn");
    let store = folder.open(MIB);
    ["/known", "/unknown", "/kept"].iter().for_each(|target| drop(put(&store, target, b"old")));
    end(store);
    for found in fs::read_dir(folder.0.join("cache/slot-0")).unwrap() {
        let path = found.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("journal") || name.starts_with("index") || name.starts_with("snapshot") {
            fs::remove_file(path).unwrap();
        }
    }
    let store = folder.open_untended(MIB);
    assert!(store.disk_figures()[0].is_scanning);
    assert!(get(&store, "/known").is_some());
    assert!(store.remove(b"/known"));
    store.remove(b"/unknown");
    assert!(get(&store, "/known").is_none() && get(&store, "/unknown").is_none());
    assert!(get(&store, "/kept").is_some());
    while store.disk_figures()[0].is_scanning {
        store.tend_disk(0, NOW);
    }
    assert!(get(&store, "/known").is_none() && get(&store, "/unknown").is_none());
    assert_eq!(store.disk_figures()[0].objects, 1);
}
