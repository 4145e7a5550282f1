//! `cargo xtask bench static`: what a static file costs, beside nginx, lighttpd, Apache and the floor.
//!
//! All servers run at once, each with one worker on processor 0; only one is under load at a time. A round
//! loads each of them in turn, so that what disturbs the machine disturbs all alike. The figure is CPU time
//! of all processes of a server per request; ratios are taken within a round.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::peers::{self, Kind};
use super::report::{Spread, Table, grouped, significant, verdict};
use super::rounds::{self, Course, Sample, Series};
use super::server::{Server, Setup};
use super::{canned, cpu, host, profile};
use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    course: Course,
    /// Workloads: a size, or `1k-close` for a connection per request
    #[arg(long, value_delimiter = ',', default_value = "1k,10k,100k,1M,1k-close")]
    sizes: Vec<String>,
    /// Servers to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,lighttpd,apache")]
    peers: Vec<Kind>,
    /// Connections of the generator
    #[arg(long, default_value_t = 64)]
    connections: u32,
    /// Congestion control for all servers
    #[arg(long, default_value = "cubic")]
    congestion: String,
    /// Compare each server with itself writing an access log, at 1k
    #[arg(long)]
    log: bool,
    /// Leave Tidegate out, to look at the peers alone
    #[arg(long)]
    without_tidegate: bool,
}

/// What is asked for: one file over and over.
#[derive(Debug, Clone)]
struct Workload {
    name: String,
    size: usize,
    /// One request on each connection.
    closes: bool,
}

impl Workload {
    fn parse(text: &str) -> Result<Self> {
        let (number, closes) = match text.strip_suffix("-close") {
            Some(number) => (number, true),
            None => (text, false),
        };
        let (digits, unit) = match number.char_indices().next_back() {
            Some((index, 'k' | 'K')) => (&number[..index], 1024),
            Some((index, 'M' | 'm')) => (&number[..index], 1024 * 1024),
            _ => (number, 1),
        };
        let count: usize = digits.parse().with_context(|| format!("{text} is no size; write 1k, 10k, 1M"))?;
        let size = count.checked_mul(unit).filter(|&size| size <= 1 << 30);
        let size = size.with_context(|| format!("{text} is more than a bench should send"))?;
        Ok(Self { name: text.to_owned(), size, closes })
    }

    fn document(&self) -> String {
        format!("{}.bin", self.size)
    }

    fn title(&self) -> String {
        let connection = if self.closes { "connection closed each time" } else { "keep-alive" };
        format!("{}, {connection}", self.name.trim_end_matches("-close"))
    }

    /// A floor that copies its answer from memory is none where a file can be sent without copying, and that which closes
    /// connections copies.
    fn has_floor(&self) -> bool {
        self.is_small() || !self.closes
    }

    fn floor(&self) -> Kind {
        Kind::Canned { size: self.size, closes: self.closes }
    }

    /// A file that a server sends fastest by reading it.
    fn is_small(&self) -> bool {
        self.size <= canned::COPIED
    }

    /// Most that Tidegate may cost in parts of the peer's cost.
    fn budget(&self, peer: Kind) -> Option<f64> {
        match (self.size, self.closes, peer) {
            (1024, false, Kind::Nginx) => Some(0.68),
            (1024, false, Kind::Lighttpd) => Some(0.82),
            (1024, false, Kind::Canned { .. }) => Some(1.08),
            (1024, true, Kind::Nginx) => Some(0.60),
            (10_240, false, Kind::Nginx) => Some(0.80),
            (102_400, false, Kind::Nginx) => Some(0.85),
            (1_048_576, false, Kind::Nginx) => Some(0.97),
            (_, _, Kind::Canned { .. } | Kind::Tidegate) => None,
            // Never behind the best peer.
            _ => Some(1.0),
        }
    }
}

/// Runs the bench and prints its tables.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut workloads = Vec::new();
    for size in &arguments.sizes {
        workloads.push(Workload::parse(size)?);
    }
    if arguments.log {
        workloads.retain(|workload| workload.size == 1024 && !workload.closes);
        if workloads.is_empty() {
            bail!("--log compares at 1k; name it in --sizes");
        }
    }
    host::prepare()?;
    if workspace::find_program("wrk").is_none() {
        bail!("wrk is missing: cargo xtask tools --for bench");
    }
    if !arguments.course.no_build && !arguments.without_tidegate {
        build()?;
    }
    let congestion = host::CongestionControl::set(&arguments.congestion)?;
    let mut setup = Setup::new(Duration::from_secs(60), 1_000)?;
    for workload in &workloads {
        setup.add_document(&workload.document(), workload.size)?;
    }
    let mut kinds = arguments.peers.clone();
    kinds.retain(|&kind| kind != Kind::Tidegate);
    if !arguments.without_tidegate {
        kinds.insert(0, Kind::Tidegate);
    }
    print_circumstances(arguments, &kinds, congestion.name());
    if arguments.log {
        setup.copies_files = true;
        return compare_logs(arguments, &workloads, &kinds, &setup);
    }
    for workload in &workloads {
        let mut kinds = kinds.clone();
        if workload.has_floor() {
            kinds.push(workload.floor());
        }
        setup.copies_files = workload.is_small();
        let servers = start(&kinds, &[false], workload, &setup)?;
        let samples = measure(arguments, workload, &servers)?;
        println!("{}\n\n{}", workload.title(), table(workload, &servers, &samples)?);
    }
    Ok(())
}

/// What each server costs for one workload, such as `10k`, and the floor where there is one. With `logs` each server
/// comes a second time, with an access log.
pub fn series(course: &Course, size: &str, peers: &[Kind], logs: &[bool]) -> Result<Vec<Series>> {
    let workload = Workload::parse(size)?;
    let _congestion = host::CongestionControl::set("cubic")?;
    let mut setup = Setup::new(Duration::from_secs(60), 1_000)?;
    setup.copies_files = workload.is_small();
    setup.add_document(&workload.document(), workload.size)?;
    let mut kinds = vec![Kind::Tidegate];
    kinds.extend(peers);
    if workload.has_floor() && logs.len() == 1 {
        kinds.push(workload.floor());
    }
    let servers = start(&kinds, logs, &workload, &setup)?;
    let samples = rounds::measure(&servers, course, |server, seconds| load(server, &workload, 64, seconds))?;
    Ok(servers
        .iter()
        .zip(samples)
        .map(|(server, samples)| Series { server: server.name(), samples })
        .collect())
}

/// Builds the release binary.
pub fn build() -> Result<()> {
    workspace::run(profile::build()?.args(["--quiet", "--package", "tidegate"]))
}

/// The program that is measured: this one, or what is built now.
pub fn program(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(program) => Ok(program.to_owned()),
        None => {
            build()?;
            Ok(peers::tidegate())
        }
    }
}

fn print_circumstances(arguments: &Arguments, kinds: &[Kind], congestion: &str) {
    println!("{}, {}", host::today(), host::description());
    let versions: Vec<String> = kinds.iter().map(|kind| kind.version()).collect();
    println!("{}", versions.join("; "));
    let clock = if cpu::is_precise() { "nanoseconds" } else { "clock ticks" };
    println!(
        "{} rounds of {} s, wrk with {} connections, congestion control {congestion}, CPU time in {clock}",
        arguments.course.rounds, arguments.course.seconds, arguments.connections
    );
    println!("CPU time and ratios: median [least–most]; a ratio under 1 is for Tidegate\n");
}

/// Starts the servers and asks each for the document, so that what is measured is known to be an answer.
fn start(kinds: &[Kind], logs: &[bool], workload: &Workload, setup: &Setup) -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    for &kind in kinds {
        for &logs in logs {
            let server = Server::start(kind, logs, setup)?;
            let length = server.fetch(&workload.document())?;
            if length != workload.size {
                bail!("{} sent {length} bytes of {}", server.name(), workload.size);
            }
            servers.push(server);
        }
    }
    Ok(servers)
}

/// Loads each server in turn, round after round; one list of samples for each server.
fn measure(arguments: &Arguments, workload: &Workload, servers: &[Server]) -> Result<Vec<Vec<Sample>>> {
    rounds::measure(servers, &arguments.course, |server, seconds| {
        load(server, workload, arguments.connections, seconds)
    })
}

fn load(server: &Server, workload: &Workload, connections: u32, seconds: u32) -> Result<Sample> {
    let mut command = host::pinned(host::GENERATOR_PROCESSOR, "wrk");
    command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "--timeout", "10s"]);
    if workload.closes {
        command.args(["-H", "Connection: close"]);
    }
    command.arg(format!("http://127.0.0.1:{}/{}", server.port, workload.document()));
    let meter = cpu::Meter::start(server.processes()?)?;
    let output = workspace::output(&mut command)?;
    let used = meter.stop()?;
    let result = Generated::parse(&output).with_context(|| format!("wrk said:\n{output}"))?;
    if result.requests == 0 {
        bail!("{} answered no request; wrk said:\n{output}", server.name());
    }
    Ok(Sample::of(used, result.requests, result.rate, result.errors))
}

/// What `wrk` reports.
#[derive(Debug, PartialEq)]
pub struct Generated {
    pub requests: u64,
    /// For each second.
    pub rate: f64,
    /// Of any kind.
    pub errors: u64,
}

impl Generated {
    pub fn parse(output: &str) -> Option<Self> {
        let mut requests = None;
        let mut rate = None;
        let mut errors = 0;
        for line in output.lines().map(str::trim) {
            if let Some((count, _)) = line.split_once(" requests in ") {
                requests = Some(count.parse().ok()?);
            } else if let Some(figure) = line.strip_prefix("Requests/sec:") {
                rate = Some(figure.trim().parse().ok()?);
            } else if let Some(count) = line.strip_prefix("Non-2xx or 3xx responses:") {
                errors += count.trim().parse::<u64>().ok()?;
            } else if let Some(kinds) = line.strip_prefix("Socket errors:") {
                for kind in kinds.split(',') {
                    errors += kind.split_whitespace().nth(1)?.parse::<u64>().ok()?;
                }
            }
        }
        Some(Self { requests: requests?, rate: rate?, errors })
    }
}

fn table(workload: &Workload, servers: &[Server], samples: &[Vec<Sample>]) -> Result<Table<6>> {
    let mut table =
        Table::new(["server", "CPU µs/request", "requests/s", "tidegate / it", "budget", "errors"]);
    let own = servers.iter().position(|server| server.kind == Kind::Tidegate).map(|index| &samples[index]);
    for (server, samples) in servers.iter().zip(samples) {
        let ratio = match own {
            Some(own) if server.kind != Kind::Tidegate => ratios(own, samples),
            _ => None,
        };
        let budget = ratio.and_then(|ratio| Some(verdict(ratio.median, workload.budget(server.kind)?)));
        table.row(row(server, samples, ratio, budget)?);
    }
    Ok(table)
}

fn row(
    server: &Server,
    samples: &[Sample],
    ratio: Option<Spread>,
    budget: Option<String>,
) -> Result<[String; 6]> {
    let cost = Spread::of(samples.iter().map(|sample| sample.cost)).context("no round was measured")?;
    let rate = Spread::of(samples.iter().map(|sample| sample.rate)).context("no round was measured")?;
    let errors: u64 = samples.iter().map(|sample| sample.errors).sum();
    let errors = if errors == 0 { "0".to_owned() } else { format!("{errors} ERRORS: ROW IS VOID") };
    Ok([
        server.name(),
        cost.to_string(),
        grouped(rate.median),
        ratio.map_or_else(String::new, |ratio| ratio.to_string()),
        budget.unwrap_or_default(),
        errors,
    ])
}

/// What `ours` costs in parts of `theirs`, round by round.
fn ratios(ours: &[Sample], theirs: &[Sample]) -> Option<Spread> {
    Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours.cost / theirs.cost))
}

/// Each server twice, without and with an access log; the budget is Tidegate's.
fn compare_logs(arguments: &Arguments, workloads: &[Workload], kinds: &[Kind], setup: &Setup) -> Result<()> {
    const BUDGET: f64 = 1.05;
    for workload in workloads {
        let servers = start(kinds, &[false, true], workload, setup)?;
        let samples = measure(arguments, workload, &servers)?;
        let mut table =
            Table::new(["server", "CPU µs/request", "requests/s", "log on / off", "budget", "errors"]);
        for (pair, samples) in servers.chunks(2).zip(samples.chunks(2)) {
            table.row(row(&pair[0], &samples[0], None, None)?);
            let ratio = ratios(&samples[1], &samples[0]);
            let is_ours = pair[1].kind == Kind::Tidegate;
            let budget = ratio.filter(|_| is_ours).map(|ratio| verdict(ratio.median, BUDGET));
            table.row(row(&pair[1], &samples[1], ratio, budget)?);
        }
        let mut costs = String::new();
        for (pair, samples) in servers.chunks(2).zip(samples.chunks(2)) {
            let difference = samples[1].iter().zip(&samples[0]).map(|(on, off)| on.cost - off.cost);
            if let Some(difference) = Spread::of(difference) {
                let median = significant(difference.median);
                writeln!(costs, "a line of {}: {median} µs", pair[0].kind.name())?;
            }
        }
        println!("{}, access log\n\n{table}\n{costs}", workload.title());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads() {
        let table = [
            ("1k", Some((1024, false))),
            ("10k", Some((10_240, false))),
            ("1M", Some((1_048_576, false))),
            ("1k-close", Some((1024, true))),
            ("512", Some((512, false))),
            ("", None),
            ("k", None),
            ("large", None),
            ("99999999M", None),
        ];
        for (text, expected) in table {
            let workload = Workload::parse(text).ok();
            assert_eq!(workload.map(|workload| (workload.size, workload.closes)), expected, "{text}");
        }
    }

    #[test]
    fn output_of_wrk() {
        let output = "Running 2s test @ http://127.0.0.1:1/1k.bin\n  1 threads and 64 connections\n  \
            Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency     1.03ms\n  \
            123456 requests in 2.00s, 150.00MB read\n  \
            Socket errors: connect 0, read 3, write 0, timeout 1\n  Non-2xx or 3xx responses: 5\n\
            Requests/sec:  61728.50\nTransfer/sec:     75.00MB\n";
        let expected = Generated { requests: 123_456, rate: 61728.5, errors: 9 };
        assert_eq!(Generated::parse(output), Some(expected));
        assert_eq!(Generated::parse("unable to connect"), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let sample = |cost| Sample { cost, instructions: None, rate: 1.0, errors: 0, doubt: None };
        let ours = [sample(2.0), sample(4.0), sample(3.0)];
        let theirs = [sample(4.0), sample(8.0), sample(6.0)];
        assert_eq!(ratios(&ours, &theirs), Some(Spread { median: 0.5, least: 0.5, most: 0.5 }));
    }
}
