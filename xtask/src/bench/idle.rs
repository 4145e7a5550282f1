//! `cargo xtask bench idle`: resident bytes of an idle keep-alive connection, beside other servers.
//!
//! `tidegate bench idle` opens the connections, makes one request on each and then only holds them; it says whether
//! all stayed. What the processes of the server hold resident is read before and meanwhile. Memory of the kernel is not counted, nor
//! are pages of files: programs and libraries, whose share changes with who else maps them.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::downloads::sources;
use super::generator::{self, words};
use super::peers::Kind;
use super::report::{Table, grouped, verdict};
use super::server::{Server, Setup};
use super::{cpu, host, static_files};

#[derive(clap::Args)]
pub struct Arguments {
    /// Connections held open
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Servers to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,lighttpd,apache")]
    peers: Vec<Kind>,
    /// Use the release binary that is there
    #[arg(long)]
    no_build: bool,
    /// Leave Tidegate out, to look at the peers alone
    #[arg(long)]
    without_tidegate: bool,
}

/// Bytes of an idle connection that Tidegate may hold.
const BUDGET: f64 = 250.0;

const DOCUMENT: &str = "1k.bin";
const DOCUMENT_SIZE: usize = 1024;

/// How fast the generator opens connections unless told otherwise.
const OPENED_PER_SECOND: u32 = 5_000;

/// Seconds for which all of them rest.
const REST: u32 = 6;

const INTERVAL: Duration = Duration::from_millis(500);

/// Readings at the end that are not looked at.
const LEFT_OUT: usize = 3;

/// Measures the servers one after another and prints the table.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    if u64::from(arguments.connections) > Kind::Tidegate.most_connections() {
        let most = Kind::Tidegate.most_connections();
        bail!("a process may hold {most} connections here, not {}", arguments.connections);
    }
    if !arguments.no_build && !arguments.without_tidegate {
        static_files::build()?;
    }
    let setup = Setup::new(Duration::from_secs(600), arguments.connections + 100)?;
    setup.add_document(DOCUMENT, DOCUMENT_SIZE)?;
    let mut kinds = arguments.peers.clone();
    kinds.retain(|&kind| kind != Kind::Tidegate);
    if !arguments.without_tidegate {
        kinds.insert(0, Kind::Tidegate);
    }
    println!("{}, {}", host::today(), host::description());
    println!("idle keep-alive connections, each after one request\n");
    let mut table =
        Table::new(["server", "connections", "bytes/connection", "MiB before", "MiB after", "budget"]);
    for kind in kinds {
        let server = Server::start(kind, false, &setup)?;
        let most = u32::try_from(kind.most_connections()).unwrap_or(u32::MAX);
        let connections = arguments.connections.min(most);
        let (before, after) = measure(&server, connections)?;
        let each = (after as f64 - before as f64) / f64::from(connections);
        let budget = if kind == Kind::Tidegate { verdict(each, BUDGET) } else { String::new() };
        let mebibytes = |bytes: u64| format!("{:.1}", bytes as f64 / (1024.0 * 1024.0));
        let count = grouped(connections.into());
        table.row([server.name(), count, grouped(each), mebibytes(before), mebibytes(after), budget]);
    }
    println!("{table}");
    Ok(())
}

/// Resident bytes of one of so many idle connections of Tidegate.
pub fn bytes(connections: u32) -> Result<f64> {
    let setup = Setup::new(Duration::from_secs(600), connections + 100)?;
    setup.add_document(DOCUMENT, DOCUMENT_SIZE)?;
    let server = Server::start(Kind::Tidegate, false, &setup)?;
    let (before, after) = measure(&server, connections)?;
    Ok((after as f64 - before as f64) / f64::from(connections))
}

/// Resident bytes before and with the connections.
fn measure(server: &Server, connections: u32) -> Result<(u64, u64)> {
    // What the first requests make a server set up is no part of a connection.
    for _ in 0..16 {
        let length = server.fetch(DOCUMENT)?;
        if length != DOCUMENT_SIZE {
            bail!("{} sent {length} bytes of {DOCUMENT_SIZE}", server.name());
        }
    }
    // Nor is what a server sets up in its first seconds, whether anybody comes or not.
    host::rest(Duration::from_secs(REST.into()));
    let before = cpu::resident_bytes(&server.processes()?)?;
    let seconds = connections / OPENED_PER_SECOND + 1 + REST;
    let mut load = generator::start(&words(&format!(
        "idle -c {connections} -t {seconds}s --no-host {} http://127.0.0.1:{}/{DOCUMENT}",
        sources(connections),
        server.port
    )))?;
    let mut readings = Vec::new();
    while load.is_running()? {
        readings.push(cpu::resident_bytes(&server.processes()?)?);
        host::rest(INTERVAL);
    }
    let load = load.finish()?;
    let open = load.report["most_open"].as_u64().unwrap_or_default();
    if open != u64::from(connections) || load.failed() > 0 {
        bail!("{}: {open} of {connections} connections stayed open; {}", server.name(), load.errors_text());
    }
    // The last ones may be of the time when they close.
    let settled = readings.len().saturating_sub(LEFT_OUT);
    Ok((before, *readings[..settled].last().context("the run was too short to look at the server")?))
}
