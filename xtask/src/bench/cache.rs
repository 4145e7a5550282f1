//! `cargo xtask bench cache`: what a stored answer costs, and what a crowd before one miss gets, beside nginx,
//! Varnish, Apache and Traffic Server.
//!
//! Costs are measured as by the gateway bench: all servers run at once with one worker each on one processor, one is
//! under load at a time, rounds go in turn, and the figure is CPU time of the server per request. A crowd asks each
//! cache in turn for something that it has never seen: what counts is how often the origin was asked.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cache_peers::{self, Peer, Running};
use super::crowd::{self, Question};
use super::origin::Origin;
use super::report::{Table, significant, verdict};
use super::rounds::{self, Course, Sample};
use super::static_files::{Generated, build};
use super::{cpu, host};
use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    course: Course,
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_value = "hit-1k,hit-64k,crowd,stream")]
    workloads: Vec<Workload>,
    /// Caches to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,varnish,apache,ats")]
    peers: Vec<Peer>,
    /// Connections of the generator, for hits
    #[arg(long, default_value_t = 64)]
    connections: u32,
    /// Clients that ask for one thing that is not stored
    #[arg(long, default_value_t = 1_000)]
    clients: usize,
    /// Bytes that are streamed
    #[arg(long, default_value_t = 1 << 30)]
    stream: u64,
    /// Congestion control for all servers
    #[arg(long, default_value = "cubic")]
    congestion: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Workload {
    #[value(name = "hit-1k")]
    HitSmall,
    #[value(name = "hit-64k")]
    HitLarge,
    /// Many clients, one miss, an origin that takes 200 ms.
    Crowd,
    /// A hundred readers of what comes at 10 MB/s, with and without a first client that takes 10 KB/s.
    Stream,
}

/// What the origin takes for an answer.
const DELAY: Duration = Duration::from_millis(200);
/// Readers of what is streamed.
const READERS: usize = 100;
/// Bytes a second of the origin that streams.
const ORIGIN_RATE: u64 = 10_000_000;
/// Bytes a second of a client that reads slowly.
const SLOW: u64 = 10_000;
/// Most that a client may have its first byte after the first client, at 99 %.
const BEHIND: Duration = Duration::from_millis(5);
/// Least that each reader may get of what the origin sends.
const SHARE: f64 = 0.95;
/// Most memory that a stream may take, bytes.
const STREAM_MEMORY: u64 = 64 << 20;

impl Workload {
    /// Bytes of the answer to what is asked for often.
    fn hit_size(self) -> Option<usize> {
        match self {
            Workload::HitSmall => Some(1 << 10),
            Workload::HitLarge => Some(64 << 10),
            Workload::Crowd | Workload::Stream => None,
        }
    }
}

/// Most that a stored answer may cost in parts of the peer's cost.
fn budget(peer: Peer) -> Option<f64> {
    match peer {
        Peer::Tidegate => None,
        Peer::TidegateFile => Some(1.15),
        Peer::Nginx => Some(0.75),
        Peer::Varnish => Some(0.60),
        Peer::Apache | Peer::TrafficServer => Some(1.0),
    }
}

/// Runs the bench and prints its tables.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    for program in ["wrk"].into_iter().chain(arguments.peers.iter().filter_map(|peer| peer.program())) {
        if workspace::find_program(program).is_none() {
            bail!("{program} is missing: cargo xtask tools --for bench");
        }
    }
    if !arguments.course.no_build {
        build()?;
    }
    let congestion = host::CongestionControl::set(&arguments.congestion)?;
    println!("{}, {}, congestion control {}", host::today(), host::description(), congestion.name());
    let folder = std::env::temp_dir().join(format!("tidegate-bench-cache-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let origin = Origin::start()?;
    let done = arguments.workloads.iter().try_for_each(|workload| match workload.hit_size() {
        Some(size) => hits(arguments, size, &folder, &origin),
        None if *workload == Workload::Crowd => crowds(arguments, &folder, &origin),
        None => streams(arguments, &folder, &origin),
    });
    fs::remove_dir_all(&folder)?;
    done
}

fn hits(arguments: &Arguments, size: usize, folder: &Path, origin: &Origin) -> Result<()> {
    let documents = folder.join("documents");
    fs::create_dir_all(&documents)?;
    for size in [16, size] {
        fs::write(documents.join(size.to_string()), vec![b'x'; size])?;
    }
    let peers = [Peer::Tidegate, Peer::TidegateFile].into_iter().chain(arguments.peers.iter().copied());
    let servers: Vec<Running> =
        peers.map(|peer| cache_peers::start(peer, folder, &documents, origin.port)).collect::<Result<_>>()?;
    let path = format!("/{size}");
    // Some keep in memory what was asked for twice.
    for server in servers.iter().chain(&servers) {
        server.fetch(&path, size)?;
    }
    let before = origin.requests();
    let samples = rounds::measure(&servers, &arguments.course, |server, seconds| {
        load(server, &path, arguments.connections, seconds)
    })?;
    let fetches = origin.requests() - before;
    let rows: Vec<_> = servers
        .iter()
        .zip(samples)
        .map(|(server, samples)| (server.peer.name(), budget(server.peer), samples))
        .collect();
    println!(
        "\nA stored answer of {} KiB: {} rounds of {} s, wrk with {} connections; median [least–most], \
         a ratio under 1 is for Tidegate; the origin was asked {fetches} times\n\n{}",
        size >> 10,
        arguments.course.rounds,
        arguments.course.seconds,
        arguments.connections,
        rounds::table("CPU µs/request", &rows)?
    );
    Ok(())
}

fn load(server: &Running, path: &str, connections: u32, seconds: u32) -> Result<Sample> {
    let meter = cpu::Meter::start(cpu::process_tree(server.process.0.id())?)?;
    let mut command = host::pinned(host::GENERATOR_PROCESSOR, "wrk");
    command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "--timeout", "1s"]);
    command.arg(format!("http://127.0.0.1:{}{path}", server.port));
    let output = workspace::output(&mut command)?;
    let used = meter.stop()?;
    let result = Generated::parse(&output).with_context(|| format!("wrk said:\n{output}"))?;
    if result.requests == 0 {
        bail!("{} answered no request; wrk said:\n{output}", server.peer.name());
    }
    Ok(Sample::of(used, result.requests, result.rate, result.errors))
}

fn crowds(arguments: &Arguments, folder: &Path, origin: &Origin) -> Result<()> {
    let mut table = Table::new([
        "server",
        "fetches",
        "p50 behind the first, ms",
        "p99, ms",
        "last, ms",
        "budget",
        "errors",
    ]);
    for peer in [Peer::Tidegate].into_iter().chain(arguments.peers.iter().copied()) {
        let server = cache_peers::start(peer, folder, folder, origin.port)?;
        let (mut behind, mut fetches, mut errors) = (Vec::new(), Vec::new(), 0);
        for round in 0..arguments.course.rounds {
            let before = origin.requests();
            let answers = crowd::ask(&Question {
                port: server.port,
                path: format!("/1024/{round}?delay={}", DELAY.as_millis()),
                size: 1024,
                clients: arguments.clients,
                leader_rate: None,
                patience: Duration::from_secs(30),
            })?;
            fetches.push(origin.requests() - before);
            errors += answers.errors;
            behind.extend(
                [50.0, 99.0, 100.0]
                    .map(|percent| answers.behind_the_first(percent))
                    .into_iter()
                    .collect::<Option<Vec<_>>>(),
            );
        }
        let median = |place: usize| {
            let mut times: Vec<f64> = behind.iter().map(|times| times[place].as_secs_f64() * 1e3).collect();
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let budget = (peer == Peer::Tidegate).then(|| verdict(median(1), BEHIND.as_secs_f64() * 1e3));
        table.row([
            peer.name().to_owned(),
            fetches.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
            significant(median(0)),
            significant(median(1)),
            significant(median(2)),
            budget.unwrap_or_default(),
            errors.to_string(),
        ]);
    }
    println!(
        "\n{} clients ask at once for 1 KiB that takes {} ms: {} rounds, the median of their times\n\n{table}",
        arguments.clients,
        DELAY.as_millis(),
        arguments.course.rounds,
    );
    Ok(())
}

fn streams(arguments: &Arguments, folder: &Path, origin: &Origin) -> Result<()> {
    let mut table = Table::new([
        "server",
        "first client",
        "fetches",
        "slowest reader / origin",
        "budget",
        "memory, MiB",
        "budget",
        "errors",
    ]);
    let usual = Duration::from_secs_f64(arguments.stream as f64 / ORIGIN_RATE as f64);
    for peer in [Peer::Tidegate].into_iter().chain(arguments.peers.iter().copied()) {
        for leader_rate in [None, Some(SLOW)] {
            let server = cache_peers::start(peer, folder, folder, origin.port)?;
            let (before, memory) = (origin.requests(), Memory::watch(&server)?);
            let answers = crowd::ask(&Question {
                port: server.port,
                path: format!("/{}/{}?rate={ORIGIN_RATE}", arguments.stream, leader_rate.unwrap_or_default()),
                size: arguments.stream,
                clients: READERS,
                leader_rate,
                patience: usual * 3,
            })?;
            let memory = memory.most_above_the_first();
            let share = answers.slowest_rate(arguments.stream).map(|rate| rate / ORIGIN_RATE as f64);
            let share = share.filter(|_| answers.errors == 0);
            // What others keep of our budgets is not for us to say.
            let verdict = |budget: String, keeps: bool| match (peer, keeps) {
                (Peer::Tidegate, true) => format!("{budget} ok"),
                (Peer::Tidegate, false) => format!("{budget} MISSED"),
                _ => String::new(),
            };
            table.row([
                peer.name().to_owned(),
                leader_rate.map_or("as all".to_owned(), |rate| format!("{} KB/s", rate / 1000)),
                (origin.requests() - before).to_string(),
                share.map_or("none".to_owned(), significant),
                verdict(format!("≥ {SHARE}"), share >= Some(SHARE)),
                (memory >> 20).to_string(),
                verdict(format!("≤ {}", STREAM_MEMORY >> 20), memory <= STREAM_MEMORY),
                answers.errors.to_string(),
            ]);
        }
    }
    println!(
        "\n{} MiB come from the origin at {} MB/s, and {READERS} clients read them; memory is what the server has \
         beyond what it had before, files in the kernel's memory apart\n\n{table}",
        arguments.stream >> 20,
        ORIGIN_RATE / 1_000_000,
    );
    Ok(())
}

/// The resident memory of a server, looked at ten times a second.
struct Memory {
    first: u64,
    most: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    watching: thread::JoinHandle<()>,
}

impl Memory {
    fn watch(server: &Running) -> Result<Memory> {
        let processes = cpu::process_tree(server.process.0.id())?;
        let first = cpu::resident_bytes(&processes)?;
        let (most, is_over) = (Arc::new(AtomicU64::new(first)), Arc::new(AtomicBool::new(false)));
        let (seen, ends) = (Arc::clone(&most), Arc::clone(&is_over));
        let watching = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                // A process that has ended holds nothing.
                if let Ok(bytes) = cpu::resident_bytes(&processes) {
                    seen.fetch_max(bytes, Ordering::Relaxed);
                }
                thread::park_timeout(Duration::from_millis(100));
            }
        });
        Ok(Memory { first, most, is_over, watching })
    }

    fn most_above_the_first(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        // It ends by itself, and a panic of it would have been told.
        let _ = self.watching.join();
        self.most.load(Ordering::Relaxed).saturating_sub(self.first)
    }
}
