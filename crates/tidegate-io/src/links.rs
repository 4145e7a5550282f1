//! Symbolic links below a root, by policy (`symlinks`): what `openat2(2)` cannot decide in one call.
//!
//! Called by [`Root`](crate::file::Root) where a path holds a link that the kernel has refused. Each link is opened
//! itself (`O_PATH | O_NOFOLLOW`), and its owner and target are read from that descriptor, so that one which is
//! swapped meanwhile (FAULTS 33) is another link and judged on its own. The text of a link only says where to
//! look next; whether what is there may be opened, the kernel says.

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat};
use rustix::io::Errno;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// Which symbolic links below a root are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub enum Links {
    /// Those that lead to something below the root.
    #[default]
    Beneath,
    /// Those that belong to the user whom what they lead to belongs to, wherever that is.
    Owner,
    /// All.
    Any,
}

/// How many links one path may lead through, as in the kernel (`path_resolution(7)`).
const MOST: usize = 40;
/// How often a step is tried that races with a rename.
const RACES: usize = 100;
const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn not_found() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, crate::root::LEADS_OUT)
}

fn is_link(stat: &Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Symlink
}

/// Components in the order in which they come off the end.
fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
        .rev()
}

/// Whether a path below a root names nothing outside of it by itself, links apart.
pub(crate) fn stays_below(relative: &[u8]) -> bool {
    relative.first() != Some(&b'/') && !relative.split(|byte| *byte == b'/').any(|part| part == b"..")
}

/// Opens what lies below `root`, links with an absolute target below it included: such a target is read as a path
/// from the root, whose path is one of `names`. Every call is confined to the root by the kernel.
pub(crate) fn open_beneath(
    root: BorrowedFd<'_>,
    names: &[&[u8]],
    relative: &[u8],
    flags: OFlags,
) -> io::Result<OwnedFd> {
    let mut pending: Vec<Vec<u8>> = components(relative).collect();
    let mut path: Vec<u8> = Vec::new();
    let mut links = 0;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let mut races = 0;
    while let Some(part) = pending.pop() {
        let parent = path.len();
        if part == b".." {
            let above = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            if path.is_empty() {
                return Err(not_found());
            }
            path.truncate(above);
            continue;
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&part);
        let is_last = pending.is_empty();
        let entry = match openat2(root, &*path, STEP, Mode::empty(), how) {
            Err(Errno::AGAIN) if races < RACES => {
                races += 1;
                path.truncate(parent);
                pending.push(part);
                continue;
            }
            Err(Errno::XDEV | Errno::LOOP) => return Err(not_found()),
            entry => entry?,
        };
        if !is_link(&fstat(&entry)?) {
            if !is_last {
                continue;
            }
            match openat2(root, &*path, flags, Mode::empty(), how) {
                // It is a link by now.
                Err(Errno::LOOP | Errno::AGAIN) if races < RACES => {
                    races += 1;
                    path.truncate(parent);
                    pending.push(part);
                    continue;
                }
                Err(Errno::XDEV | Errno::LOOP) => return Err(not_found()),
                opened => return opened.map_err(Into::into),
            }
        }
        links += 1;
        if links > MOST {
            return Err(not_found());
        }
        let target = readlinkat(&entry, c"", Vec::new())?.into_bytes();
        if target.first() == Some(&b'/') {
            let below = names.iter().find_map(|name| {
                target.strip_prefix(*name).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
            });
            pending.extend(components(below.ok_or_else(not_found)?));
            path.clear();
        } else {
            pending.extend(components(&target));
            path.truncate(parent);
        }
    }
    let path: &[u8] = if path.is_empty() { b"." } else { &path };
    openat2(root, path, flags, Mode::empty(), how).map_err(Into::into)
}

enum Next {
    Part(Vec<u8>),
    /// What has been reached has to belong to this user, whose link led there.
    Owned(u32),
}

/// Opens what `relative` leads to from `root`, through links that belong to the same user as what they lead to.
pub(crate) fn open_owned(root: BorrowedFd<'_>, relative: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let mut pending: Vec<Next> = components(relative).map(Next::Part).collect();
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(root, c".", folder, Mode::empty())?;
    let (mut is_open, mut links, mut races) = (false, 0, 0);
    while let Some(next) = pending.pop() {
        let part = match next {
            Next::Owned(user) => {
                if fstat(&at)?.st_uid != user {
                    return Err(not_found());
                }
                continue;
            }
            Next::Part(part) => part,
        };
        is_open = false;
        if part == b".." {
            at = openat(&at, c"..", folder, Mode::empty())?;
            continue;
        }
        let entry = openat(&at, &*part, STEP, Mode::empty())?;
        let stat = fstat(&entry)?;
        if is_link(&stat) {
            links += 1;
            if links > MOST {
                return Err(not_found());
            }
            let target = readlinkat(&entry, c"", Vec::new())?.into_bytes();
            pending.push(Next::Owned(stat.st_uid));
            if target.first() == Some(&b'/') {
                at = openat(CWD, Path::new("/"), folder, Mode::empty())?;
            }
            pending.extend(components(&target).map(Next::Part));
            continue;
        }
        if pending.iter().any(|next| matches!(next, Next::Part(_))) {
            at = entry;
            continue;
        }
        match openat(&at, &*part, flags | OFlags::NOFOLLOW, Mode::empty()) {
            // It is a link by now.
            Err(Errno::LOOP) if races < RACES => {
                races += 1;
                pending.push(Next::Part(part));
            }
            opened => {
                let opened = opened?;
                // With `O_PATH` the link itself would have been opened.
                if is_link(&fstat(&opened)?) {
                    return Err(not_found());
                }
                (at, is_open) = (opened, true);
            }
        }
    }
    if is_open {
        return Ok(at);
    }
    Ok(openat(&at, c".", flags, Mode::empty())?)
}
