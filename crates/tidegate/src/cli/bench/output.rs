//! How a run is carried out and its result given out: in this process or several, on the terminal, as JSON, in
//! files.

use super::super::{complain, print};
use super::load::Generator;
use anyhow::{Context, Result};
use clap::Args;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidegate_bench::live::Live;
use tidegate_bench::plan::Plan;
use tidegate_bench::report::{self, Report};
use tidegate_bench::run::{Outcome, Stop, lead_time, run_at};
use tidegate_bench::verdict::Target;
use tidegate_bench::{monotonic_ns, preflight, processes};

/// What is given out.
#[derive(Args, Clone)]
pub struct Output {
    /// One JSON object on standard output in place of the screen
    #[arg(long)]
    pub json: bool,
    /// No live line
    #[arg(short, long)]
    pub quiet: bool,
}

/// What became of a run.
pub enum Done {
    /// The outcome of the whole.
    Whole(Box<Outcome>),
    /// This process was a part and has told its parent.
    Part,
}

/// Interrupts end runs, and a second one this process.
pub fn stop_on_signals() -> Result<Stop> {
    let stop = Stop::default();
    let again = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, again.clone())?;
        signal_hook::flag::register(signal, again.clone())?;
        signal_hook::flag::register(signal, stop.flag())?;
    }
    Ok(stop)
}

impl Output {
    /// Carries out a plan.
    pub fn carry_out(&self, plan: Plan, generator: &Generator, count: u32, stop: &Stop) -> Result<Done> {
        if let Some(part) = generator.part {
            processes::follow_parent();
            let outcome = run_at(plan, part.start, stop, processes::tell_progress)?;
            processes::tell_outcome(outcome);
            return Ok(Done::Part);
        }
        preflight::reach(&plan)?;
        let live = Live::new(plan.time.map(|time| time + plan.warmup), self.shows_life());
        let observe = |progress| live.show(progress);
        let start = monotonic_ns().saturating_add(lead_time(&plan));
        let outcome = if count > 1 {
            let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
            processes::run(&arguments, count, start.saturating_add(500_000_000), observe)?
        } else {
            run_at(plan, start, stop, observe).context("cannot start the generator")?
        };
        live.clear();
        Ok(Done::Whole(Box::new(outcome)))
    }

    fn shows_life(&self) -> bool {
        !self.quiet && !self.json && std::io::stderr().is_terminal()
    }

    /// Concludes and gives out.
    pub fn conclude(
        &self,
        subject: &str,
        plan: &Plan,
        outcome: Outcome,
        targets: &[Target],
    ) -> Result<ExitCode> {
        let report = Report::new(subject, plan, outcome, targets);
        self.give(&report)?;
        Ok(ExitCode::from(report.judgement.verdict.exit_code()))
    }

    fn give(&self, report: &Report) -> Result<()> {
        if self.json {
            print(&format!("{}\n", report::json(report)))?;
            for reason in &report.judgement.reasons {
                complain(&format!("tidegate bench: {}: {reason}\n", report.judgement.verdict));
            }
        } else {
            print(&report::screen(report))?;
        }
        Ok(())
    }
}

/// Where a file is to be written.
#[allow(dead_code)]
pub type Place = Option<PathBuf>;
