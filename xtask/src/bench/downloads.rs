//! `cargo xtask bench downloads`: many downloads at once, each reading at a limited rate.
//!
//! First 10,000 at 100 KiB/s beside nginx: whether they get their rate, what a download holds resident, what
//! a gigabyte costs, what the kernel holds for them. Then 30,000 of a 1 MiB file on Tidegate, in two server
//! processes where one may not hold so many descriptors, every byte verified; and while they run 3,000 new
//! small requests a second on top.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::generator::{self, Load, Running, words};
use super::peers::Kind;
use super::report::{Spread, Table, grouped};
use super::server::{Server, Setup};
use super::{cpu, host};

#[derive(clap::Args)]
pub struct Arguments {
    /// Downloads at once, beside other servers
    #[arg(long, default_value_t = 10_000)]
    downloads: u32,
    /// KiB per second of one of them
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Seconds
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Rounds beside other servers; the median of them is shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Downloads at once, on Tidegate alone
    #[arg(long, default_value_t = 30_000)]
    most: u32,
    /// KiB per second of one of those
    #[arg(long, default_value_t = 20)]
    most_limit: u32,
    /// Servers to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx")]
    peers: Vec<Kind>,
    #[command(flatten)]
    conditions: host::Conditions,
}

const MIB: usize = 1 << 20;
const SMALL: &str = "1k.bin";
const SMALL_RATE: u32 = 3_000;

/// Runs the three parts and prints their tables.
pub fn run(arguments: &Arguments) -> Result<()> {
    let _congestion = arguments.conditions.begin()?;
    println!("nginx with sndbuf=64k\n");
    side_by_side(arguments)?;
    all_complete(arguments)
}

fn side_by_side(arguments: &Arguments) -> Result<()> {
    let Arguments { downloads, limit, seconds, rounds, .. } = arguments;
    println!(
        "{} downloads at {limit} KiB/s for {seconds} s, {rounds} rounds\n",
        grouped((*downloads).into())
    );
    let mut table = Table::new([
        "server",
        "rate, of what was asked",
        "resident bytes/download",
        "CPU s/GB",
        "kernel TCP MiB, most",
        "failed",
    ]);
    let crowd = Crowd { downloads: *downloads, limit: *limit, seconds: *seconds };
    for Side { server, samples } in sides(&host::installed(&arguments.peers), crowd, *rounds)? {
        let median = |figure: fn(&Sample) -> f64| Spread::of(samples.iter().map(figure)).context("no rounds");
        let failed: Vec<&str> = samples.iter().map(|sample| sample.failed.as_str()).collect();
        table.row([
            server,
            format!("{:.1} %", 100.0 * median(|sample| sample.delivered)?.median),
            grouped(median(|sample| sample.resident)?.median),
            median(|sample| sample.cost)?.to_string(),
            grouped(median(|sample| sample.kernel / MIB as f64)?.median),
            failed.join(" ").trim().to_owned(),
        ]);
    }
    println!("{table}");
    Ok(())
}

/// So many downloads at so many KiB/s each, for so long.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    pub downloads: u32,
    pub limit: u32,
    pub seconds: u32,
}

/// What became of the same downloads on one server, round by round.
#[derive(Debug)]
pub struct Side {
    pub server: String,
    pub samples: Vec<Sample>,
}

/// What became of them in one round.
#[derive(Debug)]
pub struct Sample {
    /// Of what was asked for.
    pub delivered: f64,
    /// Bytes that the server held resident for each download.
    pub resident: f64,
    /// CPU seconds for a gigabyte.
    pub cost: f64,
    /// Most that the kernel held for TCP, bytes.
    pub kernel: f64,
    /// What failed, in words; empty when nothing did.
    pub failed: String,
}

/// The same downloads on Tidegate and on each peer, one server at a time, round after round in alternating order.
pub fn sides(peers: &[Kind], crowd: Crowd, rounds: u32) -> Result<Vec<Side>> {
    let mut setup = Setup::new(Duration::from_secs(120), crowd.downloads + 500)?;
    setup.send_buffer = Some(64 << 10);
    setup.add_document("large.bin", 64 * MIB)?;
    let kinds: Vec<Kind> = std::iter::once(Kind::Tidegate).chain(peers.iter().copied()).collect();
    let side = |kind: &Kind| Side { server: kind.name().to_owned(), samples: Vec::new() };
    let mut sides: Vec<Side> = kinds.iter().map(side).collect();
    for round in 0..rounds {
        let mut turn: Vec<_> = kinds.iter().zip(&mut sides).collect();
        // Whoever comes behind the same other each time would have its warm caches, or its heat.
        if round % 2 == 1 {
            turn.reverse();
        }
        for (&kind, side) in turn {
            side.samples.push(sample(&Server::start(kind, false, &setup)?, crowd)?);
        }
    }
    Ok(sides)
}

fn sample(server: &Server, crowd: Crowd) -> Result<Sample> {
    let Crowd { downloads, limit, seconds } = crowd;
    server.fetch("large.bin")?;
    let before = cpu::resident_bytes(&server.processes()?)?;
    let used = server.time_used()?;
    let load = generator::start(&words(&format!(
        "downloads -c {downloads} --limit {limit}KiB -t {seconds}s --verify none {} http://127.0.0.1:{}/large.bin",
        sources(downloads),
        server.port
    )))?;
    let mut watched = watch(load, server)?;
    let used = server.time_used()?.saturating_sub(used);
    let bytes = watched.load.report["bytes"].as_f64().context("a report without bytes")?;
    // What is under way at the end has not failed.
    watched.load.errors.remove("unanswered");
    let wanted = f64::from(downloads) * f64::from(limit) * 1024.0;
    Ok(Sample {
        delivered: bytes / watched.load.seconds.max(0.001) / wanted,
        resident: watched.resident.saturating_sub(before) as f64 / f64::from(downloads),
        cost: used.as_secs_f64() / (bytes / 1e9),
        kernel: watched.kernel as f64,
        failed: watched.load.errors_text(),
    })
}

fn all_complete(arguments: &Arguments) -> Result<()> {
    let Arguments { most, most_limit, .. } = arguments;
    let mut setup = Setup::new(Duration::from_secs(120), most + 2_000)?;
    // Some descriptors are for other things than connections.
    let each = u32::try_from(host::most_descriptors().saturating_sub(2_000)).unwrap_or(u32::MAX);
    setup.processes = (most + 2_000).div_ceil(each.max(1));
    setup.add_document("1M.bin", MIB)?;
    setup.add_document(SMALL, 1024)?;
    let server = Server::start(Kind::Tidegate, false, &setup)?;
    let original = setup.documents.join("1M.bin");
    println!(
        "{} downloads of 1 MiB at {most_limit} KiB/s, {} server process(es); {SMALL_RATE} new small requests/s on top\n",
        grouped((*most).into()),
        setup.processes
    );
    let downloads = generator::start(&words(&format!(
        "downloads -c {most} --limit {most_limit}KiB --verify {} {} http://127.0.0.1:{}/1M.bin",
        original.display(),
        sources(*most),
        server.port
    )))?;
    // They begin over some seconds; the small requests come when all are there.
    std::thread::park_timeout(Duration::from_secs(u64::from(most / 5_000) + 2));
    let small = generator::run(&words(&format!(
        "hit --no-keepalive --rate {SMALL_RATE} --arrivals poisson -c 2000 -t 10s http://127.0.0.1:{}/{SMALL}",
        server.port
    )))?;
    let downloads = watch(downloads, &server)?;
    let mut table = Table::new(["what", "begun", "complete and verified", "failed", "p50 ms", "p99 ms"]);
    let mut row = |what: &str, load: &Load| {
        let milliseconds = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
        table.row([
            what.to_owned(),
            grouped(load.requests as f64),
            grouped(load.requests.saturating_sub(load.failed()) as f64),
            load.errors_text(),
            milliseconds(load.latency.median),
            milliseconds(load.latency.p99),
        ]);
    };
    row("downloads", &downloads.load);
    row("small requests", &small);
    println!(
        "{table}\nkernel TCP memory: at most {} MiB; the generator of the downloads: {} MiB",
        grouped(downloads.kernel as f64 / MIB as f64),
        grouped(downloads.load.memory()? as f64 / MIB as f64)
    );
    Ok(())
}

/// Addresses enough for the ports of so many connections to one port.
pub fn sources(connections: u32) -> String {
    (2..=2 + connections / 20_000).map(|last| format!("--source 127.0.0.{last} ")).collect()
}

struct Watched {
    load: Load,
    /// Most that the server held resident, bytes.
    resident: u64,
    /// Most that the kernel held for TCP, bytes.
    kernel: u64,
}

/// Looks at memory while the load runs.
fn watch(mut load: Running, server: &Server) -> Result<Watched> {
    let (mut resident, mut kernel) = (0, 0);
    while load.is_running()? {
        resident = resident.max(cpu::resident_bytes(&server.processes()?)?);
        kernel = kernel.max(kernel_tcp_bytes()?);
        host::rest(Duration::from_millis(500));
    }
    Ok(Watched { load: load.finish()?, resident, kernel })
}

/// What the kernel holds for TCP sockets: `mem` of `/proc/net/sockstat`, in pages.
fn kernel_tcp_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/net/sockstat")?;
    let pages = tcp_pages(&text).context("/proc/net/sockstat tells no memory of TCP")?;
    Ok(pages * rustix::param::page_size() as u64)
}

fn tcp_pages(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP: "))?;
    let mut words = line.split_whitespace();
    words.find(|word| *word == "mem")?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_tcp() {
        let text = "sockets: used 300\nTCP: inuse 7 orphan 0 tw 2 alloc 9 mem 12\nUDP: inuse 1 mem 0\n";
        assert_eq!(tcp_pages(text), Some(12));
        assert_eq!(tcp_pages("TCP: inuse 7"), None);
    }

    #[test]
    fn source_addresses() {
        assert_eq!(sources(10_000), "--source 127.0.0.2 ");
        assert_eq!(sources(30_000), "--source 127.0.0.2 --source 127.0.0.3 ");
    }
}
