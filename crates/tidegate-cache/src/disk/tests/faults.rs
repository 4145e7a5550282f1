//! Disks that fail: nobody is told but the operator, once; the others go on; the disk comes back.

use super::*;
use std::process::Command;

#[test]
fn one_disk_fails_and_the_other_goes_on() {
    let (one, other) = (Folder::new("fails"), Folder::new("goes-on"));
    let disks = Disks::open_under(&[one.settings(8 * MIB), other.settings(8 * MIB)], NOW, BOOT, admit());
    assert_eq!((disks.tick(0, NOW), disks.tick(1, NOW)), (None, None), "all is well");
    let entry = store(&disks, 1, 5000).unwrap();
    let volume = disks.volume(0).unwrap();
    assert!(matches!(volume.fault(Errno::IO), DiskError::Out));
    volume.fault(Errno::IO);
    assert_eq!(disks.look_up(key(1).1), None);
    assert!(matches!(disks.open_object(&entry, &key(1).0), Err(DiskError::Out)));
    assert!((0..100).all(|number| disks.place(key(number).1) == Some(1)));
    let notice = disks.tick(0, NOW + 1).unwrap();
    assert!(notice.to_string().contains("fails: "), "{notice}");
    assert_eq!((disks.tick(0, NOW + 2), disks.tick(1, NOW + 2)), (None, None), "said once, and of that disk");
    // What is removed meanwhile is gone when it comes back.
    assert!(disks.remove(&entry));
    assert_eq!(one.objects().len(), 1);
    assert_eq!(disks.tick(0, NOW + RETRY).unwrap().trouble, None);
    assert!(one.objects().is_empty());
    assert_eq!((fetch(&disks, 1), disks.figures()[0].faults), (None, 2));
    store(&disks, 2, 10).unwrap();
    // A clock that is set back delays nothing.
    volume.fault(Errno::IO);
    assert!(
        disks.tick(0, NOW - 5000).is_some_and(|notice| notice.trouble.is_none())
            || disks.figures()[0].trouble.is_none()
    );
}

#[test]
fn a_disk_that_is_closed_is_let_go_of_and_comes_back_empty() {
    let folder = Folder::new("closed");
    let disks = folder.open(8 * MIB, BOOT);
    put(&disks, 1, 5000);
    disks.close(0);
    let is_held = || {
        fs::read_dir("/proc/self/fd")
            .unwrap()
            .flatten()
            .any(|link| fs::read_link(link.path()).is_ok_and(|path| path.starts_with(&folder.0)))
    };
    assert!(!is_held(), "it could not be unmounted");
    assert_eq!((disks.tick(0, NOW + RETRY), disks.place(1)), (None, None));
    assert!(disks.figures()[0].is_closed && fetch(&disks, 1).is_none());
    assert_eq!(fetch(&folder.open(8 * MIB, BOOT), 1), Some(content(1, 5000)), "what was known is written");
    disks.set_size(0, 8 * MIB);
    while disks.figures()[0].slot.is_none() {
        disks.tick(0, NOW + RETRY);
    }
    assert_eq!(fetch(&disks, 1), None, "nobody told it what was removed meanwhile");
}

#[test]
fn a_folder_that_is_replaced_is_noticed_while_nothing_is_written() {
    let folder = Folder::new("replaced");
    let disks = folder.open(8 * MIB, BOOT);
    put(&disks, 1, 5000);
    fs::rename(folder.0.join("cache"), folder.0.join("away")).unwrap();
    fs::create_dir(folder.0.join("cache")).unwrap();
    let notice = disks.tick(0, NOW + 1).unwrap();
    assert!(notice.to_string().contains("has vanished"), "{notice}");
    assert_eq!(fetch(&disks, 1), None);
    assert_eq!(disks.tick(0, NOW + 1 + RETRY).unwrap().trouble, None);
    put(&disks, 2, 5000);
    assert_eq!(fetch(&disks, 2), Some(content(2, 5000)));
    assert!(folder.0.join("cache/slot-0").exists());
}

#[test]
fn what_is_forbidden_is_said_with_what_helps() {
    let said = Trouble::system("cannot be opened", Errno::ACCESS).to_string();
    assert!(said.contains("Permission denied") && said.contains("then reload the server"), "{said}");
    assert!(Trouble::system("fails", Errno::FBIG).to_string().contains("`ulimit -f`, LimitFSIZE="));
    assert!(!Trouble::system("fails", Errno::IO).to_string().contains("reload"));
}

#[test]
fn a_disk_that_is_full_is_still_read() {
    for error in [Errno::NOSPC, Errno::DQUOT, Errno::FBIG, Errno::ROFS] {
        let folder = Folder::new(&format!("full-{}", error.raw_os_error()));
        let disks = folder.open(8 * MIB, BOOT);
        store(&disks, 1, 5000).unwrap();
        assert!(matches!(disks.volume(0).unwrap().fault(error), DiskError::Out));
        assert!(matches!(store(&disks, 2, 10), Err(DiskError::Out)));
        assert_eq!(disks.place(key(1).1), None);
        assert_eq!(fetch(&disks, 1).unwrap(), content(1, 5000));
        disks.tick(0, NOW + RETRY);
        assert!(store(&disks, 2, 10).is_ok(), "{error}");
    }
}

#[test]
fn what_this_process_lacks_is_no_fault_of_the_disk() {
    let folder = Folder::new("descriptors");
    let disks = folder.open(8 * MIB, BOOT);
    assert!(matches!(disks.volume(0).unwrap().fault(Errno::MFILE), DiskError::System(_)));
    assert!(store(&disks, 1, 10).is_ok());
}

#[test]
fn a_folder_that_vanishes_is_made_anew() {
    let folder = Folder::new("vanished");
    let disks = folder.open(8 * MIB, BOOT);
    store(&disks, 1, 5000).unwrap();
    fs::remove_dir_all(folder.0.join("cache")).unwrap();
    assert!(matches!(store(&disks, 2, 10), Err(DiskError::Out)));
    assert_eq!(fetch(&disks, 1), None);
    let notice = disks.tick(0, NOW + 1).unwrap().to_string();
    assert!(notice.contains("has vanished"), "{notice}");
    assert_eq!(disks.tick(0, NOW + RETRY).unwrap().trouble, None);
    assert_eq!(fetch(&disks, 1), None);
    store(&disks, 2, 10).unwrap();
    // Without its parent there is nothing to make.
    fs::remove_dir_all(&folder.0).unwrap();
    assert!(store(&disks, 3, 10).is_err());
    assert!(disks.tick(0, NOW + 3 * RETRY).unwrap().trouble.is_some());
}

/// A folder of objects that somebody has deleted is made again, and no reason to give the disk up.
#[test]
fn folders_below_come_back() {
    let folder = Folder::new("below");
    let disks = folder.open(8 * MIB, BOOT);
    (0..20).for_each(|number| put(&disks, number, 10));
    for entry in fs::read_dir(folder.0.join("cache/slot-0")).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    (0..20).for_each(|number| assert_eq!(fetch(&disks, number), None));
    (0..20).for_each(|number| put(&disks, number, 10));
    assert_eq!(folder.objects().len(), 20);
}

/// A real file system that is full. Needs the right to mount one.
#[test]
fn a_full_file_system_costs_objects_and_nothing_else() {
    let folder = Folder::new("tmpfs");
    let path = folder.0.join("cache");
    fs::create_dir(&path).unwrap();
    let mount = |arguments: &[&str]| Command::new(arguments[0]).args(&arguments[1..]).arg(&path).status();
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tidegate"])
        .is_ok_and(|status| status.success())
    {
        eprintln!("SKIPPED: no right to mount a file system");
        return;
    }
    // A limit that the file system cannot hold: the free part is kept, and what others write is found out.
    let disks = folder.open(64 * MIB, BOOT);
    (0..100).for_each(|number| drop(store(&disks, number, 50_000)));
    let kept = (0..100)
        .filter(|number| fetch(&disks, *number).is_some_and(|bytes| bytes == content(*number, 50_000)));
    let kept = kept.count();
    // Somebody else fills what our limit still has.
    (0..100).for_each(|number| {
        disks.forget(key(number).1);
    });
    let filler = path.join("filler");
    let _ = fs::write(&filler, vec![1; 4 * MIB as usize]);
    let refused = (300..310).filter(|number| store(&disks, *number, 50_000).is_err()).count();
    let notice = disks.tick(0, NOW + 1);
    fs::remove_file(&filler).unwrap();
    disks.tick(0, NOW + 2 * RETRY);
    let is_back = store(&disks, 200, 50_000).is_ok();
    let (figures, is_right) =
        (disks.figures(), fetch(&disks, 200).is_some_and(|bytes| bytes == content(200, 50_000)));
    drop(disks);
    let unmounted = mount(&["umount"]);
    assert!(kept >= 20 && is_back && is_right, "{kept} kept, {figures:?}");
    assert!(figures[0].limit < 3 * MIB && figures[0].faults > 0, "{figures:?}");
    assert!(
        refused > 0 && notice.is_some_and(|notice| notice.to_string().contains("is full: ")),
        "{refused}"
    );
    assert!(unmounted.is_ok_and(|status| status.success()));
}

#[test]
fn a_disk_that_does_not_answer_is_done_without_until_it_does() {
    use std::time::Duration;
    let (one, other) = (Folder::new("stalled"), Folder::new("answers"));
    let disks = Disks::open_under(&[one.settings(8 * MIB), other.settings(8 * MIB)], NOW, BOOT, admit());
    let entry = store(&disks, 1, 5000).unwrap();
    let open = disks.open_object(&entry, &key(1).0).unwrap();
    let waits =
        |seconds, now| disks.waits(0, Duration::from_secs(seconds), now).map(|notice| notice.to_string());
    assert_eq!(waits(4, NOW + 4), None, "it may only be slow");
    let said = waits(5, NOW + 5).unwrap();
    assert!(said.contains("is stalled: a call to its disk has been waiting for 5s"), "{said}");
    assert_eq!((waits(6, NOW + 6), waits(2, NOW + 7)), (None, None), "said once; it has not answered yet");
    // Nothing is found, opened or stored there, and what is removed is told it later.
    assert_eq!(disks.look_up(key(1).1), None);
    assert!(!open.is_readable() && matches!(disks.open_object(&entry, &key(1).0), Err(DiskError::Out)));
    assert!(matches!(disks.create(0, &new(&key(2), Some(10))), Err(DiskError::Out)));
    assert!((0..100).all(|number| disks.place(key(number).1) == Some(1)));
    let figures = &disks.figures()[0];
    assert_eq!((figures.trouble.clone(), figures.trouble_since), (Some(Trouble::Stalled), Some(NOW)));
    disks.tick(0, NOW + 8);
    assert!(disks.is_stalled(0), "what hangs may be something else");
    assert!(disks.remove(&entry) && one.objects().len() == 1);
    let said = waits(0, NOW + 30).unwrap();
    assert!(said.contains("answers again, after 30s"), "{said}");
    assert!(open.is_readable() && disks.figures()[0].trouble.is_none());
    disks.tick(0, NOW + 31);
    assert!(one.objects().is_empty() && store(&disks, 3, 10).is_ok());
    // One that the settings name no more is nobody's.
    disks.close(0);
    assert_eq!(waits(500, NOW + 600), None);
}

/// Nobody waits to find out: whoever hangs is seen to.
#[test]
fn what_hangs_in_the_pool_is_outstanding() {
    let folder = Folder::new("hangs");
    let disks = folder.open(8 * MIB, BOOT);
    let gate = Arc::new(Mutex::new(()));
    let shut = lock(&gate);
    let held = gate.clone();
    tidegate_io::blocking::start(disks.queue_key(0), move || drop(lock(&held))).unwrap();
    let device = disks.queue_key(0).device;
    while tidegate_io::blocking::outstanding(device).is_zero() {
        std::thread::yield_now();
    }
    assert_eq!(disks.watch(0, NOW), None, "not for long");
    drop(shut);
}

/// What was written behind may not have come to the disk, and only its checksums tell.
#[test]
fn a_disk_that_has_failed_is_compared_with_its_checksums() {
    let folder = Folder::new("doubted");
    let disks = folder.open(8 * MIB, BOOT);
    let (entry, other) = (store(&disks, 1, 5000).unwrap(), store(&disks, 2, 5000).unwrap());
    assert!(disks.open_object(&entry, &key(1).0).unwrap().is_trusted(), "this boot has written it");
    disks.fail(0);
    assert_eq!(disks.tick(0, NOW + RETRY).map(|notice| notice.trouble), None, "it is well before it is said");
    assert!(!disks.open_object(&entry, &key(1).0).unwrap().is_trusted());
    assert_eq!(fetch(&disks, 1), Some(content(1, 5000)));
    assert!(disks.open_object(&entry, &key(1).0).unwrap().is_trusted(), "once it was compared");
    let damaged = disks.path(&other);
    let mut bytes = fs::read(&damaged).unwrap();
    bytes[4096 + 100] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    assert_eq!((fetch(&disks, 2), disks.figures()[0].broken), (None, 1));
}
