//! `cargo xtask bench qos`: bandwidth and limits, beside nginx and lighttpd.
//!
//! Bandwidth: how far each second lies from what it should hold, how equally clients share it, and what a gigabyte costs,
//! for one to a thousand connections, where all share one bandwidth and where each client has its own. Limits: how many
//! requests are let in, what one that is refused costs, what a check costs by itself, and that a flood of ten million
//! keys takes no more memory and frees nobody.

use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::generator::{self, words};
use super::peers::Kind;
use super::readers::{self, Protocol, Received};
use super::report::{Table, grouped, significant};
use super::server::{Server, Setup};
use super::{host, instructions, tls_peers};
use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    /// Connections at once
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000")]
    connections: Vec<u32>,
    /// KiB per second that all share
    #[arg(long, default_value_t = 40 << 10)]
    shared: u32,
    /// KiB per second of a client that has its own
    #[arg(long, default_value_t = 100)]
    each: u32,
    /// Seconds that are counted, of each run
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Keys of the table that is flooded
    #[arg(long, default_value_t = 10_000_000)]
    keys: u32,
    /// Servers to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,lighttpd")]
    peers: Vec<Kind>,
    #[command(flatten)]
    conditions: host::Conditions,
}

const DOCUMENT: &str = "large.bin";
/// Sparse: nobody reads so much of it.
const SIZE: u64 = 1 << 31;
const WARMUP: Duration = Duration::from_secs(2);
/// How far a second may be off, percent, and how unequal clients may be.
const MOST_OFF: f64 = 2.0;
const LEAST_JAIN: f64 = 0.98;
/// Nanoseconds that the check of a limit may take.
const MOST_CHECK: f64 = 60.0;
/// Requests per second that are let in, and that come.
const LIMIT: u32 = 100;
const ASKED: u32 = 2_000;

/// Runs all parts and prints their tables; an error where Tidegate missed what it promises.
pub fn run(arguments: &Arguments) -> Result<()> {
    let _congestion = arguments.conditions.begin()?;
    let peers = host::installed(&arguments.peers);
    println!("{} s counted of each run\n", arguments.seconds);
    let mut missed = Vec::new();
    bandwidths(arguments, &peers, &mut missed)?;
    crowded(arguments, &peers, &mut missed)?;
    over_tls(arguments, &mut missed)?;
    limits(arguments, &peers)?;
    checks(arguments, &mut missed)?;
    if !missed.is_empty() {
        bail!("missed: {}", missed.join("; "));
    }
    Ok(())
}

/// What is sent by a bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shares {
    /// All have one.
    All,
    /// Each client has its own.
    Each,
}

/// A server that sends no faster than this.
fn limited(kind: Kind, shares: Shares, kib: u32, connections: u32) -> Result<(Setup, Server)> {
    let mut setup = Setup::new(Duration::from_secs(60), connections + 100)?;
    let document = std::fs::File::create(setup.documents.join(DOCUMENT))?;
    document.set_len(SIZE)?;
    setup.listener = "{ h2c }".to_owned();
    setup.site_directives = match shares {
        Shares::All => format!("bandwidth \"{kib}KiB/s\""),
        Shares::Each => format!("bandwidth \"{kib}KiB/s\" by=\"{{client}}\""),
    };
    // nginx has no rate that all share: each of its connections gets its part.
    let part = if shares == Shares::All {
        u64::from(kib) * 1024 / u64::from(connections)
    } else {
        u64::from(kib) * 1024
    };
    setup.nginx[1] = format!("limit_rate {part};");
    let scope = if shares == Shares::All { "server" } else { "connection" };
    setup.lighttpd = format!("{scope}.kbytes-per-second = {kib}\n");
    let server = Server::start(kind, false, &setup)?;
    Ok((setup, server))
}

/// Addresses of clients: this host has all that begin with 127.
fn clients(count: u32) -> Vec<Ipv4Addr> {
    (0..count).map(|n| Ipv4Addr::from_bits(0x7F00_0002 + n)).collect()
}

/// One run of readers.
struct Run {
    /// Percent.
    worst: f64,
    jain: f64,
    /// CPU seconds of a gigabyte.
    cost: f64,
}

fn measure(
    server: &Server,
    sources: &[Ipv4Addr],
    protocol: Protocol,
    wanted: f64,
    seconds: u32,
) -> Result<Run> {
    let used = server.time_used()?;
    let received = readers::read(server.port, DOCUMENT, sources, protocol, WARMUP, seconds as usize)?;
    let used = server.time_used()?.saturating_sub(used);
    // The time of the warming up is in it as well.
    let all = received.total() as f64 * (1.0 + WARMUP.as_secs_f64() / f64::from(seconds));
    Ok(Run {
        worst: received.worst_second(wanted),
        jain: received.jain(sources),
        cost: used.as_secs_f64() / (all / 1e9),
    })
}

/// What a table says of a run. One that failed is void: the others are measured all the same.
fn judged(run: &Result<Run>, kind: Kind, about: &str, missed: &mut Vec<String>) -> [String; 3] {
    match run {
        Ok(run) => {
            if kind == Kind::Tidegate && (run.worst > MOST_OFF || run.jain < LEAST_JAIN) {
                missed.push(format!("{about}: {:.1} % off, Jain {:.3}", run.worst, run.jain));
            }
            [format!("{:.2}", run.worst), format!("{:.4}", run.jain), significant(run.cost)]
        }
        Err(error) => {
            missed.push(format!("{about}, {}: VOID, {error:#}", kind.name()));
            ["VOID", "", ""].map(str::to_owned)
        }
    }
}

fn shown(protocol: Protocol) -> String {
    format!("{protocol:?}").to_uppercase().replace("HTTP", "HTTP/")
}

fn bandwidths(arguments: &Arguments, peers: &[Kind], missed: &mut Vec<String>) -> Result<()> {
    for shares in [Shares::All, Shares::Each] {
        let kib = if shares == Shares::All { arguments.shared } else { arguments.each };
        match shares {
            Shares::All => println!("{kib} KiB/s for all, each connection a client\n"),
            Shares::Each => println!("{kib} KiB/s for each client, each connection a client\n"),
        }
        let mut table =
            Table::new(["server", "protocol", "connections", "worst second, % off", "Jain", "CPU s/GB"]);
        for &connections in &arguments.connections {
            let wanted =
                f64::from(kib) * 1024.0 * if shares == Shares::All { 1.0 } else { f64::from(connections) };
            let sides = [(Kind::Tidegate, Protocol::Http1), (Kind::Tidegate, Protocol::Http2)];
            for (kind, protocol) in sides.into_iter().chain(peers.iter().map(|kind| (*kind, Protocol::Http1)))
            {
                let (_setup, server) = limited(kind, shares, kib, connections)?;
                let run = measure(&server, &clients(connections), protocol, wanted, arguments.seconds);
                let about = format!("{connections} connections over {protocol:?}");
                let [worst, jain, cost] = judged(&run, kind, &about, missed);
                let connections = grouped(connections.into());
                table.row([server.name(), shown(protocol), connections, worst, jain, cost]);
            }
        }
        println!("{table}");
    }
    Ok(())
}

/// Ten clients, of which one has ninety connections and the others one each.
fn crowded(arguments: &Arguments, peers: &[Kind], missed: &mut Vec<String>) -> Result<()> {
    println!(
        "{} KiB/s for all; of ten clients one has 90 connections, the others one each\n",
        arguments.shared
    );
    let ten = clients(10);
    let sources: Vec<Ipv4Addr> = std::iter::repeat_n(ten[0], 89).chain(ten).collect();
    let mut table = Table::new(["server", "protocol", "worst second, % off", "Jain between clients"]);
    let sides = [(Kind::Tidegate, Protocol::Http1), (Kind::Tidegate, Protocol::Http2)];
    // nginx knows no bandwidth that connections share.
    let peers = peers.iter().filter(|kind| **kind == Kind::Lighttpd).map(|kind| (*kind, Protocol::Http1));
    for (kind, protocol) in sides.into_iter().chain(peers) {
        let (_setup, server) = limited(kind, Shares::All, arguments.shared, 100)?;
        let wanted = f64::from(arguments.shared) * 1024.0;
        let run = measure(&server, &sources, protocol, wanted, arguments.seconds);
        let [worst, jain, _] = judged(&run, kind, &format!("one with 90 over {protocol:?}"), missed);
        table.row([server.name(), shown(protocol), worst, jain]);
    }
    println!("{table}");
    Ok(())
}

/// Two clients over TLS, of which one has ten connections.
fn over_tls(arguments: &Arguments, missed: &mut Vec<String>) -> Result<()> {
    let mut setup = Setup::new(Duration::from_secs(60), 200)?;
    tls_peers::certify(&setup.folder)?;
    std::fs::File::create(setup.documents.join(DOCUMENT))?.set_len(SIZE)?;
    let folder = setup.folder.display();
    setup.listener = format!("{{ tls certificate=\"{folder}/site.pem\" key=\"{folder}/site.key\" }}");
    setup.site_directives = format!("bandwidth \"{}KiB/s\"", arguments.shared);
    let server = Server::start(Kind::Tidegate, false, &setup)?;
    let warmup = WARMUP.as_secs() as usize;
    let seconds = warmup + arguments.seconds as usize;
    let start = |connections: u32, source: &str| {
        generator::start(&words(&format!(
            "downloads -c {connections} --limit none -t {seconds}s --grace 0s --verify none --insecure --no-host \
             --source {source} https://127.0.0.1:{}/{DOCUMENT}",
            server.port
        )))
    };
    let sources = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];
    let loads = [start(10, "127.0.0.2")?, start(1, "127.0.0.3")?];
    let mut of_clients = Vec::new();
    for load in loads {
        of_clients.push(seconds_of(&load.finish()?.report, seconds)?);
    }
    let counted = warmup..seconds;
    let received = Received {
        seconds: counted.map(|second| of_clients.iter().map(|bytes| bytes[second]).collect()).collect(),
    };
    let off = received.worst_second(f64::from(arguments.shared) * 1024.0);
    let jain = received.jain(&sources);
    println!(
        "Over TLS, two clients, of which one has ten connections: worst second {off:.2} % off, Jain {jain:.4}\n"
    );
    if off > MOST_OFF || jain < LEAST_JAIN {
        missed.push(format!("over TLS: {off:.1} % off, Jain {jain:.3}"));
    }
    Ok(())
}

/// Bytes of each second that a report of downloads tells of.
fn seconds_of(report: &Value, seconds: usize) -> Result<Vec<u64>> {
    let intervals = report["intervals"].as_array().context("a report without intervals")?;
    let mut all = vec![0; seconds];
    for interval in intervals {
        let at = interval["at"].as_f64().context("an interval without its time")?;
        // They begin at tenths of seconds, which are not exact in binary.
        if let Some(bytes) = all.get_mut((at + 0.01) as usize) {
            *bytes += interval["bytes"].as_u64().unwrap_or(0);
        }
    }
    Ok(all)
}

/// How many requests are let in, and what one costs.
fn limits(arguments: &Arguments, peers: &[Kind]) -> Result<()> {
    println!("{LIMIT} requests/s by client, {LIMIT} more at once; {ASKED} a second ask\n");
    let mut table = Table::new(["server", "let in", "should be", "CPU µs/request"]);
    let peers = peers.iter().filter(|kind| **kind == Kind::Nginx).copied(); // lighttpd has no such limit
    for kind in std::iter::once(Kind::Tidegate).chain(peers) {
        let mut setup = Setup::new(Duration::from_secs(60), 200)?;
        setup.add_document("1k.bin", 1024)?;
        setup.site_directives = format!("limit \"l\" requests=\"{LIMIT}/s\" burst={LIMIT}");
        setup.nginx = [
            format!("limit_req_zone $binary_remote_addr zone=l:10m rate={LIMIT}r/s; limit_req_status 429;\n"),
            format!("limit_req zone=l burst={LIMIT} nodelay;"),
        ];
        let server = Server::start(kind, false, &setup)?;
        let used = server.time_used()?;
        let seconds = arguments.seconds * 2;
        let load = generator::run(&words(&format!(
            "hit -c 32 -t {seconds}s --rate {ASKED} http://127.0.0.1:{}/1k.bin",
            server.port
        )))?;
        let used = server.time_used()?.saturating_sub(used);
        table.row([
            server.name(),
            grouped(load.requests.saturating_sub(load.failed()) as f64),
            grouped(f64::from(LIMIT) * (load.seconds + 1.0)),
            significant(used.as_secs_f64() * 1e6 / load.requests.max(1) as f64),
        ]);
    }
    println!("{table}");
    Ok(())
}

/// What a check costs by itself, and a flood of keys.
fn checks(arguments: &Arguments, missed: &mut Vec<String>) -> Result<()> {
    let builds = !arguments.conditions.no_build;
    let program = instructions::program(instructions::LIMIT, builds)?.to_string_lossy().into_owned();
    let told = |words: [&str; 2]| -> Result<Value> {
        let mut command = host::pinned(host::GENERATOR_PROCESSOR, &program);
        let output = command.args(words).stdout(Stdio::piped()).output().context("cannot start the check")?;
        serde_json::from_slice(&output.stdout).context("the check has said nothing")
    };
    let number =
        |told: &Value, name: &str| told[name].as_f64().with_context(|| format!("no {name} was told"));
    let check = number(&told(["time", "20000000"])?, "ns")?;
    let flood = told(["keys", &arguments.keys.to_string()])?;
    let (before, after) = (number(&flood, "before")?, number(&flood, "after")?);
    let (each, freed) = (number(&flood, "ns")?, number(&flood, "freed")?);
    let counted = match workspace::find_program("valgrind") {
        Some(_) => format!(", {} instructions", grouped(instructions::of(instructions::LIMIT, builds)?)),
        None => String::new(),
    };
    println!(
        "A check among 100,000 clients: {check:.1} ns{counted}\n\
         {} keys, and three times as many more that find no place: {} MiB before, {} MiB after, {each:.0} ns a check; \
         the one that was blocked was let in {freed} times",
        grouped(arguments.keys.into()),
        grouped(before / f64::from(1 << 20)),
        grouped(after / f64::from(1 << 20)),
    );
    if check > MOST_CHECK {
        missed.push(format!("a check takes {check:.1} ns, and may take {MOST_CHECK}"));
    }
    if freed > 0.0 || after > before + 1e6 {
        missed.push("a flood of keys frees who is blocked, or takes memory".to_owned());
    }
    Ok(())
}
