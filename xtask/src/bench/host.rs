//! The machine under the benches: what it is, its processors, the congestion control for the run.
//!
//! Bulk figures depend on the congestion control, so all servers get the same one and the result names it.
//! What is changed is put back, also when the run is interrupted.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::peers::Kind;
use super::static_files;
use crate::workspace;

const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Servers run on this processor, the generator on the other.
pub const SERVER_PROCESSOR: &str = "0";
pub const GENERATOR_PROCESSOR: &str = "1";

/// Lets time pass: memory is given back, and figures change, on a server's own timers.
pub fn rest(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}

/// Fails where server and generator could not be kept apart, and raises the bound on descriptors to what
/// the machine allows; the children inherit it.
pub fn prepare() -> Result<()> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors < 2 {
        bail!("the bench needs two processors, one for the server and one for the generator");
    }
    for program in ["taskset", "setpriv", "chrt"] {
        if workspace::find_program(program).is_none() {
            bail!("{program} is missing; it belongs to the package util-linux");
        }
    }
    let mut bound = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    bound.current = bound.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, bound)
        .context("cannot raise the bound on open files")?;
    Ok(())
}

/// What the benches of downloads are told of how to begin.
#[derive(clap::Args)]
pub struct Conditions {
    /// Congestion control for all servers
    #[arg(long, default_value = "cubic")]
    congestion: String,
    /// Use the release binary that is there
    #[arg(long)]
    pub no_build: bool,
}

impl Conditions {
    /// Builds what is to be measured, and sets the congestion control for as long as what comes back lives. Prints on what
    /// machine that is, and with which.
    pub fn begin(&self) -> Result<CongestionControl> {
        prepare()?;
        if !self.no_build {
            static_files::build()?;
        }
        let congestion = CongestionControl::set(&self.congestion)?;
        println!("{}, {}, congestion control {}", today(), description(), congestion.name());
        Ok(congestion)
    }
}

/// The peers that are installed; says which are not.
pub fn installed(peers: &[Kind]) -> Vec<Kind> {
    let is_there = |kind: &&Kind| {
        let is_there = kind.program().is_some_and(|name| workspace::find_program(name).is_some());
        if !is_there {
            println!("NOT COMPARED with {}, which is not there: cargo xtask tools --for bench", kind.name());
        }
        is_there
    };
    peers.iter().filter(is_there).copied().collect()
}

/// How many files a process may have open.
pub fn most_descriptors() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// A command pinned to a processor, that ends when this process does.
pub fn pinned(processor: &str, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "taskset", "--cpu-list", processor]);
    match workspace::find_program(program) {
        Some(path) => command.arg(path),
        None => command.arg(program),
    };
    command.stdin(Stdio::null());
    command
}

/// A line that says on what machine a figure was measured.
pub fn description() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo");
    let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let processor = processor.map_or("unknown processor", |(_, name)| name).to_owned();
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let system = read("/etc/os-release");
    let system =
        system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown system");
    // What a builder of kernels appends says nothing to others.
    let kernel = kernel.split(|byte: char| !byte.is_ascii_digit() && byte != '.').next().unwrap_or_default();
    format!("{processor} ({count} processors), Linux {kernel}, {}", system.trim_matches('"'))
}

/// Today, as `date` writes it.
pub fn today() -> String {
    let date = workspace::output(Command::new("date").args(["-u", "+%Y-%m-%d"]));
    date.map_or_else(|_| "undated".to_owned(), |date| date.trim().to_owned())
}

/// Sets the congestion control for as long as it lives.
pub struct CongestionControl {
    name: String,
    /// A shell that waits for its input to end, which it does however we end, and then puts back what was.
    restorer: Option<Child>,
}

impl CongestionControl {
    /// Sets it, or keeps what is there where that is not allowed, and says so.
    pub fn set(wanted: &str) -> Result<Self> {
        let before = fs::read_to_string(CONGESTION_CONTROL)?.trim().to_owned();
        if before == wanted {
            return Ok(Self { name: before, restorer: None });
        }
        let script = format!("trap '' INT TERM HUP; read -r line; echo {before} > {CONGESTION_CONTROL}");
        let mut restorer = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot start sh")?;
        if let Err(error) = fs::write(CONGESTION_CONTROL, wanted) {
            eprintln!("bench: {CONGESTION_CONTROL} stays {before}, for all alike: {error}");
            // It would write what is there already, and may not even do that.
            restorer.kill()?;
            restorer.wait()?;
            return Ok(Self { name: before, restorer: None });
        }
        Ok(Self { name: wanted.to_owned(), restorer: Some(restorer) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for CongestionControl {
    fn drop(&mut self) {
        if let Some(mut restorer) = self.restorer.take() {
            drop(restorer.stdin.take());
            if let Err(error) = restorer.wait() {
                eprintln!("bench: {CONGESTION_CONTROL} was not put back: {error}");
            }
        }
    }
}
