//! `cargo xtask bench gateway`: what a request to an application costs, beside nginx, lighttpd and HAProxy.
//!
//! The method is that of the static bench: all servers run at once with one worker each on one processor, one
//! is under load at a time, rounds go in turn, and the figure is CPU time of the server per request. The
//! application shares the generator's processor and is not counted. Every server keeps its connections to it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::gateway_peers::{self, Application, Peer, Process, Running, connects};
use super::rounds::{self, Sample};
use super::server::{free_port, wait_until_listening};
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

impl Workload {
    fn title(self) -> &'static str {
        match self {
            Workload::FastCgi => "FastCGI, 1 KiB, kept connections over a unix socket",
            Workload::Proxy => "HTTP proxy, 1 KiB, kept connections over TCP",
            Workload::ProxyLarge => "HTTP proxy, 100 KiB, kept connections over TCP",
        }
    }

    /// Bytes of an answer's content.
    pub fn size(self) -> usize {
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
    let application = Application { workload, port: backend_port, socket: &socket, queue: None };
    let peers = [Peer::Tidegate].into_iter().chain(arguments.peers.iter().copied());
    let servers: Vec<Running> =
        peers.map(|peer| gateway_peers::start(peer, folder, application)).collect::<Result<_>>()?;
    let samples = rounds::measure(&servers, arguments.rounds, arguments.seconds, |server, seconds| {
        load(server, arguments.connections, seconds)
    })?;
    let rows = servers.iter().zip(samples);
    let rows: Vec<_> =
        rows.map(|(server, samples)| (server.peer.name(), workload.budget(server.peer), samples)).collect();
    println!("{}\n\n{}", workload.title(), rounds::table("CPU µs/request", &rows)?);
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
    Ok(Sample { cost, rate: result.rate, errors: result.errors, doubt: None })
}
