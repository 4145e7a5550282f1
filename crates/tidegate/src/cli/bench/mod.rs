//! `tidegate bench`: the load generator's commands. Each file reads the arguments of one; the work is in
//! `tidegate-bench`.

mod compare;
mod downloads;
mod hit;
mod idle;
mod load;
mod output;
mod peak;
mod sweep;

use super::complain;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use load::{Demands, Generator, Manner, Subject};
use std::process::ExitCode;
use tidegate_bench::plan::Plan;

/// Puts load on an HTTP server and says what it did, and whether the figures can be trusted.
///
/// `hit` does what ab, siege and wrk do, and with --rate what wrk2 does: requests on a schedule that the server
/// cannot slow down. `sweep` makes runs at rising rates, as autobench; `peak` finds the highest rate that holds;
/// `downloads` and `idle` hold many connections open; `compare` tells two targets apart, or says that it cannot.
/// Every run ends in a verdict: PASS, FAIL
/// (a target missed) or INVALID (the measurement cannot be trusted), with the reason.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench hit -c 64 -t 10s http://127.0.0.1:8080/              a closed loop, as ab and wrk
  tidegate bench hit -c 64 -t 30s --rate 5000 --target p99=50ms URL   an open loop with a target
  tidegate bench hit -c 25 -t 1m -f urls.txt                          a list of URLs, as siege
  tidegate bench sweep --rate 100:20000:x1.25 URL                     rising rates, as autobench
  tidegate bench peak --target p99=20ms URL                           the highest rate that holds
  tidegate bench downloads -c 10000 --limit 100KiB URL                slow readers
  tidegate bench idle -c 15000 -t 60s URL                             idle connections
  tidegate bench compare -c 64 -t 5s URL-A URL-B                      two targets in ABBA blocks

Exit codes:
  0   PASS: every target met
  1   the load could not be put on: unknown host, refused port, unreadable file
  2   the arguments are wrong
  98  INVALID: the measurement cannot be trusted
  99  FAIL: a target was missed")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Hit(hit::Arguments),
    Sweep(sweep::Arguments),
    Peak(peak::Arguments),
    Downloads(downloads::Arguments),
    Idle(idle::Arguments),
    Compare(compare::Arguments),
}

/// Does what they say.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Hit(arguments) => hit::run(arguments),
        Command::Sweep(arguments) => sweep::run(arguments),
        Command::Peak(arguments) => peak::run(arguments),
        Command::Downloads(arguments) => downloads::run(arguments),
        Command::Idle(arguments) => idle::run(arguments),
        Command::Compare(arguments) => compare::run(arguments),
    }
}

/// Arguments that make no sense: the sentence, and the exit code for it.
fn usage(sentence: &str) -> ExitCode {
    complain(&format!("tidegate bench: {sentence}\n"));
    ExitCode::from(2)
}

/// What the commands that make several runs in this process begin with.
fn prepare(
    subject: &Subject,
    demands: &Demands,
    manner: &Manner,
    generator: &Generator,
    connections: u32,
) -> Result<(String, Plan)> {
    let (name, mix) = subject.mix(!manner.no_keepalive)?;
    let mut plan = Plan::new(mix);
    plan.seed = subject.seed;
    plan.connections = connections;
    plan.expectation = demands.expectation()?;
    plan.min_bitrate = demands.min_bitrate;
    manner.apply(&mut plan);
    if manner.pipeline > 1 {
        bail!("--pipeline goes with a closed loop only: scheduled requests never wait behind another");
    }
    if generator.apply(&mut plan)? > 1 {
        bail!("this command runs in one process, which may not hold {connections} connections; use fewer");
    }
    Ok((name, plan))
}
