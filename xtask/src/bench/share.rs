//! A share of a processor for a server, by a control group of its own (cgroups(7)): so one machine can offer a
//! server several times what it can do.
//!
//! Used by `overload`. Ten periods a tenth of a second, so that the server is never held up for long.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Microseconds.
const PERIOD: u32 = 10_000;

/// A control group, removed when it is dropped; the processes in it must have ended.
pub struct Share {
    folder: PathBuf,
}

impl Share {
    /// Holds these processes, and what they start, to `percent` of one processor.
    pub fn confine(processes: &[u32], percent: u32) -> Result<Self> {
        let quota = PERIOD * percent / 100;
        let first = Path::new("/sys/fs/cgroup/cpu");
        let name = format!("tidegate-bench-{}", std::process::id());
        // The first version of control groups has a tree for each controller, the second one for all.
        let (folder, limits) = if first.is_dir() {
            let limits = [("cpu.cfs_period_us", PERIOD.to_string()), ("cpu.cfs_quota_us", quota.to_string())];
            (first.join(name), limits.to_vec())
        } else {
            let root = Path::new("/sys/fs/cgroup");
            // Refused where it is on already.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
            (root.join(name), vec![("cpu.max", format!("{quota} {PERIOD}"))])
        };
        let needs = || format!("a share of a processor needs root and control groups: {}", folder.display());
        fs::create_dir(&folder).with_context(needs)?;
        let share = Self { folder: folder.clone() };
        for (file, text) in limits {
            fs::write(folder.join(file), text).with_context(needs)?;
        }
        for process in processes {
            fs::write(folder.join("cgroup.procs"), process.to_string()).with_context(needs)?;
        }
        Ok(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // A process that has ended may be in it for a moment longer.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
        eprintln!("bench: {} is left over", self.folder.display());
    }
}
