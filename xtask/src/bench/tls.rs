//! `cargo xtask bench tls`: what TLS costs, beside nginx and h2o: handshakes in full and resumed, files of three
//! sizes on kept connections, and the memory of an idle connection.
//!
//! The method is that of the static bench: all servers run at once with one worker each on one processor, one
//! is under load at a time, rounds go in turn, and the figure is CPU time of the server per request. The load
//! comes from `tidegate bench`, which counts handshakes: a row whose handshakes were not what it is about is void.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::generator::{self, Load, words};
use super::report::{Spread, Table, grouped, verdict};
use super::server::{end, free_port, wait_until_listening};
use super::static_files::build;
use super::tls_peers::Files;
use super::{cpu, host};
use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    /// Rounds; the median of them is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds under load, for each server and round
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
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
    /// Use the release binary that is there
    #[arg(long)]
    no_build: bool,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    #[value(skip)]
    Tidegate,
    Nginx,
    H2o,
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

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Peer::Tidegate => "tidegate",
            Peer::Nginx => "nginx",
            Peer::H2o => "h2o",
        }
    }
}

/// A server of the bench: told to end when it is dropped.
struct Running {
    peer: Peer,
    port: u16,
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

struct Sample {
    cost: f64,
    rate: f64,
    errors: u64,
    doubt: Option<String>,
}

/// Runs the bench and prints its tables.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    for program in ["openssl"].into_iter().chain(arguments.peers.iter().map(|peer| peer.name())) {
        if workspace::find_program(program).is_none() {
            bail!("{program} is missing: cargo xtask tools --for bench");
        }
    }
    if !arguments.no_build {
        build()?;
    }
    let congestion = host::CongestionControl::set(&arguments.congestion)?;
    println!("{}, {}", host::today(), host::description());
    println!(
        "{} rounds of {} s, tidegate bench with {} connections, congestion control {}\n\
         CPU time and ratios: median [least–most]; a ratio under 1 is for Tidegate\n",
        arguments.rounds,
        arguments.seconds,
        arguments.connections,
        congestion.name()
    );
    let folder = workspace::target_directory().join(format!("bench/tls-{}", std::process::id()));
    let documents = folder.join("documents");
    fs::create_dir_all(&documents)?;
    for workload in &arguments.workloads {
        fs::write(documents.join(workload.document()), vec![b'x'; workload.size()])?;
    }
    let done = certify(&folder).and_then(|()| {
        let servers = start(arguments, &folder)?;
        arguments.workloads.iter().try_for_each(|workload| match workload {
            Workload::Idle => measure_idle(arguments, &folder),
            workload => measure(arguments, *workload, &servers),
        })
    });
    fs::remove_dir_all(&folder)?;
    done
}

/// A certificate as most have it today: ECDSA with P-256.
fn certify(folder: &Path) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    command.args(["-days", "30", "-subj", "/CN=bench.test", "-addext"]);
    command.args(["subjectAltName=DNS:bench.test,IP:127.0.0.1", "-keyout", "site.key", "-out", "site.pem"]);
    workspace::output(command.current_dir(folder)).map(drop)
}

fn start(arguments: &Arguments, folder: &Path) -> Result<Vec<Running>> {
    let peers = [Peer::Tidegate].into_iter().chain(arguments.peers.iter().copied());
    peers.map(|peer| start_one(peer, arguments, folder)).collect()
}

fn start_one(peer: Peer, arguments: &Arguments, folder: &Path) -> Result<Running> {
    let port = free_port()?;
    let files = Files {
        folder: folder.join(format!("{}-{port}", peer.name())),
        port,
        documents: &folder.join("documents"),
        certificates: folder,
        connections: arguments.connections.max(arguments.idle) + 200,
    };
    fs::create_dir_all(&files.folder)?;
    let log = files.folder.join("output.log");
    let output = fs::File::create(&log)?;
    let mut command = files.command(peer)?;
    command.stdout(output.try_clone()?).stderr(output);
    let child = command.spawn().with_context(|| format!("cannot start {}", peer.name()))?;
    let mut running = Running { peer, port, child };
    wait_until_listening(&mut running.child, || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())
        .with_context(|| format!("{}:\n{}", peer.name(), fs::read_to_string(&log).unwrap_or_default()))?;
    Ok(running)
}

fn measure(arguments: &Arguments, workload: Workload, servers: &[Running]) -> Result<()> {
    let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
    for server in servers {
        load(server, workload, arguments.connections, 1)?;
    }
    for _ in 0..arguments.rounds {
        for (server, samples) in servers.iter().zip(&mut samples) {
            samples.push(load(server, workload, arguments.connections, arguments.seconds)?);
        }
    }
    let unit = if workload.is_handshake() { "CPU µs/handshake" } else { "CPU µs/request" };
    let mut table = Table::new(["server", unit, "per second", "tidegate / it", "budget", "errors"]);
    for (server, theirs) in servers.iter().zip(&samples) {
        let ours = samples.first().context("Tidegate comes first")?;
        let ratio = Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours.cost / theirs.cost));
        let ratio = ratio.filter(|_| server.peer != Peer::Tidegate);
        let budget = ratio.and_then(|ratio| Some(verdict(ratio.median, workload.budget(server.peer)?)));
        let cost = Spread::of(theirs.iter().map(|sample| sample.cost)).context("no round was measured")?;
        let rate = Spread::of(theirs.iter().map(|sample| sample.rate)).context("no round was measured")?;
        let errors: u64 = theirs.iter().map(|sample| sample.errors).sum();
        let doubt = theirs.iter().find_map(|sample| sample.doubt.clone());
        table.row([
            server.peer.name().to_owned(),
            cost.to_string(),
            grouped(rate.median),
            ratio.map_or_else(String::new, |ratio| ratio.to_string()),
            budget.unwrap_or_default(),
            match (errors, doubt) {
                (0, None) => "0".to_owned(),
                (0, Some(doubt)) => format!("{doubt}: ROW IS VOID"),
                (errors, _) => format!("{errors} ERRORS: ROW IS VOID"),
            },
        ]);
    }
    println!("{}\n\n{table}", workload.title());
    Ok(())
}

fn load(server: &Running, workload: Workload, connections: u32, seconds: u32) -> Result<Sample> {
    let mut arguments = words(&format!(
        "hit -c {connections} -t {seconds}s --threads 1 --insecure --no-host --expect length={} {}",
        workload.size(),
        workload.manner()
    ));
    arguments.push(format!("https://127.0.0.1:{}/{}", server.port, workload.document()));
    let processes = cpu::process_tree(server.child.id())?;
    let before = cpu::time_used(&processes)?;
    let load = generator::run(&arguments)?;
    let used = cpu::time_used(&processes)?.saturating_sub(before);
    // One that is answered after its client's end was paid for all the same.
    let answered = load.report["answered"].as_u64().unwrap_or_default();
    if answered == 0 {
        bail!("{} answered nothing: {}", server.peer.name(), load.errors_text());
    }
    let errors = load.failed() - load.errors.get("unanswered").copied().unwrap_or_default();
    let cost = used.as_secs_f64() * 1e6 / answered as f64;
    Ok(Sample { cost, rate: load.rate, errors, doubt: workload.doubt(&load) })
}

/// Each server alone and fresh: what others have held before would be in the figure.
fn measure_idle(arguments: &Arguments, folder: &Path) -> Result<()> {
    let mut table =
        Table::new(["server", "connections", "bytes/connection", "MiB before", "MiB after", "budget"]);
    for peer in [Peer::Tidegate].into_iter().chain(arguments.peers.iter().copied()) {
        let server = start_one(peer, arguments, folder)?;
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
    let mut used = cpu::time_used(&processes)?;
    loop {
        std::thread::park_timeout(Duration::from_millis(500));
        if !client.is_running()? {
            bail!("{} kept no {connections} connections: {:?}", server.peer.name(), client.finish()?.errors);
        }
        let now = cpu::time_used(&processes)?;
        let is_quiet = now.saturating_sub(used) < Duration::from_millis(5);
        used = now;
        if is_quiet && open_connections(server.port)? >= connections {
            break;
        }
        if Instant::now() > deadline {
            bail!("{} did not accept {connections} connections in time", server.peer.name());
        }
    }
    let after = cpu::resident_bytes(&processes)?;
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
