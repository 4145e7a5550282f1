//! A folder of files in the place of the machine.

use super::*;
use proptest::prelude::*;
use std::fs;

/// A folder of one test's own.
struct Root(PathBuf);

impl Root {
    fn new(name: &str, files: &[(&str, &str)]) -> Root {
        let path = std::env::temp_dir().join(format!("tidegate-host-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        let root = Root(path);
        files.iter().for_each(|(path, text)| root.write(path, text.as_bytes()));
        root
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn read(&self) -> Host {
        Host::read(&self.0, &Asked { processors: 8, servers: vec![10], pools: vec![20] })
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `stat` of a process: name, major faults, ticks.
fn stat(name: &str, faults: u64, ticks: u64) -> String {
    format!("10 ({name}) S 1 1 1 0 -1 4194560 100 0 {faults} 0 {ticks} 0 0 0 20 0 9 0 100 1 1 0\n")
}

const MACHINE: &[(&str, &str)] = &[
    ("proc/stat", "cpu  100 0 50 800 20 0 10 20 0 0\ncpu0 1 2 3\n"),
    (
        "proc/self/limits",
        "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n",
    ),
    ("proc/sys/net/core/somaxconn", "4096\n"),
    ("proc/sys/net/ipv4/tcp_mem", "100\t200\t300\n"),
    ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
    (
        "proc/net/netstat",
        "TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPAbortOnMemory\nTcpExt: 1 7 8 9\nIpExt: A\nIpExt: 1\n",
    ),
    ("proc/net/snmp", "Tcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 5000 25\n"),
    ("proc/net/sockstat", "sockets: used 3\nTCP: inuse 27 orphan 0 tw 12 alloc 31 mem 150\n"),
    (
        "proc/net/dev",
        "Inter-| Receive\n face |bytes\n    lo: 9 0 0 0 0 0 0 0 9 0\n  eth0: 1 0 0 0 0 0 0 0 777 0\n  tap0: 1 0 0 0 0 0 0 0 5 0\n",
    ),
    ("sys/class/net/eth0/speed", "1000\n"),
    ("sys/class/net/eth0/device/vendor", "x"),
    ("sys/class/net/tap0/speed", "10\n"),
    ("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 64 kB\n"),
    ("proc/vmstat", "pgfault 1\npswpin 42\n"),
    ("proc/pressure/cpu", "some avg10=12.50 avg60=1.00 avg300=0 total=1\n"),
    ("proc/pressure/memory", "some avg10=3 avg60=0\nfull avg10=2.00 avg60=0\n"),
    ("proc/pressure/io", "some avg10=9 avg60=0\nfull avg10=4.00 avg60=0\n"),
];

#[test]
fn what_the_kernel_tells_is_read() {
    let root = Root::new("machine", MACHINE);
    root.write("proc/10/stat", stat("a) (b", 3, 200).as_bytes());
    root.write("proc/10/statm", b"100 50 20 1 0 1 0\n");
    root.write("proc/10/task/10/stat", stat("tidegate", 0, 100).as_bytes());
    root.write("proc/10/task/11/stat", stat("tidegate-0", 0, 100).as_bytes());
    root.write("proc/10/task/12/stat", stat("tidegate-log", 0, 100).as_bytes());
    let host = root.read();
    assert_eq!(host.times, ProcessorTimes { all: 1000, idle: 820, stolen: 20 });
    assert_eq!((host.processors, host.descriptors, host.somaxconn), (Some(8.0), Some(1024), Some(4096)));
    assert_eq!(host.tcp, TcpCounts { listen_overflows: 7, memory_aborts: 9, sent: 5000, resent: 25 });
    assert_eq!((host.tcp_pages, host.time_wait, host.ports), (Some((150, 300)), 12, Some((32_768, 60_999))));
    assert_eq!((host.available, host.swapped_in), (Some(65_536), 42));
    assert_eq!(host.pressure, Pressure { processor: 12.5, memory: 2.0, disk: 4.0 });
    assert_eq!(host.links, [NetworkLink { name: "eth0".into(), sent: 777, speed: 125_000_000 }]);
    let page = rustix::param::page_size() as u64;
    let millis = |ticks: u64| ticks * 1000 / rustix::param::clock_ticks_per_second();
    assert_eq!(
        host.processes,
        [ProcessUse { pid: 10, busy_millis: millis(200), private: 30 * page, major_faults: 3 }]
    );
    assert_eq!(host.workers, [ThreadUse { pid: 10, name: "tidegate-0".into(), busy_millis: millis(100) }]);
}

#[test]
fn the_tightest_cgroup_of_version_2_holds() {
    let root = Root::new(
        "unified",
        &[
            ("proc/self/cgroup", "0::/a.slice/b.service\n"),
            ("sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a.slice/cpu.max", "150000 100000\n"),
            (
                "sys/fs/cgroup/a.slice/cpu.stat",
                "usage_usec 1\nnr_periods 100\nnr_throttled 7\nthrottled_usec 5000\n",
            ),
            ("sys/fs/cgroup/a.slice/b.service/memory.max", "1048576\n"),
            ("sys/fs/cgroup/a.slice/b.service/memory.current", "1000\n"),
            ("sys/fs/cgroup/a.slice/b.service/memory.peak", "2000\n"),
            ("sys/fs/cgroup/a.slice/b.service/memory.events", "low 0\nhigh 3\nmax 4\noom 1\noom_kill 2\n"),
            ("sys/fs/cgroup/a.slice/b.service/memory.pressure", "full avg10=6.00 avg60=0\n"),
            ("sys/fs/cgroup/a.slice/memory.max", "max\n"),
        ],
    );
    let host = root.read();
    let cgroup = &host.cgroup;
    assert_eq!((cgroup.quota, host.processors), (Some(1.5), Some(1.5)));
    assert_eq!((cgroup.periods, cgroup.throttled, cgroup.throttled_micros), (100, 7, 5000));
    assert_eq!((cgroup.memory_most, cgroup.memory, cgroup.memory_peak), (Some(1 << 20), 1000, 2000));
    assert_eq!((cgroup.memory_events, cgroup.memory_kills, host.pressure.memory), (7, 2, 6.0));
}

#[test]
fn cgroups_of_version_1_are_read_as_well() {
    let root = Root::new(
        "version-1",
        &[
            ("proc/self/cgroup", "9:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/\n"),
            ("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n"),
            (
                "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.stat",
                "nr_periods 10\nnr_throttled 5\nthrottled_time 9000000\n",
            ),
            // A container sees its own cgroup as the top.
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1024\n"),
            ("sys/fs/cgroup/memory/memory.max_usage_in_bytes", "2048\n"),
            ("sys/fs/cgroup/memory/memory.failcnt", "6\n"),
            ("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
        ],
    );
    let cgroup = root.read().cgroup;
    assert_eq!(
        (cgroup.quota, cgroup.periods, cgroup.throttled, cgroup.throttled_micros),
        (Some(0.5), 10, 5, 9000)
    );
    assert_eq!((cgroup.memory_most, cgroup.memory, cgroup.memory_peak), (Some(4096), 1024, 2048));
    assert_eq!((cgroup.memory_events, cgroup.memory_kills, cgroup.memory_pressure), (6, 1, None));
    // No bound is written as one that is larger than any memory, and no quota as -1.
    let root = Root::new(
        "version-1-open",
        &[
            ("proc/self/cgroup", "9:memory:/\n4:cpu:/\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ],
    );
    assert_eq!(root.read().cgroup, Cgroup::default());
}

#[test]
fn nothing_there_is_nothing_known() {
    let root = Root::new("nothing", &[]);
    let host = root.read();
    assert_eq!(host, Host { processors: Some(8.0), ..Host::default() });
    // This machine, whatever it is.
    let own = Host::read(
        Path::new("/"),
        &Asked { processors: 1, servers: vec![std::process::id()], pools: Vec::new() },
    );
    assert!(own.times.all > 0 && own.processes.len() == 1, "{own:?}");
}

#[test]
fn a_cgroup_that_names_a_way_out_is_not_followed() {
    let root = Root::new(
        "way-out",
        &[
            ("proc/self/cgroup", "0::/../../outside\n4:cpu,../..:/x\n"),
            ("outside/memory.max", "1\n"),
            ("sys/outside/memory.max", "1\n"),
            ("sys/fs/cgroup/memory.max", "4096\n"),
            ("sys/fs/cgroup/memory.current", "1\n"),
        ],
    );
    assert_eq!(root.read().cgroup.memory_most, Some(4096));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Files cut short, and with bytes in them that mean nothing.
    #[test]
    fn garbage_reads_as_something(which in 0..MACHINE.len(), cut in 0usize..200, bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let root = Root::new("garbage", MACHINE);
        let (path, text) = MACHINE[which];
        let mut text = text.as_bytes()[..cut.min(text.len())].to_vec();
        text.extend(&bytes);
        root.write(path, &text);
        root.write("proc/self/cgroup", &bytes);
        root.write("proc/10/stat", &text);
        root.write("proc/10/task/11/stat", &bytes);
        root.write("sys/fs/cgroup/cpu.max", &bytes);
        let host = root.read();
        prop_assert!(host.processors.is_some_and(|processors| processors > 0.0));
        prop_assert!((0.0..=100.0).contains(&host.pressure.processor));
    }
}
