//! Files that change on the disk while they are in use.
//!
//! The master looks once a second, by asking the file system for what changes when a file is replaced or written: that works
//! for links that are switched, for network file systems and for every way of writing. The time of the last change of its
//! inode is what nobody can set back (stat(2)), as tools that keep the time of writing do. What has changed is read once it has
//! stood still between two looks, since little is written in one step.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What tells one state of a file from another; `None` where there is no file.
pub type Stamp = Option<(u64, u64, i64, i64, u64)>;

/// What is known of some files.
#[derive(Debug, Clone, Default)]
pub struct FileWatch {
    seen: HashMap<PathBuf, Stamp>,
    /// Changed at the last look; not yet known to stand still.
    moving: HashMap<PathBuf, Stamp>,
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
        let mut settled = Vec::new();
        for path in paths {
            let now = stamp(path);
            if self.seen.get(path) == Some(&now) {
                self.moving.remove(path);
            } else if self.moving.insert(path.to_owned(), now) == Some(now) {
                settled.push(path);
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
        if let Some(now) = self.moving.remove(path) {
            self.seen.insert(path.to_owned(), now);
        }
    }
}

/// Of the file that a path leads to now, links followed.
pub fn stamp_of(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec(), metadata.len()))
}
