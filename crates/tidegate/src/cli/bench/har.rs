//! `tidegate bench har`: a scenario out of a browser's recording.

use super::super::{complain, print};
use anyhow::{Context, Result};
use clap::Args;
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidegate_bench::scenario::Recording;

/// Makes a scenario out of what a browser has recorded (HAR).
///
/// In Chromium and Firefox: the tools for developers, Network, go through the application, then "Save all as HAR". Each page
/// that was opened is an operation, and so is what was asked for after a second of quiet; think times are those of the recording. What pages load is
/// left to `assets`, and hosts other than the first page's are left out. What is left out is said on standard error.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench har shop.har > shop.kdl
  tidegate bench run shop.kdl --check
  tidegate bench run shop.kdl --target http://127.0.0.1:8080

A recording holds what was typed, passwords included, and fields such as Authorization; so does the scenario.

Exit codes: 0 a scenario, 1 the recording cannot be read or holds nothing, 2 the arguments are wrong")]
pub struct Arguments {
    /// The recording; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let path = &arguments.file;
    let text = if path == Path::new("-") {
        let mut text = Vec::new();
        stdin().read_to_end(&mut text).map(|_| text)
    } else {
        std::fs::read(path)
    };
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let recording =
        Recording::read(&text).with_context(|| format!("no scenario out of {}", path.display()))?;
    print(&recording.scenario)?;
    complain(&format!(
        "{} operations of {} requests to {}, and {} resources of pages, which `assets` loads\n",
        recording.operations, recording.steps, recording.target, recording.assets
    ));
    let others = recording.others.iter().map(|(host, count)| format!("{count} requests to {host}"));
    let fonts = format!(
        "{} that no page of a scenario loads (fonts, films, sockets, preflights, other methods, and what had no answer)",
        recording.left_out
    );
    let left_out: Vec<String> = others.chain((recording.left_out > 0).then_some(fonts)).collect();
    if !left_out.is_empty() {
        complain(&format!("left out: {}\n", left_out.join(", ")));
    }
    if recording.missing > 0 {
        complain(&format!(
            "{} of the resources were not there when it was recorded; `assets` fails operations for such ones\n",
            recording.missing
        ));
    }
    if recording.without_content > 0 {
        complain(&format!(
            "{} requests or files have content that is not in the recording; a comment stands in their steps\n",
            recording.without_content
        ));
    }
    Ok(ExitCode::SUCCESS)
}
