//! `cargo xtask bench burst`: alternating bursts of many and few clients for minutes, as siege users run them
//! (FAULTS 55).
//!
//! One URL list of 150 files, from a few bytes to 250 KB; each client opens a connection for each request.
//! What counts is availability: requests answered, in percent. Memory is looked at before, and after a rest.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::generator::{self, Load, words};
use super::peers::Kind;
use super::report::{Table, grouped};
use super::server::{Server, Setup};
use super::{cpu, host, static_files};

#[derive(clap::Args)]
pub struct Arguments {
    /// Minutes of bursts for each server
    #[arg(long, default_value_t = 3.0)]
    minutes: f64,
    /// Clients in a burst
    #[arg(long, default_value_t = 2_000)]
    clients: u32,
    /// Seconds of a burst, and of the quiet after it
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Servers to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,lighttpd")]
    peers: Vec<Kind>,
    /// Seconds to rest before memory is looked at again
    #[arg(long, default_value_t = 60)]
    rest: u32,
    /// Use the release binary that is there
    #[arg(long)]
    no_build: bool,
}

const FILES: u32 = 150;
const QUIET: u32 = 10;

/// Measures the servers one after another and prints the table.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    if !arguments.no_build {
        static_files::build()?;
    }
    let setup = Setup::new(Duration::from_secs(15), arguments.clients + 500)?;
    let mut names = Vec::new();
    for number in 0..FILES {
        // From 20 bytes to 250,000, each the same factor larger than the one before.
        let size = 20.0 * (250_000.0_f64 / 20.0).powf(f64::from(number) / f64::from(FILES - 1));
        let name = format!("{number}.bin");
        setup.add_document(&name, size as usize)?;
        names.push(name);
    }
    println!("{}, {}", host::today(), host::description());
    println!(
        "{} minutes each of {} s with {} clients and {} s with {QUIET}, {FILES} files from 20 B to 250 KB, a \
         connection for each request\n",
        arguments.minutes, arguments.seconds, arguments.clients, arguments.seconds
    );
    let mut table = Table::new([
        "server",
        "requests",
        "availability",
        "failed",
        "longest",
        "requests/s in bursts",
        "MiB before",
        "MiB after",
    ]);
    for kind in std::iter::once(Kind::Tidegate).chain(arguments.peers.iter().copied()) {
        let server = Server::start(kind, false, &setup)?;
        let list = setup.write(
            "urls.txt",
            &names.iter().fold(String::new(), |mut text, name| {
                let _ = writeln!(text, "http://127.0.0.1:{}/{name}", server.port);
                text
            }),
        )?;
        let before = {
            // What the first requests make a server set up is no growth.
            hit(&list, 64, 2)?;
            cpu::resident_bytes(&server.processes()?)?
        };
        let (all, bursts) = alternate(arguments, &list)?;
        host::rest(Duration::from_secs(arguments.rest.into()));
        let after = cpu::resident_bytes(&server.processes()?)?;
        let mebibytes = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        table.row([
            server.name(),
            grouped(all.requests as f64),
            format!("{:.4} %", all.availability()),
            all.errors_text(),
            format!("{:.2} s", all.latency.longest.as_secs_f64()),
            grouped(bursts.rate),
            mebibytes(before),
            mebibytes(after),
        ]);
        fs::remove_file(&list)?;
    }
    println!("{table}");
    Ok(())
}

/// All runs together, and the bursts alone.
fn alternate(arguments: &Arguments, list: &std::path::Path) -> Result<(Load, Load)> {
    let end = Instant::now() + Duration::from_secs_f64(arguments.minutes * 60.0);
    let mut bursts = hit(list, arguments.clients, arguments.seconds)?;
    let mut all = bursts.clone();
    all.add(&hit(list, QUIET, arguments.seconds)?);
    while Instant::now() < end {
        let burst = hit(list, arguments.clients, arguments.seconds)?;
        bursts.add(&burst);
        all.add(&burst);
        all.add(&hit(list, QUIET, arguments.seconds)?);
    }
    Ok((all, bursts))
}

fn hit(list: &std::path::Path, clients: u32, seconds: u32) -> Result<Load> {
    let mut arguments = words("hit --no-keepalive -f");
    arguments.push(list.display().to_string());
    arguments.extend(words(&format!("-c {clients} -t {seconds}s --timeout 30s")));
    generator::run(&arguments)
}
