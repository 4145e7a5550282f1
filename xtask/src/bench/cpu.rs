//! CPU time and memory of a server with all its processes, from `/proc` (proc(5)).
//!
//! Used by the benches. CPU time comes from `schedstat` of every thread, in nanoseconds; where the kernel
//! keeps none, from `stat`, in clock ticks. A thread that ends takes its time with it, so this suits servers
//! whose threads stay.

use std::collections::HashMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A process and everything below it.
pub fn process_tree(root: u32) -> Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end while the list is read.
        if let Some(parent) = fields_of_stat(process).and_then(|fields| fields.get(1)?.parse::<u32>().ok()) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut tree = vec![root];
    let mut index = 0;
    while index < tree.len() {
        tree.extend(children.get(&tree[index]).into_iter().flatten());
        index += 1;
    }
    Ok(tree)
}

/// CPU time that all threads of the processes have used so far.
pub fn time_used(processes: &[u32]) -> Result<Duration> {
    let mut total = Duration::ZERO;
    for &process in processes {
        let time = precise_time(process).or_else(|| ticked_time(process));
        total += time.with_context(|| format!("process {process} of the server is gone"))?;
    }
    Ok(total)
}

/// What processes use from now on: CPU time, and instructions where the processor counts them for us.
pub struct Meter {
    processes: Vec<u32>,
    before: Duration,
    counter: Option<Counter>,
}

/// What a [`Meter`] has seen.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    pub time: Duration,
    pub instructions: Option<f64>,
}

impl Meter {
    pub fn start(processes: Vec<u32>) -> Result<Self> {
        let counter = Counter::start(&processes);
        let before = time_used(&processes)?;
        Ok(Self { processes, before, counter })
    }

    pub fn stop(self) -> Result<Used> {
        let time = time_used(&self.processes)?.saturating_sub(self.before);
        Ok(Used { time, instructions: self.counter.and_then(Counter::stop) })
    }
}

/// `perf stat` beside processes. Most virtual machines have nothing that it could read.
struct Counter(Option<Child>);

impl Counter {
    fn start(processes: &[u32]) -> Option<Self> {
        static COUNTS: OnceLock<bool> = OnceLock::new();
        let counts = COUNTS.get_or_init(|| {
            let tried = Self::command().arg("true").output();
            tried.is_ok_and(|output| counted(&String::from_utf8_lossy(&output.stderr)).is_some())
        });
        if !counts {
            return None;
        }
        let list = processes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let mut command = Self::command();
        command.args(["-p", &list]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().ok().map(|child| Self(Some(child)))
    }

    fn command() -> Command {
        let mut command = Command::new("perf");
        command.args(["stat", "-x", ",", "-e", "instructions"]);
        command
    }

    fn stop(mut self) -> Option<f64> {
        let process = rustix::process::Pid::from_child(self.0.as_ref()?);
        rustix::process::kill_process(process, rustix::process::Signal::INT).ok()?;
        let output = self.0.take()?.wait_with_output().ok()?;
        counted(&String::from_utf8_lossy(&output.stderr))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // Nobody wants its count: what was measured has failed.
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The count in what `perf stat -x ,` says: `123456,,instructions,...`.
fn counted(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.contains(",instructions"))?;
    line.split(',').next()?.parse().ok()
}

/// How long a processor has done nothing since the system started, for whomever: the way to count a server whose
/// processes come and go. What the host takes away counts as busy.
pub fn idle_time(processor: &str) -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    idle_ticks(&text, processor)
        .map(|ticks| Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
        .with_context(|| format!("/proc/stat has no processor {processor}"))
}

/// Idle, and waiting for disks.
fn idle_ticks(stat: &str, processor: &str) -> Option<u64> {
    let line =
        stat.lines().find_map(|line| line.strip_prefix("cpu")?.strip_prefix(processor)?.strip_prefix(' '))?;
    let mut figures = line.split_whitespace().skip(3);
    Some(figures.next()?.parse::<u64>().ok()? + figures.next()?.parse::<u64>().ok()?)
}

/// CPU time of all children that this process has waited for.
pub fn time_of_children() -> Result<Duration> {
    let fields = fields_of_stat(std::process::id()).context("/proc/self/stat cannot be read")?;
    let ticks = fields.get(13).zip(fields.get(14)).context("/proc/self/stat is too short")?;
    let ticks = ticks.0.parse::<u64>()? + ticks.1.parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// Memory that the processes hold resident, in bytes: what is backed by no file, shared pages shared out.
pub fn resident_bytes(processes: &[u32]) -> Result<u64> {
    let mut total = 0;
    for process in processes {
        let path = format!("/proc/{process}/smaps_rollup");
        let rollup = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let Some(kibibytes) = proportional_kibibytes(&rollup) else {
            bail!("{path} has no Pss_Anon and Pss_Shmem")
        };
        total += kibibytes * 1024;
    }
    Ok(total)
}

/// Whether the kernel counts CPU time in nanoseconds.
pub fn is_precise() -> bool {
    precise_time(std::process::id()).is_some()
}

fn precise_time(process: u32) -> Option<Duration> {
    let mut total = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{process}/task")).ok()? {
        // A thread may end while the list is read; the process as a whole is what must be there.
        let Ok(text) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        total += Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?);
    }
    (total > Duration::ZERO).then_some(total)
}

fn ticked_time(process: u32) -> Option<Duration> {
    let fields = fields_of_stat(process)?;
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// The fields of `/proc/PID/stat` from the third on: the second, the name, may hold spaces and parentheses.
fn fields_of_stat(process: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

fn proportional_kibibytes(rollup: &str) -> Option<u64> {
    let figure = |key: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(figure("Pss_Anon:")? + figure("Pss_Shmem:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process() {
        let own = std::process::id();
        assert!(process_tree(own).unwrap().contains(&own));
        assert!(resident_bytes(&[own]).unwrap() > 0);
        time_used(&[own]).unwrap();
    }

    #[test]
    fn instructions_that_were_counted() {
        assert_eq!(counted("123456,,instructions,1000,100.00,,\n"), Some(123_456.0));
        assert_eq!(counted("<not supported>,,instructions,0,100.00,,\n"), None);
    }

    #[test]
    fn idle_processors() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 40 5 6 7 8 0 0\ncpu10 1 2 3 50 6 6 7 8 0 0\n";
        assert_eq!(idle_ticks(stat, "0"), Some(45));
        assert_eq!(idle_ticks(stat, "1"), None);
        assert_eq!(idle_ticks(stat, "10"), Some(56));
        idle_time("0").unwrap();
    }

    #[test]
    fn rollup() {
        let rollup =
            "a-b ---p\nRss:  1800 kB\nPss:   387 kB\nPss_Anon: 100 kB\nPss_File: 284 kB\nPss_Shmem: 3 kB\n";
        assert_eq!(proportional_kibibytes(rollup), Some(103));
        assert_eq!(proportional_kibibytes("Pss: 3 kB\n"), None);
    }
}
