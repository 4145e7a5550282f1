//! Kept runs: where they lie, and the commands that read them. The work is in `tidegate_bench::runs`.

mod connections;
pub mod diff;
pub mod export;
pub mod ls;
pub mod serve;
pub mod show;

use super::super::complain;
use super::wrong;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use tidegate_bench::report::About;
use tidegate_bench::runs::{self, FOLDER, Run, Runs, VARIABLE};
use tidegate_bench::scenario::{self, Scenario};

/// Where runs are kept.
#[derive(Args, Clone)]
pub struct RunsFolder {
    /// The folder of all runs [default: $TIDEGATE_RUNS, else ./runs]
    #[arg(long, value_name = "FOLDER")]
    runs_folder: Option<PathBuf>,
}

impl RunsFolder {
    /// The one that is meant.
    pub fn runs(&self) -> Runs {
        let said = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        Runs::new(self.runs_folder.clone().or(said).unwrap_or_else(|| FOLDER.into()))
    }
}

/// How the run of a scenario is kept.
#[derive(Args, Clone)]
pub struct Keeping {
    /// Write the run into this folder, in place of one of its own in the folder of runs
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Keep nothing
    #[arg(long, conflicts_with_all = ["out", "label"])]
    no_keep: bool,
    /// What tables and graphs call this run: what was changed for it
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    #[command(flatten)]
    folder: RunsFolder,
}

impl Keeping {
    /// The first of its options that was said.
    pub fn said(&self) -> Option<&'static str> {
        let all = [
            (self.out.is_some(), "--out"),
            (self.no_keep, "--no-keep"),
            (self.folder.runs_folder.is_some(), "--runs-folder"),
            (self.label.is_some(), "--label"),
        ];
        all.into_iter().find(|(is_said, _)| *is_said).map(|(_, name)| name)
    }

    /// Begins the folder of a run, where one is wanted.
    pub fn begin(
        &self,
        source: &[u8],
        scenario: &Scenario,
        threads: u32,
        (about, started): (&About, f64),
    ) -> Result<Option<runs::Keep>> {
        if self.no_keep {
            return Ok(None);
        }
        let folder = place(self.out.as_deref(), &self.folder, &scenario.name, started)?;
        let label = self.label.as_deref();
        let begun = scenario::report::begin(&folder, source, scenario, threads, about, label);
        begun.map(Some).context("cannot begin the folder of the run")
    }
}

/// How a run without a scenario is kept, where that is asked for.
#[derive(Args, Clone)]
pub struct KeepOptions {
    /// Keep the run in a folder of its own, in the folder of runs
    #[arg(long)]
    pub keep: bool,
    /// Write the run into this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "keep")]
    pub out: Option<PathBuf>,
    /// What tables and graphs call this run: what was changed for it
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    #[command(flatten)]
    folder: RunsFolder,
}

impl KeepOptions {
    /// That there is a run to give the label to.
    pub fn check(&self) -> Result<()> {
        if self.label.is_some() && !self.keep && self.out.is_none() {
            return Err(wrong("--label is of a run that is kept: add --keep or --out"));
        }
        Ok(())
    }

    /// The folder of a run that began at `started`, where one is wanted.
    pub fn place(&self, name: &str, started: f64) -> Result<Option<PathBuf>> {
        if !self.keep && self.out.is_none() {
            return Ok(None);
        }
        place(self.out.as_deref(), &self.folder, name, started).map(Some)
    }
}

fn place(out: Option<&Path>, folder: &RunsFolder, name: &str, started: f64) -> Result<PathBuf> {
    match out {
        Some(out) => Ok(out.to_owned()),
        None => folder.runs().make(name, started).context("cannot keep the run"),
    }
}

/// Says where a run lies.
pub fn tell(folder: &Path, is_quiet: bool) {
    if !is_quiet {
        complain(&format!("tidegate bench: kept in {}\n", folder.display()));
    }
}

/// The runs of a list with commas.
fn listed(runs: &Runs, text: &str) -> Result<Vec<Run>> {
    let names = text.split(',').filter(|name| !name.is_empty());
    let found: Vec<Run> = names.map(|name| runs.find(name)).collect::<Result<_, _>>()?;
    if found.is_empty() {
        bail!("`{text}` names no run");
    }
    Ok(found)
}
