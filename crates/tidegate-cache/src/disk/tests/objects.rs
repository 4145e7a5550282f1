//! What is stored is read: whole, in parts, resumed, by its key and variant.

use super::*;
use proptest::prelude::*;
use std::os::fd::AsRawFd;

const SIZES: [u64; 9] = [0, 1, 100, 4088, 4096, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 77];

#[test]
fn objects_of_any_length_come_back() {
    let folder = Folder::new("sizes");
    let disks = folder.open(64 * MIB, BOOT);
    for (number, size) in SIZES.into_iter().enumerate() {
        let number = number as u64;
        let entry = store(&disks, number, size).unwrap();
        assert!(entry.is_whole && entry.stored_at == NOW as u32 && entry.mark == 7);
        assert_eq!(disks.look_up(key(number).1), Some(entry));
        assert_eq!(fetch(&disks, number).unwrap(), content(number, size), "{size}");
        let object = disks.open_object(&entry, &key(number).0).unwrap();
        assert!(object.is_trusted() && object.content_offset() == 4096);
        assert_eq!((object.header().head, object.header().entity_length), (HEAD, size));
        // What `sendfile` would send from the offset.
        let path = format!("/proc/self/fd/{}", object.file().as_raw_fd());
        let bytes = fs::read(path).unwrap();
        assert_eq!(&bytes[4096..4096 + size as usize], content(number, size), "{size}");
        (0..object.pieces()).for_each(|piece| object.compare_piece(piece).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// However it is cut, with and without a length: the file is the same.
    #[test]
    fn writes_of_any_size_make_the_same_object(
        size in 0..3 * PIECE,
        is_known: bool,
        cuts in proptest::collection::vec(1..200_000_usize, 1..5),
    ) {
        let folder = Folder::new(&format!("cuts-{size}"));
        let disks = folder.open(64 * MIB, BOOT);
        let (key, bytes) = (key(1), content(1, size));
        let mut fill = disks.create(0, &new(&key, is_known.then_some(size))).unwrap();
        let (mut rest, mut cut) = (&bytes[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (now, behind) = rest.split_at(rest.len().min(*cut.next().unwrap()));
            fill.write(now).unwrap();
            rest = behind;
        }
        prop_assert_eq!(fill.position(), size);
        let entry = fill.finish().unwrap();
        drop(disks);
        // Compared with its checksums.
        let disks = folder.open(64 * MIB, OTHER_BOOT);
        let entry = DiskEntry { disk: 0, ..entry };
        prop_assert_eq!(read(&disks, &entry, &key.0).unwrap(), bytes);
    }
}

#[test]
fn nothing_is_found_before_it_is_complete() {
    let folder = Folder::new("incomplete");
    let disks = folder.open(64 * MIB, BOOT);
    let key = key(1);
    for is_dropped in [true, false] {
        let mut fill = disks.create(0, &new(&key, Some(PIECE * 2))).unwrap();
        fill.write(&content(1, PIECE)).unwrap();
        assert_eq!(disks.look_up(key.1), None);
        if is_dropped {
            drop(fill);
        } else {
            assert!(matches!(fill.finish(), Err(DiskError::Missing)));
        }
        assert!(folder.objects().is_empty());
        assert_eq!(disks.figures()[0].reserved, 0, "given back");
    }
    let mut fill = disks.create(0, &new(&key, Some(10))).unwrap();
    assert!(matches!(fill.write(&[0; 11]), Err(DiskError::Order)), "more than was announced");
    let fill = disks.create(0, &new(&key, None)).unwrap();
    assert!(matches!(fill.keep(), Err(DiskError::Missing)), "nobody knows how much is missing");
}

#[test]
fn variants_of_a_key_are_apart_and_replaced_alone() {
    let folder = Folder::new("variants");
    let disks = folder.open(64 * MIB, BOOT);
    let key = key(1);
    let put = |variant, now| {
        let new = NewObject { variant, now, ..new(&key, None) };
        let mut fill = disks.create(0, &new).unwrap();
        fill.write(format!("{variant} {now}").as_bytes()).unwrap();
        fill.finish().unwrap()
    };
    let entries = [put(1, NOW), put(2, NOW + 1), put(1, NOW + 2)];
    let mut found = Vec::new();
    disks.variants(key.1, |entry| found.push((entry.variant, entry.stored_at)));
    found.sort_unstable();
    assert_eq!(found, [(1, NOW as u32 + 2), (2, NOW as u32 + 1)]);
    assert_eq!(disks.look_up(key.1), Some(entries[2]), "the newest");
    assert!(matches!(disks.open_object(&entries[0], &key.0), Err(DiskError::Gone)), "replaced");
    assert_eq!(read(&disks, &entries[1], &key.0).unwrap(), format!("2 {}", NOW + 1).as_bytes());
    assert_eq!(folder.objects().len(), 2);
    assert!(disks.remove(&entries[1]) && !disks.remove(&entries[1]));
    assert_eq!((disks.forget(key.1), disks.forget(key.1)), (1, 0));
    assert!(folder.objects().is_empty());
}

#[test]
fn a_key_of_the_same_hash_is_another_object() {
    let folder = Folder::new("collision");
    let disks = folder.open(64 * MIB, BOOT);
    let entry = store(&disks, 1, 10).unwrap();
    assert!(matches!(disks.open_object(&entry, b"https|b.example|/"), Err(DiskError::OtherKey)));
    assert_eq!(fetch(&disks, 1).unwrap(), content(1, 10), "it stays");
}

#[test]
fn a_head_is_replaced_before_the_same_content() {
    let folder = Folder::new("heads");
    let disks = folder.open(64 * MIB, BOOT);
    let (entry, key) = (store(&disks, 1, 5000).unwrap(), key(1).0);
    let before = disks.open_object(&entry, &key).unwrap();
    let head = Head { lines: b"age: 7\r\n", freshness: b"until next week", ..HEAD };
    disks.rewrite_head(&entry, &key, (head, 1, 1)).unwrap();
    assert_eq!(before.header().head, HEAD, "whoever has it open keeps what was read");
    let after = disks.inspect(&entry).unwrap();
    assert_eq!((after.header().head, after.header().key), (head, &key[..]));
    assert!(matches!(disks.rewrite_head(&entry, b"other", (HEAD, 1, 1)), Err(DiskError::OtherKey)));
    drop((before, after, disks));
    let disks = folder.open(64 * MIB, OTHER_BOOT);
    let entry = disks.look_up(self::key(1).1).unwrap();
    assert_eq!(disks.inspect(&entry).unwrap().header().head, head);
    assert_eq!(read(&disks, &entry, &key).unwrap(), content(1, 5000));
    let long = vec![b'a'; 5000];
    let too_long = disks.rewrite_head(&entry, &key, (Head { lines: &long, ..HEAD }, 1, 1));
    assert!(matches!(too_long, Err(DiskError::TooLarge)));
    assert!(disks.look_up(self::key(1).1).is_none(), "the old head is worth nothing any more");
}

#[test]
fn a_part_is_kept_and_the_rest_comes_later() {
    let folder = Folder::new("parts");
    let (key, size) = (key(1), 4 * PIECE + 100);
    let bytes = content(1, size);
    let piece = |number: u64| {
        let range = layout::piece_range(number, size);
        &bytes[range.start as usize..range.end as usize]
    };
    let disks = folder.open(64 * MIB, BOOT);
    let mut fill = disks.create(0, &new(&key, Some(size))).unwrap();
    fill.write(piece(0)).unwrap();
    fill.write(&piece(1)[..1000]).unwrap();
    let entry = fill.keep().unwrap();
    assert!(!entry.is_whole);

    let object = disks.open_object(&entry, &key.0).unwrap();
    let there: Vec<bool> = (0..6).map(|number| object.verify_piece(number).is_ok()).collect();
    assert_eq!(there, [true, false, false, false, false, false]);
    assert_eq!(object.beginning().unwrap(), PIECE, "in whole pieces");

    let mut fill = disks.resume(entry.disk, entry.id, &key.0).unwrap();
    assert_eq!(fill.position(), PIECE);
    assert!(matches!(disks.resume(entry.disk, entry.id, &key.0), Err(DiskError::Busy)));
    fill.write(piece(1)).unwrap();
    fill.write(&piece(2)[..77]).unwrap();
    assert!(object.verify_piece(1).is_ok(), "readers that have it open see it come");
    drop(fill);
    assert_eq!(object.beginning().unwrap(), 2 * PIECE, "what came whole stays");
    drop((object, disks));

    let disks = folder.open(64 * MIB, BOOT);
    let entry = disks.look_up(key.1).unwrap();
    let mut fill = disks.resume(entry.disk, entry.id, &key.0).unwrap();
    (2..5).for_each(|number| fill.write(piece(number)).unwrap());
    let entry = fill.finish().unwrap();
    assert!(entry.is_whole);
    assert_eq!(read(&disks, &entry, &key.0).unwrap(), bytes);
    assert!(disks.inspect(&entry).unwrap().header().is_whole);
    drop(disks);
    let disks = folder.open(64 * MIB, OTHER_BOOT);
    assert_eq!(fetch(&disks, 1).unwrap(), bytes);
    assert!(folder.used() <= disks.figures()[0].used, "{} {:?}", folder.used(), disks.figures());
}

#[test]
fn bytes_of_a_file_that_is_read_while_it_is_written_count_until_it_is_closed() {
    let folder = Folder::new("shared");
    let disks = folder.open(64 * MIB, BOOT);
    let used = || disks.figures()[0].used;
    let before = used();
    let mut fill = disks.create(0, &new(&key(1), Some(4 * PIECE))).unwrap();
    let file = fill.share().unwrap();
    fill.write(&content(1, PIECE)).unwrap();
    drop(fill);
    assert!(used() >= before + PIECE, "given up, and open still");
    drop(file);
    assert_eq!(used(), before);

    let mut fill = disks.create(0, &new(&key(1), Some(PIECE))).unwrap();
    let file = fill.share().unwrap();
    fill.write(&content(1, PIECE)).unwrap();
    let entry = fill.finish().unwrap();
    disks.remove(&entry);
    assert!(used() >= before + PIECE, "unlinked, and open still");
    drop(file);
    disks.tick(0, NOW);
    assert!(used() < before + PIECE, "{} {before}", used());
}

#[test]
fn objects_go_to_disks_by_their_sizes() {
    let (one, other) = (Folder::new("first"), Folder::new("second"));
    let settings = [one.settings(30 * MIB), other.settings(10 * MIB)];
    let disks = Disks::open_under(&settings, NOW, BOOT, admit());
    let placed = (0..4000).filter(|number| disks.place(key(*number).1) == Some(0)).count();
    assert!((2800..3200).contains(&placed), "{placed} of 4000 on three quarters");
    let other_seed = Disks::open_under(&[other.settings(MIB)], NOW, BOOT, admit()).seed();
    assert_eq!(disks.seed(), other_seed, "one seed for all");
    let at = |disk: u16| {
        let key = key(1);
        let mut fill = disks.create(disk, &new(&key, Some(3))).unwrap();
        fill.write(b"abc").unwrap();
        fill.finish().unwrap()
    };
    assert_eq!((at(0).disk, at(1).disk), (0, 1));
    assert_eq!(disks.forget(key(1).1), 2, "on every disk");
}

#[test]
fn a_sweep_removes_what_is_named_step_by_step() {
    let folder = Folder::new("sweep");
    let disks = folder.open(64 * MIB, BOOT);
    (0..300).for_each(|number| put(&disks, number, 10));
    let even: Vec<u128> = (0..300).step_by(2).map(|number| key(number).1).collect();
    let (mut from, mut removed, mut steps) = (Some(0), 0, 0);
    while let Some(place) = from {
        from = disks.sweep(0, place, 50, &mut removed, |entry| even.contains(&entry.id.hash));
        steps += 1;
    }
    assert_eq!((removed, folder.objects().len()), (150, 150));
    assert!(steps >= 6, "{steps}");
    assert!((0..300).all(|number| fetch(&disks, number).is_some() == (number % 2 == 1)));
}
