//! What `/proc` says (`proc(5)`), as numbers: parsers of text that the kernel wrote, pure and without a clock.
//!
//! `host` watches the machine of the generator with them, `systems::figures` any machine. What a kernel does not offer is left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// `sysconf(_SC_CLK_TCK)`: 100 on every Linux that user space sees.
pub(crate) const TICKS_PER_SECOND: f64 = 100.0;

/// Processors, network interfaces or disks that are looked at, at most.
const ROWS: usize = 1_024;

/// Ticks of a processor since the system began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// Programs, those of low priority included.
    pub user: u64,
    /// The kernel for them, and hard interrupts.
    pub system: u64,
    /// Nothing to do, or waiting for disks.
    pub idle: u64,
    /// Soft interrupts: most of the network.
    pub softirq: u64,
    /// Taken by the host of a virtual machine.
    pub steal: u64,
}

impl Ticks {
    /// All of them.
    pub fn all(&self) -> u64 {
        [self.user, self.system, self.idle, self.softirq, self.steal].into_iter().fold(0, u64::saturating_add)
    }

    /// All but the idle ones.
    pub fn busy(&self) -> u64 {
        self.all().saturating_sub(self.idle)
    }
}

/// Each `cpuN` line of `/proc/stat`, with its number.
pub(crate) fn processors(stat: &str) -> Vec<(u32, Ticks)> {
    let of = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        let at = |place: usize| ticks.get(place).copied().unwrap_or(0);
        let ticks = Ticks {
            user: at(0).saturating_add(at(1)),
            system: at(2).saturating_add(at(5)),
            idle: at(3).saturating_add(at(4)),
            softirq: at(6),
            steal: at(7),
        };
        Some((number, ticks))
    };
    stat.lines().filter(|line| !line.starts_with("cpu ")).filter_map(of).take(ROWS).collect()
}

/// The number behind a word at the start of a line.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// The number under a name, in files of two lines: names, then numbers.
pub(crate) fn pair(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names.split_whitespace().position(|other| other == name)?;
    numbers.split_whitespace().nth(place)?.parse().ok()
}

/// `total=` of the line `some` of a pressure file: microseconds.
pub(crate) fn stalled(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some"))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("total=")?.parse().ok())
}

/// User and system ticks of `/proc/PID/stat`. The name in it may hold spaces and brackets.
pub(crate) fn process_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user.saturating_add(system))
}

/// State and process group of `/proc/PID/stat`.
pub(crate) fn state_and_group(stat: &str) -> Option<(char, u32)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(1)?.parse().ok()?))
}

/// Counters of a network interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Bytes that came, and that went.
    pub bytes: [u64; 2],
    /// The same for packets.
    pub packets: [u64; 2],
    /// Packets that were dropped on the way in, and out.
    pub drops: [u64; 2],
}

/// `/proc/net/dev` by name.
pub(crate) fn interfaces(text: &str) -> BTreeMap<String, Interface> {
    let of = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let pair = |place: usize| Some([*numbers.get(place)?, *numbers.get(place + 8)?]);
        Some((name.trim().to_owned(), Interface { bytes: pair(0)?, packets: pair(1)?, drops: pair(3)? }))
    };
    text.lines().filter_map(of).take(ROWS).collect()
}

/// Counters of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    /// Bytes.
    pub read: u64,
    /// Bytes.
    pub written: u64,
    /// Milliseconds in which something was under way.
    pub busy: u64,
}

/// `/proc/diskstats` by name; a sector is 512 bytes whatever the disk has. Partitions are there as well.
pub(crate) fn disks(text: &str) -> BTreeMap<String, Disk> {
    let of = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        let name = words.next()?.to_owned();
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let at = |place: usize| numbers.get(place).copied();
        let bytes = |sectors: u64| sectors.saturating_mul(512);
        Some((name, Disk { read: bytes(at(2)?), written: bytes(at(6)?), busy: at(9)? }))
    };
    text.lines().filter_map(of).take(ROWS).collect()
}

/// A table with a column for each processor (`/proc/interrupts`, `/proc/softirqs`): the sum of the rows whose name `is_wanted`, by
/// processor.
pub(crate) fn by_processor(text: &str, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<u32, u64> {
    let mut lines = text.lines();
    let heading = lines.next().unwrap_or_default();
    let columns: Vec<u32> = heading
        .split_whitespace()
        .map_while(|word| word.strip_prefix("CPU")?.parse().ok())
        .take(ROWS)
        .collect();
    let mut sums: BTreeMap<u32, u64> = columns.iter().map(|number| (*number, 0)).collect();
    for line in lines {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        if !is_wanted(name.trim()) {
            continue;
        }
        let numbers = numbers.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        for (column, number) in columns.iter().zip(numbers) {
            if let Some(sum) = sums.get_mut(column) {
                *sum = sum.saturating_add(number);
            }
        }
    }
    sums
}

/// The text of a file; nothing where it cannot be read.
pub(crate) fn text(path: impl AsRef<Path>) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// All processes.
pub(crate) fn all_processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Whether a process was started with a variable (`NAME=value`), as far as it lets us look.
pub(crate) fn has_variable(process: u32, variable: &str) -> bool {
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|known| known == variable.as_bytes())
}

/// Processes and all their descendants.
pub(crate) fn with_children(roots: &[u32]) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = all_processes()
        .into_iter()
        .filter_map(|process| {
            let stat = text(format!("/proc/{process}/stat"));
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((process, parent))
        })
        .collect();
    let mut found: Vec<u32> = roots.to_vec();
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        let children = parents.iter().filter(|(_, of)| *of == parent).map(|(process, _)| *process);
        let new: Vec<u32> = children.filter(|child| !found.contains(child)).collect();
        found.extend(new);
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_and_words() {
        let stat = "cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 4 1 2 80 10 1 1 1 0 0\ncpu2 1\nprocs_running 3\n";
        let ticks = Ticks { user: 5, system: 3, idle: 90, softirq: 1, steal: 1 };
        assert_eq!(processors(stat), [(0, ticks), (2, Ticks { user: 1, ..Ticks::default() })]);
        assert_eq!((ticks.busy(), ticks.all()), (10, 100));
        assert_eq!(field(stat, "procs_running"), Some(3));
        assert_eq!(field("MemTotal: 9 kB\nMemAvailable:   12345 kB\n", "MemAvailable:"), Some(12_345));
        let snmp = "Ip: a\nIp: 1\nTcp: RtoAlgorithm RetransSegs InErrs\nTcp: 1 42 7\n";
        assert_eq!(pair(snmp, "Tcp:", "RetransSegs"), Some(42));
        assert_eq!(pair(snmp, "Tcp:", "Nothing"), None);
        let pressure = "some avg10=0.12 avg60=0.08 avg300=0.02 total=99\nfull avg10=0.00 total=1\n";
        assert_eq!(stalled(pressure), Some(99));
        let process = "12 (a (b) c) S 1 1 1 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 1 0 5 0 0";
        assert_eq!(process_ticks(process), Some(42));
        assert_eq!(state_and_group(process), Some(('S', 1)));
    }

    #[test]
    fn interfaces_and_disks() {
        let dev = "Inter-|   Receive  |  Transmit\n face |bytes packets errs\n  eth0.7: 100 2 0 3 0 0 0 0 200 4 0 5 0 0 0 0\n \
                   short: 1 2\n";
        let expected = Interface { bytes: [100, 200], packets: [2, 4], drops: [3, 5] };
        assert_eq!(interfaces(dev), BTreeMap::from([("eth0.7".to_owned(), expected)]));
        let stats = "   8       0 sda 10 0 16 5 20 0 32 7 0 900 12 0 0 0 0 1 2\n   8       1 sda1 1\n";
        let expected = Disk { read: 8_192, written: 16_384, busy: 900 };
        assert_eq!(disks(stats), BTreeMap::from([("sda".to_owned(), expected)]));
    }

    #[test]
    fn tables_by_processor() {
        let interrupts = "           CPU0       CPU3\n 24:   1   2  IO-APIC 5-edge x 9\nNMI:  10  20  Non-maskable\nERR:  7\n";
        assert_eq!(by_processor(interrupts, |_| true), BTreeMap::from([(0, 18), (3, 22)]));
        let softirqs = "  CPU0 CPU1\n  NET_TX: 1 2\n  NET_RX: 3 4\n  TIMER: 5 6\n";
        assert_eq!(by_processor(softirqs, |name| name == "NET_RX"), BTreeMap::from([(0, 3), (1, 4)]));
    }

    #[test]
    fn garbage_is_nothing() {
        let most = format!("cpu0 {0} {0} {0} {0} {0} {0} {0} {0}", u64::MAX);
        for (_, ticks) in processors(&most) {
            let _ = ticks.busy();
        }
        let table = format!(" CPU0\na: {0}\nb: {0}\n", u64::MAX);
        assert_eq!(by_processor(&table, |_| true), BTreeMap::from([(0, u64::MAX)]));
        let sectors = format!("8 0 sda 1 1 {0} 1 1 1 {0} 1 1 {0}", u64::MAX);
        assert_eq!(disks(&sectors).len(), 1);
        for garbage in ["", "cpu", "cpux 1", "some", "x (", "Tcp:", ":", "a:", " : 1", "\u{0}\n:\n", "8 0"] {
            assert!(processors(garbage).is_empty() && disks(garbage).is_empty(), "{garbage:?}");
            assert!(interfaces(garbage).is_empty(), "{garbage:?}");
            assert!(by_processor(garbage, |_| true).is_empty(), "{garbage:?}");
            let _ =
                (stalled(garbage), process_ticks(garbage), pair(garbage, "Tcp:", "a"), field(garbage, "a"));
        }
    }
}
