//! Processes and their worker threads: processor time, memory, faults.

use super::Files;
use rustix::param::{clock_ticks_per_second, page_size};
use std::path::Path;

/// Threads of a process that are looked at.
const THREADS: usize = 2048;
/// What worker threads are called, before their number.
const WORKER: &str = "tidegate-";

/// A process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// Its number.
    pub pid: u32,
    /// Processor time, milliseconds.
    pub busy_millis: u64,
    /// Bytes of memory that no other process has.
    pub private: u64,
    /// Pages that had to be read from a disk.
    pub major_faults: u64,
}

/// A worker thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadUse {
    /// Of which process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Processor time, milliseconds.
    pub busy_millis: u64,
}

/// What `stat` of a process or a thread says (`proc(5)`).
struct Stat {
    name: String,
    busy_millis: u64,
    major_faults: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The name is in parentheses, and may hold some.
        let (head, rest) = text.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let at = |place: usize| fields.get(place)?.parse::<u64>().ok();
        // Field 3 is the first behind the name: faults are field 12, times 14 and 15.
        let ticks = at(11)?.saturating_add(at(12)?);
        let busy_millis = ticks.saturating_mul(1000) / clock_ticks_per_second().max(1);
        Some(Stat { name, busy_millis, major_faults: at(9)? })
    }
}

impl ProcessUse {
    pub(super) fn read(files: &Files<'_>, pid: u32) -> Option<ProcessUse> {
        let folder = Path::new("proc").join(pid.to_string());
        let stat = Stat::parse(&files.text(folder.join("stat")))?;
        let memory = files.text(folder.join("statm"));
        let mut pages = memory.split_whitespace().skip(1).map(|pages| pages.parse::<u64>().unwrap_or(0));
        let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
        let private = resident.saturating_sub(shared).saturating_mul(page_size() as u64);
        Some(ProcessUse { pid, busy_millis: stat.busy_millis, private, major_faults: stat.major_faults })
    }
}

/// The worker threads of a server process.
pub(super) fn workers(files: &Files<'_>, pid: u32) -> Vec<ThreadUse> {
    let folder = Path::new("proc").join(pid.to_string()).join("task");
    let Ok(threads) = std::fs::read_dir(files.0.join(&folder)) else { return Vec::new() };
    let thread = |entry: std::io::Result<std::fs::DirEntry>| {
        let stat = Stat::parse(&files.text(folder.join(entry.ok()?.file_name()).join("stat")))?;
        let number = stat.name.strip_prefix(WORKER)?;
        let is_worker = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_worker.then_some(ThreadUse { pid, name: stat.name, busy_millis: stat.busy_millis })
    };
    let mut workers: Vec<ThreadUse> = threads.take(THREADS).filter_map(thread).collect();
    workers.sort_by(|one, other| one.name.cmp(&other.name));
    workers
}
