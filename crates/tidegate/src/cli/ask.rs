//! `tidegate ask`: waits for one file system to answer. Only a server process that begins calls it.

use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_io::unanswered;

/// Ends when the file system answers.
#[derive(Args)]
pub struct Arguments {
    /// Where it is mounted
    mount: PathBuf,
}

/// Ends with whoever asks, too.
pub fn run(arguments: &Arguments) -> ExitCode {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    unanswered::answer(&arguments.mount);
    ExitCode::SUCCESS
}
