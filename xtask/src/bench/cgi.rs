//! `cargo xtask bench cgi`: requests per second of a CGI script, beside lighttpd and Apache (mod_cgid). nginx has no CGI.
//!
//! The script is `examples/apps/cgi/printenv.c`, compiled twice: as everybody does, and with musl and static, which
//! starts in a fraction of the time. The C library of the system asks the processor what it is some fifty times before
//! `main` (`CPUID`), which on a virtual machine takes longer than all the rest of a request together and hides it.
//!
//! Servers and all that they start share one processor and the generator has the other, so requests per second say what
//! a request costs with everything that belongs to it: server, helper processes, and the script itself, which is the same
//! for all. All servers run at once, one is under load at a time, rounds go in turn. The CPU time is what the processor
//! was busy for, since scripts come and go.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::peers::Kind;
use super::rounds::{self, Course, Sample};
use super::server::{Server, Setup};
use super::static_files::{Generated, build};
use super::{cpu, host};
use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    course: Course,
    /// Servers to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lighttpd,apache")]
    peers: Vec<Kind>,
    /// Connections of the generator
    #[arg(long, default_value_t = 16)]
    connections: u32,
    /// How the script is compiled
    #[arg(long, value_enum, value_delimiter = ',', default_value = "shared,musl")]
    scripts: Vec<Script>,
}

/// The script, by what it is linked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Script {
    /// The C library of the system, shared
    Shared,
    /// musl, static
    Musl,
}

impl Script {
    fn name(self) -> &'static str {
        match self {
            Script::Shared => "printenv",
            Script::Musl => "printenv-musl",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Script::Shared => "a C printenv with the C library of the system, shared",
            Script::Musl => "the same with musl, static",
        }
    }

    fn compiler(self) -> &'static str {
        match self {
            Script::Shared => "cc",
            Script::Musl => "musl-gcc",
        }
    }

    /// Puts it into the folder.
    fn compile(self, folder: &Path) -> Result<()> {
        let mut command = Command::new(self.compiler());
        command.args(["-O2", "-o"]).arg(folder.join(self.name()));
        command.arg(workspace::root().join("examples/apps/cgi/printenv.c"));
        if self == Script::Musl {
            command.arg("-static");
        }
        workspace::output(&mut command).map(drop)
    }
}

/// Requests per second, in parts of a peer's.
const LEAST: f64 = 1.2;

/// Runs the bench and prints its table.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    let peers = arguments.peers.iter().filter_map(|peer| peer.program());
    let compilers = arguments.scripts.iter().map(|script| script.compiler());
    for program in ["wrk"].into_iter().chain(compilers).chain(peers) {
        if workspace::find_program(program).is_none() {
            bail!("{program} is missing: cargo xtask tools --for bench");
        }
    }
    if let Some(peer) = arguments.peers.iter().find(|peer| !matches!(peer, Kind::Lighttpd | Kind::Apache)) {
        bail!("{} is no server with CGI; name lighttpd or apache", peer.name());
    }
    if !arguments.course.no_build {
        build()?;
    }
    let mut setup = Setup::new(Duration::from_secs(60), arguments.connections + 100)?;
    let scripts = setup.documents.with_file_name("cgi-bin");
    std::fs::create_dir_all(&scripts)?;
    arguments.scripts.iter().try_for_each(|script| script.compile(&scripts))?;
    setup.site_directives = format!("route \"/cgi-bin/*\" {{ cgi; alias {:?} }}", scripts.to_string_lossy());
    setup.cgi = Some(scripts);
    println!("{}, {}", host::today(), host::description());
    println!(
        "{} rounds of {} s, wrk with {} connections\n\
         requests/s, CPU time and ratios: median [least–most]; a ratio over 1 is for Tidegate\n",
        arguments.course.rounds, arguments.course.seconds, arguments.connections
    );
    let kinds = std::iter::once(Kind::Tidegate).chain(arguments.peers.iter().copied());
    let servers: Vec<Server> = kinds.map(|kind| Server::start(kind, false, &setup)).collect::<Result<_>>()?;
    arguments.scripts.iter().try_for_each(|script| measure(arguments, *script, &servers))
}

fn measure(arguments: &Arguments, script: Script, servers: &[Server]) -> Result<()> {
    let samples = rounds::measure(servers, &arguments.course, |server, seconds| {
        load(server, script, arguments.connections, seconds)
    })?;
    let budget = |server: &Server| (server.kind != Kind::Tidegate).then_some(LEAST);
    let rows = servers.iter().zip(samples);
    let rows: Vec<_> = rows.map(|(server, samples)| (server.kind.name(), budget(server), samples)).collect();
    println!("{}\n\n{}", script.title(), rounds::rate_table("CPU µs/request, all told", &rows)?);
    Ok(())
}

fn load(server: &Server, script: Script, connections: u32, seconds: u32) -> Result<Sample> {
    let mut command = host::pinned(host::GENERATOR_PROCESSOR, "wrk");
    command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "--timeout", "10s"]);
    command.arg(format!("http://127.0.0.1:{}/cgi-bin/{}?answer=42", server.port, script.name()));
    let (start, idle) = (Instant::now(), cpu::idle_time(host::SERVER_PROCESSOR)?);
    let output = workspace::output(&mut command)?;
    let idle = cpu::idle_time(host::SERVER_PROCESSOR)?.saturating_sub(idle);
    let busy = start.elapsed().saturating_sub(idle);
    let result = Generated::parse(&output).with_context(|| format!("wrk said:\n{output}"))?;
    if result.requests == 0 || result.errors == result.requests {
        bail!("{} answered no request as it should; wrk said:\n{output}", server.name());
    }
    let cost = busy.as_secs_f64() * 1e6 / result.requests as f64;
    Ok(Sample { cost, instructions: None, rate: result.rate, errors: result.errors, doubt: None })
}
