//! Files and folders that no [`Root`](crate::file::Root) of this process serves, wherever its path leads: private keys and
//! other secrets of the server (FAULTS 61).
//!
//! An application that has the server's user can neither read nor move them, but it can put a link to them where a root is
//! or was. So a folder that is opened as a root is compared with them, and where they lie below it each file that is opened,
//! too. The kernel says where an open descriptor lies, and applications can move nothing on the way to them, so that
//! nothing changes between the look and the use.

use crate::file::real_path_of;
use rustix::fs::{FileType, fstat};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

static PATHS: RwLock<Option<Arc<[PathBuf]>>> = RwLock::new(None);
static IS_ANY: AtomicBool = AtomicBool::new(false);
static TELL: OnceLock<fn(&Path)> = OnceLock::new();
static TOLD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// What is said of them.
const REFUSED: &str = "what lies there is kept from applications and clients: a private key, the storage of certificates, or \
                       the control socket";

/// How a folder lies to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nearness {
    /// Nothing of them is below it.
    Apart,
    /// Some may be.
    Above,
    /// It is one of them, or lies in one.
    Within,
}

/// From now on these are off limits, and no others: as they are named and as they were resolved when they came in force.
pub fn set(paths: Vec<PathBuf>) {
    change(|_| paths);
}

/// These are off limits as well.
pub fn add(paths: &[PathBuf]) {
    change(|present| {
        let mut all: Vec<PathBuf> = present.iter().chain(paths).cloned().collect();
        all.sort();
        all.dedup();
        all
    });
}

/// In one step: what another thread adds meanwhile stays.
fn change(change: impl FnOnce(&[PathBuf]) -> Vec<PathBuf>) {
    let mut kept = PATHS.write().unwrap_or_else(PoisonError::into_inner);
    let next = change(kept.as_deref().unwrap_or_default());
    IS_ANY.store(!next.is_empty(), Relaxed);
    *kept = Some(next.into());
}

/// Who hears that the path of a root has come to lead to one of them.
pub fn tell_with(tell: fn(&Path)) {
    let _ = TELL.set(tell);
}

fn present() -> Arc<[PathBuf]> {
    PATHS.read().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}

/// How the folder at this path lies, which the kernel has told; `None` where it does not tell.
pub(crate) fn nearness(real: Option<&[u8]>) -> Nearness {
    if !IS_ANY.load(Relaxed) {
        return Nearness::Apart;
    }
    let Some(real) = real else { return Nearness::Above };
    let paths = present();
    let holds = |folder: &[u8], path: &[u8]| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
    };
    let mut nearness = Nearness::Apart;
    for path in paths.iter().map(|path| path.as_os_str().as_bytes()) {
        if holds(path, real) {
            return Nearness::Within;
        }
        if holds(real, path) {
            nearness = Nearness::Above;
        }
    }
    nearness
}

/// Examines a folder that is to be a root.
pub(crate) fn examine_root(root: BorrowedFd<'_>, real: Option<&[u8]>) -> io::Result<()> {
    match nearness(real) {
        Nearness::Apart => Ok(()),
        Nearness::Above if real.is_some() => Ok(()),
        _ => examine(root),
    }
}

/// Examines what was opened, where they may lie.
///
/// # Errors
/// It is one of them, or lies in one.
pub fn examine(opened: BorrowedFd<'_>) -> io::Result<()> {
    if !IS_ANY.load(Relaxed) {
        return Ok(());
    }
    let refused = || Err(io::Error::new(io::ErrorKind::PermissionDenied, REFUSED));
    if real_path_of(opened).is_none_or(|real| nearness(Some(&real)) == Nearness::Within) {
        return refused();
    }
    // By another name: a hard link, another mount, or since a link was led elsewhere by its owner.
    let there = fstat(opened)?;
    if FileType::from_raw_mode(there.st_mode) == FileType::Directory {
        return Ok(()); // has one name, and a link that is kept may lead to it
    }
    let is_same = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|other| (other.dev(), other.ino()) == (there.st_dev, there.st_ino))
    };
    if present().iter().any(is_same) { refused() } else { Ok(()) }
}

/// Examines what was opened at a path that the operator has written: where it lies there and has no other name, it is what
/// was meant, as a log beside the certificates.
///
/// # Errors
/// As [`examine`].
pub fn examine_at(path: &Path, opened: BorrowedFd<'_>) -> io::Result<()> {
    let is_there = real_path_of(opened).is_some_and(|real| real == path.as_os_str().as_bytes());
    if is_there && fstat(opened)?.st_nlink == 1 { Ok(()) } else { examine(opened) }
}

/// The path of a root leads to one of them now, and is not followed. Says so once.
pub(crate) fn was_led_here(root: &Path) {
    let is_new = TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(root.to_owned());
    if let Some(tell) = TELL.get().filter(|_| is_new) {
        tell(root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Links, Patience, Root};
    use std::fs;
    use std::os::unix::fs::symlink;

    /// The paths are the process's: one test has all of them.
    #[test]
    fn a_root_that_is_led_to_a_secret_serves_what_it_served() {
        let folder = std::env::temp_dir().join(format!("tidegate-off-limits-{}", std::process::id()));
        for path in ["keys", "keys/below", "store/deep", "site", "above/keys", "above/public"] {
            fs::create_dir_all(folder.join(path)).unwrap();
        }
        for path in ["keys/key", "keys/other", "store/deep/key", "site/a", "above/keys/key", "above/public/b"]
        {
            fs::write(folder.join(path), path).unwrap();
        }
        let folder = folder.canonicalize().unwrap();
        let root_at = |path: &str| Root::open(&folder.join(path));
        symlink("site", folder.join("root")).unwrap();
        let root = root_at("root").unwrap();
        let above = root_at("above").unwrap();
        set(["keys/key", "store", "above/keys/key"].map(|path| folder.join(path)).into());
        tell_with(|path| drop(fs::write(path.with_extension("told"), "")));
        let reads = |root: &Root, path: &str| {
            root.open_file(path.as_bytes(), Patience::Wait).map(drop).map_err(|error| error.kind())
        };
        let denied = Err(io::ErrorKind::PermissionDenied);
        // What was opened before they were off limits is examined as well.
        assert_eq!(reads(&above, "keys/key"), denied);
        assert_eq!(reads(&above, "public/b"), Ok(()));
        assert_eq!(
            above.open_file(b"keys/key", Patience::Cached).unwrap_err().kind(),
            io::ErrorKind::WouldBlock,
            "it asks the disk"
        );
        fs::hard_link(folder.join("keys/key"), folder.join("above/public/hard")).unwrap();
        assert_eq!(reads(&above, "public/hard"), denied);
        let lead = |target: &str| {
            fs::remove_file(folder.join("root")).unwrap();
            symlink(target, folder.join("root")).unwrap();
            root.has_moved();
            root.follow(crate::clock::monotonic_ns(), Patience::Wait).unwrap();
        };
        for target in ["store", "store/deep"] {
            lead(target);
            assert_eq!(reads(&root, "a"), Ok(()), "{target}");
            assert_eq!(reads(&root, "key"), Err(io::ErrorKind::NotFound), "{target}");
            let refused = root_at("root").unwrap_err();
            assert!(refused.to_string().contains("kept from applications"), "{refused}");
        }
        assert!(folder.join("root.told").exists());
        lead("keys");
        assert_eq!(reads(&root, "key"), denied);
        assert_eq!(reads(&root, "other"), Ok(()), "it is no secret");
        lead("../../../../../..");
        let from_above = folder.join("keys/key").strip_prefix("/").unwrap().display().to_string();
        assert_eq!(reads(&root, &from_above), denied);
        lead("site");
        assert_eq!(reads(&root, "a"), Ok(()));
        // What is opened anew, since it was closed for others, is examined where it lies then.
        let closed = Root::shared_by_all(&folder.join("root"), Links::Beneath).unwrap();
        lead("above");
        closed.close_unless_used();
        assert!(closed.is_closed());
        assert_eq!(reads(&closed, "keys/key"), denied);
        assert_eq!(reads(&closed, "public/b"), Ok(()));
        lead("site");
        set(Vec::new());
        lead("store");
        assert_eq!(reads(&root, "deep/key"), Ok(()), "nothing is off limits");
        // Two readers of settings at once lose nothing of each other.
        std::thread::scope(|scope| {
            for name in ["a", "b"] {
                scope.spawn(move || (0..300).for_each(|at| add(&[PathBuf::from(format!("/{name}/{at}"))])));
            }
        });
        assert_eq!(present().len(), 600);
        set(Vec::new());
        fs::remove_dir_all(&folder).unwrap();
    }
}
