//! `cargo xtask bench h2`: what a file costs over HTTP/2 with TLS, beside nginx and h2o.
//!
//! The servers and the method are those of the TLS bench; the load comes from `h2load`, a client of another make,
//! with many streams on few connections. A row that was not HTTP/2, or whose files were not whole, is void.

use anyhow::{Context, Result, bail};

use super::rounds::{self, Course, Sample, Series};
use super::static_files::build;
use super::tls_peers::{Peer, Running, Site};
use super::{cpu, host};
use crate::workspace;

/// Seconds that `h2load` may take beyond its time.
const PATIENCE: u32 = 10;
/// How often a run is made that does not come to its end.
const ATTEMPTS: usize = 5;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    course: Course,
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_value = "1k,100k")]
    workloads: Vec<Workload>,
    /// Servers to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,h2o")]
    peers: Vec<Peer>,
    /// Connections of the generator
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Requests under way at once on each connection
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    streams: u32,
    /// Congestion control for all servers
    #[arg(long, default_value = "cubic")]
    congestion: String,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    #[value(name = "1k")]
    Small,
    #[value(name = "100k")]
    Medium,
}

impl Workload {
    fn title(self) -> &'static str {
        match self {
            Workload::Small => "1 KiB over HTTP/2 and TLS",
            Workload::Medium => "100 KiB over HTTP/2 and TLS",
        }
    }

    fn size(self) -> usize {
        match self {
            Workload::Small => 1024,
            Workload::Medium => 102_400,
        }
    }

    fn document(self) -> String {
        format!("{}.bin", self.size())
    }

    /// Most that Tidegate may cost in parts of the peer's cost.
    fn budget(self, peer: Peer) -> Option<f64> {
        match (self, peer) {
            (_, Peer::Tidegate) => None,
            (Workload::Small, Peer::Nginx) => Some(0.26),
            // Never behind the best peer.
            _ => Some(1.0),
        }
    }
}

/// Runs the bench and prints its tables.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    if workspace::find_program("h2load").is_none() {
        bail!("h2load is missing: cargo xtask tools --for bench");
    }
    let site = Site::new("h2", &arguments.peers, arguments.connections + 200, true)?;
    if !arguments.course.no_build {
        build()?;
    }
    let congestion = host::CongestionControl::set(&arguments.congestion)?;
    println!("{}, {}", host::today(), host::description());
    println!(
        "{} rounds of {} s, h2load with {} connections of {} streams, congestion control {}\n\
         CPU time and ratios: median [least–most]; a ratio under 1 is for Tidegate\n",
        arguments.course.rounds,
        arguments.course.seconds,
        arguments.connections,
        arguments.streams,
        congestion.name()
    );
    for workload in &arguments.workloads {
        site.add_document(&workload.document(), workload.size())?;
    }
    let servers = site.start_all(&arguments.peers)?;
    for &workload in &arguments.workloads {
        let samples = rounds::measure(&servers, &arguments.course, |server, seconds| {
            load((arguments.connections, arguments.streams), server, workload, seconds)
        })?;
        let rows = servers.iter().zip(samples);
        let rows: Vec<_> = rows
            .map(|(server, samples)| (server.peer.name(), workload.budget(server.peer), samples))
            .collect();
        println!("{}\n\n{}", workload.title(), rounds::table("CPU µs/request", &rows)?);
    }
    Ok(())
}

/// What each server costs for one workload, 8 connections of 32 streams.
pub fn series(course: &Course, workload: Workload, peers: &[Peer]) -> Result<Vec<Series>> {
    let site = Site::new("h2", peers, 208, true)?;
    let _congestion = host::CongestionControl::set("cubic")?;
    site.add_document(&workload.document(), workload.size())?;
    let servers = site.start_all(peers)?;
    let samples =
        rounds::measure(&servers, course, |server, seconds| load((8, 32), server, workload, seconds))?;
    let series = servers.iter().zip(samples);
    Ok(series.map(|(server, samples)| Series { server: server.peer.name().to_owned(), samples }).collect())
}

/// Loads a server with so many connections, of so many streams each.
fn load(many: (u32, u32), server: &Running, workload: Workload, seconds: u32) -> Result<Sample> {
    // At its end it may wait for ever for streams that a server has forgotten. Such a run counts for nothing and is made again.
    let mut command = host::pinned(host::GENERATOR_PROCESSOR, "timeout");
    command.args([&(seconds + PATIENCE).to_string(), "h2load", "-t", "1", "-c", &many.0.to_string()]);
    command.args(["-m", &many.1.to_string(), "-D", &seconds.to_string()]);
    command.arg(format!("https://127.0.0.1:{}/{}", server.port, workload.document()));
    let mut attempt = || {
        let processes = cpu::process_tree(server.child.id())?;
        let meter = cpu::Meter::start(processes).with_context(|| server.state())?;
        let output = workspace::output(&mut command)?;
        anyhow::Ok((output, meter.stop().with_context(|| server.state())?))
    };
    let mut outcome = attempt();
    for _ in 1..ATTEMPTS {
        let Err(error) = outcome else { break };
        println!("{error:#}; once more");
        outcome = attempt();
    }
    let (output, used) = outcome?;
    let load = Generated::parse(&output).with_context(|| format!("h2load said:\n{output}"))?;
    if load.requests == 0 {
        bail!("{} answered no request; h2load said:\n{output}", server.peer.name());
    }
    let doubt = load.doubt(workload.size());
    Ok(Sample { doubt, ..Sample::of(used, load.requests, load.rate, load.errors) })
}

/// What `h2load` reports.
#[derive(Debug, PartialEq)]
struct Generated {
    /// Those that were answered.
    requests: u64,
    /// For each second.
    rate: f64,
    /// Of any kind.
    errors: u64,
    /// What ALPN came to.
    protocol: String,
    /// Content received, without fields and frames.
    content: u64,
}

impl Generated {
    fn parse(output: &str) -> Option<Self> {
        let (mut requests, mut rate, mut errors, mut content) = (None, None, None, None);
        let mut protocol = String::new();
        for line in output.lines() {
            if let Some(name) = line.strip_prefix("Application protocol: ") {
                name.trim().clone_into(&mut protocol);
            } else if let Some(figures) = line.strip_prefix("finished in ") {
                rate = Some(counted(figures, " req/s")?.parse().ok()?);
            } else if let Some(figures) = line.strip_prefix("requests: ") {
                requests = Some(counted(figures, " done")?.parse().ok()?);
                errors = Some(counted(figures, " failed")?.parse().ok()?);
            } else if let Some(figures) = line.strip_prefix("traffic: ") {
                // `97.66MB (102400000) data`
                let figure = figures.split(", ").find(|figure| figure.ends_with(" data"))?;
                content = Some(figure.split(['(', ')']).nth(1)?.parse().ok()?);
            }
        }
        Some(Self { requests: requests?, rate: rate?, errors: errors?, protocol, content: content? })
    }

    /// Why the load was not what it should be.
    fn doubt(&self, size: usize) -> Option<String> {
        if self.protocol != "h2" {
            return Some(format!("spoke {:?}", self.protocol));
        }
        let expected = self.requests.saturating_mul(size as u64);
        (self.content < expected).then(|| format!("{} of {expected} bytes came", self.content))
    }
}

/// Requests that `h2load` saw answered, whatever the protocol.
pub fn answers(output: &str) -> Option<u64> {
    let figures = output.lines().find_map(|line| line.strip_prefix("requests: "))?;
    counted(figures, " done")?.parse().ok()
}

/// The figure in front of its name, in a list with commas.
fn counted<'a>(figures: &'a str, name: &str) -> Option<&'a str> {
    figures.split(", ").find_map(|figure| figure.strip_suffix(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "starting benchmark...\nspawning thread #0: 8 total client(s). Timing-based test with \
        0s of warm-up time and 2s of main duration for measurements.\nTLS Protocol: TLSv1.3\n\
        Cipher: TLS_AES_128_GCM_SHA256\nServer Temp Key: X25519 253 bits\nApplication protocol: h2\n\n\
        finished in 2.00s, 50000.50 req/s, 53.01MB/s\n\
        requests: 100001 total, 100257 started, 100001 done, 99999 succeeded, 2 failed, 0 errored, 0 timeout\n\
        status codes: 99999 2xx, 0 3xx, 2 4xx, 0 5xx\n\
        traffic: 106.02MB (111169024) total, 5.53MB (5800000) headers (space savings 70.10%), \
        97.66MB (102401024) data\n\
        \x20                    min         max         mean         sd        +/- sd\n\
        time for request:      120us     10.22ms      5.01ms       800us    70.00%\n";

    #[test]
    fn output_of_h2load() {
        let expected = Generated {
            requests: 100_001,
            rate: 50000.5,
            errors: 2,
            protocol: "h2".to_owned(),
            content: 102_401_024,
        };
        let generated = Generated::parse(OUTPUT);
        assert_eq!(generated, Some(expected));
        assert_eq!(generated.unwrap().doubt(1024), None);
        assert_eq!(Generated::parse("h2load: could not resolve"), None);
    }

    #[test]
    fn answers_of_any_protocol() {
        assert_eq!(answers(OUTPUT), Some(100_001));
        assert_eq!(answers(""), None);
    }

    #[test]
    fn what_is_no_figure_about_http2() {
        let with = |from, to| Generated::parse(&OUTPUT.replace(from, to)).unwrap().doubt(1024);
        assert_eq!(with(": h2\n", ": http/1.1\n"), Some("spoke \"http/1.1\"".to_owned()));
        assert!(with("(102401024) data", "(100) data").is_some());
    }
}
