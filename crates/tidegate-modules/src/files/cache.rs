//! The file cache of one worker (R4): entries by route and path, bounded in number, bytes and descriptors.
//!
//! An entry goes when its file changes (`watch`), when it is older than `max-age` and no longer true, or
//! when room is needed: second chance, so that a scan over many files does not push out what is in use.
//! Look-ups allocate nothing.

use super::entry::FileEntry;
use super::watch::Watcher;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::cell::Cell;
use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings;
use tidegate_io::file::Root;
use tidegate_io::notify::Change;
use tidegate_io::{Key, Slab, descriptors};
use tidegate_stats::{Eviction, Worker as Stats};

/// Descriptors that are kept where there are hardly any.
const DESCRIPTORS_SHORT: u32 = 64;

/// An entry that nobody has asked for goes after this time, or twice as much.
pub const UNUSED: Duration = Duration::from_secs(120);

/// Which route's view of a path an entry is.
pub type Instance = u32;

/// The cache.
pub struct FileCache {
    limits: settings::FileCache,
    is_started: bool,
    hasher: DefaultHashBuilder,
    table: HashTable<Key>,
    slots: Slab<Slot>,
    hand: u32,
    bytes: usize,
    descriptors: usize,
    stats: Arc<Stats>,
    watcher: Option<Watcher>,
}

struct Slot {
    hash: u64,
    instance: Instance,
    path: Box<[u8]>,
    entry: Rc<FileEntry>,
    /// Asked for since the hand came by.
    is_used: Cell<bool>,
    hits: Cell<u64>,
    bytes: usize,
    descriptors: usize,
}

/// What a look-up found.
pub enum Cached {
    /// Young enough to be used as it is.
    Fresh(Rc<FileEntry>),
    /// To be compared with the file system first.
    Old(Rc<FileEntry>),
    /// Not there.
    Nothing,
}

impl FileCache {
    /// Where its worker counts.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// An empty cache. Without a watcher, age alone tells that a file may have changed.
    pub fn new(limits: settings::FileCache, stats: Arc<Stats>, watcher: Option<Watcher>) -> FileCache {
        let mut cache = FileCache {
            is_started: limits.enabled,
            limits,
            hasher: DefaultHashBuilder::default(),
            table: HashTable::new(),
            slots: Slab::default(),
            hand: 0,
            bytes: 0,
            descriptors: 0,
            stats,
            watcher,
        };
        cache.publish();
        cache.publish_limits();
        cache
    }

    /// Takes up new limits; what was cached belongs to routes that are gone.
    pub fn adopt(&mut self, limits: settings::FileCache) {
        self.clear();
        self.is_started = limits.enabled;
        self.limits = limits;
        self.publish();
        self.publish_limits();
    }

    /// Largest file held in memory, bytes.
    pub fn memory_file_size(&self) -> u64 {
        u64::from(self.limits.memory_file_size)
    }

    /// Whether entries are taken.
    pub fn is_started(&self) -> bool {
        self.is_started
    }

    /// The entry of a path. `now` is monotonic, nanoseconds.
    #[inline]
    pub fn look_up(&self, instance: Instance, path: &[u8], now: u64) -> Cached {
        let Some(slot) = self.key_of(instance, path).and_then(|key| self.slots.get(key)) else {
            self.stats.cache_misses.add(1);
            return Cached::Nothing;
        };
        slot.is_used.set(true);
        if now.saturating_sub(slot.entry.checked.get()) > self.limits.max_age.as_nanos() as u64 {
            self.stats.cache_revalidations.add(1);
            return Cached::Old(slot.entry.clone());
        }
        self.stats.cache_hits.add(1);
        if slot.entry.identity.file.is_some() {
            self.stats.cache_info_hits.add(1);
        }
        slot.hits.set(slot.hits.get() + 1);
        Cached::Fresh(slot.entry.clone())
    }

    /// Takes an entry, in place of an older one. `depends` are the paths below `root` that it follows from.
    /// Returns whether a folder is watched for the first time: what changed there before nobody has seen,
    /// so the caller looks at the file once more.
    pub fn insert(
        &mut self,
        instance: Instance,
        path: &[u8],
        entry: &Rc<FileEntry>,
        root: &Arc<Root>,
        depends: &[Box<[u8]>],
    ) -> bool {
        self.remove(instance, path);
        let (bytes, descriptors) = (entry.footprint() + path.len() + size_of::<Slot>(), entry.descriptors());
        if !self.is_started || bytes as u64 > self.limits.memory || !self.make_room(bytes, descriptors) {
            return false;
        }
        let hash = self.hash(instance, path);
        let key = self.slots.insert(Slot {
            hash,
            instance,
            path: path.into(),
            entry: entry.clone(),
            is_used: Cell::new(false),
            hits: Cell::new(0),
            bytes,
            descriptors,
        });
        let slots = &self.slots;
        self.table.insert_unique(hash, key, |key| slots.get(*key).map_or(0, |slot| slot.hash));
        self.bytes += bytes;
        self.descriptors += descriptors;
        let is_new_watch = self.watcher.as_mut().is_some_and(|watcher| watcher.register(root, key, depends));
        self.publish();
        is_new_watch
    }

    /// Counts an entry anew that has grown by a form made on the fly; it goes when there is no room.
    pub fn resize(&mut self, instance: Instance, path: &[u8]) {
        let Some(key) = self.key_of(instance, path) else { return };
        let Some(slot) = self.slots.get_mut(key) else { return };
        let bytes = slot.entry.footprint() + slot.path.len() + size_of::<Slot>();
        let grown = bytes.saturating_sub(slot.bytes);
        slot.bytes = bytes;
        slot.is_used.set(true);
        self.bytes += grown;
        if !self.make_room(0, 0) {
            self.drop_key(key);
        }
        self.publish();
    }

    /// Drops the entry of a path.
    pub fn remove(&mut self, instance: Instance, path: &[u8]) {
        if let Some(key) = self.key_of(instance, path) {
            self.drop_key(key);
        }
    }

    /// Drops what the changes make untrue.
    pub fn invalidate(&mut self, changes: &[Change]) {
        let Some(watcher) = &mut self.watcher else { return };
        let mut stale = Vec::new();
        for change in changes {
            match change {
                Change::Overflow => {
                    self.stats.cache_invalidations.add(self.slots.len() as u64);
                    return self.clear();
                }
                change => watcher.affected(change, &mut stale),
            }
        }
        for key in stale {
            if self.drop_key(key) {
                self.stats.cache_invalidations.add(1);
            }
        }
    }

    /// Drops what keeps a descriptor that nobody uses at present. Returns how many that are.
    pub fn spare_descriptors(&mut self) -> usize {
        let idle = |key: &Key| {
            let slot = self.slots.get(*key);
            slot.is_some_and(|slot| slot.descriptors > 0 && !slot.entry.is_in_use())
        };
        let keys: Vec<Key> = self.slots.keys().filter(idle).collect();
        let before = self.descriptors;
        for key in keys {
            if self.drop_key(key) {
                self.count_eviction(Eviction::Process);
            }
        }
        before - self.descriptors
    }

    /// Drops what nobody has asked for since the last time: called every `UNUSED`, so that a crowd's memory and
    /// descriptors come back when the crowd has gone.
    pub fn drop_unused(&mut self) {
        let is_unused = |key: &Key| self.slots.get(*key).is_some_and(|slot| !slot.is_used.replace(false));
        let keys: Vec<Key> = self.slots.keys().filter(is_unused).collect();
        for key in keys {
            self.drop_key(key);
            self.stats.cache_expirations.add(1);
        }
    }

    fn count_eviction(&self, bound: Eviction) {
        self.stats.cache_evictions.add(1);
        self.stats.cache_eviction_reasons.add(bound, 1);
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        let keys: Vec<Key> = self.slots.keys().collect();
        for key in keys {
            self.drop_key(key);
        }
    }

    /// Carries out what the operator asks: `report`, `list`, `start`, `stop` or `restart` (R4); the
    /// status module documents the answers.
    pub fn command(&mut self, command: &str, now: u64) -> String {
        match command {
            "" | "report" => self.report().to_string(),
            "list" => self.list(now).to_string(),
            "start" => self.switch(true),
            "stop" => self.switch(false),
            "restart" => {
                self.clear();
                self.switch(true)
            }
            _ => "unknown: ask for report, list, start, stop or restart".into(),
        }
    }

    fn switch(&mut self, on: bool) -> String {
        if !on {
            self.clear();
        }
        self.is_started = on;
        self.publish();
        "ok".into()
    }

    fn report(&self) -> serde_json::Value {
        let stats = self.stats.snapshot();
        serde_json::json!({
            "enabled": self.is_started,
            "entries": self.slots.len(),
            "entries_limit": self.limits.entries,
            "memory": self.bytes,
            "memory_limit": self.limits.memory,
            "descriptors": self.descriptors,
            "descriptors_limit": self.limits.descriptors,
            "watched_folders": self.watcher.as_ref().map_or(0, Watcher::folders),
            "hits": stats.cache_hits,
            "info_hits": stats.cache_info_hits,
            "content_hits": stats.cache_content_hits(),
            "misses": stats.cache_misses,
            "revalidations": stats.cache_revalidations,
            "invalidations": stats.cache_invalidations,
            "evictions": stats.cache_evictions,
            "expirations": stats.cache_expirations,
            "settings": {
                "max_age_seconds": self.limits.max_age.as_secs_f64(),
                "memory_file_size": self.limits.memory_file_size,
            },
        })
    }

    /// Flags, after Sun's: `C` contents in memory, `O` open descriptor, `Z` an encoded form is held as well.
    fn list(&self, now: u64) -> serde_json::Value {
        let entries = self.slots.keys().filter_map(|key| self.slots.get(key));
        entries
            .map(|slot| {
                let entry = &slot.entry;
                let mut flags = if entry.identity.file.is_none() { "C" } else { "O" }.to_owned();
                if !entry.ready_codings().is_empty() {
                    flags.push('Z');
                }
                serde_json::json!({
                    "path": String::from_utf8_lossy(&slot.path),
                    "flags": flags,
                    "references": Rc::strong_count(entry) - 1,
                    "hits": slot.hits.get(),
                    "size": entry.identity.len,
                    "age": Duration::from_nanos(now.saturating_sub(entry.checked.get())).as_secs(),
                    "codings": entry.ready_codings(),
                    "memory": slot.bytes,
                })
            })
            .collect()
    }

    #[inline]
    fn hash(&self, instance: Instance, path: &[u8]) -> u64 {
        self.hasher.hash_one((instance, path))
    }

    #[inline]
    fn key_of(&self, instance: Instance, path: &[u8]) -> Option<Key> {
        let is_it = |key: &Key| {
            self.slots.get(*key).is_some_and(|slot| slot.instance == instance && *slot.path == *path)
        };
        self.table.find(self.hash(instance, path), is_it).copied()
    }

    fn drop_key(&mut self, key: Key) -> bool {
        let Some(slot) = self.slots.remove(key) else { return false };
        if let Ok(found) = self.table.find_entry(slot.hash, |present| *present == key) {
            found.remove();
        }
        self.bytes -= slot.bytes;
        self.descriptors -= slot.descriptors;
        if let Some(watcher) = &mut self.watcher {
            watcher.forget(key);
        }
        self.publish();
        true
    }

    /// Whether there is room, after dropping others.
    fn make_room(&mut self, bytes: usize, wanted: usize) -> bool {
        // Where they have run out, connections need them more. One that is in use anyway costs nothing more.
        let is_short = wanted > 0 && descriptors::are_short();
        let most = if is_short { DESCRIPTORS_SHORT } else { self.limits.descriptors };
        let reached = |cache: &FileCache| {
            if cache.slots.len() >= cache.limits.entries as usize {
                Some(Eviction::Entries)
            } else if (cache.bytes + bytes) as u64 > cache.limits.memory {
                Some(Eviction::Memory)
            } else if cache.descriptors + wanted > most.min(cache.limits.descriptors) as usize {
                Some(if is_short { Eviction::Process } else { Eviction::Descriptors })
            } else {
                None
            }
        };
        // Twice around: the first pass takes the second chances away.
        let mut steps = 2 * self.slots.capacity() + 1;
        while let Some(bound) = reached(self) {
            if steps == 0 || self.slots.is_empty() {
                return false;
            }
            steps -= 1;
            self.hand = if self.hand as usize + 1 < self.slots.capacity() { self.hand + 1 } else { 0 };
            if let Some(key) = self.slots.key_of(self.hand)
                && self
                    .slots
                    .get(key)
                    .is_some_and(|slot| !(slot.is_used.replace(false) || is_short && slot.entry.is_in_use()))
            {
                self.drop_key(key);
                self.count_eviction(bound);
            }
        }
        true
    }

    fn publish(&mut self) {
        self.stats.cache_entries.set(self.slots.len() as u64);
        self.stats.cache_bytes.set(self.bytes as u64);
        self.stats.cache_descriptors.set(self.descriptors as u64);
    }

    /// Tells the figures what there may be at most.
    fn publish_limits(&self) {
        let settings::FileCache { enabled, entries, memory, descriptors, .. } = self.limits;
        let limit = |most: u64| if enabled { most } else { 0 };
        self.stats.cache_entries.set_limit(limit(entries.into()));
        self.stats.cache_bytes.set_limit(limit(memory));
        self.stats.cache_descriptors.set_limit(limit(descriptors.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Contents, Maker};
    use super::super::locate::{Found, Lookup, open_root};
    use super::*;
    use tidegate_config::settings::Action;
    use tidegate_core::decoration::Decoration;
    use tidegate_io::file::Patience;

    #[test]
    fn what_nobody_asks_for_gives_its_memory_back() {
        let folder = std::env::temp_dir().join(format!("tidegate-unused-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["a.bin", "b.bin"] {
            std::fs::write(folder.join(name), [7; 20_000]).unwrap();
        }
        let Ok(settings) = tidegate_config::from_folder(&folder, &[]) else { panic!("sound settings") };
        let route = &settings.sites[0].routes[0];
        let Action::Files(files) = &route.action else { panic!("files") };
        let root = open_root(&files.root, files.symlinks).unwrap();
        let lookup = Lookup { root: root.clone(), settings: files.clone(), pattern: route.pattern.clone() };
        let maker = Maker {
            server: None,
            decoration: Decoration::of(route),
            compress: None,
            memory_file_size: u64::from(settings.file_cache.memory_file_size),
        };
        let mut cache = FileCache::new(settings.file_cache.clone(), Arc::default(), None);
        let one = settings::FileCache { entries: 1, ..settings.file_cache.clone() };
        let mut small = FileCache::new(one, Arc::default(), None);
        for path in [b"/a.bin", b"/b.bin"] {
            let Found::File(found) = lookup.locate(path, Patience::Wait).unwrap().found else {
                panic!("a file")
            };
            let Ok(contents) = Contents::read(found, maker.memory_file_size, Patience::Wait) else {
                panic!("it can be read")
            };
            let entry = Rc::new(maker.entry(&lookup, (path, 0), contents, 0));
            assert_eq!(entry.descriptors(), 0, "20,000 bytes are held in memory");
            cache.insert(0, path, &entry, &root, &[]);
            small.insert(0, path, &entry, &root, &[]);
        }
        let is_there = |cache: &FileCache, path: &[u8]| !matches!(cache.look_up(0, path, 0), Cached::Nothing);
        let full = cache.bytes;
        assert!(full > 40_000 && is_there(&cache, b"/a.bin"));
        cache.drop_unused();
        assert!(cache.bytes <= full / 2 && cache.slots.len() == 1, "{} of {full} bytes", cache.bytes);
        assert!(is_there(&cache, b"/a.bin") && !is_there(&cache, b"/b.bin"));
        cache.drop_unused();
        cache.drop_unused();
        assert_eq!((cache.bytes, cache.slots.len(), cache.table.len()), (0, 0, 0));
        // That makes no room: only what was dropped for another did.
        let of = |cache: &FileCache| {
            (cache.stats.snapshot().cache_evictions, cache.stats.snapshot().cache_expirations)
        };
        assert_eq!((of(&cache), of(&small)), ((0, 2), (1, 0)));
        assert_eq!(small.stats.snapshot().cache_eviction_reasons.count(Eviction::Entries), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
