//! The machine as procfs, sysfs and cgroupfs tell of it: what the kernel has dropped, throttled, swapped and lost.
//!
//! Read by the master's thread of findings, every ten seconds. All of it is optional: what is not there, cannot be read or makes
//! no sense reads as not known. Every file is read up to a bound. Only what these file systems answer from memory is read, so
//! nothing here waits for a disk; folders are measured elsewhere. Tests put a folder of files in the place of `/`.

mod cgroup;
mod processes;

pub use cgroup::Cgroup;
pub use processes::{ProcessUse, ThreadUse};

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Of a file that the kernel makes, no more is read.
const LONGEST: u64 = 256 << 10;
/// Network interfaces that are looked at; a machine of containers has thousands.
const LINKS: usize = 64;

/// The machine at a moment. Counts are since its start, or that of a process or a cgroup.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Host {
    /// Processors that this server may use, a quota included.
    pub processors: Option<f64>,
    /// Time of all processors.
    pub times: ProcessorTimes,
    /// Descriptors that a process may hold.
    pub descriptors: Option<u64>,
    /// The longest accept queue (`net.core.somaxconn`).
    pub somaxconn: Option<u64>,
    /// What TCP has counted, for the whole network namespace.
    pub tcp: TcpCounts,
    /// Pages that sockets of TCP hold, and the most that they may (`tcp_mem`).
    pub tcp_pages: Option<(u64, u64)>,
    /// Connections of TCP in `TIME_WAIT`.
    pub time_wait: u64,
    /// First and last of the ports that outgoing connections get.
    pub ports: Option<(u64, u64)>,
    /// Bytes of memory of the machine that could be had.
    pub available: Option<u64>,
    /// Pages read back from swap.
    pub swapped_in: u64,
    /// Shares of the last ten seconds, per cent.
    pub pressure: Pressure,
    /// The cgroup of this server.
    pub cgroup: Cgroup,
    /// Network interfaces of a known speed.
    pub links: Vec<NetworkLink>,
    /// Worker threads of the server processes.
    pub workers: Vec<ThreadUse>,
    /// Server processes, and those of pools.
    pub processes: Vec<ProcessUse>,
    /// Folders that the server writes to. Not read here.
    pub folders: Vec<Folder>,
}

/// Time of all processors since the start of the machine, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessorTimes {
    /// All of it.
    pub all: u64,
    /// Nothing to do, or waiting for a disk.
    pub idle: u64,
    /// Wanted, and given to others by the host.
    pub stolen: u64,
}

/// What TCP has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpCounts {
    /// Connections that found an accept queue full.
    pub listen_overflows: u64,
    /// Connections that were ended for want of memory.
    pub memory_aborts: u64,
    /// Segments sent.
    pub sent: u64,
    /// Of these, sent again.
    pub resent: u64,
}

/// Shares of the last ten seconds in which something had to wait, per cent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    /// For a processor.
    pub processor: f64,
    /// All of it for memory.
    pub memory: f64,
    /// All of it for a disk.
    pub disk: f64,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkLink {
    /// Its name.
    pub name: String,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes that it can send in a second.
    pub speed: u64,
}

/// A folder that the server writes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// Where.
    pub path: PathBuf,
    /// What is written there: `the access log`.
    pub purpose: String,
    /// Where its file system is mounted.
    pub mount: PathBuf,
    /// Bytes of its file system that can be written.
    pub free: u64,
    /// Bytes of its file system.
    pub size: u64,
}

/// What is asked for beside what there always is.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Processors that the scheduler gives this process.
    pub processors: usize,
    /// Server processes.
    pub servers: Vec<u32>,
    /// Processes of pools.
    pub pools: Vec<u32>,
}

impl Host {
    /// Of this machine, or of a folder that stands for `/`.
    pub fn read(root: &Path, asked: &Asked) -> Host {
        let files = Files(root);
        let cgroup = Cgroup::read(&files);
        let (tcp_pages, time_wait) = sockets(&files);
        Host {
            processors: processors(asked.processors, cgroup.quota),
            times: times(&files.text("proc/stat")),
            descriptors: descriptors(&files.text("proc/self/limits")),
            somaxconn: files.number("proc/sys/net/core/somaxconn"),
            tcp: tcp(&files),
            tcp_pages,
            time_wait,
            ports: ports(&files.text("proc/sys/net/ipv4/ip_local_port_range")),
            available: field(&files.text("proc/meminfo"), "MemAvailable:")
                .and_then(|kib| kib.checked_mul(1024)),
            swapped_in: field(&files.text("proc/vmstat"), "pswpin").unwrap_or(0),
            pressure: Pressure {
                processor: pressure(&files.text("proc/pressure/cpu"), "some"),
                memory: cgroup
                    .memory_pressure
                    .unwrap_or_else(|| pressure(&files.text("proc/pressure/memory"), "full")),
                disk: pressure(&files.text("proc/pressure/io"), "full"),
            },
            cgroup,
            links: links(&files),
            workers: asked.servers.iter().flat_map(|pid| processes::workers(&files, *pid)).collect(),
            processes: asked
                .servers
                .iter()
                .chain(&asked.pools)
                .filter_map(|pid| ProcessUse::read(&files, *pid))
                .collect(),
            folders: Vec::new(),
        }
    }
}

/// Files below a root.
struct Files<'r>(&'r Path);

impl Files<'_> {
    /// What stands in one, up to a bound; nothing where it cannot be read.
    fn text(&self, path: impl AsRef<Path>) -> String {
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(self.0.join(path)) {
            let _ = file.take(LONGEST).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path).trim().parse().ok()
    }
}

/// The number behind a word at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// A counter of a table of two lines, names and values, as `/proc/net/netstat` and `snmp` have them.
fn counter(text: &str, table: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.split_whitespace().next() == Some(table));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let named = names.split_whitespace().zip(values.split_whitespace());
    named.skip(1).find(|(known, _)| *known == name).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

fn tcp(files: &Files<'_>) -> TcpCounts {
    let (extended, plain) = (files.text("proc/net/netstat"), files.text("proc/net/snmp"));
    TcpCounts {
        listen_overflows: counter(&extended, "TcpExt:", "ListenOverflows"),
        memory_aborts: counter(&extended, "TcpExt:", "TCPAbortOnMemory"),
        sent: counter(&plain, "Tcp:", "OutSegs"),
        resent: counter(&plain, "Tcp:", "RetransSegs"),
    }
}

fn sockets(files: &Files<'_>) -> (Option<(u64, u64)>, u64) {
    let text = files.text("proc/net/sockstat");
    let line = text.lines().find(|line| line.starts_with("TCP:")).unwrap_or_default();
    let after = |name: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).and_then(|value| value.parse::<u64>().ok())
    };
    let most =
        files.text("proc/sys/net/ipv4/tcp_mem").split_whitespace().nth(2).and_then(|most| most.parse().ok());
    (after("mem").zip(most).filter(|(_, most)| *most > 0), after("tw").unwrap_or(0))
}

fn ports(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    let (first, last) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (first <= last).then_some((first, last))
}

/// The soft limit.
fn descriptors(text: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn times(text: &str) -> ProcessorTimes {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of the first two.
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(|ticks| ticks.parse().unwrap_or(0)).collect();
    let at = |place: usize| ticks.get(place).copied().unwrap_or(0);
    let all = ticks.iter().fold(0u64, |sum, ticks| sum.saturating_add(*ticks));
    ProcessorTimes { all, idle: at(3).saturating_add(at(4)), stolen: at(7) }
}

fn processors(scheduled: usize, quota: Option<f64>) -> Option<f64> {
    let scheduled = (scheduled > 0).then_some(scheduled as f64);
    match (scheduled, quota) {
        (Some(scheduled), Some(quota)) => Some(scheduled.min(quota)),
        (scheduled, quota) => scheduled.or(quota),
    }
}

/// `some avg10=1.50 avg60=…`
fn pressure(text: &str, kind: &str) -> f64 {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(kind)).unwrap_or_default();
    let share = line.split_whitespace().find_map(|word| word.strip_prefix("avg10="));
    share.and_then(|share| share.parse().ok()).filter(|share| (0.0..=100.0).contains(share)).unwrap_or(0.0)
}

fn links(files: &Files<'_>) -> Vec<NetworkLink> {
    let text = files.text("proc/net/dev");
    let link = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let name = name.trim();
        let sent = counts.split_whitespace().nth(8)?.parse().ok()?;
        // Names come from the kernel, and lead nowhere else.
        let folder = Path::new("sys/class/net").join(Path::new(name).file_name()?);
        // Virtual ones have a speed that means nothing, or -1.
        let is_real = files.0.join(&folder).join("device").exists();
        let speed = files.number(folder.join("speed")).filter(|megabits| is_real && *megabits > 0)?;
        Some(NetworkLink { name: name.to_owned(), sent, speed: speed.checked_mul(1_000_000 / 8)? })
    };
    text.lines().take(LINKS).filter_map(link).collect()
}

#[cfg(test)]
mod tests;
