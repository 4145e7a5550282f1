//! Files that were cut, zeroed and changed: every byte that is served is the one that was stored.

use super::*;
use std::os::unix::fs::FileExt;

/// What is served of a damaged file: nothing, or what was stored.
fn check(folder: &Folder, path: &Path, bytes: &[u8], boot: Option<BootId>, what: &str) -> bool {
    fs::write(path, bytes).unwrap();
    let disks = folder.open(64 * MIB, boot);
    let served = fetch(&disks, 1);
    if let Some(served) = &served {
        assert!(*served == content(1, SIZE), "{what}: wrong bytes");
    } else {
        assert!(!path.exists(), "{what}: it is not tried twice");
        assert_eq!(disks.look_up(key(1).1), None, "{what}");
    }
    assert_eq!(disks.figures()[0].trouble, None, "{what}: the disk is well");
    served.is_some()
}

const SIZE: u64 = PIECE + 5000;

fn stored(name: &str) -> (Folder, PathBuf, Vec<u8>) {
    let folder = Folder::new(name);
    let disks = folder.open(64 * MIB, BOOT);
    store(&disks, 1, SIZE).unwrap();
    disks.save(0);
    let path = folder.objects().pop().unwrap();
    let bytes = fs::read(&path).unwrap();
    (folder, path, bytes)
}

/// Restarts without another word from a process before: as after a power cut.
fn forget_boot(folder: &Folder) {
    let slot = folder.0.join("cache/slot-0");
    for file in fs::read_dir(slot).unwrap().flatten() {
        if file.file_type().unwrap().is_file() && file.file_name() != "owner" && file.file_name() != "purges"
        {
            fs::remove_file(file.path()).unwrap();
        }
    }
}

#[test]
fn a_file_that_was_cut_is_not_served() {
    let (folder, path, bytes) = stored("cut");
    let all = 0..bytes.len();
    // Every length around what has a meaning, and some of the rest.
    let cuts = all
        .filter(|cut| cut % 4099 == 0 || *cut < 140 || (4090..4110).contains(cut) || bytes.len() - cut < 40);
    for cut in cuts {
        forget_boot(&folder);
        assert!(!check(&folder, &path, &bytes[..cut], BOOT, &format!("cut at {cut}")));
    }
    forget_boot(&folder);
    assert!(!check(&folder, &path, &[&bytes[..], &[0]].concat(), BOOT, "longer"));
    forget_boot(&folder);
    assert!(check(&folder, &path, &bytes, BOOT, "as it was"));
}

#[test]
fn after_another_boot_no_changed_byte_is_served() {
    let (folder, path, bytes) = stored("zeroed");
    for page in 0..bytes.len().div_ceil(4096) {
        let mut changed = bytes.clone();
        let end = bytes.len().min((page + 1) * 4096);
        changed[page * 4096..end].fill(0);
        assert!(!check(&folder, &path, &changed, OTHER_BOOT, &format!("page {page} zeroed")));
    }
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..150 {
        let (at, bit) = (random.usize(..bytes.len()), random.u8(..8));
        let mut changed = bytes.clone();
        changed[at] ^= 1 << bit;
        // What fills up between the end of the content and the table may be anything.
        check(&folder, &path, &changed, OTHER_BOOT, &format!("bit {bit} of byte {at}"));
    }
    assert!(check(&folder, &path, &bytes, OTHER_BOOT, "as it was"));
}

#[test]
fn under_the_same_boot_the_header_is_held_to_its_checksum() {
    let (folder, path, bytes) = stored("header");
    for at in (0..4096).step_by(13) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(!check(&folder, &path, &changed, BOOT, &format!("byte {at}")));
    }
    assert!(check(&folder, &path, &bytes, BOOT, "as it was"));
}

#[test]
fn a_piece_that_was_changed_is_not_served_and_those_before_it_were_right() {
    let (folder, path, _) = stored("piece");
    let disks = folder.open(64 * MIB, OTHER_BOOT);
    let entry = disks.look_up(key(1).1).unwrap();
    let object = disks.open_object(&entry, &key(1).0).unwrap();
    assert!(!object.is_trusted());
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"!", 4096 + PIECE).unwrap();
    object.verify_piece(0).unwrap();
    assert!(object.is_verified(0) && !object.is_verified(1));
    assert!(matches!(object.verify_piece(1), Err(DiskError::Broken(Damage::Piece))));
    assert!(matches!(object.verify_piece(9), Err(DiskError::Missing)));
    assert_eq!((disks.look_up(key(1).1), disks.figures()[0].broken), (None, 1));
    assert!(!path.exists());
}

#[test]
fn what_was_compared_once_is_trusted_until_the_next_boot() {
    let (folder, ..) = stored("once");
    for (boot, is_trusted) in [(OTHER_BOOT, false), (OTHER_BOOT, true), (BOOT, true), (None, false)] {
        let disks = folder.open(64 * MIB, boot);
        scan(&disks);
        let entry = disks.look_up(key(1).1).unwrap();
        assert_eq!(disks.open_object(&entry, &key(1).0).unwrap().is_trusted(), is_trusted, "{boot:?}");
        assert_eq!(fetch(&disks, 1).unwrap(), content(1, SIZE));
        disks.save(0);
    }
}

#[test]
fn what_is_not_a_file_of_ours_in_a_name_of_ours_is_no_object() {
    for what in ["folder", "link", "pipe", "nothing"] {
        let (folder, path, _) = stored(what);
        fs::remove_file(&path).unwrap();
        match what {
            "folder" => fs::create_dir(&path).unwrap(),
            "link" => std::os::unix::fs::symlink("/etc/passwd", &path).unwrap(),
            "pipe" => {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
            }
            _ => {}
        }
        let disks = folder.open(64 * MIB, BOOT);
        assert_eq!(fetch(&disks, 1), None, "{what}");
        assert_eq!(disks.look_up(key(1).1), None, "{what}");
        assert!(store(&disks, 2, 10).is_ok(), "{what}: the disk is well");
    }
}
