//! How much memory there is for what connections own, and whether the kernel finds it short.
//!
//! `limits memory auto` is a quarter of the least bound that holds for this process: of its cgroups
//! (`memory.max`, `memory.high` of cgroup version 2), else of the machine. Inside a bounded cgroup the
//! kernel also tells how long processes were held up for want of memory (`memory.pressure`, the pressure
//! stall information); that is looked at once a second (FAULTS 42). Files of procfs and cgroupfs are
//! answered from memory and never wait for a disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Of the memory there is, the share for what connections own.
const SHARE: u64 = 4;
/// Where nobody says how much there is.
const UNKNOWN: u64 = 1 << 30;
/// Percent of the last ten seconds in which everything stood still for want of memory.
const PRESSED: f64 = 5.0;

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
        let own = cgroups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        for folder in groups.join(own).ancestors().take_while(|folder| folder.starts_with(&groups)) {
            for name in ["memory.max", "memory.high"] {
                let written = fs::read_to_string(folder.join(name)).unwrap_or_default();
                // `max` stands where there is no bound.
                if let Ok(bytes) = written.trim().parse::<u64>()
                    && bytes < bound.memory
                {
                    bound = Bound { memory: bytes, cgroup: Some(folder.to_owned()) };
                }
            }
        }
        bound
    }

    /// What connections may own by default.
    pub fn for_connections(&self) -> u64 {
        self.memory / SHARE
    }

    /// Whether the kernel finds memory short in the cgroup that bounds this process.
    pub fn is_pressed(&self) -> bool {
        let Some(cgroup) = &self.cgroup else { return false };
        let text = fs::read_to_string(cgroup.join("memory.pressure")).unwrap_or_default();
        full_stall(&text).is_some_and(|percent| percent >= PRESSED)
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
        assert_eq!(bound.for_connections(), 75_000_000);
        assert_eq!(bound.cgroup.as_deref(), Some(root.join("sys/fs/cgroup/system.slice").as_path()));
        assert!(!bound.is_pressed());
        write("sys/fs/cgroup/system.slice/memory.pressure", "some avg10=90.00\nfull avg10=4.99 avg60=9.00\n");
        assert!(!bound.is_pressed());
        write("sys/fs/cgroup/system.slice/memory.pressure", "some avg10=90.00\nfull avg10=5.00 avg60=0.00\n");
        assert!(bound.is_pressed());
        fs::remove_dir_all(&root).unwrap();
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
