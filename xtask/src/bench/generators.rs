//! `cargo xtask bench generator`: what the load generator costs beside others, whether it keeps its schedule, how
//! many connections it holds, and whether it tells the truth.
//!
//! The server runs on processor 0 and the generator on processor 1. The figure is CPU time of the generator per
//! answer, all generators in turn in each round, and with them a loop that only sends and receives: the floor.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::downloads::sources;
use super::generator::{self, words};
use super::peers::Kind;
use super::report::{Spread, Table, grouped, significant, verdict};
use super::rounds::{self, Course, Series};
use super::scripted::{self, Script};
use super::server::{self, Server, Setup};
use super::static_files::{self, Generated};
use super::{cpu, h2, host};
use crate::workspace;

#[derive(Clone, clap::Args)]
pub struct Arguments {
    /// Rounds; the median of them is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds, for each generator and round
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Connections
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cost,open,many,truth")]
    parts: Vec<PartName>,
    /// The server under load
    #[arg(long, value_enum, default_value = "tidegate")]
    server: Kind,
    /// Use the release binary that is there
    #[arg(long)]
    no_build: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PartName {
    /// CPU time per request in a closed loop, beside other generators
    Cost,
    /// An open loop at half of the rate of the closed one
    Open,
    /// 30,000 connections
    Many,
    /// What is reported of a server of known delays
    Truth,
}

const DOCUMENT: &str = "1k.bin";

/// Of the generator's memory, with 30,000 connections.
const MEMORY_BUDGET: u64 = 512 << 20;

const MANY: u32 = 30_000;

/// Runs the parts and prints their tables.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    if !arguments.no_build {
        static_files::build()?;
    }
    println!("{}, {}", host::today(), host::description());
    println!("server on processor {}: {}\n", host::SERVER_PROCESSOR, arguments.server.version());
    for part in &arguments.parts {
        match part {
            PartName::Cost => cost(arguments)?,
            PartName::Open => open(arguments)?,
            PartName::Many => many(arguments)?,
            PartName::Truth => truth()?,
        }
    }
    Ok(())
}

// ---------------------------------------------------------------- cost

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Tidegate,
    Wrk,
    H2load,
    Oha,
    Hey,
    Floor,
}

impl Peer {
    const ALL: [Peer; 6] = [Peer::Tidegate, Peer::Wrk, Peer::H2load, Peer::Oha, Peer::Hey, Peer::Floor];

    fn name(self) -> &'static str {
        match self {
            Peer::Tidegate => "tidegate bench hit",
            Peer::Wrk => "wrk",
            Peer::H2load => "h2load --h1",
            Peer::Oha => "oha",
            Peer::Hey => "hey",
            Peer::Floor => "floor: send, recv, epoll",
        }
    }

    /// Where it is, and how to get it where it is not.
    fn program(self) -> Result<PathBuf, &'static str> {
        let find = |name| workspace::find_program(name);
        match self {
            Peer::Tidegate => Ok(generator::tidegate()),
            Peer::Floor => std::env::current_exe().map_err(|_| "this program has no path"),
            Peer::Wrk => find("wrk").ok_or("cargo xtask tools --for bench"),
            Peer::H2load => find("h2load").ok_or("cargo xtask tools --for bench"),
            Peer::Hey => find("hey").ok_or("cargo xtask tools --for bench"),
            Peer::Oha => {
                let own = workspace::target_directory().join("peers/bin/oha");
                let installed = own.is_file().then_some(own);
                installed.or_else(|| find("oha")).ok_or("cargo install oha --locked --root target/peers")
            }
        }
    }

    fn arguments(self, arguments: &Arguments, port: u16) -> Vec<String> {
        let Arguments { connections, seconds, .. } = arguments;
        let url = format!("http://127.0.0.1:{port}/{DOCUMENT}");
        words(&match self {
            Peer::Tidegate => {
                format!("bench hit -q --json --no-host --threads 1 -c {connections} -t {seconds}s {url}")
            }
            Peer::Wrk => format!("-t1 -c{connections} -d{seconds}s {url}"),
            Peer::H2load => format!("--h1 -t1 -c{connections} -D{seconds} {url}"),
            Peer::Oha => format!(
                "--no-tui --worker-threads 1 -c {connections} -z {seconds}s --output-format json {url}"
            ),
            Peer::Hey => format!("-cpus 1 -c {connections} -z {seconds}s {url}"),
            Peer::Floor => format!("bare {port} {DOCUMENT} {connections} {seconds}"),
        })
    }

    /// Answers that it counted.
    fn answers(self, output: &str) -> Option<u64> {
        let json = || serde_json::from_str::<serde_json::Value>(output).ok();
        match self {
            Peer::Tidegate => json()?["answered"].as_u64(),
            Peer::Wrk => Some(Generated::parse(output)?.requests),
            Peer::H2load => h2::answers(output),
            Peer::Oha => json()?["statusCodeDistribution"]["200"].as_u64(),
            Peer::Hey => {
                let line = output.lines().find_map(|line| line.trim().strip_prefix("[200]"))?;
                line.split_whitespace().next()?.parse().ok()
            }
            Peer::Floor => output.split_whitespace().next()?.parse().ok(),
        }
    }

    /// The most that ours may cost in parts of its cost.
    fn budget(self) -> Option<f64> {
        match self {
            Peer::Wrk => Some(1.0),
            Peer::H2load | Peer::Oha | Peer::Hey => Some(0.5),
            Peer::Tidegate | Peer::Floor => None,
        }
    }
}

/// One generator at work for a while.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// CPU microseconds of the generator per answer, starting and ending included.
    cost: f64,
    rate: f64,
}

fn cost(arguments: &Arguments) -> Result<()> {
    let (_setup, server) = start(arguments.server, arguments.connections + 200, 1)?;
    let mut peers = Vec::new();
    for peer in Peer::ALL {
        match peer.program() {
            Ok(program) => peers.push((peer, program)),
            Err(remedy) => println!("{} is absent: {remedy}", peer.name()),
        }
    }
    let mut samples: Vec<Vec<Sample>> = peers.iter().map(|_| Vec::new()).collect();
    for _ in 0..arguments.rounds {
        for ((peer, program), samples) in peers.iter().zip(&mut samples) {
            samples.push(load(arguments, *peer, program, server.port)?);
        }
    }
    println!(
        "closed loop of {} connections, 1 KiB, {} rounds of {} s in turn\n",
        arguments.connections, arguments.rounds, arguments.seconds
    );
    let costs = |samples: &[Sample]| samples.iter().map(|sample| sample.cost).collect::<Vec<_>>();
    let ours = samples.first().context("no generator was measured")?;
    let floor = samples.last().context("no generator was measured")?;
    let ratio = |above: &[Sample], below: &[Sample]| {
        Spread::of(above.iter().zip(below).map(|(above, below)| above.cost / below.cost))
    };
    let mut table =
        Table::new(["generator", "CPU µs/request", "of the floor", "requests/s", "tidegate / it", "budget"]);
    for ((peer, _), samples) in peers.iter().zip(&samples) {
        let against = ratio(ours, samples).filter(|_| *peer != Peer::Tidegate);
        let above_floor = ratio(samples, floor).filter(|_| *peer != Peer::Floor);
        let rate = Spread::of(samples.iter().map(|sample| sample.rate)).context("no round")?;
        table.row([
            peer.name().to_owned(),
            Spread::of(costs(samples)).context("no round")?.to_string(),
            above_floor.map_or_else(String::new, |ratio| significant(ratio.median)),
            grouped(rate.median),
            against.map_or_else(String::new, |ratio| ratio.to_string()),
            against
                .zip(peer.budget())
                .map_or_else(String::new, |(ratio, budget)| verdict(ratio.median, budget)),
        ]);
    }
    println!("{table}");
    Ok(())
}

/// What this generator and wrk cost, and the requests per second that they reach, in a closed loop of 64 connections.
pub fn series(course: &Course) -> Result<Vec<Series>> {
    let arguments = Arguments {
        rounds: course.rounds,
        seconds: course.seconds,
        connections: 64,
        parts: Vec::new(),
        server: Kind::Tidegate,
        no_build: true,
    };
    let (_setup, server) = start(arguments.server, arguments.connections + 200, 1)?;
    let peers = [Peer::Tidegate, Peer::Wrk];
    let load = |peer: &Peer, seconds| {
        let remedy = |remedy| anyhow::anyhow!("{} is missing: {remedy}", peer.name());
        let program = peer.program().map_err(remedy)?;
        let arguments = Arguments { seconds, ..arguments.clone() };
        let Sample { cost, rate } = load(&arguments, *peer, &program, server.port)?;
        Ok(rounds::Sample { cost, instructions: None, rate, errors: 0, doubt: None })
    };
    let samples = rounds::measure(&peers, course, load)?;
    let series = peers.iter().zip(samples);
    Ok(series.map(|(peer, samples)| Series { server: peer.name().to_owned(), samples }).collect())
}

fn load(arguments: &Arguments, peer: Peer, program: &std::path::Path, port: u16) -> Result<Sample> {
    let mut command = host::pinned(host::GENERATOR_PROCESSOR, &program.to_string_lossy());
    command.args(peer.arguments(arguments, port));
    let before = cpu::time_of_children()?;
    let output = command.output().with_context(|| format!("cannot start {}", peer.name()))?;
    let used = cpu::time_of_children()?.saturating_sub(before);
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers = peer.answers(&output).filter(|answers| *answers > 0);
    let answers = answers.with_context(|| format!("{} said:\n{output}", workspace::shown(&command)))? as f64;
    Ok(Sample { cost: used.as_secs_f64() * 1e6 / answers, rate: answers / f64::from(arguments.seconds) })
}

/// A server with the small document.
fn start(kind: Kind, connections: u32, processes: u32) -> Result<(Setup, Server)> {
    let mut setup = Setup::new(Duration::from_secs(600), connections)?;
    setup.processes = processes;
    setup.add_document(DOCUMENT, 1024)?;
    let server = Server::start(kind, false, &setup)?;
    server.fetch(DOCUMENT)?;
    Ok((setup, server))
}

// ---------------------------------------------------------------- open loop

fn open(arguments: &Arguments) -> Result<()> {
    let (_setup, server) = start(arguments.server, arguments.connections + 200, 1)?;
    let Arguments { connections, seconds, .. } = arguments;
    let url = format!("http://127.0.0.1:{}/{DOCUMENT}", server.port);
    let base = format!("hit --no-host --threads 1 -c {connections} -t {seconds}s");
    let closed = generator::run(&words(&format!("{base} {url}")))?;
    println!(
        "closed loop of {connections} connections: {}/s. Schedules of a tenth, a quarter and half of that, one \
         thread, {seconds} s\n",
        grouped(closed.rate)
    );
    let mut table = Table::new([
        "arrivals",
        "asked/s",
        "reached/s",
        "late p50 µs",
        "late p99 µs",
        "response p50 µs",
        "p99 µs",
        "CPU",
        "verdict",
    ]);
    for arrivals in ["constant", "poisson"] {
        for share in [0.1, 0.25, 0.5] {
            let rate = (closed.rate * share).round();
            let load = generator::run(&words(&format!("{base} --rate {rate} --arrivals {arrivals} {url}")))?;
            let microseconds = |kind: &str, rank: &str| {
                let seconds = load.report[kind][rank].as_f64().unwrap_or_default();
                significant(seconds * 1e6)
            };
            let busiest = load.report["generator"]["busiest"].as_f64().unwrap_or_default();
            table.row([
                arrivals.to_owned(),
                grouped(rate),
                grouped(load.rate),
                microseconds("lateness", "p50"),
                microseconds("lateness", "p99"),
                microseconds("latency", "p50"),
                microseconds("latency", "p99"),
                format!("{:.0} %", busiest * 100.0),
                load.report["verdict"].as_str().unwrap_or_default().to_owned(),
            ]);
        }
    }
    println!("{table}");
    Ok(())
}

// ---------------------------------------------------------------- many connections

fn many(arguments: &Arguments) -> Result<()> {
    // Some descriptors are for other things than connections.
    let each = u32::try_from(host::most_descriptors().saturating_sub(2_000)).unwrap_or(u32::MAX);
    let (_setup, server) = start(arguments.server, MANY + 1_000, (MANY + 1_000).div_ceil(each.max(1)))?;
    let sources = sources(MANY);
    let mut table = Table::new(["connections", "processes", "failed", "MiB of the generator", "budget"]);
    let url = format!("http://127.0.0.1:{}/{DOCUMENT}", server.port);
    let load = generator::run(&words(&format!("idle -t 20s -c {MANY} {sources} {url}")))?;
    let open = load.report["most_open"].as_u64().unwrap_or_default();
    let memory = load.memory()?;
    let keeps = memory <= MEMORY_BUDGET && open == u64::from(MANY);
    table.row([
        grouped(open as f64),
        load.report["generator"]["processes"].to_string(),
        if load.failed() == 0 { "0".to_owned() } else { load.errors_text() },
        grouped(memory as f64 / f64::from(1 << 20)),
        format!("≤ {} {}", MEMORY_BUDGET >> 20, if keeps { "ok" } else { "MISSED" }),
    ]);
    println!(
        "{} connections at once; `bench downloads` has as many that read\n\n{table}",
        grouped(MANY.into())
    );
    Ok(())
}

// ---------------------------------------------------------------- truth

/// Seconds of a run: whole periods of the stall.
const TRUTH_SECONDS: u32 = 20;

const TRUTH_RATE: u32 = 1_000;

/// How far a percentile may lie from the computed one.
const TOLERANCE: f64 = 0.01;

fn truth() -> Result<()> {
    println!(
        "a server of known delays: 50 ms; exponential, mean 100 ms; 50 ms with a stall of 1 s every 10 s. Open loop, \
         {TRUTH_RATE} requests/s, {TRUTH_SECONDS} s. It also tells how long its answers took, which the machine may \
         lengthen\n"
    );
    let mut table = Table::new([
        "delays",
        "percentile",
        "computed ms",
        "taken ms",
        "reported ms",
        "reported / taken",
        "within 1 %",
    ]);
    let mut hidden = String::new();
    for script in Script::ALL {
        let port = server::free_port()?;
        let own = std::env::current_exe()?;
        let mut command = host::pinned(host::SERVER_PROCESSOR, &own.to_string_lossy());
        command.args(["scripted", &port.to_string(), script.name()]);
        let server = Scripted::start(&mut command, port)?;
        let url = format!("http://127.0.0.1:{port}/");
        let run =
            |load: &str| generator::run(&words(&format!("hit --no-host -t {TRUTH_SECONDS}s {load} {url}")));
        let open = run(&format!("-c 2000 --rate {TRUTH_RATE}"))?;
        let taken = scripted::taken(port)?;
        for percent in ["50", "90", "95", "99", "99.9"] {
            // Where the stall begins and ends percentiles jump from one kind of answer to the other.
            if script == Script::Stalling && percent == "90" {
                continue;
            }
            let computed = script.percentile(percent.parse()?).as_secs_f64();
            let reported = open.report["latency"][format!("p{percent}")].as_f64().unwrap_or_default();
            let taken = scripted::percentile(&taken, percent.parse()?).as_secs_f64();
            let off = reported / taken - 1.0;
            table.row([
                script.name().to_owned(),
                percent.to_owned(),
                format!("{:.2}", computed * 1e3),
                format!("{:.2}", taken * 1e3),
                format!("{:.2}", reported * 1e3),
                format!("{:+.2} %", off * 100.0),
                if off.abs() <= TOLERANCE { "ok" } else { "MISSED" }.to_owned(),
            ]);
        }
        if script == Script::Stalling {
            let closed = run("-c 4")?;
            let seconds = |load: &generator::Load| load.latency.p99.as_secs_f64() * 1e3;
            hidden = format!(
                "the same stall: p99 {:.0} ms on a schedule, {:.0} ms in a closed loop of 4, whose report says:\n  {}\n",
                seconds(&open),
                seconds(&closed),
                closed.report["notes"][0].as_str().unwrap_or("NOTHING: MISSED")
            );
        }
        drop(server);
    }
    println!("{table}\n{hidden}");
    Ok(())
}

/// The server of known delays, ended with its owner.
struct Scripted(std::process::Child);

impl Scripted {
    fn start(command: &mut Command, port: u16) -> Result<Self> {
        let child = command.spawn().context("cannot start the server of known delays")?;
        let mut scripted = Self(child);
        let is_there = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        if let Err(error) = server::wait_until_listening(&mut scripted.0, is_there) {
            bail!("the server of known delays: {error}");
        }
        Ok(scripted)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        server::end(&mut self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_each_generator_counted() {
        let table = [
            (Peer::Tidegate, r#"{"answered": 7, "requests": 8}"#),
            (Peer::Oha, r#"{"statusCodeDistribution": {"200": 7}}"#),
            (Peer::Hey, "Status code distribution:\n  [200]\t7 responses\n"),
            (Peer::Floor, "7 answers\n"),
            (Peer::Wrk, "  7 requests in 2.00s, 1MB read\nRequests/sec:  3.5\n"),
        ];
        for (peer, output) in table {
            assert_eq!(peer.answers(output), Some(7), "{peer:?}");
            assert_eq!(peer.answers("no"), None, "{peer:?}");
        }
    }
}
