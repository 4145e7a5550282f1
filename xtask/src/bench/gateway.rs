//! `cargo xtask bench gateway`: what a request to an application costs, beside nginx, lighttpd and HAProxy.
//!
//! The method is that of the static bench: all servers run at once with one worker each on one processor, one
//! is under load at a time, rounds go in turn, and the figure is CPU time of the server per request. The
//! application shares the generator's processor and is not counted. Every server keeps its connections to it.
//!
//! With `php` the figure is requests per second of a php-fpm that shares the server's processor, so that what it costs
//! to connect to it counts as well. Each server has a php-fpm of its own, all alike. nginx is there twice: as most use
//! it, and with connections that are kept.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::gateway_peers::{self, Application, Peer, Process, Queue, Running, connects};
use super::rounds::{self, Course, Sample, Series};
use super::server::{free_port, wait_until_listening};
use super::static_files::{Generated, build};
use super::{cpu, host};
use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    course: Course,
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fastcgi-1k,proxy-1k,proxy-100k,php")]
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
    Php,
}

/// Children of php-fpm.
const CHILDREN: u32 = 8;

const HELLO: &str = "hello.php";

impl Workload {
    fn title(self) -> &'static str {
        match self {
            Workload::FastCgi => "FastCGI, 1 KiB, kept connections over a unix socket",
            Workload::Proxy => "HTTP proxy, 1 KiB, kept connections over TCP",
            Workload::ProxyLarge => "HTTP proxy, 100 KiB, kept connections over TCP",
            Workload::Php => "PHP: a hello by php-fpm with eight children, on the server's processor",
        }
    }

    /// Bytes of an answer's content.
    pub fn size(self) -> usize {
        match self {
            Workload::FastCgi | Workload::Proxy => 1024,
            Workload::ProxyLarge => 102_400,
            Workload::Php => "hello\n".len(),
        }
    }

    /// What is asked for.
    pub fn path(self) -> &'static str {
        match self {
            Workload::Php => "/hello.php",
            _ => "/app.fcgi",
        }
    }

    /// Most that Tidegate may cost in parts of the peer's cost.
    fn budget(self, peer: Peer) -> Option<f64> {
        Some(match (self, peer) {
            (_, Peer::Tidegate | Peer::Relay) => return None,
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
    if !arguments.course.no_build {
        build()?;
    }
    let congestion = host::CongestionControl::set(&arguments.congestion)?;
    println!("{}, {}", host::today(), host::description());
    println!(
        "{} rounds of {} s, wrk with {} connections, congestion control {}\n\
         CPU time and ratios: median [least–most]; a ratio under 1 is for Tidegate\n",
        arguments.course.rounds,
        arguments.course.seconds,
        arguments.connections,
        congestion.name()
    );
    let folder = workspace::target_directory().join(format!("bench/gateway-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let done = arguments.workloads.iter().try_for_each(|workload| match workload {
        Workload::Php => measure_php(arguments, &folder),
        workload => measure(arguments, *workload, &folder),
    });
    fs::remove_dir_all(&folder)?;
    done
}

fn measure(arguments: &Arguments, workload: Workload, folder: &Path) -> Result<()> {
    let samples = samples(&arguments.course, workload, &arguments.peers, arguments.connections, folder)?;
    let rows = samples.into_iter().map(|(peer, samples)| (peer.name(), workload.budget(peer), samples));
    println!("{}\n\n{}", workload.title(), rounds::table("CPU µs/request", &rows.collect::<Vec<_>>())?);
    Ok(())
}

/// What each server costs for one workload, with 64 connections.
pub fn series(course: &Course, workload: Workload, peers: &[Peer]) -> Result<Vec<Series>> {
    let _congestion = host::CongestionControl::set("cubic")?;
    let folder = workspace::target_directory().join(format!("bench/gateway-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let samples = match workload {
        Workload::Php => php_samples(course, peers, 64, &folder),
        workload => samples(course, workload, peers, 64, &folder),
    };
    fs::remove_dir_all(&folder)?;
    let series = samples?.into_iter();
    Ok(series.map(|(peer, samples)| Series { server: peer.name().to_owned(), samples }).collect())
}

fn samples(
    course: &Course,
    workload: Workload,
    peers: &[Peer],
    connections: u32,
    folder: &Path,
) -> Result<Vec<(Peer, Vec<Sample>)>> {
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
    let application =
        Application { workload, port: backend_port, socket: &socket, scripts: folder, queue: None };
    // A floor that copies is none where answers are large.
    let floor = (workload != Workload::ProxyLarge).then_some(Peer::Relay);
    let peers = [Peer::Tidegate].into_iter().chain(peers.iter().copied()).chain(floor);
    let servers: Vec<Running> =
        peers.map(|peer| gateway_peers::start(peer, folder, application)).collect::<Result<_>>()?;
    let samples =
        rounds::measure(&servers, course, |server, seconds| load(server, workload, connections, seconds))?;
    Ok(servers.iter().map(|server| server.peer).zip(samples).collect())
}

/// The servers with a php-fpm each.
fn measure_php(arguments: &Arguments, folder: &Path) -> Result<()> {
    let samples = php_samples(&arguments.course, &arguments.peers, arguments.connections, folder)?;
    let rows = samples.into_iter().map(|(peer, samples)| {
        let budget = (!matches!(peer, Peer::Tidegate | Peer::Relay)).then_some(1.0);
        (peer.name(), budget, samples)
    });
    let rows: Vec<_> = rows.collect();
    println!("{}\n\n{}", Workload::Php.title(), rounds::rate_table("CPU µs/request, all told", &rows)?);
    Ok(())
}

fn php_samples(
    course: &Course,
    others: &[Peer],
    connections: u32,
    folder: &Path,
) -> Result<Vec<(Peer, Vec<Sample>)>> {
    let mut peers = vec![Peer::Tidegate];
    for peer in others {
        match peer {
            Peer::Nginx => peers.extend([Peer::Nginx, Peer::NginxKept]),
            Peer::Lighttpd => peers.push(Peer::Lighttpd),
            _ => {}
        }
    }
    peers.push(Peer::Relay);
    let scripts = folder.join("scripts");
    fs::create_dir_all(&scripts)?;
    fs::write(scripts.join(HELLO), "<?php echo \"hello\\n\";\n")?;
    let queue = Queue { places: CHILDREN, length: 1_000, age: Duration::from_secs(10), clients: 1_000 };
    let mut servers = Vec::new();
    for peer in peers {
        let socket = folder.join(format!("php-{}.sock", servers.len()));
        let php = start_php(folder, &socket)?;
        let application = Application {
            workload: Workload::Php,
            port: 0,
            socket: &socket,
            scripts: &scripts,
            queue: Some(queue),
        };
        servers.push((gateway_peers::start(peer, folder, application)?, php));
    }
    let samples = rounds::measure(&servers, course, |(server, _), seconds| {
        let (start, idle) = (Instant::now(), cpu::idle_time(host::SERVER_PROCESSOR)?);
        let result = generate(server, Workload::Php, connections, seconds)?;
        let idle = cpu::idle_time(host::SERVER_PROCESSOR)?.saturating_sub(idle);
        let busy = start.elapsed().saturating_sub(idle);
        let used = cpu::Used { time: busy, instructions: None };
        Ok(Sample::of(used, result.requests, result.rate, result.errors))
    })?;
    Ok(servers.iter().map(|(server, _)| server.peer).zip(samples).collect())
}

fn start_php(folder: &Path, socket: &Path) -> Result<Process> {
    let program = ["php-fpm", "php-fpm8.2", "php-fpm8.4"];
    let program = program.into_iter().find(|name| workspace::find_program(name).is_some());
    let program = program.context("php-fpm is missing: cargo xtask tools --for bench")?;
    let is_root = rustix::process::geteuid().is_root();
    let user = if is_root { "user = root\ngroup = root\n" } else { "" };
    let settings = socket.with_extension("conf");
    fs::write(
        &settings,
        format!(
            "[global]\nerror_log = {}\ndaemonize = no\n[www]\nlisten = {}\n{user}pm = static\n\
             pm.max_children = {CHILDREN}\npm.max_requests = 0\n",
            socket.with_extension("log").display(),
            socket.display()
        ),
    )?;
    let mut command = host::pinned(host::SERVER_PROCESSOR, program);
    command.arg("--nodaemonize").arg("--fpm-config").arg(settings);
    if is_root {
        command.arg("--allow-to-run-as-root");
    }
    let output = fs::File::create(folder.join("php.log"))?;
    let mut process = Process(command.stdout(output.try_clone()?).stderr(output).spawn()?);
    let is_there = || std::os::unix::net::UnixStream::connect(socket).is_ok();
    wait_until_listening(&mut process.0, is_there).context("php-fpm")?;
    Ok(process)
}

fn load(server: &Running, workload: Workload, connections: u32, seconds: u32) -> Result<Sample> {
    let meter = cpu::Meter::start(cpu::process_tree(server.process.0.id())?)?;
    let result = generate(server, workload, connections, seconds)?;
    Ok(Sample::of(meter.stop()?, result.requests, result.rate, result.errors))
}

fn generate(server: &Running, workload: Workload, connections: u32, seconds: u32) -> Result<Generated> {
    let mut command = host::pinned(host::GENERATOR_PROCESSOR, "wrk");
    command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "--timeout", "1s"]);
    command.arg(format!("http://127.0.0.1:{}{}", server.port, workload.path()));
    let output = workspace::output(&mut command)?;
    let result = Generated::parse(&output).with_context(|| format!("wrk said:\n{output}"))?;
    if result.requests == 0 {
        bail!("{} answered no request; wrk said:\n{output}", server.peer.name());
    }
    Ok(result)
}
