//! Which cache entries follow from which names in which folders, kept true by file change notification.
//!
//! A folder is watched while an entry depends on a name in it, and so are the folders above it: swapping a
//! symbolic link or renaming a folder on the way is seen like a change of the file itself. Where watching
//! fails (a limit, a file system that does not tell), the age of entries remains.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tidegate_core::log;
use tidegate_io::file::{Patience, Root};
use tidegate_io::notify::{Change, Notifier, Watch};
use tidegate_io::{Key, Slab};

/// The watched folders.
pub struct Watcher {
    notifier: std::rc::Rc<Notifier>,
    folders: Slab<Folder>,
    by_path: HashMap<FolderPath, Key>,
    by_watch: HashMap<Watch, Vec<Key>>,
    /// What each entry depends on.
    by_entry: HashMap<Key, Vec<Dependency>>,
    has_failed: bool,
}

/// Root (by address: it lives as long as an entry of it), its generation, and path below.
type FolderPath = (usize, u32, Box<[u8]>);

/// A watched folder and a name in it.
type Dependency = (Key, Box<[u8]>);

struct Folder {
    path: FolderPath,
    /// Keeps the address of the root from being reused.
    root: Arc<Root>,
    watch: Watch,
    parent: Option<Key>,
    names: HashMap<Box<[u8]>, HashSet<Key>>,
    /// Folders below it, by name.
    children: HashMap<Box<[u8]>, Key>,
}

impl Watcher {
    /// Watches through `notifier`.
    pub fn new(notifier: std::rc::Rc<Notifier>) -> Watcher {
        Watcher {
            notifier,
            folders: Slab::default(),
            by_path: HashMap::new(),
            by_watch: HashMap::new(),
            by_entry: HashMap::new(),
            has_failed: false,
        }
    }

    /// How many folders are watched.
    pub fn folders(&self) -> usize {
        self.folders.len()
    }

    /// Notes that `entry` follows from the paths `depends`. Whether a folder is watched for the first time.
    pub fn register(&mut self, root: &Arc<Root>, entry: Key, depends: &[Box<[u8]>]) -> bool {
        let mut is_new = false;
        for path in depends {
            is_new |= self.depend(root, entry, path);
        }
        is_new
    }

    /// Forgets an entry, and stops watching what only it needed.
    pub fn forget(&mut self, entry: Key) {
        for (folder, name) in self.by_entry.remove(&entry).unwrap_or_default() {
            if let Some(present) = self.folders.get_mut(folder)
                && let Some(entries) = present.names.get_mut(&name)
            {
                entries.remove(&entry);
                if entries.is_empty() {
                    present.names.remove(&name);
                }
            }
            self.release(folder);
        }
    }

    /// Appends the entries that a change makes untrue.
    pub fn affected(&self, change: &Change, entries: &mut Vec<Key>) {
        match change {
            Change::Entry { watch, name } => {
                for folder in self.by_watch.get(watch).into_iter().flatten() {
                    let Some(folder) = self.folders.get(*folder) else { continue };
                    entries.extend(folder.names.get(name).into_iter().flatten());
                    if let Some(child) = folder.children.get(name) {
                        self.all_below(*child, entries);
                    }
                }
            }
            Change::Folder { watch } => {
                for folder in self.by_watch.get(watch).into_iter().flatten() {
                    if let Some(top) = self.folders.get(*folder).filter(|folder| folder.parent.is_none()) {
                        top.root.has_moved();
                    }
                    self.all_below(*folder, entries);
                }
            }
            Change::Overflow => entries.extend(self.by_entry.keys()),
        }
    }

    fn all_below(&self, folder: Key, entries: &mut Vec<Key>) {
        let mut waiting = vec![folder];
        while let Some(folder) = waiting.pop().and_then(|key| self.folders.get(key)) {
            entries.extend(folder.names.values().flatten());
            waiting.extend(folder.children.values());
        }
    }

    fn depend(&mut self, root: &Arc<Root>, entry: Key, path: &[u8]) -> bool {
        let mut parts = path.split(|b| *b == b'/').filter(|part| !part.is_empty()).peekable();
        let Some((mut folder, mut is_new)) = self.folder(root, None, b"") else { return false };
        while let Some(part) = parts.next() {
            if parts.peek().is_some()
                && let Some((below, newly)) = self.folder(root, Some(folder), part)
            {
                folder = below;
                is_new |= newly;
                continue;
            }
            // The name itself, or the first one on the way that is not there.
            if let Some(present) = self.folders.get_mut(folder)
                && present.names.entry(part.into()).or_default().insert(entry)
            {
                self.by_entry.entry(entry).or_default().push((folder, part.into()));
            }
            return is_new;
        }
        // The root itself as a listing or an index: names inside of it are what matters.
        self.release(folder);
        is_new
    }

    /// The folder `name` below `parent`, watched; `None` where it cannot be.
    fn folder(&mut self, root: &Arc<Root>, parent: Option<Key>, name: &[u8]) -> Option<(Key, bool)> {
        let mut relative = match parent {
            Some(parent) => self.folders.get(parent)?.path.2.to_vec(),
            None => Vec::new(),
        };
        if !relative.is_empty() {
            relative.push(b'/');
        }
        relative.extend_from_slice(name);
        let path: FolderPath = (Arc::as_ptr(root).addr(), root.generation(), relative.into());
        if let Some(key) = self.by_path.get(&path) {
            return Some((*key, false));
        }
        let opened = root.open_folder(&path.2, Patience::Cached).ok()?;
        let watch = match self.notifier.watch(&opened) {
            Ok(watch) => watch,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    log::warn(format_args!(
                        "a folder cannot be watched for changes ({error}; see fs.inotify.max_user_watches); \
                         changed files there are noticed by age only"
                    ));
                }
                return None;
            }
        };
        let key = self.folders.insert(Folder {
            path: path.clone(),
            root: root.clone(),
            watch,
            parent,
            names: HashMap::new(),
            children: HashMap::new(),
        });
        if let Some(parent) = parent.and_then(|parent| self.folders.get_mut(parent)) {
            parent.children.insert(name.into(), key);
        }
        self.by_path.insert(path, key);
        self.by_watch.entry(watch).or_default().push(key);
        Some((key, true))
    }

    /// Stops watching a folder that nothing depends on, and those above it likewise.
    fn release(&mut self, folder: Key) {
        let mut next = Some(folder);
        while let Some(key) = next {
            let is_needed = |f: &Folder| !f.names.is_empty() || !f.children.is_empty();
            if self.folders.get(key).is_none_or(is_needed) {
                return;
            }
            let Some(gone) = self.folders.remove(key) else { return };
            debug_assert_eq!(Arc::as_ptr(&gone.root).addr(), gone.path.0);
            self.by_path.remove(&gone.path);
            if let Some(sharers) = self.by_watch.get_mut(&gone.watch) {
                sharers.retain(|sharer| *sharer != key);
                if sharers.is_empty() {
                    self.by_watch.remove(&gone.watch);
                    self.notifier.unwatch(gone.watch);
                }
            }
            if let Some(parent) = gone.parent.and_then(|parent| self.folders.get_mut(parent)) {
                parent.children.retain(|_, child| *child != key);
            }
            next = gone.parent;
        }
    }
}
