//! `cargo xtask bench overload`: what clients get at 0.5, 1, 2 and 4 times the peak, beside other servers
//! (FAULTS 54).
//!
//! The server gets a share of its processor alone, so that the generator can offer far more than the server
//! can do. The peak is found with a closed loop. Then
//! requests arrive on a schedule that the server cannot slow down (open loop, Poisson), and times count from
//! the moment a request should have started. Goodput is what was answered with 200, and the times are those of
//! that; what was turned away with 503 counts apart and not as a failure.

use std::time::Duration;

use anyhow::Result;

use super::generator::{self, Load, words};
use super::host;
use super::peers::Kind;
use super::report::{Table, grouped};
use super::server::{Server, Setup};
use super::share::Share;

#[derive(clap::Args)]
pub struct Arguments {
    /// Seconds of each run
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Seconds before it that do not count: a queue has to grow before it is one
    #[arg(long, default_value_t = 5)]
    warmup: u32,
    /// Connections at most
    #[arg(long, default_value_t = 4_000)]
    connections: u32,
    /// Bytes of the file
    #[arg(long, default_value_t = 1 << 20)]
    size: usize,
    /// Percent of a processor for the server; 100 for all of it
    #[arg(long, default_value_t = 20)]
    share: u32,
    /// Multiples of the peak
    #[arg(long, value_delimiter = ',', default_value = "0.5,1,2,4")]
    multiples: Vec<f64>,
    /// Servers to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,lighttpd")]
    peers: Vec<Kind>,
    #[command(flatten)]
    conditions: host::Conditions,
}

const DOCUMENT: &str = "document.bin";

/// Measures the servers one after another and prints the table.
pub fn run(arguments: &Arguments) -> Result<()> {
    let _congestion = arguments.conditions.begin()?;
    let setup = Setup::new(Duration::from_secs(60), arguments.connections + 500)?;
    setup.add_document(DOCUMENT, arguments.size)?;
    println!(
        "a file of {} bytes, {} % of a processor for the server, {} s each, at most {} connections\n",
        grouped(arguments.size as f64),
        arguments.share,
        arguments.seconds,
        arguments.connections
    );
    let mut table = Table::new([
        "server",
        "offered",
        "requests/s offered",
        "goodput/s",
        "of peak",
        "p50 ms",
        "p99 ms",
        "turned away",
        "failed",
    ]);
    for kind in std::iter::once(Kind::Tidegate).chain(arguments.peers.iter().copied()) {
        // Declared before the server, so that it is there until that has ended.
        let _share;
        let server = Server::start(kind, false, &setup)?;
        if arguments.share < 100 {
            _share = Share::confine(&server.processes()?, arguments.share)?;
        }
        let url = format!("http://127.0.0.1:{}/{DOCUMENT}", server.port);
        generator::run(&words(&format!("hit {url} -c 64 -t 2s")))?;
        let peak = generator::run(&words(&format!("hit {url} -c 64 -t {}s", arguments.seconds)))?;
        table.row(row(&server, "closed loop, 64", peak.rate, peak.rate, &peak));
        for &multiple in &arguments.multiples {
            let offered = peak.rate * multiple;
            let load = generator::run(&words(&format!(
                "hit {url} -c {} -t {}s --warmup {}s --rate {offered:.0} --arrivals poisson --timeout 10s",
                arguments.connections, arguments.seconds, arguments.warmup
            )))?;
            table.row(row(&server, &format!("{multiple} × peak"), offered, peak.rate, &load));
        }
    }
    println!("{table}");
    Ok(())
}

fn row(server: &Server, name: &str, offered: f64, peak: f64, load: &Load) -> [String; 9] {
    let turned_away = load.report["statuses"]["503"].as_u64().unwrap_or_default();
    let failed = load.failed().saturating_sub(turned_away);
    let good = load.requests.saturating_sub(load.failed()) as f64 / load.seconds.max(0.001);
    let milliseconds = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    [
        server.name(),
        name.to_owned(),
        grouped(offered),
        grouped(good),
        format!("{:.0} %", 100.0 * good / peak),
        milliseconds(load.expected.median),
        milliseconds(load.expected.p99),
        grouped(turned_away as f64),
        format!("{} {}", grouped(failed as f64), load.errors_text()),
    ]
}
