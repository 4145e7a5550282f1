//! How much memory there is for what connections own, and whether the kernel finds it short.
//!
//! `limits memory auto` is a quarter of the least bound that holds for this process: of its cgroups
//! (`memory.max`, `memory.high` of version 2, `memory.limit_in_bytes` of version 1), else of the machine. Inside a
//! bounded cgroup the kernel also tells how much of the bound is used by what cannot be dropped (`memory.stat`), and
//! how long processes were held up for want of memory (`memory.pressure`, version 2); that is looked at once a second
//! (FAULTS 42). Files of procfs and cgroupfs are answered from memory and never wait for a disk.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Of the memory there is, the share for what connections own.
const SHARE: u64 = 4;
/// Of a cgroup's memory, the largest share for them, whatever the settings say.
const MOST: u64 = 2;
/// Where nobody says how much there is.
const UNKNOWN: u64 = 1 << 30;
/// Percent of the last ten seconds in which everything stood still for want of memory.
const PRESSED: f64 = 5.0;
/// Percent of the bound that cannot be dropped, from which on nothing more is let in.
const FULL: u64 = 85;

/// What holds for this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Bytes.
    pub memory: u64,
    /// The cgroup that sets the bound.
    pub cgroup: Option<PathBuf>,
}

impl Bound {
    /// Of this process, read once.
    pub fn of_process() -> &'static Bound {
        static BOUND: OnceLock<Bound> = OnceLock::new();
        BOUND.get_or_init(|| Bound::read(Path::new("/")))
    }

    /// Below another root: for tests.
    fn read(root: &Path) -> Bound {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let machine = memory_total(&text("proc/meminfo")).unwrap_or(UNKNOWN);
        let mut bound = Bound { memory: machine, cgroup: None };
        let groups = root.join("sys/fs/cgroup");
        let cgroups = text("proc/self/cgroup");
        let unified = cgroups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        bound.look_in(&groups, unified, &["memory.max", "memory.high"]);
        // Version 1 has a hierarchy of its own for memory.
        if let Some(own) = cgroups.lines().find_map(memory_hierarchy) {
            bound.look_in(&groups.join("memory"), own, &["memory.limit_in_bytes"]);
        }
        bound
    }

    /// Takes the least bound of `own` and the cgroups above it.
    fn look_in(&mut self, top: &Path, own: &str, names: &[&str]) {
        for folder in top.join(own).ancestors().take_while(|folder| folder.starts_with(top)) {
            for name in names {
                let written = fs::read_to_string(folder.join(name)).unwrap_or_default();
                // `max`, or a number larger than any memory, stands where there is no bound.
                if let Ok(bytes) = written.trim().parse::<u64>()
                    && bytes < self.memory
                {
                    *self = Bound { memory: bytes, cgroup: Some(folder.to_owned()) };
                }
            }
        }
    }

    /// What connections may own, where the settings say so much, or leave it open. In a bounded cgroup never more than
    /// a half: the rest is for what is not weighed, and a burst comes quicker than the kernel is asked.
    pub fn for_connections(&self, configured: Option<u64>) -> u64 {
        let most = if self.cgroup.is_some() { self.memory / MOST } else { u64::MAX };
        configured.unwrap_or(self.memory / SHARE).min(most)
    }

    /// Whether the kernel finds memory short in the cgroup that bounds this process.
    pub fn is_pressed(&self) -> bool {
        let Some(cgroup) = &self.cgroup else { return false };
        let text = |name| fs::read_to_string(cgroup.join(name)).unwrap_or_default();
        full_stall(&text("memory.pressure")).is_some_and(|percent| percent >= PRESSED)
            || held(&text("memory.stat")) > self.memory / 100 * FULL
    }
}

/// The cgroup of version 1 that bounds memory, out of `4:memory:/a/b`.
fn memory_hierarchy(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    controllers.split(',').any(|controller| controller == "memory").then_some(path.trim_start_matches('/'))
}

/// Bytes of a cgroup that the kernel cannot just drop: memory of processes, and of sockets where it counts here.
fn held(stat: &str) -> u64 {
    let figure = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse::<u64>().ok()
    };
    // Version 1 says `total_rss` of a cgroup and those below it.
    figure("total_rss").unwrap_or_else(|| figure("anon").unwrap_or(0) + figure("sock").unwrap_or(0))
}

/// What the allocator may keep without being told: bytes that connections owned, and connections.
const KEPT_BYTES: u64 = 8 << 20;
const KEPT_CONNECTIONS: u64 = 1000;

/// When the allocator is told to give back what nobody uses. glibc keeps freed memory for the next crowd, in a heap of
/// each thread: without a word 850 MiB stayed where 8 were in use.
#[derive(Default)]
pub struct Retention {
    /// The most since the last time.
    bytes: Cell<u64>,
    connections: Cell<u64>,
    /// Once more a second later: what was given back last may not have been free yet.
    is_due: Cell<bool>,
}

impl Retention {
    /// Connections own so much now.
    #[inline]
    pub fn grows(&self, bytes: u64) {
        self.bytes.set(self.bytes.get().max(bytes));
    }

    /// Whether enough has been given back for it to show.
    #[inline]
    pub fn is_worth_a_trim(&self, bytes: u64, connections: u64) -> bool {
        self.is_due.get()
            || self.bytes.get().saturating_sub(bytes) >= KEPT_BYTES
            || self.connections.get().saturating_sub(connections) >= KEPT_CONNECTIONS
    }

    /// Whether the allocator is to be told now.
    pub fn on_second(&self, bytes: u64, connections: u64) -> bool {
        let was_due = self.is_due.replace(false);
        let is_worth_it = self.is_worth_a_trim(bytes, connections);
        self.is_due.set(is_worth_it);
        let (most_bytes, most_connections) = (self.bytes.get(), self.connections.get());
        self.bytes.set(if is_worth_it { bytes } else { most_bytes.max(bytes) });
        self.connections.set(if is_worth_it { connections } else { most_connections.max(connections) });
        is_worth_it || was_due
    }
}

/// Bytes, out of `MemTotal:  16384 kB`.
fn memory_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Percent, out of `full avg10=0.12 avg60=...`.
fn full_stall(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("full "))?;
    line.split(' ').find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_cgroup_counts() {
        let root = std::env::temp_dir().join(format!("tidegate-memory-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(Bound::read(&root), Bound { memory: UNKNOWN, cgroup: None });
        write("proc/meminfo", "MemTotal:        2000000 kB\nMemFree: 1 kB\n");
        assert_eq!(Bound::read(&root), Bound { memory: 2_048_000_000, cgroup: None });
        write("proc/self/cgroup", "1:name=systemd:/x\n0::/system.slice/tidegate.service\n");
        write("sys/fs/cgroup/system.slice/tidegate.service/memory.max", "max\n");
        write("sys/fs/cgroup/system.slice/tidegate.service/memory.high", "400000000\n");
        write("sys/fs/cgroup/system.slice/memory.max", "300000000\n");
        let bound = Bound::read(&root);
        assert_eq!(bound.memory, 300_000_000);
        assert_eq!(bound.for_connections(None), 75_000_000);
        assert_eq!(bound.for_connections(Some(1 << 40)), 150_000_000, "a cgroup is more than a wish");
        assert_eq!(bound.for_connections(Some(1 << 20)), 1 << 20);
        assert_eq!(bound.cgroup.as_deref(), Some(root.join("sys/fs/cgroup/system.slice").as_path()));
        assert!(!bound.is_pressed());
        write("sys/fs/cgroup/system.slice/memory.pressure", "some avg10=90.00\nfull avg10=4.99 avg60=9.00\n");
        assert!(!bound.is_pressed());
        write("sys/fs/cgroup/system.slice/memory.pressure", "some avg10=90.00\nfull avg10=5.00 avg60=0.00\n");
        assert!(bound.is_pressed());
        write("sys/fs/cgroup/system.slice/memory.pressure", "full avg10=0.00 avg60=0.00\n");
        write("sys/fs/cgroup/system.slice/memory.stat", "anon 250000000\nfile 40000000\nsock 4000000\n");
        assert!(!bound.is_pressed());
        write("sys/fs/cgroup/system.slice/memory.stat", "anon 250000000\nfile 40000000\nsock 6000000\n");
        assert!(bound.is_pressed());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn cgroups_of_version_1_count_too() {
        let root = std::env::temp_dir().join(format!("tidegate-memory-v1-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/meminfo", "MemTotal:        2000000 kB\n");
        write("proc/self/cgroup", "5:cpu,cpuacct:/c\n4:memory,hugetlb:/a/b\n0::/\n");
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "400000000\n");
        let bound = Bound::read(&root);
        assert_eq!(bound.memory, 400_000_000);
        assert_eq!(bound.cgroup.as_deref(), Some(root.join("sys/fs/cgroup/memory/a/b").as_path()));
        write("sys/fs/cgroup/memory/a/b/memory.stat", "rss 1\ntotal_rss 339000000\n");
        assert!(!bound.is_pressed());
        write("sys/fs/cgroup/memory/a/b/memory.stat", "rss 1\ntotal_rss 341000000\n");
        assert!(bound.is_pressed());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_allocator_is_told_when_much_is_free() {
        let retention = Retention::default();
        retention.grows(KEPT_BYTES * 10);
        assert!(!retention.on_second(KEPT_BYTES * 10, 0), "all of it is in use");
        assert!(retention.is_worth_a_trim(KEPT_BYTES, 0) && retention.on_second(KEPT_BYTES, 0));
        assert!(retention.on_second(KEPT_BYTES / 2, 0), "once more");
        assert!(!retention.on_second(KEPT_BYTES / 4, 0), "that is little");
        assert!(!retention.on_second(KEPT_BYTES / 4, 5000));
        assert!(retention.on_second(KEPT_BYTES / 4, 5000 - KEPT_CONNECTIONS));
        assert!(retention.on_second(KEPT_BYTES / 4, 5000 - KEPT_CONNECTIONS), "once more");
        assert!(!retention.on_second(KEPT_BYTES / 4, 5000 - KEPT_CONNECTIONS));
    }

    #[test]
    fn other_texts_are_no_figures() {
        for text in ["", "full", "full avg60=1.00", "full avg10=", "some avg10=1.00"] {
            assert_eq!(full_stall(text), None, "{text}");
        }
        for text in ["", "MemTotal:", "MemTotal: x kB", "MemTotal: 1", "MemTotal: 99999999999999999999 kB"] {
            assert_eq!(memory_total(text), None, "{text}");
        }
    }
}
