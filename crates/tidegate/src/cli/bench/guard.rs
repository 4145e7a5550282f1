//! `tidegate bench guard`: what a run starts beside itself, so that its systems are put back where it is killed. Nobody else starts it;
//! the work is in `tidegate_bench::systems`.

use super::super::complain;
use anyhow::Result;
use clap::Args;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use tidegate_bench::systems::guard;

/// Puts systems back whose run was killed.
#[derive(Args)]
#[command(hide = true)]
pub struct Arguments {}

/// Runs it.
pub fn run(_: &Arguments) -> Result<ExitCode> {
    // The terminal may be closed with the run.
    for signal in [signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    guard(io::stdin().lock(), &|text| complain(&format!("tidegate bench: {text}\n")));
    Ok(ExitCode::SUCCESS)
}
