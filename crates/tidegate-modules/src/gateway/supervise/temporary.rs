//! Where PHP puts uploads and sessions: a folder of the pool's own, on disk or in memory, and bounded.
//!
//! PHP's own place for both is a folder of the whole system, often on a slow disk, and nothing bounds it. The folder made
//! here belongs to the pool's user, and a thread looks at it now and then: what goes beyond its bound is removed, the
//! oldest sessions first. Uploads that requests left behind go after an hour; PHP removes those of requests that end.

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, mkdir, openat, statat, unlinkat};
use std::cell::Cell;
use std::collections::{BTreeMap, BinaryHeap};
use std::ffi::{CStr, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tidegate_config::settings::pool::{Place, Temporary};
use tidegate_core::log;

/// How often folders are looked at.
const EVERY: Duration = Duration::from_secs(10);
/// An upload that is so old belongs to no request.
const LEFT: Duration = Duration::from_secs(3600);
/// Files that one look may remove.
const MOST: usize = 1 << 16;
/// Folders below each other that are looked into; PHP makes few.
const DEEPEST: usize = 16;
/// What `statfs(2)` says of a file system in memory.
const TMPFS_MAGIC: u32 = 0x0102_1994;

/// The folders of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folders {
    pub(super) uploads: PathBuf,
    pub(super) sessions: PathBuf,
}

/// Makes the folders of a pool, or finds them; `None` where PHP's own are to be used.
///
/// # Errors
/// A sentence.
pub(super) fn make(
    pool: &str,
    wanted: &Temporary,
    owner: Option<(u32, u32)>,
    sweeper: &Sweeper,
) -> Result<Option<Folders>, String> {
    let fail = |path: &Path, error: io::Error| {
        format!("cannot make the folder {} for uploads and sessions: {error}", path.display())
    };
    let root = match &wanted.place {
        Place::Off => return Ok(None),
        Place::Folder(folder) => {
            fs::create_dir_all(folder).map_err(|error| fail(folder, error))?;
            folder.clone()
        }
        Place::Auto | Place::Memory => {
            let base = base(wanted.place == Place::Memory)?;
            own_folder(&base, None, Mode::RWXU | Mode::XGRP | Mode::XOTH).map_err(|e| fail(&base, e))?;
            base
        }
    };
    // Another user's processes begin with folders of their own.
    let user = owner.map_or_else(|| rustix::process::geteuid().as_raw(), |(user, _)| user);
    let own = root.join(format!("{pool}-{user}"));
    let folders = Folders { uploads: own.join("uploads"), sessions: own.join("sessions") };
    // The folder around the two is ours: what looks at them follows no link that a script could put in their place.
    own_folder(&own, None, Mode::RWXU | Mode::XGRP | Mode::XOTH).map_err(|error| fail(&own, error))?;
    for path in [&folders.uploads, &folders.sessions] {
        own_folder(path, owner, Mode::RWXU).map_err(|error| fail(path, error))?;
    }
    sweeper.watch(pool, &folders, wanted.size);
    Ok(Some(folders))
}

/// Where the folders of all pools lie.
fn base(in_memory: bool) -> Result<PathBuf, String> {
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = rustix::process::geteuid().as_raw();
    if in_memory {
        let places = given("RUNTIME_DIRECTORY").into_iter().chain(["/dev/shm".into(), "/run".into()]);
        let in_memory =
            |path: &PathBuf| rustix::fs::statfs(path).is_ok_and(|what| what.f_type as u32 == TMPFS_MAGIC);
        let mut found = places.filter(in_memory).filter(|path| {
            rustix::fs::access(path, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok()
        });
        let found = found.next().ok_or("there is no folder in memory: neither /dev/shm nor /run is one")?;
        return Ok(found.join(format!("tidegate-php-{user}")));
    }
    Ok(match given("STATE_DIRECTORY") {
        Some(state) => state.join("php"),
        None => std::env::temp_dir().join(format!("tidegate-php-{user}")),
    })
}

/// Makes a folder for its owner alone, or finds it: nobody else may have put it there.
fn own_folder(path: &Path, owner: Option<(u32, u32)>, mode: Mode) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let user = owner.map_or(own, |(user, _)| user);
    match mkdir(path, mode) {
        Ok(()) => {
            rustix::fs::chmod(path, mode)?;
            match owner {
                Some((user, group)) => std::os::unix::fs::lchown(path, Some(user), Some(group)),
                None => Ok(()),
            }
        }
        Err(rustix::io::Errno::EXIST) => {
            let there = fs::symlink_metadata(path)?;
            if there.is_dir() && there.uid() == user && there.mode() & 0o022 == 0 {
                return Ok(());
            }
            Err(io::Error::other(format!(
                "something that is not of user {user} alone lies there: remove it, or name another folder with `temporary`"
            )))
        }
        Err(error) => Err(error.into()),
    }
}

/// Looks at the folders of all pools of a supervisor now and then, on a thread of its own.
#[derive(Default)]
pub(super) struct Sweeper {
    watched: Arc<Mutex<Watched>>,
    has_thread: Cell<bool>,
}

/// By pool.
type Watched = BTreeMap<String, (Folders, u64)>;

impl Sweeper {
    /// Has the folders of a pool looked at from now on, in place of those before.
    fn watch(&self, pool: &str, folders: &Folders, size: u64) {
        lock(&self.watched).insert(pool.to_owned(), (folders.clone(), size));
        if self.has_thread.get() {
            return;
        }
        // The thread ends with the supervisor. Where there is none, the next process tries again.
        let watched = Arc::downgrade(&self.watched);
        let sweep_all = move || {
            loop {
                std::thread::park_timeout(EVERY);
                let Some(watched) = watched.upgrade() else { return };
                let all: Vec<(Folders, u64)> = lock(&watched).values().cloned().collect();
                drop(watched);
                for (folders, size) in all {
                    sweep_and_say(&folders, size);
                }
            }
        };
        match std::thread::Builder::new().name("tidegate-sweep".into()).spawn(sweep_all) {
            Ok(_) => self.has_thread.set(true),
            Err(error) => {
                log::warn(format_args!("folders for uploads and sessions cannot be bounded: {error}"));
            }
        }
    }

    /// The pool is gone: its folders are nobody's concern.
    pub(super) fn forget(&self, pool: &str) {
        lock(&self.watched).remove(pool);
    }
}

fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sweep_and_say(folders: &Folders, size: u64) {
    match sweep(folders, size, SystemTime::now()) {
        Ok(Swept { files: 0, .. }) => {}
        Ok(Swept { files, bytes }) => log::warn(format_args!(
            "{} holds more than {size} bytes: {files} of the oldest files ({bytes} bytes) were removed; see `temporary` in \
             the pool",
            folders.sessions.parent().unwrap_or(&folders.sessions).display()
        )),
        Err(error) => log::warn(format_args!(
            "cannot look at {}: {error}",
            folders.sessions.parent().unwrap_or(&folders.sessions).display()
        )),
    }
}

/// What was removed since there was too much.
#[derive(Debug, PartialEq, Eq)]
struct Swept {
    files: u64,
    bytes: u64,
}

/// A file that may have to go: those that go first are the least.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    /// Uploads may be under way: they go last.
    is_upload: bool,
    /// Seconds, nanoseconds.
    changed: (i64, u64),
    bytes: u64,
    /// Below the leaf.
    path: PathBuf,
}

/// Removes uploads that were left behind, and the oldest files beyond the bound, also in folders below.
///
/// Root looks into folders of an application here, which may put links wherever it likes at any moment. So every step goes
/// from one open folder to the next, and none follows a link.
fn sweep(folders: &Folders, size: u64, now: SystemTime) -> io::Result<Swept> {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs().cast_signed());
    let mut total = 0;
    // The oldest, of however many there are; what is still too much goes the next time.
    let mut oldest: BinaryHeap<Found> = BinaryHeap::new();
    let leaves = [(open_leaf(&folders.sessions)?, false), (open_leaf(&folders.uploads)?, true)];
    for (leaf, is_upload) in &leaves {
        visit(leaf.as_fd(), Path::new(""), &mut |folder, name, path, there| {
            let age = now.saturating_sub(there.st_mtime);
            if *is_upload && age >= LEFT.as_secs().cast_signed() {
                let _ = unlinkat(folder, name, AtFlags::empty());
                return;
            }
            // What it takes up, which is less than its length where it has holes.
            let bytes = there.st_blocks.cast_unsigned() * 512;
            total += bytes;
            let changed = (there.st_mtime, there.st_mtime_nsec);
            oldest.push(Found { is_upload: *is_upload, changed, bytes, path });
            if oldest.len() > MOST {
                oldest.pop();
            }
        })?;
    }
    let mut swept = Swept { files: 0, bytes: 0 };
    if total > size {
        for Found { is_upload, bytes, path, .. } in oldest.into_sorted_vec() {
            if total <= size {
                break;
            }
            if remove(leaves[usize::from(is_upload)].0.as_fd(), &path).is_ok() {
                total -= bytes;
                swept = Swept { files: swept.files + 1, bytes: swept.bytes + bytes };
            }
        }
    }
    Ok(swept)
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn open_leaf(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, FOLDER, Mode::empty())?)
}

/// Shows every file below a folder, by the folder that it lies in. What goes away meanwhile is not seen.
fn visit(
    folder: BorrowedFd<'_>,
    at: &Path,
    each: &mut impl FnMut(BorrowedFd<'_>, &CStr, PathBuf, &Stat),
) -> io::Result<()> {
    let depth = at.components().count();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let Ok(there) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let path = at.join(OsStr::from_bytes(name.to_bytes()));
        if FileType::from_raw_mode(there.st_mode) != FileType::Directory {
            each(folder, name, path, &there);
        } else if depth < DEEPEST
            && let Ok(below) = openat(folder, name, FOLDER, Mode::empty())
        {
            // One that cannot be read keeps nobody from the others.
            let _ = visit(below.as_fd(), &path, each);
        }
    }
    Ok(())
}

/// Removes a file below a folder.
fn remove(leaf: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let mut folder = leaf.try_clone_to_owned()?;
    for step in path.parent().into_iter().flat_map(Path::components) {
        folder = openat(&folder, step.as_os_str(), FOLDER, Mode::empty())?;
    }
    let name = path.file_name().ok_or(io::ErrorKind::NotFound)?;
    Ok(unlinkat(&folder, name, AtFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tidegate-temporary-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("can be made");
        path
    }

    #[test]
    fn the_oldest_sessions_go_first_and_uploads_that_were_left_always() {
        let root = folder("sweep");
        let wanted = Temporary { place: Place::Folder(root.clone()), size: 64 << 10 };
        let folders =
            make("shop", &wanted, None, &Sweeper::default()).expect("can be made").expect("is wanted");
        assert_eq!(
            make("shop", &wanted, None, &Sweeper::default()).expect("is there"),
            Some(folders.clone())
        );
        let now = SystemTime::now();
        let put = |path: PathBuf, age: u64| {
            fs::write(&path, vec![7; 16 << 10]).expect("can be written");
            let file = fs::File::options().write(true).open(&path).expect("is there");
            file.set_modified(now - Duration::from_secs(age)).expect("is ours");
            path
        };
        let left = put(folders.uploads.join("phpleft"), 7200);
        let running = put(folders.uploads.join("phprunning"), 60);
        let sessions: Vec<PathBuf> =
            (0..4).map(|n| put(folders.sessions.join(format!("sess_{n}")), 1000 - n)).collect();
        assert_eq!(sweep(&folders, 64 << 10, now).expect("can be read"), Swept { files: 1, bytes: 16 << 10 });
        assert!(!left.exists() && running.exists());
        let are_there: Vec<bool> = sessions.iter().map(|path| path.exists()).collect();
        assert_eq!(are_there, [false, true, true, true]);
        assert_eq!(sweep(&folders, 64 << 10, now).expect("can be read"), Swept { files: 0, bytes: 0 });
        assert_eq!(sweep(&folders, 0, now).expect("can be read").files, 4);
        fs::remove_dir_all(root).expect("is ours");
    }

    /// A script that owned the folder around the two could put a link in the place of one, and have root clean up behind it.
    #[test]
    fn the_folder_around_them_is_not_the_applications() {
        if !rustix::process::geteuid().is_root() {
            return; // nobody else can be made an owner
        }
        let root = folder("owner");
        let wanted = Temporary { place: Place::Folder(root.clone()), size: 1 };
        let folders = make("shop", &wanted, Some((12_345, 12_345)), &Sweeper::default())
            .expect("can be made")
            .expect("is wanted");
        let owner = |path: &Path| fs::symlink_metadata(path).expect("is there").uid();
        assert_eq!((owner(&folders.uploads), owner(&folders.sessions)), (12_345, 12_345));
        let around = folders.uploads.parent().expect("has one");
        assert_eq!((owner(around), fs::metadata(around).expect("is there").mode() & 0o777), (0, 0o711));
        fs::remove_dir_all(root).expect("is ours");
    }

    #[test]
    fn what_others_have_put_there_is_not_taken() {
        let root = folder("others");
        let wanted = Temporary { place: Place::Folder(root.clone()), size: 1 };
        let own = root.join(format!("shop-{}", rustix::process::geteuid().as_raw()));
        std::os::unix::fs::symlink("/tmp", &own).expect("can be made");
        assert!(make("shop", &wanted, None, &Sweeper::default()).is_err());
        fs::remove_file(&own).expect("is ours");
        fs::create_dir(&own).expect("can be made");
        rustix::fs::chmod(&own, Mode::RWXU | Mode::RWXG | Mode::RWXO).expect("is ours");
        assert!(make("shop", &wanted, None, &Sweeper::default()).is_err());
        fs::remove_dir_all(root).expect("is ours");
    }

    #[test]
    fn what_lies_deeper_counts_and_no_link_is_followed() {
        let root = folder("deeper");
        let wanted = Temporary { place: Place::Folder(root.clone()), size: 8 << 10 };
        let sweeper = Sweeper::default();
        let folders = make("shop", &wanted, None, &sweeper).expect("can be made").expect("is wanted");
        let (deep, elsewhere) = (folders.sessions.join("a/b"), root.join("elsewhere"));
        fs::create_dir_all(&deep).expect("can be made");
        fs::create_dir_all(&elsewhere).expect("can be made");
        fs::write(elsewhere.join("theirs"), vec![1; 64 << 10]).expect("can be written");
        std::os::unix::fs::symlink(&elsewhere, folders.sessions.join("a/link")).expect("can be made");
        for number in 0..4 {
            fs::write(deep.join(format!("sess_{number}")), vec![1; 4 << 10]).expect("can be written");
        }
        let swept = sweep(&folders, wanted.size, SystemTime::now()).expect("can be looked at");
        assert_eq!(swept, Swept { files: 3, bytes: 8 << 10 }, "the link itself was there first");
        assert!(elsewhere.join("theirs").exists() && fs::read_dir(&deep).expect("is there").count() == 2);
        assert_eq!(lock(&sweeper.watched).len(), 1);
        sweeper.forget("shop");
        assert!(lock(&sweeper.watched).is_empty());
        fs::remove_dir_all(root).expect("is ours");
    }
}
