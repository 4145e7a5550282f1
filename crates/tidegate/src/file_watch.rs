//! Files that change on the disk while they are in use.
//!
//! The master looks once a second, by asking the file system for what changes when a file is replaced or written: that works
//! for links that are switched, for network file systems and for every way of writing. The time of the last change of its
//! inode is what nobody can set back (stat(2)), as tools that keep the time of writing do. What has changed is read once it has
//! stood still between two looks, since little is written in one step. What changes at every look would never be read: after
//! [`PATIENCE`] looks it is enough that it stands still for [`PAUSE`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_core::log;

/// After so many looks at which a file has changed less will do.
const PATIENCE: u32 = 10;
/// How long such a file has to stand still.
const PAUSE: Duration = Duration::from_millis(100);
/// How often it is said of a file that it does not.
const SAID_AFTER: u32 = 60;

/// What tells one state of a file from another; `None` where there is no file.
pub type Stamp = Option<(u64, u64, i64, i64, u64)>;

/// What is known of some files.
#[derive(Debug, Clone, Default)]
pub struct FileWatch {
    seen: HashMap<PathBuf, Stamp>,
    /// Changed at the last look; not yet known to stand still.
    moving: HashMap<PathBuf, Moving>,
}

/// A file that has changed.
#[derive(Debug, Clone, Copy)]
struct Moving {
    stamp: Stamp,
    /// Looks since it was first seen to have changed.
    looks: u32,
}

impl FileWatch {
    /// Takes a file as it is for one that was read, unless it is known.
    pub fn add(&mut self, path: &Path, stamp: impl FnOnce(&Path) -> Stamp) {
        self.seen.entry(path.to_owned()).or_insert_with(|| stamp(path));
    }

    /// Takes files that are known elsewhere as they were there, unless they are known.
    pub fn join(&mut self, other: &FileWatch) {
        for (path, stamp) in &other.seen {
            self.seen.entry(path.clone()).or_insert(*stamp);
        }
    }

    /// Looks at files; those that have changed and stand still since the last look. They stay changed until they are taken
    /// in.
    pub fn settled<'p>(
        &mut self,
        paths: impl IntoIterator<Item = &'p Path>,
        stamp: impl Fn(&Path) -> Stamp,
    ) -> Vec<&'p Path> {
        self.settled_after(paths, stamp, || std::thread::park_timeout(PAUSE))
    }

    /// The same; `pause` is how [`PAUSE`] goes by.
    fn settled_after<'p>(
        &mut self,
        paths: impl IntoIterator<Item = &'p Path>,
        stamp: impl Fn(&Path) -> Stamp,
        pause: impl FnOnce(),
    ) -> Vec<&'p Path> {
        let (mut settled, mut restless) = (Vec::new(), Vec::new());
        for path in paths {
            let now = stamp(path);
            if self.seen.get(path) == Some(&now) {
                self.moving.remove(path);
                continue;
            }
            let known = self.moving.get(path).copied();
            let looks = known.map_or(0, |moving| moving.looks.saturating_add(1));
            self.moving.insert(path.to_owned(), Moving { stamp: now, looks });
            if known.is_some_and(|moving| moving.stamp == now) {
                settled.push(path);
            } else if looks >= PATIENCE {
                restless.push(path);
            }
        }
        if restless.is_empty() {
            return settled;
        }
        pause();
        for path in restless {
            let Some(moving) = self.moving.get(path) else { continue };
            if stamp(path) == moving.stamp {
                settled.push(path);
            } else if (moving.looks - PATIENCE).is_multiple_of(SAID_AFTER) {
                log::warn(format_args!(
                    "{} changes all the time and is not read: write another file, and rename it onto this one",
                    path.display()
                ));
            }
        }
        settled
    }

    /// Whether a file has changed, and was not taken in.
    pub fn is_moving(&self, path: &Path) -> bool {
        self.moving.contains_key(path)
    }

    /// A file is read as it was at the last look.
    pub fn take_in(&mut self, path: &Path) {
        if let Some(Moving { stamp, .. }) = self.moving.remove(path) {
            self.seen.insert(path.to_owned(), stamp);
        }
    }
}

/// Of the file that a path leads to now, links followed.
pub fn stamp_of(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec(), metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const PATH: &str = "/etc/tidegate/blocked";

    fn at(time: i64) -> Stamp {
        Some((1, 2, time, 0, 3))
    }

    /// Looks at a file that changes `during` the pause, if there is one, or not.
    fn look(watch: &mut FileWatch, now: &Cell<i64>, during: bool) -> (bool, bool) {
        let has_paused = Cell::new(false);
        let path = Path::new(PATH);
        let settled = watch.settled_after(
            [path],
            |_| at(now.get()),
            || {
                has_paused.set(true);
                now.set(now.get() + i64::from(during));
            },
        );
        (!settled.is_empty(), has_paused.get())
    }

    #[test]
    fn what_stands_still_between_two_looks_has_settled() {
        let (mut watch, now) = (FileWatch::default(), Cell::new(1));
        watch.add(Path::new(PATH), |_| at(1));
        assert_eq!(look(&mut watch, &now, false), (false, false));
        now.set(2);
        assert_eq!(look(&mut watch, &now, false), (false, false), "it may be half written");
        assert_eq!(look(&mut watch, &now, false), (true, false));
        watch.take_in(Path::new(PATH));
        assert_eq!(look(&mut watch, &now, false), (false, false));
    }

    #[test]
    fn what_changes_at_every_look_is_read_in_a_pause() {
        let (mut watch, now) = (FileWatch::default(), Cell::new(1));
        watch.add(Path::new(PATH), |_| at(1));
        for _ in 0..PATIENCE {
            now.set(now.get() + 1);
            assert_eq!(look(&mut watch, &now, false), (false, false));
        }
        now.set(now.get() + 1);
        assert_eq!(look(&mut watch, &now, true), (false, true), "somebody writes");
        now.set(now.get() + 1);
        assert_eq!(look(&mut watch, &now, false), (true, true));
        watch.take_in(Path::new(PATH));
        // It begins anew.
        now.set(now.get() + 1);
        assert_eq!(look(&mut watch, &now, false), (false, false));
    }
}
