//! `tidegate bench`: the load generator's commands. Each file reads the arguments of one; the work is in
//! `tidegate-bench`.

mod downloads;
mod hit;
mod load;
mod output;

use super::complain;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Puts load on an HTTP server and says what it did, and whether the figures can be trusted.
///
/// `hit` does what ab, siege and wrk do, and with --rate what wrk2 does: requests on a schedule that the server
/// cannot slow down. `downloads` holds many slow readers open at once. Every run ends in a verdict: PASS, FAIL
/// (a target missed) or INVALID (the measurement cannot be trusted), with the reason.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench hit -c 64 -t 10s http://127.0.0.1:8080/              a closed loop, as ab and wrk
  tidegate bench hit -c 64 -t 30s --rate 5000 --target p99=50ms URL   an open loop with a target
  tidegate bench hit -c 25 -t 1m -f urls.txt                          a list of URLs, as siege
  tidegate bench downloads -c 10000 --limit 100KiB URL                slow readers

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
    Downloads(downloads::Arguments),
}

/// Does what they say.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Hit(arguments) => hit::run(arguments),
        Command::Downloads(arguments) => downloads::run(arguments),
    }
}

/// Arguments that make no sense: the sentence, and the exit code for it.
fn usage(sentence: &str) -> ExitCode {
    complain(&format!("tidegate bench: {sentence}\n"));
    ExitCode::from(2)
}
