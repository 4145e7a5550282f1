//! How much memory there is for what connections own, and whether the kernel finds it short.
//!
//! `limits memory auto` is a quarter of the least bound that holds for this process: of its cgroups
//! (`memory.max`, `memory.high` of version 2, `memory.limit_in_bytes` of version 1), of its address space (`ulimit -v`)
//! what it does not need for itself, else of the machine. Inside a
//! bounded cgroup the kernel also tells how much of the bound is used by what cannot be dropped (`memory.stat`), and
//! how long processes were held up for want of memory (`memory.pressure`, version 2); that is looked at once a second
//! (FAULTS 42). Files of procfs and cgroupfs are answered from memory and never wait for a disk.

use rustix::process::{Resource, getrlimit};
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tidegate_io::allocator;

/// Of the memory there is, the share for what connections own.
const SHARE: u64 = 4;
/// Of a cgroup's memory, the largest share for them, whatever the settings say.
const MOST: u64 = 2;
/// Of a bounded address space, the least that counts as being there for them: without any nobody could be served.
const LEAST_SPACE: u64 = 16 << 20;
/// Threads of a process that has much to do, and the stack of each.
const THREADS: u64 = 80;
const STACK: u64 = 2 << 20;
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
    /// The bound of the address space that sets it.
    space: Option<Space>,
}

/// A bounded address space, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Space {
    limit: u64,
    /// What the process needs of it for itself: program, libraries, stacks.
    own: u64,
}

impl Bound {
    /// Of this process, read once.
    pub fn of_process() -> &'static Bound {
        static BOUND: OnceLock<Bound> = OnceLock::new();
        BOUND.get_or_init(|| {
            let bound = Bound::read(Path::new("/"));
            match getrlimit(Resource::As).current {
                Some(limit) => bound.within(Space { limit, own: own_space() }),
                None => bound,
            }
        })
    }

    fn within(self, space: Space) -> Bound {
        let memory = space.limit.saturating_sub(space.own).max(LEAST_SPACE);
        if memory < self.memory { Bound { memory, cgroup: None, space: Some(space) } } else { self }
    }

    /// Below another root: for tests.
    fn read(root: &Path) -> Bound {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let machine = memory_total(&text("proc/meminfo")).unwrap_or(UNKNOWN);
        let mut bound = Bound { memory: machine, cgroup: None, space: None };
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
                    *self = Bound { memory: bytes, cgroup: Some(folder.to_owned()), space: None };
                }
            }
        }
    }

    /// What connections may own, where the settings say so much, or leave it open. In a bounded cgroup or address space
    /// never more than a half: the rest is for what is not weighed, and a burst comes quicker than the kernel is asked.
    pub fn for_connections(&self, configured: Option<u64>) -> u64 {
        let is_hard = self.cgroup.is_some() || self.space.is_some();
        let most = if is_hard { self.memory / MOST } else { u64::MAX };
        configured.unwrap_or(self.memory / SHARE).min(most)
    }

    /// A sentence where the address space leaves less than the settings say, or hardly anything.
    fn shortage_of_space(&self, configured: Option<u64>) -> Option<String> {
        let Space { limit, own } = self.space?;
        let wanted = configured.unwrap_or(LEAST_SPACE * SHARE);
        let needed = own + wanted * MOST;
        (limit < needed).then(|| {
            let [limit, own, wanted, needed] = [limit, own, wanted, needed].map(|bytes| bytes.div_ceil(1 << 20));
            let left = self.for_connections(configured) >> 20;
            format!(
                "the address space of each process is bounded to {limit} MiB (`ulimit -v`, or LimitAS= of the service), and \
                 a server process needs about {own} MiB of it for itself: connections may own {left} MiB (limits memory); \
                 raise the bound to {needed} MiB, which is enough for {wanted} MiB, or bound memory by a cgroup instead"
            )
        })
    }

    /// Whether the kernel finds memory short in the cgroup that bounds this process.
    pub fn is_pressed(&self) -> bool {
        let Some(cgroup) = &self.cgroup else { return false };
        let text = |name| fs::read_to_string(cgroup.join(name)).unwrap_or_default();
        full_stall(&text("memory.pressure")).is_some_and(|percent| percent >= PRESSED)
            || held(&text("memory.stat")) > self.memory / 100 * FULL
    }
}

/// Address space that this process uses now, and that of threads that it may still start.
fn own_space() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kilobytes(&status, "VmSize:").unwrap_or(0) + THREADS * STACK
}

/// For a server process, before it starts threads: where its address space is bounded, none is spent on what the
/// allocator could do without.
pub fn save_address_space() {
    if getrlimit(Resource::As).current.is_some() {
        allocator::share_one_heap();
        Bound::of_process(); // what it uses now is what it needs
    }
}

/// A sentence where the bound of the address space leaves server processes less than `limits memory` says (`None`:
/// `auto`).
pub fn shortage_of_address_space(configured: Option<u64>) -> Option<String> {
    Bound::of_process().shortage_of_space(configured)
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
    kilobytes(text, "MemTotal:")
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
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
        assert_eq!(Bound::read(&root), Bound { memory: UNKNOWN, cgroup: None, space: None });
        write("proc/meminfo", "MemTotal:        2000000 kB\nMemFree: 1 kB\n");
        assert_eq!(Bound::read(&root), Bound { memory: 2_048_000_000, cgroup: None, space: None });
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
    fn a_bounded_address_space_counts_but_for_what_the_process_needs() {
        let mib = |count: u64| count << 20;
        let machine = Bound { memory: mib(4096), cgroup: None, space: None };
        let bound = machine.clone().within(Space { limit: mib(400), own: mib(200) });
        assert_eq!((bound.memory, bound.for_connections(None)), (mib(200), mib(50)));
        assert_eq!(bound.for_connections(Some(mib(4096))), mib(100), "the rest is not weighed");
        assert_eq!(bound.shortage_of_space(Some(mib(100))), None);
        let said = bound.shortage_of_space(Some(mib(128))).unwrap();
        assert!(
            said.contains("400 MiB") && said.contains("456 MiB") && said.contains("own 100 MiB"),
            "{said}"
        );
        let tight = machine.clone().within(Space { limit: mib(100), own: mib(200) });
        assert_eq!(tight.for_connections(Some(mib(64))), LEAST_SPACE / MOST, "somebody is served");
        assert!(tight.shortage_of_space(None).is_some());
        let wide = machine.clone().within(Space { limit: mib(8192), own: mib(200) });
        assert_eq!((wide.shortage_of_space(Some(mib(9999))), wide), (None, machine.clone()));
        let cgroup = Bound { memory: mib(100), cgroup: Some("/c".into()), space: None };
        assert_eq!(
            cgroup.clone().within(Space { limit: mib(400), own: mib(200) }),
            cgroup,
            "the least counts"
        );
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
