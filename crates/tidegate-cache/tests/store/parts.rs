//! What has come of a content whose rest does not: in memory and on a disk, and how it goes on. And who reads what is passed on,
//! slower than the disk that gets it.

use crate::disks::{Folder, PATIENCE, content, get};
use crate::support::*;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tidegate_cache::{Entry, Fill, Limits, Store};

const LEN: usize = 5_000_000;

fn begin(store: &Arc<Store>, target: &str, len: usize) -> (Arc<Entry>, Fill) {
    let (entry, mut fill) =
        lead(store, target.as_bytes()).store(head(target), Some(len as u64), NOW).unwrap();
    fill.keeps_part();
    (entry, fill)
}

/// Goes on with a part behind what there is.
fn go_on(store: &Arc<Store>, part: &Arc<Entry>) -> (Arc<Entry>, Fill) {
    let target = &part.head().target;
    lead(store, target.as_bytes()).go_on(part, head(target), NOW + 1).unwrap()
}

/// Appends, as a disk makes room.
fn pour(fill: &mut Fill, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        while fill.poll_room(&mut Context::from_waker(Waker::noop())).is_pending() {
            std::thread::yield_now();
        }
        let taken = fill.append(&bytes[..bytes.len().min(30_000)]).unwrap();
        bytes = &bytes[taken..];
    }
}

fn large(folder: &Folder) -> Arc<Store> {
    let store = folder.open(MIB);
    store.set_limits(Limits { memory: MIB, object: 32 * MIB });
    store
}

#[test]
fn a_part_in_memory_is_read_and_gone_on_with() {
    let store = store(4 * MIB);
    let all = bytes(1, 400_000);
    let (entry, mut fill) = begin(&store, "/a", all.len());
    let mut early = entry.content().reader(0..u64::MAX).unwrap();
    append_all(&mut fill, &all[..150_000]);
    drop(fill);
    assert!(entry.content().is_part());
    let (seen, end) = read(&mut early, 10_000);
    assert!(seen == all[..150_000] && end == Poll::Ready(false), "who wants more sees that it ends");
    let part = found(&store, "/a").unwrap();
    let mut within = part.content().reader(100_000..120_000).unwrap();
    let (seen, end) = read(&mut within, 10_000);
    assert!(seen == all[100_000..120_000] && end == Poll::Ready(true));

    let (whole, mut fill) = go_on(&store, &part);
    assert!(!whole.content().is_part() && found(&store, "/a").unwrap().id() == whole.id());
    let mut reader = whole.content().reader(0..u64::MAX).unwrap();
    append_all(&mut fill, &all[150_000..200_000]);
    // It breaks off once more.
    drop(fill);
    let part = found(&store, "/a").unwrap();
    assert_eq!(part.content().filled(), 200_000);
    let (whole, mut fill) = go_on(&store, &part);
    append_all(&mut fill, &all[200_000..]);
    assert!(fill.complete());
    assert!(read(&mut reader, 10_000).0 == all);
    assert!(read_all(&whole) == all && read_all(&found(&store, "/a").unwrap()) == all);
    assert_eq!(store.figures().entries, 1);
}

/// Between the moment at which nobody reads and the end of the fetch somebody may come: who would wait for what never comes is told.
#[test]
fn a_fetch_is_given_up_where_nobody_can_be_cut_off() {
    let store = store(4 * MIB);
    let (entry, mut fill) = begin(&store, "/a", 100_000);
    append_all(&mut fill, &bytes(1, 40_000));
    let reader = entry.content().reader(0..u64::MAX).unwrap();
    assert!(!fill.close_unread(), "somebody reads");
    assert!(entry.content().reader(0..u64::MAX).is_some());
    drop(reader);
    assert!(fill.close_unread());
    assert!(!entry.content().is_part(), "it is not over yet");
    assert!(entry.content().reader(0..u64::MAX).is_none());
    assert!(entry.content().reader(10..40_001).is_none());
    let mut within = entry.content().reader(10..40_000).unwrap();
    assert_eq!(read(&mut within, 10_000).0.len(), 39_990);
    drop(fill);
    assert!(entry.content().is_part() && entry.content().reader(0..u64::MAX).is_none());
    let (whole, fill) = go_on(&store, &found(&store, "/a").unwrap());
    assert!(whole.content().reader(0..u64::MAX).is_some(), "it goes on");
    drop(fill);
}

#[test]
fn what_may_not_be_kept_in_part_is_not() {
    let store = store(4 * MIB);
    let all = bytes(1, 100_000);
    // Of a length that nobody knows.
    let (_, mut fill) = lead(&store, b"/a").store(head("/a"), None, NOW).unwrap();
    fill.keeps_part();
    append_all(&mut fill, &all[..1000]);
    drop(fill);
    // Nothing has come; nobody has said that it may.
    drop(begin(&store, "/b", 1000).1);
    let (_, mut fill) = lead(&store, b"/c").store(head("/c"), Some(1000), NOW).unwrap();
    append_all(&mut fill, &all[..10]);
    drop(fill);
    // It was replaced meanwhile.
    let (_, mut fill) = begin(&store, "/d", 1000);
    append_all(&mut fill, &all[..10]);
    put(&store, "/d", b"newer").unwrap();
    drop(fill);
    for target in ["/a", "/b", "/c"] {
        assert!(found(&store, target).is_none(), "{target}");
    }
    assert_eq!(read_all(&found(&store, "/d").unwrap()), b"newer");
    assert_eq!(store.figures().entries, 1);
}

#[test]
fn a_part_on_a_disk_outlives_its_process_and_is_gone_on_with_in_place() {
    let folder = Folder::new("part");
    let all = bytes(7, LEN);
    let store = large(&folder);
    let (_, mut fill) = begin(&store, "/a", LEN);
    pour(&mut fill, &all[..3_000_000]);
    drop(fill);
    store.save_disk(0, PATIENCE);
    drop(store);

    let store = large(&folder);
    let part = get(&store, "/a").unwrap();
    let filled = part.content().filled();
    assert!(part.content().is_part() && filled == 3_000_000 / (256 * KIB) * 256 * KIB);
    assert_eq!(part.content().len(), Some(LEN as u64));
    let (whole, mut fill) = go_on(&store, &part);
    let mut reader = whole.content().reader(0..u64::MAX).unwrap();
    let mut across = whole.content().reader(filled - 10..filled + 10).unwrap();
    let rest = &all[filled as usize..];
    pour(&mut fill, &rest[..1_000_000]);
    let late = found(&store, "/a").expect("others find it meanwhile");
    let mut late = late.content().reader(0..u64::MAX).unwrap();
    pour(&mut fill, &rest[1_000_000..]);
    fill.complete();
    assert!(read(&mut reader, 50_000).0 == all && read(&mut late, 50_000).0 == all);
    assert!(read(&mut across, 50_000).0 == all[filled as usize - 10..filled as usize + 10]);
    store.save_disk(0, PATIENCE);
    drop((part, whole, reader, across, late));
    let entry = get(&store, "/a").unwrap();
    assert!(entry.content().is_complete() && content(&entry) == all);
    assert_eq!(store.disk_figures()[0].objects, 1);
    assert!(store.figures().bytes <= store.figures().limit);
}

#[test]
fn a_part_that_is_damaged_is_as_good_as_none() {
    let folder = Folder::new("part-damaged");
    let store = large(&folder);
    let (_, mut fill) = begin(&store, "/a", LEN);
    pour(&mut fill, &bytes(7, LEN)[..1_000_000]);
    drop(fill);
    store.save_disk(0, PATIENCE);
    drop(store);
    folder.damage(|bytes| {
        let end = bytes.len();
        bytes.truncate(end - 8);
    });
    assert!(get(&large(&folder), "/a").is_none());
}

#[test]
fn a_part_takes_the_place_of_nothing_that_is_whole() {
    let folder = Folder::new("part-whole");
    let store = large(&folder);
    let before = bytes(1, 600_000);
    put(&store, "/a", &before).unwrap();
    store.save_disk(0, PATIENCE);
    let (_, mut fill) = begin(&store, "/a", LEN);
    pour(&mut fill, &bytes(7, LEN)[..1_000_000]);
    drop(fill);
    store.save_disk(0, PATIENCE);
    drop(store);
    assert!(content(&get(&large(&folder), "/a").unwrap()) == before);
}

/// A head that can be told from that of another version.
fn version(tag: &str) -> tidegate_cache::StoredHead {
    let mut head = head("/a");
    head.lines.push("ETag", tag);
    head
}

/// What a client learns of a version that comes in, or has come in part, is not said of another one that a disk still has.
#[test]
fn a_new_head_of_what_comes_in_is_not_that_of_an_older_content_on_the_disk() {
    // What is kept in memory; what goes to a disk as it comes; a part.
    for (name, len, keeps_part) in [("kept", 300_000, false), ("passed", LEN, false), ("part", 300_000, true)]
    {
        let folder = Folder::new(&format!("heads-{name}"));
        let store = large(&folder);
        let before = bytes(1, 200_000);
        put_head(&store, version("\"1\""), &before).unwrap();
        store.save_disk(0, PATIENCE);
        let (entry, mut fill) =
            lead(&store, b"/a").store(version("\"2\""), Some(len as u64), NOW + 1).unwrap();
        if keeps_part {
            fill.keeps_part();
        }
        pour(&mut fill, &bytes(7, len)[..200_000]);
        let mut fill = Some(fill);
        if keeps_part {
            fill = None;
        }
        lead(&store, b"/a").refresh(&entry, version("\"2\""), NOW + 2);
        store.note_purges_on(0);
        // It breaks off.
        drop((fill, entry));
        store.save_disk(0, PATIENCE);
        drop(store);
        let entry = get(&large(&folder), "/a").expect(name);
        assert_eq!(entry.head().lines.first("ETag"), Some(&b"\"1\""[..]), "{name}");
        assert!(content(&entry) == before, "{name}");
    }
}

/// An answer to HEAD that comes meanwhile does not keep it from the disk.
#[test]
fn what_goes_to_a_disk_is_stored_though_it_has_had_another_head() {
    let folder = Folder::new("heads-stored");
    let store = large(&folder);
    let all = bytes(7, LEN);
    let (entry, mut fill) = lead(&store, b"/a").store(version("\"2\""), Some(LEN as u64), NOW + 1).unwrap();
    pour(&mut fill, &all[..2_000_000]);
    lead(&store, b"/a").refresh(&entry, version("\"2\""), NOW + 2);
    pour(&mut fill, &all[2_000_000..]);
    fill.complete();
    drop(entry);
    store.save_disk(0, PATIENCE);
    assert!(content(&get(&store, "/a").expect("it was stored")) == all);
}

#[test]
fn who_is_slower_than_the_disk_holds_up_nobody_and_gets_all() {
    let folder = Folder::new("slow");
    let store = large(&folder);
    let all = bytes(3, LEN);
    let (entry, mut fill) = begin(&store, "/a", LEN);
    let mut slow = entry.content().reader(0..u64::MAX).unwrap();
    let mut first = vec![0; 1000];
    pour(&mut fill, &all[..1000]);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(slow.poll_read(&mut cx, &mut first), Poll::Ready(Ok(1000))));
    // It reads nothing more, and all comes in.
    pour(&mut fill, &all[1000..4_000_000]);
    let mut late = found(&store, "/a").unwrap().content().reader(0..u64::MAX).unwrap();
    assert!(store.figures().bytes <= MIB);
    pour(&mut fill, &all[4_000_000..]);
    fill.complete();
    store.save_disk(0, PATIENCE);
    let (rest, end) = read(&mut slow, 70_000);
    assert!(first == all[..1000] && rest == all[1000..] && end == Poll::Ready(true));
    assert!(read(&mut late, 70_000).0 == all);
}

#[test]
fn who_is_behind_when_the_disk_is_given_up_gets_all_the_same() {
    let folder = Folder::new("behind");
    let store = large(&folder);
    let all = bytes(3, LEN);
    let (entry, mut fill) = begin(&store, "/a", LEN);
    let mut slow = entry.content().reader(0..u64::MAX).unwrap();
    pour(&mut fill, &all[..2_000_000]);
    // Nothing may be written that is not there yet: so much fits into the window.
    let mut left = &all[2_000_000..];
    store.set_limits(Limits { memory: MIB, object: 2_500_000 });
    let mut seen = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    while !left.is_empty() {
        let taken = fill.append(&left[..left.len().min(30_000)]).unwrap();
        left = &left[taken..];
        if taken == 0 {
            // As long as it is the disk that is waited for, it may be through with what there is.
            let mut buffer = vec![0; 40_000];
            match slow.poll_read(&mut cx, &mut buffer) {
                Poll::Ready(Ok(count)) => seen.extend_from_slice(&buffer[..count]),
                Poll::Ready(Err(error)) => panic!("{error}"),
                Poll::Pending => std::thread::yield_now(),
            }
        }
    }
    assert!(!fill.is_kept() && found(&store, "/a").is_none(), "larger than the largest object by now");
    fill.complete();
    seen.extend(read(&mut slow, 40_000).0);
    assert!(seen == all);
}

/// Whatever breaks off, and whoever reads meanwhile: the bytes of each place are those of that place, and in the end all are there.
#[test]
fn however_often_it_breaks_off_no_byte_is_wrong() {
    let folder = Folder::new("random");
    for round in 0..12_u64 {
        let mut random = fastrand::Rng::with_seed(round);
        // In memory, and on its way to a disk.
        let store = if round % 2 == 0 { store(16 * MIB) } else { large(&folder) };
        let target = format!("/{round}");
        let all = bytes(round, LEN + random.usize(..300_000));
        let (mut entry, mut fill) = begin(&store, &target, all.len());
        loop {
            let at = fill.filled() as usize;
            let mut reader = entry.content().reader(0..u64::MAX).unwrap();
            let end = all.len().min(at + random.usize(1..2_500_000));
            let from = random.usize(..all.len());
            let mut piece = entry.content().reader(from as u64..from as u64 + 70_000).unwrap();
            pour(&mut fill, &all[at..end]);
            if end == all.len() {
                fill.complete();
                assert!(read(&mut reader, 60_000).0 == all, "{target}");
                break;
            }
            let seen = read(&mut reader, 60_000).0;
            assert!(seen == all[..end], "{target}: {} of {end}", seen.len());
            let seen = read(&mut piece, 60_000).0;
            assert!(seen == all[from..(from + 70_000).min(end).max(from)], "{target}: from {from}");
            drop((fill, reader, piece));
            store.save_disk(0, PATIENCE);
            drop(entry);
            (entry, fill) = match get(&store, &target) {
                Some(part) => go_on(&store, &part),
                // Too little for a disk.
                None => begin(&store, &target, all.len()),
            };
        }
    }
}
