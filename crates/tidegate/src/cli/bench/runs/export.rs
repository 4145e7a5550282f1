//! `tidegate bench export`: kept runs as one HTML page that needs nothing else.

use super::super::super::print;
use super::{RunsFolder, listed};
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidegate_bench::runs::pages;

/// Writes a run as one HTML page that needs nothing else; several, with commas, as a series.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench export last -o run.html                  one run
  tidegate bench export 0247,0251,0255 -o series.html     users against rate, p90 and processors
  tidegate bench export last -o - > run.html              on standard output

Exit codes: 0 written, 1 there is no such run or the file cannot be written, 2 the arguments are wrong")]
pub struct Arguments {
    /// One run, or several with commas
    #[arg(value_name = "RUN")]
    run: String,
    /// The file; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    folder: RunsFolder,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let runs = listed(&arguments.folder.runs(), &arguments.run)?;
    let page = match runs.as_slice() {
        [run] => pages::run(run),
        several => pages::several(several),
    };
    if arguments.output == Path::new("-") {
        return print(&page);
    }
    std::fs::write(&arguments.output, page)
        .with_context(|| format!("cannot write {}", arguments.output.display()))?;
    print(&format!("{}\n", arguments.output.display()))
}
