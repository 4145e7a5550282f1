//! `tidegate bench diff`: what tells kept runs apart.

use super::super::super::print;
use super::{RunsFolder, listed};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use tidegate_bench::runs::Difference;

/// Shows what tells runs apart: where and how they were made and the scenario first, then rates and percentiles.
///
/// A and B are a run each, or several with commas. One run of each describes what happened and proves nothing; with ten and
/// more of each there are intervals and conclusions by the rules of `bench compare`.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench diff 20261124-0247 last               two runs
  tidegate bench diff 0247,0251,0255 0249,0253,0257    three of each, described by their medians
  tidegate bench diff ./a/run1 ./b/run1 --json         folders elsewhere, as JSON

Exit codes: 0 shown, 1 there is no such run, 2 the arguments are wrong")]
pub struct Arguments {
    /// One run, or several with commas
    #[arg(value_name = "A")]
    a: String,
    /// The others
    #[arg(value_name = "B")]
    b: String,
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    folder: RunsFolder,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let runs = arguments.folder.runs();
    let difference = Difference::new(&listed(&runs, &arguments.a)?, &listed(&runs, &arguments.b)?);
    if arguments.json { print(&format!("{}\n", difference.json())) } else { print(&difference.screen()) }
}
