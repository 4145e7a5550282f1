//! `tidegate completions`: what a shell needs to complete this command.

use super::print;
use crate::version::VERSION;
use anyhow::Result;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use std::process::ExitCode;

/// Prints completions for a shell.
///
/// What is printed goes where the shell looks for completions, or is read at its start.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate completions bash > /usr/share/bash-completion/completions/tidegate
  tidegate completions zsh > /usr/local/share/zsh/site-functions/_tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish

Exit codes:
  0  done
  1  it could not be written
  2  the arguments are wrong")]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

/// Prints.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut out = Vec::new();
    clap_complete::generate(arguments.shell, &mut offered(), "tidegate", &mut out);
    print(&String::from_utf8_lossy(&out))
}

/// The command without what only the program itself starts: a shell would offer it.
fn offered() -> Command {
    without_hidden(&super::Arguments::command(), "tidegate").version(VERSION)
}

/// A command that is called so, without what is hidden of it. Of those below, `bench` hides something.
fn without_hidden(all: &Command, name: &'static str) -> Command {
    let shown = all.get_subcommands().filter(|sub| !sub.is_hide_set()).map(|sub| match sub.get_name() {
        "bench" => without_hidden(sub, "bench"),
        _ => sub.clone(),
    });
    let command = Command::new(name).args(all.get_arguments().cloned()).subcommands(shown);
    command.about(all.get_about().cloned().unwrap_or_default())
}
