//! `tidegate bench idle`: connections that only stay open.

use super::load::{Demands, Generator, Subject};
use super::output::{Done, Output, stop_on_signals};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_bench::plan::Plan;
use tidegate_bench::quantity;

/// Holds idle keep-alive connections open and counts those that the server drops.
///
/// Each connection sends one request, reads the answer and then stays silent until the time is over. The host
/// figures show what the server holds meanwhile: resident memory before and during.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench idle -c 15000 -t 60s http://127.0.0.1:8080/
  tidegate bench idle -c 30000 --processes auto --target errors=0 URL

Exit codes: 0 MEASURED or PASS, 97 what was measured could not be written, 98 INVALID, 99 FAIL, 1 no load could be put
on, 2 the arguments are wrong, 130
interrupted")]
pub struct Arguments {
    #[command(flatten)]
    subject: Subject,
    /// Connections
    #[arg(short, long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// How long they stay
    #[arg(short, long, value_name = "TIME", default_value = "30s", value_parser = quantity::duration)]
    time: Duration,
    /// Time over which they are opened [default: a second for every 5,000]
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    ramp: Option<Duration>,
    #[command(flatten)]
    demands: Demands,
    #[command(flatten)]
    generator: Generator,
    #[command(flatten)]
    output: Output,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let targets = arguments.demands.targets()?;
    let (name, mix) = arguments.subject.mix(true)?;
    let mut plan = Plan::new(mix);
    plan.connections = arguments.connections;
    plan.is_idle = true;
    plan.time = Some(arguments.time);
    plan.ramp = arguments.ramp.unwrap_or(Duration::from_secs_f64(f64::from(arguments.connections) / 5_000.0));
    plan.expectation = arguments.demands.expectation()?;
    let processes = arguments.generator.apply(&mut plan)?;
    let stop = stop_on_signals()?;
    match arguments.output.carry_out(plan.clone(), &arguments.generator, processes, &stop)? {
        Done::Whole(outcome, host) => arguments.output.conclude(&name, &plan, *outcome, host, &targets),
        Done::Part => Ok(ExitCode::SUCCESS),
    }
}
