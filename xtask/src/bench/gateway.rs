//! `cargo xtask bench gateway`: what a request to an application costs, beside nginx, lighttpd and HAProxy.
//!
//! The method is that of the static bench: all servers run at once with one worker each on one processor, one
//! is under load at a time, rounds go in turn, and the figure is CPU time of the server per request. The
//! application shares the generator's processor and is not counted. Every server keeps its connections to it.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::gateway_peers::Files;
use super::report::{Spread, Table, grouped, verdict};
use super::server::{end, free_port, read_response, wait_until_listening};
use super::static_files::{Generated, build};
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
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fastcgi-1k,proxy-1k,proxy-100k")]
    workloads: Vec<Workload>,
    /// Servers to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,lighttpd,haproxy")]
    peers: Vec<Peer>,
    /// Connections of the generator
    #[arg(long, default_value_t = 64)]
    connections: u32,
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
    #[value(name = "fastcgi-1k")]
    FastCgi,
    #[value(name = "proxy-1k")]
    Proxy,
    #[value(name = "proxy-100k")]
    ProxyLarge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    #[value(skip)]
    Tidegate,
    Nginx,
    Lighttpd,
    Haproxy,
}

impl Workload {
    fn title(self) -> &'static str {
        match self {
            Workload::FastCgi => "FastCGI, 1 KiB, kept connections over a unix socket",
            Workload::Proxy => "HTTP proxy, 1 KiB, kept connections over TCP",
            Workload::ProxyLarge => "HTTP proxy, 100 KiB, kept connections over TCP",
        }
    }

    fn size(self) -> usize {
        match self {
            Workload::FastCgi | Workload::Proxy => 1024,
            Workload::ProxyLarge => 102_400,
        }
    }

    /// Most that Tidegate may cost in parts of the peer's cost.
    fn budget(self, peer: Peer) -> Option<f64> {
        Some(match (self, peer) {
            (_, Peer::Tidegate) => return None,
            (Workload::FastCgi, Peer::Lighttpd) => 0.50,
            (Workload::FastCgi | Workload::Proxy, Peer::Nginx) => 0.75,
            (Workload::Proxy, Peer::Haproxy) => 0.75,
            (Workload::ProxyLarge, Peer::Nginx) => 0.90,
            _ => 1.0,
        })
    }
}

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Peer::Tidegate => "tidegate",
            Peer::Nginx => "nginx",
            Peer::Lighttpd => "lighttpd",
            Peer::Haproxy => "haproxy",
        }
    }
}

/// A process of the bench: told to end when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

struct Running {
    peer: Peer,
    port: u16,
    process: Process,
}

struct Sample {
    cost: f64,
    rate: f64,
    errors: u64,
}

/// Runs the bench and prints its tables.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    for program in ["wrk"].into_iter().chain(arguments.peers.iter().map(|peer| peer.name())) {
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
        "{} rounds of {} s, wrk with {} connections, congestion control {}\n\
         CPU time and ratios: median [least–most]; a ratio under 1 is for Tidegate\n",
        arguments.rounds,
        arguments.seconds,
        arguments.connections,
        congestion.name()
    );
    let folder = workspace::target_directory().join(format!("bench/gateway-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let done = arguments.workloads.iter().try_for_each(|workload| measure(arguments, *workload, &folder));
    fs::remove_dir_all(&folder)?;
    done
}

fn measure(arguments: &Arguments, workload: Workload, folder: &Path) -> Result<()> {
    let backend_port = free_port()?;
    let socket = folder.join(format!("{backend_port}.sock"));
    let own = std::env::current_exe()?;
    let mut backend = host::pinned(host::GENERATOR_PROCESSOR, &own.to_string_lossy());
    match workload {
        Workload::FastCgi => backend.arg("responder").arg(&socket).arg(workload.size().to_string()),
        _ => backend.arg("canned").arg(backend_port.to_string()).arg(workload.size().to_string()),
    };
    let mut backend = Process(backend.stdout(fs::File::create(folder.join("backend.log"))?).spawn()?);
    match workload {
        Workload::FastCgi => {
            wait_until_listening(&mut backend.0, || {
                std::os::unix::net::UnixStream::connect(&socket).is_ok()
            })?;
        }
        _ => wait_until_listening(&mut backend.0, || connects(backend_port))?,
    }
    let mut servers = Vec::new();
    for peer in [Peer::Tidegate].into_iter().chain(arguments.peers.iter().copied()) {
        let port = free_port()?;
        let files = Files {
            folder: folder.join(format!("{}-{port}", peer.name())),
            port,
            workload,
            backend_port,
            socket: &socket,
        };
        fs::create_dir_all(&files.folder)?;
        let output = fs::File::create(files.folder.join("output.log"))?;
        let mut command = files.command(peer)?;
        command.stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {}", peer.name()))?;
        let mut process = Process(child);
        wait_until_listening(&mut process.0, || connects(port)).with_context(|| {
            format!(
                "{}:\n{}",
                peer.name(),
                fs::read_to_string(files.folder.join("output.log")).unwrap_or_default()
            )
        })?;
        check(peer, port, workload)?;
        servers.push(Running { peer, port, process });
    }
    let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
    for server in &servers {
        load(server, arguments.connections, 1)?;
    }
    for _ in 0..arguments.rounds {
        for (server, samples) in servers.iter().zip(&mut samples) {
            samples.push(load(server, arguments.connections, arguments.seconds)?);
        }
    }
    let mut table =
        Table::new(["server", "CPU µs/request", "requests/s", "tidegate / it", "budget", "errors"]);
    for (server, theirs) in servers.iter().zip(&samples) {
        let ours = samples.first().context("Tidegate comes first")?;
        let ratio = Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours.cost / theirs.cost));
        let ratio = ratio.filter(|_| server.peer != Peer::Tidegate);
        let budget = ratio.and_then(|ratio| Some(verdict(ratio.median, workload.budget(server.peer)?)));
        let cost = Spread::of(theirs.iter().map(|sample| sample.cost)).context("no round was measured")?;
        let rate = Spread::of(theirs.iter().map(|sample| sample.rate)).context("no round was measured")?;
        let errors: u64 = theirs.iter().map(|sample| sample.errors).sum();
        table.row([
            server.peer.name().to_owned(),
            cost.to_string(),
            grouped(rate.median),
            ratio.map_or_else(String::new, |ratio| ratio.to_string()),
            budget.unwrap_or_default(),
            if errors == 0 { "0".to_owned() } else { format!("{errors} ERRORS: ROW IS VOID") },
        ]);
    }
    println!("{}\n\n{table}", workload.title());
    Ok(())
}

fn connects(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Asks once, so that what is measured is known to be an answer.
fn check(peer: Peer, port: u16, workload: Workload) -> Result<()> {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET /app.fcgi HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
    let (head, body) = read_response(&mut stream)?;
    if !head.starts_with("HTTP/1.1 200 ") || body != workload.size() {
        bail!("{} answered {body} bytes: {}", peer.name(), head.lines().next().unwrap_or_default());
    }
    Ok(())
}

fn load(server: &Running, connections: u32, seconds: u32) -> Result<Sample> {
    let mut command = host::pinned(host::GENERATOR_PROCESSOR, "wrk");
    command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "--timeout", "10s"]);
    command.arg(format!("http://127.0.0.1:{}/app.fcgi", server.port));
    let processes = cpu::process_tree(server.process.0.id())?;
    let before = cpu::time_used(&processes)?;
    let output = workspace::output(&mut command)?;
    let used = cpu::time_used(&processes)?.saturating_sub(before);
    let result = Generated::parse(&output).with_context(|| format!("wrk said:\n{output}"))?;
    if result.requests == 0 {
        bail!("{} answered no request; wrk said:\n{output}", server.peer.name());
    }
    let cost = used.as_secs_f64() * 1e6 / result.requests as f64;
    Ok(Sample { cost, rate: result.rate, errors: result.errors })
}
