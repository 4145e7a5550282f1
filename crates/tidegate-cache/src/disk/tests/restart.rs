//! What is left after an end, clean or not, and who may have it.

use super::*;

fn fill_up(disks: &Disks, count: u64) {
    (0..count).for_each(|number| put(disks, number, 1000));
}

fn served(disks: &Disks, count: u64) -> u64 {
    (0..count)
        .filter(|number| fetch(disks, *number).is_some_and(|bytes| bytes == content(*number, 1000)))
        .count() as u64
}

#[test]
fn a_restart_begins_with_what_was_there() {
    let table = [
        // what the end before was, boot, whether the disk has to be scanned
        ("saved", true, BOOT, false),
        ("killed", false, BOOT, false),
        ("saved, then another boot", true, OTHER_BOOT, true),
        ("power cut", false, OTHER_BOOT, true),
        ("boot unknown", true, None, true),
    ];
    for (what, is_saved, boot, is_scanned) in table {
        let folder = Folder::new(&format!("restart-{}", what.len()));
        let disks = folder.open(16 * MIB, BOOT);
        fill_up(&disks, 50);
        let before = disks.figures()[0].objects;
        if is_saved {
            disks.save(0);
        }
        drop(disks);
        let disks = folder.open(16 * MIB, boot);
        assert_eq!((disks.figures()[0].objects, disks.may_probe()), (before, is_scanned), "{what}");
        assert_eq!(served(&disks, 50), 50, "{what}");
        scan(&disks);
        assert!(!disks.may_probe() && !disks.figures()[0].is_scanning, "{what}");
        assert_eq!((served(&disks, 50), disks.figures()[0].objects), (50, 50), "{what}");
        assert!(folder.used() <= disks.figures()[0].used, "{what}");
    }
}

/// Snapshot and journal are gone: what is asked for is found by its path, the rest by the scan.
#[test]
fn without_a_journal_look_ups_go_by_the_path() {
    let folder = Folder::new("lost");
    let disks = folder.open(16 * MIB, BOOT);
    fill_up(&disks, 50);
    drop(disks);
    let slot = folder.0.join("cache/slot-0");
    for file in fs::read_dir(&slot).unwrap().flatten() {
        if ["owner", "purges"].iter().any(|kept| file.file_name() == *kept) {
            continue;
        }
        if file.file_type().unwrap().is_file() {
            fs::remove_file(file.path()).unwrap();
        }
    }
    fs::write(slot.join("notes"), "mine").unwrap();
    fs::write(slot.join("0/readme"), "mine").ok();
    let disks = folder.open(16 * MIB, BOOT);
    assert_eq!((disks.look_up(key(7).1), disks.figures()[0].objects), (None, 0));
    assert_eq!(fetch(&disks, 7).unwrap(), content(7, 1000), "by its path");
    assert_eq!(disks.figures()[0].objects, 1);
    store(&disks, 99, 1000).unwrap();
    disks.scan_step(0, 1000);
    disks.save(0);
    drop(disks);
    let disks = folder.open(16 * MIB, BOOT);
    assert!(disks.may_probe(), "ended before the scan was done: it goes on");
    scan(&disks);
    assert_eq!((served(&disks, 50), disks.figures()[0].objects), (50, 51));
    assert_eq!(fs::read(slot.join("notes")).unwrap(), b"mine", "what is not ours stays");
    drop(disks);
    let disks = folder.open(16 * MIB, BOOT);
    let figures = &disks.figures()[0];
    assert_eq!((figures.objects, figures.is_scanning), (51, false), "the journal knows again");
}

/// What a scan finds beyond the limit goes.
#[test]
fn a_scan_keeps_to_the_limit() {
    let folder = Folder::new("smaller-scan");
    let disks = folder.open(16 * MIB, BOOT);
    (0..100).for_each(|number| put(&disks, number, 50_000));
    drop(disks);
    let disks = folder.open(2 * MIB, OTHER_BOOT);
    scan(&disks);
    let figures = &disks.figures()[0];
    assert!(figures.used <= 2 * MIB && folder.used() <= 2 * MIB, "{figures:?}");
    assert_eq!(figures.objects, folder.objects().len() as u64);
}

#[test]
fn what_was_removed_does_not_come_back() {
    for (what, boot) in [("killed", BOOT), ("power cut", OTHER_BOOT)] {
        let folder = Folder::new(&format!("removed-{}", what.len()));
        let disks = folder.open(16 * MIB, BOOT);
        fill_up(&disks, 20);
        disks.save(0);
        let entry = disks.look_up(key(3).1).unwrap();
        let path = folder.objects().into_iter().find(|path| {
            let name = format!("{:032x}", entry.id.hash);
            path.file_name().unwrap().to_string_lossy().starts_with(&name)
        });
        let path = path.unwrap();
        let bytes = fs::read(&path).unwrap();
        disks.remove(&entry);
        disks.tick(0, NOW + 1);
        drop(disks);
        if boot == OTHER_BOOT {
            // The power cut has undone the unlink.
            fs::write(&path, bytes).unwrap();
        }
        let disks = folder.open(16 * MIB, boot);
        assert_eq!(fetch(&disks, 3), None, "{what}");
        scan(&disks);
        assert_eq!((fetch(&disks, 3), served(&disks, 20)), (None, 19), "{what}");
        assert!(!path.exists(), "{what}");
    }
}

/// Files that a power cut has taken are not waited for, and their bytes do not count for ever.
#[test]
fn what_the_journal_has_and_the_disk_has_not_is_forgotten() {
    let folder = Folder::new("unseen");
    let disks = folder.open(16 * MIB, BOOT);
    fill_up(&disks, 40);
    drop(disks);
    folder.objects().iter().take(30).for_each(|path| fs::remove_file(path).unwrap());
    let disks = folder.open(16 * MIB, OTHER_BOOT);
    assert_eq!(disks.figures()[0].objects, 40);
    scan(&disks);
    assert_eq!((disks.figures()[0].objects, served(&disks, 40)), (10, 10));
}

#[test]
fn the_journal_is_kept_short() {
    let folder = Folder::new("short");
    let disks = folder.open(16 * MIB, BOOT);
    let length = || {
        let files = fs::read_dir(folder.0.join("cache/slot-0")).unwrap().flatten();
        files
            .filter_map(|file| file.metadata().ok())
            .filter(fs::Metadata::is_file)
            .map(|meta| meta.len())
            .sum::<u64>()
    };
    let mut longest = 0;
    for round in 0..4000 {
        store(&disks, round % 10, 10).unwrap();
        if round % 100 == 0 {
            disks.tick(0, NOW + round as i64);
            longest = longest.max(length());
        }
    }
    assert!((200 << 10..400 << 10).contains(&longest), "{longest} bytes");
    disks.tick(0, NOW);
    drop(disks);
    for _ in 0..20 {
        let disks = folder.open(16 * MIB, BOOT);
        assert_eq!(disks.figures()[0].objects, 10);
        disks.tick(0, NOW);
    }
    let files = fs::read_dir(folder.0.join("cache/slot-0")).unwrap().count();
    assert!(files < 16 + 16, "{files} files after many restarts");
}

/// No figure of time, which is the machine's: what is read is one file, and each object once.
#[test]
fn an_index_of_many_objects_is_read_in_one_go() {
    let folder = Folder::new("many-entries");
    let count = 50_000;
    {
        let disks = folder.open(MIB << 20, BOOT);
        let volume = disks.volume(0).unwrap();
        let mut random = fastrand::Rng::with_seed(9);
        let mut index = lock(&volume.index);
        for _ in 0..count {
            let id = Id { hash: random.u128(..), serial: random.u32(..) };
            index.restore(
                &Stored { id, size: 8192, is_whole: true, is_trusted: true, ..Stored::default() },
                true,
            );
        }
        drop(index);
        disks.save(0);
    }
    let disks = folder.open(MIB << 20, BOOT);
    let figures = &disks.figures()[0];
    assert_eq!((figures.objects, figures.is_scanning), (count, false));
    assert!(figures.overhead < count * 48 + folder::FOLDERS as u64 * 4096 + MIB, "{figures:?}");
}

#[test]
fn a_folder_has_one_owner_and_the_next_one_waits() {
    let folder = Folder::new("owner");
    let predecessor = folder.open(16 * MIB, BOOT);
    fill_up(&predecessor, 3);
    let successor = Disks::open_under(&[folder.settings(16 * MIB)], NOW, BOOT, admit());
    assert_eq!(successor.seed(), predecessor.seed());
    assert_eq!(successor.figures()[0].trouble, Some(Trouble::Owned));
    let notice = successor.tick(0, NOW + 1).unwrap();
    assert!(notice.to_string().contains("belongs to another process"), "{notice}");
    assert_eq!(successor.tick(0, NOW + 2), None, "said once");
    assert_eq!((successor.look_up(key(1).1), successor.place(key(1).1)), (None, None));
    assert!(matches!(store(&successor, 5, 5), Err(DiskError::Out)));
    // Invalidated while it waits.
    assert_eq!(successor.forget(key(1).1), 0);
    drop(predecessor);
    assert_eq!(successor.tick(0, NOW + 3).unwrap().trouble, None);
    assert_eq!((served(&successor, 3), fetch(&successor, 1)), (2, None));
}

#[test]
fn each_process_has_a_slot_and_its_share() {
    let folder = Folder::new("slots");
    let settings = |slots| [DiskSettings { slots, ..folder.settings(30 * MIB) }];
    let processes: Vec<Disks> = (0..3).map(|_| Disks::open_under(&settings(3), NOW, BOOT, admit())).collect();
    let slots: Vec<_> = processes.iter().map(|disks| disks.figures()[0].slot).collect();
    assert_eq!(slots, [Some(0), Some(1), Some(2)]);
    assert!(processes.iter().all(|disks| disks.figures()[0].limit <= 10 * MIB));
    processes.iter().for_each(|disks| fill_up(disks, 5));
    assert_eq!(folder.objects().len(), 15);
    let waits = Disks::open_under(&settings(3), NOW, BOOT, admit());
    assert_eq!(waits.figures()[0].trouble, Some(Trouble::Owned));
    drop(processes);
    // Fewer processes: what the others had goes.
    let one = Disks::open_under(&settings(1), NOW, BOOT, admit());
    one.tick(0, NOW + 1);
    assert_eq!((served(&one, 5), folder.objects().len()), (5, 5));
    assert!(!folder.0.join("cache/slot-1").exists() && !folder.0.join("cache/slot-2").exists());
}

#[test]
fn a_folder_that_is_not_ours_is_refused_and_left_alone() {
    let table = [
        (
            "files",
            "important.txt",
            "text",
            "holds `important.txt`, which is not of a cache; name a folder that is empty",
        ),
        ("version", "tidegate-cache", "tidegate-cache 2 00", "was written by another version of Tidegate"),
        ("marker", "tidegate-cache", "", "was written by another version of Tidegate"),
    ];
    for (what, name, text, expected) in table {
        let folder = Folder::new(&format!("foreign-{what}"));
        fs::create_dir(folder.0.join("cache")).unwrap();
        let file = folder.0.join("cache").join(name);
        fs::write(&file, text).unwrap();
        let disks = Disks::open_under(&[folder.settings(MIB)], NOW, BOOT, admit());
        let notice = disks.tick(0, NOW).unwrap().to_string();
        assert!(notice.contains(expected) && notice.starts_with("cache folder /"), "{what}: {notice}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert_eq!(fs::read_dir(folder.0.join("cache")).unwrap().count(), 1, "{what}");
        // Once it is empty it is taken.
        fs::remove_file(&file).unwrap();
        assert_eq!(disks.tick(0, NOW + 1), None, "not tried each second");
        assert_eq!(disks.tick(0, NOW + RETRY).unwrap().trouble, None);
        assert!(store(&disks, 1, 1).is_ok());
    }
}

/// Objects that were hashed with a seed that is not known any more are never found again: they go.
#[test]
fn another_seed_empties_a_slot() {
    let folder = Folder::new("seed");
    let disks = folder.open(16 * MIB, BOOT);
    fill_up(&disks, 10);
    let seed = disks.seed();
    drop(disks);
    fs::write(folder.0.join("cache/tidegate-cache"), format!("tidegate-cache 1 {:016x}\n", !seed)).unwrap();
    let disks = folder.open(16 * MIB, BOOT);
    assert_eq!((disks.seed(), disks.figures()[0].objects, folder.objects().len()), (!seed, 0, 0));
    fill_up(&disks, 2);
    drop(disks);
    assert_eq!(served(&folder.open(16 * MIB, BOOT), 10), 2);
}

#[test]
fn a_boot_has_an_id() {
    assert!(read_boot_id().is_none_or(|boot| boot != [0; 16]));
}
