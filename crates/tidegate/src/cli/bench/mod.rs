//! `tidegate bench`: the load generator's commands. Each file reads the arguments of one; the work is in
//! `tidegate-bench`.

mod agents;
mod compare;
mod disk;
mod downloads;
mod files;
mod fmt;
mod gate;
mod guard;
mod har;
mod hit;
mod idle;
mod load;
mod monitor;
mod output;
mod peak;
mod question;
mod queue;
mod repeat;
mod run;
mod runs;
mod sweep;
mod urls;

use super::{WrongArguments, complain, wrong};
use anyhow::Result;
use clap::{Args, Subcommand};
use load::{ConnectionOptions, Demands, Generator, Subject};
use output::NotKept;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_bench::plan::Plan;

/// Puts load on an HTTP server and says what it did, and whether the figures can be trusted.
///
/// `hit` does what ab, siege and wrk do, and with --rate what wrk2 does: requests on a schedule that the server
/// cannot slow down. `sweep` makes runs at rising rates, as autobench; `peak` finds the highest rate that holds;
/// `downloads` and `idle` hold many connections open; `compare` tells two targets apart, or says that it cannot, and `gate`
/// runs that were kept from new ones. `files` makes a tree to be served, `urls` a list out of an access log, `har` a scenario out of a browser's recording; `disk` says which
/// network a disk can fill; `run` walks users through an application, as Faban, from this machine or from several (`agent`,
/// `agent-keys`), and watches the machines beside the load by `monitor`; `fmt` writes its files the one way. Its runs are kept:
/// `ls`, `show`, `diff`, `export` and `serve` read them.
/// Every run ends in a verdict: MEASURED (no target was named), PASS, FAIL (a target missed, requests failed, a rate
/// not reached) or INVALID (the measurement cannot be trusted), with the reason.
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
  tidegate bench gate --worse p90=5% base.jsonl new.jsonl             hold back what is proven slower
  tidegate bench files --like sun-one --urls urls.txt --base http://127.0.0.1:8080/ tree
  tidegate bench urls --base http://127.0.0.1:8080 access.log > urls.txt
  tidegate bench har shop.har > shop.kdl                              a scenario out of a recording
  tidegate bench disk --readers 32 /srv                               which network this disk can fill
  tidegate bench run shop.kdl                                         users of a scenario, as Faban
  tidegate bench monitor --process tidegate                           figures of this machine
  tidegate bench ls                                                   the runs that were kept
  tidegate bench diff 0247 last                                       what tells two of them apart
  tidegate bench serve                                                all of them in a browser

Exit codes:
  0   PASS: every target met; MEASURED: none was named
  1   the load could not be put on: unknown host, refused port, unreadable file
  2   the arguments are wrong
  97  what was measured could not be written, to its files or to standard output
  98  INVALID: the measurement cannot be trusted
  99  FAIL: a target was missed, requests failed, or a rate was not reached
  130 interrupted; what was measured is shown")]
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
    Gate(gate::Arguments),
    Guard(guard::Arguments),
    Files(files::Arguments),
    Urls(urls::Arguments),
    Har(har::Arguments),
    Disk(disk::Arguments),
    Run(Box<run::Arguments>),
    Queue(queue::Arguments),
    Fmt(fmt::Arguments),
    Monitor(monitor::Arguments),
    Agent(agents::agent::Arguments),
    AgentKeys(agents::keys::Arguments),
    Ls(runs::ls::Arguments),
    Show(runs::show::Arguments),
    Diff(runs::diff::Arguments),
    Export(runs::export::Arguments),
    Serve(runs::serve::Arguments),
}

/// Does what they say.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let result = match &arguments.command {
        Command::Hit(arguments) => hit::run(arguments),
        Command::Sweep(arguments) => sweep::run(arguments),
        Command::Peak(arguments) => peak::run(arguments),
        Command::Downloads(arguments) => downloads::run(arguments),
        Command::Idle(arguments) => idle::run(arguments),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Gate(arguments) => gate::run(arguments),
        Command::Guard(arguments) => guard::run(arguments),
        Command::Files(arguments) => files::run(arguments),
        Command::Urls(arguments) => urls::run(arguments),
        Command::Har(arguments) => har::run(arguments),
        Command::Disk(arguments) => disk::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Queue(arguments) => queue::run(arguments),
        Command::Fmt(arguments) => fmt::run(arguments),
        Command::Monitor(arguments) => monitor::run(arguments),
        Command::Agent(arguments) => agents::agent::run(arguments),
        Command::AgentKeys(arguments) => agents::keys::run(arguments),
        Command::Ls(arguments) => runs::ls::run(arguments),
        Command::Show(arguments) => runs::show::run(arguments),
        Command::Diff(arguments) => runs::diff::run(arguments),
        Command::Export(arguments) => runs::export::run(arguments),
        Command::Serve(arguments) => runs::serve::run(arguments),
    };
    match result {
        Err(error) if error.is::<WrongArguments>() => Ok(usage(&error.to_string())),
        Err(error) if error.is::<NotKept>() => {
            complain(&format!("tidegate bench: {error:#}\n"));
            Ok(ExitCode::from(NotKept::CODE))
        }
        result => result,
    }
}

/// Arguments that make no sense: the sentence, and the exit code for it.
fn usage(sentence: &str) -> ExitCode {
    complain(&format!("tidegate bench: {sentence}\n"));
    WrongArguments::EXIT_CODE.into()
}

/// What the commands that make several runs in this process begin with.
fn prepare(
    subject: &Subject,
    demands: &Demands,
    manner: &ConnectionOptions,
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
        return Err(wrong(
            "--pipeline goes with a closed loop only: scheduled requests never wait behind another",
        ));
    }
    // Many runs follow each other: none waits long for what is left of the one before.
    plan.drain = Duration::from_secs(2);
    if generator.apply(&mut plan)? > 1 {
        return Err(wrong(format!(
            "this command runs in one process, which may not hold {connections} connections; use fewer"
        )));
    }
    Ok((name, plan))
}
