//! Where PHP puts uploads and sessions: a folder of the pool's own, on disk or in memory, and bounded.
//!
//! PHP's own place for both is a folder of the whole system, often on a slow disk, and nothing bounds it. The folder made
//! here belongs to the pool's user, and a thread looks at it now and then: what goes beyond its bound is removed, the
//! oldest sessions first. Uploads that requests left behind go after an hour; PHP removes those of requests that end.

use rustix::fs::{Mode, mkdir};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tidegate_config::settings::pool::{Place, Temporary};
use tidegate_core::log;

/// How often folders are looked at.
const EVERY: Duration = Duration::from_secs(10);
/// An upload that is so old belongs to no request.
const LEFT: Duration = Duration::from_secs(3600);
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
    watch(&folders, wanted.size);
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
            Err(io::Error::other(format!("something that is not of user {user} alone lies there")))
        }
        Err(error) => Err(error.into()),
    }
}

type Watched = Mutex<BTreeMap<PathBuf, (Folders, u64)>>;

/// Has the folders looked at from now on, by one thread for all.
fn watch(folders: &Folders, size: u64) {
    static WATCHED: Watched = Mutex::new(BTreeMap::new());
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_first = watched.is_empty();
    watched.insert(folders.uploads.clone(), (folders.clone(), size));
    drop(watched);
    if !is_first {
        return;
    }
    let sweep_all = || {
        loop {
            std::thread::park_timeout(EVERY);
            let all: Vec<(Folders, u64)> =
                WATCHED.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
            for (folders, size) in all {
                sweep_and_say(&folders, size);
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("tidegate-sweep".into()).spawn(sweep_all) {
        log::warn(format_args!("folders for uploads and sessions cannot be bounded: {error}"));
    }
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

/// Removes uploads that were left behind, and the oldest files beyond the bound.
fn sweep(folders: &Folders, size: u64, now: SystemTime) -> io::Result<Swept> {
    // Uploads that may be under way last, the oldest first.
    let mut files: Vec<(bool, SystemTime, u64, PathBuf)> = Vec::new();
    for (folder, is_upload) in [(&folders.sessions, false), (&folders.uploads, true)] {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // Of the entry itself: the folder is another user's, who may have put a link there.
            let Ok(there) = entry.metadata() else { continue };
            if there.is_dir() {
                continue;
            }
            let changed = there.modified()?;
            let age = now.duration_since(changed).unwrap_or_default();
            if is_upload && age >= LEFT {
                let _ = fs::remove_file(entry.path());
                continue;
            }
            // What it takes up, which is less than its length where it has holes.
            files.push((is_upload, changed, there.blocks() * 512, entry.path()));
        }
    }
    let mut total: u64 = files.iter().map(|(_, _, bytes, _)| bytes).sum();
    let mut swept = Swept { files: 0, bytes: 0 };
    if total > size {
        files.sort_unstable();
        for (_, _, bytes, path) in files {
            if total <= size {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= bytes;
                swept = Swept { files: swept.files + 1, bytes: swept.bytes + bytes };
            }
        }
    }
    Ok(swept)
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
        let folders = make("shop", &wanted, None).expect("can be made").expect("is wanted");
        assert_eq!(make("shop", &wanted, None).expect("is there"), Some(folders.clone()));
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
        let folders = make("shop", &wanted, Some((12_345, 12_345))).expect("can be made").expect("is wanted");
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
        assert!(make("shop", &wanted, None).is_err());
        fs::remove_file(&own).expect("is ours");
        fs::create_dir(&own).expect("can be made");
        rustix::fs::chmod(&own, Mode::RWXU | Mode::RWXG | Mode::RWXO).expect("is ours");
        assert!(make("shop", &wanted, None).is_err());
        fs::remove_dir_all(root).expect("is ours");
    }
}
