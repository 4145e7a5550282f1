//! What can be reached, and what cannot. Where tests put what other users have to reach: programs and files of the checkout, and folders of a test's own.
//!
//! Tests that root runs start servers and applications as other users. A checkout may lie where those may not go, as below a
//! folder of `mktemp -d`: then they get copies.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// An address of this machine on which nobody listens. A port that was free a moment ago may be another test's by now.
pub const NOBODY: &str = "127.255.255.1:9";

/// Whether every user may enter a folder.
fn all_may_enter(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    folder.ancestors().all(|folder| fs::metadata(folder).is_ok_and(|there| there.mode() & 0o001 != 0))
}

fn is_reachable(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|path| path.parent().is_none_or(all_may_enter))
}

/// Whether others are started at all.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A file or folder of the checkout for other users: itself where all can reach it, else a copy among the temporary files,
/// which is as new as the original and stays for the next run.
///
/// # Panics
/// It cannot be copied.
pub fn reachable(path: &Path) -> PathBuf {
    if !is_root() || is_reachable(path) {
        return path.to_owned();
    }
    copied(path)
        .unwrap_or_else(|error| panic!("{} cannot be copied for other users: {error}", path.display()))
}

fn copied(path: &Path) -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    newest(path)?.hash(&mut hasher);
    let place = std::env::temp_dir().join(format!("tidegate-reachable-{:016x}", hasher.finish()));
    let copy = place.join(path.file_name().unwrap_or_default());
    let is_own = fs::symlink_metadata(&place).is_ok_and(|there| there.is_dir() && there.uid() == 0);
    if !is_own {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let draft = place.with_extension(format!("{}-{number}", std::process::id()));
        fs::create_dir(&draft)?;
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o755))?;
        copy_all(path, &draft.join(path.file_name().unwrap_or_default()))?;
        // Another test may have been first.
        if fs::rename(&draft, &place).is_err() {
            fs::remove_dir_all(&draft)?;
        }
    }
    Ok(copy)
}

/// The last change of a file, or of any below a folder, with its place and length.
fn newest(path: &Path) -> io::Result<(i64, i64, u64)> {
    let there = fs::symlink_metadata(path)?;
    let mut newest = (there.mtime(), there.mtime_nsec(), there.len());
    if there.is_dir() {
        for entry in fs::read_dir(path)? {
            newest = newest.max(self::newest(&entry?.path())?);
        }
    }
    Ok(newest)
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    let there = fs::symlink_metadata(from)?;
    if there.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    }
    if !there.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy_all(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// A new folder that lies in none for everybody, as that for temporary files is, and that every user can reach where root runs
/// the test: in the folder that the build has for tests, `usual`, or where that is none such, in one of the system's or the
/// user's own.
///
/// # Panics
/// It cannot be made.
pub fn folder_apart(usual: &Path, name: &str) -> PathBuf {
    let name = format!("tidegate-{}-{name}", std::process::id());
    let system = ["/srv", "/opt", "/var/lib"].map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut places = std::iter::once(usual.to_owned()).chain(system).chain(home);
    let is_good = |folder: &Path| (!is_root() || all_may_enter(folder)) && is_of_its_owner(folder);
    let made = places.find_map(|place| {
        let path = place.join(&name);
        (is_good(&place) && fs::create_dir_all(&path).is_ok()).then_some(path)
    });
    made.unwrap_or_else(|| panic!("{} lies in a folder for everybody, as all others do", usual.display()))
}

/// Whether nobody but its owner can put another in the place of a folder.
fn is_of_its_owner(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    folder.ancestors().all(|folder| fs::metadata(folder).is_ok_and(|there| there.mode() & 0o002 == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_where_others_may_not_go_is_copied_and_the_copy_is_new() {
        if !is_root() {
            return eprintln!("SKIPPED: who is not root starts nothing as another user");
        }
        let closed = std::env::temp_dir().join(format!("tidegate-closed-{}", std::process::id()));
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(closed.join("tree")).unwrap();
        fs::write(closed.join("tree/file"), "first").unwrap();
        assert_eq!(reachable(&closed.join("tree")), closed.join("tree"));
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        let copy = reachable(&closed.join("tree"));
        assert_eq!(fs::read_to_string(copy.join("file")).unwrap(), "first");
        assert!(is_reachable(&copy.join("file")));
        assert_eq!(reachable(&closed.join("tree")), copy);
        fs::write(closed.join("tree/file"), "changed").unwrap();
        let next = reachable(&closed.join("tree"));
        assert_eq!(fs::read_to_string(next.join("file")).unwrap(), "changed");
        for mode in [0o700, 0o1777] {
            fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
            let apart = folder_apart(&closed, "apart");
            assert!(all_may_enter(&apart) && is_of_its_owner(&apart), "{}", apart.display());
            fs::remove_dir(apart).unwrap();
        }
        for folder in [closed, copy.parent().unwrap().to_owned(), next.parent().unwrap().to_owned()] {
            fs::remove_dir_all(folder).unwrap();
        }
    }
}
