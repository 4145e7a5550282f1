//! `cargo xtask random`: the random client of `crates/tidegate-testkit` for minutes or hours, against a server with
//! debug assertions and overflow checks.
//!
//! It builds both and hands over to `tidegate-random`, whose words it says.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    /// Minutes; without them and without --seeds one seed is tried
    #[arg(long)]
    minutes: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds
    #[arg(long)]
    seeds: Option<u64>,
    /// Waves of clients for each seed
    #[arg(long, default_value_t = 6)]
    waves: u64,
    /// At most so many clients in a wave: fewer tell more of what was found
    #[arg(long)]
    clients: Option<u64>,
    /// What is not examined, such as `memory`
    #[arg(long)]
    without: Vec<String>,
    /// Go on behind a seed that has found something
    #[arg(long)]
    keep_going: bool,
    /// Another server than the one that is built here
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Builds what is needed and runs it; an error when something was found.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut build = workspace::cargo();
    build.args(["build", "--quiet", "--locked", "-p", "tidegate-testkit", "--bin", "tidegate-random"]);
    if arguments.binary.is_none() {
        build.args(["-p", "tidegate", "--bin", "tidegate"]);
    }
    workspace::run(&mut build)?;
    let built = workspace::target_directory().join("debug");
    let mut command = Command::new(built.join("tidegate-random"));
    command.arg("--binary").arg(arguments.binary.clone().unwrap_or_else(|| built.join("tidegate")));
    let numbers = [
        ("--minutes", arguments.minutes),
        ("--seed", Some(arguments.seed)),
        ("--seeds", arguments.seeds),
        ("--waves", Some(arguments.waves)),
        ("--clients", arguments.clients),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            command.arg(name).arg(number.to_string());
        }
    }
    for name in &arguments.without {
        command.arg("--without").arg(name);
    }
    if arguments.keep_going {
        command.arg("--keep-going");
    }
    workspace::run(&mut command)
}
