//! The limit: held at every moment, counted as the file system counts.

use super::*;

#[test]
fn a_flood_of_objects_stays_below_the_limit() {
    let folder = Folder::new("flood");
    let limit = 3 * MIB;
    let disks = folder.open(limit, BOOT);
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..400 {
        let size = if random.u8(..) < 20 { random.u64(..600_000) } else { random.u64(..9000) };
        match store(&disks, number, size) {
            Ok(_) => assert_eq!(fetch(&disks, number).unwrap(), content(number, size)),
            Err(error) => panic!("{number} of {size} bytes: {error}"),
        }
        let figures = &disks.figures()[0];
        assert!(figures.used <= limit, "{number}: {figures:?}");
        if number % 20 == 0 {
            assert!(folder.used() <= figures.used, "{number}: {} on the disk, {figures:?}", folder.used());
            disks.tick(0, NOW + number as i64);
        }
    }
    let figures = &disks.figures()[0];
    assert!(figures.evicted > 50 && figures.reserved == 0, "{figures:?}");
    assert_eq!(figures.objects, folder.objects().len() as u64);
    assert!(figures.used > limit / 2, "{figures:?}");
}

#[test]
fn what_is_open_counts_until_it_is_closed() {
    let folder = Folder::new("open");
    let limit = 2 * MIB;
    let disks = folder.open(limit, BOOT);
    let first = store(&disks, 1, MIB).unwrap();
    let object = disks.open_object(&first, &key(1).0).unwrap();
    assert!(matches!(store(&disks, 2, MIB), Err(DiskError::NoRoom)), "it would give no room, so it stays");
    assert_eq!((disks.look_up(key(1).1).is_some(), disks.figures()[0].no_room), (true, 1));
    assert!(disks.remove(&first));
    let lingering = disks.figures()[0].lingering;
    assert!(lingering >= MIB, "{lingering}");
    assert!(matches!(store(&disks, 2, MIB), Err(DiskError::NoRoom)), "its bytes are not free yet");
    let mut bytes = vec![0; MIB as usize];
    assert_eq!(object.read_at(&mut bytes, 0).unwrap(), bytes.len());
    assert_eq!(bytes, content(1, MIB), "whoever has it open reads on");
    drop(object);
    assert_eq!(disks.figures()[0].lingering, 0);
    store(&disks, 2, MIB).unwrap();
}

#[test]
fn fills_reserve_what_they_write() {
    let folder = Folder::new("fills");
    let disks = folder.open(2 * MIB, BOOT);
    let (one, other) = (key(1), key(2));
    let mut first = disks.create(0, &new(&one, Some(MIB))).unwrap();
    first.write(&content(1, MIB)).unwrap();
    let mut second = disks.create(0, &new(&other, None)).unwrap();
    assert!(matches!(second.write(&content(2, MIB)), Err(DiskError::NoRoom)));
    first.finish().unwrap();
    // Now something can go.
    drop(second);
    store(&disks, 2, MIB).unwrap();
    assert!(disks.look_up(one.1).is_none());
    // What cannot be had costs nothing that is there.
    assert!(matches!(disks.volume(0).unwrap().reserve(2 * MIB), Err(DiskError::NoRoom)));
    assert!(disks.look_up(other.1).is_some());
    let too_large = disks.create(0, &new(&one, Some(2 * MIB)));
    assert!(matches!(too_large, Err(DiskError::TooLarge)));
    let long = vec![b'a'; layout::LONGEST_HEADER];
    let long = NewObject { head: Head { lines: &long, ..HEAD }, ..new(&one, Some(1)) };
    assert!(matches!(disks.create(0, &long), Err(DiskError::TooLarge)));
}

/// Whoever else fills the file system: so much of it stays free that it is the smaller of two bounds.
#[test]
fn a_limit_is_what_the_file_system_has_left() {
    let folder = Folder::new("left");
    let disks = folder.open(u64::MAX / 2, BOOT);
    let stat = rustix::fs::statvfs(&folder.0).unwrap();
    let limit = disks.figures()[0].limit;
    assert!(limit < stat.f_blocks * stat.f_frsize, "{limit}");
    assert!(
        limit + (400 << 20).min(stat.f_blocks * stat.f_frsize / 60)
            < stat.f_bavail * stat.f_frsize + (64 << 20)
    );
}

/// Threads of the pool at work on the same objects, with ticks, snapshots and a scan among them.
#[test]
fn many_at_once_leave_the_sums_right() {
    let folder = Folder::new("many");
    let limit = 4 * MIB;
    put(&folder.open(limit, BOOT), 1, 10);
    let disks = folder.open(limit, OTHER_BOOT);
    let work = |thread: u64| {
        let mut random = fastrand::Rng::with_seed(thread);
        for turn in 0..150 {
            let number = random.u64(..60);
            match random.u8(..10) {
                0 => drop(disks.forget(key(number).1)),
                1 => drop(disks.tick(0, NOW + turn)),
                2 => disks.save(0),
                3 => drop(disks.scan_step(0, 100)),
                4..7 => drop(store(&disks, number, number * 4000)),
                _ => {
                    let served = fetch(&disks, number);
                    assert!(
                        served.is_none_or(|bytes| bytes == content(number, number * 4000) || number == 1)
                    );
                }
            }
            assert!(disks.figures()[0].used <= limit, "{:?}", disks.figures());
        }
    };
    let work = &work;
    std::thread::scope(|scope| (0..4).for_each(|thread| drop(scope.spawn(move || work(thread)))));
    scan(&disks);
    let figures = &disks.figures()[0];
    assert_eq!(
        (figures.reserved, figures.lingering, figures.faults, &figures.trouble),
        (0, 0, 0, &None),
        "{figures:?}"
    );
    assert!(folder.used() <= figures.used, "{} on the disk, {figures:?}", folder.used());
    let volume = disks.volume(0).unwrap();
    assert_eq!(lock(&volume.index).usage().leaving, 0);
    assert_eq!(figures.objects, folder.objects().len() as u64);
}

#[test]
fn what_is_used_stays() {
    let folder = Folder::new("used");
    let disks = folder.open(3 * MIB, BOOT);
    (0..20).for_each(|number| put(&disks, number, 20_000));
    for _ in 0..3 {
        (0..20).for_each(|number| drop(fetch(&disks, number).unwrap()));
    }
    (100..400).for_each(|number| put(&disks, number, 20_000));
    let kept = (0..20).filter(|number| fetch(&disks, *number).is_some()).count();
    assert!(kept >= 18, "{kept} of 20 after a scan over ten times as many");
}

#[test]
fn a_smaller_size_holds_after_some_ticks() {
    let folder = Folder::new("smaller");
    let disks = folder.open(8 * MIB, BOOT);
    (0..100).for_each(|number| put(&disks, number, 50_000));
    disks.set_size(0, 2 * MIB);
    disks.tick(0, NOW + 1);
    let figures = &disks.figures()[0];
    assert!(figures.used <= 2 * MIB && figures.limit <= 2 * MIB, "{figures:?}");
    assert!(folder.used() <= 2 * MIB);
}

/// As after a reload that raises `processes`: the first slot is as full as it was to be alone.
#[test]
fn a_slot_takes_no_more_than_the_others_leave() {
    let folder = Folder::new("others");
    let settings = |slots| [DiskSettings { slots, ..folder.settings(8 * MIB) }];
    let alone = Disks::open_under(&settings(1), NOW, BOOT, admit());
    (0..400).for_each(|number| put(&alone, number, 50_000));
    alone.tick(0, NOW + 1);
    assert!(alone.figures()[0].used > 7 * MIB);
    let second = Disks::open_under(&settings(2), NOW, BOOT, admit());
    assert_eq!(second.figures()[0].slot, Some(1));
    // What cannot be stored yet is not.
    let fill = |disks: &Disks| (1000..1400).for_each(|number| drop(store(disks, number, 50_000)));
    for second_on in 1..4 {
        fill(&second);
        assert!(folder.used() <= 8 * MIB, "{} on the disk", folder.used());
        second.tick(0, NOW + second_on);
    }
    drop(alone);
    let first = Disks::open_under(&settings(2), NOW, BOOT, admit());
    assert_eq!(first.figures()[0].slot, Some(0));
    fill(&second);
    assert!(folder.used() <= 8 * MIB, "{} on the disk before the first has shrunk", folder.used());
    for _ in 0..3 {
        first.tick(0, NOW + 5);
        second.tick(0, NOW + 5);
    }
    fill(&second);
    let used = second.figures()[0].used;
    assert!(
        used > 3 * MIB && folder.used() <= 8 * MIB,
        "{used}: the share is there once the first has shrunk"
    );
}

#[test]
fn an_index_of_a_million_objects_takes_96_bytes_each() {
    let mut index = index::Index::new(1 << 40);
    let mut random = fastrand::Rng::with_seed(5);
    let stored = |random: &mut fastrand::Rng| Stored {
        id: Id { hash: random.u128(..), serial: random.u32(..) },
        size: 8192,
        ..Stored::default()
    };
    for _ in 0..1_000_000 {
        index.restore(&stored(&mut random), true);
    }
    let each = |index: &index::Index| index.memory() as f64 / index.len() as f64;
    assert!(each(&index) <= 96.0, "{} bytes", each(&index));
    // In demand, then pushed out by what is not: with all marks of what has gone.
    index.set_limit(8192 * 1_000_000);
    for _ in 0..300_000 {
        let victim = index.evict().unwrap();
        index.has_left(victim);
        index.restore(&stored(&mut random), true);
    }
    assert_eq!(index.len(), 1_000_000);
    assert!(each(&index) <= 96.0, "{} bytes", each(&index));
}
