//! `tidegate bench hit`: load on a URL or a list of them.

use super::load::{Demands, Generator, Intensity, Subject};
use super::output::{Done, Output, stop_on_signals};
use super::repeat::Repeat;
use super::usage;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use tidegate_bench::plan::Plan;

/// Puts load on a URL or a list of them, and shows what came of it.
///
/// Without --rate it is a closed loop: N connections, each sending its next request when the last is answered.
/// With --rate it is an open loop: requests start on a schedule, and the response time counts from the intended
/// start, so that a server that stands still cannot hide it. A request without an answer counts in all times with as long as it
/// was waited for.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench hit -c 25 -n 10000 http://127.0.0.1/index.htm     as ab -k -c 25 -n 10000
  tidegate bench hit -c 25 -n 10000 --no-keepalive URL             as ab -c 25 -n 10000
  tidegate bench hit -c 25 -n 10000 --http1.0 URL                  as ab -k -c 25 -n 10000, with its HTTP/1.0
  tidegate bench hit -c 100 -t 1m -f urls.txt                      as siege -b -i -c 100 -t 1M -f urls.txt
  tidegate bench hit -c 64 -t 30s --rate 20k --arrivals poisson --target p99=20ms URL
  tidegate bench hit -c 10 -n 100000 --h2 -m 32 https://example.com/     as h2load -c 10 -n 100000 -m 32
  tidegate bench hit -c 25 -t 20s --runs 6 --trim -f urls.txt      six runs, the mean of the middle four
  tidegate bench hit -c 400 -t 1m --min-bitrate 320k --target conforming=95 URL

Exit codes: 0 MEASURED or PASS, 97 what was measured could not be written, 98 INVALID, 99 FAIL, 1 no load could be put
on, 2 the arguments are wrong, 130 interrupted")]
pub struct Arguments {
    #[command(flatten)]
    subject: Subject,
    #[command(flatten)]
    intensity: Intensity,
    #[command(flatten)]
    demands: Demands,
    #[command(flatten)]
    generator: Generator,
    #[command(flatten)]
    repeat: Repeat,
    #[command(flatten)]
    output: Output,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(sentence) = arguments.intensity.manner.objection() {
        return Ok(usage(sentence));
    }
    let targets = arguments.demands.targets()?;
    let (name, mix) = arguments.subject.mix(!arguments.intensity.manner.no_keepalive)?;
    let mut plan = Plan::new(mix);
    plan.seed = arguments.subject.seed;
    plan.expectation = arguments.demands.expectation()?;
    plan.min_bitrate = arguments.demands.min_bitrate;
    arguments.intensity.apply(&mut plan)?;
    let processes = arguments.generator.apply(&mut plan)?;
    if let Some(sentence) = arguments.repeat.objection(&arguments.output, processes) {
        return Ok(usage(&sentence));
    }
    let stop = stop_on_signals()?;
    if arguments.repeat.runs > 1 {
        return arguments.repeat.carry_out(&name, &plan, &arguments.output, &targets, &stop);
    }
    match arguments.output.carry_out(plan.clone(), &arguments.generator, processes, &stop)? {
        Done::Whole(outcome, host) => arguments.output.conclude(&name, &plan, *outcome, host, &targets),
        Done::Part => Ok(ExitCode::SUCCESS),
    }
}
