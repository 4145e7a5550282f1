//! How a run is carried out and its result given out: in this process or several, on the terminal, as JSON, in
//! files.

use super::super::{complain, print};
use super::load::Generator;
use super::runs::{KeepOptions, tell};
use super::wrong;
use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use std::ffi::OsString;
use std::fmt;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};
use tidegate_bench::host::{Host, Watch};
use tidegate_bench::live::Live;
use tidegate_bench::plan::Plan;
use tidegate_bench::report::{self, About, Report};
use tidegate_bench::run::{Ending, Outcome, Stop, lead_time, run_at};
use tidegate_bench::runs;
use tidegate_bench::scenario::{self, Load, Scenario};
use tidegate_bench::systems::Start;
use tidegate_bench::verdict::Target;
use tidegate_bench::{monotonic_ns, preflight, processes};

/// What is given out.
#[derive(Args, Clone)]
pub struct Output {
    /// One JSON object on standard output in place of the screen
    #[arg(long)]
    pub json: bool,
    /// Write a line for each interval, comma-separated
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write an HdrHistogram log (V2), for the tools that read such
    #[arg(long, value_name = "FILE")]
    pub hlog: Option<PathBuf>,
    /// Write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub keeping: KeepOptions,
    #[command(flatten)]
    pub conduct: RunOptions,
}

/// What every command that makes runs may be told.
#[derive(Args, Clone)]
pub struct RunOptions {
    /// No live line
    #[arg(short, long, overrides_with = "quiet")]
    pub quiet: bool,
    /// A process of the server, watched with its children; may be repeated [default: who listens there]
    #[arg(long, value_name = "PID")]
    pub server_pid: Vec<u32>,
    /// Do not watch this host during the run
    #[arg(long)]
    pub no_host: bool,
}

/// What became of a run.
pub enum Done {
    /// The outcome of the whole, and the host meanwhile.
    Whole(Box<Outcome>, Option<Host>),
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

impl RunOptions {
    /// Carries out a plan in this process, after a look whether the target is there.
    pub fn run_here(&self, plan: Plan, stop: &Stop) -> Result<(Outcome, Option<Host>)> {
        let agreed = preflight::reach(&plan)?;
        let live = self.live(&plan);
        let start = monotonic_ns().saturating_add(lead_time(&plan));
        let watch = self.watch(&plan, start)?;
        let outcome = run_at(plan, start, stop, |progress| live.show(progress));
        live.clear();
        let mut outcome = outcome.context("cannot start the generator")?;
        outcome.tls = agreed.map(|agreed| agreed.to_string());
        Ok((outcome, watch.map(Watch::finish)))
    }

    /// The same for a scenario, of which `plan` says how connections are made. `begins` is told when it begins, `observe` gets each
    /// second.
    pub fn run_scenario(
        &self,
        scenario: &Scenario,
        plan: &Plan,
        stop: &Stop,
        begins: &Start,
        mut observe: impl FnMut(&scenario::record::Second),
    ) -> Result<(scenario::record::Outcome, Option<Host>)> {
        let agreed = preflight::reach(plan)?;
        let live = self.live(plan);
        // Users are made before the first of them begins.
        let users = match &scenario.load {
            Load::Users(users) => users.count,
            Load::Visits(_) => 0,
        };
        let start = monotonic_ns().saturating_add(20_000_000 + u64::from(users) * 2_000);
        begins.get_or_init(|| start);
        let watch = self.watch(plan, start)?;
        let outcome = scenario::run_at(scenario, plan, start, stop, |progress, second| {
            live.show(progress);
            observe(second);
        });
        live.clear();
        let mut outcome = outcome.context("cannot start the generator")?;
        outcome.tls = agreed.map(|agreed| agreed.to_string());
        Ok((outcome, watch.map(Watch::finish)))
    }

    /// The live line, where somebody sees it.
    pub fn live(&self, plan: &Plan) -> Live {
        let is_wanted = !self.quiet && std::io::stderr().is_terminal();
        Live::new(plan.time.map(|time| time + plan.warmup), is_wanted)
    }

    fn watch(&self, plan: &Plan, start: u64) -> Result<Option<Watch>> {
        if self.no_host {
            return Ok(None);
        }
        if let Some(pid) = self.server_pid.iter().find(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            return Err(wrong(format!("--server-pid {pid}: there is no such process on this host")));
        }
        let interval = plan.interval();
        Watch::begin(plan, &self.server_pid, start, interval).map(Some).context("cannot watch the host")
    }
}

impl Output {
    /// Carries out a plan over so many processes.
    pub fn carry_out(&self, plan: Plan, generator: &Generator, count: u32, stop: &Stop) -> Result<Done> {
        self.keeping.check()?;
        if let Some(part) = generator.part {
            processes::follow_parent(part.parent, stop);
            let outcome = run_at(plan, part.start, stop, processes::tell_progress)?;
            processes::tell_outcome(outcome);
            return Ok(Done::Part);
        }
        if count == 1 {
            let (outcome, host) = self.conduct.run_here(plan, stop)?;
            return Ok(Done::Whole(Box::new(outcome), host));
        }
        let agreed = preflight::reach(&plan)?;
        let live = self.conduct.live(&plan);
        // Time for the others to start.
        let start = monotonic_ns().saturating_add(lead_time(&plan) + 500_000_000);
        let watch = self.conduct.watch(&plan, start)?;
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let outcome = processes::run(&arguments, count, start, |progress| live.show(progress));
        live.clear();
        let mut outcome = outcome?;
        outcome.tls = agreed.map(|agreed| agreed.to_string());
        Ok(Done::Whole(Box::new(outcome), watch.map(Watch::finish)))
    }

    /// Keeps a run, where that is asked for.
    pub fn keep(&self, report: &Report) -> Result<()> {
        let started = report.outcome.started;
        if let Some(folder) = self.keeping.place(&report.subject, started)? {
            let label = self.keeping.label.as_deref();
            runs::keep_requests(&folder, report, label)?;
            tell(&folder, self.conduct.quiet);
        }
        Ok(())
    }

    fn write(&self, report: &Report) -> Result<()> {
        all_kept([
            write(self.csv.as_deref(), || Ok(report::csv(report).into_bytes())),
            write(self.hlog.as_deref(), || Ok(report::hdr_log(report)?)),
            write(self.html.as_deref(), || Ok(report::page(report).into_bytes())),
            self.keep(report),
        ])
    }

    /// Concludes and gives out.
    pub fn conclude(
        &self,
        subject: &str,
        plan: &Plan,
        outcome: Outcome,
        host: Option<Host>,
        targets: &[Target],
    ) -> Result<ExitCode> {
        let is_interrupted = outcome.ending == Ending::Interrupted;
        let mut report = Report::new(subject, plan, outcome, targets);
        report.host = host;
        report.about = about(report.outcome.started);
        // Whichever of both fails, the other is done.
        let written = self.write(&report);
        let shown = if self.json {
            show(&format!("{}\n", report::json(&report)))
        } else {
            show(&report::screen(&report))
        };
        written.and(shown)?;
        let verdict = report.judgement.verdict;
        if self.json {
            for reason in &report.judgement.reasons {
                complain(&format!("tidegate bench: {verdict}: {reason}\n"));
            }
        }
        Ok(if is_interrupted { interrupted() } else { ExitCode::from(verdict.exit_code()) })
    }
}

/// That what was measured could not be written. Ends in [`NotKept::CODE`].
#[derive(Debug, Clone, Copy)]
pub enum NotKept {
    /// It is shown, and its folder or a file of it could not be written.
    InFiles,
    /// Standard output takes nothing.
    OnScreen,
}

impl NotKept {
    /// The exit code.
    pub const CODE: u8 = 97;
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotKept::InFiles => "what was measured is shown, and is not kept whole",
            NotKept::OnScreen => "what was measured cannot be shown",
        })
    }
}

/// That everything is kept, of what was written each by itself.
///
/// # Errors
/// [`NotKept`]: it names each that could not be written.
pub fn all_kept(written: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let mut errors: Vec<Error> = written.into_iter().filter_map(Result::err).collect();
    let error = match errors.len() {
        0 => return Ok(()),
        1 => errors.remove(0),
        _ => anyhow!(errors.iter().map(|error| format!("{error:#}")).collect::<Vec<_>>().join("; ")),
    };
    Err(error.context(NotKept::InFiles))
}

/// Shows what was measured.
///
/// # Errors
/// [`NotKept`]: standard output cannot be written to.
pub fn show(text: &str) -> Result<()> {
    print(text).map(drop).context(NotKept::OnScreen)
}

/// What a run that was interrupted exits with, as shells say of a process that SIGINT has ended.
pub fn interrupted() -> ExitCode {
    ExitCode::from(130)
}

/// What a queue tells its runs, beside what somebody would type: its process.
pub const OF_QUEUE: &str = "of-queue";

/// Of a run of this command that began at `started`, wall-clock seconds since 1970. Its command can be typed again.
pub fn about(started: f64) -> About {
    let of_queue = format!("--{OF_QUEUE}=");
    let words = std::env::args().filter(|word| !word.starts_with(&of_queue));
    About::here(started, env!("CARGO_PKG_VERSION"), words)
}

/// The same for one that begins now.
pub fn about_now() -> About {
    about(now())
}

/// Wall-clock seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Writes a file where one is wanted.
pub fn write(path: Option<&Path>, content: impl FnOnce() -> Result<Vec<u8>>) -> Result<()> {
    match path {
        Some(path) => {
            std::fs::write(path, content()?).with_context(|| format!("cannot write {}", path.display()))
        }
        None => Ok(()),
    }
}
