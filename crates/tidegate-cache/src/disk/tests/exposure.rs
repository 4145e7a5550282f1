//! Folders and files that others could write: what lies there is not served.

use super::*;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

/// Somebody else.
const OTHER: u32 = 54_321;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Only root can give files away.
fn is_root() -> bool {
    let is_root = ownership::own_user() == 0;
    if !is_root {
        eprintln!("SKIPPED: only root can give files to others");
    }
    is_root
}

/// What becomes of a folder that holds an object, once it is opened anew.
fn opened(folder: &Folder, path: &Path) -> String {
    let disks = Disks::open_under(
        &[DiskSettings { folder: path.into(), ..folder.settings(8 * MIB) }],
        NOW,
        BOOT,
        admit(),
    );
    while disks.figures()[0].trouble == Some(Trouble::Owned) {
        disks.tick(0, NOW);
    }
    let trouble = disks.figures()[0].trouble.clone();
    match trouble {
        None => {
            scan(&disks);
            if fetch(&disks, 1).is_some() { "served" } else { "nothing" }.to_owned()
        }
        Some(trouble) => {
            assert_eq!((disks.look_up(key(1).1), disks.place(1)), (None, None));
            trouble.to_string()
        }
    }
}

fn filled(name: &str) -> Folder {
    let folder = Folder::new(name);
    put(&folder.open(8 * MIB, BOOT), 1, 5000);
    folder
}

#[test]
fn what_others_may_write_is_not_used() {
    let folder = filled("modes");
    let cache = folder.0.join("cache");
    for (name, usual, wide) in
        [("", 0o700, 0o777), ("", 0o700, 0o1777), ("tidegate-cache", 0o600, 0o620), ("slot-0", 0o700, 0o702)]
    {
        let path = cache.join(name);
        set_mode(&path, wide);
        let said = opened(&folder, &cache);
        let named = path.display().to_string();
        assert!(said.contains(named.trim_end_matches('/')) && said.contains("chmod go-w"), "{name}: {said}");
        set_mode(&path, usual);
        assert_eq!(opened(&folder, &cache), "served");
    }
    let object = folder.objects().remove(0);
    set_mode(&object, 0o622);
    assert_eq!(opened(&folder, &cache), "nothing");
}

#[test]
fn what_others_own_is_not_used() {
    if !is_root() {
        return;
    }
    let folder = filled("owners");
    let cache = folder.0.join("cache");
    for name in ["", "tidegate-cache", "slot-0", ".."] {
        let path = cache.join(name);
        chown(&path, Some(OTHER), None).unwrap();
        let said = opened(&folder, &cache);
        assert!(said.contains("belongs to user 54321"), "{name}: {said}");
        chown(&path, Some(0), None).unwrap();
        assert_eq!(opened(&folder, &cache), "served");
    }
    chown(folder.objects().remove(0), Some(OTHER), None).unwrap();
    assert_eq!(opened(&folder, &cache), "nothing");
}

#[test]
fn a_way_that_others_could_change_is_not_gone() {
    let folder = filled("ways");
    let link = folder.0.join("link");
    symlink("./cache/../cache", &link).unwrap();
    assert_eq!(opened(&folder, &link), "served", "a link of ours");
    set_mode(&folder.0, 0o777);
    assert!(opened(&folder, &link).contains("others may write"));
    set_mode(&folder.0, 0o1777);
    assert_eq!(opened(&folder, &link), "served", "each has only what is theirs");
    symlink(&link, folder.0.join("turn")).unwrap();
    fs::remove_file(&link).unwrap();
    symlink("turn", &link).unwrap();
    assert!(opened(&folder, &link).contains("cannot be looked at"), "a ring of links");
    if is_root() {
        fs::remove_file(&link).unwrap();
        symlink("cache", &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(OTHER), None).unwrap();
        assert!(opened(&folder, &link).contains("belongs to user 54321"), "a link of somebody else");
    }
}
