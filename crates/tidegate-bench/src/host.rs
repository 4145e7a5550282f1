//! The machine beside the load: processors, the server's processes, run queue, pressure, memory, TCP faults, on
//! the time axis of the run.
//!
//! Reads `/proc` (`proc(5)`) once an interval from a thread of its own. What a kernel does not offer is left
//! out. The parsers are those of `proc`; the thread is the only thing here that knows a clock.

use crate::clock::{monotonic_ns, ns};
use crate::plan::Plan;
use crate::proc::{
    TICKS_PER_SECOND, Ticks, all_processes, field, pair, process_ticks, processors, stalled, text,
    with_children,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, TcpListener};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tidegate_io::connect::Address;

/// The host during one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Seconds from the start of the run to the end of the interval.
    pub at: f64,
    /// Busy share of each processor, 0 to 1.
    pub processors: Vec<f64>,
    /// Processors that the server's processes used, `None` where they are not known.
    pub server_cpu: Option<f64>,
    /// Their resident bytes.
    pub server_resident: Option<u64>,
    /// Tasks running or waiting for a processor.
    pub run_queue: u64,
    /// Share of the interval in which some task waited for a processor, 0 to 1.
    pub cpu_pressure: Option<f64>,
    /// The same for memory.
    pub memory_pressure: Option<f64>,
    /// The same for disks.
    pub io_pressure: Option<f64>,
    /// Bytes that programs could still have.
    pub memory_available: u64,
    /// TCP segments sent again.
    pub retransmits: u64,
    /// Connections that a full listen queue turned away.
    pub listen_drops: u64,
}

/// The host during a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// One for each interval.
    pub samples: Vec<Sample>,
    /// The processes that were taken for the server.
    pub server: Vec<u32>,
    /// Bytes that they held resident before the run.
    pub server_resident_before: Option<u64>,
}

impl Host {
    /// Busy share of all processors over the run, 0 to 1.
    pub fn busy(&self) -> f64 {
        mean(self.samples.iter().flat_map(|sample| sample.processors.iter().copied()))
    }

    /// Processors that the server used on average.
    pub fn server_cpu(&self) -> Option<f64> {
        let known = || self.samples.iter().filter_map(|sample| sample.server_cpu);
        known().next().map(|_| mean(known()))
    }

    /// The most bytes that the server held.
    pub fn server_resident(&self) -> Option<u64> {
        self.samples.iter().filter_map(|sample| sample.server_resident).max()
    }

    /// The longest run queue.
    pub fn run_queue(&self) -> u64 {
        self.samples.iter().map(|sample| sample.run_queue).max().unwrap_or(0)
    }

    /// All segments sent again.
    pub fn retransmits(&self) -> u64 {
        self.samples.iter().map(|sample| sample.retransmits).sum()
    }

    /// All connections turned away by full listen queues.
    pub fn listen_drops(&self) -> u64 {
        self.samples.iter().map(|sample| sample.listen_drops).sum()
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0u64, 0.0), |(count, sum), value| (count + 1, sum + value));
    if count == 0 { 0.0 } else { sum / count as f64 }
}

/// Watches the host until it is asked for what it saw.
pub struct Watch {
    end: Sender<()>,
    thread: JoinHandle<Host>,
}

impl Watch {
    /// Begins at `start` (monotonic nanoseconds), with a sample each `interval`. `server`: its processes, else
    /// whoever listens at the plan's addresses on this host.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn begin(plan: &Plan, server: &[u32], start: u64, interval: Duration) -> std::io::Result<Watch> {
        let listeners: Vec<u16> = local_ports(plan);
        let named = server.to_vec();
        let (end, ended) = channel();
        let thread = std::thread::Builder::new().name("bench-host".to_owned()).spawn(move || {
            let server =
                if named.is_empty() { processes_listening(&listeners) } else { with_children(&named) };
            let mut host = Host { samples: Vec::new(), server, server_resident_before: None };
            let mut before = Reading::take(&host.server, monotonic_ns());
            host.server_resident_before = before.server_resident;
            let mut next = start.saturating_add(ns(interval));
            loop {
                let wait = Duration::from_nanos(next.saturating_sub(monotonic_ns()));
                let is_over = !matches!(ended.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
                let now = Reading::take(&host.server, monotonic_ns());
                if now.at > before.at && now.at > start {
                    host.samples.push(now.since(&before, start));
                }
                before = now;
                next = next.saturating_add(ns(interval));
                if is_over {
                    return host;
                }
            }
        })?;
        Ok(Watch { end, thread })
    }

    /// What it saw.
    pub fn finish(self) -> Host {
        drop(self.end);
        self.thread.join().unwrap_or_default()
    }
}

// ---------------------------------------------------------------- readings

/// Counters of the kernel at one moment.
#[derive(Debug, Clone, Default)]
struct Reading {
    at: u64,
    processors: Vec<Ticks>,
    run_queue: u64,
    server_ticks: Option<u64>,
    server_resident: Option<u64>,
    /// Microseconds of waiting: processor, memory, disks.
    pressure: [Option<u64>; 3],
    memory_available: u64,
    retransmits: u64,
    listen_drops: u64,
}

impl Reading {
    fn take(server: &[u32], at: u64) -> Reading {
        let stat = text("/proc/stat");
        let (server_ticks, server_resident) = processes(server);
        let netstat = text("/proc/net/netstat");
        Reading {
            at,
            processors: processors(&stat).into_iter().map(|(_, ticks)| ticks).collect(),
            // This thread runs itself.
            run_queue: field(&stat, "procs_running").unwrap_or(0).saturating_sub(1),
            server_ticks,
            server_resident,
            pressure: ["cpu", "memory", "io"].map(|what| stalled(&text(format!("/proc/pressure/{what}")))),
            memory_available: field(&text("/proc/meminfo"), "MemAvailable:").unwrap_or(0) * 1024,
            retransmits: pair(&text("/proc/net/snmp"), "Tcp:", "RetransSegs").unwrap_or(0),
            listen_drops: pair(&netstat, "TcpExt:", "ListenDrops").unwrap_or(0),
        }
    }

    fn since(&self, before: &Reading, start: u64) -> Sample {
        let seconds = self.at.saturating_sub(before.at).max(1) as f64 / 1e9;
        let processors = self.processors.iter().zip(&before.processors).map(|(now, then)| {
            let all = now.all().saturating_sub(then.all());
            if all == 0 { 0.0 } else { now.busy().saturating_sub(then.busy()) as f64 / all as f64 }
        });
        let pressure = |which: usize| {
            let (now, then) = (self.pressure.get(which).copied()??, before.pressure.get(which).copied()??);
            Some((now.saturating_sub(then) as f64 / 1e6 / seconds).min(1.0))
        };
        let ticks = self.server_ticks.zip(before.server_ticks);
        Sample {
            at: self.at.saturating_sub(start) as f64 / 1e9,
            processors: processors.collect(),
            server_cpu: ticks.map(|(now, then)| now.saturating_sub(then) as f64 / TICKS_PER_SECOND / seconds),
            server_resident: self.server_resident,
            run_queue: self.run_queue,
            cpu_pressure: pressure(0),
            memory_pressure: pressure(1),
            io_pressure: pressure(2),
            memory_available: self.memory_available,
            retransmits: self.retransmits.saturating_sub(before.retransmits),
            listen_drops: self.listen_drops.saturating_sub(before.listen_drops),
        }
    }
}

/// Processor seconds that processes have used so far, all threads; `None` where none of them is there.
pub fn cpu_seconds(server: &[u32]) -> Option<f64> {
    processes(server).0.map(|ticks| ticks as f64 / TICKS_PER_SECOND)
}

fn processes(server: &[u32]) -> (Option<u64>, Option<u64>) {
    let mut ticks = None;
    let mut resident = None;
    for process in server {
        let read = |name: &str| text(format!("/proc/{process}/{name}"));
        if let Some(found) = process_ticks(&read("stat")) {
            *ticks.get_or_insert(0) += found;
        }
        if let Some(found) = field(&read("status"), "VmRSS:") {
            *resident.get_or_insert(0) += found * 1024;
        }
    }
    (ticks, resident)
}

/// The most that this process has held resident so far, bytes; 0 where the kernel does not say.
pub fn peak_resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "VmHWM:").unwrap_or(0) * 1024
}

// ---------------------------------------------------------------- who is the server

/// The ports of the plan that are of this host.
fn local_ports(plan: &Plan) -> Vec<u16> {
    let of_host = |ip: IpAddr| ip.is_loopback() || TcpListener::bind((ip, 0)).is_ok();
    plan.mix
        .first_addresses()
        .filter_map(|(address, _)| match address {
            Address::Tcp(address) if of_host(address.ip()) => Some(address.port()),
            _ => None,
        })
        .collect()
}

/// The processes of this host that listen where the plan sends its requests.
pub fn listening_at(plan: &Plan) -> Vec<u32> {
    processes_listening(&local_ports(plan))
}

/// The processes that hold a listening socket at one of these ports, as far as this user may see.
pub fn processes_listening(ports: &[u16]) -> Vec<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let inodes: BTreeSet<String> = tables
        .iter()
        .flat_map(|table| listening(table, ports))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    if inodes.is_empty() {
        return Vec::new();
    }
    let holds = |process: u32| {
        let descriptors = fs::read_dir(format!("/proc/{process}/fd"));
        let mut links =
            descriptors.into_iter().flatten().flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        links.any(|link| link.to_str().is_some_and(|link| inodes.contains(link)))
    };
    all_processes().into_iter().filter(|process| holds(*process)).collect()
}

/// Inodes of listening sockets of `/proc/net/tcp` at these ports. State 0A is LISTEN.
fn listening(table: &str, ports: &[u16]) -> Vec<u64> {
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let is_wanted = *fields.get(3)? == "0A" && ports.contains(&port);
        is_wanted.then(|| fields.get(9)?.parse().ok())?
    };
    table.lines().skip(1).filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets() {
        let tcp = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 7777 1\n   \
                   1: 0100007F:1F90 0100007F:D000 01 0:0 0:0 0 0 0 8888 1\n";
        assert_eq!(listening(tcp, &[8_080]), [7_777]);
        assert_eq!(listening(tcp, &[80]), [0u64; 0]);
    }

    #[test]
    fn the_difference_of_two_readings() {
        let before = Reading {
            processors: vec![Ticks { user: 10, idle: 90, ..Ticks::default() }],
            server_ticks: Some(100),
            ..Reading::default()
        };
        let now = Reading {
            at: 2_000_000_000,
            processors: vec![Ticks { user: 60, idle: 140, ..Ticks::default() }],
            server_ticks: Some(300),
            retransmits: 3,
            ..Reading::default()
        };
        let sample = now.since(&before, 0);
        assert_eq!((sample.at, sample.processors.clone(), sample.server_cpu), (2.0, vec![0.5], Some(1.0)));
        assert_eq!((sample.retransmits, sample.cpu_pressure), (3, None));
    }

    #[test]
    fn a_listener_of_this_process_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(processes_listening(&[port]).contains(&std::process::id()));
    }
}
