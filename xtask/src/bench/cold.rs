//! `cargo xtask bench cold`: what small requests of a worker pay while others pull a cold file from a slow disk,
//! beside other servers.
//!
//! Each server has one worker. A client asks for a small file a thousand times a second, first alone, then
//! while others pull a file of 2 GiB from a disk that takes its time for each 128 KiB, each from a place of
//! its own. A request that could not be sent in time, because the one before it was not answered, counts
//! from when it should have been, and to the end of the run where it never was.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{Timespec, poll};

use super::host;
use super::peers::Kind;
use super::report::{Table, grouped, significant, verdict};
use super::server::{self, Server, Setup};
use super::slow_disk::{self, SlowDisk};
use super::static_files;

#[derive(clap::Args)]
pub struct Arguments {
    /// Seconds measured, alone and beside the others
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Clients that pull the cold file
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Milliseconds that the disk takes for 128 KiB
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    delay: u32,
    /// Servers to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,nginx-threads,lighttpd")]
    peers: Vec<Kind>,
    /// Use the release binary that is there
    #[arg(long)]
    no_build: bool,
    /// Leave Tidegate out, to look at the peers alone
    #[arg(long)]
    without_tidegate: bool,
}

/// How much of its p99 alone a small request may have beside the others.
const BUDGET: f64 = 2.0;
/// Small requests per second.
const RATE: u32 = 1000;

const DOCUMENT: &str = "1k.bin";
const FOLDER: &str = "slow";
const COLD_SIZE: u64 = 2 << 30;

/// Measures the servers one after another and prints the table.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    if !arguments.no_build && !arguments.without_tidegate {
        static_files::build()?;
    }
    let setup = Setup::new(Duration::from_secs(600), arguments.clients + 100)?;
    setup.add_document(DOCUMENT, 1024)?;
    let mut kinds = arguments.peers.clone();
    kinds.retain(|&kind| kind != Kind::Tidegate);
    if !arguments.without_tidegate {
        kinds.insert(0, Kind::Tidegate);
    }
    println!("{}, {}", host::today(), host::description());
    println!(
        "{RATE} small requests/s, alone and while {} clients pull a cold file from a disk that takes {} ms for \
         128 KiB\n",
        arguments.clients, arguments.delay
    );
    let mut table = Table::new([
        "server",
        "p99 alone, µs",
        "p50 beside",
        "p99 beside",
        "longest",
        "pulled, MiB/s",
        "p99 ratio",
        "budget",
    ]);
    for kind in kinds {
        let server = Server::start(kind, false, &setup)?;
        let measured = measure(&server, &setup, arguments)?;
        let ratio = measured.beside.at(0.99) / measured.alone.at(0.99);
        let budget = if kind == Kind::Tidegate { verdict(ratio, BUDGET) } else { String::new() };
        table.row([
            server.name(),
            grouped(measured.alone.at(0.99)),
            grouped(measured.beside.at(0.5)),
            grouped(measured.beside.at(0.99)),
            grouped(measured.beside.at(1.0)),
            significant(measured.pulled),
            significant(ratio),
            budget,
        ]);
    }
    println!("{table}");
    Ok(())
}

struct Measured {
    alone: Latencies,
    beside: Latencies,
    /// MiB/s of all clients together.
    pulled: f64,
}

fn measure(server: &Server, setup: &Setup, arguments: &Arguments) -> Result<Measured> {
    let time = Duration::from_secs(arguments.seconds.into());
    let delay = Duration::from_millis(arguments.delay.into());
    for _ in 0..16 {
        server.fetch(DOCUMENT)?;
    }
    // A disk of its own for each server: nothing of it is in memory.
    let disk = SlowDisk::mount(&setup.documents.join(FOLDER), COLD_SIZE, delay)?;
    let alone = ask(server.port, time)?;
    let (stop, pulled) = (AtomicBool::new(false), AtomicU64::new(0));
    let (beside, pulled) = std::thread::scope(|scope| {
        let pullers: Vec<_> = (0..arguments.clients)
            .map(|number| {
                let from = COLD_SIZE / u64::from(arguments.clients) * u64::from(number);
                let (stop, pulled) = (&stop, &pulled);
                scope.spawn(move || pull(server.port, from, stop, pulled))
            })
            .collect();
        let before = (Instant::now(), pulled.load(Relaxed));
        let beside = ask(server.port, time);
        let bytes = pulled.load(Relaxed) - before.1;
        let rate = bytes as f64 / before.0.elapsed().as_secs_f64() / f64::from(1 << 20);
        stop.store(true, Relaxed);
        for puller in pullers {
            puller.join().expect("invariant: it returns errors")?;
        }
        Ok::<_, anyhow::Error>((beside?, rate))
    })?;
    if pulled == 0.0 {
        bail!("{} sent nothing of the cold file", server.name());
    }
    drop(disk);
    Ok(Measured { alone, beside, pulled })
}

/// Latencies in microseconds, sorted.
struct Latencies(Vec<f64>);

impl Latencies {
    fn at(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * share).ceil() as usize).copied().unwrap_or(f64::NAN)
    }
}

/// Asks for the small file at its rate, on one connection.
fn ask(port: u16, time: Duration) -> Result<Latencies> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let request = format!("GET /{DOCUMENT} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let interval = Duration::from_secs(1) / RATE;
    let begun = Instant::now();
    let mut due = begun;
    let mut latencies = Vec::new();
    let mut is_answered = true;
    while due.duration_since(begun) < time {
        let now = Instant::now();
        if !is_answered || now.duration_since(begun) > time {
            let never = begun.elapsed().max(time).saturating_sub(due.duration_since(begun));
            latencies.push(never.as_secs_f64() * 1e6);
            due += interval;
            continue;
        }
        let mut from = due;
        if let Some(early) = due.checked_duration_since(now).filter(|early| !early.is_zero()) {
            poll(&mut [], Some(&Timespec::try_from(early)?))?;
            from = Instant::now(); // the oversleeping is ours
        }
        stream.write_all(request.as_bytes())?;
        let left = time.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        match server::read_response(&mut stream) {
            Ok((head, _)) if head.starts_with("HTTP/1.1 200 ") => {}
            Ok((head, _)) => {
                bail!("the small file was answered: {}", head.lines().next().unwrap_or_default())
            }
            Err(_) if begun.elapsed() >= time => is_answered = false,
            Err(error) => return Err(error),
        }
        latencies.push(from.elapsed().as_secs_f64() * 1e6);
        due += interval;
    }
    latencies.sort_by(f64::total_cmp);
    Ok(Latencies(latencies))
}

/// Pulls the cold file from a place on, until told to stop.
fn pull(port: u16, from: u64, stop: &AtomicBool, pulled: &AtomicU64) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let path = format!("{FOLDER}/{}", slow_disk::FILE);
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes={from}-\r\n\r\n")?;
    let mut buffer = vec![0; 256 << 10];
    let mut is_first = true;
    while !stop.load(Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => bail!("the cold file was cut off"),
            Ok(_) if is_first && !buffer.starts_with(b"HTTP/1.1 206 ") => {
                bail!("the cold file was answered: {}", String::from_utf8_lossy(&buffer[..80]));
            }
            Ok(count) => {
                is_first = false;
                pulled.fetch_add(count as u64, Relaxed);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("pulling the cold file"),
        }
    }
    Ok(())
}
