//! Who could change what a cache stores: only this process's user and root may, or others would say what the server answers.
//!
//! Called by `folder` and `object` for what they have open, and by who makes folders for server processes before these begin. Everything
//! here waits for the disk.

use super::trouble::advice;
use rustix::fs::{AtFlags, CWD, FileType, Stat, fstat, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Write permission of others than the owner.
const WRITTEN_BY_OTHERS: u32 = 0o022;
/// Only the owner of what is in a folder may rename or remove it.
const STICKY: u32 = 0o1000;
/// Links that a way leads through at most, as Linux follows.
const MOST_LINKS: u32 = 40;

/// Why others could change what is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Exposed {
    /// It belongs to neither root nor the user of the server processes.
    #[error(
        "{} belongs to user {owner}, who would say what the server answers: give it to root or the user of the server, \
         or name another folder", path.display()
    )]
    Owner {
        /// What.
        path: PathBuf,
        /// Whom.
        owner: u32,
    },
    /// Group or others may write there.
    #[error(
        "others may write to {path}, and would say what the server answers: `chmod go-w {path}`",
        path = path.display()
    )]
    Writable {
        /// Where.
        path: PathBuf,
    },
    /// Nobody can tell.
    #[error("{} cannot be looked at: {error}{}", path.display(), advice(*error))]
    Unseen {
        /// What.
        path: PathBuf,
        /// What the system says.
        error: Errno,
    },
}

impl Exposed {
    /// The same of something that is named as seen from a folder.
    pub(super) fn below(self, folder: &Path) -> Exposed {
        match self {
            Exposed::Owner { path, owner } => Exposed::Owner { path: folder.join(path), owner },
            Exposed::Writable { path } => Exposed::Writable { path: folder.join(path) },
            Exposed::Unseen { path, error } => Exposed::Unseen { path: folder.join(path), error },
        }
    }
}

/// Whether others than `user` and root could put another folder in the place of this one: each folder on the way has to be theirs,
/// and writable by nobody else unless it is sticky; each link has to be theirs. What is not there yet is no danger.
///
/// # Errors
/// The first on the way that others could change.
pub fn examine_way(folder: &Path, user: u32) -> Result<(), Exposed> {
    let unseen = |path: &Path, error| Exposed::Unseen { path: path.into(), error };
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.into());
    let mut at = PathBuf::from("/");
    let mut left: Vec<OsString> = Vec::new();
    push(&mut left, &absolute);
    let mut links = 0;
    examine_step(&look_at(&at).map_err(|error| unseen(&at, error))?, &at, user)?;
    while let Some(name) = left.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(name);
        let stat = match look_at(&next) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(unseen(&next, error)),
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            examine_owner(&stat, &next, user)?;
            links += 1;
            let target = readlinkat(CWD, &next, Vec::new()).map_err(|error| unseen(&next, error))?;
            if links > MOST_LINKS {
                return Err(unseen(folder, Errno::LOOP));
            }
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            push(&mut left, &target);
            continue;
        }
        at = next;
        // The folder itself is held to more, by who has it open.
        if !left.is_empty() {
            examine_step(&stat, &at, user)?;
        }
    }
    Ok(())
}

/// Whether what is open belongs to `user` or root, and nobody else may write there. `path` is what it is called.
pub(super) fn examine(file: impl AsFd, path: impl AsRef<OsStr>, user: u32) -> Result<(), Exposed> {
    let path = Path::new(&path);
    let stat = fstat(file).map_err(|error| Exposed::Unseen { path: path.into(), error })?;
    examine_owner(&stat, path, user)?;
    examine_mode(&stat, path)
}

/// Whether a file is this process's own, or root's, to write.
pub(super) fn is_own(stat: &Stat) -> bool {
    belongs_to(stat, own_user()) && stat.st_mode & WRITTEN_BY_OTHERS == 0
}

/// The user of this process.
pub(super) fn own_user() -> u32 {
    geteuid().as_raw()
}

fn belongs_to(stat: &Stat, user: u32) -> bool {
    stat.st_uid == 0 || stat.st_uid == user
}

fn examine_owner(stat: &Stat, path: &Path, user: u32) -> Result<(), Exposed> {
    match belongs_to(stat, user) {
        true => Ok(()),
        false => Err(Exposed::Owner { path: path.into(), owner: stat.st_uid }),
    }
}

fn examine_mode(stat: &Stat, path: &Path) -> Result<(), Exposed> {
    match stat.st_mode & WRITTEN_BY_OTHERS {
        0 => Ok(()),
        _ => Err(Exposed::Writable { path: path.into() }),
    }
}

fn examine_step(stat: &Stat, path: &Path, user: u32) -> Result<(), Exposed> {
    examine_owner(stat, path, user)?;
    if stat.st_mode & STICKY != 0 { Ok(()) } else { examine_mode(stat, path) }
}

fn look_at(path: &Path) -> rustix::io::Result<Stat> {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
}

/// What a path leads through, the first on top.
fn push(left: &mut Vec<OsString>, path: &Path) {
    let is_step =
        |component: &Component<'_>| matches!(component, Component::Normal(_) | Component::ParentDir);
    let steps = path.components().filter(is_step).map(|component| component.as_os_str().to_owned());
    let steps: Vec<OsString> = steps.collect();
    left.extend(steps.into_iter().rev());
}
