//! `tidegate bench downloads`: many slow readers at once.

use super::load::{Demands, Generator, Subject};
use super::output::{Done, Output, stop_on_signals};
use super::wrong;
use anyhow::{Context, Result};
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_bench::plan::{Pace, Plan};
use tidegate_bench::quantity;

/// Holds many downloads open at once, each read at a limited rate, and checks every byte that arrives.
///
/// Every reader downloads once, or with --time again and again until it is over. Small receive buffers make the
/// server feel how slow a reader is. Bodies are checked: by default all must have the same CRC-32; with
/// --verify they are compared with a local copy, byte by byte at each position, or with a SHA-256. Where one
/// process may not hold enough descriptors, several are started.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench downloads -c 10000 --limit 100KiB http://127.0.0.1:8080/1MiB
  tidegate bench downloads -c 27317 --limit 40KiB -t 2m --verify iso.img http://mirror/iso.img
  tidegate bench downloads -c 1000 --limit 1MiB --verify sha256=9f86d0… --target availability=100 URL

Exit codes: 0 MEASURED or PASS, 97 what was measured could not be written, 98 INVALID, 99 FAIL, 1 no load could be put
on, 2 the arguments are wrong, 130
interrupted")]
pub struct Arguments {
    #[command(flatten)]
    subject: Subject,
    /// Readers at once
    #[arg(short, long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Bytes per second of one reader; `none` for as fast as it goes
    #[arg(long, value_name = "RATE", default_value = "100KiB", value_parser = limit)]
    limit: Limit,
    /// Download again and again for so long, in place of once each
    #[arg(short, long, value_name = "TIME", value_parser = quantity::duration)]
    time: Option<Duration>,
    /// Time over which the readers begin [default: a second for every 5,000]
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    ramp: Option<Duration>,
    /// What bodies must be: `crc` (all alike), `none`, `sha256=…` or the path of a local copy
    #[arg(long, value_name = "WHAT", default_value = "crc")]
    verify: String,
    /// SO_RCVBUF of each reader [default: half a second's bytes, 32 KiB to 4 MiB]
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    receive_buffer: Option<u64>,
    #[command(flatten)]
    demands: Demands,
    #[command(flatten)]
    generator: Generator,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy)]
struct Limit(Option<u64>);

fn limit(text: &str) -> Result<Limit, quantity::QuantityError> {
    if text == "none" { Ok(Limit(None)) } else { quantity::size(text).map(|rate| Limit(Some(rate))) }
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let targets = arguments.demands.targets()?;
    let (name, mix) = arguments.subject.mix(true)?;
    let mut plan = Plan::new(mix);
    plan.seed = arguments.subject.seed;
    plan.connections = arguments.connections;
    plan.time = arguments.time;
    plan.requests = arguments.time.is_none().then_some(u64::from(arguments.connections));
    plan.is_once = arguments.time.is_none();
    let seconds = f64::from(arguments.connections) / 5_000.0;
    plan.ramp = arguments.ramp.unwrap_or(Duration::from_secs_f64(seconds));
    plan.slow_readers = arguments.limit.0.map(|rate| Pace { rate, share: 1.0 });
    plan.receive_buffer = arguments
        .receive_buffer
        .or(arguments.limit.0.map(|rate| (rate / 2).clamp(32 << 10, 4 << 20)))
        .map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    plan.min_bitrate = arguments.demands.min_bitrate;
    plan.expectation = arguments.demands.expectation()?;
    match arguments.verify.as_str() {
        "crc" => plan.expectation.takes_crc = true,
        "none" => {}
        text if text.starts_with("sha256=") => {
            plan.expectation.demand(text).map_err(|error| wrong(format!("--verify: {error}")))?;
        }
        path => {
            let content = std::fs::read(path).with_context(|| {
                format!("cannot read {path} to compare with; --verify takes crc, none, sha256=… or a file")
            })?;
            plan.expectation.content = Some(content.into());
        }
    }
    if arguments.subject.data.is_some() {
        return Err(wrong("downloads send no --data; use `tidegate bench hit`"));
    }
    let processes = arguments.generator.apply(&mut plan)?;
    let stop = stop_on_signals()?;
    match arguments.output.carry_out(plan.clone(), &arguments.generator, processes, &stop)? {
        Done::Whole(outcome, host) => arguments.output.conclude(&name, &plan, *outcome, host, &targets),
        Done::Part => Ok(ExitCode::SUCCESS),
    }
}
