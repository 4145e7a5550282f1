//! `tidegate cgi-stub`: starts CGI scripts. Only the supervisor of pools calls it.

use anyhow::Result;
use clap::Args;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_modules::gateway::cgi;

/// Serves the socket on standard input.
#[derive(Args)]
pub struct Arguments {
    /// Seconds that a script may run
    expiration: u64,
}

/// Serves until it is ended.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let listener = std::io::stdin().as_fd().try_clone_to_owned()?;
    cgi::serve(&listener, Duration::from_secs(arguments.expiration.max(1)))?;
    Ok(ExitCode::SUCCESS)
}
