//! `tidegate bench fmt`: writes scenario files the one way, as `tidegate fmt` does settings.

use super::super::fmt::all;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes a scenario file the one way it should look.
///
/// Sets indentation, spaces and blank lines; comments, order and meaning stay. The file is replaced whole, and not at all where
/// nothing differs or where it cannot be read as KDL. What it means is for `bench run --check`.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench fmt shop.kdl
  tidegate bench fmt --check scenarios/*.kdl    say which files differ, change none
  tidegate bench fmt - < draft.kdl              from standard input to standard output

Exit codes:
  0  the files are formatted
  1  with --check, some differ; else some cannot be read, understood or written
  2  the arguments are wrong")]
pub struct Arguments {
    /// Scenario files; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Change nothing, only say which files differ
    #[arg(long)]
    check: bool,
}

/// Formats.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    Ok(all(&arguments.files, arguments.check, "tidegate bench fmt"))
}
