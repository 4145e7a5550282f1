//! `cargo xtask bench tls`: what TLS costs, beside nginx and h2o: handshakes in full and resumed, files of three
//! sizes on kept connections, and the memory of an idle connection.
//!
//! The method is that of the static bench: all servers run at once with one worker each on one processor, one
//! is under load at a time, rounds go in turn, and the figure is CPU time of the server per request. The load
//! comes from `tidegate bench`, which counts handshakes: a row whose handshakes were not what it is about is void.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::generator::{self, Load, words};
use super::report::{Table, grouped, verdict};
use super::rounds::{self, Course, Sample, Series};
use super::static_files::build;
use super::tls_peers::{Peer, Running, Site};
use super::{cpu, host};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    course: Course,
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_value = "full,resumed,hybrid,1k,100k,1m,idle")]
    workloads: Vec<Workload>,
    /// Servers to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,h2o")]
    peers: Vec<Peer>,
    /// Connections of the generator
    #[arg(long, default_value_t = 64)]
    connections: u32,
    /// Idle connections that are held
    #[arg(long, default_value_t = 5_000)]
    idle: u32,
    /// Congestion control for all servers
    #[arg(long, default_value = "cubic")]
    congestion: String,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// Every connection begins anew, with a key exchange that all servers know
    Full,
    /// Every connection resumes a session
    Resumed,
    /// Every connection begins anew and offers X25519MLKEM768
    Hybrid,
    #[value(name = "1k")]
    Small,
    #[value(name = "100k")]
    Medium,
    #[value(name = "1m")]
    Large,
    /// Resident bytes of an idle connection
    Idle,
}

/// Resident bytes that an idle connection may hold.
const IDLE_BUDGET: f64 = 4096.0;

impl Workload {
    fn title(self) -> &'static str {
        match self {
            Workload::Full => "full handshakes: TLS 1.3, ECDSA P-256, X25519, one GET of 1 KiB each",
            Workload::Resumed => "resumed handshakes: TLS 1.3, X25519, one GET of 1 KiB each",
            Workload::Hybrid => {
                "full handshakes of a client that offers X25519MLKEM768 (OpenSSL 3.0 takes X25519), one GET each"
            }
            Workload::Small => "1 KiB over kept TLS connections",
            Workload::Medium => "100 KiB over kept TLS connections",
            Workload::Large => "1 MiB over kept TLS connections",
            Workload::Idle => "an idle TLS connection, after one request",
        }
    }

    fn size(self) -> usize {
        match self {
            Workload::Medium => 102_400,
            Workload::Large => 1 << 20,
            _ => 1024,
        }
    }

    fn document(self) -> String {
        format!("{}.bin", self.size())
    }

    fn is_handshake(self) -> bool {
        matches!(self, Workload::Full | Workload::Resumed | Workload::Hybrid)
    }

    /// Arguments of the generator.
    fn manner(self) -> &'static str {
        match self {
            Workload::Full => "--no-keepalive --tls-classical",
            Workload::Resumed => "--no-keepalive --tls-classical --tls-resume 100",
            Workload::Hybrid => "--no-keepalive",
            _ => "--tls-classical",
        }
    }

    /// Most that Tidegate may cost in parts of the peer's cost.
    fn budget(self, peer: Peer) -> Option<f64> {
        Some(match (self, peer) {
            (_, Peer::Tidegate) | (Workload::Hybrid | Workload::Idle, _) => return None,
            (Workload::Full, Peer::Nginx) => 0.38,
            (Workload::Resumed, Peer::Nginx) => 0.37,
            (Workload::Small, Peer::Nginx) => 0.66,
            (Workload::Medium | Workload::Large, Peer::Nginx) => 0.50,
            (_, Peer::H2o) => 1.0,
        })
    }

    /// What is wrong with the handshakes of a load; a few at its beginning have no session to resume.
    fn doubt(self, load: &Load) -> Option<String> {
        let count = |kind: &str| load.report["tls"][kind].as_u64().unwrap_or_default();
        let (full, resumed) = (count("full"), count("resumed"));
        let is_right = match self {
            Workload::Full | Workload::Hybrid => resumed == 0,
            Workload::Resumed => resumed >= full * 20,
            _ => true,
        };
        (!is_right).then(|| format!("{full} full, {resumed} resumed"))
    }
}

/// Runs the bench and prints its tables.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    let most = arguments.connections.max(arguments.idle) + 200;
    let site = Site::new("tls", &arguments.peers, most, false)?;
    if !arguments.course.no_build {
        build()?;
    }
    let congestion = host::CongestionControl::set(&arguments.congestion)?;
    println!("{}, {}", host::today(), host::description());
    println!(
        "{} rounds of {} s, tidegate bench with {} connections, congestion control {}\n\
         CPU time and ratios: median [least–most]; a ratio under 1 is for Tidegate\n",
        arguments.course.rounds,
        arguments.course.seconds,
        arguments.connections,
        congestion.name()
    );
    for workload in &arguments.workloads {
        site.add_document(&workload.document(), workload.size())?;
    }
    let servers = site.start_all(&arguments.peers)?;
    arguments.workloads.iter().try_for_each(|workload| match workload {
        Workload::Idle => measure_idle(arguments, &site),
        workload => measure(arguments, *workload, &servers),
    })
}

fn measure(arguments: &Arguments, workload: Workload, servers: &[Running]) -> Result<()> {
    let samples = rounds::measure(servers, &arguments.course, |server, seconds| {
        load(server, workload, arguments.connections, seconds)
    })?;
    let unit = if workload.is_handshake() { "CPU µs/handshake" } else { "CPU µs/request" };
    let rows = servers.iter().zip(samples);
    let rows: Vec<_> =
        rows.map(|(server, samples)| (server.peer.name(), workload.budget(server.peer), samples)).collect();
    println!("{}\n\n{}", workload.title(), rounds::table(unit, &rows)?);
    Ok(())
}

/// What each server costs for one workload, with 64 connections.
pub fn series(course: &Course, workload: Workload, peers: &[Peer]) -> Result<Vec<Series>> {
    let site = Site::new("tls", peers, 264, false)?;
    let _congestion = host::CongestionControl::set("cubic")?;
    site.add_document(&workload.document(), workload.size())?;
    let servers = site.start_all(peers)?;
    let samples = rounds::measure(&servers, course, |server, seconds| load(server, workload, 64, seconds))?;
    let series = servers.iter().zip(samples);
    Ok(series.map(|(server, samples)| Series { server: server.peer.name().to_owned(), samples }).collect())
}

/// Resident bytes of an idle connection of Tidegate, with so many of them.
pub fn idle_bytes(connections: u32) -> Result<f64> {
    let site = Site::new("tls", &[], connections + 200, false)?;
    site.add_document(&Workload::Idle.document(), Workload::Idle.size())?;
    let server = site.start(Peer::Tidegate)?;
    load(&server, Workload::Full, 16, 1)?;
    let (before, after) = hold(&server, connections)?;
    Ok((after as f64 - before as f64) / f64::from(connections))
}

fn load(server: &Running, workload: Workload, connections: u32, seconds: u32) -> Result<Sample> {
    let mut arguments = words(&format!(
        "hit -c {connections} -t {seconds}s --threads 1 --insecure --no-host --expect length={} {}",
        workload.size(),
        workload.manner()
    ));
    arguments.push(format!("https://127.0.0.1:{}/{}", server.port, workload.document()));
    let meter = cpu::Meter::start(cpu::process_tree(server.child.id())?).with_context(|| server.state())?;
    let load = generator::run(&arguments)?;
    let used = meter.stop().with_context(|| server.state())?;
    // One that is answered after its client's end was paid for all the same.
    let answered = load.report["answered"].as_u64().unwrap_or_default();
    if answered == 0 {
        bail!("nothing was answered: {}; {}", load.errors_text(), server.state());
    }
    let errors = load.failed() - load.errors.get("unanswered").copied().unwrap_or_default();
    Ok(Sample { doubt: workload.doubt(&load), ..Sample::of(used, answered, load.rate, errors) })
}

/// Each server alone and fresh: what others have held before would be in the figure.
fn measure_idle(arguments: &Arguments, site: &Site) -> Result<()> {
    let mut table =
        Table::new(["server", "connections", "bytes/connection", "MiB before", "MiB after", "budget"]);
    for peer in [Peer::Tidegate].into_iter().chain(arguments.peers.iter().copied()) {
        let server = site.start(peer)?;
        // What the first handshakes make a server set up is no part of a connection.
        load(&server, Workload::Full, 16, 1)?;
        let (before, after) = hold(&server, arguments.idle)?;
        let each = (after as f64 - before as f64) / f64::from(arguments.idle);
        let budget = if peer == Peer::Tidegate { verdict(each, IDLE_BUDGET) } else { String::new() };
        let mebibytes = |bytes: u64| format!("{:.1}", bytes as f64 / (1024.0 * 1024.0));
        table.row([
            peer.name().to_owned(),
            grouped(arguments.idle.into()),
            grouped(each),
            mebibytes(before),
            mebibytes(after),
            budget,
        ]);
    }
    println!("{}\n\n{table}", Workload::Idle.title());
    Ok(())
}

/// Resident bytes before and with the connections.
fn hold(server: &Running, connections: u32) -> Result<(u64, u64)> {
    const PATIENCE: Duration = Duration::from_secs(120);
    let processes = cpu::process_tree(server.child.id())?;
    let before = cpu::resident_bytes(&processes)?;
    let mut arguments = words(&format!("idle -c {connections} -t 300s --insecure --no-host --tls-classical"));
    arguments.push(format!("https://127.0.0.1:{}/{}", server.port, Workload::Idle.document()));
    let mut client = generator::start(&arguments)?;
    let deadline = Instant::now() + PATIENCE;
    let time_used = || cpu::time_used(&processes).with_context(|| server.state());
    let mut used = time_used()?;
    loop {
        std::thread::park_timeout(Duration::from_millis(500));
        if !client.is_running()? {
            bail!(
                "{connections} connections were not kept: {:?}; {}",
                client.finish()?.errors,
                server.state()
            );
        }
        let now = time_used()?;
        let is_quiet = now.saturating_sub(used) < Duration::from_millis(5);
        used = now;
        if is_quiet && open_connections(server.port)? >= connections {
            break;
        }
        if Instant::now() > deadline {
            bail!("{connections} connections were not accepted in time; {}", server.state());
        }
    }
    let after = cpu::resident_bytes(&processes).with_context(|| server.state())?;
    client.stop();
    Ok((before, after))
}

/// Connections that a server holds on its port, from `/proc/net/tcp` (proc(5)).
fn open_connections(port: u16) -> Result<u32> {
    let table = fs::read_to_string("/proc/net/tcp").context("cannot read /proc/net/tcp")?;
    let ending = format!(":{port:04X}");
    let is_open = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&ending)) && fields.nth(1) == Some("01")
    };
    Ok(table.lines().filter(is_open).count() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_connections_are_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(open_connections(port).unwrap(), 0);
        let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let accepted = listener.accept().unwrap();
        assert_eq!(open_connections(port).unwrap(), 1);
        drop((client, accepted));
    }
}
