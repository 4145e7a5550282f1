//! The figures of a machine by name, as `runs::monitors` reads them: what `tidegate bench monitor` prints each second.
//!
//! [`Reading`] holds the counters of the kernel at one moment, and two of them give figures. Whatever counts up is told by second,
//! shares are 0 to 1. There are at most [`FIGURES`]; where a machine has more, the last processors are left out.

use crate::proc::{
    self, Disk, Interface, TICKS_PER_SECOND, Ticks, all_processes, field, pair, process_ticks, stalled, text,
    with_children,
};
use crate::runs::FIGURES;
use std::collections::BTreeMap;
use std::path::Path;

/// Names and values, in the order in which they are told.
pub type Figures = Vec<(String, f64)>;

/// Processes of one name or parent that are looked at, at most.
const PROCESSES: usize = 4_096;
/// Interfaces, and disks, that are told, at most.
const DEVICES: usize = 16;
/// Bytes of a part of a name, at most.
const NAME: usize = 60;

/// Processes whose figures are told together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Processes {
    /// All of a name, as `/proc/PID/comm` has it.
    Named(String),
    /// One, and its descendants.
    Tree(u32),
}

impl Processes {
    /// A number is the id of one, anything else a name.
    pub fn parse(text: &str) -> Processes {
        text.parse().map_or_else(|_| Processes::Named(text.to_owned()), Processes::Tree)
    }

    fn name(&self) -> String {
        match self {
            Processes::Named(name) => plain(name),
            Processes::Tree(root) => root.to_string(),
        }
    }

    fn find(&self, all: &[(u32, String)]) -> Vec<u32> {
        let mut found = match self {
            // The kernel keeps 15 bytes of a name.
            Processes::Named(name) => {
                let kept = name.as_bytes().get(..15).unwrap_or(name.as_bytes());
                all.iter().filter(|(_, comm)| comm.as_bytes() == kept).map(|(process, _)| *process).collect()
            }
            Processes::Tree(root) => with_children(&[*root]),
        };
        found.truncate(PROCESSES);
        found
    }
}

/// Counters at one moment.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// Monotonic nanoseconds.
    at: u64,
    processors: BTreeMap<u32, Ticks>,
    running: Option<u64>,
    blocked: Option<u64>,
    /// Microseconds in which some task waited, by what it waited for.
    stalled: BTreeMap<&'static str, u64>,
    /// Bytes.
    memory: BTreeMap<&'static str, u64>,
    tcp: BTreeMap<&'static str, u64>,
    interfaces: BTreeMap<String, Interface>,
    disks: BTreeMap<String, Disk>,
    interrupts: BTreeMap<u32, u64>,
    received: BTreeMap<u32, u64>,
    sent: BTreeMap<u32, u64>,
    groups: BTreeMap<String, Group>,
}

/// Processes that are told together.
#[derive(Debug, Clone, Default)]
struct Group {
    ticks: BTreeMap<u32, u64>,
    resident: u64,
}

impl Reading {
    /// What the kernel says now; `at` is the monotonic time.
    pub fn take(processes: &[Processes], at: u64) -> Reading {
        let stat = text("/proc/stat");
        let meminfo = text("/proc/meminfo");
        let (snmp, netstat) = (text("/proc/net/snmp"), text("/proc/net/netstat"));
        let softirqs = text("/proc/softirqs");
        let mut disks = proc::disks(&text("/proc/diskstats"));
        disks.retain(|name, _| is_disk(name));
        Reading {
            at,
            processors: proc::processors(&stat).into_iter().collect(),
            // This process runs itself.
            running: field(&stat, "procs_running").map(|count| count.saturating_sub(1)),
            blocked: field(&stat, "procs_blocked"),
            stalled: ["cpu", "memory", "io"]
                .into_iter()
                .filter_map(|what| Some((what, stalled(&text(format!("/proc/pressure/{what}")))?)))
                .collect(),
            memory: memory(&meminfo),
            tcp: [
                ("retransmits", pair(&snmp, "Tcp:", "RetransSegs")),
                ("listen_drops", pair(&netstat, "TcpExt:", "ListenDrops")),
                ("listen_overflows", pair(&netstat, "TcpExt:", "ListenOverflows")),
            ]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect(),
            interfaces: proc::interfaces(&text("/proc/net/dev")),
            disks,
            interrupts: proc::by_processor(&text("/proc/interrupts"), |_| true),
            received: proc::by_processor(&softirqs, |name| name == "NET_RX"),
            sent: proc::by_processor(&softirqs, |name| name == "NET_TX"),
            groups: groups(processes),
        }
    }

    /// What there was between two readings; nothing where no time has passed.
    pub fn since(&self, before: &Reading) -> Figures {
        let seconds = self.at.saturating_sub(before.at) as f64 / 1e9;
        let mut out = Out { figures: Vec::new(), seconds };
        if seconds <= 0.0 {
            return out.figures;
        }
        self.of_the_whole(before, &mut out);
        self.of_processes(before, &mut out);
        self.of_devices(before, &mut out);
        self.of_processors(before, &mut out);
        out.figures.truncate(FIGURES);
        out.figures
    }

    fn of_the_whole(&self, before: &Reading, out: &mut Out) {
        for (name, value) in [("tasks.running", self.running), ("tasks.blocked", self.blocked)] {
            out.figures.extend(value.map(|value| (name.to_owned(), value as f64)));
        }
        for (what, now) in &self.stalled {
            if let Some(then) = before.stalled.get(what) {
                let share = (now.saturating_sub(*then) as f64 / 1e6 / out.seconds).min(1.0);
                out.add(format!("pressure.{what}_share"), share);
            }
        }
        for (name, bytes) in &self.memory {
            out.add(format!("memory.{name}_bytes"), *bytes as f64);
        }
        for (name, now) in &self.tcp {
            out.rate(format!("tcp.{name}"), *now, before.tcp.get(name).copied());
        }
    }

    fn of_processes(&self, before: &Reading, out: &mut Out) {
        for (name, group) in &self.groups {
            let then = before.groups.get(name);
            // One that was not there has begun since.
            let used = group.ticks.iter().map(|(process, ticks)| {
                ticks.saturating_sub(then.and_then(|then| then.ticks.get(process)).copied().unwrap_or(0))
            });
            let used = used.fold(0, u64::saturating_add) as f64 / TICKS_PER_SECOND / out.seconds;
            if then.is_some() {
                out.add(format!("process.{name}.processors"), used);
            }
            out.add(format!("process.{name}.resident_bytes"), group.resident as f64);
            out.add(format!("process.{name}.count"), group.ticks.len() as f64);
        }
    }

    fn of_devices(&self, before: &Reading, out: &mut Out) {
        // What has never moved anything is not in use.
        let used = self.interfaces.iter().filter(|(_, now)| now.packets != [0, 0]);
        for (name, now) in used.take(DEVICES) {
            let (then, name) = (before.interfaces.get(name), plain(name));
            let mut pair = |what: &str, of: fn(&Interface) -> [u64; 2]| {
                for (place, way) in ["in", "out"].into_iter().enumerate() {
                    let at = |interface: &Interface| of(interface).get(place).copied().unwrap_or(0);
                    out.rate(format!("net.{name}.{way}_{what}"), at(now), then.map(at));
                }
            };
            pair("bytes", |interface| interface.bytes);
            pair("packets", |interface| interface.packets);
            pair("drops", |interface| interface.drops);
        }
        let used = self.disks.iter().filter(|(_, now)| now.read | now.written != 0);
        for (name, now) in used.take(DEVICES) {
            let (then, name) = (before.disks.get(name), plain(name));
            out.rate(format!("disk.{name}.read_bytes"), now.read, then.map(|then| then.read));
            out.rate(format!("disk.{name}.written_bytes"), now.written, then.map(|then| then.written));
            if let Some(then) = then {
                let busy = now.busy.saturating_sub(then.busy) as f64 / 1e3 / out.seconds;
                out.add(format!("disk.{name}.busy"), busy.min(1.0));
            }
        }
    }

    fn of_processors(&self, before: &Reading, out: &mut Out) {
        for (number, now) in &self.processors {
            let Some(then) = before.processors.get(number) else { continue };
            let all = now.all().saturating_sub(then.all()).max(1) as f64;
            for (name, now, then) in [
                ("user", now.user, then.user),
                ("system", now.system, then.system),
                ("softirq", now.softirq, then.softirq),
                ("steal", now.steal, then.steal),
                ("idle", now.idle, then.idle),
            ] {
                let share = now.saturating_sub(then) as f64 / all;
                out.add(format!("cpu.{number}.{name}_share"), share.min(1.0));
            }
        }
        for (name, now, then) in [
            ("total", &self.interrupts, &before.interrupts),
            ("net_received", &self.received, &before.received),
            ("net_sent", &self.sent, &before.sent),
        ] {
            for (number, count) in now {
                out.rate(format!("interrupts.{number}.{name}"), *count, then.get(number).copied());
            }
        }
    }
}

/// Figures of an interval of so many seconds.
struct Out {
    figures: Figures,
    seconds: f64,
}

impl Out {
    fn add(&mut self, name: String, value: f64) {
        self.figures.push((name, value));
    }

    /// What a counter has gone up by, a second. One that was not there before is left out, one that went back is 0.
    fn rate(&mut self, name: String, now: u64, then: Option<u64>) {
        if let Some(then) = then {
            self.add(name, now.saturating_sub(then) as f64 / self.seconds);
        }
    }
}

fn memory(meminfo: &str) -> BTreeMap<&'static str, u64> {
    let of = |name: &str| field(meminfo, name).map(|kib| kib.saturating_mul(1_024));
    let less = |name: &str, part: &str| Some(of(name)?.saturating_sub(of(part)?));
    [
        ("available", of("MemAvailable:")),
        ("used", less("MemTotal:", "MemAvailable:")),
        ("cached", of("Cached:")),
        ("dirty", of("Dirty:")),
        ("swapped", less("SwapTotal:", "SwapFree:")),
    ]
    .into_iter()
    .filter_map(|(name, bytes)| Some((name, bytes?)))
    .collect()
}

fn groups(processes: &[Processes]) -> BTreeMap<String, Group> {
    let needs_names = processes.iter().any(|of| matches!(of, Processes::Named(_)));
    let all: Vec<(u32, String)> = if needs_names {
        let name = |process| (process, text(format!("/proc/{process}/comm")).trim_end().to_owned());
        all_processes().into_iter().map(name).collect()
    } else {
        Vec::new()
    };
    let group = |of: &Processes| {
        let mut group = Group::default();
        for process in of.find(&all) {
            let Some(ticks) = process_ticks(&text(format!("/proc/{process}/stat"))) else { continue };
            group.ticks.insert(process, ticks);
            let resident = field(&text(format!("/proc/{process}/status")), "VmRSS:").unwrap_or(0);
            group.resident = group.resident.saturating_add(resident.saturating_mul(1_024));
        }
        (of.name(), group)
    };
    processes.iter().map(group).collect()
}

/// A whole disk: partitions have no folder there.
fn is_disk(name: &str) -> bool {
    // The kernel has `!` where the name of a device has `/`.
    !name.contains('/') && !name.starts_with("loop") && Path::new("/sys/block").join(name).exists()
}

/// A part of a name of a figure: nothing that a table or a group of names would take for something else.
pub(crate) fn plain(name: &str) -> String {
    let is_plain = |character: &char| character.is_ascii_alphanumeric() || "-_.:@".contains(*character);
    name.chars().map(|character| if is_plain(&character) { character } else { '_' }).take(NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(figures: &Figures, name: &str) -> Option<f64> {
        figures.iter().find(|figure| figure.0 == name).map(|figure| figure.1)
    }

    #[test]
    fn two_readings_give_figures() {
        let sda = |read, busy| BTreeMap::from([("sda".to_owned(), Disk { read, written: 0, busy })]);
        let eth = |bytes| {
            let counters = Interface { bytes: [bytes, 0], packets: [bytes, 1], drops: [0, 0] };
            BTreeMap::from([("eth0".to_owned(), counters)])
        };
        let group = |ticks: &[(u32, u64)]| {
            let group = Group { ticks: ticks.iter().copied().collect(), resident: 4_096 };
            BTreeMap::from([("php".to_owned(), group)])
        };
        let before = Reading {
            at: 0,
            processors: BTreeMap::from([(0, Ticks { user: 10, idle: 90, ..Ticks::default() })]),
            stalled: BTreeMap::from([("cpu", 0)]),
            tcp: BTreeMap::from([("retransmits", 9)]),
            interfaces: eth(1_000),
            disks: sda(0, 100),
            groups: group(&[(1, 100), (2, 700)]),
            ..Reading::default()
        };
        let now = Reading {
            at: 2_000_000_000,
            processors: BTreeMap::from([(0, Ticks { user: 60, idle: 140, ..Ticks::default() })]),
            running: Some(3),
            stalled: BTreeMap::from([("cpu", 500_000), ("io", 7)]),
            // A counter that went back.
            tcp: BTreeMap::from([("retransmits", 1)]),
            interfaces: eth(3_000),
            disks: sda(8_192, 1_100),
            interrupts: BTreeMap::from([(0, 5)]),
            // One has ended, one has begun.
            groups: group(&[(1, 200), (3, 100)]),
            ..Reading::default()
        };
        let figures = now.since(&before);
        for (name, expected) in [
            ("tasks.running", Some(3.0)),
            ("pressure.cpu_share", Some(0.25)),
            ("pressure.io_share", None),
            ("tcp.retransmits", Some(0.0)),
            ("net.eth0.in_bytes", Some(1_000.0)),
            ("disk.sda.read_bytes", Some(4_096.0)),
            ("disk.sda.busy", Some(0.5)),
            ("cpu.0.user_share", Some(0.5)),
            ("cpu.0.idle_share", Some(0.5)),
            ("interrupts.0.total", None),
            ("process.php.processors", Some(1.0)),
            ("process.php.count", Some(2.0)),
        ] {
            assert_eq!(value(&figures, name), expected, "{name}");
        }
        assert!(before.since(&now).is_empty());
    }

    #[test]
    fn a_large_machine_is_bounded() {
        let ticks = |user| (0..900).map(|number| (number, Ticks { user, ..Ticks::default() })).collect();
        let before = Reading { processors: ticks(1), ..Reading::default() };
        let now = Reading { at: 1, processors: ticks(2), running: Some(1), ..Reading::default() };
        let figures = now.since(&before);
        assert_eq!((figures.len(), figures[0].0.as_str()), (FIGURES, "tasks.running"));
    }

    #[test]
    fn this_machine_has_figures() {
        let own = std::process::id();
        let processes = [Processes::parse(&own.to_string()), Processes::parse("no such process")];
        let before = Reading::take(&processes, 1);
        let figures = Reading::take(&processes, 1_000_000_001).since(&before);
        assert!(value(&figures, "cpu.0.user_share").is_some(), "{figures:?}");
        assert!(value(&figures, "memory.available_bytes") > Some(0.0), "{figures:?}");
        assert!(value(&figures, &format!("process.{own}.resident_bytes")) > Some(0.0), "{figures:?}");
        assert_eq!(value(&figures, "process.no_such_process.count"), Some(0.0));
        assert!(figures.iter().all(|(name, _)| !name.contains([',', '"', '\n'])));
    }
}
