//! The cgroup that the server runs in: how much processor and memory it may have, and how often it was held up.
//!
//! Version 2 has one hierarchy, version 1 one for each kind of thing. A bound of a parent holds as well: the tightest is told,
//! with the counts of the cgroup that sets it.

use super::{Files, field, pressure};
use std::path::{Path, PathBuf};

/// Cgroups above that are looked at.
const DEEPEST: usize = 32;
/// What no memory is as large as: version 1 writes such a number where there is no bound.
const UNBOUNDED: u64 = 1 << 60;

/// The cgroup of this server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cgroup {
    /// Processors that it may use.
    pub quota: Option<f64>,
    /// Times that its quota was given anew.
    pub periods: u64,
    /// Of these, how often it had been used up.
    pub throttled: u64,
    /// Microseconds that its threads stood still.
    pub throttled_micros: u64,
    /// Bytes of memory in use.
    pub memory: u64,
    /// Bytes of memory that it may use.
    pub memory_most: Option<u64>,
    /// The most that it has used, bytes.
    pub memory_peak: u64,
    /// Times that it was held to its bound.
    pub memory_events: u64,
    /// Processes that were killed for want of memory.
    pub memory_kills: u64,
    /// Share of the last ten seconds in which all of it waited for memory, per cent.
    pub memory_pressure: Option<f64>,
}

impl Cgroup {
    pub(super) fn read(files: &Files<'_>) -> Cgroup {
        let own = files.text("proc/self/cgroup");
        let mut cgroup = Cgroup::default();
        // `0::/path` is version 2, `4:cpu,cpuacct:/path` version 1.
        for (hierarchy, path) in own.lines().filter_map(hierarchy_and_path) {
            if hierarchy.is_empty() {
                for folder in folders(Path::new("sys/fs/cgroup"), path) {
                    cgroup.read_unified(files, &folder);
                }
            } else if hierarchy.split(',').any(|name| name == "cpu") {
                // Distributions mount it by either name.
                for mount in [hierarchy, "cpu"] {
                    for folder in folders(&Path::new("sys/fs/cgroup").join(mount), path) {
                        cgroup.read_processor_of_1(files, &folder);
                    }
                }
            } else if hierarchy.split(',').any(|name| name == "memory") {
                for folder in folders(Path::new("sys/fs/cgroup/memory"), path) {
                    cgroup.read_memory_of_1(files, &folder);
                }
            }
        }
        cgroup
    }

    fn read_unified(&mut self, files: &Files<'_>, folder: &Path) {
        let quota = files.text(folder.join("cpu.max"));
        let mut parts = quota.split_whitespace().map(|part| part.parse::<f64>().ok());
        if let (Some(Some(quota)), Some(Some(period))) = (parts.next(), parts.next())
            && self.is_tighter(quota, period)
        {
            let counted = files.text(folder.join("cpu.stat"));
            self.periods = field(&counted, "nr_periods").unwrap_or(0);
            self.throttled = field(&counted, "nr_throttled").unwrap_or(0);
            self.throttled_micros = field(&counted, "throttled_usec").unwrap_or(0);
        }
        let bounds = ["memory.max", "memory.high"].map(|name| files.number(folder.join(name)));
        if let Some(most) = bounds.into_iter().flatten().min()
            && self.memory_most.is_none_or(|known| most < known)
        {
            self.memory_most = Some(most);
            self.memory = files.number(folder.join("memory.current")).unwrap_or(0);
            self.memory_peak = files.number(folder.join("memory.peak")).unwrap_or(self.memory);
            let events = files.text(folder.join("memory.events"));
            let count = |name| field(&events, name).unwrap_or(0);
            self.memory_events = count("high").saturating_add(count("max"));
            self.memory_kills = count("oom_kill");
            self.memory_pressure = Some(pressure(&files.text(folder.join("memory.pressure")), "full"));
        }
    }

    fn read_processor_of_1(&mut self, files: &Files<'_>, folder: &Path) {
        let number = |name: &str| files.text(folder.join(name)).trim().parse::<f64>().ok();
        if let (Some(quota), Some(period)) = (number("cpu.cfs_quota_us"), number("cpu.cfs_period_us"))
            && self.is_tighter(quota, period)
        {
            let counted = files.text(folder.join("cpu.stat"));
            self.periods = field(&counted, "nr_periods").unwrap_or(0);
            self.throttled = field(&counted, "nr_throttled").unwrap_or(0);
            self.throttled_micros = field(&counted, "throttled_time").unwrap_or(0) / 1_000;
        }
    }

    fn read_memory_of_1(&mut self, files: &Files<'_>, folder: &Path) {
        let bound = files.number(folder.join("memory.limit_in_bytes")).filter(|most| *most < UNBOUNDED);
        let Some(most) = bound.filter(|most| self.memory_most.is_none_or(|known| *most < known)) else {
            return;
        };
        self.memory_most = Some(most);
        self.memory = files.number(folder.join("memory.usage_in_bytes")).unwrap_or(0);
        self.memory_peak = files.number(folder.join("memory.max_usage_in_bytes")).unwrap_or(self.memory);
        self.memory_events = files.number(folder.join("memory.failcnt")).unwrap_or(0);
        self.memory_kills = field(&files.text(folder.join("memory.oom_control")), "oom_kill").unwrap_or(0);
    }

    /// Takes a quota that is tighter than what is known.
    fn is_tighter(&mut self, quota: f64, period: f64) -> bool {
        let processors = quota / period;
        let is_one = processors.is_finite() && processors > 0.0;
        let is_tighter = is_one && self.quota.is_none_or(|known| processors < known);
        if is_tighter {
            self.quota = Some(processors);
        }
        is_tighter
    }
}

fn hierarchy_and_path(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once(':')?;
    let (hierarchy, path) = rest.split_once(':')?;
    // What lies outside of the namespace of this process begins with `/..`.
    let is_plain = hierarchy.split(',').all(|name| !name.contains('/')) && !path.contains("..");
    Some((hierarchy, if is_plain { path.trim_start_matches('/') } else { "" }))
}

/// A cgroup and those above it, from the top down to the first bound that holds: a container sees its own as the top.
fn folders(top: &Path, own: &str) -> Vec<PathBuf> {
    let whole = top.join(own);
    whole.ancestors().take_while(|folder| folder.starts_with(top)).take(DEEPEST).map(Path::to_owned).collect()
}
