//! `tidegate keep`: the keeper of an application of a pool. Only the supervisor of pools calls it.

use clap::Args;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_modules::gateway::supervise::keeper::Keeper;
use tidegate_modules::gateway::supervise::launch::Launch;

/// Starts the program by way of `launch`, and ends when all of it has ended.
#[derive(Args)]
pub struct Arguments {
    /// The process that has called this
    parent: u32,
    /// Seconds that the application is needed for when that process was killed
    patience: u64,
    /// What is set, as the supervisor writes it
    settings: String,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// Ends as the program does.
pub fn run(arguments: &Arguments) -> ExitCode {
    let keeper = Keeper { parent: arguments.parent, patience: Duration::from_secs(arguments.patience) };
    let outcome =
        Launch::from_argument(&arguments.settings).and_then(|launch| keeper.run(launch, &arguments.program));
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(problem) => {
            // Standard output leads to the log of the pool, standard error to the supervisor.
            println!("tidegate: cannot be kept: {problem}");
            ExitCode::FAILURE
        }
    }
}
