//! `tidegate bench show`: one kept run.

use super::super::super::print;
use super::RunsFolder;
use anyhow::Result;
use clap::Args;
use std::fmt::Write;
use std::process::ExitCode;
use tidegate_bench::runs::{Run, Status};

/// Shows a run that was kept.
///
/// A run is named by its id, a part of it that no other has, `last`, or the path of its folder (with a `/`).
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench show last                the run that was begun last
  tidegate bench show 20261124-0247       a part of the id will do
  tidegate bench show ./old/run1          a folder elsewhere
  tidegate bench show last --json         its summary

Exit codes: 0 shown, 1 there is no such run, 2 the arguments are wrong")]
pub struct Arguments {
    /// Which run
    #[arg(value_name = "RUN")]
    run: String,
    /// Its summary as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    folder: RunsFolder,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let run = arguments.folder.runs().find(&arguments.run)?;
    if arguments.json {
        return print(&format!("{:#}\n", run.summary));
    }
    let mut out = format!("{:<24}{}\n", "Folder", run.path.display());
    if let Some(label) = &run.row.label {
        let _ = writeln!(out, "{:<24}{label}", "Label");
    }
    match run.report().filter(|_| matches!(run.status, Status::Done(_))) {
        Some(report) => out.push_str(&report),
        None => out.push_str(&so_far(&run)),
    }
    print(&out)
}

/// What there is of a run that is not whole.
fn so_far(run: &Run) -> String {
    let row = &run.row;
    let seconds = run.seconds();
    let operations = || seconds.all.iter().flat_map(|second| &second.operations);
    // A sum of no numbers is a negative zero.
    let sum = |counts: &mut dyn Iterator<Item = f64>| counts.sum::<f64>().max(0.0) as u64;
    let ended = sum(&mut operations().map(|of| of.ended));
    let failed = sum(&mut operations().map(|of| of.failed));
    let others = sum(&mut seconds.all.iter().map(|second| second.unmeasured));
    let lines = [
        ("Scenario", row.name.clone()),
        ("Target", row.target.clone()),
        ("Load", row.load.clone()),
        (
            "So far",
            format!(
                "{} s, {ended} operations measured, {failed} of them failed, {others} others",
                seconds.all.len()
            ),
        ),
    ];
    let mut out = String::new();
    for (name, value) in lines {
        let _ = writeln!(out, "{name:<24}{value}");
    }
    let _ = writeln!(out, "\n{}: {}", run.status, run.status.explanation());
    out
}
