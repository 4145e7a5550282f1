//! `tidegate launch`: the last step before an application of a pool runs. Only the server itself calls it.

use anyhow::{Result, bail};
use clap::Args;
use std::ffi::OsString;
use std::process::ExitCode;
use tidegate_modules::gateway::supervise::launch::Launch;

/// Sets limits, user and folder, and becomes the program.
#[derive(Args)]
pub struct Arguments {
    /// What is set, as the supervisor writes it
    settings: String,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// Does not return when all goes well.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let problem = Launch::from_argument(&arguments.settings)?.run(&arguments.program);
    bail!("{problem}")
}
